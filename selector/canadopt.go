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

// CanAdopt returns a function for the field Claimer.CanAdopt. This function checks whether the
// owner may adopt orphans. Adoption is allowed if fetch returns an object that has the owner's UID
// and is not being deleted. The function fetch must read the owner from the API server and not from
// a cache. With a stale cache, an owner that has just been deleted could adopt orphans, and the
// orphans would be deleted with the owner.
//
// Only the first call of the returned function calls fetch, and passes its own context to fetch.
// The returned function remembers the result, even if fetch returned an error. So make a new
// function for every pass. The returned function is safe for concurrent use. Concurrent calls wait
// for the result of fetch. If fetch is nil, every adoption is allowed. If fetch panics, no adoption
// is allowed.
//
// If the returned function returns an error, no object is adopted. If you call the returned
// function yourself, note that a NotFound error refers to the owner and not to an orphan.
//
// Differs from Kubernetes: the error of fetch is wrapped, so that callers can use errors.As, for
// example to distinguish a Forbidden error from a timeout.
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
