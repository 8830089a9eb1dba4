// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package typed_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// This example makes a controller from the typed clients and the informers of two types. An operator on client-go
// already has typed clients and informers. In this example, values of the types clientset and informerOf replace
// the clients and informers.
func Example() {
	two, app := int32(2), map[string]string{"app": "web"}
	kube := &clientset{&appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &two,
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}},
		},
	}}
	sets, pods := informerOf{kube.rs}, informerOf{}

	client := typed.NewClient(kube.ReplicaSets, kube.Pods)
	cache, err := typed.NewCache(controller.ReplicaSets(), sets, pods)
	if err != nil {
		fmt.Println(err)
		return
	}
	enqueue := func(types.NamespacedName, time.Duration) {} // in an operator, AddAfter of the work queue
	c, err := controller.New(controller.ReplicaSets(), client, cache, enqueue, controller.Options{MaxParallel: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Sync(context.Background(), types.NamespacedName{Namespace: "shop", Name: "web"}) // a worker of the queue makes this call
	fmt.Println(err)
	// Output:
	// create a pod of web- in shop
	// create a pod of web- in shop
	// <nil>
}

// An informerOf is an informer with at most one object in its store.
type informerOf struct{ known metav1.Object }

type indexersOf map[string]func(obj any) ([]string, error)

func (i informerOf) AddIndexers(indexersOf) error { return nil }

func (i informerOf) GetIndexer() informerOf { return i }

func (i informerOf) GetIndexers() indexersOf { return nil }

func (i informerOf) List() []any { return nil }

func (i informerOf) ByIndex(string, string) ([]any, error) { return nil, nil }

func (i informerOf) GetByKey(string) (obj any, exists bool, err error) {
	return i.known, i.known != nil, nil
}

// A clientset returns the typed clients for a namespace.
type clientset struct{ rs *appsv1.ReplicaSet }

func (c *clientset) ReplicaSets(string) replicaSets { return replicaSets{c} }

func (c *clientset) Pods(namespace string) pods { return pods(namespace) }

type replicaSets struct{ *clientset }

func (r replicaSets) Get(context.Context, string, metav1.GetOptions) (*appsv1.ReplicaSet, error) {
	return r.rs, nil
}

func (r replicaSets) List(context.Context, metav1.ListOptions) (*appsv1.ReplicaSetList, error) {
	return &appsv1.ReplicaSetList{Items: []appsv1.ReplicaSet{*r.rs}}, nil
}

func (r replicaSets) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*appsv1.ReplicaSet, error) {
	return r.rs, nil
}

// pods is a typed client for the pods in one namespace. The client stores no pods, so Get always returns
// NotFound.
type pods string

func (p pods) Create(_ context.Context, pod *corev1.Pod, _ metav1.CreateOptions) (*corev1.Pod, error) {
	fmt.Println("create a pod of", pod.GenerateName, "in", p)
	return pod, nil
}

func (pods) Delete(context.Context, string, metav1.DeleteOptions) error { return nil }

func (pods) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Pod, error) {
	return &corev1.Pod{}, nil
}

func (pods) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (pods) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	return &corev1.PodList{}, nil
}
