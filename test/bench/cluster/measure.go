// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// measure runs one scenario with one of the two programs on a new control plane, and returns the measured
// values.
func measure(ctx context.Context, opts options, sc scenario, sd side) (got sample, err error) {
	plane, err := controlplane.Start(opts.binaries, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		cancel(nil)
		err = errors.Join(err, plane.Stop())
	}()
	b, err := newBed(ctx, plane.Config, opts.size)
	if err != nil {
		return nil, err
	}
	if err := b.prepare(ctx, sc); err != nil {
		return nil, err
	}
	kubeconfig := plane.Kubeconfig
	if sc.fault != nil {
		if b.proxy, err = startProxy(plane.Config, sc.fault); err != nil {
			return nil, err
		}
		defer b.proxy.Stop()
		if kubeconfig, err = b.proxy.Kubeconfig(); err != nil {
			return nil, err
		}
	}
	start := func() (*controller, error) {
		c, err := sd.start(ctx, opts, kubeconfig, sc)
		if err != nil {
			return nil, err
		}
		go func() {
			if <-c.Ended(); !c.mayEnd.Load() {
				cancel(c.Err())
			}
		}()
		return c, nil
	}
	if sc.play != nil {
		err := sc.play(ctx, b, start)
		return b.sample, err
	}
	c, err := start()
	if err != nil {
		return nil, err
	}
	got, err = b.measureController(ctx, sc, c)
	return got, c.stop(ctx, err)
}

// prepare creates the objects of the scenario, and checks that no controller is already working.
func (b *bed) prepare(ctx context.Context, sc scenario) error {
	if err := b.create(ctx, replicaSet(warmUp, warmUpPods)); err != nil {
		return err
	}
	if sc.prepare != nil {
		if err := sc.prepare(ctx, b); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	if err := b.awaitQuiet(ctx); err != nil {
		return err
	}
	if c := b.view.counts(); c.pods != len(b.pods) || c.replicas != b.reported {
		return fmt.Errorf("a controller is already working: %+v", c)
	}
	return nil
}

// measureController measures a controller during the scenario. The measurement starts after the warm-up. By
// then, the controller has seen all objects. The measurement ends as soon as the controller has stopped
// making calls.
func (b *bed) measureController(ctx context.Context, sc scenario, c *controller) (sample, error) {
	if err := b.warmUp(ctx); err != nil {
		return nil, err
	}
	if err := b.awaitQuiet(ctx); err != nil {
		return nil, err
	}
	before, err := c.usage(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.measure(ctx, sc.run); err != nil {
		return nil, err
	}
	after, err := c.usage(ctx)
	if err != nil {
		return nil, err
	}
	b.note("controller's CPU", cpu, after.cpu-before.cpu)
	b.note("controller's peak memory", memory, after.peak)
	b.note("syncs", number, after.syncs-before.syncs)
	return b.sample, nil
}

// measure runs the given function and waits until the controller makes no calls. Then it adds to the sample
// how much the API server's counters have increased.
func (b *bed) measure(ctx context.Context, work func(context.Context, *bed) error) error {
	before, err := b.tally(ctx)
	if err != nil {
		return err
	}
	b.began = time.Now()
	if err := work(ctx, b); err != nil {
		return err
	}
	if err := b.awaitQuiet(ctx); err != nil {
		return err
	}
	after, err := b.tally(ctx)
	if err != nil {
		return err
	}
	done := after.since(before)
	for _, kind := range kinds {
		b.note(kind, number, done.calls[kind])
	}
	b.note("calls refused", number, done.refused)
	b.note("deletions with a Conflict", number, done.changed)
	b.note("watch events sent", number, done.sent)
	b.note("API server's CPU", cpu, done.cpu)
	return nil
}
