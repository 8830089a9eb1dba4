// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package restores

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// A Client is a controller.Client. It is declared again because the controller imports this package. If the two
// differ, the controller does not compile.
type Client[O, C metav1.Object] interface {
	Create(ctx context.Context, child C) (C, error)
	Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error
	Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error)
	Get(ctx context.Context, namespace, name string) (C, error)
	List(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[C], error)
	GetOwner(ctx context.Context, namespace, name string) (O, error)
	PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error)
}

// A Versioner is a controller.Versioner.
type Versioner interface {
	ServerOwnersVersion(ctx context.Context, namespace string) (string, error)
	ServerChildrenVersion(ctx context.Context, namespace string) (string, error)
}

// A Cache reports its versions, as a controller.Cache does.
type Cache interface {
	OwnersVersion() string
	ChildrenVersion() string
}

// Guard wraps the client that makes the calls. It compares each list with earlier ones and with the cache, and after a
// proof each change returns the proof and is not sent. The result is a Versioner if client is one: that is the client
// which calls may wrap, and a client that wraps another is usually no Versioner.
func Guard[O, C metav1.Object](watch *Watch, calls, client Client[O, C], cache Cache) Client[O, C] {
	g := guard[O, C]{calls, cache, watch}
	if versioner, ok := client.(Versioner); ok {
		return versionGuard[O, C]{g, versioner}
	}
	return g
}

type guard[O, C metav1.Object] struct {
	Client[O, C]
	cache Cache
	watch *Watch
}

func (g guard[O, C]) List(ctx context.Context, namespace string, matching labels.Selector) (list ledger.List[C], err error) {
	events := g.watch.ChildrenDeleted() // before the list, which may have a child that is deleted while it is made
	err = g.watch.CompareChildren(g.cache.ChildrenVersion(), func() (string, error) {
		list, err = g.Client.List(ctx, namespace, matching)
		return list.Version, err
	})
	for _, c := range list.Items {
		if err == nil && !object.IsNil(c) && g.watch.IsDeleted(c.GetUID(), events) {
			err = g.watch.Notice("a live list has %q, although an event reported its deletion", c.GetName())
		}
	}
	return list, err
}

func (g guard[O, C]) Create(ctx context.Context, child C) (C, error) {
	if err := g.watch.Proof(); err != nil {
		return *new(C), err
	}
	return g.Client.Create(ctx, child)
}

func (g guard[O, C]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error {
	if err := g.watch.Proof(); err != nil {
		return err
	}
	return g.Client.Delete(ctx, child, opts)
}

func (g guard[O, C]) Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	if err := g.watch.Proof(); err != nil {
		return *new(C), err
	}
	return g.Client.Patch(ctx, child, patch, opts)
}

func (g guard[O, C]) PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	if err := g.watch.Proof(); err != nil {
		return *new(O), err
	}
	return g.Client.PatchStatus(ctx, owner, patch)
}

// A versionGuard is a guard for a Client that is also a Versioner.
type versionGuard[O, C metav1.Object] struct {
	guard[O, C]
	versioner Versioner
}

func (g versionGuard[O, C]) ServerOwnersVersion(ctx context.Context, namespace string) (version string, err error) {
	err = g.watch.CompareOwners(g.cache.OwnersVersion(), func() (string, error) {
		version, err = g.versioner.ServerOwnersVersion(ctx, namespace)
		return version, err
	})
	return version, err
}

func (g versionGuard[O, C]) ServerChildrenVersion(ctx context.Context, namespace string) (version string, err error) {
	err = g.watch.CompareChildren(g.cache.ChildrenVersion(), func() (string, error) {
		version, err = g.versioner.ServerChildrenVersion(ctx, namespace)
		return version, err
	})
	return version, err
}
