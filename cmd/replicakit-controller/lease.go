// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A watchedLock ends the campaign if this process was the leader, and another process now holds the
// lease. It also ends the campaign if the namespace of the lease does not exist. A watchedLock
// needs no mutex, because the elector makes one call at a time.
type watchedLock struct {
	resourcelock.Interface
	end func(error) // ends the campaign immediately
	// missing reports whether the server says that the namespace of the lease does not exist. The
	// function may be nil.
	missing func(context.Context) bool
	leading bool
	trouble *leaseTrouble // may be nil
}

// A leaseTrouble holds the error of the last read or write of the lease. The zero value holds none.
type leaseTrouble struct {
	mu  sync.Mutex
	err error
}

// note records the answer to a call. A lease that does not exist yet, or that another candidate has written, is no
// trouble.
func (t *leaseTrouble) note(ctx context.Context, err error) {
	if t == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil && t.err != nil {
		return // the call was cut off by the renew deadline; the error before it says more
	}
	t.err = err
}

func (t *leaseTrouble) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Create creates the lease. If the namespace of the lease does not exist, Create ends the campaign.
func (l *watchedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.wrote(ctx, record, l.Interface.Create(ctx, record))
	l.endIfNowhere(ctx, err, apierrors.IsNotFound(err))
	return err
}

// endIfNowhere ends the campaign if the namespace of the lease does not exist. The caller sets
// known to true if err itself proves that the namespace is missing. If the server forbids access to
// the lease, err does not show whether the namespace exists, so endIfNowhere calls l.missing.
func (l *watchedLock) endIfNowhere(ctx context.Context, err error, known bool) {
	if known || apierrors.IsForbidden(err) && l.missing != nil && l.missing(ctx) {
		namespace, _, _ := strings.Cut(l.Describe(), "/")
		if !known {
			err = fmt.Errorf("the namespace does not exist: %w", err)
		}
		l.end(fmt.Errorf("--leader-elect-resource-namespace=%s: %w", namespace, err))
	}
}

// Update updates the lease. If the update makes this process the holder, Update sets l.leading.
func (l *watchedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.wrote(ctx, record, l.Interface.Update(ctx, record))
}

func (l *watchedLock) wrote(ctx context.Context, record resourcelock.LeaderElectionRecord, err error) error {
	l.trouble.note(ctx, err)
	l.leading = l.leading || err == nil && record.HolderIdentity == l.Identity()
	return err
}

// Get reads the lease. If this process was the leader and another process holds the lease, Get ends
// the campaign. Without this check, the elector would try to renew the lease until the renew
// deadline.
func (l *watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil || !l.leading {
		l.trouble.note(ctx, err) // a leader must write the lease, so a read ends no trouble
	}
	// The elector detects a renewal only if raw changes. The times in raw are whole seconds, so Get appends
	// the exact time.
	if err == nil {
		raw = strconv.AppendInt(slices.Clip(raw), record.RenewTime.UnixNano(), 10)
	}
	l.endIfNowhere(ctx, err, false)
	if err == nil && l.leading && record.HolderIdentity != "" && record.HolderIdentity != l.Identity() {
		l.end(fmt.Errorf("%w to %s", errLeaseLost, record.HolderIdentity))
	}
	return record, raw, err
}
