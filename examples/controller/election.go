package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

var errLeaseLost = errors.New("the lease was lost")

// elect waits for the lease, works while holding it, and gives it up after ctx
// has ended and the last write is done: not before, as the next holder begins at
// once. Who loses the lease returns without waiting for anything.
func (m *manager) elect(ctx context.Context) error {
	campaign, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	giveUp := func() { end(nil) }
	lock, err := m.lock(end)
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	worked := make(chan error, 1)
	elector, err := m.elector(lock, func(leading context.Context) {
		working, stop := context.WithCancel(leading)
		defer context.AfterFunc(ctx, stop)()
		err := m.work(working)
		if leading.Err() != nil {
			return // lost, or never begun
		}
		m.writes.drain()
		worked <- err
		giveUp()
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		if !elector.IsLeader() {
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
	release(ctx, lock)
	select {
	case err := <-worked:
		return err
	default:
		return nil
	}
}

// lock has a client of its own, whose calls neither wait behind others nor
// outlive the lease, and need no permit.
func (m *manager) lock(end func(error)) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(m.config)
	config.UserAgent = userAgent
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lock, err := resourcelock.NewFromKubeconfig(m.opts.resourceLock, m.opts.lease.Namespace, m.opts.lease.Name, identity, config, m.opts.renewDeadline)
	return &watchedLock{Interface: lock, permit: m.permit, end: end}, err
}

func (m *manager) elector(lock resourcelock.Interface, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
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
	if err == nil {
		m.watchdog.SetLeaderElection(elector)
	}
	return elector, err
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
