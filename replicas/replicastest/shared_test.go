// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A webhook gives each worker a label and an annotation of its own. If the answer were decoded into the object of
// Spec.New, the next worker would be sent with the labels of the one before, and the owner in the cache would get
// them too.
func TestAKindMayShareItsMaps(t *testing.T) {
	t.Parallel()
	web := map[string]string{"app": "web"}
	for name, childOf := range map[string]func(*pool) *worker{
		"of all children": func(*pool) *worker {
			return &worker{ObjectMeta: metav1.ObjectMeta{Labels: web, Annotations: web}}
		},
		"of the owner": func(p *pool) *worker {
			return &worker{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := pools()
			spec := kind.Spec
			kind.Spec = func(p *pool) (replicas.Spec[*worker], error) {
				s, err := spec(p)
				s.New = func(string) (*worker, error) { return childOf(p), nil }
				return s, err
			}
			cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1})
			require.NoError(t, err)
			cluster.Mutate = func(w *worker) { w.Labels[w.Name], w.Annotations[w.Name] = "hooked", "hooked" }
			c := cluster.NewController()
			world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
			p := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: web, Annotations: web}}
			p.Spec.Replicas = 3
			_, err = cluster.CreateOwner(t.Context(), p)
			require.NoError(t, err)
			world.Run(time.Minute)

			require.Len(t, cluster.Children(namespace), 3)
			for _, w := range cluster.Children(namespace) {
				want := map[string]string{"app": "web", w.Name: "hooked"}
				assert.Equal(t, want, w.Labels)
				assert.Equal(t, want, w.Annotations)
			}
			require.NoError(t, c.View.Intact())
			assert.Equal(t, map[string]string{"app": "web"}, web)
		})
	}
}

func TestTheClientLeavesTheChildAlone(t *testing.T) {
	t.Parallel()
	cluster, err := replicastest.NewCluster(pools(), replicastest.Options{Seed: 1})
	require.NoError(t, err)
	cluster.Mutate = func(w *worker) { w.Labels["hooked"] = "yes" }
	sent := &worker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", Labels: map[string]string{"app": "web"}}}
	was := sent.DeepCopy()
	var client controller.Client[*pool, *worker] = cluster.NewClient()
	created, err := client.Create(t.Context(), sent)
	require.NoError(t, err)
	assert.Equal(t, "yes", created.Labels["hooked"])
	assert.Equal(t, was, sent)
}
