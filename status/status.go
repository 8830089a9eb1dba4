// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status computes the status that an owner reports about its replicas. The package also
// decides whether the status must be written, and when to calculate the status again. For
// ReplicaSets, use Calculate and NeedsUpdate. For ReplicationControllers, use
// CalculateReplicationController and NeedsUpdateReplicationController. For a status type of your
// own, use Count, CountPods and SetFailure.
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
// The rules are the same as those of calculateStatus in Kubernetes'
// pkg/controller/replicaset/replica_set_utils.go.
//
// Differs from Kubernetes: the ReplicaFailure condition changes when the reason of the failure
// changes. The condition stays while the owner waits and nothing is tried. The time of the
// condition is Options.Now. If spec.replicas is nil, nothing panics. For pods without a transition
// time, no later check is made.
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

// Options hold what Calculate needs in addition to the owner and its active pods. With the zero
// value, no pod is terminating and nothing failed. With the zero value, Now is the zero time, so no
// pod is available if minReadySeconds is positive.
type Options struct {
	// Terminating is any list that holds the owner's terminating pods, such as a list of all pods
	// in all namespaces. A pod counts if IsPodTerminating is true for the pod, the owner controls
	// the pod, and the owner's selector matches the pod. The pod must also be in the owner's
	// namespace. A nil or invalid selector matches no pod. If the owner has no namespace, as in
	// tests, pods in all namespaces count. The status of a ReplicationController does not report
	// terminating pods.
	Terminating []*corev1.Pod

	// OmitTerminating leaves terminatingReplicas nil, even if the old status has a value. Use
	// OmitTerminating for servers that drop this field.
	OmitTerminating bool

	// Waiting says that nothing was tried because the owner waits for its earlier creations and
	// deletions. Failure.Waiting describes the effect.
	Waiting bool

	// ManageErr is the error of creating or deleting pods, or nil. The ReplicaFailure condition
	// reports this error.
	ManageErr error

	// Now is the time for which availability is decided. Now is also the time of a condition that
	// is set. Pass the same time to NextAvailabilityCheck.
	Now time.Time
}

// Calculate returns the status of a ReplicaSet that owns these active pods.
//
// The counts are those of CountPods, which counts only active pods as replicas. Kubernetes counts
// the pods as they were before it created or deleted any, so its status is one pass behind. If
// minReadySeconds is negative, a ready pod is available only if its Ready condition has a
// transition time.
//
// The ReplicaFailure condition is set as by SetFailure. The observedGeneration is the generation of
// rs. Everything else is copied from the status of rs. The result shares no memory with rs, and
// neither rs nor a pod is changed. If rs is nil, the result is the zero status.
//
// Differs from Kubernetes: the ReplicaFailure condition changes when the reason of the failure
// changes, and stays while Waiting is true. SetFailure describes this in detail. Pods that are not
// active are not counted, even if they are in the list.
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

// CalculateReplicationController is like Calculate, for a ReplicationController. The status of a
// ReplicationController has no terminatingReplicas. If the template is nil, every pod is fully
// labeled.
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

// terminatingReplicas counts the terminating pods of the ReplicaSet (T8, T9).
func terminatingReplicas(rs *appsv1.ReplicaSet, opts Options) *int32 {
	if opts.OmitTerminating {
		return nil
	}
	n := new(int32)
	if rs.Spec.Selector == nil {
		return n
	}
	// matchLabels are compared without a selector, because parsing the labels costs more than
	// matching them.
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

// NeedsUpdate reports whether a calculated status must be written. A status must be written if it
// differs from the status of rs. A status must also be written if the observedGeneration in the
// status of rs is not the generation of rs. For terminatingReplicas, nil and 0 are different. For
// conditions, nil and empty are different. The observedGeneration of newStatus is not compared. If
// rs is nil, the result is false.
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
