// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/handlers"
)

var api = map[string]string{"app": "api"}

// deletedFinalStateUnknown has the fields of a tombstone, which client-go calls cache.DeletedFinalStateUnknown.
type deletedFinalStateUnknown struct {
	Key string
	Obj any
}

// An eventRig is a rig with several owners.
type eventRig struct {
	*podRig
	store expectations.Store[expectations.Key] // the records of a loop without a Controller
	list  []*appsv1.ReplicaSet
	specs int   // how often Spec was called
	fails error // the error that Spec returns
}

// newEventRig returns a rig with four owners. The owners web, canary and api are in namespace default. The owner
// api selects app=api, and all other owners select app=web. The fourth owner is web in namespace other. A pod of
// default/web must be ready for ten seconds to be available.
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
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		r.mu.Lock()
		r.specs++
		r.mu.Unlock()
		if r.fails != nil {
			return replicas.SpecOfPods{MinReadySeconds: 10}, r.fails
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

// record returns the Store in which a loop without a Controller records its creations and deletions.
func (r *eventRig) record() *expectations.Store[expectations.Key] { return &r.store }

// handlers returns the event handlers of a loop without a Controller.
func (r *eventRig) handlers() *handlers.Handlers {
	h, err := handlers.New(handlers.Config[*appsv1.ReplicaSet, *corev1.Pod]{
		Owner: r.kind.Owner, ClusterScoped: r.kind.ClusterScoped, Spec: r.kind.Spec, Owners: r, Store: r.record(), Enqueue: r.wake,
	})
	if err != nil {
		panic(err)
	}
	return h
}

// outstanding returns the creations and deletions that an owner still waits for.
func (r *eventRig) outstanding(owner metav1.Object) expectations.Changes {
	pending, _ := r.record().Get(expectations.KeyOf(owner))
	return pending.Changes
}

func satisfied(r *eventRig, key expectations.Key) bool {
	state, _ := r.record().State(key)
	return state == expectations.Satisfied
}

func ownedBy(name string) podtest.Option { return owned(ownerNamed(name, web)) }

// An event is a test case with one watch event. The test case lists how many of the awaited creations or deletions
// the event settles, and which owners it wakes. Before the event, web waits for three creations. If deleting is
// true, web waits for the deletions of web-0, web-1 and web-2 instead.
type event struct {
	name     string
	event    func(r eventHandlers) error
	deleting bool
	settled  int
	recorded bool // if true, only the Store shows one of the owners to wake, so run skips the Controller, which has no Store
	woken    []string
}

func (e event) run(t *testing.T) {
	t.Helper()
	for who, made := range makers {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			if who == inController && e.recorded {
				return
			}
			e.runAt(t, made)
		})
	}
}

// eventHandlers lists the event handlers that Controller and Handlers have in common.
type eventHandlers interface {
	ChildAdded(obj any, q ...handlers.Enqueue) error
	ChildUpdated(old, cur any, q ...handlers.Enqueue) error
	ChildDeleted(obj any, q ...handlers.Enqueue) error
	OwnerAdded(obj any, q ...handlers.Enqueue) error
	OwnerUpdated(old, cur any, q ...handlers.Enqueue) error
	OwnerDeleted(obj any, q ...handlers.Enqueue) error
}

const inController = "in a Controller"

// makers contains the functions that return the event handlers of a rig.
var makers = map[string]func(*eventRig) (eventHandlers, error){
	inController:             func(r *eventRig) (eventHandlers, error) { return r.start(), nil },
	"in a loop of one's own": func(r *eventRig) (eventHandlers, error) { return r.handlers(), nil },
}

func (e event) runAt(t *testing.T, made func(*eventRig) (eventHandlers, error)) {
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
	switch left := r.outstanding(rs); {
	case h == eventHandlers(r.controller): // a Controller does not use the Store
	case !e.deleting:
		assert.Equal(t, 3-e.settled, left.Creations, "outstanding creations")
	default:
		assert.Len(t, left.Deleting, 3-e.settled, "outstanding deletions")
	}
	assert.Equal(t, e.woken, r.wakes(), "woken")
}

func added(options ...podtest.Option) func(eventHandlers) error {
	return func(r eventHandlers) error { return r.ChildAdded(podtest.Pod("web-0", options...)) }
}

