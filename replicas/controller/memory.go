// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// incarnationKept is how long an owner without a pass is remembered if another owner of the same name
// has passes. The event that the first owner is gone may never come.
const incarnationKept = time.Hour

// memory is everything that outlives a pass for an owner. Only the pass under way uses it, except for
// known, wrote, ready and round. Event handlers also use these, and each has its own lock. A memory ends
// when the owner has left the cache and requests can no longer take effect, see owners.sweep.
type memory[C Object] struct {
	uid        types.UID
	generation int64
	lastPass   time.Time
	hasLeft    bool // the owner has left the cache, so only calls in flight are still of use

	// known has the facts about children, the owner, names and deletions in flight that calls have
	// shown and the cache does not show yet. A fact ends when the cache shows it, or a newer one
	// is noted. known outlives the rest, because an owner may leave a filtered cache and return.
	known *ledger.Ledger[C]
	// wrote is the last status write. It ends with the next one.
	wrote ownWrite
	// storedStatus is the last status as the server stored it. It ends with the next write.
	storedStatus *differing
	// ownerWait is how long to wait before the next look at the owner, in the cache or, after some
	// seconds, on the server. It ends when the cache shows the owner that is known.
	ownerWait backoff.Hold
	// ready has the time when each child became ready, or not ready. It ends with the child.
	ready readiness
	// round is the children created last, and how many of them ended soon. It ends with the next
	// round and with another generation.
	round round
	// results are for the next call of Kind.Prepare, which ends them.
	results []Result[C]
	// childrenTerm is the last term in which a consistent look at the children was made, and ownerTerm
	// the last one in which the owner was read.
	childrenTerm, ownerTerm int
	// active is how many children were left by the last pass that was free to change their
	// number. If there are fewer, some have left, and the owner is read. leftWait delays the
	// next such read.
	active   int
	leftWait backoff.Hold
	// holds keep calls back. The rows of the gates say what ends each hold.
	holds holds

	perGeneration[C]
}

// perGeneration ends when the owner has another generation.
type perGeneration[C Object] struct {
	behind   bool                  // the last deletions found the cache behind
	refused  string                // the text of the last event about a refusal of this generation
	aside    map[types.UID]*aside  // children whose claim failed; they end with the child's next version
	released map[types.UID]release // children that were released; they end when they are adopted, or gone
}

// differing is a status that the server does not store as it was sent, because it drops a
// field. The same status need not be sent again.
type differing struct{ sent, stored any }

// nothingLeft drops the holds of creations or deletions that are no longer needed, so the next
// ones start anew. Holds for a namespace that is being deleted, or for a delay that the server
// asked for, go on.
func (s *memory[C]) nothingLeft(now time.Time) {
	maps.DeleteFunc(s.holds, func(k holdKey, h *hold) bool {
		switch k.Reason {
		case QuotaFull, Conflict, ConflictAgain:
			return true
		case NamespaceGoing, RetryAfter, CreationFailed, DeletionRetryAfter, DeletionFailed:
			return h.remaining(now, 0) <= 0
		}
		return false
	})
	s.behind = false
}

// owners keeps the state of every owner by its name and UID, because two of one name
// may live at the same time, in two clusters.
type owners[C Object] struct {
	patience func() time.Duration // for the ledger of one owner

	mu sync.Mutex
	m  map[types.NamespacedName][]*memory[C]
	// passing are the names of owners that have a pass under way.
	passing sets.Set[types.NamespacedName]
	// leavers are the names of owners that have left the cache. Each pass looks at one of them.
	leavers []types.NamespacedName
}

// enter notes that a pass for an owner begins, and reports whether none is under way.
func (o *owners[C]) enter(name types.NamespacedName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.passing.Has(name) {
		return false
	}
	if o.passing == nil {
		o.passing = sets.New[types.NamespacedName]()
	}
	o.passing.Insert(name)
	return true
}

func (o *owners[C]) exit(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.passing.Delete(name)
}

