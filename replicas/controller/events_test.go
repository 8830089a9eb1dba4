package controller_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

var api = map[string]string{"app": "api"}

// deletedFinalStateUnknown is what client-go's cache calls its tombstone.
type deletedFinalStateUnknown struct {
	Key string
	Obj any
}

// An eventRig is a rig of several owners.
type eventRig struct {
	*podRig
	list  []*appsv1.ReplicaSet
	specs int   // calls of Spec
	fails error // what it answers
}

// newEventRig returns a rig of the owners of namespace default: web and canary,
// which both select app=web, api, which has another selector, and of the owner web
// of namespace other. web wants its pods ready for ten seconds.
func newEventRig() *eventRig {
	ready := ownerNamed("web", web)
	ready.Spec.MinReadySeconds = 10
	elsewhere := ownerNamed("web", web)
	elsewhere.Namespace, elsewhere.UID = "other", "uid-of-other-web"
	return eventRigOver(ready, ownerNamed("canary", web), ownerNamed("api", api), elsewhere)
}

func eventRigOver(owners ...*appsv1.ReplicaSet) *eventRig {
	r := &eventRig{podRig: newRig(3), list: owners}
	r.owners = func() ([]*appsv1.ReplicaSet, error) { return r.list, nil }
	specOf := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.Spec, error) {
		r.mu.Lock()
		r.specs++
		r.mu.Unlock()
		if r.fails != nil {
			return replicas.Spec{MinReadySeconds: 10}, r.fails
		}
		return specOf(rs)
	}
	return r
}

func ownerNamed(name string, labels map[string]string) *appsv1.ReplicaSet {
	rs := replicaSet(3)
	rs.Name, rs.UID = name, types.UID("uid-of-"+name)
	rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	return rs
}

// outstanding returns what an owner still waits for.
func (r *eventRig) outstanding(owner metav1.Object) expectations.Changes {
	pending, _ := r.record().Get(expectations.KeyOf(owner))
	return pending.Changes
}

func satisfied(r *eventRig, key expectations.Key) bool {
	state, _ := r.record().State(key)
	return state == expectations.Satisfied
}

func ownedBy(name string) podtest.Option { return owned(ownerNamed(name, web)) }

// A event is one event, what it settles and whom it wakes. Before it, web
// waits for three creations, or for the deletion of web-0, web-1 and web-2 where
// deleting is true.
type event struct {
	name     string
	event    func(r handlers) error
	deleting bool
	settled  int
	woken    []string
}

func (e event) run(t *testing.T) {
	t.Helper()
	for who, made := range makers {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			e.runAt(t, made)
		})
	}
}

// handlers are what a Controller and Handlers have in common.
type handlers interface {
	ChildAdded(obj any, q ...controller.Enqueue) error
	ChildUpdated(old, cur any, q ...controller.Enqueue) error
	ChildDeleted(obj any, q ...controller.Enqueue) error
	OwnerAdded(obj any, q ...controller.Enqueue) error
	OwnerUpdated(old, cur any, q ...controller.Enqueue) error
	OwnerDeleted(obj any, q ...controller.Enqueue) error
}

// makers make the handlers of a rig, which settle what it records.
var makers = map[string]func(*eventRig) (handlers, error){
	"in a Controller": func(r *eventRig) (handlers, error) { return r.start(), nil },
	"in a loop of one's own": func(r *eventRig) (handlers, error) {
		return controller.NewHandlers(r.kind, r, r.record(), r.wake)
	},
}

func (e event) runAt(t *testing.T, made func(*eventRig) (handlers, error)) {
	t.Helper()
	r, rs := newEventRig(), ownerNamed("web", web)
	key := expectations.KeyOf(rs)
	r.record().Set(key, expectations.Changes{Creations: 3})
	if e.deleting {
		r.record().Set(key, expectations.Changes{Deleting: []types.UID{"uid-web-0", "uid-web-1", "uid-web-2"}})
	}
	h, err := made(r)
	require.NoError(t, err)
	require.NoError(t, e.event(h))
	left := r.outstanding(rs)
	if !e.deleting {
		assert.Equal(t, 3-e.settled, left.Creations, "outstanding creations")
	} else {
		assert.Len(t, left.Deleting, 3-e.settled, "outstanding deletions")
	}
	assert.Equal(t, e.woken, r.wakes(), "woken")
}

