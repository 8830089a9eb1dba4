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
// changes. The condition is kept while the owner waits for its earlier creations and deletions. The
// time of the condition is Options.Now. A nil spec.replicas does not cause a panic. Pods without a
// transition time do not cause a later check.
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

// Options holds the values that Calculate needs in addition to the owner and its active pods. The
// zero value means that no pod is terminating and that nothing failed. If Now is the zero time and
// minReadySeconds is positive, no pod is available.
type Options struct {
	// Terminating is a list that contains the owner's terminating pods. The list may also contain
	// other pods, for example all pods in all namespaces. A pod is counted if it is terminating, is
	// controlled by the owner, matches the owner's selector and is in the owner's namespace. A nil
	// or invalid selector matches no pods. If the owner has no namespace, as in tests, pods in all
	// namespaces are counted. The status of a ReplicationController does not report terminating
	// pods.
	Terminating []*corev1.Pod

	// OmitTerminating sets terminatingReplicas to nil, even if the old status has a value. Use
	// OmitTerminating for servers that drop this field.
	OmitTerminating bool

	// Waiting is true if the owner waits for its earlier creations and deletions, and therefore
	// creates and deletes no pods. The comment on Failure.Waiting describes the effect.
	Waiting bool

	// ManageErr is the error from creating or deleting pods, or nil. The ReplicaFailure condition
	// reports this error.
	ManageErr error

	// Now holds the time for which the availability of pods is determined. It is also the time of a
	// new condition. Pass the same time to NextAvailabilityCheck.
	Now time.Time
}

// Calculate returns the status of a ReplicaSet that owns these active pods.
//
// The counts are computed by CountPods, which counts only active pods as replicas. Kubernetes
// counts the pods that existed before it created or deleted pods in the same pass, so its status is
// one pass behind. If minReadySeconds is negative, a ready pod is available only if its Ready
// condition has a transition time.
//
// SetFailure sets the ReplicaFailure condition. The observedGeneration is the generation of rs. All
// other fields are copied from the status of rs. The result shares no memory with rs, and neither
// rs nor a pod is changed. If rs is nil, the result is the zero status.
//
// Differs from Kubernetes: the ReplicaFailure condition changes when the reason of the failure
// changes, and is kept while Waiting is true. The comment on SetFailure describes this in detail.
// Pods in the list that are not active are not counted.
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

// CalculateReplicationController does the same as Calculate for a ReplicationController. The status
// of a ReplicationController has no terminatingReplicas. If the template is nil, every pod is fully
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
	owner := object.OwnerOf(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind())
	var selector labels.Selector
	n := new(int32)
	for _, p := range opts.Terminating {
		if !pod.IsTerminating(p) || !owner.Controls(p) || !owner.Reaches(p) {
			continue
		}
		if selector == nil { // usually no pod is terminating, so nothing is parsed
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(rs.Spec.Selector); err != nil {
				return n
			}
		}
		*n += one(selector.Matches(labels.Set(p.Labels)))
	}
	return n
}

// NeedsUpdate reports whether newStatus must be written. It must be written if it differs from
// rs.Status, or if rs.Status.ObservedGeneration differs from rs.Generation. A nil
// terminatingReplicas differs from 0, and a nil list of conditions differs from an empty list. The
// observedGeneration of newStatus is ignored. If rs is nil, the result is false.
func NeedsUpdate(rs *appsv1.ReplicaSet, newStatus appsv1.ReplicaSetStatus) bool {
	if rs == nil {
		return false
	}
	newStatus.ObservedGeneration = rs.Generation
	return !reflect.DeepEqual(&rs.Status, &newStatus)
}

// NeedsUpdateReplicationController does the same as NeedsUpdate for a ReplicationController.
func NeedsUpdateReplicationController(rc *corev1.ReplicationController, newStatus corev1.ReplicationControllerStatus) bool {
	if rc == nil {
		return false
	}
	newStatus.ObservedGeneration = rc.Generation
	return !reflect.DeepEqual(&rc.Status, &newStatus)
}
