// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

// If events reach the controllers late, the controllers create no unnecessary pod, and adopt no pod for an owner
// that is being deleted. Events reach the test itself without delay.
func TestLag(t *testing.T) {
	t.Parallel()

	t.Run("K4 N3 X1 X5 X10 Y4 a cache that is behind costs no pod", func(t *testing.T) {
		t.Parallel()
		registry := prometheus.NewRegistry()
		w := newWorldWith(t, settings{options: clientgo.Options{MetricsRegisterer: registry}})
		rs := w.create(replicaSet("web", 1))
		w.has(rs, 1)
		w.settle(rs)
		w.wire.lag("pods", 500*time.Millisecond)
		w.scale(rs, 15)
		w.has(rs, 15)
		w.scale(rs, 5)
		w.has(rs, 5)
		w.deletePod(w.active(rs)[0].Name)
		w.scale(rs, 12)
		w.has(rs, 12)
		w.scale(rs, 0)
		w.has(rs, 0)
		assert.LessOrEqual(t, w.history.everOwned(rs), 15+1+7)
		assert.Positive(t, sum(t, registry, "replicaset_controller_stale_sync_skips_total"))
	})

	t.Run("C19 an owner that is deleted in truth and not in the cache adopts nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.createHeld(replicaSet("web", 2))
		w.has(rs, 2)
		w.settle(rs)
		release := w.wire.hold("replicasets")
		defer release()
		w.delete(rs, metav1.DeletePropagationBackground)
		w.createPod(orphan("late"))
		w.eventually(func(c *assert.CollectT) {
			assert.NotEmpty(c, w.wire.to(http.MethodGet, "replicasets", "web"))
		}, "a look at the owner")
		release()
		w.settle(rs)
		assert.Empty(t, w.wire.of(http.MethodPatch, "pods"))
		assert.Empty(t, w.pod("late").OwnerReferences)
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	t.Run("N1 N2 N4 the age of the ready pods that are deleted is measured", func(t *testing.T) {
		t.Parallel()
		registry, clock := prometheus.NewRegistry(), newJumpingClock(t)
		w := newWorldWith(t, settings{options: clientgo.Options{MetricsRegisterer: registry, Clock: clock}})
		rs := w.create(replicaSet("web", 5))
		pods := w.has(rs, 5)
		w.runAll(pods[:4])
		w.settle(rs)
		clock.jump(time.Minute)
		w.scale(rs, 2)
		w.has(rs, 2)
		w.scale(rs, 0)
		w.has(rs, 0)
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			if family.GetName() == "replicaset_controller_sorting_deletion_age_ratio" {
				histogram := family.GetMetric()[0].GetHistogram()
				assert.EqualValues(t, 2, histogram.GetSampleCount(), "one victim was not ready, two were not chosen among more")
				assert.InDelta(t, 2, histogram.GetSampleSum(), 0.5, "all are of one age")
			}
		}
		assert.Equal(t, 1, testutil.CollectAndCount(registry, "replicaset_controller_sorting_deletion_age_ratio"))
	})
}

// sum returns the sum of a counter over its labels.
func sum(t *testing.T, registry *prometheus.Registry, name string) (total float64) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				total += metric.GetCounter().GetValue()
			}
		}
	}
	return total
}
