package podrank_test

import (
	"encoding/json"
	"fmt"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/podrank"
)

var now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)

// replica returns a running pod that has been ready for so long.
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

// fleet returns eight pods, of which one is not ready and one is cheap to delete.
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

// The criterion and the two values are data: here as JSON.
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
	for _, value := range []string{"-100", "008"} {
		fmt.Println(podrank.ParseDeletionCost(map[string]string{corev1.PodDeletionCost: value}))
	}
	// Output:
	// -100 <nil>
	// 0 podrank: deletion cost "008" is not a decimal number of 32 bits
}
