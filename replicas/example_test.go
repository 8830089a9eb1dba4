// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

// A ReplicaSet wants two pods. It has a ready pod, an unready pod, and a pod with a low deletion cost. The selector of
// the ReplicaSet also matches an orphan.
func ExampleManage() {
	rs := replicastest.NewReplicaSet("default", "web", 2)
	pods := []*corev1.Pod{
		replicastest.NewPod(rs, "web-a"),
		replicastest.Unready(replicastest.NewPod(rs, "web-b")),
		replicastest.WithCost(replicastest.NewPod(rs, "web-c"), -100),
		replicastest.Orphan(replicastest.NewPod(rs, "stray")),
	}

	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Facts.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	plan, err := replicas.Manage(pods, spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan)
	// Output:
	// adopt 1: default/stray; delete 2: default/web-b (not ready), default/web-c (deletion cost -100 < 0)
}

// If an adoption fails, the orphan must not count as a replica. ScaleTo then computes a new Scale for the pods
// that the owner really has.
func ExampleScaleTo() {
	rs := replicastest.NewReplicaSet("default", "web", 2)
	pods := []*corev1.Pod{replicastest.NewPod(rs, "web-a"), replicastest.Orphan(replicastest.NewPod(rs, "stray"))}
	spec, _ := replicas.ReplicaSetSpec(rs)
	spec.Facts.Now = time.Now()
	plan, _ := replicas.Manage(pods, spec)
	fmt.Println(plan)

	adoptionFailed := true
	if adoptionFailed {
		scale, _ := replicas.ScaleTo(plan.Claims.Owned, spec)
		fmt.Println(scale)
	}
	// Output:
	// adopt 1: default/stray
	// create 1
}

// Explain shows in which order a scale-down would delete the pods. For each pod, it shows the criterion that ranks
// this pod before the next one.
func ExampleExplain() {
	rs := replicastest.NewReplicaSet("default", "web", 3)
	pods := []*corev1.Pod{
		replicastest.NewPod(rs, "web-a"),
		replicastest.Unready(replicastest.NewPod(rs, "web-b")),
		replicastest.WithCost(replicastest.NewPod(rs, "web-c"), -100),
	}
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Facts.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	order, err := replicas.Explain(pods, spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, next := range order {
		fmt.Printf("%d. %s: %s\n", i+1, next.Object.Name, next.Explain())
	}
	// Output:
	// 1. web-b: not ready
	// 2. web-c: deletion cost -100 < 0
	// 3. web-a: all go
}

// PodFromTemplate returns a pod as a ReplicaSet would create it. The caller must set the namespace.
func ExamplePodFromTemplate() {
	rs := replicastest.NewReplicaSet("default", "web", 3)
	pod, err := replicas.PodFromTemplate(&rs.Spec.Template, rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	if err != nil {
		fmt.Println(err)
		return
	}
	pod.Namespace = rs.Namespace
	fmt.Println(pod.GenerateName, pod.Labels, metav1.IsControlledBy(pod, rs))
	// Output: web- map[app:web] true
}

// During a rollout, a Deployment has two ReplicaSets. When a pod is chosen for deletion, the pods of both
// ReplicaSets count as the load of a node. Both ReplicaSets have a pod on node-2. So the old ReplicaSet deletes
// its pod on node-2.
func ExampleRelated() {
	before, after := replicastest.NewReplicaSet("default", "web-5d8", 1), replicastest.NewReplicaSet("default", "web-7f9", 1)
	onNode := func(pod *corev1.Pod, node string) *corev1.Pod {
		pod.Spec.NodeName = node
		return pod
	}
	old := []*corev1.Pod{
		onNode(replicastest.NewPod(before, "web-5d8-a"), "node-1"),
		onNode(replicastest.NewPod(before, "web-5d8-b"), "node-2"),
	}
	all := []*corev1.Pod{old[0], old[1], onNode(replicastest.NewPod(after, "web-7f9-a"), "node-2")}

	spec, err := replicas.ReplicaSetSpec(before)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Facts.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	spec.Facts.Related = func() []*corev1.Pod {
		return replicas.Related(before, []*appsv1.ReplicaSet{before, after}, selector.ForReplicaSet, all)
	}
	fmt.Println(replicas.Manage(old, spec))
	// Output:
	// delete 1: default/web-5d8-b (2 replicas on node-2) <nil>
}

// A ReplicationController wants two pods and has one, so the plan creates one pod.
func ExampleReplicationControllerSpec() {
	two := int32(2)
	app := map[string]string{"app": "web"}
	rc := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &two,
			Selector: app,
			Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}},
		},
	}
	pod := replicastest.NewPod(nil, "web-a")
	pod.Labels = app
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rc, corev1.SchemeGroupVersion.WithKind("ReplicationController"))}

	spec, err := replicas.ReplicationControllerSpec(rc)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Facts.Now = time.Now()
	plan, err := replicas.Manage([]*corev1.Pod{pod}, spec)
	fmt.Println(plan, err)
	missing, err := plan.Scale.New(0)
	fmt.Println(missing.GenerateName, missing.Labels, metav1.IsControlledBy(missing, rc), err)
	// Output:
	// create 1 <nil>
	// web- map[app:web] true <nil>
}
