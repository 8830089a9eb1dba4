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

// This is all state that outlives a pass, with its end. All of it ends with the process.
//
//	of an owner    the type memory below: each field has its end
//	of a name      owners: passing ends with the pass, standing with the next pass, leavers (that left the cache) when sweepLeft drops them
//	of the server  reconciler.term: the versions that the server had when the term began, until NewTerm.
//	               reconciler.statusCounts: that a status write raises the generation, until the process ends.
//	               reconciler.restores: the newest versions of live lists, the last 2,048 to 4,096 DELETED events,
//	               and the first proof of a restore, with restoredEventSent. Only a new process ends these. So after
//	               a proof the manager of controllerruntime and the Run of clientgo end, unless Options.OnRestored is
//	               set.
//	of the events  package handlers: the kept Spec of an owner, until a newer version of the owner, the Renew of a
//	               pass, or the DELETED event; the newest version of a child, until the process ends
//	of the queue   the failures that a rate limiter counts, until a pass succeeds

// incarnationKept is how long the state of an owner is kept if its DELETED event never arrives, or if no pass follows
// the event.
const incarnationKept = time.Hour

// memory is the state of one owner between its passes. Event handlers use rounds, ready, wrote and ledger, which have
// locks of their own. The rest belongs to the owner's current pass. All of it ends when the owner has left the cache
// and none of its calls can still take effect; see owners.sweep.
type memory[C Object] struct {
	uid        types.UID
	generation int64
	lastPass   time.Time
	hasLeft    bool // the owner has left the cache, so only its calls in flight still matter

	// ledger has facts about children, until the cache shows them or newer ones replace them. It also has calls without an
	// answer, until an answer, the child's end, a look (lost.go) or a newer version than the call carried settles them; the
	// last live list, until the cache reaches it; and the names ever sent, until no child has them.
	ledger *ledger.Ledger[C]
	// strays are new children that a webhook took from the owner, for example by other labels, until they are gone or
	// adopted.
	strays []C
	// wrote is the version of the owner's last status write, until the next one.
	wrote ownWrite
	// sentStatus is the last status that was sent, with what the server made of it, until the next one. The hold delays
	// the next sending of the same status.
	sentStatus struct {
		sent, kept map[string]any
		backoff.Hold
		outcome  uint64 // what Kind.Status made it from
		repeated int    // how many writes in a row have followed from nothing but Kind.Status
	}
	// owner is what calls have shown about the owner, until the cache shows it.
	owner ownerVersion
	// ready has the time at which each child became ready, or not ready, until the child is gone.
	ready readiness
	// rounds counts, in each group, the children that were last created together, and those of them that ended soon. A
	// round ends with the next round, or with a new generation of the owner.
	rounds rounds[C]
	// childrenTerm and ownerTerm are the last terms in which all children and the owner were known to be as new as the
	// term. The next term ends both.
	childrenTerm, ownerTerm int
	// active is the number of active children after the last pass that could create and delete, until the next such pass.
	// It includes those that have left and must not be replaced yet, because the owner has not been read.
	active int
	// holds postpone calls. Each ends early by what its row in gates.go names, most also by a new generation (ofSpec).
	holds holds

	perGeneration
}

// perGeneration is the part of the state that ends with the owner's generation.
type perGeneration struct {
	refused string // the message of the last event about a refusal or an error of Kind.Spec
	// replace holds the IDs of children that must go, because the server refuses their change; see Change.OrReplace.
	replace sets.Set[types.UID]
}

