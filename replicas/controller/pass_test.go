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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

func TestTells(t *testing.T) {
	t.Parallel()
	t.Run("P10 a created pod", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, []string{"Normal SuccessfulCreate Created pod: web-bbbbb"}, r.events)
	})
	t.Run("P11 a pod that could not be created, its error's type kept", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return forbidden("web-", "not today") }
		pass, err := r.pass(t, 0)
		assert.True(t, apierrors.IsForbidden(err))
		assert.Zero(t, pass.RequeueAfter, "not every 403 is a quota")
		assert.Equal(t, []string{`Warning FailedCreate Error creating: pods "web-" is forbidden: not today`}, r.events)
	})
	t.Run("P13 a deleted pod", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		_, err := r.pass(t, 0, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		assert.Equal(t, []string{"Normal SuccessfulDelete Deleted pod: web-000"}, r.events)
	})
	t.Run("P15 W25 a pod that could not be deleted, its error's type kept", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(pod *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(pod.Name, "not today") }
		_, err := r.pass(t, 0, podsOf(r.owner, 1)...)
		assert.True(t, apierrors.IsForbidden(err))
		require.ErrorContains(t, err, "unable to delete pods: ")
		assert.Equal(t, []string{`Warning FailedDelete Error deleting: pods "web-000" is forbidden: not today`}, r.events)
	})
}

// While a pass for an owner is under way, another Sync for this owner returns an error, because both passes would
// use the same state. When the first pass has ended, the next one may begin.
func TestSyncWhileAPassIsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	var second, other error
	r.create = func(int) error {
		_, second = r.start().Sync(t.Context(), r.key().NamespacedName)
		_, other = r.start().Sync(t.Context(), types.NamespacedName{Namespace: "default", Name: "other"})
		return nil
	}
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	require.EqualError(t, second, `controller: ReplicaSet "default/web": a pass for this owner is already under way: do not call Sync twice at once for one owner`)
	require.NoError(t, other)
	assert.Len(t, r.callsOf("create"), 1)

	r = newRig(1)
	r.create = func(int) error { panic("broken") }
	require.Panics(t, func() { _, _ = r.pass(t, 1) })
	_, err = r.pass(t, 2, podsOf(r.owner, 1)...)
	require.NoError(t, err, "the panic has ended the pass")
}

