// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/status"
)

// failing is a cluster in which some pods end soon after their creation. Every tenth of a second, the method
// Step makes some of the new pods fail, as a node does with pods that it cannot admit.
type failing struct {
	*replicastest.PodCluster
	t      *testing.T
	world  *replicastest.World
	next   time.Time
	seen   map[string]bool
	ends   func(n int) bool // whether pod number n, counted from 0, ends
	vanish bool             // if set, Step deletes the pods instead of making them fail
	drift  bool             // if set, Step changes the pods' labels instead of making them fail
	held   int              // how many passes skipped calls that an earlier pass had postponed
}

// newFailing returns a failing cluster with a ReplicaSet of the given number of pods.
func newFailing(t *testing.T, replicas int32, opts controller.Options, ends func(n int) bool) *failing {
	t.Helper()
	cluster := replicastest.NewPodCluster(replicastest.Options{Seed: 1, Nodes: 1})
	createReplicaSet(t, cluster, replicas)
	f := &failing{PodCluster: cluster, t: t, next: cluster.Clock.Now(), seen: map[string]bool{}, ends: ends}
	c, err := cluster.NewControllerWith(opts)
	require.NoError(t, err)
	c.Passed = func(pass podPass) {
		if pass.HeldBack() {
			f.held++
		}
	}
	f.world = &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{f, cluster, c}}
	return f
}

func (f *failing) Due() (time.Time, bool) { return f.next, true }

func (f *failing) Step() {
	f.next = f.Clock.Now().Add(100 * time.Millisecond)
	for _, p := range f.Children(namespace) {
		if f.seen[p.Name] {
			continue
		}
		n := len(f.seen)
		if f.seen[p.Name] = true; !f.ends(n) {
			continue
		}
		if f.vanish {
			f.remove(p.Name)
			continue
		}
		_, err := f.EditChild(f.t.Context(), namespace, p.Name, func(p *corev1.Pod) {
			if f.drift {
				p.Labels["app"] = "drifted"
				return
			}
			p.Status.Phase = corev1.PodFailed
		})
		require.NoError(f.t, err)
	}
}

func (f *failing) remove(name string) {
	f.t.Helper()
	_, err := f.DeleteChild(f.t.Context(), namespace, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	require.NoError(f.t, err)
}

// made runs the World until the given time after the start, and returns how many different pods Step has seen.
func (f *failing) made(after time.Duration) int {
	f.t.Helper()
	f.world.Run(after - f.Clock.Now().Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	return len(f.seen)
}

// running returns the names of the pods that have not failed and are not being deleted.
func (f *failing) running() (names []string) {
	for _, p := range f.Children(namespace) {
		if p.Status.Phase != corev1.PodFailed && p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	return names
}

func always(int) bool { return true }

var yes, backOff = true, controller.Options{BackOffFailed: &yes}

// With BackOffFailed, pods that end as soon as they are created are replaced after a delay that grows each time, up to
// a maximum (kubernetes#72593).
func TestPodsThatFailAtOnce(t *testing.T) {
	t.Parallel()
	assert.Greater(t, newFailing(t, 1, controller.Options{}, always).made(30*time.Second), 100, "as Kubernetes does")
	for name, vanish := range map[string]bool{"they fail": false, "they vanish, as somebody deletes them": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFailing(t, 1, backOff, always)
			f.vanish = vanish
			for i, until := range []time.Duration{9, 29, 69, 149, 309, 609, 909} {
				assert.Equal(t, i+1, f.made(until*time.Second), "after %d s", until)
			}
			assert.Positive(t, f.held)
			told := 0
			for _, e := range f.Events {
				if e.Reason == controller.CreationsHeld {
					told++
				}
			}
			assert.Positive(t, told)
			assert.LessOrEqual(t, told, 7, "once for each hold at most")
			f.ends = func(int) bool { return false }
			f.made(20 * time.Minute)
			assert.Len(t, f.running(), 1, "what is wanted, once pods run again")
		})
	}
}

// Half of the pods that were created together fail, 20 of 40. Their replacement is delayed by 5 seconds instead of 10.
func TestARoundOfWhichHalfFail(t *testing.T) {
	t.Parallel()
	f := newFailing(t, 40, backOff, func(n int) bool { return n < 20 })
	assert.Equal(t, 40, f.made(4900*time.Millisecond))
	assert.Len(t, f.running(), 20)
	assert.Equal(t, 60, f.made(5500*time.Millisecond))
	assert.Len(t, f.running(), 40)
}

// Creations are no longer delayed when the owner's spec changes, for example because a user scales it or repairs the
// template.
func TestANewGenerationEndsTheHold(t *testing.T) {
	t.Parallel()
	f := newFailing(t, 1, backOff, func(n int) bool { return n < 4 })
	assert.Equal(t, 4, f.made(75*time.Second), "held for 80 s")
	_, err := f.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels["mended"] = "true" })
	require.NoError(t, err)
	assert.Equal(t, 5, f.made(76*time.Second))
	assert.Len(t, f.running(), 1)
}

