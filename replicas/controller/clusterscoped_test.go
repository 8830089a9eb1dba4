// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// globalRig returns a rig of the pool blue, which is in no namespace. The function New in the rig's Spec puts each
// worker in the next of the given namespaces, and starts again after the last one.
func globalRig(workers int32, namespaces ...string) *rig[*pool, *worker] {
	owner := &pool{ObjectMeta: metav1.ObjectMeta{Name: "blue", UID: "uid-of-blue", Generation: 1}, Workers: workers}
	r, made := rigOf(pools(), owner), 0
	r.kind.ClusterScoped = true
	spec := r.kind.Spec
	r.kind.Spec = func(p *pool) (replicas.Spec[*worker], error) {
		s, err := spec(p)
		s.New = func(string) (*worker, error) {
			made++
			return blueWorker(namespaces[(made-1)%len(namespaces)], "", nil), nil
		}
		return s, err
	}
	return r
}

func blueWorker(namespace, name string, owner *pool) *worker {
	w := &worker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"pool": "blue"}}}
	if owner != nil {
		w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, pools().Owner)}
	}
	return w
}

func TestOwnersInNoNamespace(t *testing.T) {
	t.Parallel()
	t.Run("C7 their children are made where New says, and events find the owner", func(t *testing.T) {
		t.Parallel()
		r := globalRig(3, "a", "b")
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, []string{"create a/blue-bbbbb", "create a/blue-bbbbd", "create b/blue-bbbbc"}, r.calls)
		for _, w := range pass.Created {
			require.NoError(t, r.start().ChildAdded(w))
		}
		assert.Equal(t, []string{"/blue"}, r.wakes())

		r.owner.Workers = 1
		created := pass.Created
		pass, err = r.pass(t, 1, created...)
		require.NoError(t, err)
		require.Len(t, pass.Deleted, 2)
		for _, w := range pass.Deleted {
			require.NoError(t, r.start().ChildDeleted(w))
		}
		assert.Equal(t, []string{"/blue"}, r.wakes())
	})
	t.Run("C7 V3 orphans of any namespace wake them and are adopted", func(t *testing.T) {
		t.Parallel()
		r := globalRig(1, "a")
		orphan := blueWorker("elsewhere", "orphan", nil)
		orphan.UID = "uid-of-orphan"
		require.NoError(t, r.start().ChildAdded(orphan))
		assert.Equal(t, []string{"/blue"}, r.wakes())
		pass, err := r.pass(t, 0, orphan)
		require.NoError(t, err)
		assert.Equal(t, []string{"orphan"}, names(pass.Adopted))
	})
	t.Run("W11 a creation whose answer is lost is looked for, and sent again, where it was sent", func(t *testing.T) {
		t.Parallel()
		r := globalRig(1, "a", "b")
		r.create = func(int) error { return timeout() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		assert.Equal(t, []string{"create a/blue-bbbbb", "get a/blue-bbbbb"}, r.calls)

		_, err = r.pass(t, 1)
		require.Error(t, err)
		assert.Equal(t, []string{"create a/blue-bbbbb", "get a/blue-bbbbb"}, r.calls, "New says b now, but the first one may still land")

		r.owner.Workers = 0
		_, err = r.pass(t, 2)
		require.NoError(t, err)
		assert.Equal(t, []string{"get a/blue-bbbbb"}, r.calls, "it is not wanted any more")
	})
	t.Run("W11 of more than three the list of all namespaces tells, by namespace and name", func(t *testing.T) {
		t.Parallel()
		r := globalRig(16, "a")
		r.create = func(i int) error {
			if i < 3 { // two batches succeed, so slow start sends a third one
				return nil
			}
			return timeout()
		}
		r.get = func(string) (*worker, error) { return nil, notFound("") }
		r.live = func() ([]*worker, error) {
			var there []*worker
			for _, name := range []string{"blue-bbbbe", "blue-bbbbf", "blue-bbbbg", "blue-bbbbh"} {
				there = append(there, blueWorker("b", name, r.owner))
			}
			return there, nil
		}
		pass, err := r.pass(t, 0)
		require.Error(t, err)
		assert.Contains(t, r.calls, "list  pool=blue")
		assert.Len(t, pass.Created, 3, "those of that name in namespace b are others")
		assert.Equal(t, 4, pass.InFlight)
	})
	t.Run("a panic of the client is told without its stack", func(t *testing.T) {
		t.Parallel()
		r := globalRig(1, "a")
		r.create = func(int) error { panic("bug in the client") }
		assert.Panics(t, func() { _, _ = r.pass(t, 0) })
		assert.Equal(t, []string{`Warning Panicked controller: Pool "blue": a function of the Kind or the client panicked, and the log has the stack: bug in the client`}, r.events)
	})
	t.Run("W25 a delete without an answer is looked for in the child's namespace", func(t *testing.T) {
		t.Parallel()
		r := globalRig(0)
		r.remove = func(*worker, metav1.DeleteOptions) error { return timeout() }
		w := blueWorker("a", "w", r.owner)
		w.UID = "uid-of-w"
		pass, err := r.pass(t, 0, w)
		require.Error(t, err)
		assert.Equal(t, []string{"get a/w"}, r.callsOf("get"))
		assert.Empty(t, pass.Deleted)
	})
	t.Run("an old view is refreshed by a list of all namespaces", func(t *testing.T) {
		t.Parallel()
		r := globalRig(1, "a")
		known := r.known()
		require.NoError(t, known.Created(known.Start(), blueWorker("b", "blue-lost", r.owner), r.now))
		r.live = func() ([]*worker, error) { return []*worker{blueWorker("b", "blue-lost", r.owner)}, nil }
		pass, err := r.pass(t, 301)
		require.NoError(t, err)
		assert.Equal(t, []string{"list  pool=blue"}, r.calls)
		assert.Len(t, pass.Active, 1)
	})
	for name, tt := range map[string]struct {
		refusal func() error
		created int
	}{
		"a full quota": {quotaFull, 20}, "a namespace that goes": {namespaceTerminating, 20},
		"a policy":      {func() error { return forbidden("blue-x", "policy") }, 20},
		"a Retry-After": {func() error { return busy(300) }, 19}, // one creation may still take effect, and counts
	} {
		t.Run("a namespace that refuses children, as by "+name+", stops no creations in others", func(t *testing.T) {
			t.Parallel()
			r := globalRig(20, "b", "a")
			r.send = func(w *worker) {
				r.create = func(int) error {
					if w.Namespace == "b" {
						return tt.refusal()
					}
					return nil
				}
			}
			var there []*worker
			refused := 0
			for at := range 60 {
				pass, err := r.pass(t, at, there...)
				r.settle()
				there = append(there, pass.Created...)
				refused += len(r.callsOf("create b/"))
				if len(there) < 20 && err == nil {
					assert.Positive(t, pass.RequeueAfter, "it comes back")
				}
			}
			assert.Len(t, there, tt.created)
			for _, w := range there {
				assert.Equal(t, "a", w.Namespace)
			}
			assert.Positive(t, refused)
			if name != "a policy" { // after this refusal, only the rate limiter delays creations, and the test has none
				assert.Less(t, refused, 10)
			}
		})
	}
	t.Run("children that are not made as they were sent hold their namespace alone", func(t *testing.T) {
		t.Parallel()
		r := globalRig(4, "a", "b")
		r.mutate = func(w *worker) {
			if w.Namespace == "b" {
				w.Labels = nil
			}
		}
		pass, err := r.pass(t, 0)
		require.ErrorContains(t, err, "does not belong to the owner")
		require.Len(t, pass.Created, 2)
		assert.Len(t, r.callsOf("create b/"), 1)
		r.settle()
		pass, err = r.passAt(t, 500*time.Millisecond, pass.Created...)
		require.NoError(t, err)
		assert.True(t, pass.HeldBack())
		assert.Len(t, r.callsOf("create a/"), 1)
		assert.Empty(t, r.callsOf("create b/"))
		assert.Equal(t, 500*time.Millisecond, pass.RequeueAfter)
		assert.Equal(t, 1, pass.Scale.Create)
	})
	t.Run("a hold for a full quota ends when a child of that namespace is gone", func(t *testing.T) {
		t.Parallel()
		r := globalRig(4, "b")
		r.create = func(int) error { return quotaFull() }
		inA, inB := blueWorker("a", "in-a", r.owner), blueWorker("b", "in-b", r.owner)
		inA.UID, inB.UID = "a", "b"
		_, err := r.pass(t, 0, inA, inB)
		require.Error(t, err)
		_, err = r.passAt(t, 100*time.Millisecond, inB)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		_, err = r.passAt(t, 200*time.Millisecond, inA)
		require.Error(t, err)
		assert.Len(t, r.callsOf("create b/"), 1)
	})
	t.Run("an owner that is not as its Kind says is an error that names the field", func(t *testing.T) {
		t.Parallel()
		r := globalRig(1, "a")
		r.kind.ClusterScoped = false
		_, err := r.pass(t, 0)
		require.EqualError(t, err, `controller: Pool "blue": the owner is in no namespace, but Kind.ClusterScoped is false`)
		assert.Empty(t, r.calls)
		namespaced := newRig(1)
		namespaced.kind.ClusterScoped = true
		_, err = namespaced.pass(t, 0)
		require.EqualError(t, err, `controller: ReplicaSet "default/web": the owner is in a namespace, but Kind.ClusterScoped is true`)
		assert.Empty(t, namespaced.calls)
	})
	t.Run("a pod for which New names no namespace is an error that says so", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.kind.ClusterScoped, r.owner.Namespace = true, ""
		_, err := r.pass(t, 0)
		require.ErrorContains(t, err, `ReplicaSet "web": new child 0: it has no namespace, and neither has its owner: New must set one`)
		assert.Empty(t, r.calls)
	})
}

