// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/replicaset"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// The tests in the defects_ files show the defects of Kubernetes that docs/behaviour.md lists under W. Each
// sub-test uses an input for which Kubernetes does the wrong thing and this library does the right thing. Some
// defects need no test in these files, because another test compares both sides with random inputs and counts how
// often the defect occurs. The name of this count, or of the other test's sub-test, then contains the id of the
// defect.

// web returns a scene with the ReplicaSet a/web, which wants the given number of replicas and owns the given
// number of pods. Each pod has been ready for an hour, and each pod is on a different node.
func web(replicas int32, pods int) scene {
	labels := map[string]string{"app": "a"}
	c := scene{
		Burst: 500,
		RS: &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "owner", Generation: 1},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}},
			},
		},
		Deletes: map[string]string{}, Patches: map[string]string{},
	}
	for i := range pods {
		c.Pods = append(c.Pods, runningPod(c.RS, i))
	}
	return c
}

// runningPod returns pod i of a ReplicaSet, for example the pod "web-0".
func runningPod(rs *appsv1.ReplicaSet, i int) *corev1.Pod {
	since := metav1.NewTime(start.Add(-time.Hour))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rs.Namespace, Name: fmt.Sprintf("%s-%d", rs.Name, i), UID: types.UID(fmt.Sprintf("uid-%d", i)), ResourceVersion: "1",
			Labels: rs.Spec.Template.Labels, CreationTimestamp: since,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, replicaSetKind)},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("n%d", i)},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since}},
		},
	}
}

// A bubble is a sub-test that runs in a synctest bubble with its own client. Time in the bubble begins at start.
type bubble struct {
	*testing.T
	*switchboard
}

func inBubbles(t *testing.T, name string, test func(t bubble)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		board := newSwitchboard()
		synctest.Test(t, func(t *testing.T) { test(bubble{t, board}) })
	})
}

// childOf is the name of an environment variable. In a child process, the variable contains the id of the sub-test
// that started the process.
const childOf = "CONFORMANCE_CHILD_OF"

