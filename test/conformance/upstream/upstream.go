// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream gives the tests access to unexported functions and fields of Kubernetes' ReplicaSet and
// Deployment controllers. The functions are not copies. Some functions are linked to functions of
// k8s.io/kubernetes, and the others return fields. The comments give the original names.
package upstream

import (
	"context"
	"reflect"
	"time"
	"unsafe" // also for go:linkname

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	_ "k8s.io/kubernetes/pkg/controller/replication"    // for go:linkname
	"k8s.io/kubernetes/pkg/controller/util/consistency" // .ci/matrix replaces this import from 1.38 on
)

// GetPodsToDelete is getPodsToDelete of pkg/controller/replicaset. It also sorts the first slice in place.
//
//go:linkname GetPodsToDelete k8s.io/kubernetes/pkg/controller/replicaset.getPodsToDelete
func GetPodsToDelete(pods, related []*corev1.Pod, n int) []*corev1.Pod

// PodsWithRanks is getPodsRankedByRelatedPodsOnSameNode of
// pkg/controller/replicaset.
//
//go:linkname PodsWithRanks k8s.io/kubernetes/pkg/controller/replicaset.getPodsRankedByRelatedPodsOnSameNode
func PodsWithRanks(pods, related []*corev1.Pod) controller.ActivePodsWithRanks

// CalculateStatus is calculateStatus of pkg/controller/replicaset.
//
//go:linkname CalculateStatus k8s.io/kubernetes/pkg/controller/replicaset.calculateStatus
func CalculateStatus(rs *appsv1.ReplicaSet, active, terminating []*corev1.Pod, manageErr error, features replicaset.ReplicaSetControllerFeatures, now time.Time) appsv1.ReplicaSetStatus

// UpdateStatus is updateReplicaSetStatus of pkg/controller/replicaset.
//
//go:linkname UpdateStatus k8s.io/kubernetes/pkg/controller/replicaset.updateReplicaSetStatus
func UpdateStatus(logger klog.Logger, client appsclient.ReplicaSetInterface, rs *appsv1.ReplicaSet, newStatus appsv1.ReplicaSetStatus, features replicaset.ReplicaSetControllerFeatures) (*appsv1.ReplicaSet, error)

// SlowStartBatch is slowStartBatch of pkg/controller/replicaset.
//
//go:linkname SlowStartBatch k8s.io/kubernetes/pkg/controller/replicaset.slowStartBatch
func SlowStartBatch(count, initialBatchSize int, fn func() error) (int, error)

// Sync is the method syncReplicaSet of ReplicaSetController.
//
//go:linkname Sync k8s.io/kubernetes/pkg/controller/replicaset.(*ReplicaSetController).syncReplicaSet
func Sync(c *replicaset.ReplicaSetController, ctx context.Context, key string) error //nolint:revive // the receiver comes first

// ClaimPods is the method claimPods of ReplicaSetController.
//
//go:linkname ClaimPods k8s.io/kubernetes/pkg/controller/replicaset.(*ReplicaSetController).claimPods
func ClaimPods(c *replicaset.ReplicaSetController, ctx context.Context, rs *appsv1.ReplicaSet, sel labels.Selector, pods []*corev1.Pod) ([]*corev1.Pod, error) //nolint:revive // the receiver comes first

// RelatedPods is the method getIndirectlyRelatedPods of ReplicaSetController.
//
//go:linkname RelatedPods k8s.io/kubernetes/pkg/controller/replicaset.(*ReplicaSetController).getIndirectlyRelatedPods
func RelatedPods(c *replicaset.ReplicaSetController, logger klog.Logger, rs *appsv1.ReplicaSet) ([]*corev1.Pod, error)

// UpdatePod is the method updatePod of ReplicaSetController. This method handles update events of pods.
//
//go:linkname UpdatePod k8s.io/kubernetes/pkg/controller/replicaset.(*ReplicaSetController).updatePod
func UpdatePod(c *replicaset.ReplicaSetController, logger klog.Logger, old, cur any)