// nothingLeft ends holds when the owner needs no creation or deletion, so that the next failure is a first one.
func (s *memory[C]) nothingLeft(now time.Time) {
	maps.DeleteFunc(s.holds, func(k holdKey, h *hold) bool {
		switch k.Reason {
		case QuotaFull, Conflict, CreationInFlight, InputsStale:
			// These hold calls that are not wanted any longer, and say nothing about later ones. Deletions of web-a met
			// Conflicts for seconds, until web-b was gone and nothing was surplus. A minute later web-c turns up and web-a must
			// go again, so its first hold is 50 ms, and an event reports it again if it lasts.
			return true
		case UpdateFailed:
			// A second client undoes each change. Between its writes nothing is left to do, but the next change is no new one.
			return h.remaining(now, "") < -changesApart
		case NamespaceGoing, RetryAfter, CreationFailed, DeletionRetryAfter, DeletionFailed:
			// The server asked for seven seconds. After one, web-a turned up, and after two it was gone again. The server is
			// as busy as before, so the creation waits for the other five.
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
	// leavers holds the names of owners that have left the cache, for sweepLeft.
	leavers []types.NamespacedName
}

// enter begins a pass for an owner, unless another one is under way, and returns the gates that stand.
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

// stateOf returns the state of an owner for a pass, with the UIDs of others of its name whose state is no longer
// needed. Outside a pass, now is zero.
func (o *owners[C]) stateOf(key expectations.Key, generation int64, now time.Time) (s *memory[C], idle []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s = o.incarnation(key)
	if s == nil || s.hasLeft {
		s = o.newMemory(key, s)
	}
	if s.generation != generation {
		// The pods of a wrong image ended at once, so creations wait for five minutes. A user has mended the image, and what
		// held the former spec must not hold this one.
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
		// The DELETED event of a former owner of this name never came.
		if other.uid != "" && now.Sub(other.lastPass) > incarnationKept && other.ledger.Waits(now) == 0 {
			idle = append(idle, other.uid)
		}
	}
	return s, idle
}

// newMemory adds a new state for an owner, in place of its former one, which is nil unless the owner has left the cache
// and returned.
func (o *owners[C]) newMemory(key expectations.Key, former *memory[C]) *memory[C] {
	s := &memory[C]{uid: key.UID, ledger: &ledger.Ledger[C]{Patience: o.patience()}}
	if former != nil {
		// The creation of web-bbbbb had no answer, and then the owner left a filtered cache and returned. The pod may still
		// appear, so its name must be sent again, and not a second one. The strays must still go. All else begins anew.
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

// Ledger returns the ledger of an owner, as inside.Ledgers asks for it.
func (o *owners[C]) Ledger(key expectations.Key) *ledger.Ledger[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.incarnation(key)
	if s == nil || s.hasLeft {
		s = o.newMemory(key, s)
	}
	return s.ledger
}

// Ledgers returns the ledgers of all owners that have not left the cache, as inside.Ledgers asks for them.
func (o *owners[C]) Ledgers() map[expectations.Key]*ledger.Ledger[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	ledgers := map[expectations.Key]*ledger.Ledger[C]{}
	for name, states := range o.m {
		for _, s := range states {
			if !s.hasLeft {
				ledgers[expectations.Key{NamespacedName: name, UID: s.uid}] = s.ledger
			}
		}
	}
	return ledgers
}

func (o *owners[C]) incarnation(key expectations.Key) *memory[C] {
	for _, s := range o.m[key.NamespacedName] {
		if s.uid == key.UID {
			return s
		}
	}
	return nil
}

// forget records that an owner has left the cache, or all owners of this name if key.UID is empty.
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

// sweepLeft drops states of one owner that has left the cache. A pass of any owner calls it, because the name of one
// that is gone may never get another pass.
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

// sweep drops the states of owners of one name that have left the cache, and returns when the next one can be dropped,
// or 0 if there is none. Only a pass for this name may call it: another pass may have sent a call that the ledger lacks
// yet.
func (o *owners[C]) sweep(name types.NamespacedName, now time.Time) (next time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := slices.DeleteFunc(o.m[name], func(s *memory[C]) bool {
		if !s.hasLeft {
			return false
		}
		remaining := s.ledger.CallsExpireIn(now)
		if remaining > 0 { // the owner may return to a filtered cache while the call can still take effect
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
	// failedHoldLeast is the minimum hold. The server's timestamps have a resolution of one second, so two rounds that
	// are closer could not be kept apart.
	failedHoldLeast = time.Second
)

// A round counts the children of a group that were created together. 0 <= endedSoon <= size.
type round struct {
	hold      backoff.Hold // delays creations; its length doubles with each round in a row whose children end soon
	firstMade time.Time    // the earliest creationTimestamp of the children
	size      int          // the number of children, without those that the method drop has removed
	endedSoon int          // the number of children that ended soon after the round was created; see failedYoung
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

// created adds children to the round of a group, or begins the next one. A round is the children that were made
// together, and its hold delays the next creations while they end young.
func (r *rounds[C]) created(group string, made int, first, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.byGroup[group]
	next := round{firstMade: first, size: made, hold: backoff.Hold{Since: now, Wait: last.hold.Wait}}
	switch {
	case last.remaining(now) > 0:
		// Two pods of the round failed, so two creations wait. An older pod is gone, too, and its place is filled at once. As
		// a round of its own, the new pod would end the wait of the two.
		next = last
		next.size += made
	case last.endedSoon == 0 && now.Sub(last.hold.Since) >= last.hold.Wait:
		// No pod of the round ended within the delay of the round before, so the next failure is a first one.
		next.hold.Wait = 0
	}
	if r.byGroup == nil {
		r.byGroup = map[string]round{}
	}
	r.byGroup[group] = next
}

// count returns how long creations must wait, and the round. The function livingSince returns how many children that
// were created since a time are active or have ended without failure.
func (r *rounds[C]) count(group string, livingSince func(time.Time) int, now time.Time) (wait time.Duration, last round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.byGroup[group]
	if !ok {
		return 0, last
	}
	if ended := last.size - livingSince(last.firstMade); ended > last.endedSoon && now.Sub(last.hold.Since) <= failedYoung {
		if last.endedSoon == 0 { // a second failure in the round raises its share of the delay, and doubles nothing
			row := LastRoundEnded.row()
			last.hold.Wait = min(max(2*last.hold.Wait, row.shortest), row.longest)
		}
		last.endedSoon = ended
		r.byGroup[group] = last
	}
	return last.remaining(now), last
}

// drop takes a child out of its round, because it was surplus, had done its work, or has another owner now.
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

// by sets the function that returns the group of a child.
func (r *rounds[C]) by(groupOf func(C) string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groupOf = groupOf
}

// remaining returns how long creations must wait.
func (r *round) remaining(now time.Time) time.Duration {
	if r.endedSoon == 0 {
		return 0
	}
	// One of a hundred pods failed on a bad node. Its place waits for a hundredth of the delay, or for a second.
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

func (v *ownerVersion) show(version string, gone bool, now time.Time) {
	if v.since.IsZero() {
		v.since = now
	}
	v.version, v.gone = version, gone
}

// isIn reports whether the cache shows all if its owner has the given version.
func (v *ownerVersion) isIn(cached string) bool {
	// The cache shows a newer version of an owner that a call has found gone. That version may be older than its end,
	// so no version counts as newer than the end. The watch may also deliver an older version once more.
	return !v.gone && (v.version == "" || cached == v.version || resourceversion.Reached(cached, v.version))
}

// readIn returns the time until the owner must be read from the server, because the cache is still behind.
func (v *ownerVersion) readIn(now time.Time) time.Duration {
	row, last := OwnerStale.row(), ownerReadLast
	if v.gone { // it does not return, so these reads are for a NotFound that was wrong
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

// An ownWrite is the resourceVersion that the last status write of an owner has returned. The event of that write wakes
// no pass (V15), so a status write costs no second pass. Passes and event handlers may use an ownWrite concurrently.
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
	// web-a ended, and the pass for it found the owner of before the status write, and left its work. The event of that
	// write brings the work back.
	w.wakes = true
	return w.version == version
}

// explains reports whether an event that shows this version needs no pass.
func (w *ownWrite) explains(version string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	// An event that comes before the answer to the write may be that of a user's change, so it wakes.
	return !w.wakes && version != "" && w.version == version
}

// readiness records when each child was first seen ready, or first seen not ready. Children that are not pods have no
// such time in their status, and another clock wrote that of a pod. A record is never earlier than the real change, so
// no child counts as available, or is deleted as unready, too early. Passes and event handlers may use it concurrently.
//
// The delays of a work queue are no substitute: a queue keeps only the earliest one of an owner, and some keep none for
// an owner that is due (M5). A child that is adopted, or was ready before the process began, has no event to delay.
type readiness struct {
	mu      sync.Mutex
	byChild map[types.UID]readyState
}

type readyState struct {
	ready       bool
	told, since time.Time // when a child that is not ready claims to have become so, and when it was seen to be
}

// setReady records that a child was or became ready. Event handlers call it, because a pass might not see that a child
// was ready or unready for a moment.
func (r *readiness) setReady(child types.UID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byChild != nil {
		r.byChild[child] = readyState{ready: true, since: now}
	}
}

// since returns since when a child is seen to be ready or not ready. A later time that the child claims counts instead.
func (r *readiness) since(child types.UID, ready bool, claimed, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byChild == nil {
		r.byChild = map[types.UID]readyState{}
	}
	state, known := r.byChild[child]
	switch {
	case !known, state.ready != ready, !state.told.Equal(claimed), // the child may have been ready meanwhile
		now.Before(state.since): // the clock was set back an hour, or the child's clock is ahead
		state = readyState{ready, claimed, now}
		if claimed.After(now) {
			state.since = claimed
		}
		r.byChild[child] = state
	}
	return state.since
}

// keep forgets all children that are not in the set.
func (r *readiness) keep(children sets.Set[types.UID]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byChild, func(id types.UID, _ readyState) bool { return !children.Has(id) })
}
