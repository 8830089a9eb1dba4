// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// This file contains the scenarios with one large ReplicaSet.

const web = "web"

func scaleTitle(s size) string {
	return fmt.Sprintf("one ReplicaSet, 0 → %s → 0 pods", grouped(s.pods))
}

func prepareScale(ctx context.Context, b *bed) error {
	b.sets = []*appsv1.ReplicaSet{replicaSet(web, 0)}
	return b.create(ctx, b.sets[0])
}

func runScale(ctx context.Context, b *bed) error {
	for _, step := range []struct {
		replicas     int
		pods, status string
	}{
		{b.size.pods, "up: all pods exist", "up: the status says so"},
		{0, "down: all pods are gone", "down: the status says so"},
	} {
		b.began = time.Now()
		if err := b.scale(ctx, web, step.replicas); err != nil {
			return err
		}
		if err := b.reach(ctx, step.pods, func(c counts) bool { return c.pods == step.replicas }); err != nil {
			return err
		}
		if err := b.reach(ctx, step.status, func(c counts) bool { return c.replicas == step.replicas && c.settled == 1 }); err != nil {
			return err
		}
	}
	return nil
}

func adoptTitle(s size) string { return fmt.Sprintf("one ReplicaSet adopts %s pods", grouped(s.pods)) }

func prepareAdopt(ctx context.Context, b *bed) (err error) {
	rs := replicaSet(web, 0)
	b.pods, err = b.createPods(ctx, b.size.pods, false, func(int) *appsv1.ReplicaSet { return rs })
	return err
}

func runAdopt(ctx context.Context, b *bed) error {
	if err := b.create(ctx, replicaSet(web, b.size.pods)); err != nil {
		return err
	}
	if err := b.reach(ctx, "all pods are adopted", func(c counts) bool { return c.owned == b.size.pods }); err != nil {
		return err
	}
	if err := b.reach(ctx, "the status says so", func(c counts) bool { return c.replicas == b.size.pods && c.settled == 1 }); err != nil {
		return err
	}
	if c := b.view.counts(); c.pods != b.size.pods {
		return fmt.Errorf("pods were created or deleted in addition to the adoptions: %+v", c)
	}
	return nil
}