func TestSync(t *testing.T) {
	t.Parallel()
	t.Run("Y4 what arrives while the pods are listed is not created again", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		require.Len(t, pass.Created, 1)
		r.children = func() ([]*corev1.Pod, error) {
			assert.NoError(t, r.start().ChildAdded(pass.Created[0])) // the event arrives after the cache was read
			return nil, nil
		}
		pass, err = r.sync(t, t.Context())
		require.NoError(t, err)
		assert.Empty(t, pass.Created)
	})
	t.Run("Y10 while waiting pods are claimed, nothing is created or deleted, and expiry wakes", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.awaits(r.owner, "web-lost")
		pass, err := r.pass(t, 0, podtest.Pod("orphan"))
		require.NoError(t, err)
		assert.Len(t, pass.Adopted, 1)
		assert.Empty(t, pass.Created)
		assert.True(t, pass.Waiting() && pass.Observed)
		assert.Positive(t, pass.RequeueAfter)
	})
	t.Run("Y10 an owner that is being deleted neither creates nor deletes, adopts nor releases", func(t *testing.T) {
		t.Parallel()
		for _, want := range []int32{0, 5} {
			r := newRig(want)
			now := metav1.NewTime(podtest.Now)
			r.owner.DeletionTimestamp = &now
			pass, err := r.pass(t, 0, podtest.Pod("orphan"), podtest.Pod("mine", owned(r.owner)))
			require.NoError(t, err)
			assert.Empty(t, r.calls)
			assert.True(t, pass.Waiting() && pass.Observed)
			assert.Equal(t, []string{"mine"}, names(pass.Active))
		}
	})
	t.Run("a new generation of the owner still waits for what the last one started", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		r.owner.Generation++
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Empty(t, pass.Created)
	})
	t.Run("Y6 a list that fails ends the pass without an observation", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		boom := errors.New("boom")
		r.children = func() ([]*corev1.Pod, error) { return nil, boom }
		pass, err := r.sync(t, t.Context())
		require.ErrorIs(t, err, boom)
		assert.False(t, pass.Observed)
		assert.Empty(t, r.calls)
	})
	t.Run("Y9 T8 terminating pods are told by UID and selector", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		stranger := replicaSet(1)
		stranger.UID = "stranger"
		pass, err := r.pass(t, 0,
			podtest.Pod("mine", owned(r.owner), podtest.Deleting),
			podtest.Pod("relabelled", owned(r.owner), podtest.Deleting, podtest.Labels(nil)),
			podtest.Pod("finished", owned(r.owner), podtest.Deleting, podtest.Phase(corev1.PodFailed)),
			podtest.Pod("stranger", owned(stranger), podtest.Deleting),
			podtest.Pod("orphan", podtest.Deleting))
		require.NoError(t, err)
		assert.Equal(t, []string{"mine"}, names(pass.Terminating))
		assert.Empty(t, r.calls)
	})
	t.Run("Y14 the cached pods and the owner stay as they were", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		pods := podtest.Fleet(40, 3, 1)
		for _, p := range pods[:30] {
			owned(r.owner)(p)
		}
		pass, err := r.pass(t, 0, pods...) // r.pass compares the cached objects before and after the pass
		require.NoError(t, err)
		assert.Len(t, pass.Adopted, 10)
		assert.NotEmpty(t, pass.Deleted)
	})
	t.Run("pods without UIDs are deleted without a precondition, and expected by name", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(_ *corev1.Pod, opts metav1.DeleteOptions) error {
			assert.Nil(t, opts.Preconditions)
			return nil
		}
		pass, err := r.pass(t, 0, podtest.Pod("a", owned(r.owner), podtest.UID("")), podtest.Pod("b", owned(r.owner), podtest.UID("")))
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 2)
		_, dels := r.pending()
		assert.Equal(t, 2, dels)
	})
}

// atVersions sets the version that the rig's caches return, and the version that its server gives to each created
// or patched child.
func atVersions(r *podRig, cache, server string) *podRig {
	r.ownersVersion, r.childrenVersion, r.version = cache, cache, server
	return r
}

func TestSyncWaitsForItsOwnWrites(t *testing.T) {
	t.Parallel()
	t.Run("X9 W41 a status write is recorded: X10 Y2 the next pass waits for the cache, lists nothing, and is no error", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.owner.ResourceVersion = "5"
		r.stored = func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "9" }
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		r.children = func() ([]*corev1.Pod, error) {
			t.Error("listed from a stale cache")
			return nil, nil
		}
		pass, err := r.sync(t, t.Context())
		require.NoError(t, err)
		waits := requireGate(t, pass.Gates, controller.OwnWriteNotSeen)
		assert.Equal(t, "replicasets.apps", waits.Object)
		assert.Equal(t, 50*time.Millisecond, waits.Until.Sub(r.now))
		assert.True(t, pass.Waiting())
		assert.False(t, pass.Observed)
		assert.Empty(t, r.calls)
		assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
		r.owner.ResourceVersion = "9"
		pass, err = r.pass(t, 0)
		require.NoError(t, err)
		assert.True(t, pass.Observed)
	})
	for name, tc := range map[string]struct {
		want  int32
		pods  []*corev1.Pod
		waits bool
	}{
		"X9 P12 an adoption":                        {1, []*corev1.Pod{podtest.Pod("orphan", version("5"))}, false},
		"X9 W41 a release":                          {0, []*corev1.Pod{podtest.Pod("leaves", owned(replicaSet(1)), podtest.Labels(nil), version("5"))}, false},
		"X9 P12 a creation":                         {1, nil, true},
		"X9 W41 a deletion that left the pod there": {0, []*corev1.Pod{podtest.Pod("a", owned(replicaSet(1)), version("5"))}, true},
	} {
		t.Run(name+" is not made twice while the cache does not show it", func(t *testing.T) {
			t.Parallel()
			r := atVersions(newRig(tc.want), "5", "9")
			r.patched = func(p *corev1.Pod) {
				if p.Name == "leaves" {
					p.OwnerReferences = nil
				}
			}
			_, err := r.pass(t, 0, tc.pods...)
			require.NoError(t, err)
			pass, err := r.pass(t, 0, tc.pods...)
			require.NoError(t, err)
			assert.True(t, pass.Observed)
			assert.Empty(t, r.calls)
			if tc.waits {
				assert.Equal(t, 5*time.Minute+1, pass.RequeueAfter, "events come before that")
			}
			*r.owner.Spec.Replicas++
			pass, err = r.pass(t, 0, tc.pods...)
			require.NoError(t, err)
			assert.Equal(t, tc.waits, pass.Waiting())
		})
	}
	t.Run("X4 an owner that is gone leaves no record", func(t *testing.T) {
		t.Parallel()
		for _, forget := range []func(r *podRig, t *testing.T){(*podRig).forget} {
			r := atVersions(newRig(1), "5", "9")
			_, err := r.pass(t, 0)
			require.NoError(t, err)
			forget(r, t)
			pass, err := r.pass(t, 0)
			require.NoError(t, err)
			assert.True(t, pass.Observed)
		}
	})
}

