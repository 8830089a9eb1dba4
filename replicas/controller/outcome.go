// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// An Outcome is what the status of an owner is made from.
type Outcome[C Object] struct {
	// Counts are the numbers of children, by the Rules of the Spec. If
	// Cache.ChildrenVersion tells how far the cache has come, they are as the pass
	// leaves them, even if the cache does not show it yet: children that it created
	// count, children that it deleted count as terminating or not at all. Otherwise
	// they are the numbers of Active and Terminating.
	Counts status.Counts
	// Active are the active children as they were before the pass created or
	// deleted any; Terminating are the children that are being deleted and are not
	// active.
	Active, Terminating []C
	// Desired is how many children were wanted when the pass began, and Generation
	// the owner's generation then.
	Desired    int32
	Generation int64
	// Gates are what held the pass back until now, in the order of the reasons. If there is
	// none, nothing did.
	Gates []Gate
	// ScaleErr is why a creation or deletion failed; nil if none did.
	ScaleErr error
	// Now is the instant for which everything was judged.
	Now time.Time

	undeleted bool // ScaleErr is of deletions alone
}

// Waiting reports whether the pass left the number of children alone because something else
// must happen first: the cache lacks earlier calls or is old, or there is a hold, a failed claim, a
// Conflict, or the deletion of the owner.
func (o Outcome[C]) Waiting() bool {
	return slices.ContainsFunc(o.Gates, func(g Gate) bool { return g.waits || g.Reason.row().waits })
}

// HeldBack reports whether the pass left out creations, deletions or claims because an earlier
// one had put them off.
func (o Outcome[C]) HeldBack() bool {
	return slices.ContainsFunc(o.Gates, func(g Gate) bool { return g.Earlier && g.Stops != 0 })
}

// Failure returns the argument for status.SetFailure, which makes the
// ReplicaFailure condition from it. If nothing but deletions failed, Active of the
// result is more than Desired, so that the reason is FailedDelete, even if the
// deletions were of children that must go and there are not too many.
func (o Outcome[C]) Failure() status.Failure {
	desired := o.Desired
	f := status.Failure{
		Err: o.ScaleErr, Waiting: o.Waiting(), Active: int32(len(o.Active)), Desired: &desired,
		ObservedGeneration: o.Generation, Now: o.Now,
	}
	if o.undeleted && f.Active <= o.Desired && o.Desired < math.MaxInt32 {
		f.Active = o.Desired + 1
	}
	return f
}

// A Pass tells what one call of Sync did for an owner. Its lists point to the
// children as the pass last saw them. Read only.
type Pass[O, C Object] struct {
	// Name is the owner's name. Owner is the owner as the cache has it or, if that has
	// been behind for some seconds, as the server has it; nil if there is none, or if
	// the pass did not read it because the cache was behind.
	Name  types.NamespacedName
	Owner O
	Outcome[C]
	// Stale says which cache does not show a write of an earlier pass yet; this
	// pass then did nothing. It is zero otherwise.
	Stale expectations.Stale
	// Scale is what the pass set out to create or delete, after BeforeScale. It is
	// both if children that must go could not be deleted and others were missing.
	Scale replicas.Scale[C]
	// Adopted and Released are the children of successful patches; Released also
	// has those that turned out to be gone. AdoptionRejected are orphans that the server
	// does not let the owner adopt. AdoptionPending are orphans whose adoption failed,
	// but that may become the owner's: none is created in their place.
	Adopted, Released, AdoptionRejected, AdoptionPending []C
	// Created and Deleted are the children of successful calls. Created also has
	// those that were found on the server after the call had failed.
	Created, Deleted []C
	// Failed counts the calls that failed, and the adoptions that were not tried
	// because the owner may not adopt. Skipped counts the creations that slow start
	// did not try after a failure.
	Failed, Skipped int
	// InFlight counts the names under which creations were sent that may have taken
	// effect or may do so yet. Refused creations do not count. The names are sent again
	// or looked for.
	InFlight int
	// Conflicts counts the delete calls that met a Conflict. LiveLists counts the
	// lists of children that did not use the cache, LiveReads such reads of one
	// child.
	Conflicts, LiveLists, LiveReads int
	// ViewWasStale reports whether the children were listed live because the cache
	// was known to be old.
	ViewWasStale bool
	// OwnerWasStale reports whether calls of the Controller have shown that the owner is
	// gone, is being deleted, or wants something else than the one in the cache: then
	// nothing was created or deleted by that one.
	OwnerWasStale bool
	// OwnerErr is why the owner could not be read from the server before children were
	// deleted, before an adoption, or before or after a status write.
	OwnerErr error
	// LookErr is why a child could not be read from the server whose creation or deletion had
	// no answer. The call stays in flight.
	LookErr error
	// Calls are the calls to the server, in the order in which they were answered.
	Calls []Call
	// GateChanges are what is worth a line in a log: gates that have lasted for a second,
	// changed or ended.
	GateChanges []GateChange
	// Observed reports whether the children were listed and a plan was made. If
	// not, there was nothing to make a status from.
	Observed bool
	// Status is the owner as the server stored it with its new status; nil if none
	// was written.
	Status O
	// StatusErr is why the status could not be written; nil if it could, or did not
	// have to be. If nothing else failed, it is the same as Err.
	StatusErr error
	// RelatedErr is why pods were not ranked by co-location; nil if Cache.Related
	// returned no error.
	RelatedErr error
	// RequeueAfter and Err are what Sync returned. If the spec is refused, Err is a
	// *replicas.RefusedError, although Sync returned nil.
	RequeueAfter time.Duration
	Err          error
	// Took is how long the pass took.
	Took time.Duration
}

// mostInText is how many names, and how many calls, String has at most.
const mostInText = 20

// String describes the pass in a few lines: what was wanted and believed, each call, why the
// deleted children were chosen, and what held the pass back.
func (p Pass[O, C]) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s: %d wanted, %d active", p.Now.UTC().Format(time.RFC3339Nano), p.Name, p.Desired, len(p.Active))
	if names := firstNames(p.Active); len(names) > 0 {
		fmt.Fprintf(&text, " (%s)", strings.Join(names, " "))
	}
	fmt.Fprintf(&text, ", %d terminating", len(p.Terminating))
	for _, call := range p.Calls[:min(len(p.Calls), mostInText)] {
		fmt.Fprintf(&text, "\n  %v", call)
	}
	if more := len(p.Calls) - mostInText; more > 0 {
		fmt.Fprintf(&text, "\n  and %d more calls", more)
	}
	for _, v := range p.Scale.Delete[:min(len(p.Scale.Delete), mostInText)] {
		if !object.IsNil(v.Object) {
			fmt.Fprintf(&text, "\n  %s was chosen: %s", v.Object.GetName(), v.Explain())
		}
	}
	for _, g := range p.Gates {
		fmt.Fprintf(&text, "\n  %v", g)
	}
	if p.Err != nil {
		fmt.Fprintf(&text, "\n  error: %v", p.Err)
	}
	return text.String()
}

// firstNames are the names of the first children, and "..." if there are more.
func firstNames[C Object](children []C) (names []string) {
	for _, c := range children[:min(len(children), mostInText)] {
		if !object.IsNil(c) {
			names = append(names, c.GetName())
		}
	}
	if len(children) > mostInText {
		names = append(names, "...")
	}
	return names
}
