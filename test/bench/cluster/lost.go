// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// In the scenarios of this file, a proxy between the controller and the API server loses responses.

// lossShare is the probability that the proxy loses the response to a creation, deletion or patch of a pod.
const lossShare = 0.3

func lossTitle(how string) func(size) string {
	return func(s size) string {
		return fmt.Sprintf("one ReplicaSet adopts %d pods, creates %d and deletes all: 30 %% of the answers are %s", s.orphans(), s.pods/2-s.orphans(), how)
	}
}

// orphans returns the number of pods that already exist when the ReplicaSet is created.
func (s size) orphans() int { return s.pods / 20 }

func prepareOrphans(ctx context.Context, b *bed) (err error) {
	rs := replicaSet(web, 0)
	b.pods, err = b.createPods(ctx, b.size.orphans(), false, func(int) *appsv1.ReplicaSet { return rs })
	return err
}

// runLoss creates a ReplicaSet and then scales it to 0. After the creation and after the scaling, runLoss
// calls awaitCalm, because more pods than wanted can exist for some time.
func runLoss(ctx context.Context, b *bed) error {
	wanted := b.size.pods / 2
	b.proxy.armed.Store(true)
	b.view.begin()
	if err := b.create(ctx, replicaSet(web, wanted)); err != nil {
		return err
	}
	up, err := b.awaitCalm(ctx, wanted)
	if err != nil {
		return err
	}
	b.began = time.Now()
	if err := b.scale(ctx, web, 0); err != nil {
		return err
	}
	down, err := b.awaitCalm(ctx, 0)
	if err != nil {
		return err
	}
	b.note("both directions, until nothing changes any more", wall, (up + down).Seconds())
	b.note("pods that ever existed", number, float64(b.view.history().ever))
	b.note("answers lost", number, float64(b.proxy.lost.Load()))
	return nil
}

// awaitCalm waits until the given number of pods exists and no controller has made a call for three seconds.
// It returns the time from b.began to the last change of an object, or 0 if no object changed after
// b.began.
func (b *bed) awaitCalm(ctx context.Context, pods int) (time.Duration, error) {
	well := b.has(pods)
	for calm := 0; calm < 3; {
		if err := b.view.awaitCounts(ctx, "peace", well); err != nil {
			return 0, err
		}
		if err := b.awaitQuiet(ctx); err != nil {
			return 0, err
		}
		if calm++; !well(b.view.counts()) {
			calm = 0
		}
	}
	return max(b.view.history().last.Sub(b.began), 0), nil
}
