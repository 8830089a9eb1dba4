// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	podstate "github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A count records all pods that have ever existed. It also records the highest and the lowest number of active
// pods that the ReplicaSet web has had at one time.
type count struct {
	pods        map[types.UID]bool
	most, least int
}

// ever returns how many pods have ever existed.
func (c *count) ever() int { return len(c.pods) }

// enough is the maximum number of pods that may ever exist in a test. Beyond it the quota becomes 0, so that a failing
// test ends sooner.
const enough = 1000

// counts returns a count that is updated with each change from now on.
func (s *stage) counts() *count {
	c := &count{pods: map[types.UID]bool{}}
	look := func() {
		n := len(s.active(s.Owners(namespace)[0]))
		c.most, c.least = max(c.most, n), min(c.least, n)
	}
	for _, p := range s.Children(namespace) {
		c.pods[p.UID] = true
	}
	c.least = len(c.pods)
	look()
	s.Changed = func(_, after metav1.Object) {
		if p, ok := after.(*corev1.Pod); ok {
			c.pods[p.UID] = true
		}
		if c.ever() > enough {
			s.SetQuota(namespace, 0)
		}
		look()
	}
	return c
}

// becomes creates a ReplicaSet of n pods, and checks that it has n pods in the end and that no others have ever
// existed.
func (s *stage) becomes(t *testing.T, n int32) {
	t.Helper()
	createReplicaSet(t, s.PodCluster, n)
	c := s.counts()
	s.world.Run(time.Hour)
	s.requireSettled(t, "in the end")
	assert.Equal(t, int(n), c.ever())
}

// firstOf returns a function for Client.Fault that applies a Fault to the first n requests with the given verb.
func firstOf(verb string, n int, fault replicastest.Fault) func(replicastest.Call) replicastest.Fault {
	return func(call replicastest.Call) replicastest.Fault {
		if call.Verb != verb || n == 0 {
			return replicastest.Fault{}
		}
		n--
		return fault
	}
}

// grown returns a stage with n pods of different ages.
func grown(t *testing.T, n int32) *stage {
	t.Helper()
	s := newStage(t, 1, 4)
	createReplicaSet(t, s.PodCluster, 0)
	for wanted := range n {
		s.scale(t, wanted+1)
		s.world.Run(time.Duration(1+wanted) * 5 * time.Second)
	}
	s.world.Run(time.Minute)
	s.requireSettled(t, "grown")
	return s
}

// poke wakes the controller again and again, by changes of an annotation that has no meaning.
func (s *stage) poke(t *testing.T, every, d time.Duration) {
	t.Helper()
	for end := s.Clock.Now().Add(d); s.Clock.Now().Before(end); {
		_, err := s.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) {
			rs.Annotations = map[string]string{"poked": s.Clock.Now().String()}
		})
		require.NoError(t, err)
		s.world.Run(every)
	}
}

// ends contains the ways in which a hung watch can continue.
var ends = map[string]func(*stage){
	"it catches up":     func(s *stage) { s.controller.View.ChildWatch.Resume() },
	"it is listed anew": func(s *stage) { s.controller.View.ChildWatch.Relist() },
	"minutes late first": func(s *stage) {
		s.controller.View.ChildWatch.Lag = 3 * time.Minute
		s.controller.View.ChildWatch.Relist()
	},
}

// While the watch hangs, no event shows that deleted pods are gone. The controller still deletes no more pods
// than necessary.
func TestAWatchThatHangsWhileASetShrinks(t *testing.T) {
	t.Parallel()
	for _, from := range sizes(32, 60, 100) {
		for end, resume := range ends {
			t.Run(fmt.Sprintf("E3 from %d to %d, %s", from, from/2, end), func(t *testing.T) {
				t.Parallel()
				s := grown(t, from)
				c := s.counts()
				s.controller.View.ChildWatch.Hang()
				s.scale(t, from/2)
				s.world.Run(time.Minute)
				assert.Equal(t, int(from/2), c.least)
				s.poke(t, 7*time.Minute, 2*time.Hour)
				s.world.Run(4 * time.Hour)
				assert.Equal(t, int(from/2), c.least)
				resume(s)
				s.world.Run(15 * time.Minute)
				assert.Equal(t, int(from/2), c.least)
				s.requireSettled(t, "in the end")
				assert.Equal(t, int(from), c.ever())
			})
		}
	}
}

