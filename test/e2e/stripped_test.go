// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dropAnnotations is a transform that removes the annotations of cached objects. Programs use such transforms to
// save memory.
func dropAnnotations(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetAnnotations(nil)
	}
	return obj, nil
}

// If the caches drop annotations, the status writes of the controllers do not erase the annotations on the server.
// An update of a ReplicaSet's status also replaces its annotations. If the update contains no annotations, a
// ReplicaSet of a Deployment loses its revision, for example.
func TestCachesThatDropAnnotations(t *testing.T) {
	t.Parallel()
	revision := map[string]string{"deployment.kubernetes.io/revision": "3"}
	create := func(w *world) *appsv1.ReplicaSet {
		rs := replicaSet("web", 0) // no replicas, so that the first write is a status write
		rs.Annotations = revision
		return w.create(rs)
	}
	annotations := func(w *world) map[string]string {
		rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Get(w.t.Context(), "web", metav1.GetOptions{})
		require.NoError(w.t, err)
		return rs.Annotations
	}
	reports := func(w *world, rs *appsv1.ReplicaSet, n int32) {
		w.eventually(func(c *assert.CollectT) {
			assert.Positive(c, w.report(rs).generation, "it is seen")
			assert.Equal(c, n, w.report(rs).Replicas)
			assert.Equal(c, w.report(rs).generation, w.report(rs).ObservedGeneration)
		}, "the status")
	}
	t.Run("the server erases what a status write lacks", func(t *testing.T) {
		t.Parallel()
		w := newWorldWith(t, settings{idle: true})
		rs := create(w)
		rs.Annotations = nil
		_, err := w.client.AppsV1().ReplicaSets(w.namespace).UpdateStatus(t.Context(), rs, metav1.UpdateOptions{})
		require.NoError(t, err)
		assert.Empty(t, annotations(w), "so the tests below are worth something")
	})
	t.Run("no status write erases them, and none needs a read", func(t *testing.T) {
		t.Parallel()
		w := newWorldWith(t, settings{transform: dropAnnotations})
		rs := create(w)
		reports(w, rs, 0)
		require.NotEmpty(t, w.wire.of(http.MethodPatch, "replicasets/status"))
		assert.Empty(t, w.wire.to(http.MethodGet, "replicasets", "web"))
		assert.Equal(t, revision, annotations(w))
		for _, n := range []int32{5, 1} {
			w.scale(rs, n)
			w.has(rs, int(n))
			reports(w, rs, n)
			assert.Equal(t, revision, annotations(w))
		}
	})
}
