// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// A reading is one instant on both clocks of the machine. The wall clock can be
// set; the monotonic one may stand still while the machine sleeps.
type reading struct {
	wall      time.Time
	monotonic time.Duration // since the program began
}

var began = time.Now()

func readingOf(t time.Time) reading { return reading{t.Round(0), t.Sub(began)} }

func readClocks() reading { return readingOf(time.Now()) }

// since is the time from one instant to another, on the clock that says more.
func (r reading) since(earlier reading) time.Duration {
	return max(r.wall.Sub(earlier.wall), r.monotonic-earlier.monotonic)
}

// A permit allows writes as long as nobody else can have the lease: until the
// renew deadline after the RenewTime in the last renewal that the server
// accepted. Others wait for the lease duration, which is longer, from when they
// have seen that renewal.
//
// What counts is when it was sent. The answer may have come long ago in a process
// that did not run, and be read only now.
type permit struct {
	deadline time.Duration
	now      func() reading
	sent     atomic.Pointer[reading] // the RenewTime; nil: there is no lease
	told     atomic.Bool             // that writes are refused
}

func newPermit(deadline time.Duration) *permit {
	return &permit{deadline: deadline, now: readClocks}
}

func (p *permit) renew(sent reading) {
	p.sent.Store(&sent)
	p.told.Store(false)
}

func (p *permit) revoke() { p.sent.Store(nil) }

// check returns why nothing may be written now; nil: it may.
func (p *permit) check() error {
	sent := p.sent.Load()
	if sent == nil {
		return errors.New("not written: the lease is not held")
	}
	if age := p.now().since(*sent); age >= p.deadline {
		return fmt.Errorf("not written: the lease was renewed %v ago, and must have been in the last %v", age.Round(time.Millisecond), p.deadline)
	}
	return nil
}

// wrap is for rest.Config.Wrap: beneath the client's rate limiter and its
// retries, so that whatever waited there is asked about when it is sent.
//
// The body asks once more: the transport reads it when it has a connection, and
// reads it anew when it sends a request again by itself. A server does not act on
// a request whose body never came.
func (p *permit) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if isRead(req) {
			return next.RoundTrip(req)
		}
		if err := p.ask(req.Context()); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, err
		}
		return next.RoundTrip(p.guard(req))
	})
}

// guard returns the request with a body that asks.
func (p *permit) guard(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	ctx := req.Context()
	guarded := req.WithContext(ctx)
	guarded.Body = guardedBody{req.Body, p, ctx}
	if req.GetBody != nil {
		guarded.GetBody = func() (io.ReadCloser, error) {
			again, err := req.GetBody()
			return guardedBody{again, p, ctx}, err
		}
	}
	return guarded
}

type guardedBody struct {
	io.ReadCloser
	permit *permit
	ctx    context.Context //nolint:containedctx // of the request that the body is part of
}

func (b guardedBody) Read(data []byte) (int, error) {
	if err := b.permit.ask(b.ctx); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(data)
}

// ask is check, and logs the first refusal after a renewal.
func (p *permit) ask(ctx context.Context) error {
	err := p.check()
	if err == nil {
		return nil
	}
	refusedWrites.Inc()
	if p.told.CompareAndSwap(false, true) {
		klog.FromContext(ctx).Info("Writes are refused until the lease is renewed", "reason", err)
	}
	return err
}

// A watchedLock tells the permit what becomes of the lease. The elector makes one call at
// a time.
type watchedLock struct {
	resourcelock.Interface
	permit *permit
	end    func(error) // of the campaign, at once
	// missing reports whether the namespace of the lease does not exist; nil: nobody knows.
	missing func(context.Context) bool
	leading bool
}

// Create ends the campaign where there is no place for a lease.
func (l *watchedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.wrote(record, l.Interface.Create(ctx, record))
	l.endIfNowhere(ctx, err, apierrors.IsNotFound(err))
	return err
}

// endIfNowhere ends the campaign if there is no place for a lease. A server that forbids
// to ask for the lease does not say whether there is one.
func (l *watchedLock) endIfNowhere(ctx context.Context, err error, known bool) {
	if known || apierrors.IsForbidden(err) && l.missing != nil && l.missing(ctx) {
		namespace, _, _ := strings.Cut(l.Describe(), "/")
		if !known {
			err = fmt.Errorf("the namespace does not exist: %w", err)
		}
		l.end(fmt.Errorf("--leader-elect-resource-namespace=%s: %w", namespace, err))
	}
}

// Update ends the permit before the lease is given up: the next one begins at once.
func (l *watchedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != l.Identity() {
		l.permit.revoke()
	}
	return l.wrote(record, l.Interface.Update(ctx, record))
}

// wrote has the permit count from what was sent. After an error nobody knows what
// the server has, and the renewal before it counts on.
func (l *watchedLock) wrote(record resourcelock.LeaderElectionRecord, err error) error {
	if err == nil && record.HolderIdentity == l.Identity() {
		l.leading = true
		l.permit.renew(readingOf(record.RenewTime.Time))
	}
	return err
}

// Get ends the permit unless the lease is still ours. The elector goes on trying
// until its deadline; whoever sees another holder has lost, and leaves at once.
func (l *watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil { // electors compare texts, in which times have whole seconds
		raw = strconv.AppendInt(slices.Clip(raw), record.RenewTime.UnixNano(), 10)
	}
	l.endIfNowhere(ctx, err, false)
	switch {
	case apierrors.IsNotFound(err), err == nil && record.HolderIdentity == "":
		l.permit.revoke()
	case err == nil && record.HolderIdentity != l.Identity():
		l.permit.revoke()
		if l.leading {
			l.end(fmt.Errorf("%w to %s", errLeaseLost, record.HolderIdentity))
		}
	}
	return record, raw, err
}
