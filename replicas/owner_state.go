package replicas

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

// Waits double from the first to the last value and start again after a success.
const (
	namespaceHoldFirst, namespaceHoldLast = time.Minute, 5 * time.Minute
	quotaHoldFirst, quotaHoldLast         = time.Second, time.Minute
	conflictWaitFirst, conflictWaitLast   = 50 * time.Millisecond, time.Second
	setAsideWait                          = time.Minute
)

// ownerState is what the Reconciler remembers of an owner between passes. Losing
// it costs a call or two, never a pod.
type ownerState struct {
	uid        types.UID
	generation int64

	hold     hold          // of creations
	conflict time.Duration // the last wait after a 409, to be doubled
	refused  bool          // the event about this generation's spec was sent
}

// A hold keeps creations back for a while. The zero hold is none.
type hold struct {
	since time.Time
	wait  time.Duration
	// at is how many pods there were when the quota was full: fewer end the
	// hold. 0 where it is no quota that holds.
	at int
}

// double makes the hold last twice as long as the one before, within bounds.
func (h *hold) double(now time.Time, first, last time.Duration) {
	*h = hold{since: now, wait: double(h.wait, first, last)}
}

// remaining is how long creations must still wait, with so many pods there. A
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

func double(d, first, last time.Duration) time.Duration {
	return min(max(2*d, first), last)
}

// owners keeps the state of every owner by its name, for the incarnation seen
// last. The zero value is ready to use.
type owners struct {
	mu   sync.Mutex
	kind schema.GroupKind // of all of them
	m    map[types.NamespacedName]*ownerState
}

// serve takes the first kind it is given and refuses any other: owners of two
// kinds may have one name.
func (o *owners) serve(kind schema.GroupKind) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kind.Empty() {
		o.kind = kind
	}
	if o.kind != kind {
		return fmt.Errorf("replicas: reconciler serves %s, not %s", o.kind, kind)
	}
	return nil
}

// of returns the state of an owner. What was remembered of another incarnation
// or generation is dropped; other is the UID of the incarnation that made way.
func (o *owners) of(key expectations.Key, generation int64) (s *ownerState, other types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s = o.m[key.NamespacedName]
	if s != nil && s.uid == key.UID && s.generation == generation {
		return s, ""
	}
	if s != nil && s.uid != key.UID {
		other = s.uid
	}
	if o.m == nil {
		o.m = map[types.NamespacedName]*ownerState{}
	}
	s = &ownerState{uid: key.UID, generation: generation}
	o.m[key.NamespacedName] = s
	return s, other
}

// forget drops the state of an owner, whatever its incarnation where uid is "",
// and returns the UID that was remembered.
func (o *owners) forget(key expectations.Key) types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.m[key.NamespacedName]
	if s == nil || key.UID != "" && s.uid != key.UID {
		return ""
	}
	delete(o.m, key.NamespacedName)
	return s.uid
}