// While the watch hangs, no event shows that created pods exist. The controller still creates no more pods than
// necessary.
func TestAWatchThatHangsWhileASetGrows(t *testing.T) {
	t.Parallel()
	for end, resume := range ends {
		t.Run("E3 to 3, "+end, func(t *testing.T) {
			t.Parallel()
			s := running(t, 1)
			c := s.counts()
			s.controller.View.ChildWatch.Hang()
			s.scale(t, 3)
			s.poke(t, 7*time.Minute, time.Hour)
			s.world.Run(5 * time.Hour)
			assert.Equal(t, 3, c.ever())
			resume(s)
			s.world.Run(15 * time.Minute)
			s.requireSettled(t, "in the end")
			assert.Equal(t, 3, c.ever())
		})
	}
}

// While the watch of pods hangs, the ReplicaSet still reaches each number of pods that its users want.
func TestAWatchThatHangsStopsNothing(t *testing.T) {
	t.Parallel()
	s := grown(t, 10)
	c := s.counts()
	rs := s.Owners(namespace)[0]
	s.controller.View.ChildWatch.Hang()
	for i, n := range []int32{5, 20, 3, 0, 7} {
		s.scale(t, n)
		s.poke(t, 11*time.Minute, time.Hour)
		assert.Len(t, s.active(rs), int(n), "step %d", i)
	}
	assert.Equal(t, 10+15+7, c.ever())
	s.controller.View.ChildWatch.Relist()
	s.world.Run(15 * time.Minute)
	s.requireSettled(t, "in the end")
	assert.Equal(t, 10+15+7, c.ever())
}

// Creations take effect but their answers are lost. The controller creates exactly as many pods as wanted.
func TestLostAnswersOfCreations(t *testing.T) {
	t.Parallel()
	lost := func(n int, failure failure.Failure) replicastest.Rule {
		return replicastest.Rule{Verb: "create", Times: n, Err: failure.Of(replicastest.Call{}), Landed: true}
	}
	for _, failure := range failure.Lost() {
		for _, lag := range []time.Duration{0, 150 * time.Millisecond, 3 * time.Minute} {
			t.Run(fmt.Sprintf("W8 W11 five of one by %s, seen after %v", failure, lag), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, 1, 4)
				s.controller.View.ChildWatch.Lag = lag
				s.controller.Client.Fail(lost(5, failure))
				s.becomes(t, 1)
			})
		}
		t.Run(fmt.Sprintf("W11 each of 40, by %s", failure), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 4)
			s.controller.View.ChildWatch.Lag = 150 * time.Millisecond
			s.controller.Client.Fail(lost(40, failure))
			s.becomes(t, 40)
		})
	}
	for _, failure := range []failure.Failure{failure.TooManyRequests, failure.ServiceUnavailable, failure.ConnectionReset} {
		resent := replicastest.Fault{After: failure.Of(replicastest.Call{}), Resend: true}
		t.Run(fmt.Sprintf("W11 sent again below the controller, after %s", failure), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 4)
			s.controller.Client.Fault = firstOf("create", 20, resent)
			s.becomes(t, 20)
		})
		t.Run(fmt.Sprintf("W11 sent again after %s, and the quota is full by then", failure), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 4)
			s.SetQuota(namespace, 20)
			s.controller.Client.Fault = firstOf("create", 20, resent)
			s.becomes(t, 20)
		})
	}
}

// A creation times out and takes effect later. The controller creates no additional pod.
func TestCreationsThatLandLate(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{time.Second, 20 * time.Second, time.Minute} {
		t.Run(fmt.Sprintf("W11 after %v", late), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 4)
			s.controller.View.ChildWatch.Lag = 150 * time.Millisecond
			s.controller.Client.Fail(replicastest.Rule{Verb: "create", Times: 4, Err: failure.Timeout.Of(replicastest.Call{}), Late: late})
			s.becomes(t, 3)
		})
	}
}

