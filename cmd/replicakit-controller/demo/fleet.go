// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/status"
)

const (
	tick = 200 * time.Millisecond
	// startUp is the time that a container takes to become ready. shutDown is the time that a
	// container takes to end.
	startUp, shutDown = time.Second, time.Second
)

// A fleet simulates the scheduler and the kubelets of the cluster. It binds each pod immediately,
// and makes it ready after startUp. It removes a deleted pod after shutDown.
type fleet struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	cancel  context.CancelFunc
	done    chan struct{}
	bound   int
}

func newFleet(ctx context.Context, client kubernetes.Interface) *fleet {
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{client: client, factory: informers.NewSharedInformerFactory(client, 0), cancel: cancel, done: make(chan struct{})}
	f.factory.Core().V1().Pods().Informer()
	f.factory.Apps().V1().ReplicaSets().Informer()
	f.factory.StartWithContext(ctx)
	f.factory.WaitForCacheSync(ctx.Done())
	go f.run(ctx)
	return f
}

func (f *fleet) stop() {
	f.cancel()
	<-f.done
	f.factory.Shutdown()
}

func (f *fleet) run(ctx context.Context) {
	defer close(f.done)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, pod := range f.pods(metav1.NamespaceAll) {
			_ = f.advance(ctx, pod) // a failed step is retried at the next tick
		}
	}
}

// pods returns the pods of a namespace, sorted by name.
func (f *fleet) pods(namespace string) []*corev1.Pod {
	pods, _ := f.factory.Core().V1().Pods().Lister().Pods(namespace).List(labels.Everything())
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

func (f *fleet) replicaSet(namespace, name string) *appsv1.ReplicaSet {
	rs, err := f.factory.Apps().V1().ReplicaSets().Lister().ReplicaSets(namespace).Get(name)
	if err != nil {
		return nil
	}
	return rs
}

// advance binds a pod, makes it ready or removes it, depending on its state.
func (f *fleet) advance(ctx context.Context, pod *corev1.Pod) error {
	pods := f.client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		if time.Since(pod.DeletionTimestamp.Add(-grace)) < shutDown {
			return nil
		}
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	case pod.Spec.NodeName == "":
		f.bound++
		return pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: fmt.Sprintf("node-%c", 'a'+f.bound%3)},
		}, metav1.CreateOptions{})
	case pod.Status.Phase == corev1.PodPending && time.Since(pod.CreationTimestamp.Time) > startUp:
		return f.setReady(ctx, pod, corev1.ConditionTrue)
	}
	return nil
}

func (f *fleet) setReady(ctx context.Context, pod *corev1.Pod, ready corev1.ConditionStatus) error {
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	pod.Status.ContainerStatuses = nil // kubectl get shows how many of these are ready
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: ready == corev1.ConditionTrue,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	_, err := f.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// state returns the state of a pod for the table.
func state(pod *corev1.Pod) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return "terminating"
	case status.IsPodReady(pod):
		return "ready"
	case pod.Spec.NodeName == "":
		return "unassigned"
	case pod.Status.Phase == corev1.PodPending:
		return "starting"
	}
	return "not ready"
}
