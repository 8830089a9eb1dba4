// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

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

// A ReplicaSet owns one pod, adopts an orphan, and releases a pod after its label was changed.
func Example() {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	pod := func(name, app string, refs ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": app}, OwnerReferences: refs,
		}}
	}
	ours := *metav1.NewControllerRef(rs, kind)
	pods := []*corev1.Pod{pod("owned", "web", ours), pod("orphan", "web"), pod("relabeled", "debug", ours)}

	sel, err := selector.ForReplicaSet(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	claimed, err := selector.Claimer[*corev1.Pod]{
		Owner:    rs,
		Kind:     kind,
		Selector: sel,
		Patch: func(_ context.Context, p *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
			fmt.Println("patch", p.Name, string(patch.Data))
			return p, nil // your client's answer
		},
	}.Claim(context.Background(), pods)
	for _, p := range claimed.Ours() {
		fmt.Println("ours:", p.Name)
	}
	fmt.Println(err)
	// Output:
	// patch orphan {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"4a1f","controller":true,"blockOwnerDeletion":true}],"uid":"uid-orphan"}}
	// patch relabeled {"metadata":{"uid":"uid-relabeled","ownerReferences":[{"$patch":"delete","uid":"4a1f"}]}}
	// ours: owned
	// ours: orphan
	// <nil>
}

// Plan is a dry run, which returns what an owner would do with its pods. AdoptPatch returns the patch that adopts
// a pod.
func ExampleClaimer_Plan() {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"}}
	claimer := selector.Claimer[*corev1.Pod]{
		Owner:    rs,
		Kind:     appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
	}
	pods := []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", UID: "77c0", Labels: map[string]string{"app": "web"}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other", Labels: map[string]string{"app": "db"}}},
	}
	claims, err := claimer.Plan(pods)
	fmt.Println(len(claims.Owned), len(claims.Adopt), len(claims.Release), len(claims.Ignored), err)
	patch, err := claimer.AdoptPatch(claims.Adopt[0])
	fmt.Println(string(patch.Data), err)
	// Output:
	// 0 1 0 1 <nil>
	// {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"4a1f","controller":true,"blockOwnerDeletion":true}],"uid":"77c0"}} <nil>
}

// A plan is data. This example makes the plan shorter before it is carried out.
func ExampleClaimer_Apply() {
	claimer := selector.Claimer[*corev1.Pod]{
		Owner:    &metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Kind:     appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
		Patch: func(_ context.Context, p *corev1.Pod, _ selector.Patch) (*corev1.Pod, error) {
			fmt.Println("patch", p.Name)
			return p, nil
		},
	}
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c"} {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}}})
	}
	claims, err := claimer.Plan(pods)
	if err != nil {
		fmt.Println(err)
		return
	}
	claims.Adopt = claims.Adopt[:2] // adopt the other pods later
	claimed, err := claimer.Apply(context.Background(), claims)
	fmt.Println(len(claimed.Adopted), err)
	// Output:
	// patch a
	// patch b
	// 2 <nil>
}

func ExampleForReplicaSet() {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	fmt.Println(selector.ForReplicaSet(rs))

	rs.Spec.Selector.MatchLabels = nil // an empty selector would select every pod of the namespace
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
	claimer := selector.Claimer[*corev1.Pod]{
		Owner:      &metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Kind:       appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Finalizers: []string{"example.com/keep"},
	}
	patch, err := claimer.AdoptPatch(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", UID: "77c0"}})
	fmt.Println(patch.Type, err)
	fmt.Println(string(patch.Data))
	// Output:
	// application/strategic-merge-patch+json <nil>
	// {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"4a1f","controller":true,"blockOwnerDeletion":true}],"uid":"77c0","finalizers":["example.com/keep"]}}
}

// The API server refuses strategic merge patches of custom resources. A JSON merge patch replaces whole lists, so
// it is made from the child as it was read. The patch is valid only for this version of the child.
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

// The function that CanAdopt returns reads the owner from the API server only once, before the first adoption. Make
// a new function for each pass. In this example, the owner was deleted after the cache last showed it.
func ExampleCanAdopt() {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"}}
	readLive := func(context.Context) (metav1.Object, error) {
		fmt.Println("(asking the API server)")
		live := rs.DeepCopy()
		deleted := metav1.Unix(1777896000, 0)
		deleted.Time = deleted.UTC()
		live.DeletionTimestamp = &deleted
		return live, nil
	}
	mayAdopt := selector.CanAdopt(readLive, rs)
	fmt.Println(mayAdopt(context.Background()))
	fmt.Println(mayAdopt(context.Background()))
	// Output:
	// (asking the API server)
	// default/web has just been deleted at 2026-05-04 12:00:00 +0000 UTC
	// default/web has just been deleted at 2026-05-04 12:00:00 +0000 UTC
}

// If two ReplicaSets select the same orphan, Owners returns both ReplicaSets. The caller wakes both ReplicaSets,
// and can report that their selectors overlap.
func ExampleOwners() {
	set := func(name, app string) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		}
	}
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", Labels: map[string]string{"app": "web"}}}
	owners := selector.Owners(orphan, []*appsv1.ReplicaSet{set("web", "web"), set("db", "db"), set("web-copy", "web")}, selector.ForReplicaSet)
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

// An owner can select objects by name instead of labels. For example, a StatefulSet expects volume claims with
// certain names.
func ExampleNamed() {
	claimer := selector.Claimer[*corev1.PersistentVolumeClaim]{
		Owner:  &metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "4a1f"},
		Kind:   appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
		Filter: selector.Named[*corev1.PersistentVolumeClaim]("data-db-0", "data-db-1"),
	}
	var found []*corev1.PersistentVolumeClaim
	for _, name := range []string{"data-db-0", "data-db-7"} {
		found = append(found, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	claims, err := claimer.Plan(found)
	fmt.Println("adopt", claims.Adopt[0].Name, "ignore", claims.Ignored[0].Name, err)
	// Output: adopt data-db-0 ignore data-db-7 <nil>
}

// An owner releases all its pods, so that another owner can adopt them.
func ExampleNone() {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"}}
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-x7k2p", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, kind)},
	}}
	claimer := selector.Claimer[*corev1.Pod]{Owner: rs, Kind: kind, Filter: selector.None[*corev1.Pod]}
	claims, err := claimer.Plan([]*corev1.Pod{pod})
	fmt.Println("release", claims.Release[0].Name, err)
	// Output: release web-x7k2p <nil>
}

// Active skips pods that have failed, as Kubernetes' controllers do. Skipped pods are in no list of the result.
func ExampleClaimer_Plan_active() {
	claimer := selector.Claimer[*corev1.Pod]{
		Owner:    &metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Kind:     appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Active:   func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodFailed },
		Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web-x7k2p", Labels: map[string]string{"app": "web"}}
	claims, err := claimer.Plan([]*corev1.Pod{
		{ObjectMeta: meta, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		{ObjectMeta: meta, Status: corev1.PodStatus{Phase: corev1.PodFailed}},
	})
	fmt.Println("adopt", len(claims.Adopt), "ignore", len(claims.Ignored), err)
	// Output: adopt 1 ignore 0 <nil>
}
