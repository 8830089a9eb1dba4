// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	kit "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
	ours "github.com/replicakit/replicakit/status"
)

// ReplicaSetControllerFeatures holds the features in which the controllers of ReplicaSets and
// ReplicationControllers differ.
type ReplicaSetControllerFeatures struct{ EnableStatusTerminatingReplicas bool }

// DefaultReplicaSetControllerFeatures returns the features for ReplicaSets.
func DefaultReplicaSetControllerFeatures() ReplicaSetControllerFeatures {
	return ReplicaSetControllerFeatures{EnableStatusTerminatingReplicas: true}
}

// GetCondition calls our status.GetCondition.
func GetCondition(status appsv1.ReplicaSetStatus, conditionType appsv1.ReplicaSetConditionType) *appsv1.ReplicaSetCondition {
	return ours.GetCondition(status.Conditions, conditionType)
}

// SetCondition calls our status.SetCondition.
func SetCondition(status *appsv1.ReplicaSetStatus, condition appsv1.ReplicaSetCondition) {
	ours.SetCondition(&status.Conditions, condition)
}

// RemoveCondition calls our status.RemoveCondition.
func RemoveCondition(status *appsv1.ReplicaSetStatus, conditionType appsv1.ReplicaSetConditionType) {
	ours.RemoveCondition(&status.Conditions, conditionType)
}

// calculateStatus calls our status.Calculate, and passes the feature gate as an option.
func calculateStatus(rs *appsv1.ReplicaSet, active, terminating []*corev1.Pod, manageErr error, with ReplicaSetControllerFeatures, now time.Time) appsv1.ReplicaSetStatus {
	return ours.Calculate(rs, active, ours.Options{
		Terminating:     terminating,
		OmitTerminating: omitTerminating(with),
		ManageErr:       manageErr,
		Now:             now,
	})
}

func omitTerminating(with ReplicaSetControllerFeatures) bool {
	return !with.EnableStatusTerminatingReplicas || !utilfeature.DefaultFeatureGate.Enabled(features.DeploymentReplicaSetTerminatingReplicas)
}

// slowStartBatch calls our slowstart.Run, and returns one of the errors, as Kubernetes does.
func slowStartBatch(count, initialBatchSize int, fn func() error) (int, error) {
	opts := slowstart.Options{InitialBatchSize: initialBatchSize}
	result := slowstart.Run(context.Background(), count, opts, func(context.Context, int) error { return fn() })
	if len(result.Failed) > 0 {
		return len(result.Succeeded), result.Failed[0].Err
	}
	return len(result.Succeeded), result.Err
}

// getPodsToDelete calls our podrank.Select.
func getPodsToDelete(pods, related []*corev1.Pod, n int) []*corev1.Pod {
	victims := []*corev1.Pod{}
	for _, victim := range podrank.Select(pods, n, podrank.PodOptions{Now: time.Now(), Related: related}) {
		victims = append(victims, victim.Object)
	}
	return victims
}

// A setClient makes the API calls of our controller for ReplicaSets.
type setClient = kit.Client[*appsv1.ReplicaSet, *corev1.Pod]

// typedClient reads ReplicaSets and patches their status for our controller.
type typedClient struct {
	setClient
	replicaSets func(namespace string) typedappsv1.ReplicaSetInterface
}

func clientOf(replicaSets func(namespace string) typedappsv1.ReplicaSetInterface) setClient {
	return typedClient{replicaSets: replicaSets}
}

func (c typedClient) GetOwner(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return c.replicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c typedClient) PatchStatus(ctx context.Context, rs *appsv1.ReplicaSet, patch selector.Patch) (*appsv1.ReplicaSet, error) {
	return c.replicaSets(rs.Namespace).Patch(ctx, rs.Name, patch.Type, patch.Data, metav1.PatchOptions{}, "status")
}

// A statusView is a cache with one ReplicaSet and its pods.
type statusView struct {
	listers
	rs   *appsv1.ReplicaSet
	pods []*corev1.Pod
}

func (v statusView) Owner(context.Context, types.NamespacedName) (*appsv1.ReplicaSet, error) {
	return v.rs, nil
}

func (v statusView) Children(context.Context, *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return v.pods, nil
}

// updateReplicaSetStatus makes our controller run one pass for the ReplicaSet. The cache contains exactly
// newStatus.Replicas pods of the ReplicaSet, so the pass only writes the status.
func updateReplicaSetStatus(_ klog.Logger, client typedappsv1.ReplicaSetInterface, rs *appsv1.ReplicaSet, newStatus appsv1.ReplicaSetStatus, with ReplicaSetControllerFeatures) (*appsv1.ReplicaSet, error) {
	view := statusView{rs: stored(rs)}
	view.pods = make([]*corev1.Pod, newStatus.Replicas)
	for i := range view.pods {
		view.pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: rs.Namespace, Name: strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), Labels: view.rs.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		}}
	}
	kind := kit.ReplicaSets()
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		spec, err := replicas.ReplicaSetSpec(rs)
		spec.Replicas = newStatus.Replicas
		return spec, err
	}
	calculate := kind.Status
	kind.Status = func(rs *appsv1.ReplicaSet, outcome kit.Outcome[*corev1.Pod]) error {
		err := calculate(rs, outcome)
		if omitTerminating(with) {
			rs.Status.TerminatingReplicas = nil
		}
		return err
	}
	clients := clientOf(func(string) typedappsv1.ReplicaSetInterface { return client })
	ours, err := kit.New(kind, clients, view, func(types.NamespacedName, time.Duration) {}, kit.Options{})
	if err != nil {
		return nil, err
	}
	_, err = ours.Sync(context.Background(), types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name})
	return rs, err
}