// A late creation takes effect when its pod is no longer wanted. Although the watch hangs, the controller finds the pod
// and deletes one.
func TestACreationThatLandsWhenItIsNotWanted(t *testing.T) {
	t.Parallel()
	s := running(t, 2)
	s.controller.Client.Fail(replicastest.Rule{Verb: "create", Times: 1, Late: 40 * time.Second})
	s.controller.View.ChildWatch.Hang()
	s.scale(t, 3)
	s.world.Run(time.Millisecond)
	s.controller.Client.Fail()
	s.scale(t, 2)
	c := s.counts()
	s.world.Run(10 * time.Minute)
	assert.Equal(t, []int{3, 3, 2}, []int{c.ever(), c.most, c.least})
	assert.Len(t, s.active(s.Owners(namespace)[0]), 2)
}

// A creation times out but takes effect, and its pod is deleted before the controller sends the creation again.
// While the controller waits for the second pod of this name, the events of the first pod arrive. The controller
// still creates no further pod.
func TestACreationThatLandsAndGoesBeforeItIsSentAgain(t *testing.T) {
	t.Parallel()
	s := running(t, 2)
	s.controller.View.ChildWatch.Lag = 5 * time.Second
	s.controller.Client.Fail(
		replicastest.Rule{Verb: "create", Times: 1, Late: 20 * time.Millisecond},
		replicastest.Rule{Verb: "create", Times: 3, Err: failure.ServiceUnavailable.Of(replicastest.Call{})})
	before, c := s.Children(namespace), s.counts()
	s.scale(t, 3)
	s.world.Run(20 * time.Millisecond)
	landed := s.forceNew(t, before)
	s.world.Run(time.Minute)
	s.requireSettled(t, "in the end")
	assert.Equal(t, []int{4, 3}, []int{c.ever(), c.most}, "none is made beside the second")
	_, err := s.GetChild(t.Context(), namespace, landed)
	require.NoError(t, err, "which has the name of the first")
}

// A creation times out, and the controller sends it again. The pod is deleted while the watch hangs, and then
// the first creation takes effect. The ReplicaSet still has as many pods as wanted, also after the next
// scale-down.
func TestACreationThatLandsWhenThePodOfItsNameIsGone(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"deletions are answered": false, "the answer of its deletion is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := running(t, 2)
			before := s.Children(namespace)
			s.controller.Client.Fail(replicastest.Rule{Verb: "create", Times: 1, Late: 40 * time.Second})
			s.scale(t, 3)
			s.world.Run(time.Second) // the creation is sent again
			s.editPod(t, s.newPod(t, before), cheap)
			s.world.Run(19 * time.Second)
			s.controller.View.ChildWatch.Hang()
			again := s.forceNew(t, before)
			s.world.Run(40 * time.Second)
			rs := s.Owners(namespace)[0]
			assert.Len(t, s.active(rs), 3)
			if lost {
				s.controller.Client.Fail(replicastest.Rule{Verb: "delete", Name: again, Times: 1})
			}
			s.scale(t, 2)
			s.world.Run(time.Minute)
			assert.Len(t, s.active(rs), 2, "though the watch shows another pod of that name")
			s.controller.View.ChildWatch.Relist()
			s.world.Run(15 * time.Minute)
			s.requireSettled(t, "in the end")
		})
	}
}

// forceNew deletes the new pod without a grace period, and returns its name.
func (s *stage) forceNew(t *testing.T, before []*corev1.Pod) string {
	t.Helper()
	name := s.newPod(t, before)
	_, err := s.DeleteChild(t.Context(), namespace, name, *metav1.NewDeleteOptions(0))
	require.NoError(t, err)
	return name
}

