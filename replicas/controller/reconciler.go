// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/slowstart"
)

// A reconciler is a Controller with its types.
type reconciler[O, C Object] struct {
	watcher[O, C]
	client Client[O, C]
	cache  Cache[O, C]
	opts   Options
	writes *expectations.ConsistencyStore
	lists  *lists[C]
	owners owners[C]
	term   term
	// restores is shared with the guard of the client.
	restores *restores

	ownerResource, childResource schema.GroupResource
	patchType                    types.PatchType
	// statusCounts says that generations grow when a status is written.
	statusCounts atomic.Bool
	measures     *measures[O, C]
}

func newReconciler[O, C Object](kind Kind[O, C], client Client[O, C], cache Cache[O, C], opts Options) *reconciler[O, C] {
	noticed := &restores{on: opts.OnRestored}
	client = guarded(client, cache, noticed)
	r := &reconciler[O, C]{
		client: client, cache: cache, opts: opts, restores: noticed,
		lists: newLists(client.List, opts.Now, opts.Random),
		owners: owners[C]{patience: func() time.Duration { // longer for some: not all lists at one moment
			return opts.ExpectationsTimeout + time.Duration(opts.Random(int(opts.ExpectationsTimeout/10/time.Millisecond)+1))*time.Millisecond
		}},
		ownerResource: resource(kind.Owner), childResource: resource(kind.Child),
		patchType: patchTypeFor(kind.PatchType, kind.Child), measures: newMeasures[O, C](),
	}
	r.kind, r.from, r.left, r.gone, r.back = kind, cache, r.childLeft, r.forget, r.cacheWentBack
	r.ready, r.isOwn = r.becameReady, r.isOwnWrite
	r.statusDelay = opts.StatusDelay
	if r.ended = func(types.UID) {}; opts.UnfilteredChildren {
		r.ended = noticed.childEnded
	}
	r.writes = &expectations.ConsistencyStore{
		Now: opts.Now, GiveUpAfter: opts.ExpectationsTimeout,
		ReadVersion: func(schema.GroupResource) string { return cache.OwnersVersion() },
	}
	return r
}

// resource is what writes of a kind are recorded under.
func resource(kind schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}

func (r *reconciler[O, C]) metrics() []Sample { return r.measures.samples() }

func (r *reconciler[O, C]) newTerm(ctx context.Context, namespace string) {
	r.term.next()
	versioner, ok := r.client.(Versioner)
	if !ok {
		return
	}
	r.term.owners.askFirst(r.opts.Now, func() (string, error) { return versioner.ServerOwnersVersion(ctx, namespace) })
	r.term.children.askFirst(r.opts.Now, func() (string, error) { return versioner.ServerChildrenVersion(ctx, namespace) })
}

// childNoun is the word for a child in events: the kind in lower case, as kubectl has it.
func (r *reconciler[O, C]) childNoun() string { return strings.ToLower(r.kind.Child.Kind) }

// all are the options for n calls that need no slow start.
func (r *reconciler[O, C]) all(n int) slowstart.Options {
	return slowstart.Options{InitialBatchSize: n, MaxParallel: r.opts.MaxParallel}
}

// stateOf returns what is remembered of an owner, in a pass made now, and forgets
// other incarnations that were left behind. A zero now is no pass.
func (r *reconciler[O, C]) stateOf(owner metav1.Object, now time.Time) *ownerState[C] {
	key := expectations.KeyOf(owner)
	state, idle := r.owners.of(key, owner.GetGeneration(), now)
	for _, uid := range idle {
		r.forget(expectations.Key{NamespacedName: key.NamespacedName, UID: uid})
	}
	r.owners.sweep(key.NamespacedName, now)
	return state
}

// forget drops everything that is remembered of an owner that is gone, except what is in
// flight: the owner may only have left the cache. An empty UID
// means every incarnation under that name: to know that an owner is not found is to
// know its name alone.
func (r *reconciler[O, C]) forget(key expectations.Key) {
	r.writes.Clear(key)
	r.owners.forget(key)
}

// childLeft notes for an owner that a child is being deleted, or left the cache.
func (r *reconciler[O, C]) childLeft(key expectations.Key, child types.UID) {
	if state := r.owners.get(key); state != nil {
		state.known.Left(child)
	}
}

// cacheWentBack notes for an owner that a child went back to an older version in the cache.
func (r *reconciler[O, C]) cacheWentBack(key expectations.Key) {
	if state := r.owners.get(key); state != nil {
		state.known.WentBack()
	}
}

// becameReady notes that a child of an owner became ready.
func (r *reconciler[O, C]) becameReady(owner expectations.Key, child C) {
	if state := r.owners.get(owner); state != nil {
		state.ready.became(object.ID(child), r.opts.Now())
	}
}

// isOwnWrite reports whether an update of an owner shows nothing but the status that
// was written last, from which nothing follows, and no pass waits to see it.
func (r *reconciler[O, C]) isOwnWrite(was, cur O, wake func()) bool {
	state := r.owners.get(expectations.KeyOf(cur))
	return state != nil && state.wrote.explains(was, cur, wake)
}
