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

// incarnationKept is how long an incarnation of an owner without a pass is
// remembered, once another one of its name has one: nobody may ever tell that
// the first is gone.
const incarnationKept = time.Hour

// memory is all that outlives a pass for an owner. It is plain data of the pass under way, except
// known, wrote, ready and round, which event handlers use too and which have locks of their own. It ends
// when the owner has left the cache and no request can take effect any more, see owners.sweep.
type memory[C Object] struct {
	uid        types.UID
	generation int64
	seen       time.Time // the last pass
	hasLeft    bool      // the owner has left the cache: only what is in flight is still of use

	// known is what calls have shown that the cache does not show yet: children, the owner, names
	// and deletions in flight. A fact ends when the cache shows it, or a newer one is told. It
	// outlives the rest, because an owner may leave a filtered cache and come back.
	known *ledger.Ledger[C]
	// wrote is the last status write. It ends with the next one.
	wrote ownWrite
	// status is what the server made of the last status. It ends with the next write.
	status *differing
	// owner is how long to wait before the next look at the owner: in the cache, and after some
	// seconds at the server. It ends when the cache shows the owner that is known.
	owner backoff.Hold
	// ready is since when children have been ready, or not ready. It ends with the child.
	ready readiness
	// round is what was created last, and how much of it ended soon. It ends with the next round and
	// with another generation.
	round round
	// results are for the next call of Kind.Prepare, which ends them.
	results []Result[C]
	// term and ownerTerm are the last terms in which a consistent look at the children was
	// made, and in which the owner was read.
	term, ownerTerm int
	// active is how many children the last pass left that was free to change their number. If
	// there are fewer, some have left, and the owner is read; childLeft says when that may be done
	// again.
	active    int
	childLeft backoff.Hold
	// holds keep calls back. Each row of the gates says what ends it.
	holds holds

	perGeneration[C]
}

// perGeneration ends when the owner has another generation.
type perGeneration[C Object] struct {
	behind   bool                  // the last deletions found the cache behind
	refused  string                // the text of the last event about this generation that is refused
	aside    map[types.UID]*aside  // children whose claim failed; they end with the child's next version
	released map[types.UID]release // children that were released; they end when they are adopted, or gone
}

// differing is a status that the server does not store as it was sent, as it drops
// a field: the same one need not be sent again.
type differing struct{ sent, stored any }

// nothingLeft drops what held back creations or deletions that are needed no more: the next
// ones start anew. What has another cause goes on: a namespace that ends, and what the server
// said of how long to wait.
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