// newPod returns the name of the only new pod. A pod is new if the given list contains no pod with the same
// name.
func (s *stage) newPod(t *testing.T, before []*corev1.Pod) string {
	t.Helper()
	pods := slices.DeleteFunc(s.Children(namespace), func(p *corev1.Pod) bool {
		return slices.ContainsFunc(before, func(old *corev1.Pod) bool { return old.Name == p.Name })
	})
	require.Len(t, pods, 1)
	return pods[0].Name
}

// A deletion gets no answer, and then another pod gets a lower deletion cost. The controller chooses the same pod
// again. Otherwise, both would be deleted.
func TestADeletionThatLandsWhenAnotherPodGoesFirst(t *testing.T) {
	t.Parallel()
	s := running(t, 4)
	s.controller.Client.Fail(replicastest.Rule{Verb: "delete", Times: 1, Late: 30 * time.Second})
	s.controller.Client.Done = func(call replicastest.Call, err error) {
		if call.Verb != "delete" || err == nil {
			return
		}
		for _, p := range s.Children(namespace) {
			if p.Name != call.Name {
				s.editPod(t, p.Name, cheap)
				return
			}
		}
	}
	c := s.counts()
	s.scale(t, 3)
	s.world.Run(time.Hour)
	s.requireSettled(t, "in the end")
	assert.Equal(t, []int{4, 3}, []int{c.ever(), c.least})
}

// Answers to deletions are lost, or deletions are sent again or take effect late. No additional pod is deleted.
func TestLostAnswersOfDeletions(t *testing.T) {
	t.Parallel()
	faults := map[string]replicastest.Fault{"late": {Before: failure.Timeout.Of(replicastest.Call{}), Late: 30 * time.Second}}
	for _, failure := range failure.Lost() {
		faults["lost by "+failure.String()] = replicastest.Fault{After: failure.Of(replicastest.Call{})}
		faults["sent again after "+failure.String()] = replicastest.Fault{After: failure.Of(replicastest.Call{}), Resend: true}
	}
	for name, fault := range faults {
		for _, lag := range []time.Duration{0, 150 * time.Millisecond, 3 * time.Minute} {
			t.Run(fmt.Sprintf("W13 %s, seen after %v", name, lag), func(t *testing.T) {
				t.Parallel()
				s := grown(t, 12)
				c := s.counts()
				s.controller.View.ChildWatch.Lag = lag
				s.controller.Client.Fault = firstOf("delete", 6, fault)
				s.scale(t, 5)
				s.world.Run(time.Hour)
				s.requireSettled(t, "in the end")
				assert.Equal(t, 5, c.least)
				assert.Equal(t, 12, c.ever())
			})
		}
	}
}

// An adopted pod is deleted while the watch is broken. The controller notices this and creates a replacement.
func TestAnOrphanAdoptedAndDeletedUnseen(t *testing.T) {
	t.Parallel()
	s := running(t, 3)
	createPod(t, s.PodCluster, pod("orphan"))
	hooks := inside.Of[*inside.Controller[podPass, *corev1.Pod]](s.controller)
	hooks.Listed = func() { s.controller.View.ChildWatch.Break() } // this pass has already listed the orphan
	s.scale(t, 4)
	s.world.Run(time.Second)
	hooks.Listed = nil
	p, err := s.GetChild(t.Context(), namespace, "orphan")
	require.NoError(t, err)
	require.NotNil(t, metav1.GetControllerOf(p), "it is adopted")
	_, err = s.DeleteChild(t.Context(), namespace, "orphan", *metav1.NewDeleteOptions(0))
	require.NoError(t, err)
	s.world.Run(5 * time.Second)
	s.controller.View.ChildWatch.Relist()
	s.world.Run(5 * time.Minute)
	s.requireSettled(t, "it is made up for")
}

// refusing returns a stage and the count of this stage. The ReplicaSet has the given number of pods. A webhook
// answers each patch with the given failure. The orphans have just been created, so the controller has not seen
// them yet.
func refusing(t *testing.T, failure failure.Failure, wanted int32, orphans int) (*stage, *count) {
	t.Helper()
	s := running(t, wanted)
	s.Deny("patch", failure.Of)
	for i := range orphans {
		createPod(t, s.PodCluster, pod(fmt.Sprintf("orphan-%d", i)))
	}
	return s, s.counts()
}

