// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The scenarios in this file measure the first change after a controller starts. A ReplicaSet is created
// immediately after the controller's first pass. In one scenario, the pods of another ReplicaSet change at
// the same time.

const bystander = "bystander"

func firstTitle(how string) func(size) string {
	return func(s size) string {
		return fmt.Sprintf("the first change after a start, a new ReplicaSet of %s pods, while %s", grouped(s.pods), how)
	}
}

func prepareFirst(ctx context.Context, b *bed) (err error) {
	other := replicaSet(bystander, b.size.pods/10)
	b.sets = []*appsv1.ReplicaSet{other}
	if err := b.create(ctx, other); err != nil {
		return err
	}
	if b.pods, err = b.createPods(ctx, b.size.pods/10, true, b.setOf); err != nil {
		return err
	}
	if err := b.writeStatus(ctx, other); err != nil {
		return err
	}
	b.reported = len(b.pods)
	if err := b.view.awaitCounts(ctx, "the sets", func(c counts) bool { return c.sets == 2 }); err != nil {
		return err
	}
	return b.forgetWarmUp(ctx)
}

func playFirst(busy bool) func(ctx context.Context, b *bed, start starter) error {
	return func(ctx context.Context, b *bed, start starter) error {
		changing, stop := context.WithCancel(ctx)
		var clients sync.WaitGroup
		defer clients.Wait()
		defer stop()
		clients.Go(func() { b.renew(changing) })
		if busy {
			clients.Go(func() { b.change(changing) })
		}
		c, err := start()
		if err != nil {
			return err
		}
		// Our manager looks for other controllers for three seconds before its first pass, which is no part of the change.
		if err := b.awaitCount(ctx, c, syncsMetric, 1); err != nil {
			return c.stop(ctx, err)
		}
		return c.stop(ctx, b.measure(ctx, func(ctx context.Context, b *bed) error {
			defer clients.Wait() // measure waits until the controller makes no calls, so the clients must stop changing objects
			defer stop()
			return b.makeFirst(ctx)
		}))
	}
}

// renew updates a Lease ten times per second until ctx ends. This is the total rate of updates from a
// hundred kubelets. Each update increases the server's resourceVersion.
func (b *bed) renew(ctx context.Context) {
	leases := b.client.CoordinationV1().Leases(namespace)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	for err == nil {
		lease.Spec.RenewTime = new(metav1.NowMicro())
		lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// change makes all pods of the ReplicaSet "bystander" ready, then not ready, and so on until ctx ends.
func (b *bed) change(ctx context.Context) {
	for ready := true; ctx.Err() == nil; ready = !ready {
		_ = b.pace(ctx, len(b.pods), func(ctx context.Context, i int) error { return b.setReady(ctx, b.pods[i].Name, ready) })
	}
}

// makeFirst creates a ReplicaSet and measures how long the controller takes to create the pods.
func (b *bed) makeFirst(ctx context.Context) error {
	before := len(b.pods)
	if err := b.create(ctx, replicaSet(web, b.size.pods)); err != nil {
		return err
	}
	return errors.Join(
		b.reach(ctx, "the first pod exists", func(c counts) bool { return c.pods > before }),
		b.reach(ctx, "all pods exist", func(c counts) bool { return c.pods == before+b.size.pods }),
	)
}
