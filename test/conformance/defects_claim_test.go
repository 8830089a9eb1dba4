// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/kubernetes/pkg/controller"

	kit "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/status"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

func TestClaimDefects(t *testing.T) {
	t.Parallel()
	inBubbles(t, "W39 a hundred orphans are adopted side by side", func(t bubble) {
		c := web(100, 100)
		for _, p := range c.Pods {
			p.OwnerReferences = nil
		}
		sel := labels.SelectorFromSet(c.RS.Spec.Template.Labels)
		began := time.Now()
		kept, err := controller.NewPodControllerRefManager(theirSlowPods{}, c.RS, sel, replicaSetKind, nil).ClaimPods(t.Context(), c.Pods)
		require.NoError(t, err)
		assert.Len(t, kept, 100)
		assert.Equal(t, 100*time.Second, time.Since(began))

		began = time.Now()
		ours := t.ourPass(c, func(w *wiring) { w.client = slowPatches{w.client} })
		require.NoError(t, ours.err)
		assert.Len(t, ours.pass.Adopted, 100)
		assert.Equal(t, time.Second, time.Since(began))
	})
	t.Run("W41 a release is not sent again to a server whose events are late", func(t *testing.T) {
		t.Parallel()
		patches := map[string]int{}
		for side, m := range map[string]maker{"theirs": theirs, "ours": ours} {
			synctest.Test(t, func(*testing.T) {
				w := newWorld(false)
				w.addSet("solo", "uid", 1)
				stop := w.start(m, 500)
				step{Do: "schedule"}.happen(w, nil)
				step{Do: "start"}.happen(w, nil)
				synctest.Wait()
				w.refusals["create"] = refusal{kind: "Forbidden", left: 1000} // otherwise Kubernetes would wait for the event of the created pod, which is held back
				w.holdPods(1)
				step{Do: "relabel"}.happen(w, nil)
				time.Sleep(10 * time.Second)
				w.letGo()
				stop()
				patches[side] = w.calls["patch pods"]
			})
		}
		assert.Greater(t, patches["theirs"], 5)
		assert.Equal(t, 1, patches["ours"])
	})
	inBubbles(t, "W42 one pod that nobody may adopt does not freeze the others", func(t bubble) {
		c := web(3, 2)
		c.Pods[0].OwnerReferences, c.Patches["web-0"] = nil, "Invalid"
		theirs, ours := t.theirPass(c), t.ourPass(c)
		require.Error(t, theirs.err)
		assert.Equal(t, []int{0, 0}, []int{len(theirs.creates), len(theirs.statuses)})
		require.NoError(t, ours.err)
		assert.Equal(t, []int{2, 1}, []int{len(ours.creates), len(ours.statuses)})
		assert.Equal(t, 1, ours.gates(kit.AdoptionRefused))
	})
	inBubbles(t, "W42 one pod that a policy keeps from being adopted holds its own place alone", func(t bubble) {
		c := web(3, 2)
		c.Pods[0].OwnerReferences, c.Patches["web-0"] = nil, "Forbidden"
		theirs, ours := t.theirPass(c), t.ourPass(c)
		assert.Equal(t, []int{0, 0}, []int{len(theirs.creates), len(theirs.statuses)})
		assert.Equal(t, []int{1, 1}, []int{len(ours.creates), len(ours.statuses)})
		assert.Equal(t, 1, ours.gates(kit.AdoptionUndecided))
		assert.Contains(t, strings.Join(ours.events, "\n"), "Warning FailedAdopt Error adopting web-0")
	})
	t.Run("W43 whom a filter makes lose its owner can be kept", func(t *testing.T) {
		t.Parallel()
		c := web(1, 1)
		sel := labels.SelectorFromSet(c.RS.Spec.Template.Labels)
		c.Pods[0].Status.Phase = corev1.PodFailed
		theirs, ours := &calls{}, &calls{}
		_, err := controller.NewPodControllerRefManager(theirPods{calls: theirs}, c.RS, sel, replicaSetKind, nil).
			ClaimPods(t.Context(), c.Pods, controller.IsPodActive)
		require.NoError(t, err)
		assert.Len(t, theirs.patches, 1, "released")

		claimer := selector.Claimer[*corev1.Pod]{
			Owner: c.RS, Kind: replicaSetKind, Selector: sel, Filter: status.IsPodActive, Patch: ours.ourPatch,
		}
		claimed, err := claimer.Claim(t.Context(), c.Pods)
		require.NoError(t, err)
		assert.Equal(t, c.Pods, claimed.Released, "the same if nothing is said")
		assert.Equal(t, theirs.patches, ours.patches)

		claimer.Keep = func(p *corev1.Pod) bool { return !status.IsPodActive(p) }
		claimed, err = claimer.Claim(t.Context(), c.Pods)
		require.NoError(t, err)
		assert.Equal(t, c.Pods, claimed.Ignored)
		assert.Len(t, ours.patches, 1)
	})
}