func added(options ...podtest.Option) func(handlers) error {
	return func(r handlers) error { return r.ChildAdded(podtest.Pod("web-0", options...)) }
}

// updated is an update of web-0 between two versions.
func updated(old, cur []podtest.Option) func(handlers) error {
	was := podtest.Pod("web-0", append([]podtest.Option{version("1")}, old...)...)
	now := podtest.Pod("web-0", append([]podtest.Option{version("2")}, cur...)...)
	return func(r handlers) error { return r.ChildUpdated(was, now) }
}

func deleted(options ...podtest.Option) func(handlers) error {
	return func(r handlers) error { return r.ChildDeleted(podtest.Pod("web-0", options...)) }
}

// with lists the options of one pod.
func with(options ...podtest.Option) []podtest.Option { return options }

func reference(change func(*metav1.OwnerReference)) podtest.Option {
	return func(p *corev1.Pod) {
		ownedBy("web")(p)
		change(&p.OwnerReferences[0])
	}
}

func inNamespace(namespace string) podtest.Option {
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

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
			name:  "V7 with the same labels the old owner is not looked at",
			event: updated(with(ownedBy("canary")), with(ownedBy("web"), podtest.Deleting)),
			woken: []string{"default/web"},
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
			name: "W57 nil labels that became empty ones do not bring the old owner of a deleted pod in",
			event: updated(with(ownedBy("canary"), podtest.Labels(nil)),
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
			woken: []string{"default/api", "default/web"},
		},
		{
			name: "V13 a tombstone stands for its pod",
			event: func(r handlers) error {
				return r.ChildDeleted(deletedFinalStateUnknown{"default/web-0", pod})
			}, deleting: true, settled: 1,
			woken: []string{"default/web"},
		},
		{
			name: "V13 a pointer to a tombstone stands for its pod",
			event: func(r handlers) error {
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

func TestEventsOwners(t *testing.T) {
	t.Parallel()
	old, cur := ownerNamed("web", web), ownerNamed("web", web)
	again := ownerNamed("web", web)
	again.UID = "uid-of-web-again"
	for _, tc := range []struct {
		name      string
		event     func(r handlers) error
		forgotten bool
	}{
		{
			name:  "V14 a new owner is woken",
			event: func(r handlers) error { return r.OwnerAdded(cur) },
		},
		{
			name:  "V15 an owner that changed is woken, be it only by a resync",
			event: func(r handlers) error { return r.OwnerUpdated(old, cur) },
		},
		{
			name:  "V16 an owner made again under its name is forgotten, then woken",
			event: func(r handlers) error { return r.OwnerUpdated(old, again) }, forgotten: true,
		},
		{
			name:  "V17 an owner that is gone is forgotten and woken",
			event: func(r handlers) error { return r.OwnerDeleted(old) }, forgotten: true,
		},
		{
			name: "V17 a tombstone stands for its owner",
			event: func(r handlers) error {
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
				assert.Equal(t, tc.forgotten, satisfied(r, key), "%s: without Forget the expectations are deleted", who)
				assert.Equal(t, []string{"default/web"}, r.wakes(), who)
			}
		})
	}
}

func TestEventsSettlesBeforeItWakes(t *testing.T) {
	t.Parallel()
	t.Run("V2 V12 who is woken finds the event settled", func(t *testing.T) {
		t.Parallel()
		r, rs := newEventRig(), ownerNamed("web", web)
		key := expectations.KeyOf(rs)
		wake := func(types.NamespacedName, time.Duration) {
			assert.True(t, satisfied(r, key))
		}
		r.record().Set(key, expectations.Changes{Creations: 1})
		require.NoError(t, r.start().ChildAdded(podtest.Pod("web-0", ownedBy("web")), wake))
		r.record().Set(key, expectations.Changes{Deleting: []types.UID{"uid-web-0"}})
		require.NoError(t, r.start().ChildDeleted(podtest.Pod("web-0", ownedBy("web")), wake))
		r.record().Set(key, expectations.Changes{Deleting: []types.UID{"uid-web-0"}})
		require.NoError(t, r.start().ChildDeleted(podtest.Pod("web-0"), wake))
		assert.Empty(t, r.woken, "the queue of the call takes the place of New's")
	})
}

func TestEventsUnresolvedOwner(t *testing.T) {
	t.Parallel()
	rs := ownerNamed("web", web)
	key := expectations.KeyOf(rs)
	t.Run("V3 a creation is settled for an owner that cannot be resolved", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver()
		r.record().Set(key, expectations.Changes{Creations: 2})
		require.NoError(t, added(ownedBy("web"))(r.start()))
		assert.Equal(t, expectations.Changes{Creations: 1}, r.outstanding(rs))
		assert.Empty(t, r.wakes())
	})
	t.Run("V12 a deletion is settled for an owner that cannot be resolved", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver()
		r.record().Set(key, expectations.Changes{Deleting: []types.UID{"uid-web-0", "uid-web-1"}})
		require.NoError(t, deleted(ownedBy("web"))(r.start()))
		require.NoError(t, deleted(podtest.UID("uid-web-1"))(r.start()))
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
		require.NoError(t, deleted(ownedBy("web"))(r.start()))
		assert.Equal(t, expectations.Changes{}, r.outstanding(rs))
		assert.Equal(t, expectations.Changes{}, r.outstanding(again))
		assert.Equal(t, []string{"default/web"}, r.wakes())
	})
	t.Run("W12 what a pass of the old owner left behind does not stall the new one", func(t *testing.T) {
		t.Parallel()
		again := ownerNamed("web", web)
		again.UID = "uid-of-web-again"
		r := eventRigOver(again)
		require.NoError(t, r.start().OwnerUpdated(rs, again))
		r.record().Set(key, expectations.Changes{Creations: 3})
		assert.True(t, satisfied(r, expectations.KeyOf(again)))
		r.record().Set(expectations.KeyOf(again), expectations.Changes{Creations: 3})
		require.NoError(t, added(ownedBy("web"))(r.start()))
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
		require.NoError(t, added(ownedBy("web"))(r.start()))
		assert.Equal(t, expectations.Changes{Creations: 1}, r.outstanding(global))
		assert.Equal(t, []string{"/web"}, r.wakes())
	})
}

