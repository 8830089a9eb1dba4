// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package servers_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A held world is a world that records the gates of the last pass. A gate is a reason why the pass held something
// back.
type held struct {
	*world
	spec func(*replicas.SpecOfPods) // changes the spec of web; may be nil

	is    sync.Mutex
	gates []controller.Gate // of the last pass
}

// hold makes a world. While changes is true, the function h.spec changes the spec of web.
func hold(t *testing.T) (h *held, changes *atomic.Bool) {
	t.Helper()
	h, changes = &held{}, &atomic.Bool{}
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		if h.spec != nil && changes.Load() {
			h.spec(&s)
		}
		return s, err
	}
	kind.Observe = func(_ context.Context, pass controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) {
		h.is.Lock()
		defer h.is.Unlock()
		h.gates = slices.Clone(pass.Gates)
	}
	h.world = newWorld(t, runtimeOf(kind))
	return h, changes
}

// runs starts the controller, creates web with n replicas, and waits until web has n pods.
func (h *held) runs(n int32) {
	h.t.Helper()
	h.start()
	h.create(n)
	h.has(n)
}

// by(reason, true) waits until the last pass has a gate with this reason. by(reason, false) waits until the last pass
// has no gate with this reason.
func (h *held) by(reason controller.GateReason, want bool) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		h.is.Lock()
		defer h.is.Unlock()
		return slices.ContainsFunc(h.gates, func(g controller.Gate) bool { return g.Reason == reason }) == want
	}, patience, glance, "%v: %v", reason, want)
}

