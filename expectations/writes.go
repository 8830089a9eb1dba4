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

// Writes remembers, for each object, the resource version of your last write to it, and reports
// whether an object from the cache is older. Use it before you decide by what you wrote, such as a
// label that you set. It needs neither events nor the version of the cache, which
// [ConsistencyStore] needs.
//
//	pod, err = client.Update(ctx, pod)
//	wrote.At(pod) // the answer
//	...
//	if state, remaining := wrote.State(pod); state == expectations.Waiting { // from the cache
//		return requeueAfter(remaining)
//	}
//
// The zero value is ready to use and empty. It must not be copied after first use. All methods may
// be called from any number of goroutines.
type Writes struct {
	// Timeout is how long a write may stay unseen. 0 or less means DefaultTimeout. Set it before
	// first use.
	Timeout time.Duration
	// Now returns the time. Nil means time.Now. Set it before first use. It is called with no lock
	// held.
	Now func() time.Time

	mu    sync.Mutex
	wrote map[types.UID]written
}

// written is the last write to an object.
type written struct {
	version string
	at      time.Time
}

// At records a write to an object, by the object that the server answered with. The highest
// resource version counts. If versions cannot be compared, the last one counts. An object that is
// nil or has no resource version is ignored. An object without a UID, as fake clients make them, is
// known by "namespace/name".
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

// State says whether an object from the cache shows your last write to it. If the object is older,
// the state is Waiting, and remaining is the time after which it will be Expired. Put the owner
// back in the queue for that time. Expired means that the write has not arrived for longer than the
// timeout, so read the object from the server. Otherwise, or if the versions cannot be compared,
// the state is Satisfied and the write is forgotten. If the object is nil, the state is Satisfied.
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

// Forget forgets the write to an object. Call it when the object is gone, with the object
// of the delete event. If the object is nil, it does nothing.
func (w *Writes) Forget(obj metav1.Object) {
	if object.IsNil(obj) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wrote, object.ID(obj))
}
