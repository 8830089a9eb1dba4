// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/status"
)

var noon = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)

// examplePod returns a pod that has been ready for the given time.
func examplePod(name string, ready time.Duration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-ready))},
		}},
	}
}

func exampleReplicaSet() *appsv1.ReplicaSet {
	three := int32(3)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 2},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        &three,
			MinReadySeconds: 30,
			Template:        corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}},
		},
	}
}

func Example() {
	rs := exampleReplicaSet()
	pods := []*corev1.Pod{examplePod("web-1", time.Hour), examplePod("web-2", 10*time.Second)}
	newStatus := status.Calculate(rs, pods, status.Options{Now: noon})
	fmt.Printf("%d replicas, %d ready, %d available\n", newStatus.Replicas, newStatus.ReadyReplicas, newStatus.AvailableReplicas)
	fmt.Println("needs update:", status.NeedsUpdate(rs, newStatus))

	rs.Status = newStatus
	fmt.Println("needs update when written:", status.NeedsUpdate(rs, status.Calculate(rs, pods, status.Options{Now: noon})))
	after, ok := status.NextAvailabilityCheck(pods, rs.Spec.MinReadySeconds, noon)
	fmt.Println("look again after:", after, ok)
	// Output:
	// 2 replicas, 2 ready, 1 available
	// needs update: true
	// needs update when written: false
	// look again after: 20s true
}

// Calculate turns a failure into a condition. The condition stays while the owner waits and therefore creates and
// deletes no pods. After the first success, Calculate removes the condition.
func ExampleCalculate() {
	rs := exampleReplicaSet()
	pods := []*corev1.Pod{examplePod("web-1", time.Hour)}
	show := func(when string, opts status.Options) {
		opts.Now = noon
		rs.Status = status.Calculate(rs, pods, opts)
		if c := status.GetCondition(rs.Status.Conditions, appsv1.ReplicaSetReplicaFailure); c != nil {
			fmt.Printf("%s: %s=%s, %s: %s\n", when, c.Type, c.Status, c.Reason, c.Message)
			return
		}
		fmt.Printf("%s: no failure\n", when)
	}
	show("refused", status.Options{ManageErr: errors.New("exceeded quota")})
	show("waiting", status.Options{Waiting: true})
	show("created", status.Options{})
	// Output:
	// refused: ReplicaFailure=True, FailedCreate: exceeded quota
	// waiting: ReplicaFailure=True, FailedCreate: exceeded quota
	// created: no failure
}

func ExampleCalculateReplicationController() {
	one := int32(1)
	rc := &corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Replicas: &one}}
	newStatus := status.CalculateReplicationController(rc, []*corev1.Pod{examplePod("web-1", time.Hour)}, status.Options{Now: noon})
	fmt.Printf("%d replicas, %d ready, %d available\n", newStatus.Replicas, newStatus.ReadyReplicas, newStatus.AvailableReplicas)
	fmt.Println("needs update:", status.NeedsUpdateReplicationController(rc, newStatus))
	// Output:
	// 1 replicas, 1 ready, 1 available
	// needs update: true
}

// The filters select the pods that belong to an owner, and then the active pods and the terminating pods.
func ExampleFilterActivePods() {
	rs := exampleReplicaSet()
	rs.UID = "4a1f"
	owned := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		pod := examplePod(name, time.Hour)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		change(pod)
		return pod
	}
	deleted := metav1.NewTime(noon)
	pods := []*corev1.Pod{
		owned("runs", func(*corev1.Pod) {}),
		owned("ends", func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }),
		owned("failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		examplePod("of somebody else", time.Hour),
	}
	claimed := status.FilterClaimedPods(rs, labels.SelectorFromSet(labels.Set{"app": "web"}), pods)
	fmt.Println("claimed", len(claimed))
	for _, p := range status.FilterActivePods(claimed) {
		fmt.Println("active:", p.Name, "ready:", status.IsPodReady(p))
	}
	for _, p := range status.FilterTerminatingPods(claimed) {
		fmt.Println("terminating:", p.Name, status.IsPodTerminating(p))
	}
	// Output:
	// claimed 3
	// active: runs ready: true
	// terminating: ends true
}

