// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// incarnationKept is the minimum time for which an owner's state is kept after the owner's last pass. The
// minimum applies if the DELETED event of an old owner never arrives, but passes run for a new owner with the
// same name. The minimum also applies if an owner has left the cache, and no pass runs for its name.
const incarnationKept = time.Hour

// memory is the state that is kept between the passes of one owner. The fields rounds, ready, wrote and
// known have their own locks, because event handlers use them, too. The other fields are used only by the
// owner's current pass. A memory is dropped when its owner has left the cache and none of the owner's
// requests can still take effect. See owners.sweep.
type memory[C Object] struct {
	uid        types.UID
	generation int64
	lastPass   time.Time
	hasLeft    bool // the owner has left the cache, so only its calls in flight still matter

	// ledger holds the ledger that API calls have revealed but the cache does not show yet. These ledger are
	// about the children, and the creations and deletions in flight. A fact is dropped when the
	// cache shows it, or when a newer fact replaces it. If the owner leaves a filtered cache and returns,
	// the unanswered requests stay in ledger. The other fields but strays start empty.
	ledger *ledger.Ledger[C]
	// strays are new children that a webhook changed so that they are not the owner's, for example by taking off the
	// labels. They are still to be deleted.
	strays []C
	// wrote is the owner's last status write.
	wrote ownWrite
	// sentStatus is the last status that was sent, with the status that the server returned. The hold delays the
	// next sending of the same status.
	sentStatus struct {
		sent, kept map[string]any
		backoff.Hold
		outcome  uint64 // what Kind.Status made it from
		repeated int    // how many writes in a row have followed from nothing but Kind.Status
	}
	// owner is what calls have shown about the owner, until the cache shows it.
	owner ownerVersion
	// ready holds the time at which each child became ready, or not ready. The time is dropped when the child
	// is gone.
	ready readiness
	// rounds counts the children of each group that were last created together, and how many of them ended soon after
	// their creation. A round ends when the next round begins, or when the owner has a new generation.
	rounds rounds[C]
	// childrenTerm is the last term in which all children were seen in a live list, or in a cache that was
	// new enough. The field ownerTerm holds the last term in which the owner was checked. The check reads
	// the owner from the server, unless the cached owner is at least as new as the start of the term.
	childrenTerm, ownerTerm int
	// active is the number of active children after the last pass that was able to create and delete
	// children, including those that have left and must not be replaced yet. If a later pass finds fewer
	// active children, the later pass reads the owner from the server before it replaces those that have left.
	active int
	// holds contains the holds of this owner. A hold postpones calls. The table in gates.go shows what ends
	// each hold early.
	holds holds

	perGeneration
}

// perGeneration is the part of the state that is dropped when the owner's generation changes.
type perGeneration struct {
	refused string // the message of the last event about a refusal or an error of Kind.Spec
	// replace holds the IDs of children that must go, because the server refuses their change; see Change.OrReplace.
	replace sets.Set[types.UID]
}

// nothingLeft is called when the owner needs no creation or deletion. It drops the holds for a full quota,
// for Conflicts and for other objects that a cache shows late, so that the next such hold is short again.
// The hold after a failed creation or deletion, after a Retry-After, or while a namespace is being deleted is
// dropped only when it has expired.
func (s *memory[C]) nothingLeft(now time.Time) {
	maps.DeleteFunc(s.holds, func(k holdKey, h *hold) bool {
		switch k.Reason {
		case QuotaFull, Conflict, CreationInFlight, InputsStale:
			return true
		case UpdateFailed:
			return h.remaining(now, "") < -changesApart
		case NamespaceGoing, RetryAfter, CreationFailed, DeletionRetryAfter, DeletionFailed:
			return h.remaining(now, "") <= 0
		}
		return false
	})
}

// owners keeps the state of each owner by name and UID, because an owner may be deleted and recreated with
// the same name.
type owners[C Object] struct {
	patience func() time.Duration // returns the Patience of a new ledger

	mu sync.Mutex
	m  map[types.NamespacedName][]*memory[C]
	// passing holds the names of the owners that have a pass under way.
	passing sets.Set[types.NamespacedName]
	// standing holds the gates that stood after the last pass of each owner. Owners without such gates are left out.
	standing map[types.NamespacedName][]Gate
	// leavers holds the names of owners that have left the cache. Each pass checks one of these names in
	// sweepLeft.
	leavers []types.NamespacedName
}

