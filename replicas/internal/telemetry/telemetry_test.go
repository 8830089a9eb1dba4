// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

type podPass = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]

const namespace = "default"

func newCluster(nodes int) *replicastest.PodCluster {
	return replicastest.NewPodCluster(replicastest.Options{Nodes: nodes, Seed: 1})
}

func createReplicaSet(t *testing.T, c *replicastest.PodCluster, wants int32) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := c.CreateOwner(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &wants, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
			},
		},
	})
	require.NoError(t, err)
}

// The metrics are there before the first pass, each once, with help. The list is that of docs/metrics.md.
func TestNamesOfMetrics(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	type family struct {
		help string
		is   telemetry.Type
	}
	families := map[string]family{}
	for _, s := range telemetry.New[*appsv1.ReplicaSet, *corev1.Pod]().Samples() {
		id := s.Name + s.State + s.Reason
		assert.False(t, seen[id], id)
		seen[id] = true
		assert.Zero(t, s.Value)
		assert.NotEmpty(t, s.Help)
		about := family{s.Help, s.Type}
		if known, ok := families[s.Name]; ok {
			assert.Equal(t, known, about, s.Name)
		}
		families[s.Name] = about
	}
	listed := []string{
		"sync_duration_seconds", "children_created_total", "children_deleted_total", "children_changed_total", "children_retired_total", "children_recalled_total", "child_errors_total", "delete_conflicts_total", "live_lists_total",
		"live_reads_total", "failed_passes_total", "backed_off_passes_total", "refused_passes_total", "owners",
		"gated_owners", "gate_duration_seconds",
	}
	for name := range families {
		assert.True(t, slices.Contains(listed, name), "add the new metric %s to this list, and to docs/metrics.md", name)
	}
	for _, name := range listed {
		assert.Contains(t, families, name, "remove %s from this list, and from docs/metrics.md: no metric has that name", name)
	}
	assert.Equal(t, map[string]string{"controller": "web", "state": "refused"}, telemetry.Sample{State: "refused"}.Labels("web"))
	assert.Equal(t, map[string]string{"controller": "web", "reason": "QuotaFull"}, telemetry.Sample{Reason: "QuotaFull"}.Labels("web"))
	assert.Equal(t, map[string]string{"controller": "web"}, telemetry.Sample{}.Labels("web"))
}

// The watch of the pods is late for twenty minutes, and pods are deleted all the time. Passes wait for the cache to
// show their calls, and what then is missing is created in the same pass, so the next one waits again. That is one
// gate, so the log has one line, and another one when the watch is in time.
func TestAGateThatLastsIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lag, every time.Duration
		hangs      bool
		most       int // the most changes of gates while the watch is late
	}{
		"as late as the pods are deleted":   {lag: 61 * time.Second, every: time.Minute, most: 1},
		"later than pods are deleted":       {lag: 30 * time.Second, every: 10 * time.Second, most: 1},
		"later than the wait for the cache": {lag: 6 * time.Minute, every: time.Minute, most: 5}, // a live list each five minutes ends the wait
		"it hangs":                          {hangs: true, every: time.Minute, most: 5},
	} {
		for _, versions := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, versions: %t", name, versions), func(t *testing.T) {
				t.Parallel()
				cluster := newCluster(3)
				createReplicaSet(t, cluster, 3)
				c := cluster.NewController()
				c.RememberWrites = versions
				world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
				world.Run(time.Hour)
				var changes []telemetry.GateChange
				recorder := telemetry.New[*appsv1.ReplicaSet, *corev1.Pod]()
				c.Passed = func(pass podPass) { changes = append(changes, recorder.Record(pass)...) }
				if c.View.ChildWatch.Lag = tt.lag; tt.hangs {
					c.View.ChildWatch.Hang()
				}
				_, err := cluster.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = 6 })
				require.NoError(t, err)
				for range 20 * time.Minute / tt.every {
					world.Run(tt.every)
					for _, p := range cluster.Children(namespace)[:min(1, len(cluster.Children(namespace)))] {
						_, err := cluster.DeleteChild(t.Context(), namespace, p.Name, metav1.DeleteOptions{})
						require.NoError(t, err)
					}
				}
				assert.NotEmpty(t, changes)
				assert.LessOrEqual(t, len(changes), tt.most, "%v", changes)
				c.View.ChildWatch.Lag = 0
				c.View.ChildWatch.Relist()
				world.Run(10 * time.Minute)
				last := changes[len(changes)-1]
				assert.Equal(t, controller.CallsNotSeen, last.Reason)
				assert.True(t, last.Ended, "the end is told")
			})
		}
	}
}

// The watch of owners hangs, and each status write adds a version that the cache does not show.
func TestAnOwnerThatTheCacheShowsLateIsToldOnce(t *testing.T) {
	t.Parallel()
	cluster := newCluster(3)
	createReplicaSet(t, cluster, 3)
	c := cluster.NewController()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
	world.Run(time.Hour)
	var changes []telemetry.GateChange
	recorder := telemetry.New[*appsv1.ReplicaSet, *corev1.Pod]()
	c.Passed = func(pass podPass) { changes = append(changes, recorder.Record(pass)...) }
	c.View.OwnerWatch.Hang()
	for range 20 {
		_, err := cluster.DeleteChild(t.Context(), namespace, cluster.Children(namespace)[0].Name, metav1.DeleteOptions{})
		require.NoError(t, err)
		world.Run(time.Minute)
	}
	begun := map[controller.GateReason]int{}
	for _, change := range changes {
		begun[change.Reason]++
	}
	assert.Equal(t, map[controller.GateReason]int{controller.OwnWriteNotSeen: 1}, begun)
	c.View.OwnerWatch.Relist()
	world.Run(10 * time.Minute)
	last := changes[len(changes)-1]
	assert.Equal(t, controller.OwnWriteNotSeen, last.Reason)
	assert.True(t, last.Ended, "the end is told")
}
