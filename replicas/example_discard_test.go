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