func TestAdoptionsThatAreRefused(t *testing.T) {
	t.Parallel()
	undecided := []failure.Failure{failure.BadRequest, failure.Forbidden, failure.Conflict, failure.TooManyRequests, failure.InternalError, failure.ServiceUnavailable, failure.Timeout, failure.ConnectionReset}
	for _, failure := range undecided {
		t.Run(fmt.Sprintf("C26 W42 %s holds one place, everything else goes on", failure), func(t *testing.T) {
			t.Parallel()
			s, _ := refusing(t, failure, 3, 1)
			rs := s.Owners(namespace)[0]
			s.scale(t, 6)
			s.world.Run(time.Minute)
			assert.Len(t, s.active(rs), 5, "one place is held")
			s.scale(t, 2)
			s.world.Run(time.Minute)
			assert.Len(t, s.active(rs), 2, "none is deleted because of it")
			assert.NotEmpty(t, s.warnings(), "it is told")
			remove(t, s.PodCluster, "orphan-0")
			s.scale(t, 6)
			s.world.Run(time.Minute)
			assert.Len(t, s.active(rs), 6, "as soon as it is gone")
			s.requireSettled(t, "in the end")
		})
		t.Run(fmt.Sprintf("C26 W42 %s of all patches does not double a fleet", failure), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 4)
			s.Deny("patch", failure.Of)
			for i := range 5 {
				createPod(t, s.PodCluster, pod(fmt.Sprintf("orphan-%d", i)))
			}
			createReplicaSet(t, s.PodCluster, 5)
			c := s.counts()
			s.world.Run(6 * time.Hour)
			assert.Equal(t, 5, c.ever())
			s.Webhook = nil
			s.world.Run(10 * time.Minute)
			s.requireSettled(t, "in the end")
			assert.Equal(t, 5, c.ever())
		})
	}
	for _, failure := range []failure.Failure{failure.BadRequest, failure.Forbidden} {
		t.Run(fmt.Sprintf("C26 W42 %s of one pod alone gives its place up after five minutes", failure), func(t *testing.T) {
			t.Parallel()
			s, _ := refusing(t, failure, 3, 1)
			deny := s.Webhook
			s.Webhook = func(verb string, p *corev1.Pod) error {
				if p.Name == "orphan-0" {
					return deny(verb, p)
				}
				return nil
			}
			rs := s.Owners(namespace)[0]
			s.scale(t, 6)
			s.world.Run(4 * time.Minute)
			assert.Len(t, s.active(rs), 5, "one place is held")
			s.world.Run(11 * time.Minute)
			assert.Len(t, s.active(rs), 6, "and given up")
		})
	}
	t.Run("C26 422 gives every place up", func(t *testing.T) {
		t.Parallel()
		s, c := refusing(t, failure.Invalid, 1, 3)
		s.scale(t, 4)
		s.world.Run(10 * time.Second)
		assert.Len(t, s.active(s.Owners(namespace)[0]), 4)
		s.world.Run(time.Hour)
		assert.Equal(t, 3+4, c.ever())
	})
}