// of returns the state of an owner, and drops what was remembered of another generation.
// idle are the UIDs of other incarnations that had no pass for so long that they may be
// forgotten. A zero now means that no pass is made, and returns no idle.
func (o *owners[C]) of(key expectations.Key, generation int64, now time.Time) (s *memory[C], idle []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s = o.incarnation(key)
	if s == nil || s.hasLeft {
		s = o.newMemory(key, s)
	}
	if s.generation != generation {
		s.generation, s.perGeneration = generation, perGeneration[C]{}
		s.round.reset()
		maps.DeleteFunc(s.holds, func(k holdKey, _ *hold) bool { return k.Reason.row().ofSpec })
	}
	if now.IsZero() {
		return s, nil
	}
	s.lastPass = now
	o.sweepLeft(now)
	for _, other := range o.m[key.NamespacedName] {
		if other.uid != "" && now.Sub(other.lastPass) > incarnationKept && other.known.Waits(now) == 0 {
			idle = append(idle, other.uid)
		}
	}
	return s, idle
}

// newMemory returns a new state. It replaces former, the state of an owner that had left the
// cache, unless former is nil. Requests without an answer stay.
func (o *owners[C]) newMemory(key expectations.Key, former *memory[C]) *memory[C] {
	s := &memory[C]{uid: key.UID, known: &ledger.Ledger[C]{Patience: o.patience()}}
	if former != nil {
		s.known = former.known
		s.known.Forget()
	}
	if o.m == nil {
		o.m = map[types.NamespacedName][]*memory[C]{}
	}
	others := slices.DeleteFunc(o.m[key.NamespacedName], func(other *memory[C]) bool { return other == former })
	o.m[key.NamespacedName] = append(others, s)
	return s
}

// get returns the state of an owner that is in the cache, or nil.
func (o *owners[C]) get(key expectations.Key) *memory[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.incarnation(key); s != nil && !s.hasLeft {
		return s
	}
	return nil
}

// awaitWrite notes that a pass begins. If the pass does not see its owner's last status
// write, the update that shows the write causes another pass.
func (o *owners[C]) awaitWrite(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.m[name] {
		s.wrote.await()
	}
}

// isKnownOld reports whether a call has shown a newer owner than the cache has. A pass then uses
// that, and need not wait for the cache.
func (o *owners[C]) isKnownOld(name types.NamespacedName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.m[name], func(s *memory[C]) bool { return !s.hasLeft && s.known.Owner() != (ledger.Owner{}) })
}

// Ledger returns the ledger of an owner, and Ledgers those of all owners. See package inside.
func (o *owners[C]) Ledger(key expectations.Key) *ledger.Ledger[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.incarnation(key)
	if s == nil || s.hasLeft {
		s = o.newMemory(key, s)
	}
	return s.known
}

