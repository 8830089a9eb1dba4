// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// finalizer keeps an object until the test removes the finalizer.
const finalizer = "e2e.replicakit.dev/hold"

const noFinalizers = `{"metadata":{"finalizers":null}}`

func TestPods(t *testing.T) {
	t.Parallel()

	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		t.Run("T10 Y6 a pod that is "+string(phase)+" is replaced and left as it is", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			rs := w.create(replicaSet("web", 2))
			pods := w.has(rs, 2)
			w.runAll(pods)
			w.phase(pods[0].Name, phase)
			w.eventually(func(c *assert.CollectT) {
				assert.Equal(c, 3, w.history.everOwned(rs))
			}, "a substitute")
			w.has(rs, 2)
			ended := w.pod(pods[0].Name)
			assert.Equal(t, rs.UID, ownerOf(ended))
			assert.Nil(t, ended.DeletionTimestamp)
			w.scale(rs, 0)
			w.has(rs, 0)
			w.settle(rs)
			assert.Equal(t, ended.ResourceVersion, w.pod(ended.Name).ResourceVersion)
		})
	}

	t.Run("E20 V12 a pod that somebody else deletes is replaced", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 3))
		for round := range 3 {
			w.deletePod(w.has(rs, 3)[round].Name)
			w.eventually(func(c *assert.CollectT) {
				assert.Equal(c, 3+round+1, w.history.everOwned(rs))
			}, "a substitute")
		}
		w.has(rs, 3)
		assert.Empty(t, w.wire.of(http.MethodDelete, "pods"))
	})

	t.Run("T8 T10 V7 a pod that a finalizer keeps is terminating, and replaced at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := replicaSet("web", 2)
		rs.Spec.Template.Finalizers = []string{finalizer}
		rs = w.create(rs)
		pods := w.has(rs, 2)
		w.deletePod(pods[0].Name)
		w.hasTerminating(rs, 1)
		substitutes := w.has(rs, 2)
		assert.NotContains(t, uids(substitutes), pods[0].UID)
		assert.Equal(t, rs.UID, ownerOf(w.pod(pods[0].Name)), "it is not released")
		w.patchPod(pods[0].Name, noFinalizers)
		w.hasTerminating(rs, 0)
		assert.Equal(t, uids(substitutes), uids(w.has(rs, 2)), "its end changes nothing")
	})

	t.Run("D6 E20 V7 the next step does not wait for pods to terminate", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 5))
		pods := w.has(rs, 5)
		w.runAll(pods) // if a pod is on a node, only its kubelet completes a deletion
		w.settle(rs)
		w.scale(rs, 2)
		w.has(rs, 2)
		w.hasTerminating(rs, 3)
		w.scale(rs, 4)
		w.has(rs, 4)
		w.hasTerminating(rs, 3)
		w.scale(rs, 1)
		w.has(rs, 1)
		terminating := w.hasTerminating(rs, 4) // the two new pods were on no node, so they are gone at once
		w.reap(names(terminating)...)
		w.hasTerminating(rs, 0)
		assert.Equal(t, 7, w.history.everOwned(rs))
	})

	t.Run("E20 V12 a pod that is evicted with grace and then reaped is replaced once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 2))
		pods := w.has(rs, 2)
		w.runAll(pods)
		w.deletePod(pods[0].Name)
		w.hasTerminating(rs, 1)
		w.has(rs, 2)
		w.reap(pods[0].Name)
		w.hasTerminating(rs, 0)
		w.settle(rs)
		assert.Equal(t, 3, w.history.everOwned(rs))
	})
}

// hasTerminating waits until n of the owner's pods are being deleted, and until the owner's status reports this
// number.
func (w *world) hasTerminating(rs *appsv1.ReplicaSet, n int) []*corev1.Pod {
	w.t.Helper()
	terminating := func() []*corev1.Pod {
		return w.history.find(func(p *corev1.Pod) bool { return ownerOf(p) == rs.UID && p.DeletionTimestamp != nil })
	}
	w.eventually(func(c *assert.CollectT) {
		assert.Len(c, terminating(), n)
		require.NotNil(c, w.report(rs).TerminatingReplicas)
		assert.EqualValues(c, n, *w.report(rs).TerminatingReplicas, "status.terminatingReplicas")
	}, "%d pods must be terminating", n)
	return terminating()
}
