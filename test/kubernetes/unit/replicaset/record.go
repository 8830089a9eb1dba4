// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/test/kubernetes/unit/controller"
)

// record is our controller's record for the tests, which count creations: ours are
// expected by name.
type record struct {
	*expectations.Store[expectations.Key]
}

var _ controller.Record = record{}

func (r record) ExpectDeletions(key expectations.Key, uids []types.UID) {
	r.Set(key, expectations.Changes{Deleting: uids})
}

// CreationObserved settles one of the creations.
func (r record) CreationObserved(key expectations.Key) { r.Store.CreationObserved(key, r.awaited(key)) }

// awaited is the name of a creation that has not been seen, "" if there is none.
func (r record) awaited(key expectations.Key) string {
	if pending, _ := r.Get(key); len(pending.Creating) > 0 {
		return pending.Creating[0]
	}
	return ""
}

func (r record) SatisfiedExpectations(key expectations.Key) bool {
	state, _ := r.State(key)
	return state != expectations.Waiting
}

func (r record) DeleteExpectations(key expectations.Key) { r.Forget(key) }
