// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"time"
	_ "unsafe" // for go:linkname

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

// Kubernetes' ReplicaSet controller does not export these functions.

//go:linkname getPodsToDelete k8s.io/kubernetes/pkg/controller/replicaset.getPodsToDelete
func getPodsToDelete(pods, related []*corev1.Pod, n int) []*corev1.Pod

//go:linkname calculateStatus k8s.io/kubernetes/pkg/controller/replicaset.calculateStatus
func calculateStatus(rs *appsv1.ReplicaSet, active, terminating []*corev1.Pod, manageErr error, features replicaset.ReplicaSetControllerFeatures, now time.Time) appsv1.ReplicaSetStatus

//go:linkname slowStartBatch k8s.io/kubernetes/pkg/controller/replicaset.slowStartBatch
func slowStartBatch(count, initialBatchSize int, fn func() error) (int, error)

//go:linkname getPodKeys k8s.io/kubernetes/pkg/controller/replicaset.getPodKeys
func getPodKeys(pods []*corev1.Pod) []string

//go:linkname processNextWorkItem k8s.io/kubernetes/pkg/controller/replicaset.(*ReplicaSetController).processNextWorkItem
func processNextWorkItem(c *replicaset.ReplicaSetController, ctx context.Context) bool //nolint:revive // the receiver comes first
