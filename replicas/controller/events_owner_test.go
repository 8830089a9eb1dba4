// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

func TestEventsOwners(t *testing.T) {
	t.Parallel()
	old, cur := ownerNamed("web", web), ownerNamed("web", web)
	again := ownerNamed("web", web)
	again.UID = "uid-of-web-again"
	for _, tc := range []struct {
		name      string
		event     func(r eventHandlers) error
		forgotten bool
	}{
		{
			name:  "V14 a new owner is woken",
			event: func(r eventHandlers) error { return r.OwnerAdded(cur) },
		},
		{
			name:  "V15 an owner that changed is woken, be it only by a resync",
			event: func(r eventHandlers) error { return r.OwnerUpdated(old, cur) },
		},
		{
			name:  "V16 an owner made again under its name is forgotten, then woken",
			event: func(r eventHandlers) error { return r.OwnerUpdated(old, again) }, forgotten: true,
		},
		{
			name:  "V17 an owner that is gone is forgotten and woken",
			event: func(r eventHandlers) error { return r.OwnerDeleted(old) }, forgotten: true,
		},
		{
			name: "V17 a tombstone stands for its owner",
			event: func(r eventHandlers) error {
				return r.OwnerDeleted(deletedFinalStateUnknown{"default/web", old})
			}, forgotten: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for who, made := range makers {
				r, key := newEventRig(), expectations.KeyOf(old)
				r.record().Set(key, expectations.Changes{Creations: 3})
				h, err := made(r)
				require.NoError(t, err, who)
				require.NoError(t, tc.event(h), who)
				if h != eventHandlers(r.controller) {
					assert.Equal(t, tc.forgotten, satisfied(r, key), "without Forget the expectations are deleted")
				}
				assert.Equal(t, []string{"default/web"}, r.wakes(), who)
			}
		})
	}
}

func TestEventsUnresolvedOwner(t *testing.T) {
	t.Parallel()
	rs := ownerNamed("web", web)
	key := expectations.KeyOf(rs)
	t.Run("V3 a creation is settled for an owner that cannot be resolved", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver()
		r.record().Set(key, expectations.Changes{Creations: 2})
		require.NoError(t, added(ownedBy("web"))(r.handlers()))
		assert.Equal(t, expectations.Changes{Creations: 1}, r.outstanding(rs))
		assert.Empty(t, r.wakes())
	})
	t.Run("W8 a creation is settled by namespace and name, whoever owns the child in the event", func(t *testing.T) {
		t.Parallel()
		for name, belongs := range map[string]podtest.Option{"nobody": podtest.Labels(nil), "another": ownedBy("api")} {
			r := newEventRig()
			r.record().Set(expectations.KeyOf(r.list[0]), expectations.Changes{Creating: []string{"web-0"}})
			elsewhere := podtest.Pod("web-0", belongs)
			elsewhere.Namespace = "other"
			require.NoError(t, r.handlers().ChildAdded(elsewhere))
			assert.False(t, satisfied(r, expectations.KeyOf(r.list[0])), name)
			r.woken = nil
			require.NoError(t, r.handlers().ChildAdded(podtest.Pod("web-0", belongs)))
			assert.True(t, satisfied(r, expectations.KeyOf(r.list[0])), name)
			assert.Contains(t, r.wakes(), "default/web", name)
		}
	})
	t.Run("V12 a deletion is settled for an owner that cannot be resolved", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver()
		r.record().Set(key, expectations.Changes{Deleting: []types.UID{"uid-web-0", "uid-web-1"}})
		require.NoError(t, deleted(ownedBy("web"))(r.handlers()))
		require.NoError(t, deleted(podtest.UID("uid-web-1"))(r.handlers()))
		assert.Equal(t, expectations.Changes{}, r.outstanding(rs))
		assert.Empty(t, r.wakes())
	})
	t.Run("V12 W12 a deletion that two incarnations wait for is settled for both", func(t *testing.T) {
		t.Parallel()
		again := ownerNamed("web", web)
		again.UID = "uid-of-web-again"
		r := eventRigOver(again)
		r.record().Set(key, expectations.Changes{Deleting: []types.UID{"uid-web-0"}})
		r.record().Set(expectations.KeyOf(again), expectations.Changes{Deleting: []types.UID{"uid-web-0"}})
		require.NoError(t, deleted(ownedBy("web"))(r.handlers()))
		assert.Equal(t, expectations.Changes{}, r.outstanding(rs))
		assert.Equal(t, expectations.Changes{}, r.outstanding(again))
		assert.Equal(t, []string{"default/web"}, r.wakes())
	})
	t.Run("W12 what a pass of the old owner left behind does not stall the new one", func(t *testing.T) {
		t.Parallel()
		again := ownerNamed("web", web)
		again.UID = "uid-of-web-again"
		r := eventRigOver(again)
		require.NoError(t, r.handlers().OwnerUpdated(rs, again))
		r.record().Set(key, expectations.Changes{Creations: 3})
		assert.True(t, satisfied(r, expectations.KeyOf(again)))
		r.record().Set(expectations.KeyOf(again), expectations.Changes{Creations: 3})
		require.NoError(t, added(ownedBy("web"))(r.handlers()))
		assert.Equal(t, expectations.Changes{Creations: 3}, r.outstanding(again), "a pod of the old owner is not the new one's")
		assert.Equal(t, expectations.Changes{Creations: 2}, r.outstanding(rs))
	})
	t.Run("V3 an owner without a namespace is resolved by name", func(t *testing.T) {
		t.Parallel()
		global := ownerNamed("web", web)
		global.Namespace = ""
		r := eventRigOver(global)
		r.kind.ClusterScoped = true
		r.record().Set(expectations.KeyOf(global), expectations.Changes{Creations: 2})
		require.NoError(t, added(ownedBy("web"))(r.handlers()))
		assert.Equal(t, expectations.Changes{Creations: 1}, r.outstanding(global))
		assert.Equal(t, []string{"/web"}, r.wakes())
	})
}