// In theirSlowPods and slowPatches, each patch takes one second.
type theirSlowPods struct{ controller.PodControlInterface }

func (theirSlowPods) PatchPod(context.Context, string, string, []byte) error {
	time.Sleep(time.Second)
	return nil
}

type slowPatches struct{ setClient }

func (slowPatches) Patch(_ context.Context, pod *corev1.Pod, _ selector.Patch, _ metav1.PatchOptions) (*corev1.Pod, error) {
	time.Sleep(time.Second)
	return pod, nil
}

func TestCallDefects(t *testing.T) {
	t.Parallel()
	inBubbles(t, "W25 the error of a delete keeps its type", func(t bubble) {
		c := web(0, 1)
		c.Deletes["web-0"] = "Throttled"
		theirs, ours := t.theirPass(c).err, t.ourPass(c).err
		assert.Equal(t, []bool{false, true}, []bool{apierrors.IsTooManyRequests(theirs), apierrors.IsTooManyRequests(ours)})
	})
	inBubbles(t, "W25 a Conflict says that the view was old, and is no error", func(t bubble) {
		c := web(0, 1)
		c.Deletes["web-0"] = "stale"
		twoPasses := func() (first, then outcome) {
			ours := t.ours(c)
			first = ours.pass()
			time.Sleep(time.Second)
			return first, ours.pass()
		}
		first, then := twoPasses()
		require.NoError(t, first.err)
		require.NoError(t, then.err)
		assert.Equal(t, []string{"web-0", "web-0"}, then.deletes)
		assert.Equal(t, c.Pods[0].ResourceVersion, *then.preconditions[0].ResourceVersion)
		assert.Equal(t, c.Pods[0].ResourceVersion+"1", *then.preconditions[1].ResourceVersion, "that of the live list")
		c.Deletes["web-0"] = "Conflict"
		require.Error(t, t.theirPass(c).err)
		first, then = twoPasses()
		require.NoError(t, first.err)
		require.ErrorContains(t, then.err, "unable to delete pods", "a webhook's Conflict is a failure")
	})
	inBubbles(t, "W26 a delete names the pod that it is for, not any of its name", func(t bubble) {
		c := web(0, 1)
		assert.Equal(t, []*metav1.Preconditions{nil}, t.theirPass(c).preconditions)
		want := &metav1.Preconditions{UID: &c.Pods[0].UID, ResourceVersion: &c.Pods[0].ResourceVersion}
		assert.Equal(t, []*metav1.Preconditions{want}, t.ourPass(c).preconditions)
	})
	t.Run("W27 who is told to come back in two minutes does", func(t *testing.T) {
		t.Parallel()
		tries := map[string]int{}
		for side, m := range map[string]maker{"theirs": theirs, "ours": ours} {
			synctest.Test(t, func(*testing.T) {
				w := newWorld(false)
				w.refusals["create"] = refusal{kind: "Throttled for two minutes", left: 1000}
				w.addSet("solo", "uid", 1)
				stop := w.start(m, 500) // the controller runs for a minute
				tries[side] = w.calls["create pods"]
				stop()
			})
		}
		assert.Greater(t, tries["theirs"], 10)
		assert.Equal(t, 1, tries["ours"])
	})
	t.Run("W62 nothing that a fake does with what it is given reaches the cache", func(t *testing.T) {
		t.Parallel()
		c := web(2, 1)
		before := c.RS.DeepCopy()
		fake := &controller.FakePodControl{}
		must(fake.CreatePodsWithGenerateName(t.Context(), "a", &c.RS.Spec.Template, c.RS, metav1.NewControllerRef(c.RS, replicaSetKind), "mine-"))
		assert.NotEqual(t, before, c.RS)

		c = web(2, 1)
		newSwitchboard().ourPass(c, func(w *wiring) { w.client = scribbler{w.client} })
		assert.Equal(t, before, c.RS)
	})
}

// scribbler is a client that changes the pods that it is asked to create.
type scribbler struct{ setClient }

func (scribbler) Create(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	pod.GenerateName, pod.Labels["app"], pod.Spec.Containers[0].Name = "mine-", "b", "mine"
	return pod, nil
}

