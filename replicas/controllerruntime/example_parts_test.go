// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

// configMaps returns a Kind of Deployments that keep ConfigMaps instead of pods. A Kind of custom resources
// works in the same way.
func configMaps() controller.Kind[*appsv1.Deployment, *corev1.ConfigMap] {
	return controller.Kind[*appsv1.Deployment, *corev1.ConfigMap]{
		Owner: appsv1.SchemeGroupVersion.WithKind("Deployment"),
		Child: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Spec: func(owner *appsv1.Deployment) (replicas.Spec[*corev1.ConfigMap], error) {
			matching, err := metav1.LabelSelectorAsSelector(owner.Spec.Selector)
			return replicas.Spec[*corev1.ConfigMap]{
				Replicas: *owner.Spec.Replicas,
				Selector: matching,
				New: func(string) (*corev1.ConfigMap, error) {
					return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: owner.Spec.Selector.MatchLabels}}, nil
				},
			}, err
		},
		Status: func(owner *appsv1.Deployment, outcome controller.Outcome[*corev1.ConfigMap]) error {
			owner.Status.Replicas = outcome.Counts.Replicas
			return nil
		},
	}
}

// wantsTwo returns a Deployment that wants two ConfigMaps.
func wantsTwo() *appsv1.Deployment {
	two := int32(2)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Spec:       appsv1.DeploymentSpec{Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
}

// childOf returns a ConfigMap that the Deployment controls.
func childOf(owner *appsv1.Deployment, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, configMaps().Owner)},
	}}
}

// This example tests a Kind with controller-runtime's fake client. Instead of a manager, the test itself calls
// Reconcile, once for each of two passes.
func ExampleNew() {
	kind := configMaps()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind.Owner, meta.RESTScopeNamespace)
	mapper.Add(kind.Child, meta.RESTScopeNamespace)
	field, extract := controllerruntime.Index(kind)
	c := &fakes{client: fake.NewClientBuilder().WithRESTMapper(mapper).WithIndex(&corev1.ConfigMap{}, field, extract).
		WithObjects(wantsTwo()).WithStatusSubresource(&appsv1.Deployment{}).Build()}
	r, err := controllerruntime.New(c, kind, controllerruntime.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	web := client.ObjectKey{Namespace: "default", Name: "web"}
	for range 2 {
		if _, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: web}); err != nil {
			fmt.Println(err)
		}
	}
	var owner appsv1.Deployment
	err = c.client.Get(context.Background(), web, &owner)
	fmt.Println("replicas", owner.Status.Replicas, err)
	// Output: replicas 2 <nil>
}

// fakes is a cluster.Cluster with a fake client. It implements only the methods that a Reconciler needs.
type fakes struct {
	cluster.Cluster
	client client.Client
}

func (f *fakes) GetScheme() *runtime.Scheme                      { return f.client.Scheme() }
func (f *fakes) GetRESTMapper() meta.RESTMapper                  { return f.client.RESTMapper() }
func (f *fakes) GetClient() client.Client                        { return f.client }
func (f *fakes) GetAPIReader() client.Reader                     { return f.client }
func (f *fakes) GetCache() cache.Cache                           { return asCache{Reader: f.client} }
func (f *fakes) GetFieldIndexer() client.FieldIndexer            { return indexed{} }
func (f *fakes) GetEventRecorderFor(string) record.EventRecorder { return record.NewFakeRecorder(100) }

// asCache is a cache that supports only reads.
type asCache struct {
	cache.Informers
	client.Reader
}

// indexed does not add an index, because the fake client already has the index.
type indexed struct{}

func (indexed) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// With the index, a fake client finds the children of one owner.
func ExampleIndex() {
	owner := wantsTwo()
	ours, orphan := childOf(owner, "web-a"), childOf(owner, "web-b")
	orphan.OwnerReferences = nil
	field, extract := controllerruntime.Index(configMaps())
	c := fake.NewClientBuilder().WithObjects(ours, orphan).WithIndex(&corev1.ConfigMap{}, field, extract).Build()

	var found corev1.ConfigMapList
	err := c.List(context.Background(), &found, client.MatchingFields{field: extract(ours)[0]})
	for _, child := range found.Items {
		fmt.Println(child.Name)
	}
	fmt.Println(err)
	// Output:
	// web-a
	// <nil>
}

// This example is one pass of a custom reconcile loop. The pass lists the children live, makes a plan, and
// creates the missing children.
func ExampleNewClient() {
	ctx, kind, owner := context.Background(), configMaps(), wantsTwo()
	c := fake.NewClientBuilder().WithObjects(owner, childOf(owner, "web-a")).Build()
	calls, err := controllerruntime.NewClient(c, c, kind) // with a manager, pass mgr.GetClient() and mgr.GetAPIReader()
	if err != nil {
		fmt.Println(err)
		return
	}
	spec, err := kind.Spec(owner)
	if err != nil {
		fmt.Println(err)
		return
	}
	list, err := calls.List(ctx, owner.Namespace, spec.Selector)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Owner, spec.Kind, spec.Facts.Now = owner, kind.Owner, time.Now()
	spec.Facts.Names = func(prefix string) string { return prefix + "x7k2p" }
	plan, err := replicas.Manage(list.Items, spec)
	fmt.Println(plan, err)
	for i := range plan.Scale.Create {
		child, err := plan.Scale.New(i)
		if err != nil {
			fmt.Println(err)
			return
		}
		child, err = calls.Create(ctx, child)
		fmt.Println("created", child.Name, err)
	}
	// Output:
	// create 1 <nil>
	// created web-x7k2p <nil>
}

// A custom reconcile loop records the children that it creates. When the event of a new child arrives, the
// handlers confirm the creation, and add the owner to the queue.
func ExampleNewHandlers() {
	owner := wantsTwo()
	c := fake.NewClientBuilder().WithObjects(owner).Build()
	var store expectations.Store[expectations.Key]
	handlers, err := controllerruntime.NewHandlers(c, configMaps(), &store)
	if err != nil {
		fmt.Println(err)
		return
	}
	key := expectations.KeyOf(owner)
	store.Set(key, expectations.Changes{Creating: []string{"web-x7k2p"}})

	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	created := event.CreateEvent{Object: childOf(owner, "web-x7k2p")}
	handlers.ChildEvents().Create(context.Background(), created, queue) // in an operator, controller-runtime makes this call
	state, _ := store.State(key)
	next, _ := queue.Get()
	fmt.Println(state, next)
	// Output: satisfied default/web
}
