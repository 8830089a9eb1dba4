// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// slotted returns the Kind of ReplicaSets, with ordinals as slots.
func slotted() controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		is, err := spec(rs)
		is.Slots = replicas.Ordinals(rs.Name)
		return is, err
	}
	return kind
}

func newSlots(want int32) *podRig { return rigOf(slotted(), replicaSet(want)) }

// newNamedSlots returns a rig with slots, and a counter for the calls of Spec.Slots.
func newNamedSlots(want int32) (r *podRig, named *int) {
	r, named = newSlots(want), new(int)
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		is, err := spec(rs)
		slot := is.Slots
		is.Slots = func(i int) string { *named++; return slot(i) }
		return is, err
	}
	return r, named
}

func inSlots(rs *appsv1.ReplicaSet, names ...string) (pods []*corev1.Pod) {
	for _, name := range names {
		pods = append(pods, podtest.Pod(name, owned(rs)))
	}
	return pods
}

func TestSlots(t *testing.T) {
	t.Parallel()
	t.Run("holes are filled", func(t *testing.T) {
		t.Parallel()
		r := newSlots(4)
		pass, err := r.pass(t, 0, inSlots(r.owner, "web-0", "web-2")...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1", "web-3"}, names(pass.Created))
	})
	t.Run("the highest goes first", func(t *testing.T) {
		t.Parallel()
		r := newSlots(1)
		pass, err := r.pass(t, 0, inSlots(r.owner, "web-9", "web-0", "web-10")...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-10", "web-9"}, names(pass.Deleted))
	})
	t.Run("a child that is being deleted keeps its slot until it is gone", func(t *testing.T) {
		t.Parallel()
		r := newSlots(2)
		pass, err := r.pass(t, 0, append(inSlots(r.owner, "web-0"), podtest.Pod("web-1", owned(r.owner), podtest.Deleting))...)
		require.NoError(t, err)
		assert.Empty(t, pass.Created)
		pass, err = r.pass(t, 1, inSlots(r.owner, "web-0")...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1"}, names(pass.Created))
	})
	for name, change := range map[string]func(*corev1.Pod){
		"going":             func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: podtest.Now} },
		"nobody's":          func(p *corev1.Pod) { p.OwnerReferences = nil },
		"no longer matched": func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} },
	} {
		t.Run("one whose deletion had no answer is not deleted if it is found after five minutes, "+name, func(t *testing.T) {
			t.Parallel()
			r := newSlots(1)
			pods := versioned(inSlots(r.owner, "web-0", "web-1", "web-2"))
			server := clones(pods)
			r.get = func(name string) (*corev1.Pod, error) { return find(server, name) }
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
			_, err := r.pass(t, 0, pods...)
			require.Error(t, err)
			require.Equal(t, []string{"delete web-2", "delete web-1"}, r.callsOf("delete"))
			r.settle()
			*r.owner.Spec.Replicas = 2
			server[2].ResourceVersion = "8"
			change(server[2])
			pass, err := r.pass(t, 301, pods...)
			require.NoError(t, err)
			assert.Equal(t, []string{"get web-1", "get web-2"}, r.calls)
			assert.Equal(t, time.Duration(1), pass.RequeueAfter, "what the looks found is for the next pass")
			pass, err = r.pass(t, 301, pods...)
			require.NoError(t, err)
			assert.Empty(t, r.callsOf("delete"))
			assert.Equal(t, []string{"web-0", "web-1"}, names(pass.Active))
		})
	}
	t.Run("a former child of the name does not settle a creation", func(t *testing.T) {
		t.Parallel()
		r := newSlots(1)
		r.version = "8"
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		former := podtest.Pod("web-0", owned(r.owner), version("5"))
		former.UID = "uid-of-the-former"
		require.NoError(t, r.start().ChildAdded(former))
		require.NoError(t, r.start().ChildDeleted(former))
		pass, err := r.pass(t, 1)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("create"))
		assert.Equal(t, []string{"web-0"}, names(pass.Active))
	})
	t.Run("children that cannot be deleted leave no holes open", func(t *testing.T) {
		t.Parallel()
		r := newSlots(2)
		r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(p.Name, "a policy") }
		pass, err := r.pass(t, 0, inSlots(r.owner, "web-0", "web-7", "web-9")...)
		require.Error(t, err)
		assert.Equal(t, []string{"web-1"}, names(pass.Created))
	})
	t.Run("an orphan whose adoption is undecided holds its own slot and no other", func(t *testing.T) {
		t.Parallel()
		r := newSlots(3)
		r.patch = func(*corev1.Pod) error { return timeout() }
		pass, err := r.pass(t, 0, append(inSlots(r.owner, "web-0"), podtest.Pod("web-1"))...)
		require.Error(t, err)
		assert.Equal(t, []string{"web-1"}, gatesOf(pass.Gates, controller.AdoptionUndecided))
		assert.Equal(t, []string{"web-2"}, names(pass.Created))
	})
	t.Run("more slots than are possible are refused, and none is named", func(t *testing.T) {
		t.Parallel()
		r, named := newNamedSlots(math.MaxInt32)
		pass, err := r.pass(t, 0, inSlots(r.owner, "any")...)
		require.NoError(t, err)
		requireRefused(t, pass.Err, replicas.InvalidSlots)
		assert.Zero(t, *named)
	})
	t.Run("no more are named than a pass fills", func(t *testing.T) {
		t.Parallel()
		r, named := newNamedSlots(replicas.MaxSlots)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, pass.Created, replicas.DefaultBurstReplicas)
		assert.LessOrEqual(t, *named, 4*replicas.DefaultBurstReplicas, "by the plan and its room, and when the specs before and after the status write are compared")
	})
	t.Run("slots that are no names are refused", func(t *testing.T) {
		t.Parallel()
		r := newSlots(2)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			is, err := spec(rs)
			is.Slots = func(int) string { return "web-0" }
			return is, err
		}
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		requireRefused(t, pass.Err, replicas.InvalidSlots)
		assert.Len(t, r.eventsOf("Warning InvalidSlots"), 1)
	})
}

