// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inside gives this library's own tests access to the parts of replicastest that are hidden from
// users.
//
// To hide a value from users, a type of replicastest embeds a Hidden that contains it, under an unexported name.
// Only Of can return the value, because the method Hidden.open is not exported:
//
//	inside.Of[inside.Stream](view.ChildWatch).Lose()
package inside

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Hidden wraps a value that a type hides from users.
type Hidden struct{ value any }

// Hide wraps a value in a Hidden.
func Hide(value any) Hidden { return Hidden{value} }

func (h Hidden) open() any { return h.value }

// Of returns the hidden value, or the zero T if it is not a T.
func Of[T any](value interface{ open() any }) T {
	hidden, _ := value.open().(T)
	return hidden
}

// Ledgers is the hidden value of a controller.Controller. Each ledger holds the known facts about the children of
// one owner. Key is expectations.Key, and Ledger is *ledger.Ledger.
type Ledgers[Key comparable, Ledger any] interface {
	// Ledger returns the ledger of an owner, a new one if the owner has none.
	Ledger(owner Key) Ledger
	// Ledgers returns all ledgers, except the ledgers of owners that are no longer in the cache.
	Ledgers() map[Key]Ledger
}

// A Controller is the hidden value of a replicastest.Controller: hooks, which may be nil, and the state of the
// current pass. Pass is controller.Pass, and C is the type of a child.
type Controller[Pass, C any] struct {
	// Listed is called after a pass has listed the children from the cache, and cannot change the list.
	Listed func()
	// Scaling is called before a pass creates or deletes children according to Passing.Scale, with the children
	// that the pass counts.
	Scaling func(owned []C)
	// Passing is the current pass, or nil. At first, Passing.Owner is the owner from the cache. Shortly before the
	// pass creates or deletes children, the owner that it uses takes its place, and Passing.Scale is set. After a
	// Crash, Passing is still the interrupted pass.
	Passing *Pass
	// Related contains the children that count for co-location, once the current pass has read them.
	Related []C
	// Ledgers wraps the Ledgers value of the controller.Controller.
	Ledgers Hidden
	// Now returns the time on the controller's clock.
	Now func() time.Time
	// Queued returns the time of the next pass for an owner, and whether the owner is in the queue. Otherwise its
	// next pass comes only after an event.
	Queued func(types.NamespacedName) (time.Time, bool)
}

// A Client is the hidden value of a replicastest.Client. Call is replicastest.Call.
type Client[Call any] struct {
	// Calling returns the API call of this client that is currently taking effect, if ok, and whether the caller
	// has stopped waiting for the response. During Cluster.Changed, ok reports whether this client causes the
	// change.
	Calling func() (call Call, late, ok bool)
	// InFlight returns the client's calls that have returned an error but will still take effect, sorted by the
	// time at which they will, earliest first.
	InFlight func() []Call
}

// A Cluster is the hidden value of a replicastest.Cluster.
type Cluster interface {
	// Backup saves the objects of the cluster, and returns a function that restores them. It also sets the
	// cluster's resourceVersion back, so later writes reuse resourceVersions, and breaks all watches. But it does
	// not call Cluster.Changed, and does not restore namespaces that are being deleted.
	Backup() (restore func())
	// Churn returns a replicastest.Part that changes an annotation of every child in a namespace again and again, as
	// probes and agents do in a real cluster: after half of the interval every, and then after each. 0 or less
	// means one second.
	Churn(namespace string, every time.Duration) Part
	// TerminateNamespace deletes a namespace, in which no object can be created from then on. Its children are
	// deleted before the owners.
	TerminateNamespace(name string)
	// CreateNamespace creates a deleted namespace again, and reports whether the namespace was created.
	CreateNamespace(name string) bool
	// Version returns the latest resourceVersion, which is the number of writes so far.
	Version() uint64
	// AddNode adds a node that is ready. Nodes matter only for pods.
	AddNode(name string)
	// SkewNodes sets by how much the clocks of all nodes, whose time is in the conditions of pods, are ahead of the
	// cluster's clock.
	SkewNodes(d time.Duration)
}

// A Part is a replicastest.Part.
type Part interface {
	Due() (time.Time, bool)
	Step()
}

// A View is the hidden value of a replicastest.View.
type View interface {
	// Synced reports whether the first list of each kind has arrived.
	Synced() bool
	// ListFrom fills this view, which must be empty, with the first list of an older view, whose watches must have
	// hung since it was made. Each later event is delayed by d, so this view behaves as if its server were behind.
	// ListFrom returns false if a watch of the older view is broken.
	ListFrom(old View, d time.Duration) bool
}

// A Stream is the hidden value of a replicastest.Stream.
type Stream interface {
	// Broken reports whether the watch is broken, and Hung reports whether the watch hangs.
	Broken() bool
	Hung() bool
	// Version returns the resourceVersion that the cache has reached, or "" if nothing has arrived yet.
	Version() string
	// Due returns the time of the next event, and whether there is one. While the watch hangs, there is none.
	Due() (time.Time, bool)
	// Pending returns the number of events that have not arrived yet.
	Pending() int
	// Deliver delivers the next event, if there is one, even if it is not due yet.
	Deliver()
	// Lose drops the next event, as if the server had not sent it, but never the last event of a list.
	Lose()
	// Repeat delivers the last event a second time.
	Repeat()
	// Replay ends a Hang. The events that it delayed arrive one by one at the given interval, and newer ones after
	// them.
	Replay(every time.Duration)
}

type scaling struct{}

// WithScaling returns a context for a pass, which calls the given function, with the owner, the counted children and
// its Scale, before it creates or deletes children.
func WithScaling[O, C, Scale any](ctx context.Context, told func(owner O, owned []C, scale Scale)) context.Context {
	return context.WithValue(ctx, scaling{}, told)
}

// Scaling calls the function that was passed to WithScaling.
func Scaling[O, C, Scale any](ctx context.Context, owner O, owned []C, scale Scale) {
	if told, ok := ctx.Value(scaling{}).(func(owner O, owned []C, scale Scale)); ok {
		told(owner, owned, scale)
	}
}
