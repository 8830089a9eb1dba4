// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionreviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestConflicts(t *testing.T) {
	t.Parallel()

	t.Run("W25 pods that change every second and are seen two seconds late are deleted at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 50))
		pods := w.has(rs, 50)
		w.runAll(pods)
		w.settle(rs)
		changing, stop := context.WithCancel(t.Context())
		var changers sync.WaitGroup
		for i, pod := range pods {
			changers.Go(func() { w.keepChanging(changing, pod.Name, time.Duration(i)*time.Second/50) })
		}
		w.wire.lag("pods", 2*time.Second)
		time.Sleep(2 * time.Second) // each pod has now changed since the controllers last saw it
		start := time.Now()
		w.scale(rs, 10)
		w.has(rs, 10)
		took := time.Since(start)
		stop()
		changers.Wait()
		deletes := len(w.wire.of(http.MethodDelete, "pods"))
		t.Logf("%d deletes in %v", deletes, took)
		assert.LessOrEqual(t, deletes, 2*40)
	})

	t.Run("W25 a webhook that answers Conflict is told, and not asked again and again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 6))
		w.runAll(w.has(rs, 6))
		lift := w.refuseDeletes(http.StatusConflict, metav1.StatusReasonConflict)
		w.scale(rs, 1)
		w.eventually(func(c *assert.CollectT) {
			events := w.events(rs, "DeletionsHeld")
			if assert.Len(c, events, 1) {
				assert.Contains(c, events[0].Message, "not now")
			}
			failure := condition(w.report(rs))
			if assert.NotNil(c, failure) {
				assert.Equal(c, "FailedDelete", failure.Reason)
			}
		}, "the set must tell why its pods stay")
		assert.Len(t, w.has(rs, 6), 6)
		assert.LessOrEqual(t, len(w.wire.of(http.MethodDelete, "pods")), 5*12)
		lift()
		w.has(rs, 1)
		w.eventually(func(c *assert.CollectT) {
			assert.Nil(c, condition(w.report(rs)))
		}, "the condition must go")
	})
}

// keepChanging changes a pod once a second until ctx ends.
func (w *world) keepChanging(ctx context.Context, name string, first time.Duration) {
	for wait := first; ; wait = time.Second {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		_, _ = w.client.CoreV1().Pods(w.namespace).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"at":"`+time.Now().String()+`"}}}`), metav1.PatchOptions{}) // the pod may be gone
	}
}

// refuseDeletes starts a webhook that answers every delete of a pod with this error. The returned function removes
// the webhook.
func (w *world) refuseDeletes(code int32, reason metav1.StatusReason) (lift func()) {
	w.t.Helper()
	probe := w.createPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Labels: labels("probe")},
		Spec:       template(nil).Spec,
	})
	return w.forbidByWebhook(deleting(probe.Name), code, reason, func(*admissionreviewv1.AdmissionRequest) bool { return true })
}

// forbidByWebhook starts a webhook that reviews requests for pods. The requests have the same operation as the
// deed. If the function refused returns true for a request, the webhook refuses the request with the given code
// and reason. The returned function removes the webhook.
func (w *world) forbidByWebhook(d deed, code int32, reason metav1.StatusReason, refused func(*admissionreviewv1.AdmissionRequest) bool) (lift func()) {
	w.t.Helper()
	hook := w.webhook(d.operation, func(request *admissionreviewv1.AdmissionRequest) *admissionreviewv1.AdmissionResponse {
		if !refused(request) {
			return &admissionreviewv1.AdmissionResponse{Allowed: true}
		}
		return &admissionreviewv1.AdmissionResponse{Result: &metav1.Status{Code: code, Reason: reason, Message: "not now"}}
	})
	webhooks := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(w.t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: hook.name, ClientConfig: hook.client, NamespaceSelector: hook.namespaces, Rules: hook.rules,
			SideEffects: hook.sideEffects, AdmissionReviewVersions: hook.versions,
		}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	remove := func(ctx context.Context) error { return webhooks.Delete(ctx, w.namespace, metav1.DeleteOptions{}) }
	w.t.Cleanup(func() { _ = remove(context.WithoutCancel(w.t.Context())) })
	w.denies(d, true)
	return func() {
		require.NoError(w.t, remove(w.t.Context()))
		w.denies(d, false)
	}
}

// relabel starts a webhook that sets the label app of every new pod to the value. The returned function removes
// the webhook.
func (w *world) relabel(value string) (lift func()) {
	w.t.Helper()
	hook := w.webhook(admissionv1.Create, func(*admissionreviewv1.AdmissionRequest) *admissionreviewv1.AdmissionResponse {
		patchType := admissionreviewv1.PatchTypeJSONPatch
		return &admissionreviewv1.AdmissionResponse{
			Allowed: true, PatchType: &patchType,
			Patch: fmt.Appendf(nil, `[{"op":"replace","path":"/metadata/labels/app","value":%q}]`, value),
		}
	})
	webhooks := w.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := webhooks.Create(w.t.Context(), &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: hook.name, ClientConfig: hook.client, NamespaceSelector: hook.namespaces, Rules: hook.rules,
			SideEffects: hook.sideEffects, AdmissionReviewVersions: hook.versions,
		}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	remove := func(ctx context.Context) error { return webhooks.Delete(ctx, w.namespace, metav1.DeleteOptions{}) }
	w.t.Cleanup(func() { _ = remove(context.WithoutCancel(w.t.Context())) })
	w.labelsPods(value)
	return func() {
		require.NoError(w.t, remove(w.t.Context()))
		w.labelsPods("probe")
	}
}

// labelsPods creates pods with app=probe in dry runs until the server returns a pod with app=VALUE.
func (w *world) labelsPods(value string) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: labels("probe")}, Spec: template(nil).Spec}
		probe, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), probe, metav1.CreateOptions{DryRun: dry})
		require.NoError(c, err)
		assert.Equal(c, value, probe.Labels["app"])
	}, "the webhook")
}

// A hook contains the fields that validating and mutating webhooks have in common.
type hook struct {
	name        string
	client      admissionv1.WebhookClientConfig
	namespaces  *metav1.LabelSelector
	rules       []admissionv1.RuleWithOperations
	sideEffects *admissionv1.SideEffectClass
	versions    []string
}

// webhook starts a server that reviews an operation on the pods of the namespace.
func (w *world) webhook(operation admissionv1.OperationType, review func(*admissionreviewv1.AdmissionRequest) *admissionreviewv1.AdmissionResponse) hook {
	w.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var asked admissionreviewv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Request == nil {
			http.Error(rw, "no review", http.StatusBadRequest)
			return
		}
		asked.Response = review(asked.Request)
		asked.Response.UID = asked.Request.UID
		asked.Request = nil
		_ = json.NewEncoder(rw).Encode(asked)
	}))
	w.t.Cleanup(server.Close)
	return hook{
		name: "pods.example.com",
		client: admissionv1.WebhookClientConfig{
			URL:      new(server.URL + "/"),
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}},
		rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{operation},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}},
		sideEffects: new(admissionv1.SideEffectClassNone),
		versions:    []string{"v1"},
	}
}
