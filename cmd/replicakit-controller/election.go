// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

var (
	errLeaseLost = errors.New("the lease was lost")
	errOvertaken = errors.New("another manager may be at work")
)

// elect waits for the lease, and runs the controllers while this process holds the lease.
func (m *manager) elect(ctx context.Context) error {
	identity, err := newIdentity()
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	lock, err := m.lock(identity)
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	return m.campaign(ctx, &watchedLock{Interface: lock, trouble: &m.lease}, (&worker{manager: m}).work)
}

// leaseIsNowhere reports whether the server says that the namespace of the lease does not exist.
func (m *manager) leaseIsNowhere(ctx context.Context) bool {
	client, err := m.client("lease")
	if err != nil {
		return false
	}
	exists, err := namespaceExists(ctx, client, m.opts.lease.Namespace)
	return err == nil && !exists
}

// campaign waits for the lease and then calls the function work once. When ctx is done, campaign
// waits until work has returned, and only then releases the lease. The next holder begins to write
// immediately after the release. If the lease is lost, campaign returns immediately, even if work
// has not returned yet.
func (m *manager) campaign(ctx context.Context, lock *watchedLock, work func(context.Context) error) error {
	campaign, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	giveUp := func() { end(nil) }
	lock.end, lock.missing = end, m.leaseIsNowhere
	var began atomic.Bool
	worked := make(chan error, 1)
	elector, err := m.elector(lock, func(leading context.Context) {
		began.Store(true)
		m.leads.Store(true)
		defer m.leads.Store(false)
		working, stop := context.WithCancel(leading)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		err := work(working)
		if leading.Err() != nil {
			return // the lease is lost, or the campaign ended before the work began
		}
		worked <- err
		giveUp()
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	m.watchdog.SetLeaderElection(elector)
	defer context.AfterFunc(ctx, func() {
		if !began.Load() {
			giveUp()
		}
	})()
	elector.Run(campaign)
	m.leads.Store(false)
	switch cause := context.Cause(campaign); {
	case cause == nil:
		return fmt.Errorf("%w: it could not be renewed for %v: %w", errLeaseLost, m.opts.renewDeadline, cmp.Or(m.lease.last(), errOvertaken))
	case !errors.Is(cause, context.Canceled):
		return cause
	}
	release(ctx, lock)
	select {
	case err := <-worked:
		return err
	default:
		return nil
	}
}

// newIdentity returns a unique identity for this process.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	return host + "_" + string(uuid.NewUUID()), err
}

// lock returns a resource lock with its own client. The requests of this client do not wait behind
// other requests. Each request of this client times out before the lease expires. The fence reads
// these requests to learn when the lease was renewed.
func (m *manager) lock(identity string) (resourcelock.Interface, error) {
	config := rest.CopyConfig(m.config)
	config.UserAgent = userAgent
	config.Wrap(m.fence.Wrap)
	return resourcelock.NewFromKubeconfig(m.opts.resourceLock, m.opts.lease.Namespace, m.opts.lease.Name, resourcelock.ResourceLockConfig{Identity: identity}, config, m.opts.renewDeadline)
}

func (m *manager) elector(lock resourcelock.Interface, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:          m.opts.lease.Name,
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

// release gives up the lease, so that the next holder can begin immediately. The elector's own
// option ReleaseOnCancel is not suitable. With this option, the elector also tries to release a
// lease that it could not renew. If the API server does not answer the request for the release, the
// process may end only after the lease has expired.
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