// AdoptPatch is ownerRefControllerPatch of pkg/controller.
//
//go:linkname AdoptPatch k8s.io/kubernetes/pkg/controller.ownerRefControllerPatch
func AdoptPatch(owner metav1.Object, kind schema.GroupVersionKind, uid types.UID, finalizers ...string) ([]byte, error)

// ToReplicaSet is convertRCtoRS of pkg/controller/replication.
//
//go:linkname ToReplicaSet k8s.io/kubernetes/pkg/controller/replication.convertRCtoRS
func ToReplicaSet(rc *corev1.ReplicationController, out *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error)

// ToReplicationController is convertRStoRC of pkg/controller/replication.
//
//go:linkname ToReplicationController k8s.io/kubernetes/pkg/controller/replication.convertRStoRC
func ToReplicationController(rs *appsv1.ReplicaSet) (*corev1.ReplicationController, error)

// ScaleDeployment is the method scale of DeploymentController.
//
//go:linkname ScaleDeployment k8s.io/kubernetes/pkg/controller/deployment.(*DeploymentController).scale
func ScaleDeployment(c *deployment.DeploymentController, ctx context.Context, d *appsv1.Deployment, newRS *appsv1.ReplicaSet, oldRSs []*appsv1.ReplicaSet) error //nolint:revive // the receiver comes first

// IsScalingEvent is the method isScalingEvent of DeploymentController.
//
//go:linkname IsScalingEvent k8s.io/kubernetes/pkg/controller/deployment.(*DeploymentController).isScalingEvent
func IsScalingEvent(c *deployment.DeploymentController, ctx context.Context, d *appsv1.Deployment, sets []*appsv1.ReplicaSet) (bool, error) //nolint:revive // the receiver comes first

// Expectations returns the field expectations of the controller.
func Expectations(c *replicaset.ReplicaSetController) *controller.UIDTrackingControllerExpectations {
	return *field[*controller.UIDTrackingControllerExpectations](c, "expectations")
}

// Queue returns a pointer to the field queue of the controller, for reading or writing.
func Queue(c *replicaset.ReplicaSetController) *workqueue.TypedRateLimitingInterface[string] {
	return field[workqueue.TypedRateLimitingInterface[string]](c, "queue")
}

// PodLister returns a pointer to the field podLister of the controller, for reading or writing.
func PodLister(c *replicaset.ReplicaSetController) *corelisters.PodLister {
	return field[corelisters.PodLister](c, "podLister")
}

// ConsistencyStore returns a pointer to the field consistencyStore of the controller, for reading or writing.
func ConsistencyStore(c *replicaset.ReplicaSetController) *Consistency {
	return field[Consistency](c, "consistencyStore")
}

// These are types of Kubernetes' package consistency, which only this file imports.
type (
	// Consistency is the store that waits until the caches show the controller's own writes.
	Consistency = consistency.ConsistencyStore
	// LastSyncRVGetter is a cache that reports its version.
	LastSyncRVGetter = consistency.LastSyncRVGetter
	// ConsistencyError names what a cache does not show yet.
	ConsistencyError = consistency.ConsistencyError
)

// NewConsistencyStore calls the function of the same name.
func NewConsistencyStore(caches map[schema.GroupResource]LastSyncRVGetter) Consistency {
	return consistency.NewConsistencyStore(caches)
}

// First returns the first argument of replicaset.NewBaseController, which is a logger. From 1.38 on it is a
// context, so .ci/matrix replaces this line.
func First(ctx context.Context) klog.Logger { return klog.FromContext(ctx) }

// NoConsistency returns a store that is always ready.
func NoConsistency() Consistency { return consistency.NewNoopConsistencyStore() }

func field[T any](c *replicaset.ReplicaSetController, name string) *T {
	v := reflect.ValueOf(c).Elem().FieldByName(name)
	return (*T)(unsafe.Pointer(v.UnsafeAddr()))
}
