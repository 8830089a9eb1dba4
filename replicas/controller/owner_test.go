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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// behind is a rig whose cache has an owner that wants so many pods, and whose server has
// one that wants another number since.
func behind(cached, wanted int32) *podRig {
	r := newRig(cached)
	r.owner.ResourceVersion = "5"
	r.version = "7"
	r.server(wanted)
	return r
}

// server changes what the owner on the server wants.
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

// ready are n pods of the owner that are ready.
func ready(rs *appsv1.ReplicaSet, n int) []*corev1.Pod {
	pods := versioned(podsOf(rs, n))
	for _, p := range pods {
		podtest.ReadySince(podtest.Now.Add(-time.Hour))(p)
	}
	return pods
}

// comeBack makes passes whenever they are asked for, until one of them reads the owner,
// and returns how long that takes.
func (r *rig[O, C]) comeBack(t *testing.T, from time.Duration, children ...C) time.Duration {
	t.Helper()
	for at := from; at < from+time.Minute; {
		p, err := r.passAt(t, at, children...)
		require.NoError(t, err)
		if len(r.callsOf("read owner")) > 0 {
			return at - from
		}
		require.Empty(t, r.calls, "nothing is called meanwhile")
		require.True(t, p.HeldBack())
		require.True(t, p.OwnerWasStale)
		require.Positive(t, p.RequeueAfter)
		at += p.RequeueAfter
	}
	require.Fail(t, "the owner is never read")
	return 0
}

