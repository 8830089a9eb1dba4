// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func TestRequeue(t *testing.T) {
	t.Parallel()

	// attempts makes every creation of a pod fail, and runs the controller for a little longer than d. The
	// result contains the times of all attempts, counted from the first attempt.
	attempts := func(t inBubble, d time.Duration, fail error) []time.Duration {
		t.Helper()
		b := newBench(replicaSet("web", 1))
		var at []time.Duration
		var first time.Time
		b.onPod = func(string, *corev1.Pod) error {
			if at == nil {
				first = time.Now()
			}
			at = append(at, time.Since(first))
			return fail
		}
		b.start(t)
		after(d)
		b.cancel()
		settle()
		return at
	}

	bubble(t, "V18 an error is tried again by the rate limiter: 5 ms, doubling with each failure", func(t inBubble) {
		at := attempts(t, time.Minute, apierrors.NewBadRequest("no"))
		require.Greater(t, len(at), 6)
		want := []time.Duration{0, 5, 15, 35, 75, 155, 315}
		for i, ms := range want {
			assert.Equal(t, ms*time.Millisecond, at[i].Round(time.Millisecond), "attempt %d", i+1)
		}
	})

	bubble(t, "W27 a Retry-After takes the rate limiter's place", func(t inBubble) {
		at := attempts(t, 15*time.Second, apierrors.NewTooManyRequests("busy", 7))
		assert.Equal(t, []time.Duration{0, 7 * time.Second, 14 * time.Second}, at)
	})

	bubble(t, "W27 also where it is a deletion that is refused", func(t inBubble) {
		web := replicaSet("web", 0)
		b := newBench(web, pod("web-1", "web", "node-1", ownedBy(web)))
		b.onPod = func(string, *corev1.Pod) error { return apierrors.NewTooManyRequests("busy", 7) }
		b.start(t)
		assert.Len(t, b.recorded("FailedDelete"), 1)
		failures := len(b.errors())
		after(5 * time.Second)
		assert.Len(t, b.errors(), failures)
		after(2 * time.Second)
		assert.Len(t, b.errors(), failures+1)
	})

	bubble(t, "V18 a pass without an error starts the rate limiter afresh", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		var at []time.Time
		fail := func(string, *corev1.Pod) error {
			at = append(at, time.Now())
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("a policy"))
		}
		b.onPod = fail
		b.start(t)
		after(time.Minute)
		b.setOnPod(nil)
		after(time.Minute)
		require.Len(t, b.allPods(), 1)
		at = nil
		b.setOnPod(fail)
		b.remove(b.allPods()[0])
		after(100 * time.Millisecond)
		require.Greater(t, len(at), 2)
		assert.Equal(t, 15*time.Millisecond, at[2].Sub(at[0]))
	})

	bubble(t, "M5 of two delays for one owner the earlier is kept", func(t inBubble) {
		web := replicaSet("web", 2, func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 10 })
		b := newBench(web)
		b.start(t)
		names := b.podNames()
		start := time.Now()
		b.makeReady(names[0])
		after(5 * time.Second)
		b.makeReady(names[1])
		available := func() int32 { return b.web().Status.AvailableReplicas }
		time.Sleep(time.Until(start.Add(10*time.Second - time.Millisecond)))
		synctest.Wait()
		assert.Equal(t, int32(0), available())
		after(time.Millisecond)
		assert.Equal(t, int32(1), available(), "after 10 s")
		after(5*time.Second - time.Millisecond)
		assert.Equal(t, int32(1), available())
		after(time.Millisecond)
		assert.Equal(t, int32(2), available(), "after 15 s")
	})
}

