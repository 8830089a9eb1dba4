// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// In this file's scenario, a leader is paused for longer than the duration of its lease.

var shortLease = []string{
	"--leader-elect=true", "--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s", "--leader-elect-retry-period=1s",
}

// pauses is the number of times that the scenario pauses a leader. The first pause happens while the first
// pass of the controller creates 500 pods. All later pauses happen at random moments.
const pauses = 2

func pauseTitle(s size) string {
	return fmt.Sprintf("one ReplicaSet, 0 → %s pods; on the way the leader is paused, another takes over, then the first goes on", grouped(s.pods))
}

func preparePause(ctx context.Context, b *bed) error {
	b.sets = []*appsv1.ReplicaSet{replicaSet(web, 0)}
	return b.create(ctx, b.sets[0])
}

func playPause(ctx context.Context, b *bed, start starter) (err error) {
	leader, err := start()
	if err != nil {
		return err
	}
	defer func() { err = leader.stop(ctx, err) }()
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	atOnce, ever := 0, 0
	for i := range pauses {
		next, err := start()
		if err != nil {
			return err
		}
		moment := 2 * b.size.pods / 5
		if i > 0 {
			moment = 1 + rand.N(b.size.pods-1)
		}
		if err := errors.Join(b.pause(ctx, leader, next, moment), leader.stop(ctx, nil)); err != nil {
			return next.stop(ctx, err)
		}
		leader = next
		past := b.view.history()
		atOnce, ever = max(atOnce, past.most), max(ever, past.ever)
		if err := b.empty(ctx); err != nil {
			return err
		}
	}
	b.note("pods at once, at most", number, float64(atOnce))
	b.note("pods that ever existed, at most", number, float64(ever))
	return nil
}

// pause stops the leader's process as soon as the given number of pods exists. The next leader then creates
// the remaining pods. After that, the stopped process continues. That process must exit on its own, because
// it has lost its lease.
func (b *bed) pause(ctx context.Context, leader, next *controller, moment int) error {
	if err := next.awaitLog(ctx, "Attempting to acquire leader lease"); err != nil {
		return err
	}
	b.view.begin()
	if err := b.scale(ctx, web, b.size.pods); err != nil {
		return err
	}
	if err := b.view.awaitCounts(ctx, "some pods", func(c counts) bool { return c.pods >= moment }); err != nil {
		return err
	}
	if err := leader.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := next.awaitLog(ctx, "Successfully acquired lease"); err != nil {
		return err
	}
	if err := b.view.awaitCounts(ctx, "all pods", func(c counts) bool { return c.pods >= b.size.pods }); err != nil {
		return err
	}
	if err := leader.endsAfterPause(ctx); err != nil {
		return err
	}
	if err := b.view.awaitCounts(ctx, "the wanted number", b.has(b.size.pods)); err != nil {
		return err
	}
	return b.awaitQuiet(ctx)
}

// endsAfterPause resumes a paused program and waits until the program exits.
func (c *controller) endsAfterPause(ctx context.Context) error {
	c.mayEnd.Store(true)
	if err := c.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	select {
	case <-c.Ended():
		return nil
	case <-time.After(patience):
		return errors.New("the paused program does not end")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *bed) empty(ctx context.Context) error {
	if err := b.scale(ctx, web, 0); err != nil {
		return err
	}
	return b.view.awaitCounts(ctx, "no pods", b.has(0))
}

func (b *bed) has(pods int) func(counts) bool {
	return func(c counts) bool { return c.pods == pods && c.replicas == pods && c.settled == 1 }
}

// awaitLog waits until the log of the program contains the given string.
func (c *controller) awaitLog(ctx context.Context, text string) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		log, err := os.ReadFile(c.Log())
		if err != nil || strings.Contains(string(log), text) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("timed out after %v waiting for %q in %s", patience, text, c.Log())
}
