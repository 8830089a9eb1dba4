// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// tellPatience is how long the server may take to store an event. A process that ends waits at most
// tellPatience for the event.
const tellPatience = 5 * time.Second

// leaseLost is the reason of the event about the lease if this manager has lost the lease, and
// ends.
const leaseLost = "LeaseLost"

// mostTold is the length in bytes of the longest event note that the server accepts.
const mostTold = 1024

// theLease returns a reference to the lease. Events that are about no owner are about the lease.
func (o *options) theLease() corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: o.lease.Namespace, Name: o.lease.Name,
	}
}

// tell creates an event. If the event cannot be created, the reason is logged. For example, an
// event says why a process ended, because the metrics of the process are gone when the process has
// ended.
func (m *manager) tell(ctx context.Context, about corev1.ObjectReference, reason, note string) {
	if err := m.makeEvent(ctx, about, reason, note); err != nil {
		klog.FromContext(ctx).V(2).Info("An event could not be created", "reason", reason, "err", err)
	}
}

// makeEvent creates an event, and waits for the answer of the server even if ctx has ended.
func (m *manager) makeEvent(ctx context.Context, about corev1.ObjectReference, reason, note string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellPatience)
	defer cancel()
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano())},
		InvolvedObject: about,
		Type:           corev1.EventTypeWarning, Reason: reason, Message: note[:min(len(note), mostTold)],
		Source: corev1.EventSource{Component: userAgent}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	client, err := m.client("events")
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	return err
}
