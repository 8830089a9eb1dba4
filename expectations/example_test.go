package expectations_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
)

// A controller wants three replicas. Until it has seen the ones it created, a
// stale list must not make it create more.
func Example() {
	var exp expectations.UIDTrackingControllerExpectations[expectations.Key]
	key := expectations.Key{NamespacedName: types.NamespacedName{Namespace: "team", Name: "web"}, UID: "3f1c"}

	fmt.Println("may act:", exp.SatisfiedExpectations(key)) // look first, then list
	exp.ExpectCreations(key, 3)                             // record first, then create
	fmt.Println("may act:", exp.SatisfiedExpectations(key))

	exp.LowerExpectations(key, 1, 0) // one create was refused: it will never be seen
	exp.CreationObserved(key)        // the informer's handler saw one pod
	exp.CreationObserved(key)        // and the other
	fmt.Println("may act:", exp.SatisfiedExpectations(key))
	// Output:
	// may act: true
	// may act: false
	// may act: true
}

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

// While an owner waits, State says when to look again: nobody else will wake it
// if the event it waits for is lost.
func ExampleControllerExpectations_State() {
	now := time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	exp := expectations.ControllerExpectations[string]{
		Timeout: time.Minute,
		Now:     func() time.Time { return now },
	}

	exp.ExpectCreations("team/web", 1)
	now = now.Add(20 * time.Second)
	state, remaining := exp.State("team/web")
	fmt.Println(state, remaining)

	now = now.Add(remaining)
	state, _ = exp.State("team/web")
	fmt.Println(state, exp.SatisfiedExpectations("team/web"))
	// Output:
	// waiting 40.000000001s
	// expired true
}

// What is outstanding, and since when, for a metric or a debug page.
func ExampleControllerExpectations_All() {
	exp := expectations.ControllerExpectations[string]{
		Now: func() time.Time { return time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC) },
	}
	exp.ExpectCreations("team/web", 3)
	exp.ExpectCreations("team/db", 0)
	for key, p := range exp.All() {
		fmt.Println(key, "waits for", p.Adds, "creations since", p.Since.Format(time.TimeOnly))
	}
	// Output:
	// team/web waits for 3 creations since 12:00:00
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

// Names chosen before creating tell the owner's own creations from those of
// anybody else, also when the answer to a create was lost.
func ExampleUIDTrackingControllerExpectations_ExpectCreationsOf() {
	var exp expectations.UIDTrackingControllerExpectations[string]

	exp.ExpectCreationsOf("team/web", []string{"web-x7k2p", "web-q9d4t"})
	fmt.Println(exp.CreationObservedOf("team/web", "web-adopted"))
	fmt.Println(exp.CreationObservedOf("team/web", "web-x7k2p"))
	for _, p := range exp.All() {
		fmt.Println("outstanding:", p.Creating)
	}
	// Output:
	// false
	// true
	// outstanding: [web-q9d4t]
}

// A pod lost its owner reference while it was being deleted: its delete event no
// longer says whose deletion it settles.
func ExampleUIDTrackingControllerExpectations_OwnerOfDeletion() {
	var exp expectations.UIDTrackingControllerExpectations[string]

	exp.ExpectDeletions("team/web", []types.UID{"uid-web-0"})
	if owner, ok := exp.OwnerOfDeletion("uid-web-0"); ok {
		exp.DeletionObserved(owner, "uid-web-0")
		fmt.Println("wake", owner)
	}
	// Output:
	// wake team/web
}

// Without event handlers, a complete list settles what it proves.
func ExampleUIDTrackingControllerExpectations_Observe() {
	var exp expectations.UIDTrackingControllerExpectations[string]

	exp.ExpectDeletions("team/web", []types.UID{"uid-web-0", "uid-web-1", "uid-web-2"})
	exp.Observe("team/web", []metav1.Object{
		podtest.Pod("web-1", podtest.Deleting), // on its way
		podtest.Pod("web-2"),                   // not seen yet
	})
	for _, p := range exp.All() {
		fmt.Println("outstanding:", p.Deleting)
	}
	// Output:
	// outstanding: [uid-web-2]
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
