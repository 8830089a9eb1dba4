// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// metric returns the value of the sample with this name and this state or reason.
func (r *rig[O, C]) metric(t *testing.T, name, state string) float64 {
	t.Helper()
	for _, s := range r.recorder.Samples() {
		if s.Name == name && s.State+s.Reason == state {
			return s.Value
		}
	}
	require.Fail(t, "no such metric", name+" "+state)
	return 0
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	t.Run("they count what passes do", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.create = func(i int) error {
			if i == 1 {
				return timeout()
			}
			return nil
		}
		r.look = func() { r.now = r.now.Add(time.Millisecond) }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		assert.InDelta(t, 2, r.metric(t, "children_created_total", ""), 0)
		assert.InDelta(t, 1, r.metric(t, "child_errors_total", ""), 0)
		assert.InDelta(t, 1, r.metric(t, "live_reads_total", ""), 0)
		assert.InDelta(t, 1, r.metric(t, "failed_passes_total", ""), 0)
		assert.InDelta(t, 1, r.metric(t, "owners", "in_flight"), 0)
		took := r.recorder.Samples()[0]
		assert.Equal(t, "sync_duration_seconds", took.Name)
		assert.EqualValues(t, 1, took.Count)
		assert.Positive(t, took.Value)
		below := uint64(0)
		for i := range 9 {
			n, ok := took.Buckets[(time.Millisecond << (2 * i)).Seconds()]
			require.True(t, ok, i)
			assert.GreaterOrEqual(t, n, below)
			below = n
		}
		assert.EqualValues(t, 1, below)
		r.settle()
		*r.owner.Spec.Replicas = 0
		_, err = r.pass(t, 1, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		assert.InDelta(t, 2, r.metric(t, "children_deleted_total", ""), 0)
		assert.InDelta(t, 1, r.metric(t, "failed_passes_total", ""), 0, "not the second one")
	})
	t.Run("a change counts once the server has taken it", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := spec(rs)
			changesTo(&s, "2")
			return s, err
		}
		r.change = func(p *corev1.Pod, _ selector.Patch) (*corev1.Pod, error) {
			if p.Name == "web-001" {
				return nil, forbidden(p.Name, "policy")
			}
			changed := clone(p)
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "template", "2")
			return changed, nil
		}
		_, err := r.pass(t, 0, versioned(podsOf(r.owner, 2))...)
		require.Error(t, err)
		assert.InDelta(t, 1, r.metric(t, "children_changed_total", ""), 0)
		assert.InDelta(t, 1, r.metric(t, "child_errors_total", ""), 0)
		assert.InDelta(t, 1, r.metric(t, "gated_owners", "UpdateFailed"), 0)
	})
	t.Run("an owner is in a state until a pass finds it is not, or it is gone", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return quotaFull() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		for range 2 {
			_, err = r.passAt(t, time.Millisecond)
			require.NoError(t, err)
			assert.InDelta(t, 1, r.metric(t, "gated_owners", "QuotaFull"), 0)
		}
		assert.InDelta(t, 2, r.metric(t, "backed_off_passes_total", ""), 0)
		r.forgetName(t)
		assert.Zero(t, r.metric(t, "gated_owners", "QuotaFull"))
	})
	t.Run("W7 a spec that is refused, and an adoption that is not decided are told", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patch = func(p *corev1.Pod) error { return forbidden(p.Name, "policy") }
		_, err := r.pass(t, 0, podtest.Pod("orphan"))
		require.Error(t, err)
		assert.InDelta(t, 1, r.metric(t, "owners", "adoption_pending"), 0)
		refusing := newRig(1)
		refusing.kind.Spec = func(*appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			return replicas.SpecOfPods{}, fmt.Errorf("no: %w", &replicas.RefusedError{Reason: "No"})
		}
		_, err = refusing.pass(t, 0)
		require.NoError(t, err)
		assert.InDelta(t, 1, refusing.metric(t, "owners", "refused"), 0)
		assert.InDelta(t, 1, refusing.metric(t, "refused_passes_total", ""), 0)
		assert.Zero(t, refusing.metric(t, "failed_passes_total", ""))
	})
}
