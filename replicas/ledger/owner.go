// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// An Owner holds a state of the owner that is newer than the cache. An API call has shown this state. The
// zero Owner means that the cache contains the newest known state.
type Owner struct {
	Is   metav1.Object // the owner as returned by the server; nil if the owner is gone
	Gone bool          // true if the owner no longer exists on the server, even if it is still in the cache
	// If the owner exists, Version is the resourceVersion that the server returned for the owner. If the
	// owner is gone, Version is the resourceVersion that the owner had in the cache. If resourceVersions
	// cannot prove that the cache shows this state, Version is "".
	Version string
}

// Owner returns the value that was last passed to OwnerTold.
func (l *Ledger[C]) Owner() Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner
}

// OwnerTold records the state of the owner that the last API call has shown. When the cache shows this
// state or a newer one, call OwnerTold with the zero Owner.
func (l *Ledger[C]) OwnerTold(is Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = is
}