// Anyone who may create workers in some namespace can make a second child of a slot there. The gate NameTaken names
// it, and the Controller leaves this slot alone, and no other.
func TestASecondChildOfASlotInAnotherNamespace(t *testing.T) {
	t.Parallel()
	rigWith := func(workers int32) (*rig[*pool, *worker], func(string, string) *worker) {
		r := globalRig(workers, "a")
		spec := r.kind.Spec
		r.kind.Spec = func(p *pool) (replicas.Spec[*worker], error) {
			s, err := spec(p)
			s.Slots = replicas.Ordinals(p.Name)
			s.New = func(string) (*worker, error) { return blueWorker("a", "", nil), nil }
			return s, err
		}
		return r, func(namespace, name string) *worker {
			w := blueWorker(namespace, name, r.owner)
			w.UID = types.UID(namespace + name)
			return w
		}
	}
	r, child := rigWith(3)
	second := child("b", "blue-1")
	second.CreationTimestamp = metav1.NewTime(podtest.Now)
	pass, err := r.pass(t, 0, second, child("a", "blue-0"), child("a", "blue-1"))
	require.NoError(t, err)
	assert.Equal(t, []string{"create a/blue-2"}, r.calls)
	require.Len(t, pass.Gates, 1)
	assert.Equal(t, `NameTaken of b/blue-1 stops creations, deletions, updates since 2026-05-04T12:00:00Z: another object, or a child that has ended, has the name of a slot`, pass.Gates[0].String())

	made := pass.Created[0]
	r.settle()
	r.owner.Workers = 2
	pass, err = r.pass(t, 1, second, child("a", "blue-0"), child("a", "blue-1"), made)
	require.NoError(t, err)
	assert.Equal(t, []string{"blue-2"}, names(pass.Deleted))
	assert.Len(t, pass.Gates, 1)

	r.settle()
	pass, err = r.pass(t, 2, child("a", "blue-0"), child("a", "blue-1"))
	require.NoError(t, err)
	assert.Empty(t, pass.Gates, "the second child is gone")
	assert.Empty(t, pass.Deleted)

	r, child = rigWith(1)
	_, err = r.pass(t, 0, second, child("a", "blue-0"), child("a", "blue-1"))
	require.NoError(t, err)
	assert.Len(t, r.callsOf("delete blue-1"), 2, "neither is wanted")
}

