// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

// The program keeps its promises through all faults.
func TestTheProgramInStories(t *testing.T) {
	t.Parallel()
	wants := func(n int32) func(*WorkerPool) { return func(p *WorkerPool) { p.Spec.Replicas = n } }
	require.NoError(t, replicastest.Play(1, 60, func(s *replicastest.Story[*WorkerPool, *Worker]) {
		s.Kind = pools()
		s.Owner = &WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue"}, Spec: WorkerPoolSpec{Replicas: 3}}
		s.Ready = func(w *Worker) { w.Status.Ready = true }
		s.Changes = []func(*WorkerPool){wants(2), wants(3), wants(6)}
		s.Always = map[string]func() error{"never more than six": s.AtMost(6), "never fewer than two": s.AtLeast(2)}
		s.AtEnd = map[string]func() error{
			"as many as wanted": s.AsWanted,
			"all are ready": func() error {
				for _, p := range s.Cluster.Owners("default") {
					if p.Status.ReadyReplicas != p.Spec.Replicas {
						return fmt.Errorf("%d of %d are ready", p.Status.ReadyReplicas, p.Spec.Replicas)
					}
				}
				return nil
			},
		}
	}))
}

// The Kind of ConfigMaps in the examples keeps its promises.
func TestConfigMapsInStories(t *testing.T) {
	t.Parallel()
	wants := func(n int32) func(*appsv1.Deployment) { return func(d *appsv1.Deployment) { d.Spec.Replicas = &n } }
	require.NoError(t, replicastest.Play(1, 60, func(s *replicastest.Story[*appsv1.Deployment, *corev1.ConfigMap]) {
		s.Kind = configMaps()
		s.Owner = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		s.Owner.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		wants(3)(s.Owner)
		s.Changes = []func(*appsv1.Deployment){wants(1), wants(3), wants(6)}
		s.Always = map[string]func() error{"never more than six": s.AtMost(6), "never fewer than one": s.AtLeast(1)}
		s.AtEnd = map[string]func() error{"as many as wanted": s.AsWanted}
	}))
}
