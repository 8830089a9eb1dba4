// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// An Owner is what calls have shown of the owner, if the cache has an older one. The zero
// value is that nothing is known but what the cache has.
type Owner struct {
	Is   metav1.Object // as it was read; nil if it is gone
	Gone bool          // the server does not have it, whatever the cache shows
	// Version is that of Is or, if the owner is gone, of the one that the cache had. It is ""
	// if no version of the cache tells that it shows Is.
	Version string
}

// Owner returns what is known of the owner.
func (l *Ledger[C]) Owner() Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner
}

// OwnerTold notes what a call has shown of the owner last. The zero Owner notes that the
// cache shows it too.
func (l *Ledger[C]) OwnerTold(is Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = is
}