// Ledgers leaves out owners that have left the cache.
func (o *owners[C]) Ledgers() map[expectations.Key]*ledger.Ledger[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[expectations.Key]*ledger.Ledger[C]{}
	for name, states := range o.m {
		for _, s := range states {
			if !s.hasLeft {
				all[expectations.Key{NamespacedName: name, UID: s.uid}] = s.known
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

// forget notes that an owner has left the cache, or every incarnation of it if key.UID is "".
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

// sweepLeft looks at one name of owners that have left the cache. It drops each state of such an
// owner that had no pass for incarnationKept and has no request in flight.
func (o *owners[C]) sweepLeft(now time.Time) {
	if len(o.leavers) == 0 {
		return
	}
	name := o.leavers[0]
	o.leavers = o.leavers[1:]
	kept := slices.DeleteFunc(o.m[name], func(s *memory[C]) bool {
		return s.hasLeft && now.Sub(s.lastPass) > incarnationKept && s.known.Unanswered(now) <= 0
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

// sweep drops the states of owners of a name that have left the cache and have no request in
// flight. It returns how long it takes until the next one can be dropped; 0 if there is none.
// Only a pass for that name calls sweep, because the requests in flight belong to the pass.
func (o *owners[C]) sweep(name types.NamespacedName, now time.Time) (next time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := slices.DeleteFunc(o.m[name], func(s *memory[C]) bool {
		if !s.hasLeft {
			return false
		}
		remaining := s.known.Unanswered(now)
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

// A pass looks for a newer owner in the cache after ownerHoldFirst, doubling to ownerHoldLast.
// Then it reads from the server after ownerReadLast at most, or ownerGoneLast if the owner is
// gone.
const (
	ownerHoldFirst, ownerHoldLast = 50 * time.Millisecond, time.Second
	ownerReadLast, ownerGoneLast  = 10 * time.Second, 5 * time.Minute
)

// leftHold is how long an owner is not read again after a read because children left.
const leftHold = time.Minute

// aside is an orphan whose adoption failed, or a child whose release did.
type aside struct {
	Version string    // of the child then
	First   time.Time // when the failures began; zero if the server called the child Invalid
	Hold    backoff.Hold
	Reason  Reason // AdoptionUndecided, AdoptionRefused or ReleaseFailed
	Why     error  // what the server said
}

const (
	// A child counts if it ended within failedYoung of its round, or if someone else deleted
	// it within goneYoung. Later deletions are normal for people and schedulers.
	failedYoung, goneYoung = 10 * time.Minute, 30 * time.Second
	// failedHoldLeast separates two rounds by the server's clock, which has whole seconds.
	failedHoldLeast = time.Second
)

// A round is the children created at once, and how many of them ended. The zero round is
// none. A round belongs to one generation, because a changed owner is a new attempt.
type round struct {
	mu sync.Mutex
	roundOf
}

type roundOf struct {
	// hold doubles with each consecutive round that has children that ended.
	hold      backoff.Hold
	firstMade time.Time // the first creation, by the server's clock
	size      int       // children, without those that the Controller deleted or that others took over
	endedSoon int       // the highest number of these that had ended soon
}

func (r *round) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roundOf = roundOf{}
}

// began returns the time at which the first child of the round was created.
func (r *round) began() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.firstMade
}

// created notes children that were created. They join a round that still holds others back,
// and otherwise begin the next round.
func (r *round) created(made int, first, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endedSoon > 0 && r.remaining(now) > 0 {
		r.size += made
		return
	}
	next := roundOf{firstMade: first, size: made, hold: backoff.Hold{Since: now, Wait: r.hold.Wait}}
	if r.endedSoon == 0 && now.Sub(r.hold.Since) >= r.hold.Wait { // all children live
		next.hold.Wait = 0
	}
	r.roundOf = next
}

// look counts the children of the round that ended. failed is how many of them still exist. wait is how
// long creations must wait. As many creations wait as children ended.
func (r *round) look(living, failed int, now time.Time) (wait time.Duration, ended, made int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := now.Sub(r.hold.Since); age <= failedYoung {
		if age <= goneYoung {
			ended = max(r.size-living-failed, 0)
		}
		r.ends(min(ended+failed, r.size))
	}
	return r.remaining(now), r.endedSoon, r.size
}

// replaced counts a child of the round that the Controller has deleted to replace it.
func (r *round) replaced(created, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size > r.endedSoon && !created.Before(r.firstMade) && now.Sub(r.hold.Since) <= failedYoung {
		r.ends(r.endedSoon + 1)
	}
}

// drop removes a child that did not end by itself from the round.
func (r *round) drop(created time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !created.Before(r.firstMade) {
		r.size = max(r.size-1, 0)
		r.endedSoon = min(r.endedSoon, r.size)
	}
}

func (r *roundOf) ends(n int) {
	if n > 0 && r.endedSoon == 0 {
		row := LastRoundEnded.row()
		r.hold.Wait = min(max(2*r.hold.Wait, row.shortest), row.longest)
	}
	r.endedSoon = max(r.endedSoon, n)
}

// remaining returns how long creations must wait. If a smaller part of the round ended, the wait is
// shorter.
func (r *roundOf) remaining(now time.Time) time.Duration {
	if r.endedSoon == 0 {
		return 0
	}
	scaled := backoff.Hold{Since: r.hold.Since, Wait: max(r.hold.Wait*time.Duration(r.endedSoon)/time.Duration(max(r.size, r.endedSoon)), failedHoldLeast)}
	left := scaled.Remaining(now)
	r.hold.Since = scaled.Since
	return max(left, 0)
}

// ownWrite is the last status write of an owner that needs no other pass. It has the
// resourceVersions of the owner before and after the write. An update from one to the other
// shows only our write (V15). The server refuses a write to an old version, so no other
// write came between. The zero value is no write. Passes and event handlers use an ownWrite
// at the same time.
type ownWrite struct {
	mu            sync.Mutex
	before, after string
	underWay      bool
	awaited       bool // by a pass that did not see the write
	// seen is the version of an update that came while the write was under way. If the
	// update turns out not to be ours, wake asks for a pass.
	seen string
	wake func()
}

func (w *ownWrite) begin(before string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after, w.underWay, w.awaited = before, "", before != "", false
}

// end notes the version that the write left. It is "" if the write left none, or if
// another pass must see the write.
func (w *ownWrite) end(after string) {
	w.mu.Lock()
	wake, other := w.wake, w.seen != "" && w.seen != after
	w.after, w.underWay, w.seen, w.wake = after, false, "", nil
	w.mu.Unlock()
	if other {
		wake()
	}
}

// explains reports whether an update shows only the write. While the write is under way
// that is not known, so wake is called later if the update shows something else.
func (w *ownWrite) explains(was, cur metav1.Object, wake func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	version := cur.GetResourceVersion()
	switch {
	case w.before == "" || w.awaited || was.GetResourceVersion() != w.before || version == "" || !sameMeta(was, cur):
		return false
	case w.underWay && w.seen == "":
		w.seen, w.wake = version, wake
		return true
	}
	return w.after == version && version != w.before
}

// await notes that a pass begins, and read notes the version of the owner that it uses. If that version
// does not show the write yet, the later update that shows it must wake the owner.
func (w *ownWrite) await() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awaited = true
}

func (w *ownWrite) read(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.after == "" || w.after == version || resourceversion.Reached(version, w.after) {
		w.awaited = false
	}
}

// sameMeta reports whether two versions of an object are equal except for the status and the fields that
// the server itself sets. An equal generation means an equal spec.
func sameMeta(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() &&
		a.GetDeletionTimestamp().Equal(b.GetDeletionTimestamp()) &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		equality.Semantic.DeepEqual(a.GetFinalizers(), b.GetFinalizers()) &&
		equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences())
}

// readiness has the time when each child of an owner was first seen ready or not ready. Pods have that
// time in their status, other children do not. The time is never too early. So a pass that waits for it
// does not come before the child is available, and a child that was ready a moment ago is not deleted.
// The zero value knows nothing. Passes and event handlers use it at the same time.
//
// The delayed wakes of events are not enough. A work queue keeps only the earliest of several for
// one owner, and some queues keep none if one is due (M5). Children that were ready before the
// process began, that were adopted, or whose owner has another MinReadySeconds now have no such wake.
type readiness struct {
	mu sync.Mutex
	of map[types.UID]lasting
}

// lasting is whether a child is ready, and since when.
type lasting struct {
	ready bool
	since time.Time
}

// became notes that a child became ready. A pass cannot see that it was not ready for a
// moment.
func (r *readiness) became(child types.UID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of != nil {
		r.of[child] = lasting{true, now}
	}
}

// since returns the time at which a child became ready, or not ready. If no earlier pass saw the child
// so, since returns now.
func (r *readiness) since(child types.UID, ready bool, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.after(child, ready, now)
}

func (r *readiness) after(child types.UID, ready bool, now time.Time) time.Time {
	if was, is := r.of[child]; is && was.ready == ready && !now.Before(was.since) { // or the clock went back
		return was.since
	}
	return now
}

// see notes which children are ready now and which are not. It forgets all other children.
func (r *readiness) see(is map[types.UID]bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[types.UID]lasting, len(is))
	for id, ready := range is {
		next[id] = lasting{ready, r.after(id, ready, now)}
	}
	r.of = next
}

// forget drops all times, because the owner's rules do not use them.
func (r *readiness) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of = nil
}
