package replicas

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

// Waits double from the first to the last value and start again after a success.
const (
	namespaceHoldFirst, namespaceHoldLast = time.Minute, 5 * time.Minute
	quotaHoldFirst, quotaHoldLast         = time.Second, time.Minute
	conflictHoldFirst, conflictHoldLast   = 50 * time.Millisecond, time.Minute
	undecidedFirst, undecidedLast         = 50 * time.Millisecond, time.Minute
	setAsideWait                          = time.Minute
)

// incarnationKept is how long an incarnation of an owner without a pass is
// remembered, once another one of its name has one: nobody may ever tell that
// the first is gone.
const incarnationKept = time.Hour

// holdIsTold is how long a hold on deletions is when an event tells of it: a
// shorter one is over before anybody looks.
const holdIsTold = time.Second

// ownerState is what the Reconciler remembers of an owner between passes. Losing
// it costs a call or two, never a pod.
type ownerState struct {
	uid        types.UID
	generation int64
	seen       time.Time // the last pass

	creations, deletions hold
	behind               bool // the last deletions found the cache behind
	refused              bool // the event about this generation's spec was sent
	// setAside are orphans that could not be adopted; see pass.toPatch.
	setAside map[types.UID]*aside
}

// aside is an orphan whose adoption failed.
type aside struct {
	version   string // of the pod then
	hold      hold
	undecided bool // the server has not refused it for good: it may be ours yet
}

// nothingLeft drops what held back creations or deletions that are needed no
// more: the next ones start anew.
func (s *ownerState) nothingLeft() {
	s.creations, s.deletions, s.behind = hold{}, hold{}, false
}

// A hold keeps calls back for a while. The zero hold is none.
type hold struct {
	since time.Time // when the calls that led to it had ended
	wait  time.Duration
	// at is how many pods there were when the quota was full: fewer end the
	// hold. 0 where it is no quota that holds.
	at int
}

// double makes the hold last twice as long as the one before, within bounds.
func (h *hold) double(now time.Time, first, last time.Duration) {
	*h = hold{since: now, wait: min(max(2*h.wait, first), last)}
}

// remaining is how long calls must still wait, with so many pods there. A
// clock that went back starts the hold again.
func (h *hold) remaining(now time.Time, pods int) time.Duration {
	if pods < h.at {
		return 0
	}
	if now.Before(h.since) {
		h.since = now
	}
	return h.wait - now.Sub(h.since)
}

// owners keeps the state of every owner by its name and UID: two of one name may
// live at the same time, in two clusters. The zero value is ready to use.
type owners struct {
	mu sync.Mutex
	m  map[types.NamespacedName][]*ownerState
}

// of returns the state of an owner. What was remembered of another generation is
// dropped. idle are the UIDs of other incarnations that had no pass for so long
// that they may be forgotten; a zero now is no pass, and asks for none.
func (o *owners) of(key expectations.Key, generation int64, now time.Time) (s *ownerState, idle []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	states := o.m[key.NamespacedName]
	i := slices.IndexFunc(states, func(s *ownerState) bool { return s.uid == key.UID })
	if i < 0 {
		i = o.append(key)
		states = o.m[key.NamespacedName]
	}
	if states[i].generation != generation {
		states[i] = &ownerState{uid: key.UID, generation: generation, seen: states[i].seen}
	}
	if now.IsZero() {
		return states[i], nil
	}
	states[i].seen = now
	for _, other := range states {
		if other.uid != "" && now.Sub(other.seen) > incarnationKept {
			idle = append(idle, other.uid)
		}
	}
	return states[i], idle
}

func (o *owners) append(key expectations.Key) (i int) {
	if o.m == nil {
		o.m = map[types.NamespacedName][]*ownerState{}
	}
	o.m[key.NamespacedName] = append(o.m[key.NamespacedName], &ownerState{uid: key.UID})
	return len(o.m[key.NamespacedName]) - 1
}

// forget drops the state of an owner, of every incarnation if uid is "".
func (o *owners) forget(key expectations.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := slices.DeleteFunc(o.m[key.NamespacedName], func(s *ownerState) bool { return key.UID == "" || s.uid == key.UID })
	if len(left) > 0 {
		o.m[key.NamespacedName] = left
		return
	}
	delete(o.m, key.NamespacedName)
}
