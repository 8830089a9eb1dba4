// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

func TestEventsChildAdded(t *testing.T) {
	t.Parallel()
	for _, e := range []event{
		{
			name:  "V1 a new pod that is being deleted is no creation",
			event: added(ownedBy("web"), podtest.Deleting),
			woken: []string{"default/web"},
		},
		{
			name:  "V1 a new pod that is being deleted settles its deletion",
			event: added(ownedBy("web"), podtest.Deleting), deleting: true, settled: 1,
			woken: []string{"default/web"},
		},
		{
			name:  "V1 a new orphan that is being deleted wakes nobody",
			event: added(podtest.Deleting),
		},
		{
			name:  "V2 a new pod with an owner settles a creation and wakes that owner alone",
			event: added(ownedBy("web")), settled: 1,
			woken: []string{"default/web"},
		},
		{
			name:  "V2 a new pod of another owner settles nothing here",
			event: added(ownedBy("canary")),
			woken: []string{"default/canary"},
		},
		{
			name:  "V2 a new pod settles no deletion",
			event: added(ownedBy("web")), deleting: true,
			woken: []string{"default/web"},
		},
		{
			name:  "V3 an owner of another kind is not ours, whatever its name",
			event: added(reference(func(ref *metav1.OwnerReference) { ref.Kind, ref.UID = "DaemonSet", "uid-of-daemon-set" })),
		},
		{
			name:  "V3 nor is one without a UID",
			event: added(reference(func(ref *metav1.OwnerReference) { ref.Kind, ref.UID = "DaemonSet", "" })),
		},
		{
			name:  "V3 an owner of an unknown name is not resolved, and its pod is no orphan",
			event: added(reference(func(ref *metav1.OwnerReference) { ref.Name = "gone" })),
		},
		{
			name:  "V3 an owner of another UID is not resolved, and its pod is no orphan",
			event: added(reference(func(ref *metav1.OwnerReference) { ref.UID = "uid-of-older-web" })),
		},
		{
			name:  "V3 an owner of another namespace is not resolved",
			event: added(ownedBy("web"), inNamespace("other")),
		},
		{
			name:  "V3 W60 the API group is not compared: the UID decides",
			event: added(reference(func(ref *metav1.OwnerReference) { ref.APIVersion = "extensions/v1beta1" })), settled: 1,
			woken: []string{"default/web"},
		},
		{
			name: "V3 W60 a kind of the same name in another group has another UID",
			event: added(reference(func(ref *metav1.OwnerReference) {
				ref.APIVersion, ref.UID = "example.com/v1", "uid-of-example"
			})),
		},
		{
			name:  "V4 a new orphan wakes all owners that select it and settles nothing",
			event: added(),
			woken: []string{"default/canary", "default/web"},
		},
		{
			name: "V4 a reference that is not the controller's leaves an orphan",
			event: added(reference(func(ref *metav1.OwnerReference) {
				no := false
				ref.Controller = &no
			})),
			woken: []string{"default/canary", "default/web"},
		},
		{
			name:  "V4 a new orphan wakes owners of its namespace only",
			event: added(inNamespace("other")),
			woken: []string{"other/web"},
		},
		{
			name:  "V5 a new orphan without labels wakes nobody",
			event: added(podtest.Labels(nil)),
		},
		{
			name:  "V5 a new orphan that nobody selects wakes nobody",
			event: added(podtest.Labels(map[string]string{"app": "db"})),
		},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			e.run(t)
		})
	}
}