// warnings returns the reasons of all warning events.
func (s *stage) warnings() (reasons []string) {
	for _, e := range s.Events {
		if e.Type == corev1.EventTypeWarning {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

// cheap lowers the deletion cost of a pod, so that the pod is deleted before other ready pods.
func cheap(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: "-1"} }

// The release of a pod is refused. The controller still reaches the wanted number of matching pods and can still scale.
func TestReleasesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, failure := range []failure.Failure{failure.BadRequest, failure.Forbidden, failure.Invalid, failure.InternalError, failure.Timeout, failure.ConnectionReset} {
		t.Run(fmt.Sprintf("C26 by %s", failure), func(t *testing.T) {
			t.Parallel()
			s, _ := refusing(t, failure, 3, 0)
			name := s.Children(namespace)[0].Name
			s.editPod(t, name, func(p *corev1.Pod) { p.Labels["app"] = "debug" })
			s.world.Run(10 * time.Second)
			matching := func() (n int) {
				for _, p := range s.Children(namespace) {
					if p.Labels["app"] == "web" && podstate.IsActive(p) {
						n++
					}
				}
				return n
			}
			assert.Equal(t, 3, matching(), "it is made up for")
			s.scale(t, 5)
			s.world.Run(time.Minute)
			assert.Equal(t, 5, matching())
			s.scale(t, 1)
			s.world.Run(time.Minute)
			assert.Equal(t, 1, matching())
			_, err := s.GetChild(t.Context(), namespace, name)
			require.NoError(t, err, "it is left alone")
			s.Webhook = nil
			s.world.Run(20 * time.Minute)
			s.requireSettled(t, "in the end")
		})
	}
}

// A webhook changes a new pod so that it is not the owner's. The creation counts as failed.
func TestAWebhookThatTakesPodsAway(t *testing.T) {
	t.Parallel()
	for name, mutate := range map[string]func(*corev1.Pod){
		"the selected label is changed":                        func(p *corev1.Pod) { p.Labels["app"] = "other" },
		"the selected label is removed":                        func(p *corev1.Pod) { p.Labels = nil },
		"the owner reference is removed and the label changed": func(p *corev1.Pod) { p.OwnerReferences, p.Labels["app"] = nil, "other" },
		"another controller is set":                            func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" },
	} {
		for _, lag := range []time.Duration{0, 150 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, seen after %v", name, lag), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, 1, 4)
				s.controller.View.ChildWatch.Lag = lag
				s.Mutate = mutate
				createReplicaSet(t, s.PodCluster, 3)
				c := s.counts()
				s.world.Run(30 * time.Second)
				assert.LessOrEqual(t, c.ever(), 15, "in 30 s")
				s.world.Run(time.Hour)
				assert.LessOrEqual(t, c.ever(), 80, "in an hour")
				assert.LessOrEqual(t, len(s.Children(namespace)), 3, "what is not ours is deleted again")
				assert.NotEmpty(t, s.warnings())
				require.NotEmpty(t, s.Owners(namespace)[0].Status.Conditions)
				s.Mutate = nil
				s.world.Run(15 * time.Minute)
				s.requireSettled(t, "in the end")
				assert.Len(t, s.Children(namespace), 3)
			})
		}
	}
}

// A server is restored to an older state without a revision bump, so it assigns the same resourceVersions a second
// time. What the controller remembers from before must not stop it.
func TestARestoredServer(t *testing.T) {
	t.Parallel()
	for _, hung := range []time.Duration{0, 4 * time.Minute, 3 * time.Hour} {
		for _, remembers := range []bool{false, true} {
			t.Run(fmt.Sprintf("X10 watches list anew after %v, writes remembered: %t", hung, remembers), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, 1, 4)
				s.remember(t, remembers)
				s.start(t, 6)
				backup := s.Backup()
				s.scale(t, 3)
				s.world.Run(10 * time.Second)
				for range 20 { // raise the resourceVersion, as on a busy server
					for _, p := range s.Children(namespace) {
						s.editPod(t, p.Name, func(p *corev1.Pod) { p.Labels["round"] += "x" })
					}
				}
				s.scale(t, 9)
				s.world.Run(2 * time.Minute)
				backup()
				c := s.counts()
				s.world.Run(hung)
				restored := false
				s.controller.Passed = func(pass podPass) { restored = restored || errors.Is(pass.Err, controller.ErrRestored) }
				s.controller.View.OwnerWatch.Relist()
				s.controller.View.ChildWatch.Relist()
				s.world.Run(3 * time.Second)
				if restored { // the process ends, and another begins
					s.restart(t)
				}
				s.scale(t, 5)
				s.world.Run(time.Minute)
				s.requireSettled(t, "after a minute")
				assert.Equal(t, 5, c.least)
				assert.Equal(t, 6, c.ever())
			})
		}
	}
}