// If New returns a child without a namespace, the error says that New must set the namespace. Each client or
// server refuses such a child with its own error.
func TestAChildForWhichNewNamesNoNamespace(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{
		errors.New("an empty namespace may not be set during creation"),
		apierrors.NewMethodNotSupported(podResource, "create"),
		apierrors.NewNotFound(podResource, ""),
	} {
		r := globalRig(1, "")
		r.create = func(int) error { return answer }
		pass, err := r.pass(t, 0)
		require.ErrorContains(t, err, `Pool "blue" is in no namespace, and its workers are in namespaces: New must set the namespace of each: `+answer.Error())
		assert.Zero(t, pass.InFlight, "nothing was made")
		assert.Contains(t, r.events[0], "Warning FailedCreate Error creating: ")
		assert.Contains(t, r.events[0], "New must set the namespace of each")
	}
}

// If the admission plugin OwnerReferencesPermissionEnforcement rejects a creation or an adoption, the event names
// the missing right. The message of the plugin is in the constant why.
func TestTheRightThatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	const why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"
	const right = `: ` + why + ` (ReplicaSet "default/web": the right to update replicasets/finalizers in the group "apps" is missing, which blockOwnerDeletion of the children needs on this server)`
	r := newRig(1)
	r.create = func(int) error { return forbidden("web-x", why) }
	_, err := r.pass(t, 0)
	require.ErrorContains(t, err, right)
	assert.Equal(t, []string{`Warning FailedCreate Error creating: pods "web-x" is forbidden` + right}, r.events)
	r = newRig(1)
	r.patch = func(p *corev1.Pod) error { return forbidden(p.Name, why) }
	_, err = r.pass(t, 0, podtest.Pod("orphan"))
	require.ErrorContains(t, err, why)
	assert.Equal(t, []string{`Warning FailedAdopt Error adopting orphan: pods "orphan" is forbidden` + right}, r.events)
}

// Events and errors name the kind of the children.
func TestTheKindOfChildrenIsNamed(t *testing.T) {
	t.Parallel()
	r := globalRig(1, "a")
	pass, err := r.pass(t, 0)
	require.NoError(t, err)
	assert.Equal(t, []string{"Normal SuccessfulCreate Created worker: blue-bbbbb"}, r.events)
	r.owner.Workers = 0
	_, err = r.pass(t, 1, pass.Created...)
	require.NoError(t, err)
	assert.Equal(t, []string{"Normal SuccessfulDelete Deleted worker: blue-bbbbb"}, r.events)
	r = globalRig(1, "a")
	r.create = func(int) error { return forbidden("blue", "no") }
	_, err = r.pass(t, 0)
	require.ErrorContains(t, err, `"blue": creating workers: `)
	r = globalRig(0, "a")
	r.remove = func(*worker, metav1.DeleteOptions) error { return forbidden("blue", "no") }
	_, err = r.pass(t, 0, blueWorker("a", "blue-1", r.owner))
	require.ErrorContains(t, err, "unable to delete workers: ")
}