// updated returns a function that sends an update event of web-0, with this old and this new version.
func updated(old, cur []podtest.Option) func(eventHandlers) error {
	was := podtest.Pod("web-0", append([]podtest.Option{version("1")}, old...)...)
	now := podtest.Pod("web-0", append([]podtest.Option{version("2")}, cur...)...)
	return func(r eventHandlers) error { return r.ChildUpdated(was, now) }
}

func deleted(options ...podtest.Option) func(eventHandlers) error {
	return func(r eventHandlers) error { return r.ChildDeleted(podtest.Pod("web-0", options...)) }
}

// with returns the options of one pod as a list.
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
		require.NoError(t, r.handlers().ChildAdded(podtest.Pod("web-0", ownedBy("web")), wake))
		r.record().Set(key, expectations.Changes{Deleting: []types.UID{"uid-web-0"}})
		require.NoError(t, r.handlers().ChildDeleted(podtest.Pod("web-0", ownedBy("web")), wake))
		r.record().Set(key, expectations.Changes{Deleting: []types.UID{"uid-web-0"}})
		require.NoError(t, r.handlers().ChildDeleted(podtest.Pod("web-0"), wake))
		assert.Empty(t, r.woken, "the queue of the call takes the place of New's")
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
		require.NoError(t, r.handlers().ChildDeleted(a))
		require.NoError(t, r.handlers().ChildDeleted(a))
		state, _ := r.record().State(key)
		assert.Equal(t, expectations.Waiting, state, "b is still there")
		require.NoError(t, r.handlers().ChildDeleted(b))
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
		require.NoError(t, r.handlers().ChildAdded(podtest.Pod("web-9", ownedBy("web"))))
		assert.Equal(t, []string{"web-0", "web-1"}, r.outstanding(rs).Creating)
		require.NoError(t, r.handlers().ChildAdded(podtest.Pod("web-0", ownedBy("web"))))
		require.NoError(t, r.handlers().ChildAdded(podtest.Pod("web-0", ownedBy("web"))))
		assert.Equal(t, []string{"web-1"}, r.outstanding(rs).Creating)
	})
}

// everyMethod calls each event handler with obj. Each handler with two arguments is called twice, with obj as the
// old and then as the new object.
func everyMethod(c eventHandlers, obj any) map[string]error {
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
		{"V13 nothing", nil, "got <nil>"},
		{"V13 a string", "default/web-0", "got string"},
		{"V13 a nil pod", (*corev1.Pod)(nil), ""},
		{"V13 a nil owner", (*appsv1.ReplicaSet)(nil), ""},
		{"V13 a pod by value", *pod, "got v1.Pod"},
		{"V13 a nil tombstone", noTombstone, "got *"},
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
					require.ErrorContains(t, err, "handlers: ", method)
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
		require.EqualError(t, err, `handlers: child: want *v1.Pod, got string, in the tombstone of "default/web-0"`)
	})
	t.Run("V13 an owner is not a pod", func(t *testing.T) {
		t.Parallel()
		require.EqualError(t, newEventRig().start().ChildAdded(ownerNamed("web", web)), "handlers: child: want *v1.Pod, got *v1.ReplicaSet")
	})
}

func TestEventsWhileTheCacheFails(t *testing.T) {
	t.Parallel()
	r := newEventRig()
	r.owners = func() ([]*appsv1.ReplicaSet, error) { return nil, errors.New("no cache") }
	key := expectations.KeyOf(ownerNamed("web", web))
	r.record().Set(key, expectations.Changes{Creations: 1})
	require.NoError(t, added(ownedBy("web"))(r.handlers()))
	require.NoError(t, added()(r.handlers()))
	assert.Empty(t, r.wakes())
	assert.True(t, satisfied(r, key), "what was seen is settled all the same")
}

// If Kind.Owner names the wrong kind, the event handlers return an error for each event of an owner's pod. Without
// this error, no owner would be woken, and the mistake would stay hidden.
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
			pod := podtest.Pod("web-0", ownedBy("web"), version("1"))
			pod.OwnerReferences[0].Kind = "RepilcaSet"
			err := event(r, pod)
			require.EqualError(t, err, `handlers: "default/web-0" is controlled by RepilcaSet "web", which has the UID of an owner, but the owners' kind is ReplicaSet`)
			assert.Empty(t, r.wakes())
		})
	}
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
