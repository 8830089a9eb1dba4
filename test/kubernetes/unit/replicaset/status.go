package replicaset

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/slowstart"
	ours "github.com/replicakit/replicakit/status"
)

// ReplicaSetControllerFeatures say what differs between the two kinds.
type ReplicaSetControllerFeatures struct{ EnableStatusTerminatingReplicas bool }

// DefaultReplicaSetControllerFeatures are those of ReplicaSets.
func DefaultReplicaSetControllerFeatures() ReplicaSetControllerFeatures {
	return ReplicaSetControllerFeatures{EnableStatusTerminatingReplicas: true}
}

// GetCondition calls ours.
func GetCondition(status appsv1.ReplicaSetStatus, conditionType appsv1.ReplicaSetConditionType) *appsv1.ReplicaSetCondition {
	return ours.GetCondition(status.Conditions, conditionType)
}

// SetCondition calls ours.
func SetCondition(status *appsv1.ReplicaSetStatus, condition appsv1.ReplicaSetCondition) {
	ours.SetCondition(&status.Conditions, condition)
}

// RemoveCondition calls ours.
func RemoveCondition(status *appsv1.ReplicaSetStatus, conditionType appsv1.ReplicaSetConditionType) {
	ours.RemoveCondition(&status.Conditions, conditionType)
}

// calculateStatus calls ours. The feature gate is an option there.
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

// slowStartBatch calls ours, and returns one of the errors, as Kubernetes does: ours
// joins all.
func slowStartBatch(count, initialBatchSize int, fn func() error) (int, error) {
	opts := slowstart.Options{InitialBatchSize: initialBatchSize}
	result := slowstart.Run(context.Background(), count, opts, func(context.Context, int) error { return fn() })
	if len(result.Failed) > 0 {
		return len(result.Succeeded), result.Failed[0].Err
	}
	return len(result.Succeeded), result.Err
}

// getPodsToDelete calls ours.
func getPodsToDelete(pods, related []*corev1.Pod, n int) []*corev1.Pod {
	victims := []*corev1.Pod{}
	for _, victim := range podrank.Select(pods, n, podrank.PodOptions{Now: time.Now(), Related: related}) {
		victims = append(victims, victim.Object)
	}
	return victims
}

// typedClient reads and writes ReplicaSets for our reporter.
type typedClient struct {
	replicaSets func(namespace string) typedappsv1.ReplicaSetInterface
}

func (c typedClient) Get(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return c.replicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c typedClient) GetOwner(ctx context.Context, namespace, name string) (metav1.Object, error) {
	return c.Get(ctx, namespace, name)
}

func (c typedClient) UpdateStatus(ctx context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return c.replicaSets(rs.Namespace).UpdateStatus(ctx, rs, metav1.UpdateOptions{})
}

// updateReplicaSetStatus has our reporter write a status with that many replicas.
func updateReplicaSetStatus(_ klog.Logger, client typedappsv1.ReplicaSetInterface, rs *appsv1.ReplicaSet, newStatus appsv1.ReplicaSetStatus, with ReplicaSetControllerFeatures) (*appsv1.ReplicaSet, error) {
	active := make([]*corev1.Pod, newStatus.Replicas)
	for i := range active {
		active[i] = &corev1.Pod{}
	}
	reporter := replicas.ReplicaSetReporter{
		Client:          typedClient{func(string) typedappsv1.ReplicaSetInterface { return client }},
		OmitTerminating: omitTerminating(with),
	}
	_, err := reporter.Report(context.Background(), rs, replicas.Result{Observed: true, Active: active}, nil)
	return rs, err
}
