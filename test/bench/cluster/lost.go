// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// The scenarios with a proxy between controller and server that loses answers.

// lossShare is how many of the answers are lost.
const lossShare = 0.3

func lossTitle(how string) func(size) string {
	return func(s size) string {
		return fmt.Sprintf("one ReplicaSet adopts %d pods, creates %d and deletes all: 30 %% of the answers are %s", s.orphans(), s.pods/2-s.orphans(), how)
	}
}

// orphans returns how many pods exist before the set that selects them.
func (s size) orphans() int { return s.pods / 20 }

func prepareOrphans(ctx context.Context, b *bed) (err error) {
	rs := replicaSet(web, 0)
	b.pods, err = b.createPods(ctx, b.size.orphans(), false, func(int) *appsv1.ReplicaSet { return rs })
	return err
}

// runLoss waits each time until the controller makes no calls for a while, because there may be too many
// pods before.
func runLoss(ctx context.Context, b *bed) error {
	wanted := b.size.pods / 2
	b.proxy.armed.Store(true)
	b.view.begin()
	if err := b.create(ctx, replicaSet(web, wanted)); err != nil {
		return err
	}
	up, err := b.calm(ctx, wanted)
	if err != nil {
		return err
	}
	b.began = time.Now()
	if err := b.scale(ctx, web, 0); err != nil {
		return err
	}
	down, err := b.calm(ctx, 0)
	if err != nil {
		return err
	}
	b.note("both directions, until nothing changes any more", wall, (up + down).Seconds())
	b.note("pods that ever existed", number, float64(b.view.history().ever))
	b.note("answers lost", number, float64(b.proxy.lost.Load()))
	return nil
}

// calm waits until there are this many pods, and no controller has made a call for three seconds. It
// returns how long after b.began the last change was, or 0 if nothing was left to do.
func (b *bed) calm(ctx context.Context, pods int) (time.Duration, error) {
	well := b.has(pods)
	for calm := 0; calm < 3; {
		if err := b.view.until(ctx, "peace", well); err != nil {
			return 0, err
		}
		if err := b.quiet(ctx); err != nil {
			return 0, err
		}
		if calm++; !well(b.view.counts()) {
			calm = 0
		}
	}
	return max(b.view.history().last.Sub(b.began), 0), nil
}
