// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consumer is an operator on an older release of Kubernetes' libraries
// than most of this repository uses. It is there to be built.
package consumer

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/replicas"
)

// Plan returns what is to be done about the pods of a ReplicaSet, from live
// reads.
func Plan(ctx context.Context, client kubernetes.Interface, rs cache.ObjectName, now time.Time) (replicas.PodPlan, error) {
	owner, err := client.AppsV1().ReplicaSets(rs.Namespace).Get(ctx, rs.Name, metav1.GetOptions{})
	if err != nil {
		return replicas.PodPlan{}, fmt.Errorf("reading the ReplicaSet: %w", err)
	}
	pods, err := client.CoreV1().Pods(rs.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return replicas.PodPlan{}, fmt.Errorf("listing the pods: %w", err)
	}
	return plan(owner, pods.Items, now)
}

func plan(owner *appsv1.ReplicaSet, items []corev1.Pod, now time.Time) (replicas.PodPlan, error) {
	spec, err := replicas.ReplicaSetSpec(owner)
	if err != nil {
		return replicas.PodPlan{}, err
	}
	spec.Now = now
	pods := make([]*corev1.Pod, len(items))
	for i := range items {
		pods[i] = &items[i]
	}
	return replicas.Manage(pods, spec)
}
