package replicas

import (
	"sync"
	"time"

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

	heldUntil time.Time     // no creation before
	hold      time.Duration // the last hold, to be doubled
	heldAt    int           // with a full quota: as many pods were there; fewer end the hold
	conflict  time.Duration // the last wait after a 409, to be doubled
	refused   bool          // the event about this generation's spec was sent
}

// holdCreations stops creations for twice the last hold, within the given bounds.
func (s *ownerState) holdCreations(now time.Time, first, last time.Duration) time.Duration {
	s.hold = double(s.hold, first, last)
	s.heldUntil, s.heldAt = now.Add(s.hold), 0
	return s.hold
}

func double(d, first, last time.Duration) time.Duration {
	return min(max(2*d, first), last)
}

// owners keeps the state of every owner by its name, for the incarnation seen
// last. The zero value is ready to use.
type owners struct {
	mu sync.Mutex
	m  map[types.NamespacedName]*ownerState
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