func TestEventsSelectors(t *testing.T) {
	t.Parallel()
	without := func(name string, selector *metav1.LabelSelector) *appsv1.ReplicaSet {
		rs := ownerNamed(name, nil)
		rs.Spec.Selector = selector
		return rs
	}
	owners := []*appsv1.ReplicaSet{
		without("nil", nil),
		without("empty", &metav1.LabelSelector{}),
		without("invalid", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "not a value"}}),
		without("negative", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}),
		ownerNamed("web", web),
	}
	t.Run("V5 selectors that are nil, empty or invalid match nothing", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver(owners...)
		require.NoError(t, added()(r.start()))
		assert.Equal(t, []string{"default/web"}, r.wakes())
	})
	t.Run("V5 a pod without labels wakes nobody, even where a selector matches it", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver(owners...)
		require.NoError(t, added(podtest.Labels(nil))(r.start()))
		assert.Empty(t, r.wakes())
		require.NoError(t, added(podtest.Labels(map[string]string{"tier": "db"}))(r.start()))
		assert.Equal(t, []string{"default/negative"}, r.wakes())
	})
}

func TestEventsSpecIsAskedSeldom(t *testing.T) {
	t.Parallel()
	t.Run("M6 W53 the spec of an owner is read once for each of its versions", func(t *testing.T) {
		t.Parallel()
		r := newEventRig()
		r.list[0].ResourceVersion = "1"
		for _, event := range []func(eventHandlers) error{
			added(ownedBy("web")),
			updated(with(ownedBy("web")), with(ownedBy("web"))),
			updated(with(ownedBy("web")), with(ownedBy("web"), podtest.NotReady)),
			updated(with(ownedBy("web"), podtest.NotReady), with(ownedBy("web"), podtest.Deleting)),
			deleted(ownedBy("web")),
		} {
			require.NoError(t, event(r.start()))
		}
		assert.Equal(t, 1, r.specs)
		require.NoError(t, updated(with(ownedBy("web"), podtest.NotReady), with(ownedBy("web")))(r.start()))
		assert.Equal(t, 1, r.specs)
	})
	t.Run("M6 where minReadySeconds is not positive an owner is woken once", func(t *testing.T) {
		t.Parallel()
		for _, seconds := range []int32{0, -10} {
			r := newEventRig()
			r.list[0].Spec.MinReadySeconds = seconds
			require.NoError(t, updated(with(ownedBy("web"), podtest.NotReady), with(ownedBy("web")))(r.start()))
			assert.Equal(t, []string{"default/web"}, r.woken)
		}
	})
	t.Run("M6 an owner whose spec is refused is woken all the same", func(t *testing.T) {
		t.Parallel()
		r := newEventRig()
		r.fails = errors.New("refused")
		require.NoError(t, updated(with(ownedBy("web"), podtest.NotReady), with(ownedBy("web")))(r.start()))
		assert.Equal(t, []string{"default/web"}, r.wakes())
	})
}

func TestEventsOfOwnersThatAreNil(t *testing.T) {
	t.Parallel()
	r := newEventRig()
	r.list = []*appsv1.ReplicaSet{nil}
	require.NoError(t, added()(r.start()))
	require.NoError(t, added(ownedBy("web"))(r.start()))
	require.NoError(t, deleted(ownedBy("web"))(r.start()))
	assert.Empty(t, r.wakes())
}
