// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// A trimmer saves memory. It removes from each cached pod all fields that are never read, for
// example most fields of the spec and of the container statuses. Owners are not trimmed, because
// the passes read their templates, statuses and managed fields.
//
// The pods of one owner share equal values, such as their labels, in memory. This is safe because
// objects in a cache never change.
type trimmer struct {
	mark   func(*corev1.Pod) []metav1.ManagedFieldsEntry // returns the managed fields to keep
	mu     sync.Mutex
	common map[types.UID]metav1.ObjectMeta // values that the pods of one owner share, by the UID of the owner
}

// mostCommon is the maximum number of owners in trimmer.common. A full map is cleared, because some
// of its owners may no longer exist.
const mostCommon = 10_000

func newTrimmer(mark func(*corev1.Pod) []metav1.ManagedFieldsEntry) *trimmer {
	return &trimmer{mark: mark, common: make(map[types.UID]metav1.ObjectMeta)}
}

// trim is the transform function of the pod informer.
func (t *trimmer) trim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil // a tombstone
	}
	pod.ManagedFields = t.mark(pod)
	pod.Annotations = keepKey(pod.Annotations, corev1.PodDeletionCost)
	t.share(&pod.ObjectMeta)
	pod.Spec = corev1.PodSpec{
		NodeName:                      pod.Spec.NodeName,
		TerminationGracePeriodSeconds: zeroOrNil(pod.Spec.TerminationGracePeriodSeconds),
		InitContainers:                sidecars(pod.Spec.InitContainers),
	}
	pod.Status = corev1.PodStatus{
		Phase:                 pod.Status.Phase,
		Conditions:            readiness(pod.Status.Conditions),
		ContainerStatuses:     restarts(pod.Status.ContainerStatuses),
		InitContainerStatuses: restarts(pod.Status.InitContainerStatuses),
	}
	return pod, nil
}

// trimmed is a client for the pods in a namespace. The controllers keep the pods of responses in
// memory until these pods are in the cache. So the client also trims the pods of responses.
type trimmed struct {
	typedcorev1.PodInterface
	*trimmer
}

// podClients wraps a client. It returns a function that creates the trimmed pod client for a namespace.
func (t *trimmer) podClients(client kubernetes.Interface) func(namespace string) trimmed {
	return func(namespace string) trimmed { return trimmed{client.CoreV1().Pods(namespace), t} }
}

func (p trimmed) Create(ctx context.Context, pod *corev1.Pod, opts metav1.CreateOptions) (*corev1.Pod, error) {
	return p.answer(p.PodInterface.Create(ctx, pod, opts))
}

func (p trimmed) Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error) {
	return p.answer(p.PodInterface.Get(ctx, name, opts))
}

func (p trimmed) Patch(ctx context.Context, name string, of types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Pod, error) {
	return p.answer(p.PodInterface.Patch(ctx, name, of, data, opts, subresources...))
}

func (p trimmed) List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	list, err := p.PodInterface.List(ctx, opts)
	if err == nil && list != nil {
		for i := range list.Items {
			_, _ = p.trim(&list.Items[i])
		}
	}
	return list, err
}

func (p trimmed) answer(pod *corev1.Pod, err error) (*corev1.Pod, error) {
	if err == nil && pod != nil {
		_, _ = p.trim(pod)
	}
	return pod, err
}

// share replaces values in meta with equal values of another pod of the same controller, so that
// each value is stored only once.
func (t *trimmer) share(meta *metav1.ObjectMeta) {
	ref := metav1.GetControllerOfNoCopy(meta)
	if ref == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	other, known := t.common[ref.UID]
	if known && maps.Equal(meta.Labels, other.Labels) && reflect.DeepEqual(meta.OwnerReferences, other.OwnerReferences) &&
		meta.Namespace == other.Namespace && meta.GenerateName == other.GenerateName {
		meta.Labels, meta.OwnerReferences = other.Labels, other.OwnerReferences
		meta.Namespace, meta.GenerateName = other.Namespace, other.GenerateName
		return
	}
	if len(t.common) >= mostCommon {
		clear(t.common)
	}
	t.common[ref.UID] = metav1.ObjectMeta{
		Labels: meta.Labels, OwnerReferences: meta.OwnerReferences, Namespace: meta.Namespace, GenerateName: meta.GenerateName,
	}
}

func keepKey(annotations map[string]string, key string) map[string]string {
	value, ok := annotations[key]
	if !ok {
		return nil
	}
	return map[string]string{key: value}
}

// readiness returns only the first condition of type Ready.
func readiness(conditions []corev1.PodCondition) []corev1.PodCondition {
	for i := range conditions {
		if c := &conditions[i]; c.Type == corev1.PodReady {
			return []corev1.PodCondition{{Type: corev1.PodReady, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return nil
}

var zero = new(int64)

// zeroOrNil returns a shared pointer for a grace period of zero, and nil for any other grace period. The
// controllers read only whether the grace period is zero.
func zeroOrNil(seconds *int64) *int64 {
	if seconds != nil && *seconds == 0 {
		return zero
	}
	return nil
}

// sidecars keeps the init containers with the restart policy Always. The restarts of other init
// containers are never compared.
func sidecars(containers []corev1.Container) (kept []corev1.Container) {
	for i := range containers {
		c := &containers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kept = append(kept, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
		}
	}
	return kept
}

// restarts keeps the statuses whose restart count is not zero.
func restarts(statuses []corev1.ContainerStatus) (kept []corev1.ContainerStatus) {
	for i := range statuses {
		if s := &statuses[i]; s.RestartCount > 0 {
			kept = append(kept, corev1.ContainerStatus{Name: s.Name, RestartCount: s.RestartCount})
		}
	}
	return kept
}
