// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

// A controller wants three replicas. Until the cache shows the pods that the controller has created, it must not
// create more pods because of a stale list.
func Example() {
	var exp expectations.Store[expectations.Key]
	key := expectations.Key{NamespacedName: types.NamespacedName{Namespace: "team", Name: "web"}, UID: "3f1c"}

	fmt.Println(exp.State(key))                      // check the state first, then list
	exp.Set(key, expectations.Changes{Creations: 3}) // record first, then create

	exp.Lower(key, expectations.Changes{Creations: 1}) // one creation was refused, so the cache will never show it
	exp.CreationObserved(key, "web-x7k2p")             // the event handler saw one pod
	exp.CreationObserved(key, "web-q9d4t")             // the event handler saw the other pod
	fmt.Println(exp.State(key))
	// Output:
	// satisfied 0s
	// satisfied 0s
}

// A warm pool creates pods only after it has seen all its earlier creations and deletions. Try makes this check
// and records the new creations in one step. Pods that the pool has chosen to delete no longer belong to the pool.
func ExampleStore_Try() {
	var exp expectations.Store[string]
	exp.Set("team/pool", expectations.Changes{Deleting: []types.UID{"uid-a"}})

	for _, uid := range []types.UID{"uid-a", "uid-b"} {
		fmt.Println(uid, "is being deleted:", exp.Deleting("team/pool", uid))
	}
	found, _ := exp.Try("team/pool", expectations.Changes{Creations: 2})
	fmt.Println("create two:", found == expectations.Satisfied)
	exp.DeletionObserved("team/pool", "uid-a")
	found, _ = exp.Try("team/pool", expectations.Changes{Creations: 2})
	fmt.Println("create two:", found == expectations.Satisfied)
	// Output:
	// uid-a is being deleted: true
	// uid-b is being deleted: false
	// create two: false
	// create two: true
}

// Each replica has a pod and a volume claim, and their names are chosen before the API calls. The creations of the
// pod and of the claim are expected by name. If a creation is refused, Lower removes its name from the record.
func ExampleStore_Add() {
	var exp expectations.Store[string]
	create := func(name string) error {
		return map[string]error{"pod/web-q9d4t": errors.New("quota")}[name]
	}
	for _, id := range []string{"x7k2p", "q9d4t"} {
		for _, name := range []string{"claim/data-web-" + id, "pod/web-" + id} {
			exp.Add("team/web", expectations.Changes{Creating: []string{name}})
			if create(name) != nil {
				exp.Lower("team/web", expectations.Changes{Creating: []string{name}})
			}
		}
	}
	fmt.Println(exp.CreationObserved("team/web", "pod/web-x7k2p"), exp.CreationObserved("team/web", "pod/of-another"))
	pending, _ := exp.Get("team/web")
	fmt.Println(pending.Creating)
	// Output:
	// true false
	// [claim/data-web-q9d4t claim/data-web-x7k2p]
}

// Without event handlers, a complete list shows which creations and deletions have happened. Sync removes these
// creations and deletions from the record. The plan takes the remaining changes into account, so the owner does
// not have to wait.
func ExampleSync() {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	}
	var exp expectations.Store[string]
	exp.Set("team/web", expectations.Changes{Creating: []string{"c", "d"}, Deleting: []types.UID{"uid-a", "uid-b"}})

	live, terminating := []*corev1.Pod{pod("b"), pod("c")}, []*corev1.Pod{pod("a")}
	left := expectations.Sync(&exp, "team/web", live, terminating)
	creations, deletions := left.Total()
	fmt.Println("not seen yet:", left.Creating, left.Deleting)
	fmt.Println("missing, of 5:", 5-(len(live)+creations-deletions))
	// Output:
	// not seen yet: [d] [uid-b]
	// missing, of 5: 3
}

// If the API server returns NotFound for an owner, the owner's UID is unknown. ForgetName drops the records of all
// owners with this name.
func ExampleStore_ForgetName() {
	var exp expectations.Store[expectations.Key]
	request := types.NamespacedName{Namespace: "team", Name: "web"}
	key := expectations.Key{NamespacedName: request, UID: "3f1c"}

	exp.Set(key, expectations.Changes{Creations: 3})
	exp.ForgetName(request)
	fmt.Println(exp.State(key))
	// Output:
	// satisfied 0s
}

// While an owner waits, State returns the time until the record expires. Requeue the owner after this time,
// because nothing else wakes the owner if the expected event is lost.
func ExampleStore_State() {
	now := time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	exp := expectations.Store[string]{Timeout: time.Minute, Now: func() time.Time { return now }}

	exp.Set("team/web", expectations.Changes{Creations: 1})
	now = now.Add(20 * time.Second)
	fmt.Println(exp.State("team/web"))

	now = now.Add(40*time.Second + 1)
	fmt.Println(exp.State("team/web"))
	// Output:
	// waiting 40.000000001s
	// expired 0s
}

