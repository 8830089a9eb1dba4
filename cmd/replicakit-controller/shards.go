// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// How managers share the work.
//
// The namespaces are divided into ranges, all of which every manager knows. Each
// range has a lease, and whoever holds it works on the range: a worker with
// informers, controllers and clients of its own. A lease that is lost ends the work on
// its range, which is then taken as any other. The old worker never writes again, as it
// has permits of its own that nobody renews.
//
// The lease that there is without ranges is held by all managers together, in the
// name of their ranges: each of them renews it, and writes only as long as its own
// renewals allow. So managers with other ranges, and those with none, never work
// at the same time as these: for as long as one of these does they do not get that
// lease. The controllers are in its name too, as of a range whose manager runs other
// ones a part would be nobody's, and how long it lasts: whoever renewed it last says
// that for all.
//
// A manager takes the first range that is free at once, and each further one after
// that range has been free for one more lease duration for each range that it has
// already: managers that start together share evenly, a standby comes before
// whoever works already, and no range stays alone as long as there is a manager.
// No range is given back to one that comes later.

// shareWork takes part in the work until ctx ends.
func (m *manager) shareWork(ctx context.Context) error {
	return (&share{manager: m, lock: m.lock, work: (*worker).work}).run(ctx)
}

// A share is what one manager takes of the work.
type share struct {
	*manager
	lock       func(name, identity string) (resourcelock.Interface, error)
	work       func(*worker, context.Context) error
	candidates []*candidate
}

func (s *share) run(ctx context.Context) error {
	lock, err := s.lock(s.opts.lease.Name, s.opts.jointIdentity())
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	joint := &watchedLock{Interface: &jointLock{Interface: lock}, permit: newPermit(s.opts.renewDeadline)}
	identity, err := newIdentity()
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	for i := range s.opts.ranges {
		lock, err := s.lock(s.opts.rangeLease(i), identity)
		if err != nil {
			return fmt.Errorf("leader election: %w", err)
		}
		s.candidates = append(s.candidates, s.newCandidate(i, lock, joint.permit))
	}
	return s.campaign(ctx, candidacy{lock: joint, work: s.take})
}

// newCandidate is for the lease of a range, by a lock.
func (s *share) newCandidate(i int, lock resourcelock.Interface, joint *permit) *candidate {
	own := newPermit(s.opts.renewDeadline)
	return &candidate{
		lock:   &watchedLock{Interface: lock, permit: own, end: func(error) {}},
		worker: &worker{manager: s.manager, permits: []*permit{joint, own}, shard: &part{i, s.opts.ranges[i]}},
	}
}

// renewed is the candidate for the same lease once more, after it was lost.
func (s *share) renewed(c *candidate) *candidate {
	return s.newCandidate(c.worker.shard.index, c.lock.Interface, c.worker.permits[0])
}

// jointIdentity is the same for managers that may work at the same time.
func (o *options) jointIdentity() string {
	names := make([]string, len(o.enabled))
	for i, c := range o.enabled {
		names[i] = c.alias
	}
	return fmt.Sprintf("shards-%s-%ds-%s", o.ranges.Fingerprint(), o.leaseDuration/time.Second, strings.Join(names, "+"))
}

// A jointLock is of a lease that several processes hold together, by one identity.
type jointLock struct {
	resourcelock.Interface
	other *resourcelock.LeaderElectionRecord // of somebody else's, as it was last seen; nil: there was none
}

var errNotAlike = errors.New("--shard-ranges: others are at work with other ranges, with none, with other --controllers, or with another --leader-elect-lease-duration")

// Get fails once it has seen somebody else renew the lease.
func (l *jointLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return record, raw, err
	}
	before := l.other
	l.other = nil
	if record.HolderIdentity == "" || record.HolderIdentity == l.Identity() {
		return record, raw, nil
	}
	l.other = record
	if before != nil && before.HolderIdentity == record.HolderIdentity && !before.RenewTime.Equal(&record.RenewTime) {
		return nil, nil, fmt.Errorf("%w: lease %s is held by %s, and this is %s; all managers must have the same, and end before they change",
			errNotAlike, l.Describe(), record.HolderIdentity, l.Identity())
	}
	return record, raw, nil
}

// Update goes on top of what the others have written.
func (l *jointLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	conflict := l.Interface.Update(ctx, record)
	if !apierrors.IsConflict(conflict) {
		return conflict
	}
	current, _, err := l.Interface.Get(ctx)
	if err != nil || current.HolderIdentity != l.Identity() {
		return errors.Join(conflict, err)
	}
	return l.Interface.Update(ctx, record)
}

// A candidate is for the lease of one range.
type candidate struct {
	lock   *watchedLock
	worker *worker

	record *resourcelock.LeaderElectionRecord // as it was last seen; nil: there was no lease
	since  time.Time                          // the record is the same
	free   time.Time                          // since when nobody has held it; zero: somebody does
	held   bool
}

