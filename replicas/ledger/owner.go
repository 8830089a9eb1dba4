// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// An Owner holds the state of the owner that an API call has shown, if this state is newer than the cache. The
// zero Owner means that the cache contains the newest known state.
type Owner struct {
	Is   metav1.Object // the owner as returned by the server; nil if the owner is gone
	Gone bool          // the owner no longer exists on the server, even if it is still in the cache
	// Version is the resourceVersion of the owner in the field Is. If the owner is gone, Version is the
	// resourceVersion that the owner had in the cache. Version is "" if comparing resourceVersions cannot
	// prove that the cache shows the state in the field Is.
	Version string
}

// Owner returns the Owner that was passed to the last call of OwnerTold.
func (l *Ledger[C]) Owner() Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner
}

// OwnerTold records the state of the owner that the last call has shown. If the cache shows the
// same state, pass the zero Owner.
func (l *Ledger[C]) OwnerTold(is Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = is
}
