// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/replicas"
)

// printPlan prints the plan of a ReplicaSet with these slots, whose pods have the given ordinals.
func printPlan(want int32, slot func(i int) string, ordinals ...int) {
	web := map[string]string{"app": "web"}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &want,
			Selector: &metav1.LabelSelector{MatchLabels: web},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web}},
		},
	}
	var pods []*corev1.Pod
	for _, ordinal := range ordinals {
		name := fmt.Sprintf("web-%d", ordinal)
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), Labels: web,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		}})
	}
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Facts.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	spec.Slots = slot
	plan, err := replicas.Manage(pods, spec)
	fmt.Println(plan, plan.Scale.Names, err)
}

// The children have ordinals, as in a StatefulSet. If an ordinal below Replicas is missing, the plan creates a
// child with this ordinal. If there are too many children, the plan deletes the highest ordinals first.
func ExampleOrdinals() {
	slot := replicas.Ordinals("web")
	printPlan(11, slot, 0, 2, 3, 10)
	printPlan(1, slot, 0, 2, 3, 10)
	// Output:
	// create 7 [web-1 web-4 web-5 web-6 web-7 web-8 web-9] <nil>
	// delete 3: default/web-10 (must go), default/web-3 (must go), default/web-2 (must go) [] <nil>
}

// An owner goes from three to two children, and its spec says that ordinal 1 is the one that goes. So Slots leaves
// this ordinal out, and each later one moves up by a slot.
func ExampleSpec_slots() {
	without := func(slot func(i int) string, out ...int) func(i int) string {
		out = slices.Compact(slices.Sorted(slices.Values(out))) // a new slice, because the old one is the owner's
		return func(i int) string {
			for _, ordinal := range out {
				if ordinal <= i {
					i++
				}
			}
			return slot(i)
		}
	}
	all := replicas.Ordinals("web")
	printPlan(2, without(all, 1), 0, 1, 2)
	printPlan(3, without(all, 1), 0, 2) // three again while 1 is left out
	printPlan(3, all, 0, 2, 3)          // 1 may come back
	printPlan(3, all, 0, 1, 2, 3)
	// Output:
	// delete 1: default/web-1 (must go) [] <nil>
	// create 1 [web-3] <nil>
	// create 1; 1 kept while others are missing or unavailable [web-1] <nil>
	// delete 1: default/web-3 (must go) [] <nil>
}

// Each worker of a queue has a number, and takes the jobs of this number. A new worker is to be up before the old one of
// its number goes. So the number is an annotation, and the names end in random characters.
func ExampleSpec_slotOf() {
	queue := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "queue", UID: "7c21"}}
	kind, own := corev1.SchemeGroupVersion.WithKind("ConfigMap"), labels.Set{"queue": "queue"}
	worker := func(name, image string) *corev1.Pod {
		number := strings.TrimPrefix(replicas.SlotIn(name), "queue-")
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: own, Annotations: map[string]string{"number": number}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
		}
	}
	zero, one := intstr.FromInt32(0), intstr.FromInt32(1)
	spec := replicas.SpecOfPods{
		Owner: queue, Kind: kind, Replicas: 2, Selector: own.AsSelector(),
		Slots:          replicas.Ordinals("queue"),
		SlotOf:         func(p *corev1.Pod) string { return "queue-" + p.Annotations["number"] },
		New:            func(name string) (*corev1.Pod, error) { return worker(name, "v2"), nil },
		MaxUnavailable: &zero, MaxSurge: &one,
		Rules: replicas.Rules[*corev1.Pod]{
			MustGo: func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image != "v2" },
			Ready:  func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning },
		},
		Facts: replicas.Facts[*corev1.Pod]{
			Now:   time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC),
			Names: func(prefix string) string { return prefix + "x7k2p" }, // usually five random characters
		},
	}
	var pods []*corev1.Pod
	add := func(name, image string) {
		p := worker(name, image)
		p.Namespace, p.Name, p.UID = "default", name, types.UID("uid-of-"+name)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(queue, kind)}
		p.Status.Phase = corev1.PodRunning
		pods = append(pods, p)
	}
	add("queue-0-aaaaa", "v1")
	add("queue-1-aaaaa", "v1")
	plan, err := replicas.Manage(pods, spec)
	fmt.Println(plan.Scale.Names, err)
	add(plan.Scale.Names[0], "v2")
	fmt.Println(replicas.Manage(pods, spec))
	// Output:
	// [queue-0-x7k2p] <nil>
	// delete 1: default/queue-0-aaaaa (must go); 1 kept while others are missing or unavailable <nil>
}

// A cluster has a head and two groups of workers. Its spec names a worker to delete, and suspends the group cpu, which
// then wants none. The group big grows in the same plan, and each new child knows its group.
func ExampleGroup() {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ray", UID: "7c03"}}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	group := func(name string, n int32) replicas.Group[*corev1.Pod] {
		return replicas.Group[*corev1.Pod]{Name: name, Replicas: n, New: func(string) (*corev1.Pod, error) {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"cluster": "ray", "group": name}}}, nil
		}}
	}
	var pods []*corev1.Pod
	for _, name := range []string{"head-x7k2p", "gpu-4fzt8", "gpu-c9wqd", "cpu-lm52v"} {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "ray-" + name, UID: types.UID("uid-of-" + name),
			Labels:          map[string]string{"cluster": "ray", "group": name[:len(name)-len("-x7k2p")]},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		}})
	}
	plan, err := replicas.Manage(pods, replicas.SpecOfPods{
		Owner: owner, Kind: kind, Selector: labels.SelectorFromSet(labels.Set{"cluster": "ray"}),
		GroupOf: func(p *corev1.Pod) string { return p.Labels["group"] },
		Groups:  []replicas.Group[*corev1.Pod]{group("head", 1), group("gpu", 1), group("cpu", 0), group("big", 1)},
		Rules:   replicas.Rules[*corev1.Pod]{MustGo: func(p *corev1.Pod) bool { return p.Name == "ray-gpu-c9wqd" }},
		Facts:   replicas.Facts[*corev1.Pod]{Now: time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC), Names: func(prefix string) string { return prefix + "bbbbb" }},
	})
	fmt.Println(plan, err)
	fmt.Println(plan.Scale.Names[0], "is of group", plan.Scale.Group(0))
	// Output:
	// create 1; delete 2: default/ray-gpu-c9wqd (must go), default/ray-cpu-lm52v (all go) <nil>
	// ray-big-bbbbb is of group big
}
