// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"encoding/json"
	"fmt"
	"go/version"
	"sort"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/podrank"
)

var now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)

// replica returns a running pod that has been ready for the given time.
func replica(name, node string, ready time.Duration) *corev1.Pod {
	since := metav1.NewTime(now.Add(-ready))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: since},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since}},
		},
	}
}

// fleet returns eight pods. One pod is not ready, and another pod has a low deletion cost.
func fleet() []*corev1.Pod {
	pods := []*corev1.Pod{
		replica("web-a", "node-1", 48*time.Hour),
		replica("web-b", "node-1", 48*time.Hour),
		replica("web-c", "node-1", 2*time.Hour),
		replica("web-d", "node-2", 5*time.Minute),
		replica("web-e", "node-2", 48*time.Hour),
		replica("web-f", "node-3", 48*time.Hour),
		replica("web-g", "node-4", 48*time.Hour),
		replica("web-h", "node-5", 48*time.Hour),
	}
	pods[6].Status.Conditions[0].Status = corev1.ConditionFalse
	pods[7].Annotations = map[string]string{corev1.PodDeletionCost: "-100"}
	return pods
}

func Example() {
	pods := fleet()
	for _, v := range podrank.Select(pods, 6, podrank.PodOptions{Now: now, Related: pods}) {
		fmt.Printf("%s on %s: %s\n", v.Object.Name, v.Object.Spec.NodeName, v.Explain())
	}
	// Output:
	// web-g on node-4: not ready
	// web-h on node-5: deletion cost -100 < 0
	// web-c on node-1: 3 replicas on node-1
	// web-a on node-1: 3 replicas on node-1
	// web-b on node-1: 3 replicas on node-1
	// web-d on node-2: ready for 5m < 48h
}

// A Victim contains its criterion and both values as data. The example prints the criterion and the values as
// JSON.
func ExampleSelect() {
	for _, v := range podrank.Select(fleet(), 2, podrank.PodOptions{Now: now}) {
		text, err := json.Marshal(struct {
			Pod              string
			By               string
			Victim, Survivor string
		}{v.Object.Name, v.Criterion, v.Values.Victim, v.Values.Survivor})
		fmt.Println(string(text), err)
	}
	// Output:
	// {"Pod":"web-g","By":"not-ready","Victim":"not ready","Survivor":"ready"} <nil>
	// {"Pod":"web-h","By":"deletion-cost","Victim":"-100","Survivor":"0"} <nil>
}

func ExampleVictim_Explain() {
	victims := podrank.Select(fleet(), 3, podrank.PodOptions{Now: now})
	fmt.Println(victims[2].Explain())
	// Output: ready for 5m < 2h
}

func ExampleColocationRanks() {
	pods := fleet()
	fmt.Println(podrank.ColocationRanks(pods, pods))
	// Output: [3 3 3 2 2 1 1 1]
}

func ExampleActivePodsWithRanks() {
	pods := fleet()
	sort.Sort(podrank.ActivePodsWithRanks{
		Pods: pods,
		Rank: podrank.ColocationRanks(pods, pods),
		Now:  metav1.NewTime(now),
	})
	for _, p := range pods {
		fmt.Print(p.Name, " ")
	}
	// Output: web-g web-h web-c web-a web-b web-d web-e web-f
}

func ExampleActivePods() {
	pods := fleet()
	sort.Sort(podrank.ActivePods(pods))
	fmt.Println(pods[0].Name, pods[1].Name, pods[2].Name)
	// Output: web-g web-d web-c
}

func ExampleParseDeletionCost() {
	annotations := map[string]string{}
	for _, cost := range []string{"-100", "008"} {
		annotations[corev1.PodDeletionCost] = cost
		fmt.Println(podrank.ParseDeletionCost(annotations))
	}
	// Output:
	// -100 <nil>
	// 0 podrank: deletion cost "008" is not a decimal number of 32 bits
}

// A Machine is an example of a custom resource.
type Machine struct {
	metav1.ObjectMeta
	Priority int
	Phase    string
	Node     string
}

func machines() []*Machine {
	created := func(hour int) metav1.Time {
		return metav1.NewTime(time.Date(2026, time.May, 4, hour, 0, 0, 0, time.UTC))
	}
	return []*Machine{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: created(1)}, Priority: 3, Phase: "Running", Node: "node-1"},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", CreationTimestamp: created(2)}, Priority: 3, Phase: "Failed", Node: "node-2"},
		{ObjectMeta: metav1.ObjectMeta{Name: "c", CreationTimestamp: created(3)}, Priority: 1, Phase: "Running", Node: "node-1"},
		{ObjectMeta: metav1.ObjectMeta{Name: "d", CreationTimestamp: created(4), Labels: map[string]string{"revision": "v1"}}, Priority: 3, Phase: "Running", Node: "node-1"},
		{ObjectMeta: metav1.ObjectMeta{Name: "e", CreationTimestamp: created(5)}, Priority: 9, Phase: "Running", Node: "node-1"},
	}
}

