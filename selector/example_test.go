package selector_test

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

// The ReplicaSet and the pods of the examples: one pod owned, one orphan, one
// whose label was changed, one of somebody else.
func exampleFleet() (*appsv1.ReplicaSet, []*corev1.Pod) {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	pod := func(name, app string, owner types.UID) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": app},
		}}
		if owner != "" {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{UID: owner, Controller: &yes}}
		}
		return p
	}
	return rs, []*corev1.Pod{
		pod("owned", "web", "4a1f"), pod("orphan", "web", ""), pod("relabeled", "debug", "4a1f"), pod("foreign", "web", "77c0"),
	}
}

func names(pods []*corev1.Pod) (names []string) {
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}

// A dry run: what an owner would do to its pods, and the patches that would do it.
func ExampleClaimer_Plan() {
	rs, pods := exampleFleet()
	claimer := selector.Claimer[*corev1.Pod]{
		Owner:    rs,
		Kind:     appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
	}
	claims, err := claimer.Plan(pods)
	fmt.Println("owned:  ", names(claims.Owned))
	fmt.Println("adopt:  ", names(claims.Adopt))
	fmt.Println("release:", names(claims.Release))
	fmt.Println("ignored:", names(claims.Ignored), err)
	patch, err := claimer.AdoptPatch(claims.Adopt[0])
	fmt.Println(string(patch.Data), err)
	// Output:
	// owned:   [owned]
	// adopt:   [orphan]
	// release: [relabeled]
	// ignored: [foreign] <nil>
	// {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"4a1f","controller":true,"blockOwnerDeletion":true}],"uid":"uid-orphan"}} <nil>
}

func ExampleForReplicaSet() {
	rs, _ := exampleFleet()
	fmt.Println(selector.ForReplicaSet(rs))

	rs.Spec.Selector.MatchLabels = nil // would select every pod of the namespace
	fmt.Println(selector.ForReplicaSet(rs))
	// Output:
	// app=web <nil>
	// <nil> selector: replica set "default/web": selector is empty
}

func ExampleForReplicationController() {
	rc := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "web", "tier": "front"}},
	}
	fmt.Println(selector.ForReplicationController(rc))
	// Output: app=web,tier=front <nil>
}

func ExampleClaimer_AdoptPatch() {
	rs, pods := exampleFleet()
	claimer := selector.Claimer[*corev1.Pod]{
		Owner:      rs,
		Kind:       appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Finalizers: []string{"example.com/keep"},
	}
	patch, err := claimer.AdoptPatch(pods[1])
	fmt.Println(patch.Type, err)
	fmt.Println(string(patch.Data))
	// Output:
	// application/strategic-merge-patch+json <nil>
	// {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"4a1f","controller":true,"blockOwnerDeletion":true}],"uid":"uid-orphan","finalizers":["example.com/keep"]}}
}

// Custom resources refuse strategic merge patches. A JSON merge patch replaces
// whole lists, so it is made from the child as it was read, and holds only for
// that version of it.
func ExampleClaimer_ReleasePatch() {
	owner := &metav1.ObjectMeta{Namespace: "default", Name: "pool", UID: "4a1f"}
	claimer := selector.Claimer[*metav1.ObjectMeta]{Owner: owner, PatchType: types.MergePatchType, Finalizers: []string{"example.com/keep"}}
	yes := true
	child := &metav1.ObjectMeta{
		Namespace: "default", Name: "w1", UID: "uid-w1", ResourceVersion: "813", Finalizers: []string{"example.com/keep", "other.example/hold"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "WidgetPool", Name: "pool", UID: "4a1f", Controller: &yes}},
	}
	patch, err := claimer.ReleasePatch(child)
	fmt.Println(patch.Type, err)
	fmt.Println(string(patch.Data))
	// Output:
	// application/merge-patch+json <nil>
	// {"metadata":{"uid":"uid-w1","resourceVersion":"813","ownerReferences":[],"finalizers":["other.example/hold"]}}
}

// The API server is asked once a pass, before the first adoption: here the owner
// was deleted after the cache last saw it.
func ExampleCanAdopt() {
	rs, _ := exampleFleet()
	readLive := func(context.Context) (metav1.Object, error) {
		fmt.Println("(asking the API server)")
		live := rs.DeepCopy()
		deleted := metav1.Unix(1777896000, 0)
		deleted.Time = deleted.UTC()
		live.DeletionTimestamp = &deleted
		return live, nil
	}
	mayAdopt := selector.CanAdopt(readLive, rs)
	for _, orphan := range []string{"web-1", "web-2"} {
		if err := mayAdopt(context.Background()); err != nil {
			fmt.Printf("can't adopt Pod default/%s: %v\n", orphan, err)
		}
	}
	// Output:
	// (asking the API server)
	// can't adopt Pod default/web-1: default/web has just been deleted at 2026-05-04 12:00:00 +0000 UTC
	// can't adopt Pod default/web-2: default/web has just been deleted at 2026-05-04 12:00:00 +0000 UTC
}

// Two ReplicaSets select the same orphan: both are woken, and the overlap can be
// reported.
func ExampleOwners() {
	web, pods := exampleFleet()
	twin, _ := exampleFleet()
	twin.Name = "web-copy"
	other, _ := exampleFleet()
	other.Spec.Selector.MatchLabels["app"] = "db"

	orphan := pods[1]
	owners := selector.Owners(orphan, []*appsv1.ReplicaSet{web, other, twin}, selector.ForReplicaSet)
	for _, rs := range owners {
		fmt.Println("wake", rs.Name)
	}
	if len(owners) > 1 {
		fmt.Printf("%d selectors overlap on pod %s\n", len(owners), orphan.Name)
	}
	// Output:
	// wake web
	// wake web-copy
	// 2 selectors overlap on pod orphan
}
