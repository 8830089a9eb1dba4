// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// behind returns a rig whose cache has an old version of the owner. The first argument is how many pods the owner
// in the cache wants. The second argument is how many pods the owner on the server wants.
func behind(cached, wanted int32) *podRig {
	r := newRig(cached)
	r.owner.ResourceVersion = "5"
	r.version = "7"
	r.server(wanted)
	return r
}

// server sets spec.replicas of the owner on the server. The owner in the cache stays unchanged.
func (r *rig[O, C]) server(wanted int32) {
	fresh := clone(r.owner)
	rs, _ := any(fresh).(*appsv1.ReplicaSet)
	rs.Spec.Replicas, rs.Generation, rs.ResourceVersion = &wanted, 2, "8"
	r.getOwner = func() (O, error) { return clone(fresh), nil }
	r.patchStatus = func(_ int, owner O) error {
		if owner.GetResourceVersion() != "8" {
			return conflict("web")
		}
		return nil
	}
}

// ready returns n pods of the owner that have been ready for an hour.
func ready(rs *appsv1.ReplicaSet, n int) []*corev1.Pod {
	pods := versioned(podsOf(rs, n))
	for _, p := range pods {
		podtest.ReadySince(podtest.Now.Add(-time.Hour))(p)
	}
	return pods
}

// If a webhook changes the spec during a status write, the answer shows a newer owner. The next passes wait for
// the cache, and after some seconds they use the owner from the server.
func TestTheAnswerToAStatusWriteShowsANewerOwner(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		cached, wanted int32
	}{
		{"more are wanted, and none is deleted", 2, 10},
		{"fewer are wanted, and none is created", 10, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := behind(tt.cached, tt.wanted)
			fresh, _ := r.getOwner()
			r.patchStatus = func(int, *appsv1.ReplicaSet) error { return nil }
			r.stored = func(rs *appsv1.ReplicaSet) { rs.Spec, rs.Generation, rs.ResourceVersion = fresh.Spec, 2, "8" }
			_, err := r.pass(t, 0, ready(r.owner, int(tt.cached))...)
			require.NoError(t, err)
			require.Len(t, r.statuses, 1)
			r.settle()
			pods := ready(r.owner, int(tt.wanted))
			pass, err := r.passAt(t, 10*time.Millisecond, pods...)
			require.NoError(t, err)
			assert.Empty(t, r.calls)
			assert.True(t, pass.Waiting())
			assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)

			for at := 60 * time.Millisecond; at < time.Minute && len(r.callsOf("read owner")) == 0; at += r.last.RequeueAfter {
				_, err = r.passAt(t, at, pods...)
				require.NoError(t, err)
				require.Positive(t, r.last.RequeueAfter)
			}
			assert.Equal(t, tt.wanted, r.last.Desired, "after a second it goes by what it reads")
			assert.False(t, r.last.HeldBack())
		})
	}
}

func TestAReadOfTheOwnerThatReturnsNothing(t *testing.T) {
	t.Parallel()
	r := behind(2, 10)
	_, err := r.pass(t, 0, ready(r.owner, 2)...)
	require.NoError(t, err)
	r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, nil }
	r.calls = nil
	for at := time.Second; at < time.Minute && len(r.callsOf("read owner")) == 0; at += time.Second {
		_, err = r.passAt(t, at, ready(r.owner, 10)...)
	}
	require.Error(t, err)
	require.ErrorIs(t, err, requireGate(t, r.last.Gates, controller.OwnerUnread).Err)
	assert.Equal(t, []string{"read owner"}, r.calls)
	assert.Positive(t, r.last.RequeueAfter)
	assert.InDelta(t, 1, r.metric(t, "owners", "unread"), 0)
}

