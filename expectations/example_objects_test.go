// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/expectations"
)

// A pod is created, and deleted again before the cache has shown it. The cache might never show this pod, so Lower
// removes the expected creation.
func ExampleDeleting() {
	var exp expectations.Store[string]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-x7k2p", UID: "77c0"}}
	exp.Add("team/web", expectations.Creating(pod))

	exp.Lower("team/web", expectations.Creating(pod))
	exp.Add("team/web", expectations.Deleting(pod))
	pending, _ := exp.Get("team/web")
	fmt.Println(pending.Creating, pending.Deleting)
	// Output: [] [77c0]
}

// A job runs one pod on each node, so it identifies the deletions by the names of the nodes.
func ExampleIDs() {
	var exp expectations.Store[string]
	exp.Set("team/job", expectations.Changes{Deleting: expectations.IDs("node-1", "node-2")})
	fmt.Println(exp.DeletionObserved("team/job", "node-2"))
	// Output: true
}

// When the event of a new pod arrives, the creation is removed from the record of the owner that controls the pod.
func ExampleKeyOfController() {
	var exp expectations.Store[expectations.Key]
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shop"}
	shop := &metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "3f1c"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "web-x7k2p", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(shop, kind)},
	}}
	exp.Set(expectations.KeyOf(shop), expectations.Creating(pod))

	if key, ok := expectations.KeyOfController(pod, kind.GroupKind()); ok {
		fmt.Println(key, exp.CreationObserved(key, pod.Name))
	}
	// Output: team/web (3f1c) true
}

// A PodList contains pods, but Sync needs pointers to pods.
func ExamplePointers() {
	var exp expectations.Store[string]
	exp.Set("team/web", expectations.Changes{Creating: []string{"web-x7k2p", "web-q9d4t"}})
	var list corev1.PodList
	list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-x7k2p", UID: "77c0"}})
	left := expectations.Sync(&exp, "team/web", expectations.Pointers(list.Items), nil)
	fmt.Println(left.Creating)
	// Output: [web-q9d4t]
}

// A namespace no longer exists, so the operator uses ForgetFunc to drop the records of all owners in this namespace.
func ExampleStore_ForgetFunc() {
	var exp expectations.Store[expectations.Key]
	owner := &metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "3f1c"}
	exp.Set(expectations.KeyOf(owner), expectations.Changes{Creations: 3})
	exp.ForgetFunc(func(key expectations.Key) bool { return key.Namespace == "team" })
	fmt.Println(exp.State(expectations.KeyOf(owner)))
	// Output: satisfied 0s
}

// Some operators continue after a record has expired. TryAnyway replaces the expired record.
func ExampleStore_TryAnyway() {
	now := time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	exp := expectations.Store[string]{Now: func() time.Time { return now }}
	exp.Set("team/web", expectations.Changes{Creations: 3})
	now = now.Add(time.Hour)
	found, _ := exp.TryAnyway("team/web", expectations.Changes{Creations: 2})
	fmt.Println(found) // list from the API server before you create these two pods
	fmt.Println(exp.State("team/web"))
	// Output:
	// expired
	// waiting 5m0.000000001s
}

// A pod was updated, but the cache still contains the old version.
func ExampleWrites() {
	var wrote expectations.Writes
	pod := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-x7k2p", UID: "77c0", ResourceVersion: version}}
	}
	wrote.At(pod("105")) // the pod that the API server returned
	state, _ := wrote.State(pod("103"))
	fmt.Println(state)
	state, _ = wrote.State(pod("105"))
	fmt.Println(state)
	// Output:
	// waiting
	// satisfied
}
