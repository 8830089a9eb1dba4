// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podstate "github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A stage is a cluster and a controller on it.
type stage struct {
	*replicastest.PodCluster
	controller *podController
	world      *replicastest.World
	consistent bool // the value of the controller's RememberWrites
}

func newStage(tb testing.TB, seed uint64, nodes int) *stage {
	tb.Helper()
	s := &stage{PodCluster: replicastest.NewPodCluster(replicastest.Options{Seed: seed, Nodes: nodes})}
	s.world = &replicastest.World{Clock: s.Clock}
	s.restart(tb)
	return s
}

// restart starts a new controller in place of the old one.
func (s *stage) restart(tb testing.TB) {
	tb.Helper()
	if s.controller != nil {
		s.controller.View.Stop()
	}
	s.controller = newController(tb, s.PodCluster)
	s.world.Parts = []replicastest.Part{s.PodCluster, s.controller}
	s.controller.RememberWrites = s.consistent
}

// newController returns a controller. At the end of the test, newController checks that the controller has not
// changed the objects in its caches.
func newController(tb testing.TB, c *replicastest.PodCluster) *podController {
	tb.Helper()
	controller := c.NewController()
	tb.Cleanup(func() { assert.NoError(tb, controller.View.Intact()) })
	return controller
}

// remember restarts the controller. If writes is true, the new controller waits until its caches show its
// writes.
func (s *stage) remember(tb testing.TB, writes bool) {
	tb.Helper()
	s.consistent = writes
	s.restart(tb)
}

// running returns a stage with a ReplicaSet that has n pods.
func running(t *testing.T, n int32) *stage {
	t.Helper()
	s := newStage(t, 1, 4)
	s.start(t, n)
	return s
}

// start creates a ReplicaSet of n pods and waits for them.
func (s *stage) start(t *testing.T, n int32) {
	t.Helper()
	createReplicaSet(t, s.PodCluster, n)
	s.world.Run(time.Minute)
	s.requireSettled(t, "at first")
}

func (s *stage) editPod(t *testing.T, name string, change func(*corev1.Pod)) {
	t.Helper()
	_, err := s.EditChild(t.Context(), namespace, name, change)
	require.NoError(t, err)
}

func (s *stage) scale(t *testing.T, n int32) {
	t.Helper()
	_, err := s.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
	require.NoError(t, err)
}

// active returns the active pods that the ReplicaSet owns.
func (s *stage) active(rs *appsv1.ReplicaSet) (pods []*corev1.Pod) {
	for _, p := range s.Children(namespace) {
		if podstate.IsActive(p) && metav1.IsControlledBy(p, rs) {
			pods = append(pods, p)
		}
	}
	return pods
}

// requireSettled checks that the ReplicaSet has as many pods as it wants, that its status is correct, and that
// the controller waits for nothing.
func (s *stage) requireSettled(t *testing.T, msg string) {
	t.Helper()
	rs, err := s.GetOwner(t.Context(), namespace, "web")
	require.NoError(t, err, msg)
	ready := 0
	active := s.active(rs)
	for _, p := range active {
		if podstate.IsReady(p) {
			ready++
		}
	}
	require.Len(t, active, int(*rs.Spec.Replicas), msg)
	require.Equal(t, *rs.Spec.Replicas, rs.Status.Replicas, msg)
	require.Equal(t, ready, int(rs.Status.ReadyReplicas), msg)
	require.Equal(t, rs.Generation, rs.Status.ObservedGeneration, msg)
	require.Empty(t, rs.Status.Conditions, msg)
	for _, known := range s.controller.Ledgers() {
		require.Zero(t, known.Waits(s.Clock.Now()), msg)
	}
}

func TestControllerScales(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 3)
	createReplicaSet(t, s.PodCluster, 10)
	for _, n := range []int32{10, 25, 3, 0, 5} {
		s.scale(t, n)
		s.world.Run(2 * time.Minute)
		s.requireSettled(t, "scaled")
	}
}

