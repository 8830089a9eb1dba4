// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionreviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

func TestPolicy(t *testing.T) {
	t.Parallel()

	t.Run("C13 C15 W42 one orphan that may not be adopted is set aside, and tried again", func(t *testing.T) {
		t.Parallel()
		clock := newJumpingClock(t)
		w := newWorldWith(t, settings{options: clientgo.Options{Clock: clock}})
		w.createPod(orphan("stubborn"))
		w.createPod(orphan("willing"))
		lift := w.forbid(adopting("stubborn"), metav1.StatusReasonInvalid)
		w.cachesAreFresh()
		rs := w.create(replicaSet("web", 4))
		w.allow(rs, 1)
		pods := w.has(rs, 4)
		assert.Contains(t, names(pods), "willing")
		assert.NotContains(t, names(pods), "stubborn")
		w.scale(rs, 5)
		w.runAll(w.has(rs, 5))
		w.scale(rs, 2)
		w.has(rs, 2)
		assert.Nil(t, condition(w.report(rs)))

		w.settle(rs)
		lift()
		tries := len(w.wire.to(http.MethodPatch, "pods", "stubborn"))
		clock.jump(time.Minute)
		w.eventually(func(c *assert.CollectT) {
			assert.Greater(c, len(w.wire.to(http.MethodPatch, "pods", "stubborn")), tries)
			assert.NotContains(c, names(w.history.find(active)), "stubborn", "adopted, and in surplus")
		}, "the pod that was set aside must be tried again")
		assert.Len(t, w.has(rs, 2), 2)
	})

	t.Run("C15 C26 W42 an adoption that is forbidden holds one place, and everything else goes on", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createPod(orphan("one"))
		w.createPod(orphan("two"))
		lift := w.forbid(adopting("one"), metav1.StatusReasonForbidden)
		w.cachesAreFresh()
		rs := w.create(replicaSet("web", 3))
		w.eventually(func(c *assert.CollectT) {
			assert.GreaterOrEqual(c, len(w.wire.to(http.MethodPatch, "pods", "one")), 3, "tried again")
			assert.Len(c, w.active(rs), 2)
			assert.EqualValues(c, 2, w.report(rs).Replicas)
			assert.Len(c, w.events(rs, "FailedAdopt"), 1, "told once")
		}, "one adopted, one created, one place held")
		assert.Len(t, w.wire.of(http.MethodPost, "pods"), 1)
		assert.Nil(t, condition(w.report(rs)))
		w.scale(rs, 2)
		w.settle(rs)
		assert.Empty(t, w.wire.of(http.MethodDelete, "pods"), "none because of the one that is not ours")

		w.scale(rs, 4)
		w.has(rs, 3)
		lift()
		pods := w.has(rs, 4)
		assert.Subset(t, names(pods), []string{"one", "two"})
		assert.Equal(t, 4, w.history.everOwned(rs))
	})

	for name, forbid := range map[string]func(*world) (lift func()){
		"403": func(w *world) func() { return w.forbid(adopting("one"), metav1.StatusReasonForbidden) },
		"400": func(w *world) func() {
			return w.forbidByWebhook(adopting("one"), http.StatusBadRequest, metav1.StatusReasonBadRequest, isAdoption("one"))
		},
	} {
		t.Run("C15 C26 W42 an orphan that may not be adopted for a "+name+" holds one place, for five minutes", func(t *testing.T) {
			t.Parallel()
			clock := newJumpingClock(t)
			w := newWorldWith(t, settings{options: clientgo.Options{Clock: clock}})
			w.createPod(orphan("one"))
			w.createPod(orphan("two"))
			lift := forbid(w)
			w.cachesAreFresh()
			rs := w.create(replicaSet("web", 4))
			pods := w.has(rs, 3)
			assert.Contains(t, names(pods), "two")
			w.settle(rs)
			assert.Len(t, w.wire.of(http.MethodPost, "pods"), 2)
			assert.Empty(t, w.wire.of(http.MethodDelete, "pods"))
			assert.Nil(t, condition(w.report(rs)))
			w.scale(rs, 2)
			w.has(rs, 2)
			w.scale(rs, 5)
			w.has(rs, 4)

			w.eventually(func(c *assert.CollectT) {
				clock.jump(time.Minute)
				w.touch(rs)
				assert.Len(c, w.active(rs), 5)
			}, "a child in its stead, as the patch is accepted for others")
			assert.Empty(t, w.pod("one").OwnerReferences)
			w.allow(rs, 1)
			lift()
			w.eventually(func(c *assert.CollectT) {
				clock.jump(time.Minute)
				w.touch(rs)
				orphans := w.history.find(func(pod *corev1.Pod) bool { return ownerOf(pod) == "" })
				assert.NotContains(c, names(orphans), "one")
			}, "the pod that was given up must be tried again")
			w.has(rs, 5)
		})
	}

	t.Run("C26 W42 a pod that may not be released is no longer counted, and stops nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 3))
		leaver := w.has(rs, 3)[0].Name
		w.settle(rs)
		w.allow(rs, 1)
		lift := w.forbid(releasing(leaver), metav1.StatusReasonForbidden)
		w.patchPod(leaver, `{"metadata":{"labels":{"app":"debug"}}}`)
		w.eventually(func(c *assert.CollectT) {
			assert.Len(c, w.active(rs), 4, "the one that it may not release among them")
			assert.EqualValues(c, 3, w.report(rs).Replicas)
		}, "another pod in its stead")
		w.scale(rs, 1)
		w.eventually(func(c *assert.CollectT) {
			assert.Len(c, w.active(rs), 2)
			assert.EqualValues(c, 1, w.report(rs).Replicas)
		}, "scaling must go on")
		assert.Contains(t, names(w.active(rs)), leaver)
		lift()
		w.touch(rs)
		w.podIs(leaver, "released", func(pod *corev1.Pod) bool { return ownerOf(pod) == "" })
	})

	t.Run("D7 D8 D9 P15 T11 T12 T14 a pod that may not be deleted is a condition and hinders no other", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 4))
		kept := w.has(rs, 4)[2]
		lift := w.forbid(deleting(kept.Name), metav1.StatusReasonForbidden)
		w.scale(rs, 0)
		w.eventually(func(c *assert.CollectT) {
			assert.Equal(c, []string{kept.Name}, names(w.active(rs)))
			failure := condition(w.report(rs))
			require.NotNil(c, failure)
			assert.Equal(c, "FailedDelete", failure.Reason)
			assert.Contains(c, failure.Message, "not that pod")
			require.NotEmpty(c, w.events(rs, "FailedDelete"))
			event := w.events(rs, "FailedDelete")[0]
			assert.Equal(c, corev1.EventTypeWarning, event.Type)
			assert.Contains(c, event.Message, "Error deleting: ")
		}, "all but one must go")
		lift()
		w.has(rs, 0)
		w.eventually(func(c *assert.CollectT) {
			assert.Nil(c, condition(w.report(rs)))
		}, "the condition must go")
	})
}