// Each subtest holds passes back for one or two of the reasons in the section "Nothing happens" of
// docs/operating.md. The passes must report these reasons. Most subtests then remove the cause, and the
// ReplicaSet web must get the wanted number of pods.
func TestWhatHoldsBackOnAServer(t *testing.T) {
	t.Parallel()
	t.Run("QuotaFull", func(t *testing.T) {
		t.Parallel()
		h, _ := hold(t)
		h.quota("1")
		h.start()
		h.create(3)
		h.by(controller.QuotaFull, true)
		h.quota("9")
		h.has(3)
		h.by(controller.QuotaFull, false)
	})
	t.Run("OwnerDeleted", func(t *testing.T) {
		t.Parallel()
		h, _ := hold(t)
		h.runs(1)
		h.patch(`{"metadata":{"finalizers":["example.com/wait"]}}`)
		require.NoError(t, h.client.AppsV1().ReplicaSets(h.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
		h.by(controller.OwnerDeleted, true)
	})
	t.Run("NamespaceGoing", func(t *testing.T) {
		t.Parallel()
		h, _ := hold(t)
		h.runs(1)
		require.NoError(t, h.client.CoreV1().Namespaces().Delete(t.Context(), h.namespace, metav1.DeleteOptions{}))
		h.scale(2)
		h.by(controller.NamespaceGoing, true)
	})
	t.Run("SpecRefused", func(t *testing.T) {
		t.Parallel()
		h, changes := hold(t)
		h.spec = func(s *replicas.SpecOfPods) { s.Replicas = -1 }
		h.runs(1)
		changes.Store(true)
		h.scale(2)
		h.by(controller.SpecRefused, true)
	})
	for reason, spec := range map[controller.GateReason]func(*replicas.SpecOfPods){
		controller.Paused:       func(s *replicas.SpecOfPods) { s.Paused = true },
		controller.MustStay:     func(s *replicas.SpecOfPods) { s.Rules.MustStay = func(*corev1.Pod) bool { return true } },
		controller.MaxDeletions: func(s *replicas.SpecOfPods) { s.MaxDeletions = new(int) },
	} {
		t.Run(reason.String(), func(t *testing.T) {
			t.Parallel()
			h, changes := hold(t)
			h.spec = spec
			h.runs(4)
			changes.Store(true)
			h.scale(1)
			h.by(reason, true)
			changes.Store(false)
			h.patch(`{"metadata":{"annotations":{"now":"go"}}}`)
			h.has(1)
			h.by(reason, false)
		})
	}
	t.Run("NameTaken", func(t *testing.T) {
		t.Parallel()
		h, changes := hold(t)
		changes.Store(true)
		h.spec = func(s *replicas.SpecOfPods) { s.Slots = replicas.Ordinals("web") }
		stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Spec: podSpec}
		_, err := h.client.CoreV1().Pods(h.namespace).Create(t.Context(), stranger, metav1.CreateOptions{})
		require.NoError(t, err)
		h.start()
		h.create(3)
		h.by(controller.NameTaken, true)
		require.NoError(t, h.client.CoreV1().Pods(h.namespace).Delete(t.Context(), "web-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		h.has(3)
	})
	t.Run("AdoptionUndecided", func(t *testing.T) {
		t.Parallel()
		h, _ := hold(t)
		orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: app}, Spec: podSpec}
		_, err := h.client.CoreV1().Pods(h.namespace).Create(t.Context(), orphan, metav1.CreateOptions{})
		require.NoError(t, err)
		var denies atomic.Bool
		denies.Store(true)
		h.instead = func(request *http.Request) int {
			if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/pods/orphan") && denies.Load() {
				return http.StatusForbidden
			}
			return 0
		}
		h.start()
		h.create(1)
		h.by(controller.AdoptionUndecided, true)
		denies.Store(false)
		h.has(1)
	})
	for status, want := range map[int]struct{ creates, deletes controller.GateReason }{
		http.StatusInternalServerError: {controller.CreationFailed, controller.DeletionFailed},
		http.StatusTooManyRequests:     {controller.RetryAfter, controller.DeletionRetryAfter},
	} {
		t.Run(want.creates.String()+" and "+want.deletes.String(), func(t *testing.T) {
			t.Parallel()
			h, _ := hold(t)
			var fails atomic.Bool
			h.instead = func(request *http.Request) int {
				isWrite := request.Method == http.MethodPost || request.Method == http.MethodDelete
				if isWrite && strings.Contains(request.URL.Path, "/pods") && fails.Load() {
					return status
				}
				return 0
			}
			h.runs(2)
			fails.Store(true)
			h.scale(4)
			h.by(want.creates, true)
			fails.Store(false)
			h.has(4)
			h.by(want.creates, false)
			fails.Store(true)
			h.scale(1)
			h.by(want.deletes, true)
			fails.Store(false)
			h.has(1)
			h.by(want.deletes, false)
		})
	}
	t.Run("StatusForbidden", func(t *testing.T) {
		t.Parallel()
		h, _ := hold(t)
		h.instead = func(request *http.Request) int {
			if strings.HasSuffix(request.URL.Path, "/replicasets/web/status") {
				return http.StatusForbidden
			}
			return 0
		}
		h.start()
		h.create(2)
		h.by(controller.StatusForbidden, true)
		assert.Eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.active) == 2 }, patience, glance)
	})
	t.Run("OwnerUnread", func(t *testing.T) {
		t.Parallel()
		h, _ := hold(t)
		var denies atomic.Bool
		h.instead = func(request *http.Request) int {
			if request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/replicasets/web") && denies.Load() {
				return http.StatusForbidden
			}
			return 0
		}
		h.runs(3)
		denies.Store(true)
		h.scale(1)
		h.by(controller.OwnerUnread, true)
		denies.Store(false)
		h.has(1)
		h.by(controller.OwnerUnread, false)
	})
}

// quota creates or replaces the quota of the namespace. It also writes the status of the quota, because no quota
// controller runs in this test.
func (h *held) quota(pods string) {
	h.t.Helper()
	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
	quotas := h.client.CoreV1().ResourceQuotas(h.namespace)
	_ = quotas.Delete(h.t.Context(), "q", metav1.DeleteOptions{})
	q, err := quotas.Create(h.t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	require.NoError(h.t, err)
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}
	_, err = quotas.UpdateStatus(h.t.Context(), q, metav1.UpdateOptions{})
	require.NoError(h.t, err)
}
