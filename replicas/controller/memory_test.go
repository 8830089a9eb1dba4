// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas/controller"
)

func TestForget(t *testing.T) {
	t.Parallel()
	t.Run("V17 an owner that is gone leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		r.forget(t)
		assert.Zero(t, sum(r.pending()))
	})
	t.Run("Y3 X4 an owner that is not found is forgotten, whichever incarnation was known, its writes too", func(t *testing.T) {
		t.Parallel()
		r := atVersions(newRig(3), "1", "")
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		r.version = "2"
		r.settle()
		_, err = r.pass(t, 0)
		require.NoError(t, err)
		atVersions(r, "2", "")
		r.forgetName(t)
		assert.Zero(t, sum(r.pending()))
		atVersions(r, "1", "")
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.True(t, pass.Observed, "there is no write to wait for")
		assert.Len(t, pass.Created, 3)
	})
	t.Run("W12 a pass of the old incarnation that ends late leaves nothing to the new one", func(t *testing.T) {
		t.Parallel()
		late := func(t *testing.T, pods []*corev1.Pod) *podRig {
			t.Helper()
			r := newRig(3)
			r.children = func() ([]*corev1.Pod, error) {
				r.forget(t) // the owner is deleted while its pass is under way
				return pods, nil
			}
			_, err := r.sync(t, t.Context())
			require.NoError(t, err)
			return r
		}
		for _, pods := range [][]*corev1.Pod{nil, podsOf(replicaSet(3), 7)} {
			r := late(t, pods)
			r.forgetName(t)
			assert.Zero(t, sum(r.pending()), "but the last look at the name drops it")
		}
		r := late(t, nil)
		old := r.key()
		r.owner.UID = "uid-of-the-next"
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 3, "the new incarnation starts clean")
		r.forgetName(t)
		assert.NotContains(t, r.ledgers(), old, "and the last look at the name drops the old one's record too")
	})
	t.Run("V16 to forget an old incarnation leaves the new one alone", func(t *testing.T) {
		t.Parallel()
		r := atVersions(newRig(3), "1", "2")
		r.owner.ResourceVersion = "1"
		r.stored = func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "2" }
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		old := r.owner.DeepCopy()
		old.UID = "old"
		require.NoError(t, r.start().OwnerDeleted(old))
		assert.Equal(t, 3, sum(r.pending()))
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		requireGate(t, pass.Gates, controller.OwnWriteNotSeen)
		atVersions(r, "2", "2")
		r.forgetName(t)
		assert.Zero(t, sum(r.pending()), "its state was kept")
	})
}

func TestOwnersOfOneName(t *testing.T) {
	t.Parallel()
	// pass makes a pass for the owner with this UID. Owners with the same namespace and name but different UIDs
	// are different owners. For example, two clusters may each have an owner with this name.
	pass := func(t *testing.T, r *podRig, uid types.UID, seconds int) podPass {
		t.Helper()
		r.owner.UID = uid
		pass, err := r.pass(t, seconds)
		require.NoError(t, err)
		return pass
	}
	forget := func(t *testing.T, r *podRig, uid types.UID) {
		t.Helper()
		r.owner.UID = uid
		r.forget(t)
	}
	t.Run("W12 each expects its own, whoever comes in between", func(t *testing.T) {
		t.Parallel()
		r, created := newRig(3), 0
		for i := range 10 { // the cache shows none of the pods
			created += len(pass(t, r, "in the one", i).Created)
			created += len(pass(t, r, "in the other", i).Created)
		}
		assert.Equal(t, 3+3, created)
	})
	t.Run("S10 each has a hold of its own", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.create = func(int) error { return namespaceGone() }
		pass(t, r, "in the one", 0)
		pass(t, r, "in the other", 30)
		assert.Equal(t, 29*time.Second, pass(t, r, "in the one", 31).RequeueAfter)
		assert.Equal(t, 59*time.Second, pass(t, r, "in the other", 31).RequeueAfter)
	})
	t.Run("Y3 V17 by UID one is forgotten, by name all are", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		for range 2 {
			pass(t, r, "in the one", 0)
			pass(t, r, "in the other", 0)
			forget(t, r, "in the other")
			assert.Zero(t, sum(r.pending()))
			r.owner.UID = "in the one"
			assert.Equal(t, 3, sum(r.pending()))
			pass(t, r, "in the other", 0)
			r.forgetName(t)
			assert.Empty(t, r.ledgers())
		}
	})
	t.Run("an incarnation that nobody forgets is dropped after an hour without a pass", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.live = func() ([]*corev1.Pod, error) { return nil, nil }
		pass(t, r, "missed", 0)
		pass(t, r, "again", 3600)
		assert.Len(t, r.ledgers(), 2)
		pass(t, r, "again", 3601)
		assert.Len(t, r.ledgers(), 1)
		pass(t, r, "missed", 3601)
		assert.Len(t, r.ledgers(), 2, "if it does come back, it starts clean")
	})
	t.Run("an incarnation that is still waiting is not dropped", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.opts.ExpectationsTimeout = 24 * time.Hour
		pass(t, r, "waiting", 0)
		pass(t, r, "again", 7200)
		assert.Len(t, r.ledgers(), 2)
	})
}

