// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// The scenarios of the first change after a start: a set lacks all of its pods when the program
// starts, and pods of another set change meanwhile, or do not.

const bystander = "bystander"

func firstTitle(how string) func(size) string {
	return func(s size) string {
		return fmt.Sprintf("a controller starts where one ReplicaSet lacks %s pods, and %s", grouped(s.pods), how)
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
	if err := b.create(ctx, replicaSet(web, b.size.pods)); err != nil {
		return err
	}
	return b.forgetWarmUp(ctx)
}

func playFirst(busy bool) func(ctx context.Context, b *bed, start starter) error {
	return func(ctx context.Context, b *bed, start starter) error {
		if busy {
			changing, stop := context.WithCancel(ctx)
			changed := make(chan error, 1)
			go func() { changed <- b.change(changing) }()
			defer func() { stop(); <-changed }()
		}
		c, err := start()
		if err != nil {
			return err
		}
		return c.stop(ctx, b.watchFirst(ctx, c))
	}
}

// change makes pods of the bystander ready, and not ready again, until ctx ends.
func (b *bed) change(ctx context.Context) error {
	for ready := true; ; ready = !ready {
		err := b.pace(ctx, len(b.pods), func(ctx context.Context, i int) error { return b.setReady(ctx, b.pods[i].Name, ready) })
		if err != nil {
			return err
		}
	}
}

// watchFirst takes the time from when a worker took the first set from the queue.
func (b *bed) watchFirst(ctx context.Context, c *controller) error {
	b.began = time.Now()
	if err := b.awaitCount(ctx, c, "workqueue_queue_duration_seconds", 1); err != nil {
		return err
	}
	b.note("from the start until the first set is looked at", wall, time.Since(b.began).Seconds())
	b.began = time.Now()
	before := len(b.pods)
	return errors.Join(
		b.reach(ctx, "from then on: the first pod exists", func(c counts) bool { return c.pods > before }),
		b.reach(ctx, "from then on: all pods exist", func(c counts) bool { return c.pods == before+b.size.pods }),
	)
}