// enter begins a pass for an owner, and returns the gates that stand. The result ok is false if another pass for
// the owner is already under way.
func (o *owners[C]) enter(name types.NamespacedName) (standing []Gate, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.passing.Has(name) {
		return nil, false
	}
	if o.passing == nil {
		o.passing, o.standing = sets.New[types.NamespacedName](), map[types.NamespacedName][]Gate{}
	}
	o.passing.Insert(name)
	return o.standing[name], true
}

// exit ends a pass for an owner, and keeps the gates that stand after it.
func (o *owners[C]) exit(name types.NamespacedName, standing []Gate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.passing.Delete(name)
	if o.standing[name] = standing; len(standing) == 0 {
		delete(o.standing, name)
	}
}

// stateOf returns the state of an owner, and drops the part of the state that belongs to another generation.
// The result idle lists the UIDs of other owners with the same name, if the time since their last pass is
// longer than incarnationKept. If stateOf is called outside a pass, the argument now is zero, and idle is
// nil.
func (o *owners[C]) stateOf(key expectations.Key, generation int64, now time.Time) (s *memory[C], idle []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s = o.incarnation(key)
	if s == nil || s.hasLeft {
		s = o.newMemory(key, s)
	}
	if s.generation != generation {
		s.generation, s.perGeneration = generation, perGeneration{}
		s.rounds.reset()
		maps.DeleteFunc(s.holds, func(k holdKey, _ *hold) bool { return k.Reason.row().ofSpec })
	}
	if now.IsZero() {
		return s, nil
	}
	s.lastPass = now
	o.sweepLeft(now)
	for _, other := range o.m[key.NamespacedName] {
		if other.uid != "" && now.Sub(other.lastPass) > incarnationKept && other.ledger.Waits(now) == 0 {
			idle = append(idle, other.uid)
		}
	}
	return s, idle
}

// newMemory returns a new state for an owner. If the owner has left the cache and returned, the argument
// former is its old state. The new state then replaces the old state, but keeps the unanswered requests. If
// there is no old state, former is nil.
func (o *owners[C]) newMemory(key expectations.Key, former *memory[C]) *memory[C] {
	s := &memory[C]{uid: key.UID, ledger: &ledger.Ledger[C]{Patience: o.patience()}}
	if former != nil {
		s.ledger, s.strays = former.ledger, former.strays
		s.ledger.Forget()
	}
	if o.m == nil {
		o.m = map[types.NamespacedName][]*memory[C]{}
	}
	others := slices.DeleteFunc(o.m[key.NamespacedName], func(other *memory[C]) bool { return other == former })
	o.m[key.NamespacedName] = append(others, s)
	return s
}

// get returns the state of an owner that has not left the cache, or nil if there is none.
func (o *owners[C]) get(key expectations.Key) *memory[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.incarnation(key); s != nil && !s.hasLeft {
		return s
	}
	return nil
}

// Ledger returns the ledger of an owner. This method is part of the interface inside.Ledgers.
func (o *owners[C]) Ledger(key expectations.Key) *ledger.Ledger[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.incarnation(key)
	if s == nil || s.hasLeft {
		s = o.newMemory(key, s)
	}
	return s.ledger
}

// Ledgers returns the ledgers of all owners, except owners that have left the cache. This method is part of
// the interface inside.Ledgers.
func (o *owners[C]) Ledgers() map[expectations.Key]*ledger.Ledger[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[expectations.Key]*ledger.Ledger[C]{}
	for name, states := range o.m {
		for _, s := range states {
			if !s.hasLeft {
				all[expectations.Key{NamespacedName: name, UID: s.uid}] = s.ledger
			}
		}
	}
	return all
}

func (o *owners[C]) incarnation(key expectations.Key) *memory[C] {
	for _, s := range o.m[key.NamespacedName] {
		if s.uid == key.UID {
			return s
		}
	}
	return nil
}

// forget records that an owner has left the cache. If key.UID is empty, all owners with this name have
// left.
func (o *owners[C]) forget(key expectations.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.m[key.NamespacedName] {
		if !s.hasLeft && (key.UID == "" || s.uid == key.UID) {
			s.hasLeft = true
			o.leavers = append(o.leavers, key.NamespacedName)
		}
	}
}

// sweepLeft checks the first name in leavers, and drops the states of the owners with this name that have
// left the cache. A state is kept if its last pass is no older than incarnationKept, or if a request is in
// flight.
func (o *owners[C]) sweepLeft(now time.Time) {
	if len(o.leavers) == 0 {
		return
	}
	name := o.leavers[0]
	o.leavers = o.leavers[1:]
	kept := slices.DeleteFunc(o.m[name], func(s *memory[C]) bool {
		return s.hasLeft && now.Sub(s.lastPass) > incarnationKept && s.ledger.CallsExpireIn(now) <= 0
	})
	if len(kept) == 0 {
		delete(o.m, name)
		return
	}
	o.m[name] = kept
	if slices.ContainsFunc(kept, func(s *memory[C]) bool { return s.hasLeft }) {
		o.leavers = append(o.leavers, name)
	}
}

