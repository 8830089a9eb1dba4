// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/selector"
)

func answering(obj metav1.Object, err error) func(context.Context) (metav1.Object, error) {
	return func(context.Context) (metav1.Object, error) { return obj, err }
}

func TestCanAdopt(t *testing.T) {
	t.Parallel()
	gone := apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "replicasets"}, "web")
	recreated := webSet()
	recreated.UID = "uid-new"
	recreatedDeleting := owner(ownerDeleting)
	recreatedDeleting.UID = "uid-new"
	custom := &unstructured.Unstructured{Object: map[string]any{"kind": "Widget"}}
	custom.SetName("w")
	custom.SetUID("wuid")
	for _, tt := range []struct {
		name  string
		owner metav1.Object
		fetch func(context.Context) (metav1.Object, error)
		want  string
	}{
		{"C19 the owner is there and not being deleted", webSet(), answering(webSet(), nil), ""},
		{
			"C19 the cached owner being deleted is not what is asked", owner(ownerDeleting),
			answering(webSet(), nil), "",
		},
		{
			"C19 the read failed", webSet(), answering(nil, gone),
			`can't recheck DeletionTimestamp: replicasets.apps "web" not found`,
		},
		{
			"C19 another owner bears the name", webSet(), answering(recreated, nil),
			"can't recheck DeletionTimestamp: original ReplicaSet default/web is gone: got uid uid-new, wanted uid-web",
		},
		{
			"C19 another owner bears the name, which is asked first", webSet(), answering(recreatedDeleting, nil),
			"can't recheck DeletionTimestamp: original ReplicaSet default/web is gone: got uid uid-new, wanted uid-web",
		},
		{
			"C19 a custom resource knows its own kind", custom, answering(webSet(), nil),
			"can't recheck DeletionTimestamp: original Widget w is gone: got uid uid-web, wanted wuid",
		},
		{
			"C19 the owner is being deleted", webSet(), answering(owner(ownerDeleting), nil),
			"default/web has just been deleted at 2026-05-04 12:00:00 +0000 UTC",
		},
		{"C17 nothing to ask allows", webSet(), nil, ""},
		{
			"the read returned nothing", webSet(), answering(nil, nil),
			"can't recheck DeletionTimestamp: the read of ReplicaSet default/web returned nothing",
		},
		{
			"the read returned a typed nil", webSet(), answering((*appsv1.ReplicaSet)(nil), nil),
			"can't recheck DeletionTimestamp: the read of ReplicaSet default/web returned nothing",
		},
		{"nil owner", nil, answering(webSet(), nil), "selector: owner is nil"},
		{"typed nil owner", (*appsv1.ReplicaSet)(nil), answering(webSet(), nil), "selector: owner is nil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := selector.CanAdopt(tt.fetch, tt.owner)(t.Context())
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, tt.want)
			}
		})
	}
	t.Run("C18 a NotFound of the owner forbids, for every orphan", func(t *testing.T) {
		t.Parallel()
		mayAdopt := selector.CanAdopt(answering(nil, gone), webSet())
		require.Error(t, mayAdopt(t.Context()))
		require.Error(t, mayAdopt(t.Context()))
	})
	t.Run("W25 the read's own error can be reached", func(t *testing.T) {
		t.Parallel()
		err := selector.CanAdopt(answering(nil, gone), webSet())(t.Context())
		assert.True(t, apierrors.IsNotFound(err))
		var status apierrors.APIStatus
		require.ErrorAs(t, err, &status)
		assert.EqualValues(t, http.StatusNotFound, status.Status().Code)
	})
}

func TestCanAdoptAsksOnce(t *testing.T) {
	t.Parallel()
	t.Run("C17 not before the first adoption", func(t *testing.T) {
		t.Parallel()
		selector.CanAdopt(func(context.Context) (metav1.Object, error) {
			t.Error("asked")
			return nil, nil
		}, webSet())
	})
	t.Run("C17 the first answer is remembered, an error too", func(t *testing.T) {
		t.Parallel()
		for _, first := range []metav1.Object{webSet(), owner(ownerDeleting)} {
			answers := []metav1.Object{first, owner(ownerDeleting), webSet()}
			mayAdopt := selector.CanAdopt(func(context.Context) (metav1.Object, error) {
				answer := answers[0]
				answers = answers[1:]
				return answer, nil
			}, webSet())
			err := mayAdopt(t.Context())
			assert.Equal(t, first.GetDeletionTimestamp() == nil, err == nil)
			for range 3 {
				assert.Equal(t, err, mayAdopt(t.Context()))
			}
			assert.Len(t, answers, 2)
		}
	})
	t.Run("C17 many adoptions at once ask once", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int32
		mayAdopt := selector.CanAdopt(func(context.Context) (metav1.Object, error) {
			calls.Add(1)
			return owner(ownerDeleting), nil
		}, webSet())
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() { assert.Error(t, mayAdopt(t.Context())) })
		}
		wg.Wait()
		assert.EqualValues(t, 1, calls.Load())
	})
	t.Run("C17 a new one asks anew", func(t *testing.T) {
		t.Parallel()
		require.Error(t, selector.CanAdopt(answering(owner(ownerDeleting), nil), webSet())(t.Context()))
		require.NoError(t, selector.CanAdopt(answering(webSet(), nil), webSet())(t.Context()))
	})
	t.Run("the first caller's context reaches the read", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		mayAdopt := selector.CanAdopt(func(ctx context.Context) (metav1.Object, error) { return webSet(), ctx.Err() }, webSet())
		require.ErrorIs(t, mayAdopt(ctx), context.Canceled)
	})
	t.Run("a read that panics allows nothing", func(t *testing.T) {
		t.Parallel()
		mayAdopt := selector.CanAdopt(func(context.Context) (metav1.Object, error) { panic("broken client") }, webSet())
		require.PanicsWithValue(t, "broken client", func() { _ = mayAdopt(t.Context()) })
		require.EqualError(t, mayAdopt(t.Context()), "can't recheck DeletionTimestamp: the read did not return")
	})
}