// If a cache is filtered, an owner may leave the cache and come back.
func TestAnOwnerThatComesBack(t *testing.T) {
	t.Parallel()
	// away removes the owner from the cache, and makes the passes that are requested between the two times. The
	// owner then returns to the cache.
	away := func(t *testing.T, r *podRig, from, to time.Duration) {
		t.Helper()
		owners := r.owners
		r.owners = func() ([]*appsv1.ReplicaSet, error) { return nil, nil }
		require.NoError(t, r.start().OwnerDeleted(r.owner))
		for at := from; at <= to; {
			pass, err := r.passAt(t, at)
			require.NoError(t, err)
			if pass.RequeueAfter == 0 {
				break
			}
			at += pass.RequeueAfter
		}
		r.owners = owners
	}
	t.Run("W11 a creation without an answer is sent again under its name", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.create = func(i int) error {
			if i == 1 {
				return timeout()
			}
			return nil
		}
		r.get = func(name string) (*corev1.Pod, error) { return nil, timeout() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		sent := r.callsOf("create")[1]
		r.create = func(int) error { return nil }
		away(t, r, time.Second, 2*time.Second)
		_, err = r.pass(t, 299, podtest.Pod("web-bbbbb", owned(r.owner)))
		require.NoError(t, err)
		assert.Equal(t, sent, r.callsOf("create")[0])
		assert.Len(t, r.callsOf("create"), 2)
	})
	t.Run("W13 a deletion without an answer is the first one to be repeated", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		pods := ready(r.owner, 3)
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
		away(t, r, time.Second, 2*time.Second)
		podtest.Cost("-7")(pods[2])
		_, err = r.pass(t, 10, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"delete web-000"}, r.callsOf("delete"))
	})
	t.Run("V17 five minutes after it was sent nothing is left", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return timeout() }
		r.get = func(string) (*corev1.Pod, error) { return nil, timeout() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		away(t, r, time.Second, time.Hour)
		assert.Equal(t, podtest.Now.Add(5*time.Minute), r.now)
		assert.Zero(t, r.last.RequeueAfter)
		r.create = func(int) error { return nil }
		_, err = r.pass(t, 301)
		require.NoError(t, err)
		assert.Equal(t, []string{"create default/web-bbbbc"}, r.callsOf("create"))
	})
}

func TestARecordOfAnOwnerThatWentInThePass(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	old := r.key()
	r.kind.Prepare = func(_ context.Context, rs *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
		if rs.UID == old.UID {
			assert.NoError(t, r.start().OwnerDeleted(rs))
		}
		return nil
	}
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	next := r.owner.DeepCopy()
	next.UID = "uid-of-the-next"
	r.owner = next
	r.live = func() ([]*corev1.Pod, error) { return nil, nil }
	_, err = r.pass(t, 3601)
	require.NoError(t, err)
	assert.NotContains(t, r.ledgers(), old)
}

