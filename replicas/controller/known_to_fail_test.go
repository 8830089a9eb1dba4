// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas/controller"
)

// The tests of this file say what is right, and fail if it holds: then they belong to the
// other tests. Each says until when it is known to fail.
const untilOneRecord = "one record has what the cache does not show yet"

func TestAStatusWriteIsNotWaitedForInACacheThatIsKnownToBeOld(t *testing.T) {
	t.Parallel()
	podtest.KnownToFail(t, untilOneRecord, func(t *testing.T, r assert.TestingT) {
		t.Helper()
		rig := atVersions(newRig(8), "10", "")
		rig.owner.ResourceVersion = "10"
		pods := ready(rig.owner, 8)
		server := clone(rig.owner) // the watch of owners hangs
		version := 20
		write := func(change func()) {
			version++
			change()
			server.ResourceVersion = strconv.Itoa(version)
		}
		rig.getOwner = func() (*appsv1.ReplicaSet, error) { return clone(server), nil }
		rig.stored = func(rs *appsv1.ReplicaSet) {
			write(func() { server.Status = rs.Status })
			rs.ResourceVersion = server.ResourceVersion
		}
		rig.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error {
			for i := range pods {
				if pods[i].Name == p.Name {
					pods = append(pods[:i:i], pods[i+1:]...)
					break
				}
			}
			return nil
		}
		scale := func(n int32) {
			write(func() { server.Spec.Replicas, server.Generation = &n, server.Generation+1 })
		}
		scale(7)
		pods = pods[:7] // one left, so the owner is read
		pass := func(from, to int) {
			for second := from; second < to; second++ {
				_, _ = rig.pass(t, second, pods...)
				rig.settle()
			}
		}
		pass(0, 30)
		require.Len(t, pods, 7)
		scale(2)
		pass(30, 150)
		there := len(pods)
		assert.Equal(r, 2, there, "the cache is known to be old, so the owner is to be read")
	})
}

func TestAnOwnerWhoseDeletionNoPassFollowsIsForgotten(t *testing.T) {
	t.Parallel()
	podtest.KnownToFail(t, untilOneRecord, func(t *testing.T, r assert.TestingT) {
		t.Helper()
		rig := newRig(1)
		_, err := rig.pass(t, 0)
		require.NoError(t, err)
		rig.forget(t)
		rig.owner = replicaSet(1)
		rig.owner.Name, rig.owner.UID = "other", "uid-of-other"
		for hour := 1; hour < 24; hour++ {
			rig.settle()
			_, _ = rig.pass(t, 3600*hour)
		}
		assert.Equal(r, 1, controller.Remembered(rig.start()), "owners, of which one is gone since a day")
	})
}