func TestWhatIsReadOfTheOwnerIsRemembered(t *testing.T) {
	t.Parallel()
	for name, learn := range map[string]func(t *testing.T, r *podRig){
		"after the Conflict of a status write": func(t *testing.T, r *podRig) {
			t.Helper()
			_, err := r.pass(t, 0, ready(r.owner, int(*r.owner.Spec.Replicas))...)
			require.NoError(t, err)
			require.Len(t, r.statuses, 2)
		},
		"before an adoption": func(t *testing.T, r *podRig) {
			t.Helper()
			r.kind.Status = nil
			pods := ready(r.owner, int(*r.owner.Spec.Replicas)-1)
			_, err := r.pass(t, 0, append(pods, podtest.Pod("orphan"))...)
			require.NoError(t, err)
			require.Len(t, r.callsOf("read owner"), 1)
		},
		"by the answer to a status write": func(t *testing.T, r *podRig) {
			t.Helper()
			fresh, _ := r.getOwner()
			r.patchStatus = func(int, *appsv1.ReplicaSet) error { return nil }
			r.stored = func(rs *appsv1.ReplicaSet) { rs.Spec, rs.Generation, rs.ResourceVersion = fresh.Spec, 2, "8" }
			_, err := r.pass(t, 0, ready(r.owner, int(*r.owner.Spec.Replicas))...)
			require.NoError(t, err)
			require.Len(t, r.statuses, 1)
		},
	} {
		for _, tt := range []struct {
			name           string
			cached, wanted int32
			there          int
		}{
			{"more are wanted, and none is deleted", 2, 10, 10},
			{"fewer are wanted, and none is created", 10, 2, 2},
		} {
			t.Run(name+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				r := behind(tt.cached, tt.wanted)
				learn(t, r)
				r.settle()
				pods := ready(r.owner, tt.there)
				pass, err := r.passAt(t, 10*time.Millisecond, pods...)
				require.NoError(t, err)
				assert.Empty(t, r.calls)
				assert.True(t, pass.OwnerWasStale)
				assert.True(t, pass.Waiting())
				assert.Equal(t, 40*time.Millisecond, pass.RequeueAfter)

				r.comeBack(t, 10*time.Millisecond, pods...)
				assert.Empty(t, r.callsOf("create"))
				assert.Empty(t, r.callsOf("delete"))
				assert.Equal(t, tt.wanted, r.last.Desired, "after some seconds it goes by what it reads")

				r.owner, _ = r.getOwner()
				pass, err = r.passAt(t, time.Minute, pods...)
				require.NoError(t, err)
				assert.False(t, pass.OwnerWasStale, "until the cache shows it")
				assert.Empty(t, r.callsOf("read owner"))
			})
		}
	}
	t.Run("the cache is asked for 2.55 s, and then the server, at most once in ten seconds in the end", func(t *testing.T) {
		t.Parallel()
		r := behind(2, 10)
		_, err := r.pass(t, 0, ready(r.owner, 2)...)
		require.NoError(t, err)
		pods := ready(r.owner, 10)
		at := 50 * time.Millisecond
		var waits []time.Duration
		for range 5 {
			after := r.comeBack(t, at, pods...)
			waits = append(waits, after)
			at += after + r.last.RequeueAfter
		}
		assert.Equal(t, 2500*time.Millisecond, waits[0])
		assert.Equal(t, 10*time.Second, r.last.RequeueAfter)
		pass, err := r.passAt(t, at-r.last.RequeueAfter+time.Second, ready(r.owner, 9)...)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.Equal(t, 9*time.Second, pass.RequeueAfter, "a pass that an event asks for does not read it sooner")
	})
	t.Run("a pass that goes by what it reads creates and deletes", func(t *testing.T) {
		t.Parallel()
		r := behind(2, 10)
		_, err := r.pass(t, 0, ready(r.owner, 2)...)
		require.NoError(t, err)
		r.comeBack(t, time.Second, ready(r.owner, 9)...)
		assert.Len(t, r.last.Created, 1)
		assert.True(t, r.last.OwnerWasStale)
		r.settle()
		r.comeBack(t, time.Minute, ready(r.owner, 12)...)
		assert.Len(t, r.last.Deleted, 2)
		assert.Len(t, r.callsOf("read owner"), 1, "and needs no other read")
	})
	t.Run("if such a pass fails, the next read waits longer, up to five minutes", func(t *testing.T) {
		t.Parallel()
		r := behind(2, 10)
		_, err := r.pass(t, 0, ready(r.owner, 2)...)
		require.NoError(t, err)
		at := time.Second
		next := func() (time.Duration, error) { // until the next read
			for from := at; ; at += r.last.RequeueAfter {
				if _, err := r.passAt(t, at, ready(r.owner, 9)...); len(r.callsOf("read owner")) > 0 {
					return at - from, err
				}
				require.Positive(t, r.last.RequeueAfter)
			}
		}
		r.create = func(int) error { return forbidden("web-1", "no") }
		var waits []time.Duration
		for range 10 {
			wait, err := next()
			require.Error(t, err)
			waits = append(waits, wait)
		}
		assert.IsIncreasing(t, waits[1:7])
		assert.Equal(t, 5*time.Minute, waits[9])
		r.create = func(int) error { return nil }
		_, err = next()
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, r.last.RequeueAfter)
	})
	t.Run("a change that is taken back ends it", func(t *testing.T) {
		t.Parallel()
		r := behind(2, 10)
		_, err := r.pass(t, 0, ready(r.owner, 2)...)
		require.NoError(t, err)
		r.server(2)
		r.comeBack(t, time.Second, ready(r.owner, 2)...)
		assert.False(t, r.last.HeldBack())
		_, err = r.pass(t, 9)
		require.NoError(t, err)
		assert.Len(t, r.last.Created, 2)
	})
	t.Run("an owner that cannot be read any more is not gone by an older spec", func(t *testing.T) {
		t.Parallel()
		r := behind(2, 10)
		_, err := r.pass(t, 0, ready(r.owner, 2)...)
		require.NoError(t, err)
		for _, getOwner := range []func() (*appsv1.ReplicaSet, error){
			func() (*appsv1.ReplicaSet, error) { return nil, forbidden("web", "no") },
			func() (*appsv1.ReplicaSet, error) { return nil, nil },
		} {
			r.getOwner = getOwner
			r.calls = nil
			at := time.Second
			for ; len(r.callsOf("read owner")) == 0; at += time.Second {
				_, err = r.passAt(t, at, ready(r.owner, 10)...)
			}
			require.Error(t, err)
			require.Error(t, r.last.OwnerErr)
			assert.Equal(t, []string{"read owner"}, r.calls)
			assert.Positive(t, r.last.RequeueAfter)
		}
	})
}