// If a status write fails with a Conflict, the pass reads the owner live. Nothing else in this test causes such
// a read, so the number of reads is the number of Conflicts.
func TestStatusConflicts(t *testing.T) {
	t.Parallel()
	for resource, owner := range map[string]object{replicaSets: replicaSet("web", 20), replicationControllers: replicationController("web", 20)} {
		bubble(t, "X1 X10 U3 "+resource+": writes of one's own never meet, whoever else writes costs one", func(t inBubble) {
			b := newBench(owner)
			var names []string
			for i := range 20 {
				names = append(names, fmt.Sprintf("web-%d", i))
				b.add(pod(names[i], "web", "n", ownedBy(owner), func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }))
			}
			start := b.start
			if resource == replicationControllers {
				start = b.startReplicationManager
			}
			start(t)
			ready := func() int32 {
				if resource == replicationControllers {
					return b.webRC().Status.ReadyReplicas
				}
				return b.web().Status.ReadyReplicas
			}
			for i, name := range names[:19] { // pods become ready faster than the owner's events arrive
				b.hold(resource)
				b.makeReady(name)
				after(30 * time.Millisecond)
				if i%3 == 2 {
					b.release(resource)
				}
			}
			b.release(resource)
			after(2 * time.Second)
			assert.EqualValues(t, 19, ready())
			assert.Zero(t, b.count("get "+resource), "no conflicts")

			b.hold(resource)
			b.change(owner, func(obj object) { obj.SetAnnotations(map[string]string{"seen": "late"}) })
			b.makeReady(names[19])
			after(time.Second)
			assert.EqualValues(t, 20, ready())
			assert.Equal(t, 1, b.count("get "+resource))
		})
	}
}

// makeReady makes a pod ready at this moment.
func (b *bench) makeReady(name string) {
	b.change(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, func(obj object) {
		obj.(*corev1.Pod).Status = corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{readySince(time.Now())},
		}
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()

	broken := func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = &metav1.LabelSelector{} }
	mismatched := func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = map[string]string{"app": "db"} }

	for _, test := range []struct {
		name, reason string
		change       func(*appsv1.ReplicaSet)
	}{
		{name: "W7 a selector that is refused: one event a generation, and no hot loop", reason: "InvalidSelector", change: broken},
		{name: "Y5 a template that is refused: one event a generation, and no hot loop", reason: "InvalidTemplate", change: mismatched},
		{name: "W2 replicas that are nil: one event a generation, and no hot loop", reason: "InvalidReplicas", change: func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = nil }},
	} {
		bubble(t, test.name, func(t inBubble) {
			b := newBench(replicaSet("web", 1, test.change))
			b.start(t)
			after(time.Hour)
			assert.Len(t, b.recorded(test.reason), 1)
			assert.Len(t, b.errors(), 1, "nobody looked again")
			assert.Zero(t, b.count("status replicasets"), "no status either")

			b.change(replicaSet("web", 1), func(rs object) { rs.SetLabels(map[string]string{"a": "b"}) })
			settle()
			assert.Len(t, b.errors(), 2)
			assert.Len(t, b.recorded(test.reason), 1, "the same generation")

			b.change(replicaSet("web", 1), func(obj object) {
				obj.(*appsv1.ReplicaSet).Spec = replicaSet("web", 1).Spec
				obj.SetGeneration(2)
			})
			settle()
			assert.Len(t, b.allPods(), 1, "repaired")
		})
	}
}