// For a metric or a debug page, All iterates over the outstanding changes of all owners. The field Since shows
// when the current timeout of an owner started.
func ExampleStore_All() {
	exp := expectations.Store[string]{
		Now: func() time.Time { return time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC) },
	}
	exp.Set("team/web", expectations.Changes{Creations: 3})
	exp.Set("team/db", expectations.Changes{})
	for key, pending := range exp.All() {
		creations, _ := pending.Total()
		fmt.Println(key, "waits for", creations, "creations since", pending.Since.Format(time.TimeOnly))
	}
	// Output:
	// team/web waits for 3 creations since 12:00:00
}

// A pod lost its owner reference while it was being deleted, so its delete event does not name the owner.
// OwnersOfDeletion returns the owners that expect this deletion.
func ExampleStore_OwnersOfDeletion() {
	var exp expectations.Store[string]

	exp.Set("team/web", expectations.Changes{Deleting: []types.UID{"uid-web-0"}})
	for _, owner := range exp.OwnersOfDeletion("uid-web-0") {
		exp.DeletionObserved(owner, "uid-web-0")
		fmt.Println("wake", owner)
	}
	// Output:
	// wake team/web
}

// ControllerExpectations is a Store with the method names of Kubernetes.
func ExampleControllerExpectations() {
	var exp expectations.ControllerExpectations[string]

	exp.SetExpectations("team/web", 2, 1)
	exp.CreationObserved("team/web")
	exp.DeletionObserved("team/web")
	adds, dels, _ := exp.GetExpectations("team/web")
	fmt.Println(adds, dels, exp.SatisfiedExpectations("team/web"))

	exp.CreationObserved("team/web")
	fmt.Println(exp.SatisfiedExpectations("team/web"))
	// Output:
	// 1 0 false
	// true
}

// The deletion of a pod causes two events, but counts only once.
func ExampleUIDTrackingControllerExpectations() {
	var exp expectations.UIDTrackingControllerExpectations[string]

	exp.ExpectDeletions("team/web", []types.UID{"uid-web-0", "uid-web-1"})
	fmt.Println("update with a deletionTimestamp:", exp.DeletionObserved("team/web", "uid-web-0"))
	fmt.Println("delete:", exp.DeletionObserved("team/web", "uid-web-0"))
	fmt.Println("may act:", exp.SatisfiedExpectations("team/web"))
	// Output:
	// update with a deletionTimestamp: true
	// delete: false
	// may act: false
}

// The owner wrote a pod at version 105, but the cache has only reached version 103.
func ExampleConsistencyStore() {
	pods := schema.GroupResource{Resource: "pods"}
	cached := "103"
	store := expectations.ConsistencyStore{
		ReadVersion: func(schema.GroupResource) string { return cached },
	}
	key := expectations.Key{NamespacedName: types.NamespacedName{Namespace: "team", Name: "web"}, UID: "3f1c"}

	store.WroteAt(key, pods, "105")
	if stale, ready := store.Ready(key); !ready {
		fmt.Println(stale, "- look again in", stale.RetryAfter)
	}
	cached = "105"
	_, ready := store.Ready(key)
	fmt.Println("ready:", ready)
	// Output:
	// pods: read 103, wrote 105 - look again in 50ms
	// ready: true
}

// The events of two creations are lost, and the record expires. A live list then proves that web-a exists,
// although the cache does not show web-a yet. The creation of web-b has failed. The live list is selected by
// labels, so it also contains a pod of another owner.
func ExampleSyncLive() {
	var exp expectations.Store[string]
	exp.Set("team/web", expectations.Changes{Creating: []string{"web-a", "web-b"}})

	var cached []*corev1.Pod
	owner := func(uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: "Shop", Name: string(uid), UID: uid}}
	}
	live := []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web-a", UID: "1", OwnerReferences: owner("web")}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "db-a", UID: "2", OwnerReferences: owner("db")}},
	}
	pending := expectations.SyncLive(&exp, "team/web", cached, live, func(p *corev1.Pod) bool {
		return p.OwnerReferences[0].UID == "web" && p.DeletionTimestamp == nil
	})
	fmt.Println("still missing from the cache:", pending.Creating)
	// Output: still missing from the cache: [web-a]
}

// A pass creates pods with chosen names, and deletes other pods. Before the API calls, the pass records all these
// changes under the owner's name and UID. The event handlers use the same key.
func ExampleKeyOf() {
	owner := &metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "3f1c"}
	missing := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web-x7k2p"}}, {ObjectMeta: metav1.ObjectMeta{Name: "web-q9d4t"}}}
	surplus := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web-old", UID: "77c0"}}}

	var exp expectations.Store[expectations.Key]
	key := expectations.KeyOf(owner)
	exp.Set(key, expectations.Changes{Creating: expectations.Names(missing), Deleting: expectations.UIDs(surplus)})

	pending, _ := exp.Get(key)
	fmt.Println(key, pending.Creating, pending.Deleting)
	// Output: team/web (3f1c) [web-q9d4t web-x7k2p] [77c0]
}