func TestEventsChildUpdated(t *testing.T) {
	t.Parallel()
	for _, e := range []event{
		{
			name:  "V6 equal resource versions are a resync, whatever changed",
			event: updated(with(), with(version("1"), ownedBy("web"), podtest.Deleting)), deleting: true,
		},
		{
			name:  "V7 a deletion that begins is settled before the pod is gone",
			event: updated(with(ownedBy("web")), with(ownedBy("web"), podtest.Deleting)), deleting: true, settled: 1,
			woken: []string{"default/web"},
		},
		{
			name:  "V7 a deletion that begins is no creation",
			event: updated(with(ownedBy("web")), with(ownedBy("web"), podtest.Deleting)),
			woken: []string{"default/web"},
		},
		{
			name: "V7 with new labels the deletion wakes the old owner too",
			event: updated(with(ownedBy("canary")),
				with(ownedBy("web"), podtest.Deleting, podtest.Labels(api))),
			woken: []string{"default/canary", "default/web"},
		},
		{
			name:  "V7 with a new owner it does too: no other event tells that owner",
			event: updated(with(ownedBy("canary")), with(ownedBy("web"), podtest.Deleting)),
			woken: []string{"default/canary", "default/web"},
		},
		{
			name:  "V7 an orphan that is being deleted wakes nobody",
			event: updated(with(podtest.Labels(api)), with(podtest.Deleting)),
		},
		{
			name:  "V7 a pod that becomes ready while it is being deleted is not looked at again",
			event: updated(with(ownedBy("web"), podtest.NotReady), with(ownedBy("web"), podtest.Deleting)),
			woken: []string{"default/web"},
		},
		{
			name:  "V8 a new owner: the old one is woken too",
			event: updated(with(ownedBy("api")), with(ownedBy("web"))),
			woken: []string{"default/api", "default/web"},
		},
		{
			name: "V8 a new owner: an old one that is not resolved is not woken",
			event: updated(with(reference(func(ref *metav1.OwnerReference) { ref.UID = "uid-of-older-web" })),
				with(ownedBy("api"))),
			woken: []string{"default/api"},
		},
		{
			name:  "V8 no owner any more: the old one is woken even if it selects the pod no more",
			event: updated(with(ownedBy("api")), with()),
			woken: []string{"default/api", "default/canary", "default/web"},
		},
		{
			name:  "V8 a reference that no longer names the owner of its UID wakes that owner",
			event: updated(with(ownedBy("web")), with(reference(func(ref *metav1.OwnerReference) { ref.Name = "gone" }))),
			woken: []string{"default/web"},
		},
		{
			name: "V8 any other field of the reference changed: the owner is woken",
			event: updated(with(ownedBy("web")),
				with(reference(func(ref *metav1.OwnerReference) { ref.BlockOwnerDeletion = nil }))),
			woken: []string{"default/web"},
		},
		{
			name:  "V9 a pod with an owner wakes it",
			event: updated(with(ownedBy("web")), with(ownedBy("web"))),
			woken: []string{"default/web"},
		},
		{
			name:  "V9 new labels of a pod with an owner wake nobody else",
			event: updated(with(ownedBy("web"), podtest.Labels(api)), with(ownedBy("web"))),
			woken: []string{"default/web"},
		},
		{
			name: "V9 a pod whose owner is not resolved is no orphan",
			event: updated(with(podtest.Labels(api)),
				with(reference(func(ref *metav1.OwnerReference) { ref.Name = "gone" }))),
		},
		{
			name:  "V10 an orphan with new labels wakes all owners that select it now",
			event: updated(with(podtest.Labels(api)), with()),
			woken: []string{"default/canary", "default/web"},
		},
		{
			name:  "V10 a pod that became an orphan wakes all owners that select it",
			event: updated(with(ownedBy("web")), with()),
			woken: []string{"default/canary", "default/web"},
		},
		{
			name: "V10 a pod that became an orphan of an unknown owner wakes all owners that select it",
			event: updated(with(reference(func(ref *metav1.OwnerReference) { ref.Name = "gone" })),
				with()),
			woken: []string{"default/canary", "default/web"},
		},
		{
			name:  "V10 an orphan with the labels it had wakes nobody",
			event: updated(with(podtest.NotReady), with()),
		},
		{
			name:  "V11 an adoption seen as an update settles no creation",
			event: updated(with(), with(ownedBy("web"))),
			woken: []string{"default/web"},
		},
		{
			name:  "V11 an update settles no deletion unless it brings one",
			event: updated(with(ownedBy("web")), with(ownedBy("web"))), deleting: true,
			woken: []string{"default/web"},
		},
		{
			name:  "M6 a pod that became ready wakes its owner again after minReadySeconds",
			event: updated(with(ownedBy("web"), podtest.NotReady), with(ownedBy("web"))),
			woken: []string{"default/web", "default/web in 10s"},
		},
		{
			name:  "M6 a pod adopted as it became ready wakes its new owner again",
			event: updated(with(podtest.NotReady), with(ownedBy("web"))),
			woken: []string{"default/web", "default/web in 10s"},
		},
		{
			name:  "M6 a pod that is no longer ready wakes its owner once",
			event: updated(with(ownedBy("web")), with(ownedBy("web"), podtest.NotReady)),
			woken: []string{"default/web"},
		},
		{
			name:  "M6 without minReadySeconds ready is available",
			event: updated(with(ownedBy("api"), podtest.NotReady), with(ownedBy("api"))),
			woken: []string{"default/api"},
		},
		{
			name:  "W57 nil labels that became empty ones are no change",
			event: updated(with(podtest.Labels(nil)), with(podtest.Labels(map[string]string{}))),
		},
		{
			name: "W57 nil labels that became empty ones are none when a deletion begins",
			event: updated(with(ownedBy("web"), podtest.Labels(nil)),
				with(ownedBy("web"), podtest.Labels(map[string]string{}), podtest.Deleting)),
			woken: []string{"default/web"},
		},
		{
			name: "W9 a pod made again under its name settles the deletion of the old one",
			event: updated(with(ownedBy("web")),
				with(ownedBy("web"), podtest.UID("uid-web-0-again"))), deleting: true, settled: 1,
			woken: []string{"default/web"},
		},
		{
			name: "W9 a pod made again under its name settles its creation, and wakes the old owner",
			event: updated(with(ownedBy("canary")),
				with(ownedBy("web"), podtest.UID("uid-web-0-again"))), settled: 1,
			woken: []string{"default/canary", "default/web"},
		},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			e.run(t)
		})
	}
}