func TestCrashDefects(t *testing.T) {
	t.Parallel()
	inBubbles(t, "W1 a ready pod created this moment costs Kubernetes the process, by a division", func(t bubble) {
		c := web(1, 2)
		for _, p := range c.Pods {
			p.CreationTimestamp = metav1.NewTime(time.Now())
		}
		assert.True(t, panicked(func() { t.theirPass(c) }))

		w := newWorld(false)
		w.step = time.Now().Add(time.Minute) // w.start returns at this time
		w.addSet("solo", "uid", 2)
		stop := w.start(ours, 500)
		for _, do := range []step{{Do: "schedule"}, {Do: "start"}, {Do: "scale", N: 1}} {
			do.happen(w, nil)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		assert.Len(t, activeOf(w.look(), "solo"), 1)
		stop()
	})
	inBubbles(t, "W2 nil replicas are refused, and no panic", func(t bubble) {
		c := web(0, 1)
		c.RS.Spec.Replicas = nil
		assert.True(t, panicked(func() { t.theirPass(c) }))
		requireRefusal(t, t.ourPass(c), replicas.InvalidReplicas)
	})
	inBubbles(t, "W3 negative replicas are refused, and no panic", func(t bubble) {
		c := web(-100, 1)
		assert.True(t, panicked(func() { t.theirPass(c) }))
		requireRefusal(t, t.ourPass(c), replicas.InvalidReplicas)
	})
	t.Run("W4 a panic in a call can be recovered, and does not end the process", func(t *testing.T) {
		t.Parallel()
		if os.Getenv(childOf) == "W4" {
			panicked(func() { _, _ = upstream.SlowStartBatch(1, 1, func() error { panic("in a call") }) })
			time.Sleep(time.Minute) // SlowStartBatch can return before the panic ends the process
			return
		}
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashDefects$/^W4")
		child.Env = append(os.Environ(), childOf+"=W4")
		output, err := child.CombinedOutput()
		require.Error(t, err)
		assert.Contains(t, string(output), "panic: in a call")

		assert.True(t, panicked(func() {
			_, _ = slowstart.Batch(t.Context(), 1, 1, func(context.Context, int) error { panic("in a call") })
		}))
	})
}

// requireRefusal checks that the pass refused the owner for the given reason. The pass must report one event with
// the reason, and it must not create, delete or patch pods.
func requireRefusal(t bubble, ours outcome, reason string) {
	t.Helper()
	var refused *replicas.RefusedError
	require.ErrorAs(t, ours.err, &refused)
	require.NoError(t, ours.returned, "trying again is useless")
	assert.Equal(t, reason, refused.Reason)
	require.Len(t, ours.events, 1)
	assert.Contains(t, ours.events[0], reason)
	assert.Empty(t, ours.creates)
	assert.Empty(t, ours.deletes)
	assert.Empty(t, ours.patches)
}

func TestSelectorDefects(t *testing.T) {
	t.Parallel()
	inBubbles(t, "W6 a nil selector is refused, and releases nothing", func(t bubble) {
		c := web(1, 1)
		c.RS.Spec.Selector = nil
		theirs := t.theirPass(c)
		assert.Len(t, theirs.patches, 1, "a healthy pod is released")
		assert.Len(t, theirs.creates, 1, "and another made")
		requireRefusal(t, t.ourPass(c), replicas.InvalidSelector)
	})
	inBubbles(t, "W6 an empty selector is refused, and adopts nothing", func(t bubble) {
		c := web(1, 1)
		c.RS.Spec.Selector = &metav1.LabelSelector{}
		c.Pods[0].OwnerReferences = nil
		c.Pods[0].Labels = map[string]string{"whose": "somebody else's"}
		assert.Len(t, t.theirPass(c).patches, 1)
		requireRefusal(t, t.ourPass(c), replicas.InvalidSelector)
	})
	inBubbles(t, "W7 an invalid selector is told", func(t bubble) {
		c := web(1, 0)
		c.RS.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}
		theirs := t.theirPass(c)
		require.NoError(t, theirs.err)
		assert.Empty(t, theirs.events)
		assert.Empty(t, theirs.statuses)
		requireRefusal(t, t.ourPass(c), replicas.InvalidSelector)
	})
}

