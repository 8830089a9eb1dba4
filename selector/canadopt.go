// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/object"
)

// CanAdopt returns a function for Claimer.CanAdopt. The returned function returns nil if the owner
// may adopt. The owner may adopt if fetch returns an owner that has the same UID and is not being
// deleted. fetch must read the owner from the API server and not from a cache. Otherwise an owner
// that has just been deleted could adopt orphans, and the orphans would be deleted with the owner.
//
// The returned function calls fetch only in its first call, with the context of that call. The
// function remembers the result, even an error, so make a new function for every pass. The function
// is safe for concurrent use. Calls that arrive while fetch runs wait for its result. If fetch is
// nil, every adoption is allowed. If fetch panics, no adoption is allowed.
//
// Any error forbids the adoption. If you call the returned function yourself, a NotFound error
// means that the owner is gone, not that an orphan is gone.
//
// Differs from Kubernetes: the error of fetch is wrapped, so that errors.As finds it. A caller can
// therefore distinguish a Forbidden error from a timeout.
func CanAdopt(fetch func(context.Context) (metav1.Object, error), owner metav1.Object) func(context.Context) error {
	if fetch == nil {
		return func(context.Context) error { return nil }
	}
	var once sync.Once
	err := errors.New("can't recheck DeletionTimestamp: the read did not return") // stays if fetch panics
	return func(ctx context.Context) error {
		once.Do(func() { err = recheck(ctx, fetch, owner) })
		return err
	}
}

func recheck(ctx context.Context, fetch func(context.Context) (metav1.Object, error), owner metav1.Object) error {
	if object.IsNil(owner) {
		return errors.New("selector: owner is nil")
	}
	fresh, err := fetch(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("can't recheck DeletionTimestamp: %w", err)
	case object.IsNil(fresh):
		return fmt.Errorf("can't recheck DeletionTimestamp: the read of %s %s returned nothing", kindOf(owner), object.Name(owner))
	case fresh.GetUID() != owner.GetUID():
		return fmt.Errorf("can't recheck DeletionTimestamp: original %s %s is gone: got uid %s, wanted %s",
			kindOf(owner), object.Name(owner), fresh.GetUID(), owner.GetUID())
	case fresh.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s has just been deleted at %v", object.Name(fresh), fresh.GetDeletionTimestamp())
	default:
		return nil
	}
}

func kindOf(owner metav1.Object) string {
	kind, _ := object.KindOf(owner)
	return kind.Kind
}