// take takes ranges and works on them until ctx ends or an error other than a lost lease
// ends the work on one, and returns after the last write.
func (s *share) take(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var working sync.WaitGroup
	lost := make(chan *candidate, len(s.candidates))
	for held := 0; ctx.Err() == nil; {
		if held < s.limit() {
			if c := s.takeOne(ctx, held); c != nil {
				held++
				working.Go(func() {
					if err := s.serve(ctx, c); !errors.Is(err, errLeaseLost) {
						fail(err)
						return
					}
					lost <- c
				})
			}
		}
		select {
		case <-ctx.Done():
		case c := <-lost:
			held--
			s.candidates[c.worker.shard.index] = s.renewed(c)
		case <-time.After(wait.Jitter(s.opts.retryPeriod, 0.2)):
		}
	}
	working.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func (s *share) limit() int {
	if s.opts.shardsPerManager == 0 {
		return len(s.candidates)
	}
	return min(s.opts.shardsPerManager, len(s.candidates))
}

// serve holds the lease that was taken, works, and gives it up after ctx has ended.
func (s *share) serve(ctx context.Context, c *candidate) error {
	c.lock.leading = true // even if nobody has answered yet: another holder ends it
	klog.FromContext(ctx).Info("Serving a range of namespaces", "shard", c.worker.shard.index, "range", c.worker.shard.String(), "lease", c.lock.Describe())
	err := s.campaign(ctx, candidacy{
		lock:    c.lock,
		work:    func(ctx context.Context) error { return s.work(c.worker, ctx) },
		release: true,
	})
	if errors.Is(err, errLeaseLost) {
		c.lock.permit.revoke()
		klog.FromContext(ctx).Error(err, "Ending the work on a range", "shard", c.worker.shard.index, "range", c.worker.shard.String(), "lease", c.lock.Describe())
	}
	return err
}

// takeOne looks at the ranges that are not held and takes the first one that has
// been free for long enough; nil: there is none.
func (s *share) takeOne(ctx context.Context, held int) (taken *candidate) {
	patience := time.Duration(held) * s.opts.leaseDuration
	for _, c := range s.candidates {
		if c.held {
			continue
		}
		c.look(ctx)
		if taken == nil && (c.isOurs() || c.isFree(patience) && c.take(ctx, s.opts.leaseDuration)) {
			c.held, taken = true, c
		}
	}
	return taken
}

// look finds out whether somebody holds the lease: whoever is named in it, for as
// long as it lasts after it was last seen to change. What the clocks of others say
// does not count, nor when it was asked for: the answer may be newer by any time.
func (c *candidate) look(ctx context.Context) {
	record, _, err := c.lock.Get(ctx)
	now := time.Now()
	switch {
	case apierrors.IsNotFound(err):
		record = nil
	case err != nil:
		klog.FromContext(ctx).Error(err, "A lease cannot be read", "lease", c.lock.Describe())
		return
	}
	if c.since.IsZero() || !sameRecord(record, c.record) {
		c.record, c.since = record, now
	}
	if c.isHeld(now) {
		c.free = time.Time{}
	} else if c.free.IsZero() {
		c.free = now
	}
}

func (c *candidate) isHeld(now time.Time) bool {
	if c.record == nil || c.record.HolderIdentity == "" {
		return false
	}
	return now.Before(c.since.Add(time.Duration(c.record.LeaseDurationSeconds) * time.Second))
}

// isFree reports whether nobody has held the lease for so long.
func (c *candidate) isFree(patience time.Duration) bool {
	return !c.free.IsZero() && time.Since(c.free) >= patience
}

// isOurs reports whether the lease names us, as it does once it was taken though nobody
// answered. That permits nothing yet: the first renewal does, which the campaign begins
// with.
func (c *candidate) isOurs() bool {
	return c.record != nil && c.record.HolderIdentity == c.lock.Identity()
}

func sameRecord(a, b *resourcelock.LeaderElectionRecord) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.HolderIdentity == b.HolderIdentity && a.LeaderTransitions == b.LeaderTransitions && a.RenewTime.Equal(&b.RenewTime)
}

// take makes the lease ours, unless somebody else was faster. If there is no answer, it
// is looked at again: at once, and by whoever looks next.
func (c *candidate) take(ctx context.Context, leaseDuration time.Duration) bool {
	now := metav1.Now()
	record := resourcelock.LeaderElectionRecord{
		HolderIdentity:       c.lock.Identity(),
		LeaseDurationSeconds: int(leaseDuration / time.Second),
		AcquireTime:          now,
		RenewTime:            now,
	}
	write := c.lock.Create
	if c.record != nil {
		record.LeaderTransitions = c.record.LeaderTransitions + 1
		write = c.lock.Update
	}
	err := write(ctx, record)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // somebody else was faster
		klog.FromContext(ctx).V(2).Info("A lease was not taken", "lease", c.lock.Describe(), "err", err)
	case err != nil:
		klog.FromContext(ctx).Error(err, "A lease cannot be taken", "lease", c.lock.Describe())
		c.look(ctx)
		return c.isOurs()
	}
	return err == nil
}