// A leader is paused in the middle of a pass, another one takes over, and then the old one goes on. With a fence that
// refuses its writes, at most the call that was in flight still takes effect.
func TestAPausedLeader(t *testing.T) {
	t.Parallel()
	for name, forbidden := range map[string]bool{"with a fence": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 4)
			createReplicaSet(t, s.PodCluster, 20)
			c := s.counts()
			old, calls := s.controller, 0
			leads := true
			old.Client.Fault = func(call replicastest.Call) replicastest.Fault {
				if !leads && forbidden && call.Verb != "get" && call.Verb != "list" {
					return replicastest.Fault{Before: assert.AnError}
				}
				if calls++; calls == 5 {
					old.View.ChildWatch.Hang()
					old.View.OwnerWatch.Hang()
					other := newController(t, s.PodCluster)
					s.world.Parts = []replicastest.Part{s.PodCluster, other}
					s.world.Run(2 * time.Minute)
					leads = false
					s.controller = other
				}
				return replicastest.Fault{}
			}
			s.world.Run(30 * time.Second)
			assert.False(t, leads)
			s.world.Parts = []replicastest.Part{s.PodCluster, s.controller}
			if forbidden {
				assert.LessOrEqual(t, c.ever(), 21, "all but the call that was under way")
			}
			s.world.Run(20 * time.Minute)
			s.requireSettled(t, "in the end")
		})
	}
}

// A pod is missing from a live list because its labels no longer match. The controller releases it as soon as the cache
// shows the new labels.
func TestAPodThatALiveListDoesNotShowIsReleased(t *testing.T) {
	t.Parallel()
	for _, remembers := range []bool{false, true} {
		t.Run(fmt.Sprintf("C10 writes remembered: %t", remembers), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 4)
			s.remember(t, remembers)
			s.start(t, 3)
			name := s.Children(namespace)[0].Name
			s.editPod(t, name, cheap)
			s.world.Run(time.Second)
			s.controller.View.ChildWatch.Lag = 10 * time.Second
			s.editPod(t, name, func(p *corev1.Pod) { p.Labels["app"] = "debug" })
			s.scale(t, 2)
			s.world.Run(time.Minute)
			p, err := s.GetChild(t.Context(), namespace, name)
			require.NoError(t, err)
			assert.Nil(t, metav1.GetControllerOf(p))
			s.requireSettled(t, "in the end")
		})
	}
}

// A pod is adopted and is one too many, so it is deleted at once. The adoption changes its resourceVersion, which the
// deletion must use.
func TestAPodThatIsAdoptedAndDeletedAtOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 4)
	orphan := createPod(t, s.PodCluster, pod("orphan"))
	s.world.Run(time.Minute)
	conflicts := 0
	s.controller.Passed = func(p podPass) { conflicts += telemetry.Conflicts(p.Calls) }
	createReplicaSet(t, s.PodCluster, 0)
	s.world.Run(time.Second)
	p, err := s.GetChild(t.Context(), namespace, orphan.Name)
	require.NoError(t, err)
	assert.NotNil(t, p.DeletionTimestamp)
	assert.Zero(t, conflicts)
}

// Creations take effect but their answers are lost. The controller finds each child, and none is created twice. A lost
// answer ends slow start, so the next pass begins with one creation.
func TestAScaleUpWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	for _, failure := range failure.Lost() {
		t.Run(fmt.Sprintf("of 500 creations every third answer is %s", failure), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 4)
			calls, creating, statuses := 0, 0, s.statuses()
			s.controller.Client.Fault = func(call replicastest.Call) (f replicastest.Fault) {
				if call.Verb != "create" {
					return f
				}
				if calls++; calls%3 == 0 {
					f.After = failure.Of(call)
				}
				return f
			}
			s.controller.Passed = func(p controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) {
				if len(p.Created) > 0 {
					creating++
				}
			}
			createReplicaSet(t, s.PodCluster, 500)
			s.world.Run(time.Minute)
			s.requireSettled(t, "in the end")
			assert.Equal(t, 500, calls)
			assert.LessOrEqual(t, creating, 500/3+3, "passes that create")
			assert.LessOrEqual(t, len(*statuses), creating+3, "status writes")
		})
	}
}