func TestEventsChildDeleted(t *testing.T) {
	t.Parallel()
	pod := podtest.Pod("web-0", ownedBy("web"))
	for _, e := range []event{
		{
			name:  "V12 a deletion is settled and wakes the owner",
			event: deleted(ownedBy("web")), deleting: true, settled: 1,
			woken: []string{"default/web"},
		},
		{
			name:  "V12 a deletion that nobody expects wakes the owner and settles nothing",
			event: deleted(ownedBy("web"), podtest.UID("uid-web-9")), deleting: true,
			woken: []string{"default/web"},
		},
		{
			name:  "V12 a deletion settles no creation",
			event: deleted(ownedBy("web")),
			woken: []string{"default/web"},
		},
		{
			name:  "V12 an orphan that is gone wakes who selects it, and may have adopted it unseen",
			event: deleted(),
			woken: []string{"default/canary", "default/web"},
		},
		{
			name:  "V12 a pod whose owner is not resolved wakes nobody",
			event: deleted(reference(func(ref *metav1.OwnerReference) { ref.UID = "uid-of-older-web" })),
		},
		{
			name:  "V12 a pod orphaned meanwhile settles its deletion and wakes who waits for it",
			event: deleted(), deleting: true, settled: 1,
			woken: []string{"default/canary", "default/web"},
		},
		{
			name:  "V12 a pod adopted by another owner meanwhile wakes both",
			event: deleted(ownedBy("api")), deleting: true, settled: 1,
			recorded: true, woken: []string{"default/api", "default/web"},
		},
		{
			name: "V13 a tombstone stands for its pod",
			event: func(r eventHandlers) error {
				return r.ChildDeleted(deletedFinalStateUnknown{"default/web-0", pod})
			}, deleting: true, settled: 1,
			woken: []string{"default/web"},
		},
		{
			name: "V13 a pointer to a tombstone stands for its pod",
			event: func(r eventHandlers) error {
				return r.ChildDeleted(&deletedFinalStateUnknown{"default/web-0", pod})
			}, deleting: true, settled: 1,
			woken: []string{"default/web"},
		},
		{
			name:  "W9 a pod of that name with another UID is another pod",
			event: deleted(ownedBy("web"), podtest.UID("uid-web-0-again")), deleting: true,
			woken: []string{"default/web"},
		},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			e.run(t)
		})
	}
}

func TestEventsOfOthersSettle(t *testing.T) {
	t.Parallel()
	expecting := func(what expectations.Changes) *eventRig {
		r := newEventRig()
		r.record().Set(expectations.KeyOf(r.list[0]), what)
		return r
	}
	creation, deletion := expectations.Changes{Creating: []string{"web-new"}}, expectations.Changes{Deleting: []types.UID{"uid-web-old"}}
	nobodys := podtest.Labels(map[string]string{"app": "debug"})
	for name, tt := range map[string]struct {
		what    expectations.Changes
		event   func(c eventHandlers) error
		settled bool
	}{
		"W11 a creation, by an orphan that nobody selects": {creation, func(c eventHandlers) error { return c.ChildAdded(podtest.Pod("web-new", nobodys)) }, true},
		"W11 a creation, by another's child":               {creation, func(c eventHandlers) error { return c.ChildAdded(podtest.Pod("web-new", ownedBy("unknown"))) }, true},
		"W11 a creation, by the end of a child that was never seen": {creation, func(c eventHandlers) error {
			return c.ChildDeleted(podtest.Pod("web-new", nobodys))
		}, true},
		"W11 no creation, by a child of another namespace": {creation, func(c eventHandlers) error {
			p := podtest.Pod("web-new", nobodys)
			p.Namespace = "other"
			return c.ChildAdded(p)
		}, false},
		"V12 a deletion, by an orphan that nobody selects": {deletion, func(c eventHandlers) error {
			return c.ChildDeleted(podtest.Pod("web-old", podtest.UID("uid-web-old"), nobodys))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := expecting(tt.what)
			require.NoError(t, tt.event(r.handlers()))
			assert.Equal(t, tt.settled, satisfied(r, expectations.KeyOf(r.list[0])))
			if tt.settled {
				assert.Equal(t, []string{"default/web"}, r.wakes(), "who waits is woken")
			} else {
				assert.Empty(t, r.wakes())
			}
		})
	}
	t.Run("E7 deletions that a loop of one's own only counts are settled by the owner's children", func(t *testing.T) {
		t.Parallel()
		r := expecting(expectations.Changes{Deletions: 1})
		require.NoError(t, r.handlers().ChildDeleted(podtest.Pod("web-old", ownedBy("web"))))
		assert.True(t, satisfied(r, expectations.KeyOf(r.list[0])))
	})
	t.Run("an update that gives a child another owner waits for no status", func(t *testing.T) {
		t.Parallel()
		r := newEventRig()
		r.opts.StatusDelay = time.Second
		require.NoError(t, r.start().ChildUpdated(podtest.Pod("a", ownedBy("canary"), version("1")), podtest.Pod("a", ownedBy("web"), version("2"))))
		assert.Equal(t, []string{"default/canary", "default/web"}, r.wakes())
	})
}
