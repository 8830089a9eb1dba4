// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// A readyRig is a rig of the pool blue, which wants two workers. A worker is available if it has been idle for
// minReady seconds.
type readyRig struct {
	*rig[*pool, *worker]
	minReady int32
	workers  []*worker
	new      func(string) (*worker, error)
}

func newReadyRig() *readyRig {
	owner := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue", UID: "uid-of-blue", Generation: 1}, Workers: 2}
	kind := pools()
	r := &readyRig{rig: rigOf(kind, owner), minReady: 10}
	r.kind.Spec = func(p *pool) (replicas.Spec[*worker], error) {
		s, err := kind.Spec(p)
		s.MinReadySeconds = r.minReady
		if r.new != nil {
			s.New = r.new
		}
		return s, err
	}
	for _, name := range []string{"a", "b"} {
		w := &worker{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"pool": "blue"}}, Busy: true}
		w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind.Owner)}
		r.workers = append(r.workers, w)
	}
	return r
}

// becomes makes a worker busy or idle, and sends the event. The change happens the given number of seconds after
// podtest.Now.
func (r *readyRig) becomes(t *testing.T, i, seconds int, busy bool) {
	t.Helper()
	r.now = podtest.Now.Add(time.Duration(seconds) * time.Second)
	was := r.workers[i]
	r.workers[i] = clone(was)
	r.workers[i].Busy = busy
	r.workers[i].ResourceVersion += "x"
	require.NoError(t, r.start().ChildUpdated(was, r.workers[i]))
}

// next makes a pass the given number of seconds after podtest.Now. It returns the delay, in seconds, after which
// this pass requests another one.
func (r *readyRig) next(t *testing.T, seconds int) float64 {
	t.Helper()
	pass, err := r.pass(t, seconds, r.workers...)
	require.NoError(t, err)
	if pass.Status != nil {
		r.owner = clone(pass.Status)
	}
	return pass.RequeueAfter.Seconds()
}

func TestAvailabilityOfChildrenThatAreNoPods(t *testing.T) {
	t.Parallel()
	t.Run("M1 M5 each that becomes ready is looked at, though a queue keeps only the earliest delay", func(t *testing.T) {
		t.Parallel()
		r := newReadyRig()
		assert.Zero(t, r.next(t, 0))
		r.becomes(t, 0, 1, false)
		assert.InDelta(t, 10, r.next(t, 1), 0)
		r.becomes(t, 1, 6, false)
		assert.InDelta(t, 5, r.next(t, 6), 0)
		assert.InDelta(t, 5, r.next(t, 11), 0, "the second")
		assert.Zero(t, r.next(t, 16))
	})
	t.Run("M1 one that was ready before the process began is looked at when it is available at the latest", func(t *testing.T) {
		t.Parallel()
		r := newReadyRig()
		r.workers[0].Busy = false
		assert.InDelta(t, 10, r.next(t, 0), 0)
		assert.InDelta(t, 7, r.next(t, 3), 0)
		assert.Zero(t, r.next(t, 10))
	})
	t.Run("a new process counts it as available only after minReadySeconds, as docs/pass.md says", func(t *testing.T) {
		t.Parallel()
		r := newReadyRig()
		r.workers[0].Busy = false
		available := func(seconds int) int32 {
			r.next(t, seconds)
			return r.last.Counts.Available
		}
		assert.EqualValues(t, 0, available(0))
		assert.EqualValues(t, 1, available(10))
		r.once = sync.Once{} // the next pass is made by a new process
		assert.EqualValues(t, 0, available(11))
		assert.EqualValues(t, 1, available(21))
	})
	t.Run("M1 so is one that was adopted", func(t *testing.T) {
		t.Parallel()
		r := newReadyRig()
		owned := r.workers[0].OwnerReferences
		r.workers[0].Busy, r.workers[0].OwnerReferences = false, nil
		assert.InDelta(t, 5, r.next(t, 0), 0, "the cache may not show the adoption")
		r.workers[0].OwnerReferences = owned
		assert.InDelta(t, 7, r.next(t, 3), 0)
	})
	t.Run("M1 one that was not ready for a moment begins anew", func(t *testing.T) {
		t.Parallel()
		r := newReadyRig()
		r.workers[0].Busy = false
		assert.InDelta(t, 10, r.next(t, 0), 0)
		r.becomes(t, 0, 4, true)
		r.becomes(t, 0, 4, false)
		assert.InDelta(t, 10, r.next(t, 4), 0)
		r.becomes(t, 0, 5, true)
		assert.Zero(t, r.next(t, 5))
	})
	t.Run("M1 another minReadySeconds counts for those that are ready already", func(t *testing.T) {
		t.Parallel()
		r := newReadyRig()
		r.workers[0].Busy = false
		assert.InDelta(t, 10, r.next(t, 0), 0)
		r.minReady = 30
		assert.InDelta(t, 18, r.next(t, 12), 0)
		r.minReady = 0
		assert.Zero(t, r.next(t, 13))
		r.minReady = 20
		assert.InDelta(t, 20, r.next(t, 14), 0, "nobody has watched it meanwhile")
	})
	t.Run("M1 a clock that goes back an hour does not make it wait for an hour", func(t *testing.T) {
		t.Parallel()
		r := newReadyRig()
		r.workers[0].Busy = false
		assert.InDelta(t, 10, r.next(t, 3600), 0)
		assert.InDelta(t, 10, r.next(t, 0), 0)
	})
	t.Run("M7 after an error the rate limiter decides, and nothing is forgotten", func(t *testing.T) {
		t.Parallel()
		r := newReadyRig()
		r.workers[0].Busy, r.workers = false, r.workers[:1]
		r.create = func(int) error { return errors.New("boom") }
		pass, err := r.pass(t, 0, r.workers...)
		require.Error(t, err)
		assert.Zero(t, pass.RequeueAfter)
		r.owner.Workers = 1
		r.get = func(string) (*worker, error) { return nil, notFound("x") }
		assert.Positive(t, r.next(t, 4), "the creation that failed may take effect yet")
		r.owner.Generation++
		assert.LessOrEqual(t, r.next(t, 4), 6.0)
	})
	t.Run("M7 a refusal is no error to the rate limiter", func(t *testing.T) {
		t.Parallel()
		r := newReadyRig()
		r.workers[0].Busy, r.workers = false, r.workers[:1]
		r.new = func(string) (*worker, error) { return nil, &replicas.RefusedError{Reason: "No", Err: errors.New("no")} }
		assert.InDelta(t, 10, r.next(t, 0), 0)
	})
}

func TestAvailabilityOfPodsThatCountWhileTheyGo(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.owner.Spec.MinReadySeconds = 60
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.Rules.Active = func(*corev1.Pod) bool { return true }
		return s, err
	}
	going := podtest.Pod("a", owned(r.owner), podtest.ReadySince(podtest.Now.Add(-45*time.Second)), podtest.Deleting)
	pass, err := r.pass(t, 0, going)
	require.NoError(t, err)
	assert.Equal(t, 15*time.Second, pass.RequeueAfter, "M1")
}
