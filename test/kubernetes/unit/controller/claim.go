// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

// kind is the owner's kind if the test does not specify one.
var kind = corev1.SchemeGroupVersion.WithKind("ReplicationController")

// PodControllerRefManager claims pods with our selector.Claimer.
type PodControllerRefManager struct {
	Controller metav1.Object

	podControl PodControlInterface
	finalizers []string
	claimer    selector.Claimer[*corev1.Pod]
}

// NewPodControllerRefManager creates the Claimer. The owners in the tests have no name and no kind, but an
// API server stores only objects that have both. Therefore NewPodControllerRefManager sets default values.
func NewPodControllerRefManager(pods PodControlInterface, owner metav1.Object, sel labels.Selector, ownerKind schema.GroupVersionKind, canAdopt func(context.Context) error, finalizers ...string) *PodControllerRefManager {
	named := &metav1.ObjectMeta{
		Name: cmp.Or(owner.GetName(), "controller"), Namespace: owner.GetNamespace(),
		UID: owner.GetUID(), DeletionTimestamp: owner.GetDeletionTimestamp(),
	}
	if ownerKind.Empty() {
		ownerKind = kind
	}
	return &PodControllerRefManager{Controller: owner, podControl: pods, finalizers: finalizers, claimer: selector.Claimer[*corev1.Pod]{
		Owner:      named,
		Kind:       ownerKind,
		Selector:   sel,
		Finalizers: finalizers,
		CanAdopt:   canAdopt,
		Patch: func(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
			return pod, pods.PatchPod(ctx, pod.Namespace, pod.Name, patch.Data)
		},
	}}
}

// ClaimPods calls the Claim method of our Claimer.
func (m *PodControllerRefManager) ClaimPods(ctx context.Context, pods []*corev1.Pod) ([]*corev1.Pod, error) {
	claimed, err := m.claimer.Claim(ctx, pods)
	return claimed.Ours(), err
}

// GenerateDeleteOwnerRefStrategicMergeBytes returns our release patch. The patch removes only the first of
// the given owners.
func GenerateDeleteOwnerRefStrategicMergeBytes(pod types.UID, owners []types.UID, finalizers ...string) ([]byte, error) {
	claimer := selector.Claimer[*corev1.Pod]{
		Owner:      &metav1.ObjectMeta{Name: "owner", UID: owners[0]},
		Kind:       kind,
		Finalizers: finalizers,
	}
	patch, err := claimer.ReleasePatch(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod}})
	return patch.Data, err
}
