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

// CanAdopt returns a function for Claimer.CanAdopt. It returns nil if owner may adopt, that is, if
// fetch returns an owner that has the same UID and is not being deleted. fetch must read the owner
// from the API server and not from a cache. Otherwise an owner that has just been deleted could
// adopt orphans, and they would be deleted with it.
//
// The function calls fetch only when it is first called, with the context of that call. It
// remembers the answer, even an error, so make a new function for every pass. It is safe for
// concurrent use. Calls that arrive while fetch runs wait for it. If fetch is nil, every adoption
// is allowed. If fetch panics, none is.
//
// Any error forbids the adoption. If you call the function yourself, a NotFound means that the
// owner is gone, not an orphan.
//
// Differs from Kubernetes: the error of fetch is wrapped, so that errors.As finds it. A caller can
// distinguish Forbidden from a timeout.
func CanAdopt(fetch func(context.Context) (metav1.Object, error), owner metav1.Object) func(context.Context) error {
	if fetch == nil {
		return func(context.Context) error { return nil }
	}
	var once sync.Once
	err := errors.New("can't recheck DeletionTimestamp: the read did not return") // kept if fetch panics
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
