// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// readiness counts the ready pods of the default namespace.
type readiness struct {
	mu    sync.Mutex
	ready map[types.UID]bool
	least int
}

// watchReadiness counts until the context ends.
func watchReadiness(ctx context.Context, client kubernetes.Interface) (*readiness, error) {
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	r := &readiness{ready: map[types.UID]bool{}}
	for i := range list.Items {
		r.see(watch.Added, &list.Items[i])
	}
	r.reset()
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, options)
		},
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for event := range watcher.ResultChan() {
			if pod, is := event.Object.(*corev1.Pod); is {
				r.see(event.Type, pod)
			}
		}
	}()
	return r, nil
}

func (r *readiness) see(event watch.EventType, pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if event == watch.Deleted || pod.DeletionTimestamp != nil || !isReady(pod) {
		delete(r.ready, pod.UID)
	} else {
		r.ready[pod.UID] = true
	}
	r.least = min(r.least, len(r.ready))
}

// reset begins anew with the pods that are ready now.
func (r *readiness) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.least = len(r.ready)
}

// await waits until so many are ready: until then the watch has not told of
// everything that was.
func (r *readiness) await(ctx context.Context, ready int) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.ready) == ready, nil
	})
}

// fewest returns how many were ready at least since reset.
func (r *readiness) fewest() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.least
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
