// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status computes the status of an owner: what it reports about its replicas, whether a
// write is needed, and when to calculate again. Use Calculate and NeedsUpdate for ReplicaSets and
// ReplicationControllers, and Count, CountPods and SetFailure for a status type of your own.
//
// The caller reads the pods, claims them and writes the status:
//
//	newStatus := status.Calculate(rs, active, status.Options{Terminating: owned, ManageErr: err, Now: now})
//	if status.NeedsUpdate(rs, newStatus) {
//		rs = rs.DeepCopy()
//		rs.Status = newStatus
//		_, err = client.UpdateStatus(ctx, rs, metav1.UpdateOptions{})
//	}
//
// The rules are those of calculateStatus in Kubernetes'
// pkg/controller/replicaset/replica_set_utils.go.
//
// Differs from Kubernetes: the ReplicaFailure condition changes with the reason of the failure and
// stays while nothing is tried; its time is Options.Now; nil replicas do not panic; and there is no
// check for pods without a transition time.
package status

import (
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/internal/replicaset"
)

// Options are what Calculate needs in addition to the owner and its active pods. With the zero
// value no pod is terminating and nothing failed. No pod is available if minReadySeconds is
// positive, since Now is the zero time.
type Options struct {
	// Terminating is any list that holds the owner's terminating pods, such as all pods that were
	// listed, of any namespaces. A pod counts if IsPodTerminating is true, it is in the owner's
	// namespace, its controller reference has the owner's UID, and the owner's selector matches it.
	// A nil or invalid selector matches none. If the owner has no namespace, as in tests, pods of
	// all namespaces count. A ReplicationController does not report terminating pods.
	Terminating []*corev1.Pod

	// OmitTerminating leaves terminatingReplicas nil, even if the old status has a
	// value. Use it for servers that drop the field.
	OmitTerminating bool

	// Waiting says that nothing was tried because the owner waits for its earlier creations and
	// deletions. See Failure.
	Waiting bool

	// ManageErr is the error of creating or deleting pods, or nil. It becomes the
	// ReplicaFailure condition.
	ManageErr error

	// Now is the instant for which availability is decided, and the time of a
	// condition that is set. Pass the same to NextAvailabilityCheck.
	Now time.Time
}

// Calculate returns the status of a ReplicaSet that owns these active pods.
//
// The counts are those of CountPods, which leaves out pods that are not active. Kubernetes passes
// the pods as they were before it created or deleted any, so its status is one pass behind. If
// minReadySeconds is negative, a ready pod is available only if its Ready condition has a
// transition time.
//
// The ReplicaFailure condition is that of SetFailure. observedGeneration is the generation of rs.
// Everything else is copied from the status of rs. The result shares no memory with rs, and neither
// rs nor a pod is changed. If rs is nil, the status is zero.
//
// Differs from Kubernetes: the ReplicaFailure condition changes with the reason of the failure, and
// stays while Waiting; see SetFailure. Pods that are not active are not counted, even if they are
// in the list.
func Calculate(rs *appsv1.ReplicaSet, active []*corev1.Pod, opts Options) appsv1.ReplicaSetStatus {
	if rs == nil {
		return appsv1.ReplicaSetStatus{}
	}
	n := CountPods(active, rs.Spec.Template.Labels, rs.Spec.MinReadySeconds, opts.Now)
	status := rs.Status
	status.Replicas, status.FullyLabeledReplicas = n.Replicas, n.FullyLabeled
	status.ReadyReplicas, status.AvailableReplicas = n.Ready, n.Available
	*replicaset.Terminating(&status) = terminatingReplicas(rs, opts)
	status.ObservedGeneration = rs.Generation
	status.Conditions = slices.Clone(rs.Status.Conditions)
	SetFailure(&status.Conditions, opts.failure(n.Replicas, rs.Spec.Replicas))
	return status
}

// CalculateReplicationController is Calculate for a ReplicationController, whose
// status has no terminatingReplicas. A nil template has no labels.
func CalculateReplicationController(rc *corev1.ReplicationController, active []*corev1.Pod, opts Options) corev1.ReplicationControllerStatus {
	if rc == nil {
		return corev1.ReplicationControllerStatus{}
	}
	var template map[string]string
	if rc.Spec.Template != nil {
		template = rc.Spec.Template.Labels
	}
	n := CountPods(active, template, rc.Spec.MinReadySeconds, opts.Now)
	status := rc.Status
	status.Replicas, status.FullyLabeledReplicas = n.Replicas, n.FullyLabeled
	status.ReadyReplicas, status.AvailableReplicas = n.Ready, n.Available
	status.ObservedGeneration = rc.Generation
	status.Conditions = slices.Clone(rc.Status.Conditions)
	SetFailure(&status.Conditions, opts.failure(n.Replicas, rc.Spec.Replicas))
	return status
}

func (o Options) failure(active int32, desired *int32) Failure {
	return Failure{Err: o.ManageErr, Waiting: o.Waiting, Active: active, Desired: desired, Now: o.Now}
}

// terminatingReplicas counts the pods that are the ReplicaSet's own and
// terminating (T8, T9).
func terminatingReplicas(rs *appsv1.ReplicaSet, opts Options) *int32 {
	if opts.OmitTerminating {
		return nil
	}
	n := new(int32)
	if rs.Spec.Selector == nil {
		return n
	}
	// Match labels are listed apart, because parsing them costs more than matching them.
	matchLabels := object.ListLabels(rs.Spec.Selector.MatchLabels)
	matchExpressions, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: rs.Spec.Selector.MatchExpressions})
	if err != nil {
		return n
	}
	owner := object.OwnerOf(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind())
	for _, p := range opts.Terminating {
		if pod.IsTerminating(p) && owner.Controls(p) && owner.Reaches(p) && matchLabels.In(p.Labels) && matchExpressions.Matches(labels.Set(p.Labels)) {
			*n++
		}
	}
	return n
}

// NeedsUpdate reports whether a calculated status must be written. It must if it differs from the
// status of rs, or if the observedGeneration of that status is not the generation of rs. For
// terminatingReplicas, nil and 0 differ, and so do nil and empty conditions. The observedGeneration
// of newStatus is not compared. If rs is nil, the answer is false.
func NeedsUpdate(rs *appsv1.ReplicaSet, newStatus appsv1.ReplicaSetStatus) bool {
	if rs == nil {
		return false
	}
	newStatus.ObservedGeneration = rs.Generation
	return !reflect.DeepEqual(&rs.Status, &newStatus)
}

// NeedsUpdateReplicationController is NeedsUpdate for a ReplicationController.
func NeedsUpdateReplicationController(rc *corev1.ReplicationController, newStatus corev1.ReplicationControllerStatus) bool {
	if rc == nil {
		return false
	}
	newStatus.ObservedGeneration = rc.Generation
	return !reflect.DeepEqual(&rc.Status, &newStatus)
}