// An owner of three goes to two, and says in an annotation that ordinal 1 is left out.
func TestTheSlotThatIsLeftOutGoes(t *testing.T) {
	t.Parallel()
	const leftOut = "example.com/left-out"
	newLeaving := func() *podRig {
		r := newSlots(3)
		withSpec(r, func(s *replicas.SpecOfPods) {
			slot, leaves := s.Slots, s.Owner.GetAnnotations()[leftOut] == "1"
			s.Slots = func(i int) string {
				if leaves && i >= 1 {
					i++
				}
				return slot(i)
			}
		})
		return r
	}
	leave := func(rs *appsv1.ReplicaSet) {
		*rs.Spec.Replicas, rs.Annotations = 2, map[string]string{leftOut: "1"}
	}
	t.Run("and the others stay", func(t *testing.T) {
		t.Parallel()
		r := newLeaving()
		leave(r.owner)
		pass, err := r.pass(t, 0, inSlots(r.owner, "web-0", "web-1", "web-2")...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1"}, names(pass.Deleted))
		r.settle()
		_, err = r.pass(t, 1, inSlots(r.owner, "web-0", "web-2")...)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("create"))
		assert.Empty(t, r.callsOf("delete"))
	})
	t.Run("and nobody does if the owner on the server leaves out another", func(t *testing.T) {
		t.Parallel()
		r := newLeaving()
		leave(r.owner)
		r.getOwner = func() (*appsv1.ReplicaSet, error) {
			other := clone(r.owner)
			other.Annotations, other.Generation = nil, other.Generation+1
			return other, nil
		}
		_, err := r.pass(t, 0, inSlots(r.owner, "web-0", "web-1", "web-2")...)
		require.NoError(t, err)
		assert.Equal(t, []string{"read owner"}, r.calls)
	})
}