func TestControllerOnAStaleView(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 3)
	creates, waits := 0, 0
	s.controller.Client.Done = func(call replicastest.Call, _ error) {
		if call.Verb == "create" {
			creates++
		}
	}
	s.controller.Passed = func(pass podPass) {
		require.NoError(t, pass.Err)
		if pass.Waiting() {
			waits++
		}
	}
	s.controller.View.ChildWatch.Lag = time.Minute
	createReplicaSet(t, s.PodCluster, 5)
	s.world.Run(30 * time.Second)
	s.scale(t, 6) // wakes the controller while its cache shows no pod
	s.world.Run(5 * time.Minute)
	assert.Equal(t, 6, creates)
	assert.Positive(t, waits)
	s.requireSettled(t, "in the end")
}

// If events arrive late or in the middle of a pass, the controller never creates or deletes too many pods.
func TestControllerUnderLag(t *testing.T) {
	t.Parallel()
	for seed := range some(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			s := newStage(t, seed, 4)
			rs := createReplicaSet(t, s.PodCluster, 0)
			s.controller.Client.Fault = func(replicastest.Call) replicastest.Fault {
				s.meanwhile(r)
				return replicastest.Fault{}
			}
			step := func(n int32) {
				s.scale(t, n)
				s.controller.View.ChildWatch.Lag = time.Duration(r.IntN(30)) * time.Second
				s.controller.View.OwnerWatch.Lag = time.Duration(r.IntN(30)) * time.Second
				s.world.Run(time.Duration(r.IntN(20)) * time.Second)
			}
			for n := range int32(30) {
				step(n)
				require.LessOrEqual(t, len(s.active(rs)), int(n))
			}
			s.world.Run(5 * time.Minute)
			s.requireSettled(t, "up")
			for n := int32(29); n >= 0; n-- {
				step(n)
				require.GreaterOrEqual(t, len(s.active(rs)), int(n))
			}
			s.world.Run(5 * time.Minute)
			s.requireSettled(t, "down")
		})
	}
}

// If a spec is refused, the controller sends one event and makes no further pass.
func TestControllerRefuses(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	rs := replicaSet("web", 1)
	rs.Spec.Selector = &metav1.LabelSelector{}
	_, err := s.CreateOwner(t.Context(), rs)
	require.NoError(t, err)
	passes := 0
	s.controller.Passed = func(podPass) { passes++ }
	s.world.Run(time.Hour)
	assert.Equal(t, 1, passes)
	require.Len(t, s.Events, 1)
	assert.Equal(t, replicas.InvalidSelector, s.Events[0].Reason)
}

func TestTwoControllers(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 3)
	other := newController(t, s.PodCluster)
	s.world.Parts = append(s.world.Parts, other)
	createReplicaSet(t, s.PodCluster, 10)
	s.world.Run(time.Minute)
	s.requireSettled(t, "both made pods, both took them back")
}

// When all faults and changes have ended, the ReplicaSet has as many pods as it wants.
func TestControllerSettles(t *testing.T) {
	t.Parallel()
	for seed := range some(40) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			settle(t, seed)
		})
	}
}

func settle(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	s := newStage(t, seed, 4)
	s.remember(t, seed%2 == 0)
	createReplicaSet(t, s.PodCluster, 5)
	for range 40 {
		s.disturb(t, r)
		s.controller.Client.Fault = func(call replicastest.Call) replicastest.Fault {
			s.meanwhile(r)
			s.checkCall(t, call)
			return randomFault(r)
		}
		s.controller.View.ChildWatch.Lag = time.Duration(r.IntN(3000)) * time.Millisecond
		s.controller.View.OwnerWatch.Lag = time.Duration(r.IntN(1000)) * time.Millisecond
		s.world.Run(time.Duration(r.IntN(20)) * time.Second)
	}
	s.SetQuota(namespace, 1000)
	s.AddNode("spare")
	s.controller.Client.Fault = nil
	s.controller.View.ChildWatch.Lag, s.controller.View.OwnerWatch.Lag = 0, 0
	s.world.Run(30 * time.Minute)
	s.requireSettled(t, "in the end")
	require.Equal(t, s.Children(namespace), s.controller.View.ChildWatch.In(namespace), "the cache is as it was delivered")
}

