// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// patience is the maximum time that the bench waits for a controller to finish its work.
const patience = 5 * time.Minute

// counts holds the numbers of objects in the namespace.
type counts struct {
	pods, owned int
	sets        int
	settled     int // number of ReplicaSets with the current generation in the status, and status.replicas equal to spec.replicas
	replicas    int // sum of status.replicas over all ReplicaSets
	ready       int // sum of status.readyReplicas over all ReplicaSets
}

// A history describes how the number of pods has changed since the last call to the method begin.
type history struct {
	most, least int       // maximum and minimum number of pods at the same time
	ever        int       // total number of pods that have existed
	last        time.Time // time of the last change to a ReplicaSet or a pod
}

// A view counts the objects in the caches of its informers.
type view struct {
	mu      sync.Mutex
	now     counts
	past    history
	changed chan struct{} // has room for one notification
}

// watch returns a view that counts the objects in the namespace until ctx ends.
func watch(ctx context.Context, client clientset.Interface) (*view, error) {
	v := &view{changed: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(handler(v, countPod))
	if err != nil {
		return nil, err
	}
	sets, err := factory.Apps().V1().ReplicaSets().Informer().AddEventHandler(handler(v, countSet))
	if err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, sets.HasSynced) {
		return nil, context.Cause(ctx)
	}
	return v, nil
}

// handler returns an event handler that adds new objects to the counts and subtracts deleted objects.
func handler[T any](v *view, count func(c *counts, obj T, by int)) cache.ResourceEventHandler {
	change := func(obj any, by int) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if typed, ok := obj.(T); ok {
			count(&v.now, typed, by)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { v.update(func() { change(obj, 1) }) },
		UpdateFunc: func(old, cur any) { v.update(func() { change(old, -1); change(cur, 1) }) },
		DeleteFunc: func(obj any) { v.update(func() { change(obj, -1) }) },
	}
}

func countPod(c *counts, pod *corev1.Pod, by int) {
	c.pods += by
	if metav1.GetControllerOfNoCopy(pod) != nil {
		c.owned += by
	}
}

func countSet(c *counts, rs *appsv1.ReplicaSet, by int) {
	c.sets += by
	c.replicas += by * int(rs.Status.Replicas)
	c.ready += by * int(rs.Status.ReadyReplicas)
	if rs.Status.ObservedGeneration == rs.Generation && rs.Status.Replicas == *rs.Spec.Replicas {
		c.settled += by
	}
}

func (v *view) update(change func()) {
	v.mu.Lock()
	before := v.now.pods
	change()
	v.past.ever += max(v.now.pods-before, 0)
	v.past.most, v.past.least = max(v.past.most, v.now.pods), min(v.past.least, v.now.pods)
	v.past.last = time.Now()
	v.mu.Unlock()
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

func (v *view) counts() counts {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// begin begins a new history.
func (v *view) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.past = history{most: v.now.pods, least: v.now.pods, ever: v.now.pods}
}

func (v *view) history() history {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.past
}

// awaitCounts waits until the given function returns true for the counts. Call this method from only one
// goroutine at a time.
func (v *view) awaitCounts(ctx context.Context, what string, come func(counts) bool) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !come(v.counts()) {
		select {
		case <-v.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout.C:
			return fmt.Errorf("timed out after %v waiting for %s: %+v", patience, what, v.counts())
		}
	}
	return nil
}
