// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"math/rand/v2"
	"time"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
)

// Options are the settings of a Controller. Each zero field means its default.
type Options struct {
	// Now tells the time. nil means time.Now.
	Now func() time.Time
	// Random returns a number from 0 to n-1. It is used for the names of children,
	// and to spread what would otherwise happen at one moment. It is called by
	// several goroutines at once. nil means rand.IntN of math/rand/v2.
	Random func(n int) int
	// Events takes the events about owners. If it is nil, or a nil pointer, there
	// are none.
	Events EventSink
	// MaxParallel is how many calls may be under way at once for one owner. 0 means
	// DefaultMaxParallel; negative is refused. If it is 1, the goroutine that
	// called Sync makes the calls, one after the other.
	MaxParallel int
	// ExpectationsTimeout is how long a creation, deletion or status write may stay unseen
	// before the cache counts as old. For creations and deletions up to a tenth is added at
	// random for each owner, so that owners that wait for the same watch do not all list at
	// one moment. 0 means expectations.DefaultTimeout; negative is refused.
	ExpectationsTimeout time.Duration
	// BackOffFailed holds creations if children end soon after they were created, such as
	// pods that a node refuses. As many creations wait as children of the last round
	// ended; others that are missing are created. A child counts if it is no longer active
	// after less than ten minutes, or if somebody else deleted it within ten seconds. The
	// hold lasts for 10 seconds, doubling with each such round to 5 minutes, times the
	// share of the round that ended, and for a second at least. A round whose children all
	// live starts it anew, and a new generation of the owner ends it. If BackOffFailed is
	// false, such an owner creates as fast as it can, as in Kubernetes.
	BackOffFailed bool
	// StatusDelay is how long a pass may wait if the update of a child can change
	// nothing but the owner's status, because the child became ready, for example.
	// With a delay of one second, a hundred such updates a second lead to one
	// status write a second for each owner. An update does not wait if it changes
	// the child's labels, owner or deletion, or whether the child is active, must
	// go or must stay; nor if the Spec has MaxDeletions. A BeforeScale that waits
	// until children are ready is called later by that delay. 0 means that no pass
	// waits, as in Kubernetes; negative is refused.
	StatusDelay time.Duration
	// UnfilteredChildren says that the children in the cache are those of a watch without a
	// label or field selector. Then its DELETED events say that children are gone for good, and
	// a live list that has such a child proves that the server was restored. If it is false,
	// DELETED events prove nothing, as a child that leaves a selector has them too.
	UnfilteredChildren bool
	// OnRestored is called once, when the Controller has noticed that the server was restored.
	// The error wraps ErrRestored and says what proves it. OnRestored must not block. nil means
	// that Run of replicas/clientgo, and the manager of replicas/controllerruntime, end with
	// that error. A Controller alone does nothing else than return the error from Sync.
	OnRestored func(error)
}

// DefaultMaxParallel is how many calls are under way at once for one owner if
// Options.MaxParallel is 0.
const DefaultMaxParallel = 128

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.IntN
	}
	if object.IsNil(o.Events) {
		o.Events = nil
	}
	if o.MaxParallel == 0 {
		o.MaxParallel = DefaultMaxParallel
	}
	if o.ExpectationsTimeout == 0 {
		o.ExpectationsTimeout = expectations.DefaultTimeout
	}
	return o
}