// sweep drops the states of owners with the given name that have left the cache and have no request in
// flight. If owners with this name have left the cache and still have a request in flight, the result is the
// shortest time until one of their states can be dropped. If no owner that has left the cache has a request
// in flight, the result is 0. Only a pass for the same name may call sweep. While another pass sends a
// request, the state does not contain this request yet.
func (o *owners[C]) sweep(name types.NamespacedName, now time.Time) (next time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := slices.DeleteFunc(o.m[name], func(s *memory[C]) bool {
		if !s.hasLeft {
			return false
		}
		remaining := s.ledger.CallsExpireIn(now)
		if remaining > 0 {
			next = earliest(next, remaining)
		}
		return remaining <= 0
	})
	if len(kept) == 0 {
		delete(o.m, name)
		return 0
	}
	o.m[name] = kept
	return next
}

const (
	// failedYoung is the age of a round from which on its children may end.
	failedYoung = 10 * time.Minute
	// failedHoldLeast is the minimum hold. The server's timestamps have a resolution of one second. If the
	// hold were shorter, two rounds could have the same creation time.
	failedHoldLeast = time.Second
)

// A round contains the number of children that were created together, and how many of them ended soon. The
// zero round has no children. If the owner's generation changes, the round is reset, because the children
// of the changed owner may last longer.
type round struct {
	// The field hold delays creations if children of the round end soon after the round was created. If
	// children end soon in several rounds in a row, the delay doubles with each round.
	hold      backoff.Hold
	firstMade time.Time // the earliest creationTimestamp of the children
	size      int       // the number of children, without those that the method drop has removed
	endedSoon int       // the number of children that ended soon after the round was created; see failedYoung
}

// rounds holds the last round of each group.
type rounds[C Object] struct {
	mu      sync.Mutex
	byGroup map[string]round
	groupOf func(C) string // nil if all children are one group, whose name is ""
}

func (r *rounds[C]) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byGroup = nil
}

// created records that children were created. If the current round still delays creations, the new children
// join this round. If the current round does not delay creations, the new children form the next round.
func (r *rounds[C]) created(group string, made int, first, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.byGroup[group]
	next := round{firstMade: first, size: made, hold: backoff.Hold{Since: now, Wait: last.hold.Wait}}
	switch {
	case last.remaining(now) > 0:
		next = last
		next.size += made
	case last.endedSoon == 0 && now.Sub(last.hold.Since) >= last.hold.Wait: // no child has ended
		next.hold.Wait = 0
	}
	if r.byGroup == nil {
		r.byGroup = map[string]round{}
	}
	r.byGroup[group] = next
}

// count counts the children of the round that have ended soon after their creation. The function livingSince
// returns the number of children that were created since then and are active or have ended without failure. The
// results are the time that creations must wait, and the round.
func (r *rounds[C]) count(group string, livingSince func(time.Time) int, now time.Time) (wait time.Duration, last round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.byGroup[group]
	if !ok {
		return 0, last
	}
	if ended := last.size - livingSince(last.firstMade); ended > last.endedSoon && now.Sub(last.hold.Since) <= failedYoung {
		if last.endedSoon == 0 {
			row := LastRoundEnded.row()
			last.hold.Wait = min(max(2*last.hold.Wait, row.shortest), row.longest)
		}
		last.endedSoon = ended
		r.byGroup[group] = last
	}
	return last.remaining(now), last
}

// drop is called if a child was deleted or has another owner, and the round must not count the child as
// ended. If the child belongs to the round, drop removes the child from the round.
func (r *rounds[C]) drop(child C) {
	r.mu.Lock()
	defer r.mu.Unlock()
	group := ""
	if r.groupOf != nil {
		group = r.groupOf(child)
	}
	if last, ok := r.byGroup[group]; ok && !child.GetCreationTimestamp().Time.Before(last.firstMade) {
		last.size = max(last.size-1, 0)
		last.endedSoon = min(last.endedSoon, last.size)
		r.byGroup[group] = last
	}
}

// by sets the function that tells the groups.
func (r *rounds[C]) by(groupOf func(C) string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groupOf = groupOf
}

// remaining returns how long creations must wait. The time is proportional to the fraction of the round's
// children that ended soon.
func (r *round) remaining(now time.Time) time.Duration {
	if r.endedSoon == 0 {
		return 0
	}
	part := max(r.hold.Wait*time.Duration(r.endedSoon)/time.Duration(r.size), failedHoldLeast)
	return max(part-r.hold.Wait+r.hold.Remaining(now), 0)
}