// Machines are deleted by priority, as in a group of a cluster autoscaler. Machines that are marked for deletion
// go first, regardless of the order.
func ExampleNewOrder() {
	order, err := podrank.NewOrder(
		podrank.By("priority", func(m *Machine) int { return m.Priority }),
		podrank.First("failed", func(m *Machine) bool { return m.Phase == "Failed" }),
		podrank.Newest[*Machine](),
	)
	victims := podrank.Select(machines(), 4, podrank.Options[*Machine]{
		Order:  order,
		MustGo: func(m *Machine) bool { return m.Name == "e" },
	})
	for _, v := range victims {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	fmt.Println(err)
	// Output:
	// e: must go
	// c: priority 1 < 3
	// b: failed
	// d: creation time 2026-05-04T04:00:00Z > 2026-05-04T01:00:00Z
	// <nil>
}

// For this custom resource, objects that are not ready go first, and then the newest objects.
func ExampleFirst() {
	order := podrank.Must(podrank.NewOrder(
		podrank.First("not ready", func(m *Machine) bool { return m.Phase != "Running" }),
		podrank.Newest[*Machine](),
	))
	for _, v := range podrank.Explain(machines(), podrank.Options[*Machine]{Order: order, Now: now})[:2] {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	// Output:
	// b: not ready
	// e: age 7h < 8h
}

// A batch scheduler has workers with ordinals. Workers on cordoned nodes go first, and then workers that are not
// ready. The next criteria are the earliest deadline and the highest ordinal. An order can mix ready-made criteria
// for pods with your own criteria.
func ExampleBy() {
	cordoned := map[string]bool{"node-2": true}
	order := podrank.Must(podrank.NewOrder(
		podrank.NodeLeaving(func(node string) bool { return cordoned[node] }),
		podrank.NotReady(),
		podrank.By("deadline", func(p *corev1.Pod) string { return p.Annotations["example.com/deadline"] }),
		podrank.By("ordinal", func(p *corev1.Pod) int {
			ordinal, _ := strconv.Atoi(p.Name[strings.LastIndex(p.Name, "-")+1:])
			return ordinal
		}).Reverse(),
	))
	pods := []*corev1.Pod{replica("worker-0", "node-1", 0), replica("worker-9", "node-1", 0), replica("worker-10", "node-1", 0), replica("worker-1", "node-2", 0)}
	for _, v := range podrank.Select(pods, 2, podrank.PodOptions{Order: order}) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	// Output:
	// worker-1: node is leaving
	// worker-10: ordinal 10 > 9
}

// Build workers with an older Go go first. As strings, go1.9 would come after go1.26, and there is a function that
// compares two versions.
func ExampleByComparison() {
	order := podrank.Must(podrank.NewOrder(podrank.ByComparison("oldest Go", func(a, b *corev1.Pod) int {
		return version.Compare(a.Labels["go"], b.Labels["go"])
	})))
	var pods []*corev1.Pod
	for _, installed := range []string{"go1.26", "go1.9", "go1.25.3"} {
		pod := replica("worker-"+installed, "node-1", time.Hour)
		pod.Labels = map[string]string{"go": installed}
		pods = append(pods, pod)
	}
	for _, v := range podrank.Select(pods, 2, podrank.PodOptions{Order: order}) {
		fmt.Printf("%s goes, %s\n", v.Object.Name, v.Explain())
	}
	// Output:
	// worker-go1.9 goes, oldest Go: before default/worker-go1.26
	// worker-go1.25.3 goes, oldest Go: before default/worker-go1.26
}

// As in OpenKruise's CloneSet, pods of an old revision go first. The other criteria are those of Kubernetes'
// order, with one more criterion that keeps the zones balanced.
func ExampleOrder_Before() {
	zones := map[string]string{"node-1": "eu-1a", "node-2": "eu-1a", "node-3": "eu-1b", "node-4": "eu-1b", "node-5": "eu-1c"}
	order, err := podrank.Kubernetes().Before("unassigned", podrank.OldRevision[*corev1.Pod]("controller-revision-hash", "web-7f9"))
	if err == nil {
		order, err = order.Before("colocation", podrank.Topology("zone", zones))
	}
	pods := fleet()
	for _, p := range pods[1:] {
		p.Labels = map[string]string{"controller-revision-hash": "web-7f9"}
	}
	for _, v := range podrank.Select(pods, 4, podrank.PodOptions{Now: now, Related: pods, Order: order}) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	fmt.Println(err)
	// Output:
	// web-a: revision none, not web-7f9
	// web-g: not ready
	// web-h: deletion cost -100 < 0
	// web-c: 4 in eu-1a > 3 in eu-1a
	// <nil>
}

// An order can leave out the deletion cost.
func ExampleOrder_Without() {
	order, err := podrank.Kubernetes().Without("deletion-cost")
	fmt.Println(order, err)
	// Output:
	// unassigned, phase, not-ready, colocation, ready-time, restarts, sidecar-restarts, creation-time <nil>
}

// The remaining machines stay evenly spread over the nodes.
func ExampleSpread() {
	order := podrank.Must(podrank.NewOrder(podrank.Spread("node", func(m *Machine) string { return m.Node })))
	for _, v := range podrank.Select(machines(), 2, podrank.Options[*Machine]{Order: order}) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	// Output:
	// a: 4 in node-1 > 2 in node-1
	// c: 3 in node-1 > 2 in node-1
}

// The remaining machines are packed onto few nodes.
func ExamplePacked() {
	order := podrank.Must(podrank.NewOrder(podrank.Packed("node", func(m *Machine) string { return m.Node })))
	for _, v := range podrank.Select(machines(), 1, podrank.Options[*Machine]{Order: order}) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	// Output:
	// b: 1 in node-2 < 4 in node-1
}

// Explain returns all pods in the order of deletion, each with the criterion that decides between the pod and the
// next one.
func ExampleExplain() {
	pods := fleet()
	for _, v := range podrank.Explain(pods, podrank.PodOptions{Now: now, Related: pods}) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	// Output:
	// web-g: not ready
	// web-h: deletion cost -100 < 0
	// web-c: ready for 2h < 48h
	// web-a: UID uid-of-web-a < uid-of-web-b
	// web-b: 3 replicas on node-1
	// web-d: ready for 5m < 48h
	// web-e: 2 replicas on node-2
	// web-f: all go
}

// A deletion cost that is not a number counts as 0, and Check returns an error for it.
func ExampleCheck() {
	pods := fleet()
	pods[0].Annotations = map[string]string{corev1.PodDeletionCost: "high"}
	fmt.Println(podrank.Check(pods, podrank.PodOptions{}))
	// Output:
	// podrank: "default/web-a": criterion "deletion-cost": annotation "controller.kubernetes.io/pod-deletion-cost": "high" is not a decimal number of 32 bits
}

// The example contains all criteria of Kubernetes' order. To make your own order, remove some criteria or insert
// others.
func ExampleKubernetes() {
	order, err := podrank.NewOrder(
		podrank.Unassigned(),
		podrank.Phase(),
		podrank.NotReady(),
		podrank.DeletionCost(),
		podrank.Colocation(),
		podrank.ReadyTime(),
		podrank.Restarts(),
		podrank.SidecarRestarts(),
		podrank.CreationTime(),
	)
	fmt.Println(order.String() == podrank.Kubernetes().String(), err)
	// Output: true <nil>
}

// Machines are paid for by the hour. The machine with the earliest end of its current hour goes first.
func ExampleByTime() {
	order := podrank.Must(podrank.NewOrder(
		podrank.ByTime("hour ends", func(m *Machine) time.Time {
			age := now.Sub(m.CreationTimestamp.Time)
			return m.CreationTimestamp.Add(age.Truncate(time.Hour) + time.Hour)
		}),
	))
	pool := machines()[:3]
	pool[1].CreationTimestamp.Time = pool[1].CreationTimestamp.Add(20 * time.Minute)
	for _, v := range podrank.Select(pool, 1, podrank.Options[*Machine]{Order: order, Now: now}) {
		fmt.Println(v.Object.Name)
	}
	// Output: b
}

// Machines work in groups. An incomplete group does no work, so its machines go first. To find the incomplete
// groups, a criterion must know all machines.
func ExampleByFacts() {
	const complete = 4
	group := func(m *Machine) string { return m.Node }
	incomplete := podrank.ByFacts("missing in its group", func(facts podrank.Facts[*Machine]) func(*Machine) int {
		size := map[string]int{}
		for _, m := range facts.Objects {
			size[group(m)]++
		}
		return func(m *Machine) int { return complete - size[group(m)] }
	}).Reverse()
	order := podrank.Must(podrank.NewOrder(incomplete, podrank.Newest[*Machine]()))
	for _, v := range podrank.Select(machines(), 2, podrank.Options[*Machine]{Order: order, Now: now}) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	// Output:
	// b: missing in its group 3 > 0
	// e: age 7h < 8h
}

// Objects that are not pods can have a cost in your own annotation. If costs are equal, the oldest object goes
// first. Check returns an error for each cost that is not a number.
func ExampleCost() {
	order := podrank.Must(podrank.NewOrder(
		podrank.Cost[*Machine]("cost", "example.com/cost"),
		podrank.Oldest[*Machine](),
	))
	pool := machines()[:3]
	pool[0].Annotations = map[string]string{"example.com/cost": "cheap"}
	pool[2].Annotations = map[string]string{"example.com/cost": "-5"}
	opts := podrank.Options[*Machine]{Order: order, Now: now}
	for _, v := range podrank.Select(pool, 2, opts) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	fmt.Println(podrank.Check(pool, opts))
	// Output:
	// c: cost -5 < 0
	// a: age 11h > 10h
	// podrank: "a": criterion "cost": annotation "example.com/cost": "cheap" is not a decimal number of 32 bits
}

// In a rolling update, pods of an old revision go first. Among these pods, the pods that are not available go
// first.
func ExampleOldRevision() {
	order := podrank.Must(podrank.NewOrder(
		podrank.OldRevision[*corev1.Pod]("pod-template-hash", "7f9"),
		podrank.NotAvailable(60),
	))
	pods := []*corev1.Pod{
		replica("old", "node-1", time.Hour),
		replica("old-starting", "node-1", 10*time.Second),
		replica("new-starting", "node-1", 10*time.Second),
	}
	for i, hash := range []string{"5d8", "5d8", "7f9"} {
		pods[i].Labels = map[string]string{"pod-template-hash": hash}
	}
	for _, v := range podrank.Select(pods, 2, podrank.PodOptions{Order: order, Now: now}) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	// Output:
	// old-starting: revision 5d8, not 7f9
	// old: revision 5d8, not 7f9
}

// A pod is available after it has been ready for minReadySeconds. In this example, minReadySeconds is 60.
func ExampleNotAvailable() {
	order := podrank.Must(podrank.NewOrder(podrank.NotAvailable(60)))
	pods := []*corev1.Pod{replica("steady", "node-1", time.Hour), replica("fresh", "node-1", 10*time.Second)}
	for _, v := range podrank.Select(pods, 1, podrank.PodOptions{Order: order, Now: now}) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	// Output: fresh: not available
}

// Pods on drained nodes go before all other pods, regardless of Kubernetes' order.
func ExampleNodeLeaving() {
	drained := map[string]bool{"node-3": true}
	leaving := podrank.NodeLeaving(func(node string) bool { return drained[node] })
	order, err := podrank.Kubernetes().Before("unassigned", leaving)
	for _, v := range podrank.Select(fleet(), 2, podrank.PodOptions{Order: order, Now: now}) {
		fmt.Printf("%s on %s: %s\n", v.Object.Name, v.Object.Spec.NodeName, v.Explain())
	}
	fmt.Println(err)
	// Output:
	// web-f on node-3: node is leaving
	// web-g on node-4: not ready
	// <nil>
}

// The remaining pods are evenly spread over the zones. If the node of a pod has no zone, Check returns an error
// for this pod.
func ExampleTopology() {
	zones := map[string]string{"node-1": "eu-1a", "node-2": "eu-1b", "node-3": "eu-1b", "node-4": "eu-1b"}
	order := podrank.Must(podrank.NewOrder(podrank.Topology("zone", zones)))
	opts := podrank.PodOptions{Order: order}
	for _, v := range podrank.Select(fleet(), 1, opts) {
		fmt.Printf("%s: %s\n", v.Object.Name, v.Explain())
	}
	fmt.Println(podrank.Check(fleet(), opts))
	// Output:
	// web-d: 4 in eu-1b > 3 in eu-1a
	// podrank: "default/web-h": criterion "zone": node "node-5" has no value
}

func ExampleParseOrder() {
	order, err := podrank.ParseOrder("packed", nil)
	fmt.Println(order, err)
	for _, v := range podrank.Select(fleet(), 3, podrank.PodOptions{Order: order}) {
		fmt.Println(v.Object.Name, v.Object.Spec.NodeName, v.Explain())
	}
	_, err = podrank.ParseOrder("pack", nil)
	fmt.Println(err)
	// Output:
	// unassigned, phase, not-ready, packed, deletion-cost, colocation, ready-time, restarts, sidecar-restarts, creation-time <nil>
	// web-g node-4 not ready
	// web-f node-3 1 in node-3 < 2 in node-2
	// web-h node-5 1 in node-5 < 2 in node-2
	// podrank: order "pack": "pack" is not one of deletion-cost, kubernetes, leaving, newest, packed, zones
}

func ExampleOrderWords() {
	fmt.Println(podrank.OrderWords())
	// Output: [deletion-cost kubernetes leaving newest packed zones]
}
