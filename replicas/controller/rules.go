// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// counting returns what the state of a child means for the counts.
func counting[C Object](rules replicas.Rules[C]) status.Rules[C] {
	complete := rules.Complete()
	return status.Rules[C]{Active: complete.Active, Ready: complete.Ready}
}

// terminatingBy returns which children count as terminating: those being deleted
// that are not active; of pods, those that are not finished either (T8).
func terminatingBy[C Object](active func(C) bool) func(C) bool {
	terminating := func(c C) bool { return c.GetDeletionTimestamp() != nil && !active(c) }
	if pods, ok := any(status.IsPodTerminating).(func(C) bool); ok {
		return func(c C) bool { return pods(c) && !active(c) }
	}
	return terminating
}

// lingers reports whether a child is still there when its deletion was accepted: of
// pods, those that a node must stop first.
func lingers(c Object) bool {
	if pod, ok := c.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		grace := pod.Spec.TerminationGracePeriodSeconds
		return grace == nil || *grace > 0 || len(pod.Finalizers) > 0
	}
	return len(c.GetFinalizers()) > 0
}

// vanishes reports whether the server removes a child that it marked for deletion
// just before, with nothing to wait for.
func vanishes[C Object](c C) bool {
	grace := c.GetDeletionGracePeriodSeconds()
	return c.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(c.GetFinalizers()) == 0
}

// patchTypeFor is strategic for children that Kubernetes itself serves: custom
// resources know merge patches only.
func patchTypeFor(asked types.PatchType, child schema.GroupVersionKind) types.PatchType {
	switch {
	case asked != "":
		return asked
	case !strings.Contains(child.Group, ".") || strings.HasSuffix(child.Group, ".k8s.io"):
		return types.StrategicMergePatchType
	}
	return types.MergePatchType
}