func TestTheOwnerIsReadBeforeChildrenAreDeleted(t *testing.T) {
	t.Parallel()
	t.Run("and before the author's step, which may act for the victims", func(t *testing.T) {
		t.Parallel()
		for name, reads := range map[string]func(r *podRig){
			"of an owner that wants more":     func(*podRig) {},
			"of an owner that is gone":        func(r *podRig) { r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, notFound("web") } },
			"of an owner that cannot be read": func(r *podRig) { r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, timeout() } },
		} {
			r := behind(3, 5)
			reads(r)
			var drained []string
			r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
				for _, v := range s.Delete {
					drained = append(drained, v.Object.Name)
				}
				return nil
			}
			_, _ = r.pass(t, 0, ready(r.owner, 5)...)
			assert.Empty(t, drained, name)
			assert.Empty(t, r.last.Deleted, name)
		}
	})
	t.Run("once also if the author's step leaves all out", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.kind.Prepare = nothing
		_, err := r.pass(t, 0, ready(r.owner, 5)...)
		require.NoError(t, err)
		assert.Equal(t, []string{"read owner"}, r.calls)
	})
	t.Run("a newer one that wants more keeps even what must go", func(t *testing.T) {
		t.Parallel()
		r := behind(5, 3)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := spec(rs)
			s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Name == "web-000" }
			return s, err
		}
		pass, err := r.pass(t, 0, ready(r.owner, 5)...)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("delete"))
		assert.Empty(t, r.callsOf("create"))
		requireGate(t, pass.Gates, controller.OwnerStale)
		assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
	})
}

// Two versions of an owner with the same generation are compared by their plans. Without a generation, only the
// cached version is as good as the one on the server.
func TestGenerationsThatDoNotTell(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cached, fresh int64
		wants         int32
		may           bool
	}{
		"none, and the same":              {0, 0, 2, false},
		"none, and more":                  {0, 0, 4, false},
		"one that is new, and the same":   {0, 3, 2, false},
		"the same, and by a status more":  {3, 3, 4, false},
		"the same, and the same":          {3, 3, 2, true},
		"another, and the same":           {3, 4, 2, false},
		"another, and more":               {3, 4, 4, false},
		"one that went back, and is less": {3, 2, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := behind(2, tt.wants)
			r.owner.Generation = tt.cached
			fresh, _ := r.getOwner()
			fresh.Generation = tt.fresh
			r.getOwner = func() (*appsv1.ReplicaSet, error) { return fresh.DeepCopy(), nil }
			pass, err := r.pass(t, 0, ready(r.owner, 3)...)
			require.NoError(t, err)
			assert.Equal(t, tt.may, len(pass.Deleted) > 0)
		})
	}
	t.Run("those that grow with each status write freeze nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.owner.ResourceVersion = "5"
		r.stored = func(rs *appsv1.ReplicaSet) { rs.Generation, rs.ResourceVersion = rs.Generation+1, "6" }
		_, err := r.pass(t, 0, ready(r.owner, 2)...)
		require.NoError(t, err)
		require.Len(t, r.statuses, 1)
		fresh := stored(r)
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return fresh.DeepCopy(), nil }
		pass, err := r.pass(t, 1, ready(r.owner, 3)...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1, "the cache does not show the write yet")
	})
	t.Run("a spec that is refused, and was, is the same", func(t *testing.T) {
		t.Parallel()
		r := behind(2, 2)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := spec(rs)
			if rs.ResourceVersion == "8" {
				err = errors.New("boom")
			}
			return s, err
		}
		fresh, _ := r.getOwner()
		fresh.Generation = 1
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return fresh.DeepCopy(), nil }
		pass, err := r.pass(t, 0, ready(r.owner, 3)...)
		require.NoError(t, err)
		assert.Empty(t, pass.Deleted, "it is refused by now")
	})
}

// If a fake server answers a status write with an empty object, the answer says nothing about the owner.
func TestAStatusWriteThatIsAnsweredWithAnotherObject(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.stored = func(rs *appsv1.ReplicaSet) { *rs = appsv1.ReplicaSet{} }
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	r.settle()
	*r.owner.Spec.Replicas, r.owner.Generation = 2, 2
	pass, err := r.pass(t, 1, podsOf(r.owner, 1)...)
	require.NoError(t, err)
	assert.Empty(t, pass.Gates, "it tells nothing about the owner")
	assert.Len(t, pass.Created, 1)
}
