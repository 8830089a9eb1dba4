// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var setKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// replicaSet returns a ReplicaSet whose selector and pod template have the label app=NAME.
func replicaSet(name string, replicas int) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}}},
			},
		},
	}
}

// podOf returns a pod like the pods that a controller creates for the ReplicaSet. If owned is false, the pod
// has no owner.
func podOf(rs *appsv1.ReplicaSet, owned bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: rs.Name + "-", Labels: rs.Spec.Template.Labels},
		Spec:       rs.Spec.Template.Spec,
	}
	if owned {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, setKind)}
	}
	return pod
}

// create creates a ReplicaSet and copies the server's response into the given object.
func (b *bed) create(ctx context.Context, rs *appsv1.ReplicaSet) error {
	created, err := b.client.AppsV1().ReplicaSets(namespace).Create(ctx, rs, metav1.CreateOptions{})
	if err == nil {
		*rs = *created
	}
	return err
}

// createPods creates n pods. The given function returns the ReplicaSet of pod i.
func (b *bed) createPods(ctx context.Context, n int, owned bool, of func(i int) *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, n)
	err := callAll(ctx, n, func(ctx context.Context, i int) (err error) {
		pods[i], err = b.client.CoreV1().Pods(namespace).Create(ctx, podOf(of(i), owned), metav1.CreateOptions{})
		return err
	})
	return pods, err
}

func (b *bed) scale(ctx context.Context, name string, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := b.client.AppsV1().ReplicaSets(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Before the measurement, the ReplicaSet "warm-up" makes the controller send a few calls of each kind.
const (
	warmUp     = "warm-up"
	warmUpPods = 50
)

// warmUp waits until the controller has created the pods of the ReplicaSet warm-up. Then it scales the
// ReplicaSet to 0, waits until the pods are gone, and deletes the ReplicaSet.
func (b *bed) warmUp(ctx context.Context) error {
	already := len(b.pods)
	if err := b.view.awaitCounts(ctx, "the controller", func(c counts) bool { return c.pods == already+warmUpPods }); err != nil {
		return err
	}
	if err := b.scale(ctx, warmUp, 0); err != nil {
		return err
	}
	if err := b.view.awaitCounts(ctx, "the controller", func(c counts) bool { return c.pods == already }); err != nil {
		return err
	}
	return b.forgetWarmUp(ctx)
}

func (b *bed) forgetWarmUp(ctx context.Context) error {
	sets := b.view.counts().sets
	if err := b.client.AppsV1().ReplicaSets(namespace).Delete(ctx, warmUp, metav1.DeleteOptions{}); err != nil {
		return err
	}
	already := len(b.pods)
	return b.view.awaitCounts(ctx, "the end of the warm-up", func(c counts) bool { return c.sets == sets-1 && c.pods == already })
}