// The pod for one of the replicas fails again and again. Only its replacement is delayed, and other missing pods are
// created at once.
func TestWhatElseIsMissingIsCreated(t *testing.T) {
	t.Parallel()
	bad := map[int]bool{0: true, 10: true, 11: true, 12: true}
	f := newFailing(t, 10, backOff, func(n int) bool { return bad[n] })
	assert.Equal(t, 13, f.made(62*time.Second), "10, and after 1, 20 and 40 s one each")
	assert.Len(t, f.running(), 9)
	for _, name := range f.running()[:3] {
		f.remove(name)
	}
	assert.Equal(t, 16, f.made(63*time.Second))
	assert.Len(t, f.running(), 9)
	assert.Equal(t, 17, f.made(3*time.Minute))
	assert.Len(t, f.running(), 10)
}

// After a round of which none ends soon, the next delay is as short as the first one. A pod that has lasted for longer
// than the delay is replaced at once if someone deletes it, and so is one that fails more than ten minutes after its
// creation.
func TestARoundThatLives(t *testing.T) {
	t.Parallel()
	f := newFailing(t, 1, backOff, func(n int) bool { return n < 3 || n == 5 })
	assert.Equal(t, 4, f.made(time.Minute+11*time.Second), "after 10, 20 and 40 s")
	f.made(3 * time.Minute)
	f.remove(f.running()[0])
	assert.Equal(t, 5, f.made(3*time.Minute+time.Second), "deleted after 110 s, when the delay of 80 s is over")
	f.made(20 * time.Minute)
	_, err := f.EditChild(t.Context(), namespace, f.running()[0], func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	require.NoError(t, err)
	assert.Equal(t, 6, f.made(20*time.Minute+time.Second), "failed after 17 minutes")
	assert.Equal(t, 6, f.made(20*time.Minute+9*time.Second), "a first hold")
	assert.Equal(t, 7, f.made(20*time.Minute+12*time.Second))
	assert.Len(t, f.running(), 1)
}

// The labels of new pods are changed at once, so the pods leave their owner. For BackOffFailed they count as ended, and
// the event contains their new labels.
func TestPodsWhoseLabelsDrift(t *testing.T) {
	t.Parallel()
	f := newFailing(t, 3, backOff, always)
	f.drift = true
	assert.Less(t, f.made(time.Minute), 30, "for three")
	var told []string
	for _, e := range f.Events {
		if e.Reason == controller.CreationsHeld {
			told = append(told, e.Message)
		}
	}
	require.NotEmpty(t, told)
	assert.Contains(t, told[0], `labels "app=drifted" do not match`)
}

// One webhook changes the labels of new pods, and another one refuses to delete them. The number of delete calls stays
// limited.
func TestAWebhookThatRelabelsAndOneThatRefusesDeletions(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 4)
	s.Mutate = func(p *corev1.Pod) { p.Labels["app"] = "other" }
	s.Deny("delete", failure.Forbidden.Of)
	calls := s.controller.Client.Record()
	createReplicaSet(t, s.PodCluster, 3)
	s.world.Run(6 * time.Hour)
	assert.Less(t, calls.Count("delete"), 1000, "in six hours")
}

// Each creation fails for another reason than the one before, and the ReplicaFailure condition has the latest one. The
// delay between creations limits how often it changes.
func TestTheConditionNamesTheLastCause(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 4)
	n, last := 0, ""
	s.Deny("create", func(c replicastest.Call) error {
		n++
		last = []string{"exceeded quota: few, limited: pods=5", "a webhook says no"}[n%2]
		return apierrors.NewForbidden(corev1.Resource("pods"), c.Name, errors.New(last))
	})
	calls := s.controller.Client.Record()
	createReplicaSet(t, s.PodCluster, 1)
	for range 60 {
		s.world.Run(time.Minute)
		is, err := s.GetOwner(t.Context(), namespace, "web")
		require.NoError(t, err)
		failure := status.GetCondition(is.Status.Conditions, appsv1.ReplicaSetReplicaFailure)
		require.NotNil(t, failure)
		assert.Contains(t, failure.Message, last)
	}
	writes := calls.Count("status")
	assert.Greater(t, writes, 30, "each cause is told")
	assert.LessOrEqual(t, writes, 121, "a minute between two calls")
}