// If another object has the name of a slot, only the creation for this slot is on hold.
func TestSlotIsHeld(t *testing.T) {
	t.Parallel()
	newHeld := func() (r *podRig, free func()) {
		r = newSlots(5)
		stranger, there := podtest.Pod("web-1"), true
		stranger.Labels = nil
		r.send = func(p *corev1.Pod) {
			r.create = func(int) error {
				if there && p.Name == "web-1" {
					return alreadyExists(p.Name)
				}
				return nil
			}
		}
		r.get = func(string) (*corev1.Pod, error) { return stranger, nil }
		return r, func() { there = false }
	}
	t.Run("from a second to a minute, and the others are created", func(t *testing.T) {
		t.Parallel()
		r, free := newHeld()
		pass, err := r.pass(t, 0)
		require.NoError(t, err, "the others have their turn")
		require.ErrorContains(t, pass.ScaleErr, `"web-1" already exists`)
		assert.Equal(t, []string{"web-0", "web-2", "web-3", "web-4"}, names(pass.Created))
		assert.Len(t, r.eventsOf("Warning FailedCreate"), 1)
		others, at := inSlots(r.owner, "web-0", "web-2", "web-3", "web-4"), 0
		r.settle()
		for _, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
			assert.Equal(t, time.Duration(seconds)*time.Second, r.last.RequeueAfter)
			pass, err = r.passAt(t, time.Duration(at+seconds)*time.Second-time.Millisecond, others...)
			require.NoError(t, err)
			assert.Empty(t, r.callsOf("create"))
			assert.Equal(t, time.Millisecond, pass.RequeueAfter)
			at += seconds
			pass, err = r.pass(t, at, others...)
			require.NoError(t, err)
			require.ErrorContains(t, pass.ScaleErr, "already exists")
		}
		free()
		pass, err = r.pass(t, at+60, others...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1"}, names(pass.Created))
	})
	t.Run("but a slot that New refuses has no hold, so a plan of one creation at a time does not come at once", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		withSpec(r, func(s *replicas.SpecOfPods) {
			s.Slots, s.BurstReplicas = replicas.Ordinals("web"), 1
			s.New = func(string) (*corev1.Pod, error) {
				return nil, &replicas.RefusedError{Reason: "NoDisk", Err: errors.New("no disk")}
			}
		})
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		requireRefused(t, pass.Err, "NoDisk")
		assert.Zero(t, pass.RequeueAfter)
	})
	t.Run("and so is one whose stranger the cache shows", func(t *testing.T) {
		t.Parallel()
		r, free := newHeld()
		stranger, err := r.get("web-1")
		require.NoError(t, err)
		others := append(inSlots(r.owner, "web-0", "web-2", "web-3", "web-4"), stranger)
		pass, err := r.pass(t, 0, others...)
		require.NoError(t, err)
		require.ErrorContains(t, pass.ScaleErr, "already exists")
		assert.Equal(t, time.Second, pass.RequeueAfter, "as no event tells when it goes")
		free()
		pass, err = r.pass(t, 1, others[:4]...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1"}, names(pass.Created))
	})
	t.Run("until the stranger gets our labels and is adopted", func(t *testing.T) {
		t.Parallel()
		r, _ := newHeld()
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		require.Len(t, pass.Gates, 1)
		r.settle()
		others := inSlots(r.owner, "web-0", "web-2", "web-3", "web-4")
		pass, err = r.passAt(t, 500*time.Millisecond, append(others, podtest.Pod("web-1"))...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1"}, names(pass.Adopted))
		assert.Empty(t, pass.Gates, "the slot is filled")
	})
	t.Run("until there is a new generation", func(t *testing.T) {
		t.Parallel()
		r, free := newHeld()
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		r.settle()
		free()
		r.owner.Generation++
		pass, err := r.passAt(t, time.Millisecond, inSlots(r.owner, "web-0", "web-2", "web-3", "web-4")...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1"}, names(pass.Created))
	})
}

// If the owner has slots, the Controller first repeats the deletions without an answer. If MaxDeletions allows
// more deletions, the Controller then deletes the children in the highest slots.
func TestDoubtedDeletionsInSlots(t *testing.T) {
	t.Parallel()
	r := newSlots(1)
	one, spec := 1, r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		is, err := spec(rs)
		is.MaxDeletions = &one
		return is, err
	}
	pods := inSlots(r.owner, "web-0", "web-1", "web-2")
	r.children = func() ([]*corev1.Pod, error) { return pods, nil }
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
	_, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	assert.Equal(t, []string{"delete web-2"}, r.callsOf("delete"))
	r.settle()
	pods = append(pods, inSlots(r.owner, "web-3")...)
	_, err = r.pass(t, 1, pods...)
	require.Error(t, err)
	assert.Equal(t, []string{"delete web-2"}, r.callsOf("delete"), "one at a time")
	one = 2
	r.settle()
	_, err = r.pass(t, 2, pods...)
	require.Error(t, err)
	assert.Equal(t, []string{"delete web-2", "delete web-3"}, r.callsOf("delete"))
}

// replicaNumber is the annotation with the slot of a vertex' pod.
const replicaNumber = "example.com/replica"

// vertices returns the Kind of Numaflow's vertices: the pod of replica 3 of the vertex "in" is in-3-x7k2p, and in a rollout
// its successor in-3-b5c8d comes before it goes.
func vertices() controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		is, err := spec(rs)
		zero, one := intstr.FromInt32(0), intstr.FromInt32(1)
		is.MaxUnavailable, is.MaxSurge = &zero, &one
		is.Slots = replicas.Ordinals(rs.Name)
		is.SlotOf = func(p *corev1.Pod) string { return rs.Name + "-" + p.Annotations[replicaNumber] }
		is.New = func(name string) (*corev1.Pod, error) { // name is in-3-x7k2p
			pod, err := replicas.PodFromTemplate(&rs.Spec.Template, rs, kind.Owner)
			if err == nil {
				pod.Spec.Hostname = replicas.SlotIn(name)
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, replicaNumber, pod.Spec.Hostname[len(rs.Name)+1:])
			}
			return pod, err
		}
		is.Rules.MustGo = func(p *corev1.Pod) bool { return p.Annotations["image"] != imageOf(rs) }
		is.Rules.Discard = func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }
		return is, err
	}
	return kind
}