// The children of your own kind can be pods. The counts of pods are then the same as in the status of a
// ReplicaSet. SetCondition and RemoveCondition change the conditions.
func ExampleCountPods() {
	pods := []*corev1.Pod{examplePod("web-1", time.Hour), examplePod("web-2", 10*time.Second)}
	n := status.CountPods(pods, nil, 30, noon)
	fmt.Printf("%d replicas, %d ready, %d available\n", n.Replicas, n.Ready, n.Available)

	var conditions []metav1.Condition // the conditions in your status
	progressing := metav1.Condition{Type: "Progressing", Status: metav1.ConditionFalse, Reason: "WaitingForPods", LastTransitionTime: metav1.NewTime(noon)}
	if n.Available < 2 {
		progressing.Status = metav1.ConditionTrue
	}
	status.SetCondition(&conditions, progressing)
	fmt.Println(conditions[0].Type, conditions[0].Status)
	status.RemoveCondition(&conditions, "Progressing")
	fmt.Println(len(conditions), "left")
	// Output:
	// 2 replicas, 2 ready, 1 available
	// Progressing True
	// 0 left
}

// Your own condition type can be any struct with the usual fields.
func ExampleNewConditions() {
	type PoolCondition struct {
		Type, Status       string
		LastTransitionTime metav1.Time
		Reason, Message    string
	}
	conditions := status.Must(status.NewConditions[PoolCondition]())

	var list []PoolCondition // the conditions in your status
	wanted := int32(3)
	conditions.SetFailure(&list, status.Failure{Err: errors.New("exceeded quota"), Active: 2, Desired: &wanted, Now: noon})
	c := conditions.Get(list, status.ReplicaFailure)
	fmt.Println(c.Type, c.Status, c.Reason, c.Message)

	conditions.SetFailure(&list, status.Failure{Active: 3, Desired: &wanted, Now: noon})
	fmt.Println(len(list), "left")
	// Output:
	// ReplicaFailure True FailedCreate exceeded quota
	// 0 left
}

// A pod becomes available at the exact time at which minReadySeconds have passed.
func ExampleIsPodAvailable() {
	pod := examplePod("web-1", 30*time.Second)
	fmt.Println(status.IsPodAvailable(pod, 30, noon))
	fmt.Println(status.IsPodAvailable(pod, 31, noon))
	// Output:
	// true
	// false
}

func ExampleNextAvailabilityCheck() {
	pods := []*corev1.Pod{examplePod("web-1", 4*time.Second), examplePod("web-2", 7*time.Second)}
	fmt.Println(status.NextAvailabilityCheck(pods, 10, noon))
	fmt.Println(status.NextAvailabilityCheck(pods, 4, noon))
	// Output:
	// 3s true
	// 0s false
}

// Your own status type can have the same counts and the same condition as the status of a ReplicaSet.
func ExampleSetFailure() {
	type Worker struct {
		metav1.ObjectMeta
		Ready bool
	}
	var own struct { // the status of a WorkerPool
		Replicas, ReadyReplicas int32
		Conditions              []metav1.Condition
	}
	workers := []*Worker{{Ready: true}, {Ready: true}, {Ready: false}}
	n := status.Count(workers, status.Rules[*Worker]{Ready: func(w *Worker) bool { return w.Ready }})
	own.Replicas, own.ReadyReplicas = n.Replicas, n.Ready

	wanted := int32(5)
	status.SetFailure(&own.Conditions, status.Failure{Err: errors.New("exceeded quota"), Active: n.Replicas, Desired: &wanted, Now: noon})
	fmt.Printf("%d replicas, %d ready\n", own.Replicas, own.ReadyReplicas)
	fmt.Println(own.Conditions[0].Type, own.Conditions[0].Reason, own.Conditions[0].Message)
	// Output:
	// 3 replicas, 2 ready
	// ReplicaFailure FailedCreate exceeded quota
}
