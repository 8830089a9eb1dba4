// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// clusterPools returns a Kind of cluster-scoped pools. The workers are created in the given namespace. If the
// namespace is empty, the workers are also cluster-scoped.
func clusterPools(childNamespace string) controller.Kind[*pool, *worker] {
	kind := pools()
	kind.ClusterScoped = true
	spec := kind.Spec
	kind.Spec = func(p *pool) (replicas.Spec[*worker], error) {
		s, err := spec(p)
		s.New = func(string) (*worker, error) {
			return &worker{ObjectMeta: metav1.ObjectMeta{Namespace: childNamespace, Labels: maps.Clone(map[string]string{"app": "web"})}}, nil
		}
		return s, err
	}
	return kind
}

func TestOwnersInNoNamespace(t *testing.T) {
	t.Parallel()
	for where, in := range map[string]string{"a namespace": namespace, "no namespace": ""} {
		t.Run("with children in "+where, func(t *testing.T) {
			t.Parallel()
			cluster, err := replicastest.NewCluster(clusterPools(in), replicastest.Options{Seed: 1})
			require.NoError(t, err)
			cluster.Ready = func(w *worker) { w.Status.Ready = true }
			c := cluster.NewController()
			world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
			p := &pool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			p.Spec.Replicas = 3
			_, err = cluster.CreateOwner(t.Context(), p)
			require.NoError(t, err)
			_, err = cluster.CreateChild(t.Context(), in, &worker{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: map[string]string{"app": "web"}}})
			require.NoError(t, err)
			world.Run(time.Hour)
			children := cluster.Children(in)
			require.Len(t, children, 3)
			p = cluster.Owners("")[0]
			assert.Equal(t, int32(3), p.Status.Ready)
			for _, child := range children {
				assert.True(t, metav1.IsControlledBy(child, p), child.Name)
			}
			c.View.ChildWatch.Hang()
			_, err = cluster.EditOwner(t.Context(), "", "web", func(p *pool) { p.Spec.Replicas = 5 })
			require.NoError(t, err)
			world.Run(time.Hour)
			assert.Len(t, cluster.Children(in), 5, "listed live")
			c.View.ChildWatch.Resume()
			require.NoError(t, cluster.DeleteOwner(t.Context(), "", "web", ""))
			world.Run(time.Hour)
			assert.Empty(t, cluster.Children(in), "the garbage collector takes what was the pool's")
		})
	}
}
