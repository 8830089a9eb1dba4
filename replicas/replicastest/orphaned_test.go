// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A pod that has changed since the cache saw it may be another's now, so no deletion of a controller may meet it. In
// each case the watch of pods is half a second late, and a plan made from it deletes pods that have just been let go.
// Whether a pod is ready makes no difference.
func TestNoDeletionMeetsAPodThatHasChanged(t *testing.T) {
	t.Parallel()
	const finalizer = "example.com/drain"
	yes := true
	for name, tt := range map[string]struct {
		fault func(t *testing.T, s *stage)
		left  int
	}{
		"kubectl delete --cascade=orphan, and a finalizer keeps the owner": {func(t *testing.T, s *stage) {
			t.Helper()
			require.NoError(t, s.DeleteOwner(t.Context(), namespace, "web", metav1.DeletePropagationOrphan))
		}, 3},
		"a user takes the pods over, and the owner is scaled to 0": {func(t *testing.T, s *stage) {
			t.Helper()
			for _, p := range s.Children(namespace) {
				s.editPod(t, p.Name, func(p *corev1.Pod) {
					p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "mine", UID: "mine", Controller: &yes}}
				})
			}
			s.scale(t, 0)
		}, 3},
		"a pod is labelled to be debugged, and the owner is scaled to 0": {func(t *testing.T, s *stage) {
			t.Helper()
			s.editPod(t, s.Children(namespace)[0].Name, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} })
			s.scale(t, 0)
		}, 1},
	} {
		for state, timing := range map[string]replicastest.Timing{
			"ready":    {},
			"starting": {StartUp: 24 * time.Hour},
			"unplaced": {Schedule: -1},
		} {
			t.Run(name+", while the pods are "+state, func(t *testing.T) {
				t.Parallel()
				kind := controller.ReplicaSets()
				spec := kind.Spec
				kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
					is, err := spec(rs)
					is.Finalizer = finalizer
					return is, err
				}
				cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 4, Timing: timing})
				require.NoError(t, err)
				s := &stage{PodCluster: cluster, world: &replicastest.World{Clock: cluster.Clock}}
				s.restart(t)
				rs := replicaSet("web", 3)
				rs.Finalizers = []string{finalizer}
				_, err = s.CreateOwner(t.Context(), rs)
				require.NoError(t, err)
				s.world.Run(time.Minute)
				require.Len(t, s.Children(namespace), 3)
				s.controller.View.ChildWatch.Lag = 500 * time.Millisecond
				tt.fault(t, s)
				s.world.Run(time.Hour)
				assert.Len(t, s.Children(namespace), tt.left)
			})
		}
	}
}
