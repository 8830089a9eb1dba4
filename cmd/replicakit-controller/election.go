// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

var errLeaseLost = errors.New("the lease was lost")

// elect waits for the one lease that there is, and works while holding it.
func (m *manager) elect(ctx context.Context) error {
	identity, err := newIdentity()
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	lock, err := m.lock(m.opts.lease.Name, identity)
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	p := newPermit(m.opts.renewDeadline)
	w := &worker{manager: m, permits: []*permit{p}}
	return m.campaign(ctx, candidacy{lock: &watchedLock{Interface: lock, permit: p}, work: w.work, release: true})
}

// leaseIsNowhere reports whether the namespace of the lease does not exist, as far as the
// server says so.
func (m *manager) leaseIsNowhere(ctx context.Context) bool {
	client, err := m.client("lease")
	if err != nil {
		return false
	}
	exists, err := namespaceExists(ctx, client, m.opts.lease.Namespace)
	return err == nil && !exists
}

// A candidacy is for a lease.
type candidacy struct {
	lock *watchedLock
	// work is done once, while the lease is held. It ends when its context does, and
	// returns after the last write.
	work func(context.Context) error
	// release the lease in the end: nobody else holds it meanwhile.
	release bool
}

// campaign waits for the lease, works while holding it, and gives it up after ctx
// has ended and the last write is done: not before, as the next holder begins at
// once. Who loses the lease returns without waiting for anything.
func (m *manager) campaign(ctx context.Context, c candidacy) error {
	campaign, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	giveUp := func() { end(nil) }
	c.lock.end, c.lock.missing = end, m.leaseIsNowhere
	var began atomic.Bool
	worked := make(chan error, 1)
	elector, err := m.elector(c.lock, func(leading context.Context) {
		began.Store(true)
		working, stop := context.WithCancel(leading)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		err := c.work(working)
		if leading.Err() != nil {
			return // lost, or never begun
		}
		worked <- err
		giveUp()
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	defer m.watch(elector)()
	defer context.AfterFunc(ctx, func() {
		if !began.Load() {
			giveUp()
		}
	})()
	elector.Run(campaign)
	switch cause := context.Cause(campaign); {
	case cause == nil:
		return fmt.Errorf("%w: somebody else may be at work", errLeaseLost)
	case !errors.Is(cause, context.Canceled):
		return cause
	}
	if c.release {
		release(ctx, c.lock)
	}
	select {
	case err := <-worked:
		return err
	default:
		return nil
	}
}

// newIdentity returns what no other process has.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	return host + "_" + string(uuid.NewUUID()), err
}

// lock has a client of its own, whose calls neither wait behind others nor
// outlive the lease, and need no permit.
func (m *manager) lock(name, identity string) (resourcelock.Interface, error) {
	config := rest.CopyConfig(m.config)
	config.UserAgent = userAgent
	return resourcelock.NewFromKubeconfig(m.opts.resourceLock, m.opts.lease.Namespace, name, resourcelock.ResourceLockConfig{Identity: identity}, config, m.opts.renewDeadline)
}

func (m *manager) elector(lock resourcelock.Interface, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	_, name, _ := strings.Cut(lock.Describe(), "/")
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:          name,
		Lock:          lock,
		LeaseDuration: m.opts.leaseDuration,
		RenewDeadline: m.opts.renewDeadline,
		RetryPeriod:   m.opts.retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() {},
		},
	})
}

// watch has /healthz tell if the elector's lease is not renewed.
func (m *manager) watch(elector *leaderelection.LeaderElector) (stop func()) {
	watchdog := leaderelection.NewLeaderHealthzAdaptor(watchdogPatience)
	watchdog.SetLeaderElection(elector)
	return m.watchdogs.add(watchdog)
}

// release lets the next one begin at once. The elector could do it itself, but
// would also try where the lease is lost and the server is gone: holding up the
// exit beyond the time that the lease lasts.
func release(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	record, _, err := lock.Get(ctx)
	if err == nil && record.HolderIdentity == lock.Identity() {
		record.HolderIdentity = ""
		record.LeaseDurationSeconds = 1
		record.RenewTime = metav1.Now()
		err = lock.Update(ctx, *record)
	}
	logger := klog.FromContext(ctx)
	if err != nil {
		logger.Error(err, "The lease was not released", "lock", lock.Describe())
		return
	}
	logger.Info("Released the lease", "lock", lock.Describe())
}
