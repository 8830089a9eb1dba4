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
)

// The plan that replaces a failed pod also deletes the failed pod. In Kubernetes, the ReplicaSet controller leaves
// failed pods to the garbage collector.
func ExampleRules_discard() {
	two := int32(2)
	web := map[string]string{"app": "web"}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &two,
			Selector: &metav1.LabelSelector{MatchLabels: web},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web}},
		},
	}
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Facts.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	spec.Rules.Discard = func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed }

	failed := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-x7kq2", UID: "9c2e", Labels: web,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, spec.Kind)},
		},
		Status: corev1.PodStatus{Phase: corev1.PodFailed},
	}
	plan, err := replicas.Manage([]*corev1.Pod{failed}, spec)
	fmt.Println(plan, err)
	// Output:
	// create 2; discard 1: default/web-x7kq2 <nil>
}

// If a pod has been unready for ten minutes, a plan deletes the pod. A later plan creates another pod.
func ExampleRules_readyWithin() {
	now, two := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), int32(2)
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	rs.Spec.Replicas, rs.Spec.Selector = &two, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	rs.Spec.Template.Labels = map[string]string{"app": "web"}
	pod := func(name string, ready corev1.ConditionStatus, since time.Duration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: rs.Spec.Template.Labels}}
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(now.Add(-since))}}
		return p
	}
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Facts.Now, spec.Rules.ReadyWithin = now, 10*time.Minute
	pods := []*corev1.Pod{pod("a", corev1.ConditionTrue, time.Hour), pod("b", corev1.ConditionFalse, 9*time.Minute)}
	plan, err := replicas.Manage(pods, spec)
	fmt.Println(plan, err)
	spec.Facts.Now = now.Add(time.Minute)
	plan, err = replicas.Manage(pods, spec)
	fmt.Println(plan, err)
	// Output:
	// nothing to do <nil>
	// delete 1: default/b (must go) <nil>
}