// Only a slot may be one that New alone refuses. Without slots, the next child would fail like the first.
func TestWithoutSlotsARefusedChildEndsTheSlowStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rig   *podRig
		calls int
	}{"without slots": {newRig(3), 1}, "with slots": {newSlots(3), 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls, spec := 0, tt.rig.kind.Spec
			tt.rig.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				is, err := spec(rs)
				is.New = func(string) (*corev1.Pod, error) { calls++; return nil, errors.New("no image") }
				return is, err
			}
			pass, err := tt.rig.pass(t, 0)
			require.ErrorContains(t, err, "no image")
			assert.Empty(t, pass.Created)
			assert.Equal(t, tt.calls, calls)
		})
	}
}

// With SlotOf, the end of a name is random. A stranger with such a name takes no slot, and the next pass chooses another name.
func TestATakenNameIsNoTakenSlot(t *testing.T) {
	t.Parallel()
	r := rigOf(vertices(), replicaSet(2))
	var taken string
	r.send = func(p *corev1.Pod) {
		r.create = func(int) error {
			if taken == "" || p.Name == taken {
				taken = p.Name
				return alreadyExists(p.Name)
			}
			return nil
		}
	}
	r.get = func(name string) (*corev1.Pod, error) {
		stranger := podtest.Pod(name)
		stranger.Labels = nil
		return stranger, nil
	}
	pass, err := r.pass(t, 0)
	require.ErrorContains(t, err, `"web-0-bbbbb" already exists`)
	assert.Empty(t, gatesOf(pass.Gates, controller.NameTaken))
	r.settle()
	pass, err = r.pass(t, 1)
	require.NoError(t, err)
	assert.Equal(t, []string{"web-0-bbbbd", "web-1-bbbbf"}, names(pass.Created))
}

func TestVerticesInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *podStory) {
		s.Kind, s.Owner = vertices(), replicastest.NewReplicaSet("default", "in", 3)
		s.Changes = []func(*appsv1.ReplicaSet){wants(2), wants(3), wants(4), rollsOut("two"), rollsOut("three")}
		inSlots := func() map[string]int {
			pods := map[string]int{}
			for _, p := range s.Cluster.Children("default") {
				if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed {
					pods[p.Annotations[replicaNumber]]++
				}
			}
			return pods
		}
		s.Always = map[string]func() error{
			"never more than six": s.AtMost(6), // one of the surge, and one whose creation had no answer when its slot went
			"a slot has at most its pod, its successor, and one that may still have landed": func() error {
				for slot, n := range inSlots() {
					if n > 3 {
						return fmt.Errorf("slot %s has %d", slot, n)
					}
				}
				return nil
			},
		}
		s.AtEnd = map[string]func() error{
			"as many pods as wanted": s.AsWanted,
			"one pod in each slot, with the image of its owner": func() error {
				owner, err := s.Cluster.GetOwner(context.Background(), "default", "in")
				if err != nil {
					return nil
				}
				is := inSlots()
				for i := range *owner.Spec.Replicas {
					if n := is[strconv.Itoa(int(i))]; n != 1 {
						return fmt.Errorf("slot %d has %d", i, n)
					}
				}
				for _, pod := range s.Cluster.Children("default") {
					if pod.Annotations["image"] != imageOf(owner) {
						return fmt.Errorf("%s has %q", pod.Name, pod.Annotations["image"])
					}
				}
				return nil
			},
		}
	}))
}
