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

// A controller wants three replicas. Until it has seen the ones it created, a
// stale list must not make it create more.
func Example() {
	var exp expectations.Store[expectations.Key]
	key := expectations.Key{NamespacedName: types.NamespacedName{Namespace: "team", Name: "web"}, UID: "3f1c"}

	fmt.Println(exp.State(key))                      // look first, then list
	exp.Set(key, expectations.Changes{Creations: 3}) // record first, then create

	exp.Lower(key, expectations.Changes{Creations: 1}) // one create was refused: it will never be seen
	exp.CreationObserved(key, "web-x7k2p")             // the event handler saw one pod
	exp.CreationObserved(key, "web-q9d4t")             // and the other
	fmt.Println(exp.State(key))
	// Output:
	// satisfied 0s
	// satisfied 0s
}

// A warm pool fills up: it creates only if everything that it started before was
// seen, and recording that it does so is the same step. Whatever it chose to
// delete is no longer one of the pool.
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

// Replicas with a volume claim each, their names chosen before creating: both are
// expected by name, and one that was refused is taken back by its name.
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

// Without event handlers a complete list settles what it proves; what is left is
// added to what was listed, and nobody has to wait.
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

// That an owner is not found tells no UID: whatever incarnation of it expected
// something is forgotten by its name.
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

// While an owner waits, State says when to look again: nobody else will wake it
// if the event it waits for is lost.
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

// What is outstanding, and since when, for a metric or a debug page.
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

// A pod lost its owner reference while it was being deleted: its delete event no
// longer says whose deletion it settles.
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

// The names that Kubernetes uses, on the same record.
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

// A pod that is being deleted is seen twice and counts once.
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

// The owner wrote a pod at version 105, and its cache has only come to 103.
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

// The events of two creations are lost, and the record expires. A live list then
// proves that one of the two exists, which the cache does not show yet; the other
// creation failed. The list is by labels, so it has a pod of another owner too.
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

// A pass creates pods whose names it has chosen, and deletes others. All of it is
// recorded under the owner's UID before the calls, so that the events settle it.
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
