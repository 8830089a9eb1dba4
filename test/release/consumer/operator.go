// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consumer is an operator that is built with older Kubernetes libraries than the rest of this
// repository. The tests run the operator with client-go's fake clients.
package consumer

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/handlers"
	"github.com/replicakit/replicakit/replicas/typed"
)

// Run keeps the wanted number of pods for every ReplicaSet until ctx ends.
func Run(ctx context.Context, kube kubernetes.Interface) error {
	queue := workqueue.NewTypedDelayingQueue[types.NamespacedName]()
	factory := informers.NewSharedInformerFactory(kube, 12*time.Hour)
	sets, pods := factory.Apps().V1().ReplicaSets().Informer(), factory.Core().V1().Pods().Informer()
	kind, client := controller.ReplicaSets(), typed.NewClient(kube.AppsV1().ReplicaSets, kube.CoreV1().Pods)
	store, err := typed.NewCache(kind, sets, pods)
	if err != nil {
		return err
	}
	c, err := controller.New(kind, client, store, queue.AddAfter, controller.Options{})
	if err != nil {
		return err
	}
	if err := handle(sets, c.OwnerAdded, c.OwnerUpdated, c.OwnerDeleted); err != nil {
		return err
	}
	if err := handle(pods, c.ChildAdded, c.ChildUpdated, c.ChildDeleted); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	defer context.AfterFunc(ctx, queue.ShutDown)()
	for work(ctx, queue, c) {
	}
	return nil
}

// handle passes the events of an informer to the controller.
func handle(informer cache.SharedIndexInformer, added func(any, ...handlers.Enqueue) error, updated func(any, any, ...handlers.Enqueue) error, deleted func(any, ...handlers.Enqueue) error) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { report(added(obj)) },
		UpdateFunc: func(old, cur any) { report(updated(old, cur)) },
		DeleteFunc: func(obj any) { report(deleted(obj)) },
	})
	return err
}

// work runs one pass for the next key in the queue. It returns false when the queue has been shut down.
func work(ctx context.Context, queue workqueue.TypedDelayingInterface[types.NamespacedName], c *controller.Controller) bool {
	key, ended := queue.Get()
	if ended {
		return false
	}
	defer queue.Done(key)
	after, err := c.Sync(ctx, key)
	report(err)
	if err != nil && after == 0 {
		after = time.Second
	}
	if after > 0 {
		queue.AddAfter(key, after)
	}
	return true
}

func report(err error) {
	if err != nil {
		utilruntime.HandleError(err)
	}
}

// Plan reads a ReplicaSet and the pods in its namespace from the API server, and returns the plan for the
// pods.
func Plan(ctx context.Context, client kubernetes.Interface, rs cache.ObjectName, now time.Time) (replicas.PodPlan, error) {
	owner, err := client.AppsV1().ReplicaSets(rs.Namespace).Get(ctx, rs.Name, metav1.GetOptions{})
	if err != nil {
		return replicas.PodPlan{}, fmt.Errorf("reading the ReplicaSet: %w", err)
	}
	pods, err := client.CoreV1().Pods(rs.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return replicas.PodPlan{}, fmt.Errorf("listing the pods: %w", err)
	}
	return plan(owner, pods.Items, now)
}

func plan(owner *appsv1.ReplicaSet, items []corev1.Pod, now time.Time) (replicas.PodPlan, error) {
	spec, err := replicas.ReplicaSetSpec(owner)
	if err != nil {
		return replicas.PodPlan{}, err
	}
	spec.Facts.Now = now
	pods := make([]*corev1.Pod, len(items))
	for i := range items {
		pods[i] = &items[i]
	}
	return replicas.Manage(pods, spec)
}
