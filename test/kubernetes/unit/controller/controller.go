// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller replaces k8s.io/kubernetes/pkg/controller. The unit tests of the replaced package run in
// this package. All names are the same as in Kubernetes. The comments say which code of this project each
// function calls.
package controller

import (
	"context"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/utils/clock"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	kit "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

// The tests use these types of Kubernetes to count calls.
type (
	// FakePodControl counts calls.
	FakePodControl = controller.FakePodControl
	// PodControlInterface is the interface of FakePodControl.
	PodControlInterface = controller.PodControlInterface
)

// SlowStartInitialBatchSize is the default initial batch size of our package slowstart.
const SlowStartInitialBatchSize = slowstart.DefaultInitialBatchSize

// KeyFunc, PodKey and NoResyncPeriodFunc are Kubernetes' own functions.
var (
	KeyFunc            = controller.KeyFunc
	PodKey             = controller.PodKey
	NoResyncPeriodFunc = controller.NoResyncPeriodFunc
)

// ActivePods is our podrank.ActivePods, which orders pods by six criteria.
type ActivePods = podrank.ActivePods

// FilterActivePods calls our status.FilterActivePods.
func FilterActivePods(_ klog.Logger, pods []*corev1.Pod) []*corev1.Pod {
	return status.FilterActivePods(pods)
}

// FilterTerminatingPods calls our status.FilterTerminatingPods.
func FilterTerminatingPods(pods []*corev1.Pod) []*corev1.Pod {
	return status.FilterTerminatingPods(pods)
}

// CountTerminatingPods counts the pods that our status.FilterTerminatingPods returns.
func CountTerminatingPods(pods []*corev1.Pod) int32 {
	return int32(min(len(status.FilterTerminatingPods(pods)), math.MaxInt32))
}

// FilterClaimedPods calls our status.FilterClaimedPods.
func FilterClaimedPods(owner metav1.Object, sel labels.Selector, pods []*corev1.Pod) []*corev1.Pod {
	return status.FilterClaimedPods(owner, sel, pods)
}

// nextPodAvailabilityCheck calls our status.NextAvailabilityCheck for one pod.
func nextPodAvailabilityCheck(pod *corev1.Pod, minReadySeconds int32, now time.Time) *time.Duration {
	after, ok := status.NextAvailabilityCheck([]*corev1.Pod{pod}, minReadySeconds, now)
	if !ok {
		return nil
	}
	return &after
}

// findMinNextPodAvailabilitySimpleCheck calls our status.NextAvailabilityCheck for all pods. Our function
// does not return the pod, so findMinNextPodAvailabilitySimpleCheck then checks each pod separately to find it.
func findMinNextPodAvailabilitySimpleCheck(pods []*corev1.Pod, minReadySeconds int32, now time.Time) (*time.Duration, *corev1.Pod) {
	after, ok := status.NextAvailabilityCheck(pods, minReadySeconds, now)
	if !ok {
		return nil, nil
	}
	for _, pod := range pods {
		if one := nextPodAvailabilityCheck(pod, minReadySeconds, now); one != nil && *one == after {
			return &after, pod
		}
	}
	return &after, nil
}

// FindMinNextPodAvailabilityCheck calls our status.NextAvailabilityCheck. That result is a delay that
// starts when the status was calculated. A work queue needs a delay that starts now, so the result is
// converted.
func FindMinNextPodAvailabilityCheck(pods []*corev1.Pod, minReadySeconds int32, evaluated time.Time, now clock.PassiveClock) *time.Duration {
	after, ok := status.NextAvailabilityCheck(pods, minReadySeconds, evaluated)
	if !ok {
		return nil
	}
	after = max(after-now.Since(evaluated), 0)
	return &after
}

// RealPodControl makes API calls through our own client, which is created by the function typed.NewClient.
type RealPodControl struct {
	KubeClient clientset.Interface
	Recorder   record.EventRecorder
	OnWrite    func(*corev1.Pod, *metav1.OwnerReference)
}

// CreatePods creates a pod from the template.
func (r RealPodControl) CreatePods(ctx context.Context, namespace string, template *corev1.PodTemplateSpec, owner runtime.Object, ref *metav1.OwnerReference) error {
	return r.CreatePodsWithGenerateName(ctx, namespace, template, owner, ref, "")
}

// CreatePodsWithGenerateName does the same as CreatePods. If prefix is not empty, the names of the pods begin
// with prefix.
func (r RealPodControl) CreatePodsWithGenerateName(ctx context.Context, namespace string, template *corev1.PodTemplateSpec, owner runtime.Object, ref *metav1.OwnerReference, prefix string) error {
	object, _ := owner.(metav1.Object) // PodFromTemplate returns an error for a nil owner
	pod, err := replicas.PodFromTemplate(template, object, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	if err != nil {
		return err
	}
	if prefix != "" {
		pod.GenerateName = prefix
	}
	pod.Namespace = namespace
	created, err := r.ours().Create(ctx, pod)
	r.wrote(created, ref, err)
	return err
}

// PatchPod sends the patch.
func (r RealPodControl) PatchPod(ctx context.Context, namespace, name string, data []byte) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patched, err := r.ours().Patch(ctx, pod, selector.Patch{Type: types.StrategicMergePatchType, Data: data}, metav1.PatchOptions{})
	r.wrote(patched, nil, err)
	return err
}

// DeletePod deletes the pod.
func (r RealPodControl) DeletePod(ctx context.Context, namespace, name string, _ runtime.Object) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return r.ours().Delete(ctx, pod, metav1.DeleteOptions{})
}

func (r RealPodControl) ours() kit.Client[*appsv1.ReplicaSet, *corev1.Pod] {
	return typed.NewClient(r.KubeClient.AppsV1().ReplicaSets, r.KubeClient.CoreV1().Pods)
}

// wrote calls OnWrite after a successful write, because our client does not call OnWrite itself.
func (r RealPodControl) wrote(pod *corev1.Pod, ref *metav1.OwnerReference, err error) {
	if err == nil && r.OnWrite != nil {
		r.OnWrite(pod, ref)
	}
}
