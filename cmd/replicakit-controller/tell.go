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

// tellPatience is the timeout for the creation of an event. Before a process ends, it waits at most
// this long for its last event.
const tellPatience = 5 * time.Second

// leaseLost is the reason of the event that a manager creates when it ends because it has lost the
// lease.
const leaseLost = "LeaseLost"

// mostTold is the length in bytes of the longest event note that the server accepts.
const mostTold = 1024

// theLease returns a reference to the lease. Events that do not concern an owner refer to the
// lease.
func (o *options) theLease() corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: o.lease.Namespace, Name: o.lease.Name,
	}
}

// tell creates an event. If the event cannot be created, tell logs the error. An event can show why
// a process has ended. A metric cannot show the reason, because a process that has ended serves no
// metrics.
func (m *manager) tell(ctx context.Context, about corev1.ObjectReference, reason, note string) {
	if err := m.makeEvent(ctx, about, reason, note); err != nil {
		klog.FromContext(ctx).V(2).Info("An event could not be created", "reason", reason, "err", err)
	}
}

// makeEvent creates an event, and waits for the response of the server even if ctx is done.
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