func TestOwners(t *testing.T) {
	t.Parallel()

	bubble(t, "Y3 nothing is remembered of an owner that is gone", func(t inBubble) {
		web := replicaSet("web", 3)
		b := newBench(web, pod("orphan", "web", "node-1"))
		g := newGate()
		b.onPod = g.onPod
		controller := b.start(t)
		b.remove(web)
		b.hold(pods)
		settle()
		require.Len(t, g.owners(), 1, "the adoption is under way")
		close(g.opened) // the pass goes on, although its owner is gone
		settle()
		b.lose(b.allPods()...) // no event reports the pods that the pass created
		after(time.Minute)
		assert.Zero(t, controller.Expecting())
		entry := b.logged("deleted")
		require.NotNil(t, entry)
		assert.Equal(t, "default/web", value(entry, "key"))
	})

	bubble(t, "W12 an owner made again under its name does not wait for its predecessor", func(t inBubble) {
		b := newBench(replicaSet("web", 3))
		g := newGate()
		b.onPod = g.onPod
		b.start(t)
		b.remove(replicaSet("web", 3))
		b.add(replicaSet("web", 2, func(rs *appsv1.ReplicaSet) { rs.UID = "uid-again" }))
		settle()
		close(g.opened)
		settle()
		owned := 0
		for _, pod := range b.allPods() {
			if metav1.GetControllerOf(pod).UID == "uid-again" {
				owned++
			}
		}
		assert.Equal(t, 2, owned)
		assert.Equal(t, int32(2), b.web().Status.Replicas)
	})

	bubble(t, "V17 X4 nor for the events of what its predecessor wrote", func(t inBubble) {
		web := replicaSet("web", 3)
		b := newBench(web, pod("other", "db", "node-1"))
		b.hold(pods)
		b.start(t)
		require.Len(t, b.allPods(), 4)
		b.remove(web)
		settle()
		b.add(replicaSet("web", 2, func(rs *appsv1.ReplicaSet) { rs.UID = "uid-again" }))
		settle()
		assert.Len(t, b.allPods(), 6)
	})

	bubble(t, "Y1 W59 keys are not parsed, so that none is malformed: whatever the name, it is looked up", func(t inBubble) {
		b := newBench(replicaSet("web", 0, func(rs *appsv1.ReplicaSet) { rs.Name = "a/b/c" }))
		b.start(t)
		assert.Equal(t, 1, b.count("status replicasets"))
		assert.Empty(t, b.errors())
	})

	bubble(t, "V13 a deletion that the watch missed comes as a tombstone", func(t inBubble) {
		web := replicaSet("web", 2)
		b := newBench(web)
		b.start(t)
		victim := b.allPods()[0]
		b.lose(victim)
		after(time.Minute)
		assert.Len(t, b.allPods(), 2, "replaced")
	})
}

// lose deletes pods and ends the watch. The watch reports no event for the deletions, and the informer lists the
// pods again.
func (b *bench) lose(lost ...*corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.feeds[pods]
	for _, pod := range lost {
		delete(f.stored, nameOf(pod))
		delete(f.shown, nameOf(pod))
	}
	b.version++
	f.version = b.version
	f.held, f.pending = false, nil
	for _, w := range f.watchers {
		w.expire()
	}
	f.watchers = nil
}