func TestStatusDefects(t *testing.T) {
	t.Parallel()
	failing := func(reason string) scene {
		c := web(1, 2)
		c.RS.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason}}
		return c
	}
	reasonOf := func(o outcome) (reason string) {
		for _, c := range o.statuses[0].Status.Conditions {
			reason = c.Reason
		}
		return reason
	}
	inBubbles(t, "W35 a condition bears the given time", func(t bubble) {
		rs, now, err := web(1, 0).RS, start.Add(-time.Hour), errors.New("quota")
		theirs := upstream.CalculateStatus(rs, nil, nil, err, features(false), now)
		ours := status.Calculate(rs, nil, status.Options{ManageErr: err, Now: now})
		assert.True(t, theirs.Conditions[0].LastTransitionTime.Time.Equal(start))
		assert.True(t, ours.Conditions[0].LastTransitionTime.Time.Equal(now))
	})
	inBubbles(t, "W45 a failure is told by its new reason", func(t bubble) {
		c := failing("FailedCreate")
		c.Deletes["web-0"], c.Deletes["web-1"] = "Forbidden", "Forbidden"
		assert.Equal(t, "FailedCreate", reasonOf(t.theirPass(c)))
		assert.Equal(t, "FailedDelete", reasonOf(t.ourPass(c)))
	})
	inBubbles(t, "W45 a failure stays while nothing is tried", func(t bubble) {
		c := failing("FailedDelete")
		c.Waiting = true
		assert.Empty(t, reasonOf(t.theirPass(c)))
		assert.Equal(t, "FailedDelete", reasonOf(t.ourPass(c)))
	})
	t.Run("W46 a write ends with the context of its pass", func(t *testing.T) {
		t.Parallel()
		rs := web(1, 0).RS
		theirs, ours := &statusContext{}, &statusContext{}
		_, err := upstream.UpdateStatus(logr.Discard(), theirs, rs.DeepCopy(), appsv1.ReplicaSetStatus{Replicas: 1}, features(false))
		require.NoError(t, err)
		assert.Nil(t, theirs.ctx.Done(), "nothing can end it")

		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, report{RS: rs}.write(ctx, ours))
		cancel()
		assert.Error(t, ours.ctx.Err())
	})
	t.Run("W47 only a Conflict is tried again, and only on the ReplicaSet it was", func(t *testing.T) {
		t.Parallel()
		written := func(first string, fresh types.UID) (theirs, ours []string) {
			rs := web(1, 0).RS
			a := &statusCalls{c: statusWrite{Report: report{RS: rs}, First: first, FreshUID: fresh}}
			b := &statusCalls{c: a.c}
			_, _ = upstream.UpdateStatus(logr.Discard(), a, rs.DeepCopy(), appsv1.ReplicaSetStatus{Replicas: 1}, features(false))
			_ = b.c.Report.write(t.Context(), b)
			return a.calls, b.calls
		}
		theirs, ours := written("Forbidden", "owner")
		assert.Equal(t, []string{"write: Forbidden", "read: ", "write: "}, theirs)
		assert.Equal(t, []string{"write: Forbidden"}, ours)
		theirs, ours = written("Conflict", "another")
		assert.Equal(t, []string{"write: Conflict", "read: ", "write: "}, theirs, "over another's status")
		assert.Equal(t, []string{"write: Conflict", "read: "}, ours)
	})
	inBubbles(t, "W48 an error of the status does not hide that of the pass", func(t bubble) {
		c := web(2, 1)
		c.Creates, c.FailFrom, c.Status, c.Fresh = "quota", 0, "Conflict", "NotFound"
		theirs, ours := t.theirPass(c).err, t.ourPass(c, func(w *wiring) { w.onlyLooks = true }).err
		assert.NotContains(t, theirs.Error(), "exceeded quota")
		assert.Contains(t, ours.Error(), "exceeded quota")
		assert.True(t, apierrors.IsNotFound(theirs))
		assert.Contains(t, ours.Error(), theirs.Error())
	})
}

// statusContext is a client that remembers the context of the last status write.
type statusContext struct {
	appsclient.ReplicaSetInterface
	ctx context.Context
}

func (s *statusContext) Patch(ctx context.Context, _ string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*appsv1.ReplicaSet, error) {
	s.ctx = ctx
	return &appsv1.ReplicaSet{}, nil
}

func (s *statusContext) UpdateStatus(ctx context.Context, rs *appsv1.ReplicaSet, _ metav1.UpdateOptions) (*appsv1.ReplicaSet, error) {
	s.ctx = ctx
	return rs, nil
}