// An ownerVersion is what calls have shown about an owner and the cache does not show yet. The zero value means
// that the cache shows all.
type ownerVersion struct {
	version string    // the resourceVersion in the last answer
	since   time.Time // when the cache was first behind
	read    time.Time // when the owner was last read because the cache was behind; zero if it was not read yet
	gone    bool      // a call has shown that the owner is gone
}

// show records an answer about the owner.
func (v *ownerVersion) show(version string, gone bool, now time.Time) {
	if v.since.IsZero() {
		v.since = now
	}
	v.version, v.gone = version, gone
}

// isIn reports whether the cache shows all if its owner has the given version. The server never reuses a UID, so
// an owner that is gone is old in each version.
func (v *ownerVersion) isIn(cached string) bool {
	return !v.gone && (v.version == "" || cached == v.version || resourceversion.Reached(cached, v.version))
}

// readIn returns the time until the owner must be read from the server, because the cache is still behind.
func (v *ownerVersion) readIn(now time.Time) time.Duration {
	row, last := OwnerStale.row(), ownerReadLast
	if v.gone {
		last = OwnerGone.row().longest
	}
	if now.Before(v.since) || now.Before(v.read) { // the clock was set back
		v.since, v.read = now, time.Time{}
	}
	if v.read.IsZero() { // the cache usually follows within milliseconds, with an event
		waited := now.Sub(v.since)
		return min(max(waited, row.shortest), row.longest-waited)
	}
	return min(max(v.read.Sub(v.since), row.longest), last) - now.Sub(v.read)
}

// ownerReadLast is the longest time between two reads of an owner that the cache does not show.
const ownerReadLast = 10 * time.Second

// An ownWrite is the resourceVersion that the last status write of an owner has returned. The event of that
// write wakes no pass (V15), but an event that comes before the answer does. Passes and event handlers may use
// an ownWrite concurrently.
type ownWrite struct {
	mu      sync.Mutex
	version string
	wakes   bool // a pass waits for the event, or the new status wants something else
}

func (w *ownWrite) end(version string, wakes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version, w.wakes = version, wakes
}

// await makes the event wake a pass, and reports whether it is the event of this version.
func (w *ownWrite) await(version string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakes = true
	return w.version == version
}

// explains reports whether an event that shows this version needs no pass.
func (w *ownWrite) explains(version string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.wakes && version != "" && w.version == version
}

// readiness records when each child of an owner was first seen ready, or first seen not ready. The status
// of a pod contains the time of the change, but another clock wrote it, and the status of other children does
// not. The recorded time is never earlier than the real change. Therefore a child never counts as available
// too early, and is never deleted as unready too early. The zero value contains no times. Passes and event
// handlers may use a readiness concurrently.
//
// Without the recorded times, the Controller would depend on a delayed requeue after each event. However, a
// work queue keeps only the earliest of several delayed requeues for one owner. If the owner is already
// due, some queues keep no delayed requeue for this owner (M5). An adopted child, or a child that was ready
// before the process started, has no delayed requeue. A change of MinReadySeconds causes no delayed requeue
// either.
type readiness struct {
	mu      sync.Mutex
	byChild map[types.UID]readyState
}

// readyState stores whether a child is ready, and since when. The field told is the time at which a child that
// is not ready claims to have become so.
type readyState struct {
	ready       bool
	told, since time.Time
}

// setReady is called when a child was or became ready, and records the time. Event handlers call setReady,
// because a pass might not see that a child was ready or unready for a moment.
func (r *readiness) setReady(child types.UID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byChild != nil {
		r.byChild[child] = readyState{ready: true, since: now}
	}
}

// since records the state of a child, and returns the time at which the child was first seen in this state. If
// the argument told is later than this time, the result is told.
func (r *readiness) since(child types.UID, ready bool, told, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byChild == nil {
		r.byChild = map[types.UID]readyState{}
	}
	is, known := r.byChild[child]
	switch {
	case !known, is.ready != ready, !is.told.Equal(told), // the child may have been ready meanwhile
		now.Before(is.since): // the clock was set back, or the child's clock is ahead
		is = readyState{ready, told, now}
		if told.After(now) {
			is.since = told
		}
		r.byChild[child] = is
	}
	return is.since
}

// keep forgets all children that are not in the set.
func (r *readiness) keep(children sets.Set[types.UID]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byChild, func(id types.UID, _ readyState) bool { return !children.Has(id) })
}
