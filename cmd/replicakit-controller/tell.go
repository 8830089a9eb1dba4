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

// tellPatience is how long the server may take to store an event of a process that ends.
const tellPatience = 5 * time.Second

// leaseLost is the reason of the event about a lease whose holder lost it, and ends.
const leaseLost = "LeaseLost"

// mostTold is the length of the longest event note that the server takes, in bytes.
const mostTold = 1024

// theLease is the object of events that are about no owner.
func (o *options) theLease() corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: o.lease.Namespace, Name: o.lease.Name,
	}
}

// tell makes an event, or logs why it could not. For example, the event says why a process ends,
// because its metrics end with it.
func (m *manager) tell(ctx context.Context, about corev1.ObjectReference, reason, note string) {
	if err := m.makeEvent(ctx, about, reason, note); err != nil {
		klog.FromContext(ctx).V(2).Info("An event could not be made", "reason", reason, "err", err)
	}
}

// makeEvent waits for the answer, even if ctx has ended.
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
