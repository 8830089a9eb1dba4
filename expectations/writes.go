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

// A Writes remembers the resource version of your last write to each object. It reports whether an
// object from the cache is older than this write. Call State before a decision that depends on your
// own write, for example on a label that you set. The type Writes needs no watch events. Unlike a
// [ConsistencyStore], the type Writes does not need the resource version of the cache.
//
//	pod, err = client.Update(ctx, pod)
//	wrote.At(pod) // the answer
//	...
//	if state, remaining := wrote.State(pod); state == expectations.Waiting { // from the cache
//		return requeueAfter(remaining)
//	}
//
// The zero value is empty and ready to use. A Writes is safe for concurrent use, and must not be
// copied after first use.
type Writes struct {
	// Timeout is the maximum time that the state stays Waiting after a write. If the cache still
	// does not show the write after this time, the state is Expired. A value of 0 or less means
	// DefaultTimeout. Set Timeout before first use.
	Timeout time.Duration
	// Now returns the current time. Nil means time.Now. Set Now before first use. A Writes does not
	// hold a lock while it calls Now.
	Now func() time.Time

	mu    sync.Mutex
	wrote map[types.UID]lastWrite
}

// lastWrite describes the last write to an object.
type lastWrite struct {
	version string
	at      time.Time
}

// At records a write to an object. The argument answer is the object that the API server returned
// for the write. If an object is written several times, only the highest resource version is kept.
// If two versions cannot be compared, the version of the later write is kept. If the argument
// answer is nil or has no resource version, At does nothing. An object without a UID, for example
// from a fake client, is identified by "namespace/name".
func (w *Writes) At(answer metav1.Object) {
	if object.IsNil(answer) || answer.GetResourceVersion() == "" {
		return
	}
	id, made := object.ID(answer), lastWrite{answer.GetResourceVersion(), timeBy(w.Now)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrote == nil {
		w.wrote = make(map[types.UID]lastWrite)
	}
	if resourceversion.Older(made.version, w.wrote[id].version) {
		return
	}
	w.wrote[id] = made
}

// State reports whether a cached object shows your last write to this object. If the cached object
// is older than the write, the state is Waiting. The second result is then the time until the state
// becomes Expired. Requeue the owner after this time. If the cache still does not show the write
// after the timeout, the state is Expired. In this case, read the object from the API server. If
// the cached object is not older than the write, the state is Satisfied and the write is forgotten.
// If the resource versions of the cached object and of the write cannot be compared, the state is
// also Satisfied and the write is also forgotten. The state is also Satisfied if no write to the
// object is recorded, or if the object is nil.
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

// Forget forgets the write to an object. After an object is deleted, call Forget with the object
// from the delete event. If obj is nil, Forget does nothing.
func (w *Writes) Forget(obj metav1.Object) {
	if object.IsNil(obj) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wrote, object.ID(obj))
}
