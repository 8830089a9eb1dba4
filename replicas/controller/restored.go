// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/selector"
)

// ErrRestored is in the error of Controller.Sync once the Controller has noticed that the API
// server was restored from a backup. What the caches and the Controller know is then of a past
// that the server does not have. The Controller makes no more changes, and each further Sync
// returns the error at once, so do not retry it. End the process, and start it again. Or make a
// new Controller with new caches.
//
// Only versions of one resource that are numbers are compared. A restore is proven by
//   - a live list that is older than one that had ended before it began,
//   - a live list or a read that is older than what the cache, or an earlier answer, had shown
//     before the call, or
//   - a child in a live list whose DELETED event came before the list began, if
//     Options.UnfilteredChildren is set.
//
// The versions of two objects are never compared with each other. A cache that goes back proves
// nothing, as another API server may be behind. Neither does an object that is not found.
var ErrRestored = errors.New("the API server was restored from a backup")

// endingsKept is how many of the last DELETED events are remembered, at least.
const endingsKept = 2048

// restores notice that the server was restored. They are those of one Controller.
type restores struct {
	on   func(error) // nil: nobody wants to know
	told atomic.Bool // by an event

	mu  sync.Mutex
	err error // the proof; nil if there is none
	// owners and children are the newest versions of live lists that have ended.
	owners, children string
	// ended are children that DELETED events have ended, and the numbers of these events. Once
	// there are endingsKept of them, they become before, and what before had is forgotten.
	ended, before map[types.UID]int
	events        int // how many DELETED events there were
}

// proof returns an error that wraps ErrRestored if the server was restored.
func (r *restores) proof() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// notice notes a proof. The first one counts.
func (r *restores) notice(format string, args ...any) error {
	r.mu.Lock()
	first := r.err == nil
	if first {
		r.err = fmt.Errorf("%w: %w", ErrRestored, fmt.Errorf(format, args...))
	}
	err := r.err
	r.mu.Unlock()
	if first && r.on != nil {
		r.on(err)
	}
	return err
}

// compare makes a call that lists one resource. It returns an error if the version that the call
// returns is older than that of an earlier list, or than the cache's before the call.
func (r *restores) compare(newest *string, what, cached string, list func() (version string, err error)) error {
	r.mu.Lock()
	earlier := *newest
	r.mu.Unlock()
	version, err := list()
	switch {
	case err != nil:
		return err
	case resourceversion.Older(version, earlier):
		return r.notice("a live list of %s has version %s, and an earlier one had %s", what, version, earlier)
	case resourceversion.Older(version, cached):
		return r.notice("a live list of %s has version %s, and the cache had shown %s", what, version, cached)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if isNumber := resourceversion.Reached(version, version); isNumber && !resourceversion.Older(version, *newest) {
		*newest = version
	}
	return nil
}

// childEnded notes that a DELETED event has ended a child.
func (r *restores) childEnded(id types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil || len(r.ended) == endingsKept {
		r.ended, r.before = map[types.UID]int{}, r.ended
	}
	r.events++
	r.ended[id] = r.events
}

// endings returns how many DELETED events there were.
func (r *restores) endings() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events
}

// isEnded reports whether one of the first n DELETED events has ended a child.
func (r *restores) isEnded(id types.UID, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := max(r.ended[id], r.before[id])
	return at > 0 && at <= n
}

// A guard stands between passes and the server. It notices a restore by the versions of lists,
// and makes no write after one.
type guard[O, C Object] struct {
	Client[O, C]
	cache    Cache[O, C]
	restores *restores
}

func guarded[O, C Object](client Client[O, C], cache Cache[O, C], restores *restores) Client[O, C] {
	g := guard[O, C]{client, cache, restores}
	if versioner, ok := client.(Versioner); ok {
		return versionGuard[O, C]{g, versioner}
	}
	return g
}

func (g guard[O, C]) List(ctx context.Context, namespace string, matching labels.Selector) (list List[C], err error) {
	events := g.restores.endings()
	err = g.restores.compare(&g.restores.children, "children", g.cache.ChildrenVersion(), func() (string, error) {
		list, err = g.Client.List(ctx, namespace, matching)
		return list.ResourceVersion, err
	})
	for _, c := range list.Items {
		if err == nil && !object.IsNil(c) && g.restores.isEnded(c.GetUID(), events) {
			err = g.restores.notice("a live list has %q, and an event had told that it was deleted", c.GetName())
		}
	}
	return list, err
}

func (g guard[O, C]) Create(ctx context.Context, child C) (C, error) {
	if err := g.restores.proof(); err != nil {
		return *new(C), err
	}
	return g.Client.Create(ctx, child)
}

func (g guard[O, C]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error {
	if err := g.restores.proof(); err != nil {
		return err
	}
	return g.Client.Delete(ctx, child, opts)
}

func (g guard[O, C]) Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	if err := g.restores.proof(); err != nil {
		return *new(C), err
	}
	return g.Client.Patch(ctx, child, patch, opts)
}

func (g guard[O, C]) PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	if err := g.restores.proof(); err != nil {
		return *new(O), err
	}
	return g.Client.PatchStatus(ctx, owner, patch)
}

// A versionGuard is a guard of a Client that is a Versioner.
type versionGuard[O, C Object] struct {
	guard[O, C]
	versioner Versioner
}

func (g versionGuard[O, C]) ServerOwnersVersion(ctx context.Context, namespace string) (version string, err error) {
	err = g.restores.compare(&g.restores.owners, "owners", g.cache.OwnersVersion(), func() (string, error) {
		version, err = g.versioner.ServerOwnersVersion(ctx, namespace)
		return version, err
	})
	return version, err
}

func (g versionGuard[O, C]) ServerChildrenVersion(ctx context.Context, namespace string) (version string, err error) {
	err = g.restores.compare(&g.restores.children, "children", g.cache.ChildrenVersion(), func() (string, error) {
		version, err = g.versioner.ServerChildrenVersion(ctx, namespace)
		return version, err
	})
	return version, err
}

// wentBack notes a restore if the server has an object in an earlier version than was shown of
// that object before the call.
func (r *restores) wentBack(is, shown metav1.Object) error {
	if is.GetUID() == "" || is.GetUID() != shown.GetUID() || !resourceversion.Older(is.GetResourceVersion(), shown.GetResourceVersion()) {
		return nil
	}
	return r.notice("%q was read in version %s, and %s had been shown", is.GetName(), is.GetResourceVersion(), shown.GetResourceVersion())
}

// tellRestored sends the event, once.
func (p *pass[O, C]) tellRestored(err error) {
	if p.opts.Events != nil && !object.IsNil(p.Owner) && p.restores.told.CompareAndSwap(false, true) {
		p.opts.Events.Event(p.Owner, corev1.EventTypeWarning, ServerRestored, err.Error())
	}
}