// An owner that is going or gone has nothing created or deleted for it.
func TestAnOwnerThatTheServerDoesNotHave(t *testing.T) {
	t.Parallel()
	gone := func() (*appsv1.ReplicaSet, error) { return nil, notFound("web") }
	t.Run("a status write that is answered with NotFound asks for a read, and that stops all", func(t *testing.T) {
		t.Parallel()
		r := behind(3, 3)
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return notFound("web") }
		r.getOwner = gone
		_, err := r.pass(t, 0)
		require.Error(t, err)
		assert.Len(t, r.last.Created, 3)
		assert.Len(t, r.callsOf("read owner"), 1)
		r.settle()
		reads := 0
		for at := time.Millisecond; at < time.Hour; at += max(r.last.RequeueAfter, time.Millisecond) {
			_, err = r.passAt(t, at)
			require.NoError(t, err)
			require.Empty(t, r.callsOf("create"))
			reads += len(r.callsOf("read owner"))
		}
		assert.LessOrEqual(t, reads, 25, "it is looked for every five minutes in the end")
		r.owner = r.owner.DeepCopy()
		r.owner.ResourceVersion = "9"
		_, err = r.pass(t, 3600)
		require.NoError(t, err)
		assert.Equal(t, []string{"read owner"}, r.calls, "what the cache shows may be from before")
		r.owner = r.owner.DeepCopy()
		r.owner.ResourceVersion = "10"
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return r.owner.DeepCopy(), nil }
		_, err = r.pass(t, 3600)
		require.Error(t, err, "the status")
		assert.Len(t, r.last.Created, 3, "it is there again")
	})
	t.Run("a kind without the sub-resource is not gone", func(t *testing.T) {
		t.Parallel()
		r := behind(3, 3)
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return r.owner.DeepCopy(), nil }
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return notFound("web") }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		r.settle()
		_, err = r.pass(t, 1)
		require.ErrorContains(t, err, "writing status of ReplicaSet \"default/web\"")
		require.ErrorContains(t, err, "the kind ReplicaSet has no sub-resource status: its CustomResourceDefinition needs subresources: {status: {}}")
		assert.Len(t, r.last.Created, 3)
		r.getOwner = gone
		_, err = r.pass(t, 2)
		require.Error(t, err, "the status")
		assert.NotContains(t, err.Error(), "sub-resource", "the owner is gone")
	})
	for name, getOwner := range map[string]func(r *podRig) (*appsv1.ReplicaSet, error){
		"is gone": func(*podRig) (*appsv1.ReplicaSet, error) { return gone() },
		"is another one": func(r *podRig) (*appsv1.ReplicaSet, error) {
			next := r.owner.DeepCopy()
			next.UID, next.ResourceVersion = "uid-of-the-next", "9"
			return next, nil
		},
		"is being deleted": func(r *podRig) (*appsv1.ReplicaSet, error) {
			next := r.owner.DeepCopy()
			next.DeletionTimestamp, next.ResourceVersion = &metav1.Time{Time: podtest.Now}, "9"
			return next, nil
		},
	} {
		t.Run("no child is deleted if the owner "+name, func(t *testing.T) {
			t.Parallel()
			r := behind(2, 2)
			r.kind.Status = nil
			r.getOwner = func() (*appsv1.ReplicaSet, error) { return getOwner(r) }
			for at := time.Duration(0); at < time.Minute; at += r.last.RequeueAfter {
				_, err := r.passAt(t, at, ready(r.owner, 5)...)
				require.NoError(t, err)
				require.Empty(t, r.callsOf("delete"))
				require.Positive(t, r.last.RequeueAfter)
			}
			_, err := r.pass(t, 61)
			require.NoError(t, err)
			assert.Empty(t, r.callsOf("create"))
		})
	}
}

