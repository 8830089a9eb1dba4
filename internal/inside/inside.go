// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inside gives this library's own tests what replicastest hides from users.
//
// A type of replicastest hides a value by embedding Hidden under an unexported name. Only
// Of can ask for it, because the method that returns it is not exported either:
//
//	inside.Of[*inside.Stream](view.ChildWatch).Lose()
package inside

import (
	"context"
	"time"
)

// Hidden is what a type hides.
type Hidden struct{ value any }

// Hide hides a value.
func Hide(value any) Hidden { return Hidden{value} }

func (h Hidden) open() any { return h.value }

// Of returns what a value hides, or the zero T if it hides something else.
func Of[T any](value interface{ open() any }) T {
	hidden, _ := value.open().(T)
	return hidden
}

// A Controller is what a replicastest.Controller hides: hooks, which may be nil, and the
// pass under way. Pass is controller.Pass, and C the type of a child.
type Controller[Pass, C any] struct {
	// Listed is called after a pass has listed the children from the cache: what it
	// changes comes too late for that list.
	Listed func()
	// Scaling is called before a pass creates or deletes what Passing.Scale says, of the
	// children that it counts.
	Scaling func(owned []C)
	// Passing has the Owner as the cache has it or, once the pass is about to create or
	// delete, as the pass goes by it, and then its Scale; nil if there is no pass. After a
	// Crash the pass stays under way for ever.
	Passing *Pass
	// Related are the children that count for co-location, as far as that pass has looked.
	Related []C
}

// A Client is what a replicastest.Client hides. Call is replicastest.Call.
type Client[Call any] struct {
	// Calling returns the client's call that takes effect now, and whether there is
	// one. In Cluster.Changed it tells whether this client causes the change. The call
	// is late if nobody waits for its answer any more.
	Calling func() (call Call, late, ok bool)
	// InFlight returns the client's calls that have returned an error and will take
	// effect later, the first one first.
	InFlight func() []Call
}

// A Stream is what a replicastest.Stream hides.
type Stream struct {
	// Lose drops the next event, as if it had not been sent. The last event of a list
	// is never lost.
	Lose func()
	// Repeat delivers the last event a second time.
	Repeat func()
	// Replay ends a Hang: the events that were kept back arrive one by one, each so
	// long after the one before it. Later ones arrive after them.
	Replay func(every time.Duration)
}

type watched struct{}

// Watched returns a context for a pass of a Kind whose BeforeScale only watches, because the
// Kind itself has none.
func Watched(ctx context.Context) context.Context { return context.WithValue(ctx, watched{}, true) }

// IsWatched reports whether a context is from Watched.
func IsWatched(ctx context.Context) bool { return ctx.Value(watched{}) != nil }