func TestAStatusWriteIsNotWaitedForInACacheThatIsKnownToBeOld(t *testing.T) {
	t.Parallel()
	rig := atVersions(newRig(8), "10", "")
	rig.owner.ResourceVersion = "10"
	pods := ready(rig.owner, 8)
	server := clone(rig.owner) // the watch of owners hangs, so the cache keeps the old owner
	version := 20
	write := func(change func()) {
		version++
		change()
		server.ResourceVersion = strconv.Itoa(version)
	}
	rig.getOwner = func() (*appsv1.ReplicaSet, error) { return clone(server), nil }
	rig.patchStatus = func(_ int, rs *appsv1.ReplicaSet) error {
		if rs.ResourceVersion != server.ResourceVersion {
			return conflict("web")
		}
		return nil
	}
	rig.stored = func(rs *appsv1.ReplicaSet) {
		write(func() { server.Status = rs.Status })
		rs.ResourceVersion = server.ResourceVersion
	}
	rig.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error {
		for i := range pods {
			if pods[i].Name == p.Name {
				pods = append(pods[:i:i], pods[i+1:]...)
				break
			}
		}
		return nil
	}
	scale := func(n int32) {
		write(func() { server.Spec.Replicas, server.Generation = &n, server.Generation+1 })
	}
	scale(7)
	pods = pods[:7] // one of the eight pods has disappeared
	pass := func(from, to int) {
		for second := from; second < to; second++ {
			_, _ = rig.pass(t, second, pods...)
			rig.children = func() ([]*corev1.Pod, error) { return pods, nil }
			rig.settle()
			creations, _ := rig.known().Awaited()
			for _, name := range creations { // settle does not remove these pods from the view, because the cache stays at version 10
				rig.known().ObserveDeleted(rig.known().Start(), types.UID("uid-"+name), rig.now)
			}
		}
	}
	pass(0, 30)
	require.Len(t, pods, 7)
	scale(2)
	pass(30, 150)
	there := len(pods)
	assert.Equal(t, 2, there, "the cache is known to be old, so the owner is to be read")
}

func TestAnOwnerWhoseDeletionNoPassFollowsIsForgotten(t *testing.T) {
	t.Parallel()
	rig := newRig(1)
	_, err := rig.pass(t, 0)
	require.NoError(t, err)
	rig.forget(t)
	rig.owner = replicaSet(1)
	rig.owner.Name, rig.owner.UID = "other", "uid-of-other"
	for hour := 1; hour < 24; hour++ {
		rig.settle()
		_, _ = rig.pass(t, 3600*hour)
	}
	assert.Equal(t, 1, controller.Remembered(rig.start()), "owners, of which one is gone since a day")
}

// The first three columns are what the ledger says of a view: the pass's own calls are not seen, children may be
// missing or gone, and the cache is old. The last two columns are the states in a term that has seen the children,
// and in a new one.
func TestTheStateOfAView(t *testing.T) {
	t.Parallel()
	const no, yes = false, true
	for _, row := range []struct {
		waits, unmet, stale bool
		known, isNew        string
	}{
		{no, no, no, "trusted", "stale"},
		{no, no, yes, "stale", "stale"},
		{no, yes, no, "incomplete", "incomplete"},
		{no, yes, yes, "incomplete", "incomplete"},
		{yes, no, no, "waiting", "waiting"},
		{yes, no, yes, "waiting", "waiting"},
		{yes, yes, no, "waiting", "waiting"},
		{yes, yes, yes, "waiting", "waiting"},
	} {
		assert.Equal(t, row.known, controller.StateOfView(row.waits, row.unmet, row.stale, false), "%+v", row)
		assert.Equal(t, row.isNew, controller.StateOfView(row.waits, row.unmet, row.stale, true), "%+v, in a new term", row)
	}
}