// meanwhile may let the cluster or the view make a step while a call is in flight.
func (s *stage) meanwhile(r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		s.Step()
	case 1:
		s.controller.View.Step()
	}
}

// checkCall checks that the controller deletes only pods that have an owner.
func (s *stage) checkCall(t *testing.T, call replicastest.Call) {
	t.Helper()
	p, err := s.GetChild(t.Context(), call.Namespace, call.Name)
	if call.Verb == "delete" && err == nil {
		require.NotNil(t, metav1.GetControllerOf(p), "%s is nobody's", call)
	}
}

// disturb makes one random change. For example, a user scales the ReplicaSet, a node is lost, or the controller
// restarts.
func (s *stage) disturb(t *testing.T, r *rand.Rand) {
	t.Helper()
	pods := s.Children(namespace)
	var name string
	if len(pods) > 0 {
		name = pods[r.IntN(len(pods))].Name
	}
	switch what := r.IntN(10); {
	case what < 3:
		s.scale(t, r.Int32N(12))
	case what == 3:
		s.SetQuota(namespace, r.IntN(12))
	case what == 4:
		s.restart(t)
	case what == 5:
		if r.IntN(8) == 0 {
			s.LoseNode(fmt.Sprintf("node-%d", 1+r.IntN(4)))
		}
	case what == 6:
		orphan := pod("")
		orphan.GenerateName = "orphan-"
		_, err := s.CreateChild(t.Context(), namespace, orphan)
		if err != nil && !apierrors.IsForbidden(err) {
			require.NoError(t, err)
		}
	case what == 7:
		require.NoError(t, s.DeleteOwner(t.Context(), namespace, "web", ""))
		createReplicaSet(t, s.PodCluster, r.Int32N(12))
	case name == "":
	case what == 8:
		remove(t, s.PodCluster, name)
	default:
		s.editPod(t, name, func(p *corev1.Pod) { p.Labels["app"] = []string{"web", "debug"}[r.IntN(2)] })
	}
}

func randomFault(r *rand.Rand) replicastest.Fault {
	faults := []error{
		apierrors.NewTimeoutError("too slow", 0),
		apierrors.NewTooManyRequests("too many", 1),
		apierrors.NewInternalError(assert.AnError),
	}
	switch r.IntN(20) {
	case 0:
		return replicastest.Fault{Before: faults[r.IntN(len(faults))]}
	case 1:
		return replicastest.Fault{After: faults[r.IntN(len(faults))]}
	}
	return replicastest.Fault{}
}

// A new controller makes no pass before it has received its first list. Otherwise, the pass would create pods
// that already exist.
func TestControllerWaitsForItsFirstList(t *testing.T) {
	t.Parallel()
	s := running(t, 5)
	s.controller.View.Stop()
	s.controller = newController(t, s.PodCluster)
	s.world.Parts = []replicastest.Part{s.PodCluster, s.controller}
	s.controller.View.ChildWatch.Lag = time.Minute
	s.controller.View.ChildWatch.Relist()
	s.world.Run(30 * time.Second)
	assert.Len(t, s.Children(namespace), 5)
	s.world.Run(10 * time.Minute)
	assert.Len(t, s.Children(namespace), 5)
}

// BenchmarkWorld scales a ReplicaSet up and down in a loop. One operation is one step of the World.
func BenchmarkWorld(b *testing.B) {
	for _, pods := range []int32{3, 30} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			s := newStage(b, 1, 4)
			_, err := s.CreateOwner(b.Context(), replicaSet("web", pods))
			require.NoError(b, err)
			wanted := pods
			for b.Loop() {
				once := false
				more := s.world.RunUntil(s.Clock.Now().Add(time.Hour), func() bool {
					once = !once
					return !once
				})
				if !more {
					wanted = pods - wanted
					_, err := s.EditOwner(b.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &wanted })
					require.NoError(b, err)
				}
			}
		})
	}
}
