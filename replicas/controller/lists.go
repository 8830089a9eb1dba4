// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/backoff"
)

// listsAtOnce is how many live lists of a Controller are under way at once: after an
// outage thousands of owners want one. Another Controller, which may serve another
// server, has turns of its own: lists that hang hold back nobody else's.
const listsAtOnce = 2

// listsWaiting is how many more wait for their turn. A pass that wants another one gives its
// worker back, for passes that need no list, and asks again after listBusy.
const (
	listsWaiting = 2
	listBusy     = time.Second
)

// listTimeout is how long a list may take: one that hangs would keep its turn for ever.
const listTimeout = 30 * time.Second

// lists makes the live lists of a Controller. Owners of one namespace and selector
// share a list that begins after they asked. A list that fails holds all others
// back, for a while that doubles.
type lists[C Object] struct {
	list   func(ctx context.Context, namespace string, matching labels.Selector) (List[C], error)
	now    func() time.Time
	random func(n int) int
	turns  chan struct{}

	mu      sync.Mutex
	made    int                     // those under way, and those that wait
	waiting map[string]*listCall[C] // those that have not begun
	failed  backoff.Hold
}

type listCall[C Object] struct {
	done    chan struct{}
	list    List[C]
	err     error
	givenUp bool // who made it did not wait for an answer
}

func newLists[C Object](list func(context.Context, string, labels.Selector) (List[C], error), now func() time.Time, random func(n int) int) *lists[C] {
	return &lists[C]{list: list, now: now, random: random, turns: make(chan struct{}, listsAtOnce)}
}

// heldError says that lists are held back, for how long, and why.
type heldError struct {
	wait time.Duration
	why  string
	busy bool
}

func (e heldError) Error() string {
	return fmt.Sprintf("live lists are held back for %v, as %s", e.wait.Round(time.Millisecond), e.why)
}

// get returns a list that was made after the call. If who makes it for all gives
// up, another one does.
func (l *lists[C]) get(ctx context.Context, namespace string, matching labels.Selector) (List[C], error) {
	key := namespace + "/" + matching.String()
	for {
		call, mine, err := l.join(key)
		if err != nil {
			return List[C]{}, err
		}
		if mine {
			l.make(ctx, key, call, namespace, matching)
		}
		select {
		case <-call.done:
		case <-ctx.Done():
			return List[C]{}, context.Cause(ctx)
		}
		if mine || !call.givenUp {
			return call.list, call.err
		}
	}
}

// join returns the list that has not begun, and whether it is the caller's to make.
func (l *lists[C]) join(key string) (call *listCall[C], mine bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.failed.Remaining(l.now()); wait > 0 {
		return nil, false, heldError{wait, "one failed", false}
	}
	if call, joined := l.waiting[key]; joined {
		return call, false, nil
	}
	if l.made == listsAtOnce+listsWaiting {
		return nil, false, heldError{listBusy, "others are under way", true}
	}
	l.made++
	if l.waiting == nil {
		l.waiting = map[string]*listCall[C]{}
	}
	call = &listCall[C]{done: make(chan struct{})}
	l.waiting[key] = call
	return call, true, nil
}

// make waits for its turn and makes the call.
func (l *lists[C]) make(ctx context.Context, key string, call *listCall[C], namespace string, matching labels.Selector) {
	defer close(call.done)
	call.givenUp = true // unless it is answered
	begun := false
	begin := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !begun {
			delete(l.waiting, key)
		}
		begun = true
	}
	defer func() {
		begin()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.made--
	}()
	select {
	case l.turns <- struct{}{}:
	case <-ctx.Done():
		call.err = context.Cause(ctx)
		return
	}
	defer func() { <-l.turns }()
	begin() // who asks from now on needs another one
	limited, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("a list took more than %v", listTimeout))
	defer cancel()
	call.list, call.err = l.list(limited, namespace, matching)
	if call.err != nil && limited.Err() != nil && ctx.Err() == nil {
		call.err = fmt.Errorf("%w: %w", context.Cause(limited), call.err)
	}
	call.givenUp = call.err != nil && ctx.Err() != nil
	l.ended(call.err, call.givenUp)
}

// ended holds further lists back after one that failed, unless it was given up.
func (l *lists[C]) ended(err error, givenUp bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.failed = backoff.Hold{}
	case !givenUp:
		ListFailed.grow(&l.failed, l.now())
		l.failed.Wait = max(l.failed.Wait, serverDelay([]error{err}))
	}
}

// retryIn is how long somebody has to wait whose list failed, or was held back: somewhat
// longer for each owner than for the next, so that not all ask again at one moment.
func (l *lists[C]) retryIn(err error) time.Duration {
	l.mu.Lock()
	wait := l.failed.Remaining(l.now())
	l.mu.Unlock()
	if held := (heldError{}); errors.As(err, &held) {
		wait = held.wait
	}
	if wait <= 0 {
		return 0
	}
	return wait + time.Duration(l.random(int(wait/2/time.Millisecond)+1))*time.Millisecond
}
