// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

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

// OwnerRead notes the version of the owner that a call has shown, after all earlier ones had
// their answers, and the one that the cache had. It reports whether the cache or an earlier call
// has shown a later one: then the server was restored from a backup. As long as the cache has
// that version, it is ahead: it tells nothing new, also when the server has come as far again.
func (l *Ledger[C]) OwnerRead(version, cached string) (restored, isAhead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasAhead := cached != "" && cached == l.ownerAhead
	isAhead = wasAhead || resourceversion.Older(version, cached)
	restored = isAhead && !wasAhead || resourceversion.Older(version, l.ownerRead)
	if restored {
		l.newEpoch()
	}
	if l.ownerRead, l.ownerAhead = version, ""; isAhead {
		l.ownerAhead = cached
	}
	return restored, isAhead
}