func TestOwnWrites(t *testing.T) {
	t.Parallel()

	// staleOwner starts a controller. The controller writes a status that the cache does not show yet, and then
	// an event wakes the owner again.
	staleOwner := func(t inBubble, b *bench) {
		t.Helper()
		b.start(t)
		names := b.podNames()
		b.hold(replicaSets)
		b.makeReady(names[0])
		synctest.Wait()
		require.Equal(t, int32(1), b.web().Status.ReadyReplicas)
		b.makeReady(names[1])
		synctest.Wait()
	}

	bubble(t, "X10 W51 a sync that finds the cache behind its status write looks again for a second, and then reads the owner", func(t inBubble) {
		b := newBench(replicaSet("web", 2))
		staleOwner(t, b)
		written := b.count("status replicasets")
		first := b.skips("apps", "replicasets")
		for i, wait := range []time.Duration{50, 50, 100, 200, 400} {
			after(wait*time.Millisecond - 1)
			assert.Equal(t, first+i, b.skips("apps", "replicasets"))
			after(1)
			assert.Equal(t, first+i+1, b.skips("apps", "replicasets"), "after %d ms", wait)
		}
		assert.Equal(t, written, b.count("status replicasets"))
		assert.Empty(t, b.errors(), "it is no error")
		after(200 * time.Millisecond)
		assert.Equal(t, int32(2), b.web().Status.ReadyReplicas, "although the cache shows neither status yet")
		b.release(replicaSets)
		settle()
		assert.Equal(t, written+1, b.count("status replicasets"))
	})

	bubble(t, "X8 what counts is the version of the store, not that of the informer, which runs ahead", func(t inBubble) {
		b := newBench(replicaSet("web", 2))
		b.replicaSets = aheadInformer{b.replicaSets}
		staleOwner(t, b)
		assert.Positive(t, b.skips("apps", "replicasets"))
	})

	bubble(t, "N3 a sync that waits for the pods it created is counted", func(t inBubble) {
		web := replicaSet("web", 1)
		b := newBench(web)
		b.start(t)
		require.Zero(t, b.skips("", "pods"))
		b.hold(pods)
		b.scale(web, 3)
		settle()
		b.scale(web, 4)
		settle()
		assert.Positive(t, b.skips("", "pods"))
		assert.Len(t, b.allPods(), 3)
		b.release(pods)
		settle()
		assert.Len(t, b.allPods(), 4)
	})

	bubble(t, "X9 a release is an own write too: it is not made twice", func(t inBubble) {
		web := replicaSet("web", 1)
		b := newBench(web, pod("web-1", "web", "node-1", ownedBy(web)))
		b.start(t)
		b.setOnPod(func(verb string, _ *corev1.Pod) error {
			if verb == "patch" {
				b.hold(pods)
			}
			return nil
		})
		b.change(pod("web-1", "web", "node-1"), func(p object) { p.SetLabels(map[string]string{"app": "db"}) })
		settle()
		require.Equal(t, 1, b.count("patch pods"))
		b.change(web, func(rs object) { rs.SetLabels(map[string]string{"wake": "up"}) })
		settle()
		assert.Equal(t, 1, b.count("patch pods"))
		b.release(pods)
		settle()
		assert.Equal(t, int32(1), b.web().Status.Replicas)
		assert.Len(t, b.allPods(), 2)
	})

	bubble(t, "X11 writes of ReplicationControllers are recorded like those of ReplicaSets", func(t inBubble) {
		b := newBench(replicationController("web", 2))
		b.startReplicationManager(t)
		names := b.podNames()
		b.hold(replicationControllers)
		b.makeReady(names[0])
		synctest.Wait()
		written := b.count("status replicationcontrollers")
		b.makeReady(names[1])
		synctest.Wait()
		assert.Equal(t, written, b.count("status replicationcontrollers"))
		assert.Positive(t, b.skips("", "replicationcontrollers"))
		b.release(replicationControllers)
		settle()
		assert.Equal(t, int32(2), b.webRC().Status.ReadyReplicas)
	})

	bubble(t, "X12 expectations hold where versions do not: deletions", func(t inBubble) {
		b := newBench(replicaSet("web", 3))
		b.start(t)
		b.hold(pods)
		b.scale(replicaSet("web", 1), 1)
		settle()
		b.change(replicaSet("web", 1), func(rs object) { rs.SetLabels(map[string]string{"wake": "up"}) })
		settle()
		assert.Equal(t, 2, b.count("delete pods"))
	})
}

// An aheadInformer reports a resourceVersion that is far newer than the version of its store.
type aheadInformer struct{ cache.SharedIndexInformer }

func (aheadInformer) LastSyncResourceVersion() string { return "1000000000" }

func TestLiveReads(t *testing.T) {
	t.Parallel()

	bubble(t, "C19 an owner deleted behind the cache adopts nothing", func(t inBubble) {
		web := replicaSet("web", 1)
		b := newBench(web)
		b.start(t)
		b.hold(replicaSets)
		b.change(web, func(rs object) { rs.SetDeletionTimestamp(&metav1.Time{Time: time.Now()}) })
		b.add(pod("orphan", "web", "node-1"))
		settle()
		assert.Zero(t, b.count("patch pods"))
		assert.Positive(t, b.count("get replicasets"))
	})

	bubble(t, "U3 a status write that meets a conflict is tried once more on a fresh read", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		var conflicts int
		b.onStatus = func(owner metav1.Object) error {
			if conflicts++; conflicts == 1 {
				return apierrors.NewConflict(appsv1.Resource("replicasets"), owner.GetName(), errors.New("stale"))
			}
			return nil
		}
		b.start(t)
		assert.Equal(t, 1, b.count("get replicasets"), "after the conflict")
		assert.Equal(t, int32(1), b.web().Status.Replicas)
		assert.Empty(t, b.errors())
	})

	bubble(t, "W26 a delete carries the UID, and the version of a ready pod", func(t inBubble) {
		web := replicaSet("web", 0)
		b := newBench(web, pod("web-1", "web", "node-1", ownedBy(web)))
		version := b.allPods()[0].ResourceVersion
		b.start(t)
		opts := b.deleteOptions()
		require.Len(t, opts, 1)
		assert.Equal(t, types.UID("uid-web-1"), *opts[0].Preconditions.UID)
		assert.Equal(t, version, *opts[0].Preconditions.ResourceVersion)
	})
}
