// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// An Owner holds a state of the owner that is newer than the cache. An API call has shown this state. The
// zero Owner means that the cache contains the newest known state.
type Owner struct {
	Is   metav1.Object // the owner as returned by the server; nil if the owner is gone
	Gone bool          // true if the owner no longer exists on the server, even if it is still in the cache
	// Version is the resourceVersion of the owner in the field Is. If the owner is gone, Version is the
	// resourceVersion that the owner had in the cache. If resourceVersions cannot prove that the cache
	// shows this state, Version is "".
	Version string
}

// Owner returns the value that was last passed to OwnerTold.
func (l *Ledger[C]) Owner() Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner
}

// OwnerTold records the owner's state, as the last call has shown it. If the cache shows the same state,
// pass the zero Owner.
func (l *Ledger[C]) OwnerTold(is Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = is
}
