// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inside gives this library's own tests access to the parts of replicastest that are hidden from
// users.
//
// To hide a value from users, a type of replicastest embeds a Hidden that contains the value. The embedded
// field has an unexported name. Only the function Of can return the hidden value, because the method
// Hidden.open is not exported:
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

// Of returns the hidden value. If the hidden value is not a T, the result is the zero T.
func Of[T any](value interface{ open() any }) T {
	hidden, _ := value.open().(T)
	return hidden
}

// Ledgers is the hidden value that the function Of returns for a controller.Controller. Each ledger holds
// the known facts about the children of one owner. The type parameter Key is expectations.Key, and Ledger is
// *ledger.Ledger.
type Ledgers[Key comparable, Ledger any] interface {
	// Ledger returns the ledger of an owner. If the owner has no ledger, Ledger creates one.
	Ledger(owner Key) Ledger
	// Ledgers returns all ledgers, except the ledgers of owners that are no longer in the cache.
	Ledgers() map[Key]Ledger
}

// A Controller is the hidden value that the function Of returns for a replicastest.Controller. Its fields
// are hooks and the state of the current pass. A hook may be nil. The type parameter Pass is
// controller.Pass, and C is the type of a child.
type Controller[Pass, C any] struct {
	// Listed is a hook that is called after a pass has listed the children from the cache. Changes that this
	// hook makes do not affect the list.
	Listed func()
	// Scaling is a hook that is called before a pass creates or deletes children according to Passing.Scale.
	// The argument owned lists the children that the pass counts.
	Scaling func(owned []C)
	// Passing is the current pass, or nil. At first, Passing.Owner is the owner from the cache. Shortly
	// before the pass creates or deletes children, Passing.Owner is set to the owner that the pass uses, and
	// Passing.Scale is set. After a Crash, the field Passing still holds the interrupted pass.
	Passing *Pass
	// Related contains the children that count for co-location. It is nil until the current pass has read
	// these children.
	Related []C
	// Ledgers wraps the Ledgers value of the controller.Controller.
	Ledgers Hidden
	// Now returns the time on the controller's clock.
	Now func() time.Time
	// Queued returns the time of the next pass for an owner, and whether the owner is in the queue. An owner
	// that is not in the queue gets its next pass only after an event.
	Queued func(types.NamespacedName) (time.Time, bool)
}

// A Client is the hidden value that the function Of returns for a replicastest.Client. The type parameter
// Call is replicastest.Call.
type Client[Call any] struct {
	// Calling is a function. It returns the API call of this client that is currently taking effect. If no
	// call is taking effect, ok is false. During Cluster.Changed, ok reports whether this client causes the
	// change. The second result reports whether the caller has stopped waiting for the response.
	Calling func() (call Call, late, ok bool)
	// InFlight returns the client's calls that have returned an error but will still take effect. The calls
	// are sorted by the time at which they will take effect, earliest first.
	InFlight func() []Call
}

// A Cluster is the hidden value that the function Of returns for a replicastest.Cluster.
type Cluster interface {
	// Backup saves the objects of the cluster, and returns a function that restores them. The function
	// restore also sets the cluster's resourceVersion back, so later writes reuse resourceVersions. The
	// function restore breaks all watches, but does not call Cluster.Changed, and does not restore
	// namespaces that are being deleted.
	Backup() (restore func())
	// Churn returns a replicastest.Part that repeatedly changes an annotation of every child in a namespace.
	// Probes and agents make similar changes in a real cluster. The parameter every is the interval between
	// two changes. The first change happens after half of the interval. If this parameter is 0 or negative,
	// the interval is one second.
	Churn(namespace string, every time.Duration) Part
	// TerminateNamespace deletes a namespace. After this call, no object can be created in the namespace. The
	// children in the namespace are deleted before the owners.
	TerminateNamespace(name string)
	// CreateNamespace creates a deleted namespace again, and reports whether the namespace was created.
	CreateNamespace(name string) bool
	// Version returns the latest resourceVersion, which is the number of writes so far.
	Version() uint64
	// AddNode adds a node that is ready. Nodes matter only for pods.
	AddNode(name string)
	// SkewNodes sets the difference between the clocks of all nodes and the cluster's clock. It is positive if
	// the nodes' clocks are ahead. The nodes write their time into the conditions of pods.
	SkewNodes(d time.Duration)
}

// A Part is a replicastest.Part.
type Part interface {
	Due() (time.Time, bool)
	Step()
}

// A View is the hidden value that the function Of returns for a replicastest.View.
type View interface {
	// Synced reports whether the first list of each kind has arrived.
	Synced() bool
	// ListFrom fills this view, which must be empty, with the first list of an older view. The argument old
	// is the older view. The watches of the older view must have hung since the older view was made. Each
	// later event is delayed by d, so this view behaves as if its server were behind. If a watch of the older
	// view is broken, ListFrom returns false.
	ListFrom(old View, d time.Duration) bool
}

// A Stream is the hidden value that the function Of returns for a replicastest.Stream.
type Stream interface {
	// Broken reports whether the watch is broken, and Hung reports whether the watch hangs.
	Broken() bool
	Hung() bool
	// Version returns the resourceVersion that the cache has reached, or "" if nothing has arrived yet.
	Version() string
	// Due returns the time of the next event, and whether there is a next event. While the watch hangs, there
	// is no next event.
	Due() (time.Time, bool)
	// Pending returns the number of events that have not arrived yet.
	Pending() int
	// Deliver delivers the next event even if the event is not due yet. If there is no next event, or if the
	// watch hangs, Deliver does nothing.
	Deliver()
	// Lose drops the next event, as if the server had not sent it. Lose never drops the last event of a list.
	Lose()
	// Repeat delivers the last event a second time.
	Repeat()
	// Replay ends a Hang. The events that the Hang delayed then arrive one by one, with the given interval
	// between them. Newer events arrive after the delayed events.
	Replay(every time.Duration)
}

type scaling struct{}

// WithScaling returns a context for a pass. Before the pass creates or deletes children, it calls the given
// function with the owner, the counted children and the Scale of the pass.
func WithScaling[O, C, Scale any](ctx context.Context, told func(owner O, owned []C, scale Scale)) context.Context {
	return context.WithValue(ctx, scaling{}, told)
}

// Scaling calls the function that was passed to WithScaling.
func Scaling[O, C, Scale any](ctx context.Context, owner O, owned []C, scale Scale) {
	if told, ok := ctx.Value(scaling{}).(func(owner O, owned []C, scale Scale)); ok {
		told(owner, owned, scale)
	}
}
