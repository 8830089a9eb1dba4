// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas/controller"
)

// settle does what events of children do, if there are none: it settles what an
// owner expects by what the cache holds, which it reads before the pass does.
func (r *Reconciler[O, C]) settle(ctx context.Context, name types.NamespacedName) error {
	if r.handled.Load() {
		return nil
	}
	owner, err := r.view.Owner(ctx, name)
	if apierrors.IsNotFound(err) {
		r.unseen.Delete(name)
		return nil // the pass forgets the rest
	}
	if err != nil {
		return err
	}
	key, store := expectations.KeyOf(owner), r.controller.Expectations()
	if _, waits := store.Get(key); !waits {
		return nil
	}
	children, err := r.view.Children(ctx, owner)
	if err != nil {
		return err
	}
	unseen := r.unseenOf(name, children)
	var live, gone []C
	for _, c := range children {
		if c.GetDeletionTimestamp() != nil {
			gone = append(gone, c)
		} else {
			live = append(live, c)
		}
	}
	expectations.Sync(store, key, append(live, unseen...), gone)
	return nil
}

// unseenOf returns the children that were deleted before the cache had them, and
// has them still to show: that they are absent proves nothing.
func (r *Reconciler[O, C]) unseenOf(owner types.NamespacedName, cached []C) []C {
	kept, ok := r.unseen.Load(owner)
	unseen, _ := kept.([]C)
	if !ok {
		return nil
	}
	unseen = missing(unseen, cached)
	r.unseen.Store(owner, unseen)
	return unseen
}

// A reading is what a pass read from the cache. The context of the pass has it, unless
// events settle what is expected.
type reading[C any] struct {
	children []C
	done     bool
}

type readingKey struct{}

// note keeps what was read first: by that the pass plans.
func (r *reading[C]) note(children []C) {
	if !r.done {
		*r = reading[C]{children, true}
	}
}

// noteUnseen notes which children a pass deleted before the cache had them, as a live
// list had shown them.
func (r *Reconciler[O, C]) noteUnseen(ctx context.Context, pass controller.Pass[O, C]) {
	read, ok := ctx.Value(readingKey{}).(*reading[C])
	if !ok || len(pass.Deleted) == 0 {
		return
	}
	if unseen := missing(pass.Deleted, read.children); len(unseen) > 0 {
		r.unseen.Store(pass.Name, unseen)
		return
	}
	r.unseen.Delete(pass.Name)
}

// missing returns those that are not cached.
func missing[C controller.Object](children, cached []C) (missing []C) {
	known := sets.New[types.UID]()
	for _, c := range cached {
		known.Insert(c.GetUID())
	}
	for _, c := range children {
		if !known.Has(c.GetUID()) {
			missing = append(missing, c)
		}
	}
	return missing
}