// A deed is an operation that a policy can forbid.
type deed struct {
	operation admissionv1.OperationType
	allowed   string                                             // the rule of the policy, which is true for allowed requests
	try       func(ctx context.Context, w *world) (denied error) // sends the request as a dry run and returns the server's error
}

// adopting is the deed that gives the pod an owner.
func adopting(pod string) deed {
	return deed{
		operation: admissionv1.Update,
		allowed:   "object.metadata.name != '" + pod + "' || !has(object.metadata.ownerReferences)",
		try: func(ctx context.Context, w *world) error {
			patch := []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`)
			_, err := w.client.CoreV1().Pods(w.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dry})
			return err
		},
	}
}

// isAdoption returns a function that reports whether a request gives the pod an owner.
func isAdoption(pod string) func(*admissionreviewv1.AdmissionRequest) bool {
	return func(request *admissionreviewv1.AdmissionRequest) bool {
		var is metav1.PartialObjectMetadata
		err := json.Unmarshal(request.Object.Raw, &is)
		return err == nil && is.Name == pod && len(is.OwnerReferences) > 0
	}
}

// releasing is the deed that removes the owners of the pod.
func releasing(pod string) deed {
	return deed{
		operation: admissionv1.Update,
		allowed:   "object.metadata.name != '" + pod + "' || has(object.metadata.ownerReferences)",
		try: func(ctx context.Context, w *world) error {
			patch := []byte(`{"metadata":{"ownerReferences":null}}`)
			_, err := w.client.CoreV1().Pods(w.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dry})
			return err
		},
	}
}

func deleting(pod string) deed {
	return deed{
		operation: admissionv1.Delete,
		allowed:   "oldObject.metadata.name != '" + pod + "'",
		try: func(ctx context.Context, w *world) error {
			return w.client.CoreV1().Pods(w.namespace).Delete(ctx, pod, metav1.DeleteOptions{DryRun: dry})
		},
	}
}

var dry = []string{metav1.DryRunAll}

// forbid makes the server refuse the deed for the given reason, until the returned function is called.
func (w *world) forbid(d deed, reason metav1.StatusReason) (lift func()) {
	w.t.Helper()
	name := w.namespace
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{d.operation},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: d.allowed, Reason: &reason, Message: "not that pod"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	client := w.client.AdmissionregistrationV1()
	_, err := client.ValidatingAdmissionPolicies().Create(w.t.Context(), policy, metav1.CreateOptions{})
	require.NoError(w.t, err)
	_, err = client.ValidatingAdmissionPolicyBindings().Create(w.t.Context(), binding, metav1.CreateOptions{})
	require.NoError(w.t, err)
	remove := func(ctx context.Context) error {
		return client.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
	}
	w.t.Cleanup(func() { _ = remove(context.WithoutCancel(w.t.Context())) })
	w.denies(d, true)
	return func() {
		require.NoError(w.t, remove(w.t.Context()))
		w.denies(d, false)
	}
}

// If denied is true, denies waits until the server refuses the deed. Otherwise denies waits until the server no
// longer refuses the deed.
func (w *world) denies(d deed, denied bool) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		err := d.try(w.t.Context(), w)
		if apierrors.IsNotFound(err) {
			err = nil // the server allows the deed, and the controller has already deleted the pod
		}
		assert.Equal(c, denied, err != nil, "%v", err)
	}, "the policy")
}

// A jumpingClock runs as fast as the real clock. It is ahead of the real clock by the sum of all jumps.
type jumpingClock struct {
	*clocktesting.FakeClock
	ahead atomic.Int64
}

func newJumpingClock(t *testing.T) *jumpingClock {
	t.Helper()
	c := &jumpingClock{FakeClock: clocktesting.NewFakeClock(time.Now())}
	ticker := time.NewTicker(5 * time.Millisecond)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case now := <-ticker.C:
				c.SetTime(now.Add(time.Duration(c.ahead.Load())))
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() { ticker.Stop(); close(done) })
	return c
}

func (c *jumpingClock) jump(d time.Duration) { c.ahead.Add(int64(d)) }
