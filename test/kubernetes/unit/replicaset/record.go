// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/test/kubernetes/unit/controller"
)

// A record lets the tests use the ledgers of our controller in the same way as Kubernetes' expectations. An
// expected creation counts as observed when the tests' cache contains the pod. An expected deletion counts as
// observed when an event has reported the deletion. Our controller itself checks the expected creations and
// deletions in its next pass.
type record struct{ rsc *ReplicaSetController }

var _ controller.Record = record{}

func (r record) ledgers() inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]] {
	return inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]]](r.rsc.ours)
}

func (r record) ledger(key expectations.Key) *ledger.Ledger[*corev1.Pod] {
	return r.ledgers().Ledger(key)
}

func (r record) ExpectDeletions(key expectations.Key, uids []types.UID) {
	for _, id := range uids {
		r.rsc.went.Delete(id)
		r.ledger(key).Deleted(id, time.Now())
	}
}

// CreationObserved records that one of the expected pods was created and has since been deleted.
func (r record) CreationObserved(key expectations.Key) {
	if names := r.awaited(key); len(names) > 0 {
		r.ledger(key).ObserveLeaving(types.UID(key.Namespace + "/" + names[0]))
	}
}

// awaited returns the names of the pods whose creation has not been observed yet.
func (r record) awaited(key expectations.Key) []string {
	creations, _ := r.ledger(key).Awaited()
	return slices.DeleteFunc(creations, func(name string) bool {
		return slices.ContainsFunc(r.rsc.podsOf(key.Namespace), func(p *corev1.Pod) bool { return p.Name == name })
	})
}

func (r record) DeletionObserved(key expectations.Key, uid types.UID) bool {
	r.rsc.went.Insert(uid)
	r.ledger(key).ObserveLeaving(uid)
	return true
}

func (r record) SatisfiedExpectations(key expectations.Key) bool {
	return r.ledger(key).Waits(time.Now()) == 0
}

func (r record) DeleteExpectations(key expectations.Key) { r.ledger(key).Forget() }

// Get returns the expected creations and deletions. The expected deletions contain the names that the tests
// use.
func (r record) Get(key expectations.Key) (expectations.Pending, bool) {
	known := r.ledgers().Ledgers()[key]
	if known == nil {
		return expectations.Pending{}, false
	}
	what := expectations.Changes{Creating: r.awaited(key)}
	_, deletions := known.Awaited()
	for _, id := range deletions {
		if r.rsc.went.Has(id) {
			continue
		}
		namespace, name, err := cache.SplitMetaNamespaceKey(string(id))
		ignore(err)
		what.Deleting = append(what.Deleting, types.UID(namespace+"/"+r.rsc.testName(namespace, name)))
	}
	return expectations.Pending{Changes: what}, true
}