// An owner is deleted while its watch hangs. The garbage collector deletes the pods, and the controller replaces none
// of them.
func TestAnOwnerThatIsDeletedWhileItsWatchHangs(t *testing.T) {
	t.Parallel()
	s := running(t, 100)
	s.controller.View.OwnerWatch.Hang()
	calls := s.controller.Client.Record()
	require.NoError(t, s.DeleteOwner(t.Context(), namespace, "web", ""))
	s.world.Run(10 * time.Minute)
	assert.Zero(t, calls.Count("create"), "no pod is replaced")
	assert.Empty(t, s.Children(namespace))
}

// A webhook removes the owner reference of a new pod. The controller adopts the pod, as in Kubernetes.
func TestAWebhookThatTakesOwnerReferences(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{0, 150 * time.Millisecond} {
		t.Run(fmt.Sprintf("new pods become the owner's, also those that replace drained ones, seen after %v", lag), func(t *testing.T) {
			t.Parallel()
			s := running(t, 3)
			s.controller.View.ChildWatch.Lag = lag
			s.Mutate = func(p *corev1.Pod) { p.OwnerReferences = nil }
			c := s.counts()
			for _, p := range s.Children(namespace) {
				_, err := s.DeleteChild(t.Context(), namespace, p.Name, metav1.DeleteOptions{})
				require.NoError(t, err)
			}
			s.world.Run(time.Minute)
			s.requireSettled(t, "after the drain")
			assert.Len(t, s.active(s.Owners(namespace)[0]), 3)
			s.scale(t, 5)
			s.world.Run(time.Minute)
			s.requireSettled(t, "after the scale-up")
			assert.Len(t, s.active(s.Owners(namespace)[0]), 5)
			assert.LessOrEqual(t, c.ever(), 3+3+2)
			assert.Empty(t, s.warnings())
		})
	}
}

// A webhook removes the owner of a new pod and changes its label, so the controller tries to delete the pod. But its
// label is changed back and the pod is adopted before the deletion succeeds, so it stays.
func TestAStrayPodThatIsAdopted(t *testing.T) {
	t.Parallel()
	s := running(t, 2)
	s.Mutate = func(p *corev1.Pod) { p.OwnerReferences, p.Labels["app"] = nil, "other" }
	s.controller.Client.Fail(replicastest.Rule{Verb: "delete", Times: 2, Err: failure.InternalError.Of(replicastest.Call{})})
	s.scale(t, 3)
	s.world.Run(50 * time.Millisecond)
	s.Mutate = nil
	for _, p := range s.Children(namespace) {
		if p.Labels["app"] == "other" {
			s.editPod(t, p.Name, func(p *corev1.Pod) { p.Labels["app"] = "web" })
		}
	}
	s.world.Run(20 * time.Millisecond)
	c := s.counts()
	assert.Equal(t, 3, c.most)
	s.world.Run(time.Hour)
	s.requireSettled(t, "in the end")
	assert.Equal(t, []int{3, 3}, []int{c.least, c.most})
}

// A pod that is missing from a live list counts again as soon as the cache shows a newer version of it.
func TestAPodThatALiveListDidNotShowComesBack(t *testing.T) {
	t.Parallel()
	s := running(t, 4)
	name := s.Children(namespace)[0].Name
	s.editPod(t, name, cheap)
	s.world.Run(time.Second)
	s.controller.View.ChildWatch.Hang()
	s.editPod(t, name, func(p *corev1.Pod) { p.Labels["app"] = "debug" })
	s.scale(t, 3)
	s.world.Run(time.Second)
	s.editPod(t, name, func(p *corev1.Pod) { p.Labels["app"] = "web" })
	s.controller.View.ChildWatch.Relist()
	s.world.Run(time.Minute)
	s.requireSettled(t, "there is one too many again")
}