func TestSyncRefuses(t *testing.T) {
	t.Parallel()
	t.Run("Y5 W7 a spec that can not be acted on is told once for each generation, and is no error", func(t *testing.T) {
		t.Parallel()
		for reason, spoil := range map[string]func(rs *appsv1.ReplicaSet){
			replicas.InvalidTemplate: func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = map[string]string{"app": "db"} },
			replicas.InvalidSelector: func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = nil },
			replicas.InvalidReplicas: func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = -1 },
		} {
			r := newRig(1)
			spoil(r.owner)
			pass, err := r.pass(t, 0)
			require.NoError(t, err, "trying again is useless")
			assert.Zero(t, pass.RequeueAfter)
			requireRefused(t, pass.Err, reason)
			assert.Equal(t, []string{"Warning " + reason + " " + pass.Err.Error()}, r.events)
			pass, err = r.pass(t, 0)
			require.NoError(t, err)
			requireRefused(t, pass.Err, reason)
			assert.Empty(t, r.events)
			r.owner.Generation++
			_, _ = r.pass(t, 0)
			assert.Len(t, r.events, 1)
			assert.Empty(t, r.calls)
			assert.Empty(t, r.statuses)
		}
	})
	refusing := func() *podRig {
		r := newRig(2)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := spec(rs)
			s.New = func(string) (*corev1.Pod, error) {
				return nil, &replicas.RefusedError{Reason: "InvalidImage", Err: errors.New("image has no tag")}
			}
			return s, err
		}
		return r
	}
	t.Run("a child that New refuses to make is told once for each generation, and is no error", func(t *testing.T) {
		t.Parallel()
		r := refusing()
		told := 0
		for range 3 {
			pass, err := r.pass(t, 0)
			require.NoError(t, err, "trying again is useless")
			requireRefused(t, pass.Err, "InvalidImage")
			told += len(r.events)
		}
		assert.Equal(t, 1, told)
		r.owner.Generation++
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, r.eventsOf("Warning InvalidImage"), 1)
	})
	t.Run("W48 a status write, or a claim, that fails beside a refusal comes back", func(t *testing.T) {
		t.Parallel()
		r := refusing()
		away := errors.New("the server is away")
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return away }
		pass, err := r.pass(t, 0)
		require.ErrorIs(t, err, away)
		requireRefused(t, pass.Err, "InvalidImage")
		require.ErrorIs(t, pass.StatusErr, away)
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return nil }
		r.patch = func(*corev1.Pod) error { return away }
		_, err = r.pass(t, 0, podtest.Pod("orphan"))
		require.ErrorIs(t, err, away)
	})
	t.Run("M1 W42 a refusal changes nothing about when else to come back", func(t *testing.T) {
		t.Parallel()
		r := refusing()
		r.owner.Spec.MinReadySeconds = 90
		ready := podtest.Pod("a", owned(r.owner), podtest.ReadySince(podtest.Now.Add(-time.Minute)))
		pass, err := r.pass(t, 0, ready)
		require.NoError(t, err)
		requireRefused(t, pass.Err, "InvalidImage")
		assert.Equal(t, 30*time.Second, pass.RequeueAfter, "then it is available")
		r = refusing()
		r.patch = func(p *corev1.Pod) error { return invalid(p.Name) }
		pass, err = r.pass(t, 0, podtest.Pod("orphan"))
		require.NoError(t, err)
		requireRefused(t, pass.Err, "InvalidImage")
		assert.Equal(t, time.Minute, pass.RequeueAfter, "then the orphan is tried again")
	})
	t.Run("an error of Spec that is no refusal comes back, and one event tells it", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		boom := errors.New("not today")
		r.kind.Spec = func(*appsv1.ReplicaSet) (replicas.SpecOfPods, error) { return replicas.SpecOfPods{}, boom }
		_, err := r.pass(t, 0)
		require.ErrorIs(t, err, boom)
		require.EqualError(t, err, `controller: ReplicaSet "default/web": Kind.Spec failed: not today`)
		assert.Equal(t, []string{"Warning FailedSpec " + err.Error()}, r.events)
		_, err = r.pass(t, 0)
		require.ErrorIs(t, err, boom)
		assert.Empty(t, r.events, "once")
	})
	t.Run("a panic of Spec goes on, and an event tells it", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		spec := func(*appsv1.ReplicaSet) (replicas.SpecOfPods, error) { panic("nil map") }
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) { return spec(rs) }
		assert.PanicsWithValue(t, "nil map", func() { _, _ = r.pass(t, 0) })
		assert.Equal(t, []string{`Warning Panicked controller: ReplicaSet "default/web": a function of the Kind or the client panicked, and the log has the stack: nil map`}, r.events)
		assert.InDelta(t, 1, r.metric(t, "gated_owners", "PassPanicked"), 0)
		spec = replicas.ReplicaSetSpec
		_, err := r.pass(t, 1)
		require.NoError(t, err)
		assert.Zero(t, r.metric(t, "gated_owners", "PassPanicked"))
	})
	t.Run("a panic of Observe goes on, and Observe is not called again", func(t *testing.T) {
		t.Parallel()
		r, calls := newRig(1), 0
		r.kind.Observe = func(context.Context, podPass) {
			calls++
			panic("nil map")
		}
		assert.PanicsWithValue(t, "nil map", func() { _, _ = r.pass(t, 0) })
		assert.Equal(t, 1, calls)
		assert.Len(t, r.eventsOf("Warning Panicked"), 1)
	})
	t.Run("a kind that is not the owner's own is an error", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.owner.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		r = newRig(1)
		r.owner.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "RepilcaSet"}
		_, err = r.pass(t, 0)
		require.EqualError(t, err, `replicas: owner "default/web": its apiVersion and kind say RepilcaSet.apps, but Spec.Kind, which a Controller takes from Kind.Owner, is "apps/v1, Kind=ReplicaSet"`)
		assert.Len(t, r.eventsOf("Warning FailedSpec"), 1)
		assert.Empty(t, r.calls)
	})
}

func TestPaused(t *testing.T) {
	t.Parallel()
	r := newRig(3)
	pods, paused, original := podsOf(r.owner, 2), true, r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		spec, err := original(rs)
		spec.Paused = paused
		return spec, err
	}
	pass, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	assert.Empty(t, pass.Created, "paused")
	require.NotNil(t, pass.Status)
	assert.EqualValues(t, 2, pass.Status.Status.Replicas, "the status goes on")

	paused = false
	pass, err = r.pass(t, 1, pods...)
	require.NoError(t, err)
	assert.Len(t, pass.Created, 1, "no longer paused")
}
