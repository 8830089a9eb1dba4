// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
)

// If many calls of a pass fail, the error of the pass contains each reason once, and at most ten reasons. In the
// table, every create call except the first one fails.
func TestManyFailures(t *testing.T) {
	t.Parallel()
	const quota = "exceeded quota: pods, requested: pods=1, used: pods=3, limited: pods=3"
	for _, row := range []struct {
		name string
		fail func(i int) error
		want string
	}{
		{
			"one reason is told once, whatever the pods are called",
			func(i int) error { return forbidden(fmt.Sprintf("web-%d", i), quota) },
			`pods "web-1" is forbidden: ` + quota + ` (and 1 more like it)`,
		},
		{
			"the same words are one reason",
			func(int) error { return errors.New("timeout") },
			"timeout (and 1 more like it)",
		},
		{
			"several reasons are told in order",
			func(i int) error { return fmt.Errorf("reason %d", i) },
			"reason 1; reason 2",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(10)
			r.create = func(i int) error {
				if i == 0 {
					return nil
				}
				return row.fail(i)
			}
			pass, err := r.pass(t, 0)
			require.EqualError(t, pass.ScaleErr, row.want)
			require.EqualError(t, err, `controller: ReplicaSet "default/web": creating pods: `+row.want)
			require.ErrorIs(t, err, pass.ScaleErr)
		})
	}

	t.Run("each error can still be found", func(t *testing.T) {
		t.Parallel()
		last := errors.New("the last")
		r := newRig(3)
		r.create = func(i int) error { return []error{nil, quotaFull(), last}[i] }
		_, err := r.pass(t, 0)
		assert.True(t, apierrors.IsForbidden(err))
		require.ErrorIs(t, err, last)
	})

	t.Run("P15 several reasons why deletions failed follow Kubernetes' words, which come once", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(pod *corev1.Pod, _ metav1.DeleteOptions) error { return apierrors.NewBadRequest("not " + pod.Name) }
		pass, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		assert.True(t, apierrors.IsBadRequest(err))
		require.EqualError(t, pass.ScaleErr, "unable to delete pods: not web-000; not web-001")
		assert.Equal(t, pass.ScaleErr.Error(), pass.Status.Status.Conditions[0].Message)
	})

	t.Run("of many reasons ten are told", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		i := 0
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
			i++
			return fmt.Errorf("reason %d", i)
		}
		var pods []*corev1.Pod
		for i := range 13 {
			pods = append(pods, podtest.Pod(fmt.Sprintf("p-%d", i), podtest.OwnedBy(r.owner, "apps/v1", "ReplicaSet")))
		}
		pass, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		assert.Contains(t, pass.ScaleErr.Error(), "reason 10; (3 other reasons left out)")
		assert.NotContains(t, pass.ScaleErr.Error(), "reason 11")
	})
}