func TestEventsWithoutUIDs(t *testing.T) {
	t.Parallel()
	rs := ownerNamed("web", web)
	rs.UID = ""
	unmarked := func(name string, options ...podtest.Option) *corev1.Pod {
		return podtest.Pod(name, append(options, podtest.UID(""))...)
	}
	key := expectations.KeyOf(rs)
	t.Run("V3 the group decides too", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver(rs)
		require.NoError(t, r.start().ChildAdded(unmarked("a", podtest.OwnedBy(rs, "example.com/v1", "ReplicaSet"))))
		assert.Empty(t, r.woken)
		require.NoError(t, r.start().ChildAdded(unmarked("a", podtest.OwnedBy(rs, "apps/v1", "ReplicaSet"))))
		assert.Equal(t, []string{"default/web"}, r.woken)
	})
	t.Run("V6 updates without resourceVersions are no resyncs", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver(rs)
		p := unmarked("a", owned(rs))
		require.NoError(t, r.start().ChildUpdated(p, p.DeepCopy()))
		assert.Equal(t, []string{"default/web"}, r.woken)
	})
	t.Run("V12 deletions are settled by name", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver(rs)
		a, b := unmarked("a", owned(rs)), unmarked("b", owned(rs))
		r.record().Set(key, expectations.Changes{Deleting: []types.UID{"default/a", "default/b"}})
		require.NoError(t, r.start().ChildDeleted(a))
		require.NoError(t, r.start().ChildDeleted(a))
		state, _ := r.record().State(key)
		assert.Equal(t, expectations.Waiting, state, "b is still there")
		require.NoError(t, r.start().ChildDeleted(b))
		state, _ = r.record().State(key)
		assert.Equal(t, expectations.Satisfied, state)
	})
}

