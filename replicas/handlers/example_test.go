// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/handlers"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// If you write your own loop, record each creation in a Store before you send it. When the watch shows the pod,
// the handlers mark the creation as observed and wake the owner of the pod.
func Example() {
	rs := replicastest.NewReplicaSet("default", "web", 1)
	var store expectations.Store[expectations.Key]
	wake := func(owner types.NamespacedName, after time.Duration) { fmt.Println("wake", owner) }
	h, err := handlers.New(handlers.Config[*appsv1.ReplicaSet, *corev1.Pod]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Spec: replicas.ReplicaSetSpec,
		Owners: oneOwner{rs}, Store: &store, Enqueue: wake,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	key := expectations.KeyOf(rs)
	store.Set(key, expectations.Changes{Creating: []string{"web-x7k2p"}}) // then create the pod
	before, _ := store.State(key)

	if err := h.ChildAdded(replicastest.NewPod(rs, "web-x7k2p")); err != nil {
		fmt.Println(err)
	}
	after, _ := store.State(key)
	fmt.Println(before, "before the event,", after, "after it")
	// Output:
	// wake default/web
	// waiting before the event, satisfied after it
}

// The pods of this owner must go if their image is not that of a template, which is another object than the owner. When
// the template has changed, the loop calls Spec for a pass, and Renew for the handlers. Without Renew, they would judge
// pods by the old template, and the pass for a pod that need not go any more would wait for the StatusDelay.
func ExampleRenew() {
	rs := replicastest.NewReplicaSet("default", "web", 1)
	rs.UID, rs.ResourceVersion = "uid-of-web", "1"
	template := "web:1"
	spec := func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := replicas.ReplicaSetSpec(rs)
		image := template
		s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Annotations["image"] != image }
		return s, err
	}
	wake := func(owner types.NamespacedName, after time.Duration) { fmt.Println("wake", owner, "in", after) }
	h, err := handlers.New(handlers.Config[*appsv1.ReplicaSet, *corev1.Pod]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Spec: spec, Owners: oneOwner{rs},
		StatusDelay: time.Second, Enqueue: wake,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	old := replicastest.NewPod(rs, "web-x7k2p")
	changed := old.DeepCopy()
	changed.ResourceVersion, changed.Annotations = "9", map[string]string{"image": "web:2"}
	if err := h.ChildUpdated(old, changed); err != nil { // it must go as before
		fmt.Println(err)
	}

	template = "web:2"
	s, err := spec(rs)
	handlers.Renew(h, rs, s, err)
	if err := h.ChildUpdated(old, changed); err != nil { // it need not go any more
		fmt.Println(err)
	}
	// Output:
	// wake default/web in 1s
	// wake default/web in 0s
}

// oneOwner is a cache with one ReplicaSet. In your program, use the cache of an informer instead.
type oneOwner struct{ rs *appsv1.ReplicaSet }

func (o oneOwner) Owner(_ context.Context, name types.NamespacedName) (*appsv1.ReplicaSet, error) {
	if name.Namespace == o.rs.Namespace && name.Name == o.rs.Name {
		return o.rs, nil
	}
	return nil, apierrors.NewNotFound(appsv1.Resource("replicasets"), name.Name)
}

func (o oneOwner) Owners(context.Context, string) ([]*appsv1.ReplicaSet, error) {
	return []*appsv1.ReplicaSet{o.rs}, nil
}
