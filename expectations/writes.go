// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
)

// Writes remembers the resource version of your last write to each object, and reports whether an
// object from the cache is older than this write. Use Writes before a decision that depends on your
// own write, such as a label that you set. Writes needs no events and, unlike [ConsistencyStore],
// does not need the version of the cache.
//
//	pod, err = client.Update(ctx, pod)
//	wrote.At(pod) // the answer
//	...
//	if state, remaining := wrote.State(pod); state == expectations.Waiting { // from the cache
//		return requeueAfter(remaining)
//	}
//
// The zero value is empty and ready to use. A Writes must not be copied after first use. All
// methods may be called from any number of goroutines.
type Writes struct {
	// Timeout is how long the cache may take to show a write before the state is Expired. 0 or less
	// means DefaultTimeout. Set Timeout before first use.
	Timeout time.Duration
	// Now returns the current time. Nil means time.Now. Set Now before first use. Now is called
	// while no lock is held.
	Now func() time.Time

	mu    sync.Mutex
	wrote map[types.UID]written
}

// written is the last write to an object.
type written struct {
	version string
	at      time.Time
}

// At records a write to an object. The argument is the object that the API server returned. If an
// object is written several times, the highest resource version counts. If two versions cannot be
// compared, the later write counts. An answer that is nil or has no resource version is ignored. If
// an object has no UID, as with fake clients, "namespace/name" identifies the object.
func (w *Writes) At(answer metav1.Object) {
	if object.IsNil(answer) || answer.GetResourceVersion() == "" {
		return
	}
	id, made := object.ID(answer), written{answer.GetResourceVersion(), timeBy(w.Now)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrote == nil {
		w.wrote = make(map[types.UID]written)
	}
	if resourceversion.Older(made.version, w.wrote[id].version) {
		return
	}
	w.wrote[id] = made
}

// State reports whether an object from the cache shows your last write to the object. If the object
// is older than the write, the state is Waiting, and remaining is the time until the state is
// Expired. Put the owner back in the queue with this delay. Expired means that the cache has not
// shown the write for longer than the timeout, so read the object from the API server. If the
// object is not older, or if the versions cannot be compared, the state is Satisfied and the write
// is forgotten. If no write to the object is recorded, or if the object is nil, the state is
// Satisfied.
func (w *Writes) State(cached metav1.Object) (state State, remaining time.Duration) {
	if object.IsNil(cached) {
		return Satisfied, 0
	}
	id, now := object.ID(cached), timeBy(w.Now)
	w.mu.Lock()
	defer w.mu.Unlock()
	made, ok := w.wrote[id]
	switch {
	case !ok:
		return Satisfied, 0
	case !resourceversion.Older(cached.GetResourceVersion(), made.version):
		delete(w.wrote, id)
		return Satisfied, 0
	}
	patience := w.Timeout
	if patience <= 0 {
		patience = DefaultTimeout
	}
	return after(now.Sub(made.at), patience)
}

// Forget forgets the write to an object. When an object is gone, call Forget with the object of the
// delete event. If obj is nil, Forget does nothing.
func (w *Writes) Forget(obj metav1.Object) {
	if object.IsNil(obj) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wrote, object.ID(obj))
}
