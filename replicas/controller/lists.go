package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// listing lets two live lists through at once, of all Controllers of the process:
// after an outage thousands of owners want one.
var listing = make(chan struct{}, 2)

// lists makes the live lists of a Controller. Owners of one namespace and selector
// share a list that begins after they asked. A list that fails holds all others
// back, for a while that doubles.
type lists[C Object] struct {
	list   func(ctx context.Context, namespace string, matching labels.Selector) (List[C], error)
	now    func() time.Time
	random func(n int) int

	mu      sync.Mutex
	waiting map[string]*listCall[C] // those that have not begun
	failed  hold
}

type listCall[C Object] struct {
	done chan struct{}
	list List[C]
	err  error
}

// heldError says that lists are held back, and for how long.
type heldError struct{ wait time.Duration }

func (e heldError) Error() string {
	return fmt.Sprintf("live lists are held back for %v, as one failed", e.wait.Round(time.Millisecond))
}

// get returns a list that was made after the call.
func (l *lists[C]) get(ctx context.Context, namespace string, matching labels.Selector) (List[C], error) {
	key := namespace + "/" + matching.String()
	l.mu.Lock()
	if wait := l.failed.remaining(l.now(), 0); wait > 0 {
		l.mu.Unlock()
		return List[C]{}, heldError{wait}
	}
	call, joined := l.waiting[key]
	if !joined {
		call = &listCall[C]{done: make(chan struct{})}
		if l.waiting == nil {
			l.waiting = map[string]*listCall[C]{}
		}
		l.waiting[key] = call
	}
	l.mu.Unlock()
	if !joined {
		l.make(ctx, key, call, namespace, matching)
	}
	select {
	case <-call.done:
		return call.list, call.err
	case <-ctx.Done():
		return List[C]{}, context.Cause(ctx)
	}
}

// make waits for its turn and makes the call.
func (l *lists[C]) make(ctx context.Context, key string, call *listCall[C], namespace string, matching labels.Selector) {
	defer close(call.done)
	call.err = fmt.Errorf("the list was not made") // unless it is
	begun := false
	begin := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !begun {
			delete(l.waiting, key)
		}
		begun = true
	}
	defer begin()
	select {
	case listing <- struct{}{}:
	case <-ctx.Done():
		call.err = context.Cause(ctx)
		return
	}
	defer func() { <-listing }()
	begin() // who asks from now on needs another one
	call.list, call.err = l.list(ctx, namespace, matching)
	l.ended(call.err, ctx.Err() != nil)
}

// ended holds further lists back after one that failed, unless it was given up.
func (l *lists[C]) ended(err error, givenUp bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.failed = hold{}
	case !givenUp:
		l.failed.double(l.now(), listHoldFirst, listHoldLast)
		l.failed.wait = max(l.failed.wait, serverDelay([]error{err}))
	}
}

// held is how long lists are held back still, and somewhat longer for each owner
// than for the next, so that not all ask again at one moment.
func (l *lists[C]) held() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := l.failed.remaining(l.now(), 0)
	if wait <= 0 {
		return 0
	}
	return wait + time.Duration(l.random(int(wait/2/time.Millisecond)+1))*time.Millisecond
}