func TestEventsCreationsByName(t *testing.T) {
	t.Parallel()
	t.Run("V2 W8 only the pods that were created settle creations by name", func(t *testing.T) {
		t.Parallel()
		r, rs := newEventRig(), ownerNamed("web", web)
		r.record().Set(expectations.KeyOf(rs), expectations.Changes{Creating: []string{"web-0", "web-1"}})
		require.NoError(t, r.start().ChildAdded(podtest.Pod("web-9", ownedBy("web"))))
		assert.Equal(t, []string{"web-0", "web-1"}, r.outstanding(rs).Creating)
		require.NoError(t, r.start().ChildAdded(podtest.Pod("web-0", ownedBy("web"))))
		require.NoError(t, r.start().ChildAdded(podtest.Pod("web-0", ownedBy("web"))))
		assert.Equal(t, []string{"web-1"}, r.outstanding(rs).Creating)
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
		for _, event := range []func(handlers) error{
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
	t.Run("M6 the spec of an owner that is gone is not kept", func(t *testing.T) {
		t.Parallel()
		r := newEventRig()
		r.list[0].ResourceVersion = "1"
		ready := updated(with(ownedBy("web"), podtest.NotReady), with(ownedBy("web")))
		require.NoError(t, ready(r.start()))
		all := r.list
		r.list = nil
		require.NoError(t, deleted(ownedBy("web"))(r.start()))
		r.list = all
		require.NoError(t, ready(r.start()))
		assert.Equal(t, 2, r.specs, "its deletion was never told: the last child that went was the sign")
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

// everyMethod calls each method with an object, as the only one and as either
// of two.
func everyMethod(c handlers, obj any) map[string]error {
	pod, owner := podtest.Pod("web-0"), ownerNamed("web", web)
	return map[string]error{
		"ChildAdded":       c.ChildAdded(obj),
		"ChildUpdated old": c.ChildUpdated(obj, pod),
		"ChildUpdated new": c.ChildUpdated(pod, obj),
		"ChildDeleted":     c.ChildDeleted(obj),
		"OwnerAdded":       c.OwnerAdded(obj),
		"OwnerUpdated old": c.OwnerUpdated(obj, owner),
		"OwnerUpdated new": c.OwnerUpdated(owner, obj),
		"OwnerDeleted":     c.OwnerDeleted(obj),
	}
}

func TestEventsRefusesOtherObjects(t *testing.T) {
	t.Parallel()
	pod := podtest.Pod("web-0", ownedBy("web"))
	var noTombstone *deletedFinalStateUnknown
	for _, tc := range []struct {
		name string
		obj  any
		want string
	}{
		{"V13 nothing", nil, "<nil> is no "},
		{"V13 a string", "default/web-0", "string is no "},
		{"V13 a nil pod", (*corev1.Pod)(nil), " is n"},
		{"V13 a nil owner", (*appsv1.ReplicaSet)(nil), " is n"},
		{"V13 a pod by value", *pod, "v1.Pod is no "},
		{"V13 a nil tombstone", noTombstone, "is no "},
		{"V13 a tombstone of nothing", deletedFinalStateUnknown{Key: "default/web-0"}, ""},
		{"V13 a tombstone of a string", deletedFinalStateUnknown{"default/web-0", "x"}, ""},
		{"V13 a tombstone of a nil pod", deletedFinalStateUnknown{"default/web-0", (*corev1.Pod)(nil)}, ""},
		{"V13 a tombstone in a tombstone", deletedFinalStateUnknown{"a", deletedFinalStateUnknown{"b", pod}}, ""},
		{"V13 a struct of more than a tombstone", struct {
			Key   string
			Obj   any
			Extra int
		}{Obj: pod}, ""},
		{"V13 a struct whose key is no string", struct{ Key, Obj any }{Obj: pod}, ""},
	} {
		t.Run(tc.name+" is an error", func(t *testing.T) {
			t.Parallel()
			r := newEventRig()
			for _, made := range makers {
				h, err := made(r)
				require.NoError(t, err)
				for method, err := range everyMethod(h, tc.obj) {
					require.ErrorContains(t, err, tc.want, method)
					require.ErrorContains(t, err, "controller: ", method)
				}
			}
			assert.Empty(t, r.wakes(), "the event is ignored")
		})
	}
	t.Run("V13 a tombstone comes with deletions only", func(t *testing.T) {
		t.Parallel()
		r, grave := newEventRig(), deletedFinalStateUnknown{"default/web-0", pod}
		require.Error(t, r.start().ChildAdded(grave))
		require.Error(t, r.start().ChildUpdated(pod, grave))
		require.Error(t, r.start().OwnerAdded(grave))
	})
	t.Run("V13 the error names the key of the tombstone", func(t *testing.T) {
		t.Parallel()
		err := newEventRig().start().ChildDeleted(deletedFinalStateUnknown{"default/web-0", "x"})
		require.EqualError(t, err, `controller: string is no child: want *v1.Pod, in the tombstone of "default/web-0"`)
	})
	t.Run("V13 an owner is not a pod", func(t *testing.T) {
		t.Parallel()
		require.EqualError(t, newEventRig().start().ChildAdded(ownerNamed("web", web)), "controller: *v1.ReplicaSet is no child: want *v1.Pod")
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

func TestEventsWhileTheCacheFails(t *testing.T) {
	t.Parallel()
	r := newEventRig()
	r.owners = func() ([]*appsv1.ReplicaSet, error) { return nil, errors.New("no cache") }
	key := expectations.KeyOf(ownerNamed("web", web))
	r.record().Set(key, expectations.Changes{Creations: 1})
	require.NoError(t, added(ownedBy("web"))(r.start()))
	require.NoError(t, added()(r.start()))
	assert.Empty(t, r.wakes())
	assert.True(t, satisfied(r, key), "what was seen is settled all the same")
}

// A Kind that is not that of the owners would let nobody be woken.
func TestEventsKind(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]func(*eventRig, *corev1.Pod) error{
		"ChildAdded":      func(r *eventRig, p *corev1.Pod) error { return r.start().ChildAdded(p) },
		"ChildUpdated":    func(r *eventRig, p *corev1.Pod) error { return r.start().ChildUpdated(podtest.Pod("web-0"), p) },
		"ChildUpdated of": func(r *eventRig, p *corev1.Pod) error { return r.start().ChildUpdated(p, podtest.Pod("web-0")) },
		"ChildDeleted":    func(r *eventRig, p *corev1.Pod) error { return r.start().ChildDeleted(p) },
	} {
		t.Run("V3 "+name+" a pod whose owner is known by its UID, but is of another kind, is an error that names it", func(t *testing.T) {
			t.Parallel()
			r := newEventRig()
			r.kind.Owner.Kind = "RepilcaSet"
			err := event(r, podtest.Pod("web-0", ownedBy("web"), version("1")))
			require.EqualError(t, err, `controller: "default/web-0" is controlled by ReplicaSet "web", which is one of the owners, but their kind is RepilcaSet`)
			assert.Empty(t, r.wakes())
		})
	}
}

// podsOfEveryKind are pods of one UID that differ in all that a Controller looks at.
func podsOfEveryKind() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, labels := range []map[string]string{nil, {}, web, api} {
		for _, owner := range []podtest.Option{
			func(*corev1.Pod) {},
			ownedBy("web"),
			ownedBy("api"),
			reference(func(ref *metav1.OwnerReference) { ref.Kind, ref.UID = "DaemonSet", "uid-of-daemon-set" }),
			reference(func(ref *metav1.OwnerReference) { ref.UID = "uid-of-older-web" }),
		} {
			for _, state := range []podtest.Option{func(*corev1.Pod) {}, podtest.NotReady, podtest.Deleting} {
				v := version(strconv.Itoa(len(pods)))
				pods = append(pods, podtest.Pod("web-0", podtest.Labels(labels), owner, state, v))
			}
		}
	}
	return pods
}

// slowWakes says of one owner, by the rules as they are written down, whether an
// update wakes it, and when.
func slowWakes(rs *appsv1.ReplicaSet, was, now *corev1.Pod) []string {
	key := rs.Namespace + "/" + rs.Name
	owns := func(p *corev1.Pod) bool {
		ref := metav1.GetControllerOf(p)
		return ref != nil && ref.Kind == "ReplicaSet" && ref.Name == rs.Name && ref.UID == rs.UID
	}
	ready := func(p *corev1.Pod) bool { return p.Status.Conditions[0].Status == corev1.ConditionTrue }
	selects := len(now.Labels) > 0 && now.Labels["app"] == rs.Spec.Selector.MatchLabels["app"]
	relabeled := was.Labels["app"] != now.Labels["app"]
	orphaned := metav1.GetControllerOf(was) != nil && metav1.GetControllerOf(now) == nil
	orphan := metav1.GetControllerOf(now) == nil
	switch {
	case was.ResourceVersion == now.ResourceVersion:
		return nil
	case now.DeletionTimestamp != nil && (owns(now) || relabeled && owns(was)):
		return []string{key}
	case now.DeletionTimestamp != nil:
		return nil
	case owns(now) && !ready(was) && ready(now) && rs.Spec.MinReadySeconds > 0:
		return []string{key, key + " in 10s"}
	case owns(now), owns(was), orphan && selects && (relabeled || orphaned):
		return []string{key}
	}
	return nil
}

func TestEventsAgreesWithSlowTwin(t *testing.T) {
	t.Parallel()
	t.Run("V6 V7 V8 V9 V10 M6 W57 every update wakes whom the rules say", func(t *testing.T) {
		t.Parallel()
		pods := podsOfEveryKind()
		for _, was := range pods {
			for _, now := range pods {
				r := newEventRig()
				var want []string
				for _, rs := range r.list[:3] {
					want = append(want, slowWakes(rs, was, now)...)
				}
				slices.Sort(want)
				require.NoError(t, r.start().ChildUpdated(was, now))
				require.Equal(t, want, r.wakes(), "%+v\n->\n%+v", was.ObjectMeta, now.ObjectMeta)
			}
		}
	})
}

// TestEventsRepeatedEvents plays a random stream of events in which each event
// comes one to three times, later ones in between.
func TestEventsRepeatedEvents(t *testing.T) {
	t.Parallel()
	t.Run("V12 E20 an event that is repeated settles a deletion once", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(100) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			r, rs := newEventRig(), ownerNamed("web", web)
			var uids []types.UID
			expected := map[types.UID]bool{}
			for i := range 20 {
				uid := types.UID(fmt.Sprintf("uid-%d", i))
				uids, expected[uid] = append(uids, uid), true
			}
			r.record().Set(expectations.KeyOf(rs), expectations.Changes{Deleting: uids[:15]})
			for _, uid := range uids[15:] {
				delete(expected, uid)
			}
			for range 60 {
				uid := uids[rnd.IntN(len(uids))]
				routeDeletion(t, r, rnd, uid)
				delete(expected, uid)
				require.Equal(t, expectations.Changes{Deleting: slices.Sorted(maps.Keys(expected))}, r.outstanding(rs))
			}
		}
	})
}

// routeDeletion tells of the deletion of one pod in one of the ways in which it
// may be seen, up to three times.
func routeDeletion(t *testing.T, r *eventRig, rnd *rand.Rand, uid types.UID) {
	t.Helper()
	owner := []podtest.Option{ownedBy("web"), ownedBy("api"), func(*corev1.Pod) {}}[rnd.IntN(3)]
	was := podtest.Pod(string(uid), podtest.UID(uid), ownedBy("web"), version("1"))
	now := podtest.Pod(string(uid), podtest.UID(uid), owner, podtest.Deleting, version("2"))
	ways := []func() error{
		func() error { return r.start().ChildAdded(now) },
		func() error { return r.start().ChildUpdated(was, now) },
		func() error { return r.start().ChildDeleted(now) },
		func() error { return r.start().ChildDeleted(deletedFinalStateUnknown{Obj: was}) },
	}
	for range 1 + rnd.IntN(3) {
		require.NoError(t, ways[rnd.IntN(len(ways))]())
	}
}

func TestEventsConcurrentEvents(t *testing.T) {
	t.Parallel()
	t.Run("E11 V2 V12 events from many goroutines settle exactly what they tell of", func(t *testing.T) {
		t.Parallel()
		const creations, deletions = 200, 200
		r, rs, other := newEventRig(), ownerNamed("web", web), ownerNamed("api", api)
		r.record().Set(expectations.KeyOf(rs), expectations.Changes{Creations: creations + 1})
		var uids []types.UID
		for i := range deletions {
			uids = append(uids, types.UID(fmt.Sprintf("uid-api-%d", i)))
		}
		r.record().Set(expectations.KeyOf(other), expectations.Changes{Deleting: append(uids, "uid-of-the-last")})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range creations {
				assert.NoError(t, r.start().ChildAdded(podtest.Pod(fmt.Sprintf("web-%d", i), ownedBy("web"))))
			}
		})
		for range 2 {
			wg.Go(func() {
				for _, uid := range uids {
					assert.NoError(t, r.start().ChildDeleted(podtest.Pod("api", podtest.UID(uid), ownedBy("api"))))
				}
			})
		}
		wg.Go(func() {
			canary := ownerNamed("canary", web)
			for range 100 {
				assert.NoError(t, r.start().OwnerUpdated(canary, canary))
				assert.NoError(t, r.start().OwnerDeleted(canary))
			}
		})
		wg.Wait()
		assert.Equal(t, expectations.Changes{Creations: 1}, r.outstanding(rs))
		assert.Equal(t, expectations.Changes{Deleting: []types.UID{"uid-of-the-last"}}, r.outstanding(other))
	})
}

func TestEventsLeavesObjectsAlone(t *testing.T) {
	t.Parallel()
	t.Run("Y14 events change no pod and no owner", func(t *testing.T) {
		t.Parallel()
		pods := podsOfEveryKind()
		before := clones(pods)
		r := newEventRig()
		for i := range pods {
			require.NoError(t, r.start().ChildAdded(pods[i]))
			require.NoError(t, r.start().ChildUpdated(pods[i], pods[len(pods)-1-i]))
			require.NoError(t, r.start().ChildDeleted(pods[i]))
		}
		assert.Equal(t, before, pods)
		assert.Equal(t, newEventRig().list, r.list)
	})
}

//nolint:paralleltest // AllocsPerRun counts what other goroutines allocate too.
func TestEventsAllocatesNothing(t *testing.T) {
	r, pod := stillEvents(t), podtest.Pod("web-0", ownedBy("web"), version("1"))
	ready := podtest.Pod("web-0", ownedBy("web"), version("2"))
	for name, event := range map[string]func() error{
		"ChildAdded":   func() error { return r.ChildAdded(pod) },
		"ChildUpdated": func() error { return r.ChildUpdated(pod, ready) },
		"ChildDeleted": func() error { return r.ChildDeleted(pod) },
	} {
		t.Run(name+" of a pod with an owner", func(t *testing.T) {
			assert.Zero(t, testing.AllocsPerRun(100, func() { _ = event() }))
		})
	}
}