func TestTheOwnerIsReadBeforeChildrenAreDeleted(t *testing.T) {
	t.Parallel()
	t.Run("once in a pass", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		_, err := r.pass(t, 0, ready(r.owner, 5)...)
		require.NoError(t, err)
		assert.Len(t, r.last.Deleted, 3)
		assert.Equal(t, []string{"read owner"}, r.calls[:1])
		assert.Len(t, r.callsOf("read owner"), 1)
	})
	t.Run("though they are not ready", func(t *testing.T) {
		t.Parallel()
		r := behind(2, 5)
		_, err := r.pass(t, 0, versioned(podsOf(r.owner, 5))...)
		require.NoError(t, err)
		assert.Empty(t, r.last.Deleted)
	})
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
	t.Run("not if an adoption has read it", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		_, err := r.pass(t, 0, append(ready(r.owner, 4), podtest.Pod("orphan"))...)
		require.NoError(t, err)
		assert.Len(t, r.last.Deleted, 3)
		assert.Len(t, r.callsOf("read owner"), 1)
	})
	t.Run("not if nothing is deleted", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		_, err := r.pass(t, 0, ready(r.owner, 1)...)
		require.NoError(t, err)
		assert.Len(t, r.last.Created, 1)
		assert.Empty(t, r.callsOf("read owner"))
	})
	t.Run("a newer one that wants more keeps even what must go", func(t *testing.T) {
		t.Parallel()
		r := behind(5, 3)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
			s, err := spec(rs)
			s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Name == "web-000" }
			return s, err
		}
		pass, err := r.pass(t, 0, ready(r.owner, 5)...)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("delete"))
		assert.Empty(t, r.callsOf("create"))
		assert.True(t, pass.OwnerWasStale)
		assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
	})
	t.Run("who may not read it deletes nothing, and says so once while that lasts", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		allowed := r.getOwner
		for i, read := range []func() (*appsv1.ReplicaSet, error){
			func() (*appsv1.ReplicaSet, error) { return nil, forbidden("web", "no") },
			func() (*appsv1.ReplicaSet, error) { return nil, forbidden("web", "no") },
			allowed,
			func() (*appsv1.ReplicaSet, error) { return nil, busy(7) },
		} {
			r.getOwner = read
			pass, err := r.pass(t, 10*i, ready(r.owner, 5)...)
			events := r.eventsOf("Warning FailedReadOwner")
			if i == 2 {
				require.NoError(t, err)
				assert.Len(t, pass.Deleted, 3)
				r.settle()
				continue
			}
			require.Error(t, err)
			require.ErrorIs(t, err, pass.OwnerErr)
			require.ErrorIs(t, pass.ScaleErr, pass.OwnerErr)
			assert.Empty(t, pass.Deleted)
			assert.Len(t, events, map[int]int{0: 1, 1: 0, 3: 1}[i])
			assert.Equal(t, map[int]time.Duration{3: 7 * time.Second}[i], pass.RequeueAfter)
			assert.InDelta(t, 1, r.metric(t, "owners", "unread"), 0)
		}
	})
}

// Where generations say nothing, what Spec returns does.
func TestGenerationsThatDoNotTell(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cached, fresh int64
		wants         int32
		may           bool
	}{
		"none, and the same":              {0, 0, 2, true},
		"none, and more":                  {0, 0, 4, false},
		"one that is new, and the same":   {0, 3, 2, true},
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
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
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

// A fake server answers with an empty object.
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
	assert.False(t, pass.OwnerWasStale, "it tells nothing about the owner")
	assert.Len(t, pass.Created, 1)
}
