// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
)

// The children have ordinals, as in a StatefulSet. If an ordinal below Replicas is missing, the plan creates a
// child with this ordinal. If there are too many children, the plan deletes the highest ordinals first.
func ExampleOrdinals() {
	web := map[string]string{"app": "web"}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: web},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web}},
		},
	}
	var pods []*corev1.Pod
	for _, ordinal := range []int{0, 2, 3, 10} {
		name := fmt.Sprintf("web-%d", ordinal)
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), Labels: web,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		}})
	}
	for _, want := range []int32{11, 1} {
		rs.Spec.Replicas = &want
		spec, err := replicas.ReplicaSetSpec(rs)
		if err != nil {
			fmt.Println(err)
			return
		}
		spec.Facts.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
		spec.Slots = replicas.Ordinals(rs.Name)
		plan, err := replicas.Manage(pods, spec)
		fmt.Println(plan, plan.Scale.Names, err)
	}
	// Output:
	// create 7 [web-1 web-4 web-5 web-6 web-7 web-8 web-9] <nil>
	// delete 3: default/web-10 (must go), default/web-3 (must go), default/web-2 (must go) [] <nil>
}
