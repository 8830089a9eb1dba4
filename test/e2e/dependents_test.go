// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// The children of these owners are Jobs or ReplicationControllers. A server that gets a plain delete call for one of
// them orphans its pods, and no one ever deletes the orphans.
func TestChildrenAreDeletedWithTheirPods(t *testing.T) {
	t.Parallel()
	for kind, test := range map[string]func(w *world) (controllers *clientgo.Controller, children cache.SharedIndexInformer){
		"Job": func(w *world) (*clientgo.Controller, cache.SharedIndexInformer) {
			jobs := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(w.namespace)).Batch().V1().Jobs().Informer()
			return controllerOf(w, batchv1.SchemeGroupVersion.WithKind("Job"), typed.NewClient(w.client.AppsV1().ReplicaSets, w.client.BatchV1().Jobs), jobs,
				func() *batchv1.Job {
					template := template(labels("web"))
					template.Spec.RestartPolicy = corev1.RestartPolicyNever
					return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: labels("web")}, Spec: batchv1.JobSpec{Template: template}}
				})
		},
		"ReplicationController": func(w *world) (*clientgo.Controller, cache.SharedIndexInformer) {
			rcs := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(w.namespace)).Core().V1().ReplicationControllers().Informer()
			return controllerOf(w, corev1.SchemeGroupVersion.WithKind("ReplicationController"), typed.NewClient(w.client.AppsV1().ReplicaSets, w.client.CoreV1().ReplicationControllers), rcs,
				func() *corev1.ReplicationController {
					rc := replicationController("web", 1)
					return &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Labels: labels("web")}, Spec: rc.Spec}
				})
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorldWith(t, settings{idle: true})
			c, children := test(w)
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			running := make(chan error, 1)
			go children.RunWithContext(ctx)
			go func() { running <- c.Run(ctx, clientgo.DefaultWorkers) }()
			t.Cleanup(func() {
				cancel()
				assert.NoError(t, <-running)
			})

			rs := w.create(replicaSet("web", 2))
			w.eventually(func(c *assert.CollectT) { assert.Len(c, children.GetStore().List(), 2) }, "two children")
			var pods []string
			for _, obj := range children.GetStore().List() { // no controller of Jobs runs here
				child, _ := obj.(metav1.Object)
				pod := orphan("pod-of-" + child.GetName())
				pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(child, childKind(obj))}
				pods = append(pods, w.createPod(pod).Name)
			}
			w.collectorIsFresh()
			w.scale(rs, 0)
			w.eventually(func(c *assert.CollectT) {
				assert.Empty(c, children.GetStore().List())
				for _, name := range pods {
					assert.Empty(c, w.history.find(func(p *corev1.Pod) bool { return p.Name == name }), "%s", name)
				}
			}, "no child and no pod may be left")
		})
	}
}

func childKind(child any) schema.GroupVersionKind {
	if _, ok := child.(*batchv1.Job); ok {
		return batchv1.SchemeGroupVersion.WithKind("Job")
	}
	return corev1.SchemeGroupVersion.WithKind("ReplicationController")
}

// controllerOf returns a controller of ReplicaSets whose children are not pods.
func controllerOf[C controller.Object](w *world, kind schema.GroupVersionKind, client controller.Client[*appsv1.ReplicaSet, C],
	children cache.SharedIndexInformer, make func() C,
) (*clientgo.Controller, cache.SharedIndexInformer) {
	w.t.Helper()
	owners := w.seen.Apps().V1().ReplicaSets().Informer()
	c, err := clientgo.New(w.t.Context(), controller.Kind[*appsv1.ReplicaSet, C]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Child: kind,
		Spec: func(rs *appsv1.ReplicaSet) (replicas.Spec[C], error) {
			return replicas.Spec[C]{
				Replicas: *rs.Spec.Replicas, Selector: apilabels.SelectorFromSet(labels("web")),
				New: func(string) (C, error) { return make(), nil },
			}, nil
		},
	}, client, owners, children, clientgo.Options{EventClient: w.client.CoreV1()})
	require.NoError(w.t, err)
	return c, children
}