// owners keeps the state of every owner by its name and UID: two of one name may
// live at the same time, in two clusters.
type owners[C Object] struct {
	patience func() time.Duration // of what is known of one owner

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

// of returns the state of an owner. What was remembered of another generation is
// dropped. idle are the UIDs of other incarnations that had no pass for so long
// that they may be forgotten; a zero now is no pass, and asks for none.
func (o *owners[C]) of(key expectations.Key, generation int64, now time.Time) (s *memory[C], idle []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s = o.incarnation(key)
	if s == nil || s.hasLeft {
		s = o.begin(key, s)
	}
	if s.generation != generation {
		s.generation, s.perGeneration = generation, perGeneration[C]{}
		s.round.reset()
		maps.DeleteFunc(s.holds, func(k holdKey, _ *hold) bool { return k.Reason.row().ofSpec })
	}
	if now.IsZero() {
		return s, nil
	}
	s.seen = now
	o.sweepLeft(now)
	for _, other := range o.m[key.NamespacedName] {
		if other.uid != "" && now.Sub(other.seen) > incarnationKept && other.known.Waits(now) == 0 {
			idle = append(idle, other.uid)
		}
	}
	return s, idle
}

// begin returns a new state in place of that of an owner that had left the cache, or of
// none. Requests without an answer stay.
func (o *owners[C]) begin(key expectations.Key, before *memory[C]) *memory[C] {
	s := &memory[C]{uid: key.UID, known: &ledger.Ledger[C]{Patience: o.patience()}}
	if before != nil {
		s.known = before.known
		s.known.Forget()
	}
	if o.m == nil {
		o.m = map[types.NamespacedName][]*memory[C]{}
	}
	others := slices.DeleteFunc(o.m[key.NamespacedName], func(other *memory[C]) bool { return other == before })
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

// awaitWrite notes that a pass begins: should it not see its owner's last status
// write, the update that shows it is worth another one.
func (o *owners[C]) awaitWrite(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.m[name] {
		s.wrote.await()
	}
}

// isKnownOld reports whether a call has shown a newer owner than the cache has: a pass goes by
// that, and need not wait for the cache.
func (o *owners[C]) isKnownOld(name types.NamespacedName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.m[name], func(s *memory[C]) bool { return !s.hasLeft && s.known.Owner() != (ledger.Owner{}) })
}

// Ledger returns the ledger of an owner, and Ledgers those of all: see package inside.
func (o *owners[C]) Ledger(key expectations.Key) *ledger.Ledger[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.incarnation(key)
	if s == nil || s.hasLeft {
		s = o.begin(key, s)
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

// forget notes that an owner has left the cache, every incarnation if uid is "".
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

// sweepLeft looks at one of the owners that have left the cache, and drops it if no pass has
// followed, and none is under way.
func (o *owners[C]) sweepLeft(now time.Time) {
	if len(o.leavers) == 0 {
		return
	}
	name := o.leavers[0]
	o.leavers = o.leavers[1:]
	kept := slices.DeleteFunc(o.m[name], func(s *memory[C]) bool {
		return s.hasLeft && now.Sub(s.seen) > incarnationKept && s.known.Unanswered(now) <= 0
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

// sweep drops the states of a name that have left the cache and that nothing is in flight
// of. It returns how long it takes until the next one can be dropped, 0 if there is none.
// Only a pass for that name calls it, as what is in flight is the pass's.
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

// The cache is looked at for a newer owner after the first of these, doubling to the second,
// and then the server, at least as often as the third says. An owner that is gone is looked
// for at least as often as the fourth says.
const (
	ownerHoldFirst, ownerHoldLast = 50 * time.Millisecond, time.Second
	ownerReadLast, ownerGoneLast  = 10 * time.Second, 5 * time.Minute
)

// leftHold is how long an owner is not read again because children of it left.
const leftHold = time.Minute

// aside is an orphan whose adoption failed, or a child whose release did.
type aside struct {
	Version string    // of the child then
	First   time.Time // when it began; zero if the server called it Invalid
	Hold    backoff.Hold
	Reason  Reason // AdoptionUndecided, AdoptionRefused or ReleaseFailed
}

const (
	// A child that has ended counts if it ended within failedYoung of its round, and one
	// that somebody else deleted within goneYoung: later that is what people and
	// schedulers do.
	failedYoung, goneYoung = 10 * time.Minute, 30 * time.Second
	// failedHoldLeast keeps two rounds apart by the server's clock, which has whole seconds.
	failedHoldLeast = time.Second
)

// A round is what was created at once, and what became of it. The zero round is none.
// It is of a generation: who changes the owner tries something else.
type round struct {
	mu sync.Mutex
	roundOf
}

type roundOf struct {
	// hold doubles with each round whose children ended in part, one after the other.
	hold  backoff.Hold
	first time.Time // the first creation, by the server's clock
	made  int       // children, without those that the Controller deleted or that others took over
	ended int       // how many of them ended soon: the most at once
}

func (r *round) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roundOf = roundOf{}
}

// began returns when the first child of the round was created.
func (r *round) began() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// begin notes children that were created. Those that were not held back join the round
// that is.
func (r *round) begin(made int, first, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended > 0 && r.remaining(now) > 0 {
		r.made += made
		return
	}
	next := roundOf{first: first, made: made, hold: backoff.Hold{Since: now, Wait: r.hold.Wait}}
	if r.ended == 0 && now.Sub(r.hold.Since) >= r.hold.Wait { // they live
		next.hold.Wait = 0
	}
	r.roundOf = next
}

// look counts the children that ended: failed is how many of them are still there. It returns how
// long as many creations wait as have ended of those that were made.
func (r *round) look(living, failed int, now time.Time) (wait time.Duration, ended, made int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := now.Sub(r.hold.Since); age <= failedYoung {
		if age <= goneYoung {
			ended = max(r.made-living-failed, 0)
		}
		r.ends(min(ended+failed, r.made))
	}
	return r.remaining(now), r.ended, r.made
}

// fails counts a child of the round that the Controller has deleted to replace it.
func (r *round) fails(created, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made > r.ended && !created.Before(r.first) && now.Sub(r.hold.Since) <= failedYoung {
		r.ends(r.ended + 1)
	}
}

// drop takes a child out of the round that did not end by itself.
func (r *round) drop(created time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !created.Before(r.first) {
		r.made = max(r.made-1, 0)
		r.ended = min(r.ended, r.made)
	}
}

// ends notes how many children have ended.
func (r *roundOf) ends(n int) {
	if n > 0 && r.ended == 0 {
		row := LastRoundEnded.row()
		r.hold.Wait = min(max(2*r.hold.Wait, row.first), row.last)
	}
	r.ended = max(r.ended, n)
}

// remaining is how long as many creations wait as children ended: the shorter, the fewer these
// were of their round.
func (r *roundOf) remaining(now time.Time) time.Duration {
	if r.ended == 0 {
		return 0
	}
	scaled := backoff.Hold{Since: r.hold.Since, Wait: max(r.hold.Wait*time.Duration(r.ended)/time.Duration(max(r.made, r.ended)), failedHoldLeast)}
	left := scaled.Remaining(now)
	r.hold.Since = scaled.Since
	return max(left, 0)
}

// ownWrite is the last write of an owner's status from which nothing else follows, by
// the resourceVersions of the owner before and after it: an update from the one to the
// other shows nothing that we did not write (V15). Nobody else wrote in between, since the server refuses a
// write to a version that it does not have any more. The zero value is no write.
// Passes and event handlers use it at the same time.
type ownWrite struct {
	mu            sync.Mutex
	before, after string
	underWay      bool
	awaited       bool // by a pass that did not see it
	// seen is the version of an update that came while the write was under way,
	// and wake asks for the pass that it is worth if it turns out not to be ours.
	seen string
	wake func()
}

func (w *ownWrite) begin(before string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after, w.underWay, w.awaited = before, "", before != "", false
}

// end tells which version the write left, "" if none, or if another pass is to see it.
func (w *ownWrite) end(after string) {
	w.mu.Lock()
	wake, other := w.wake, w.seen != "" && w.seen != after
	w.after, w.underWay, w.seen, w.wake = after, false, "", nil
	w.mu.Unlock()
	if other {
		wake()
	}
}

// explains reports whether an update shows the write and nothing else. As long as the
// write is under way that is not known: then wake is called later if it does not.
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

// await notes that a pass begins, and read which version of the owner it goes by. If
// that does not show the write yet, the update that does is not explained by it.
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

// sameMeta reports whether two versions of an object differ, if at all, in the
// status and in what the server keeps about it. That the generation is the same
// tells that the spec is.
func sameMeta(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() &&
		a.GetDeletionTimestamp().Equal(b.GetDeletionTimestamp()) &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		equality.Semantic.DeepEqual(a.GetFinalizers(), b.GetFinalizers()) &&
		equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences())
}

// readiness is since when the children of an owner have been ready or not ready, as far as was
// seen: a pod tells it by itself, others do not. It is never too early, so that the
// pass that it asks for does not come before the child is available, and no child goes that was ready
// a moment ago. The zero value knows nothing. Passes and event handlers use it at the same time.
//
// The delayed wakes of events are not enough: of several for one owner a work queue
// keeps the earliest, and some keep none beside one that is due (M5). They do not
// come at all for children that were ready before the process began, that were
// adopted, or whose owner has another MinReadySeconds now.
type readiness struct {
	mu sync.Mutex
	of map[types.UID]lasting
}

// lasting is since when a child is as it is.
type lasting struct {
	ready bool
	since time.Time
}

// became notes that a child became ready: a pass cannot see that it was not ready
// for a moment.
func (r *readiness) became(child types.UID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of != nil {
		r.of[child] = lasting{true, now}
	}
}

// since returns since when a child has been ready, or not ready: now, if that was not seen before.
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

// see notes which children are ready by now and which are not. It forgets others.
func (r *readiness) see(is map[types.UID]bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[types.UID]lasting, len(is))
	for id, ready := range is {
		next[id] = lasting{ready, r.after(id, ready, now)}
	}
	r.of = next
}

// forget is for an owner that does not ask for how long a child is ready.
func (r *readiness) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of = nil
}
