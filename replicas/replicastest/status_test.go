// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// statuses records the ReplicaSet statuses that are written from now on.
func (s *stage) statuses() *[]appsv1.ReplicaSetStatus {
	var written []appsv1.ReplicaSetStatus
	s.Changed = func(before, after metav1.Object) {
		was, _ := before.(*appsv1.ReplicaSet)
		rs, _ := after.(*appsv1.ReplicaSet)
		if was != nil && rs != nil && !apiequality.Semantic.DeepEqual(was.Status, rs.Status) {
			written = append(written, rs.Status)
		}
	}
	return &written
}

// requireOneWay checks that the counts in the statuses never fall if up is true, and never rise if up is false.
// After the second status, the number of terminating pods must not rise.
func requireOneWay(t *testing.T, written []appsv1.ReplicaSetStatus, up bool, what string) {
	t.Helper()
	for i, s := range written {
		if i == 0 {
			continue
		}
		was := written[i-1]
		from := []int32{was.Replicas, was.FullyLabeledReplicas, was.ReadyReplicas, was.AvailableReplicas}
		to := []int32{s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas}
		for c := range to {
			require.LessOrEqual(t, from[c]*sign(up), to[c]*sign(up), "%s: write %d of %+v", what, i, written)
		}
		if i > 1 {
			require.LessOrEqual(t, podtest.Terminating(s), podtest.Terminating(was), "%s: they only go: write %d of %+v", what, i, written)
		}
	}
}

func sign(up bool) int32 {
	if up {
		return 1
	}
	return -1
}

// A controller that knows the resourceVersions of its caches counts its own creations and deletions in the status, and
// goes on counting them while the caches are late.
func TestStatusGoesOneWay(t *testing.T) {
	t.Parallel()
	lags := []time.Duration{0, 30 * time.Millisecond, 700 * time.Millisecond, 4 * time.Second}
	for _, podLag := range lags {
		for _, ownerLag := range lags {
			t.Run(fmt.Sprintf("T1 pods are seen after %v, owners after %v", podLag, ownerLag), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, 1, 4)
				s.remember(t, true)
				s.controller.View.ChildWatch.Lag, s.controller.View.OwnerWatch.Lag = podLag, ownerLag
				createReplicaSet(t, s.PodCluster, 0)
				s.world.Run(time.Minute)
				wanted := int32(0)
				for _, n := range []int32{30, 29, 12, 13, 40, 3, 0, 7} {
					written := s.statuses()
					s.scale(t, n)
					s.world.Run(3 * time.Minute)
					requireOneWay(t, *written, n > wanted, fmt.Sprintf("%d to %d", wanted, n))
					wanted = n
					s.requireSettled(t, "scaled")
				}
			})
		}
	}
}

// Pods are created and deleted but never become ready. Each pass of a burst needs one status write.
func TestEachStepTakesOneStatusWrite(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{0, 200 * time.Millisecond} {
		t.Run(fmt.Sprintf("T1 seen after %v", lag), func(t *testing.T) {
			t.Parallel()
			s := &stage{PodCluster: replicastest.NewPodCluster(replicastest.Options{Seed: 1, Nodes: 1, Timing: replicastest.Timing{Schedule: -1}}), consistent: true}
			s.world = &replicastest.World{Clock: s.Clock}
			s.restart(t)
			s.controller.BurstReplicas = 10
			s.controller.View.ChildWatch.Lag, s.controller.View.OwnerWatch.Lag = lag, lag
			createPod(t, s.PodCluster, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other"}}) // gives the cache a resourceVersion
			createReplicaSet(t, s.PodCluster, 0)
			s.world.Run(time.Minute)
			for _, step := range []struct{ to, writes int32 }{{5, 1}, {30, 3}, {0, 3}, {20, 2}, {19, 1}} {
				written := s.statuses()
				s.scale(t, step.to)
				s.world.Run(time.Minute)
				assert.Len(t, *written, int(step.writes), "to %d: %+v", step.to, *written)
				s.requireSettled(t, "scaled")
			}
		})
	}
}

// With a StatusDelay of one second, a hundred changes per second lead to one status write per second. The delay does
// not affect scaling.
func TestStatusDelay(t *testing.T) {
	t.Parallel()
	s := &stage{PodCluster: replicastest.NewPodCluster(replicastest.Options{Seed: 1, Nodes: 4})}
	var err error
	s.controller, err = s.NewControllerWith(controller.Options{StatusDelay: time.Second})
	require.NoError(t, err)
	s.world = &replicastest.World{Clock: s.Clock, Parts: []replicastest.Part{s.PodCluster, s.controller}}
	s.controller.RememberWrites = true
	s.start(t, 20)

	written := s.statuses()
	for i := range 1000 {
		name := s.Children(namespace)[i%20].Name
		s.editPod(t, name, flip)
		s.world.Run(10 * time.Millisecond)
	}
	s.world.Run(time.Second)
	assert.InDelta(t, 10, len(*written), 1, "in ten seconds")
	s.requireSettled(t, "the last change is told")

	for _, n := range []int32{30, 10} {
		s.editPod(t, s.Children(namespace)[0].Name, flip)
		s.world.Run(time.Millisecond)
		s.scale(t, n)
		s.world.Run(time.Millisecond)
		rs, err := s.GetOwner(t.Context(), namespace, "web")
		require.NoError(t, err)
		assert.Len(t, s.active(rs), int(n))
		assert.Equal(t, n, rs.Status.Replicas)
		s.world.Run(time.Minute)
		s.requireSettled(t, "scaled")
	}
	s.editPod(t, s.Children(namespace)[0].Name, func(p *corev1.Pod) { p.Labels["app"] = "debug" })
	s.world.Run(time.Millisecond)
	assert.Len(t, s.active(s.Owners(namespace)[0]), 10, "a pod that was taken out is made up for at once")
}

// flip makes a ready pod unready, and an unready pod ready.
func flip(p *corev1.Pod) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			c.Status = corev1.ConditionFalse
		} else if c.Type == corev1.PodReady {
			c.Status = corev1.ConditionTrue
		}
	}
}

// The condition of a refused spec is one write, and its event brings one more pass, which does nothing.
func TestARefusedSpecIsReportedOnce(t *testing.T) {
	t.Parallel()
	for _, remembers := range []bool{false, true} {
		kind := controller.ReplicaSets()
		kind.Refused = func(rs *appsv1.ReplicaSet, err error) {
			rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Accepted", Status: corev1.ConditionFalse, Message: err.Error()}}
		}
		cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1})
		require.NoError(t, err)
		c := cluster.NewController()
		c.RememberWrites = remembers
		passes, calls := 0, c.Client.Record()
		c.Passed = func(podPass) { passes++ }
		world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
		rs := replicaSet("web", 2)
		rs.Spec.Selector = &metav1.LabelSelector{}
		_, err = cluster.CreateOwner(t.Context(), rs)
		require.NoError(t, err)
		world.Run(time.Hour)
		assert.Equal(t, 1, calls.Count("status"))
		assert.LessOrEqual(t, passes, 3)
		conditions := cluster.Owners(namespace)[0].Status.Conditions
		require.Len(t, conditions, 1)
		assert.Contains(t, conditions[0].Message, "selector")
		assert.Zero(t, cluster.Owners(namespace)[0].Status.ObservedGeneration)
		require.NoError(t, c.View.Intact())
	}
}