func TestExpectationDefects(t *testing.T) {
	t.Parallel()
	logger, key := logr.Discard(), "a/web"
	newStores := func() (*controller.UIDTrackingControllerExpectations, *expectations.UIDTrackingControllerExpectations[string]) {
		return controller.NewUIDTrackingControllerExpectations(controller.NewControllerExpectations()), &expectations.UIDTrackingControllerExpectations[string]{}
	}
	t.Run("W8 a creation expected by name is not settled by a pod of another name", func(t *testing.T) {
		t.Parallel()
		theirs, ours := newStores()
		must(theirs.ExpectCreations(logger, key, 1))
		theirs.CreationObserved(logger, key) // Kubernetes counts any pod of the owner
		assert.True(t, theirs.SatisfiedExpectations(logger, key))

		ours.Set(key, expectations.Changes{Creating: []string{"web-1"}})
		assert.False(t, ours.Store.CreationObserved(key, "web-guest"))
		assert.False(t, ours.SatisfiedExpectations(key))
	})
	t.Run("W9 the deletion of a pod is not settled by that of its namesake", func(t *testing.T) {
		t.Parallel()
		theirs, ours := newStores()
		rs := web(1, 0).RS
		former, chosen := runningPod(rs, 0), runningPod(rs, 0)
		former.UID = "former"
		must(theirs.ExpectDeletions(logger, key, []string{controller.PodKey(chosen)}))
		theirs.DeletionObserved(logger, key, controller.PodKey(former))
		assert.True(t, theirs.SatisfiedExpectations(logger, key))

		ours.ExpectDeletions(key, []types.UID{chosen.UID})
		assert.False(t, ours.DeletionObserved(key, former.UID))
		assert.False(t, ours.SatisfiedExpectations(key))
	})
	inBubbles(t, "W10 a namespace that is going away is asked once, and nothing is expected", func(t bubble) {
		c := web(500, 0)
		c.Creates = "terminating namespace"
		theirs, ours := t.theirPass(c), t.ourPass(c)
		assert.Equal(t, []int{500, 500}, []int{len(theirs.creates), theirs.adds})
		assert.Equal(t, []int{1, 0}, []int{len(ours.creates), ours.adds})
	})
	inBubbles(t, "W12 an owner made again does not wait for what its predecessor expected", func(t bubble) {
		c := web(1, 0)
		theirs := t.theirPass(c, func(rsc *replicaset.ReplicaSetController) {
			must(upstream.Expectations(rsc).ExpectCreations(logger, key, 1))
		})
		assert.Empty(t, theirs.creates)
		ours, former := t.ours(c), c.RS.DeepCopy()
		former.UID = "former"
		ours.awaits(former)
		assert.Len(t, ours.pass().creates, 1)
	})
	inBubbles(t, "W13 a pass that expects something comes back when that expires", func(t bubble) {
		c := web(1, 0)
		assert.Zero(t, t.theirPass(c).again)
		again := t.ourPass(c).again - expectations.DefaultTimeout
		assert.Positive(t, again)
		assert.LessOrEqual(t, again, expectations.DefaultTimeout/10+1, "not all owners at one moment")
	})
	t.Run("W18 what is expected can be looked at without a hold on it", func(t *testing.T) {
		t.Parallel()
		theirs, ours := newStores()
		must(theirs.ExpectDeletions(logger, key, []string{"a/p"}))
		theirs.GetUIDs(key).Delete("a/p")
		theirs.DeletionObserved(logger, key, "a/p")
		assert.False(t, theirs.SatisfiedExpectations(logger, key), "the deletion was seen, and is waited for")

		ours.ExpectDeletions(key, []types.UID{"p"})
		for _, pending := range ours.All() {
			pending.Deleting[0] = "another"
		}
		assert.True(t, ours.DeletionObserved(key, "p"))
		assert.True(t, ours.SatisfiedExpectations(key))
	})
}

func TestSlowStartDefects(t *testing.T) {
	t.Parallel()
	t.Run("W20 every error is returned", func(t *testing.T) {
		t.Parallel()
		c := slowStart{Count: 3, Initial: 3, Failing: map[int]bool{0: true, 1: true, 2: true}}
		ours := c.counted(func(call func() error) (int, error) {
			return slowstart.Batch(t.Context(), c.Count, c.Initial, func(context.Context, int) error { return call() })
		})
		found := func(err error) (n int) {
			for i := range c.Count {
				if errors.Is(err, callError(i)) {
					n++
				}
			}
			return n
		}
		assert.Equal(t, []int{1, 3}, []int{found(c.theirs().err), found(ours.err)})
	})
	t.Run("W21 no batch starts once the context is done", func(t *testing.T) {
		t.Parallel()
		var c slowStart
		theirs := c.counted(func(call func() error) (int, error) {
			return upstream.SlowStartBatch(500, 1, call) // Kubernetes' function takes no context
		})
		ctx, cancel := context.WithCancel(t.Context())
		ours := c.counted(func(call func() error) (int, error) {
			return slowstart.Batch(ctx, 500, 1, func(context.Context, int) error { cancel(); return call() })
		})
		assert.Equal(t, []int{500, 1}, []int{theirs.calls, ours.calls})
		assert.ErrorIs(t, ours.err, context.Canceled)
	})
	inBubbles(t, "W23 the calls under way at once can be capped", func(t bubble) {
		var mu sync.Mutex
		var now, most int
		call := func() {
			step := func(n int) { mu.Lock(); defer mu.Unlock(); now += n; most = max(most, now) }
			step(1)
			time.Sleep(time.Second)
			step(-1)
		}
		_, _ = upstream.SlowStartBatch(500, 1, func() error { call(); return nil })
		assert.Equal(t, 245, most, "the last batch")

		most = 0
		slowstart.Run(t.Context(), 500, slowstart.Options{MaxParallel: 32}, func(context.Context, int) error { call(); return nil })
		assert.Equal(t, 32, most)
	})
}
