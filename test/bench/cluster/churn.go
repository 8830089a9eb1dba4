// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// In the scenarios of this file, the pods of a ReplicaSet change all the time while most of them are deleted. A
// deletion with a resourceVersion fails if the pod has changed since the controller saw it.

// kept is the number of pods to which the ReplicaSet is scaled down.
const kept = 10

// A churn says how many pods there are and how often they change.
type churn struct {
	share    int  // the number of pods is size.pods divided by share
	times    int  // the number of changes a second is size.rate multiplied by times
	starting bool // no change makes a pod ready
}

func (c churn) title(s size) string {
	how := "change"
	if c.starting {
		how = "are starting and change"
	}
	return fmt.Sprintf("one ReplicaSet, %s → %d pods that %s, %s changes a second", grouped(s.pods/c.share), kept, how, grouped(s.rate*c.times))
}

func (c churn) prepare(ctx context.Context, b *bed) (err error) {
	b.size.rate *= c.times
	b.sets = []*appsv1.ReplicaSet{replicaSet(web, b.size.pods/c.share)}
	if err := b.create(ctx, b.sets[0]); err != nil {
		return err
	}
	b.pods, err = b.createPods(ctx, b.size.pods/c.share, true, b.setOf)
	return err
}

func (c churn) run(ctx context.Context, b *bed) error {
	changing, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait() // measure waits until the controller makes no calls, so the pods must stop changing
	defer stop()
	began, round := time.Now(), make(chan struct{})
	clients.Go(func() {
		change := func(ready bool) {
			_ = b.pace(changing, len(b.pods), func(ctx context.Context, i int) error {
				_ = b.setReady(ctx, b.pods[i].Name, ready) // in the end, most pods are gone
				return nil
			})
		}
		change(!c.starting)
		close(round)
		for ready := false; changing.Err() == nil; ready = !ready && !c.starting {
			change(ready)
		}
	})
	<-round
	b.note("changes each second", number, float64(len(b.pods))/time.Since(began).Seconds())
	b.began = time.Now()
	if err := b.scale(ctx, web, kept); err != nil {
		return err
	}
	return b.reach(ctx, fmt.Sprintf("%d pods are left", kept), func(counts counts) bool { return counts.pods == kept })
}
