// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inside gives this library's own tests the parts of replicastest that are hidden from users.
//
// A type of replicastest hides a value by embedding Hidden under an unexported name. Only Of can return it,
// because the method that returns it is not exported either:
//
//	inside.Of[inside.Stream](view.ChildWatch).Lose()
package inside

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

// Hidden is a value that a type hides.
type Hidden struct{ value any }

// Hide hides a value.
func Hide(value any) Hidden { return Hidden{value} }

func (h Hidden) open() any { return h.value }

// Of returns the value that is hidden, or the zero T if it has another type.
func Of[T any](value interface{ open() any }) T {
	hidden, _ := value.open().(T)
	return hidden
}

// Ledgers are hidden in a controller.Controller, and know the children of its owners. Ledger is the type
// *ledger.Ledger of those children.
type Ledgers[Ledger any] interface {
	// Ledger returns the ledger of an owner. It makes one if there is none.
	Ledger(owner expectations.Key) Ledger
	// Ledgers returns all ledgers of owners that have not left the cache.
	Ledgers() map[expectations.Key]Ledger
}

// A Controller is hidden in a replicastest.Controller. It has hooks, which may be nil, and the pass that is
// under way. Pass is controller.Pass, and C the type of a child.
type Controller[Pass, C any] struct {
	// Listed is called after a pass has listed the children from the cache. Its changes come too late for
	// that list.
	Listed func()
	// Scaling is called with the children that a pass counts, before the pass creates or deletes as
	// Passing.Scale says.
	Scaling func(owned []C)
	// Passing is the pass that is under way, or nil. Its Owner is that of the cache. Shortly before the
	// pass creates or deletes, Owner is the one that the pass uses, and Scale is set. After a Crash the
	// pass stays under way for ever.
	Passing *Pass
	// Related are the children that count for co-location, if that pass has read them yet.
	Related []C
	// Ledgers hides the Ledgers of the controller.Controller.
	Ledgers Hidden
	// Now is the time on the controller's clock.
	Now func() time.Time
	// Queued returns the time at which a name is worked on next, and whether it is in the queue. An owner
	// that has work to do, and is not in the queue, sleeps until an event wakes it.
	Queued func(types.NamespacedName) (time.Time, bool)
}

// A Client is hidden in a replicastest.Client. Call is replicastest.Call.
type Client[Call any] struct {
	// Calling returns the client's call that takes effect now, and whether there is one. In Cluster.Changed
	// it reports whether this client causes the change. The call is late if its caller no longer waits.
	Calling func() (call Call, late, ok bool)
	// InFlight returns the client's calls that have returned an error and will take effect later, in that
	// order.
	InFlight func() []Call
}

// A Cluster is hidden in a replicastest.Cluster.
type Cluster interface {
	// Backup returns a function that restores the present objects. Resource versions go back too, so later
	// writes get versions that were used before. All watches break, and Cluster.Changed is not called. A
	// namespace that is being deleted stays so.
	Backup() (restore func())
	// Churn returns a replicastest.Part that again and again changes an annotation of every child of a
	// namespace, as probes and agents do. The first change comes after half the given time. If the time is
	// 0 or less, it is a second.
	Churn(namespace string, every time.Duration) Part
	// TerminateNamespace deletes a namespace. From now on nothing can be created in it. Its children are
	// deleted, and then its owners.
	TerminateNamespace(name string)
	// CreateNamespace creates a deleted namespace again, and reports whether it did.
	CreateNamespace(name string) bool
	// Version returns the latest resourceVersion, which is the number of writes so far.
	Version() uint64
	// AddNode adds a node that is ready. Only pods use nodes.
	AddNode(name string)
}

// A Part is a replicastest.Part.
type Part interface {
	Due() (time.Time, bool)
	Step()
}

// A View is hidden in a replicastest.View.
type View interface {
	// Synced reports whether the first list of each kind has arrived.
	Synced() bool
	// ListFrom lets a view that has seen nothing yet begin with the first list of another view, which has
	// hung since that list. It is as if the new view's server were behind, so later events arrive d later.
	// ListFrom reports whether there is such a list.
	ListFrom(old View, d time.Duration) bool
}

// A Stream is hidden in a replicastest.Stream.
type Stream interface {
	// Broken and Hung report whether the watch is broken, or hangs.
	Broken() bool
	Hung() bool
	// Version returns the resourceVersion up to which the cache is filled, or "" if nothing has arrived
	// yet.
	Version() string
	// Due returns the time of the next event, and whether there is one. While the watch hangs, there is
	// none.
	Due() (time.Time, bool)
	// Pending returns how many events have not arrived yet.
	Pending() int
	// Deliver delivers the next event even if it is not due. If there is none, or if the
	// watch hangs, it does nothing.
	Deliver()
	// Lose drops the next event, as if it had not been sent. The last event of a list
	// is never lost.
	Lose()
	// Repeat delivers the last event a second time.
	Repeat()
	// Replay ends a Hang. The events that were kept back arrive one by one, at this interval. Later ones
	// arrive after them.
	Replay(every time.Duration)
}

type scaling struct{}

// WithScaling returns a context for a pass. The pass calls told with the owner, the children that it counts
// and its Scale, before it creates or deletes anything.
func WithScaling[O, C, Scale any](ctx context.Context, told func(owner O, owned []C, scale Scale)) context.Context {
	return context.WithValue(ctx, scaling{}, told)
}

// Scaling calls the function that was passed to WithScaling.
func Scaling[O, C, Scale any](ctx context.Context, owner O, owned []C, scale Scale) {
	if told, ok := ctx.Value(scaling{}).(func(owner O, owned []C, scale Scale)); ok {
		told(owner, owned, scale)
	}
}
