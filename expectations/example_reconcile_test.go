// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/slowstart"
)

// refused reports whether the server refused a creation, which then has no effect, now or later. After any other error the
// child may exist. It may exist, too, if client-go has sent the request twice, so the client must use NoteResent.
func refused(err error) bool {
	return !errors.Is(err, controller.ErrResent) &&
		(apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err))
}

// This Reconcile function lists the children and creates the missing ones. The numbers mark the four places in
// which the operator checks or updates the expected creations.
func Example_reconcile() {
	var (
		pending expectations.Store[expectations.Key]
		key     = expectations.Key{NamespacedName: types.NamespacedName{Namespace: "team", Name: "web"}, UID: "3f1c"}
		cached  []string // the names that a list from the cache returns
		made    []string // the names that the API server has
		full    = 4      // the quota
	)
	create := func(_ context.Context, name string) error {
		if len(made) == full {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name, errors.New("quota"))
		}
		made = append(made, name)
		return nil
	}
	reconcile := func(ctx context.Context, want int) (requeueAfter time.Duration, err error) {
		state, wait := pending.State(key) // 1. before the list
		if state == expectations.Waiting {
			return wait, nil // the cache lacks some creations
		}
		var names []string // the names of the missing children; if the state is Expired, find them with a live list
		for i := len(cached); i < want; i++ {
			names = append(names, fmt.Sprintf("web-%d", i))
		}
		pending.Set(key, expectations.Changes{Creating: names}) // 2. before the calls
		result := slowstart.Run(ctx, len(names), slowstart.Options{MaxParallel: 1}, func(ctx context.Context, i int) error {
			err := create(ctx, names[i])
			if refused(err) { // 3. after a refusal; a creation without an answer stays expected, because it may still take effect
				pending.Lower(key, expectations.Changes{Creating: names[i : i+1]})
			}
			return err
		})
		pending.Lower(key, expectations.Changes{Creating: names[len(names)-result.Skipped:]}) // those that slow start did not send
		return 0, result.Err
	}
	created := func(name string) {
		cached = append(cached, name)
		pending.CreationObserved(key, name) // 4. in the event handler
	}

	_, err := reconcile(context.Background(), 5)
	fmt.Println(len(made), "made,", err)
	wait, err := reconcile(context.Background(), 5)
	fmt.Println(len(made), "made, it waits:", wait > 0, err)
	for _, name := range made {
		created(name)
	}
	full = 5
	_, err = reconcile(context.Background(), 5)
	fmt.Println(len(made), "made,", err)
	// Output:
	// 4 made, pods "web-4" is forbidden: quota
	// 4 made, it waits: true <nil>
	// 5 made, <nil>
}
