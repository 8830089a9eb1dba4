// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

func TestClaims(t *testing.T) {
	t.Parallel()
	relabelled := podtest.Labels(map[string]string{"app": "debug"})
	t.Run("Y8 B1 adopted pods count, released ones do not", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		pass, err := r.pass(t, 0,
			podtest.Pod("orphan"), podtest.Pod("owned", owned(r.owner)), podtest.Pod("leaves", owned(r.owner), relabelled))
		require.NoError(t, err)
		assert.Equal(t, []string{"orphan"}, names(pass.Adopted))
		assert.Equal(t, []string{"leaves"}, names(pass.Released))
		assert.Equal(t, []string{"owned", "orphan"}, names(pass.Active))
		assert.Len(t, pass.Created, 1)
		assert.Equal(t, []string{
			"read owner",
			`patch orphan {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"uid-of-web","controller":true,"blockOwnerDeletion":true}],"uid":"uid-orphan"}}`,
			`patch leaves {"metadata":{"uid":"uid-leaves","ownerReferences":[{"$patch":"delete","uid":"uid-of-web"}]}}`,
			"create default/web-bbbbb",
		}, r.calls, "claims come before creation")
	})
	t.Run("C17 the owner is read live once, and only to adopt", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		_, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		_, err = r.pass(t, 0, podtest.Pod("a"), podtest.Pod("b"))
		require.NoError(t, err)
		assert.Equal(t, 1, count(r.calls, "read owner"))
	})
	t.Run("C18 C19 an owner that is gone, replaced or being deleted adopts nothing and is an error", func(t *testing.T) {
		t.Parallel()
		now := metav1.NewTime(podtest.Now)
		for name, read := range map[string]func(r *podRig) (*appsv1.ReplicaSet, error){
			"gone": func(*podRig) (*appsv1.ReplicaSet, error) { return nil, notFound("web") },
			"replaced": func(*podRig) (*appsv1.ReplicaSet, error) {
				other := replicaSet(1)
				other.UID = "other"
				return other, nil
			},
			"deleted": func(*podRig) (*appsv1.ReplicaSet, error) {
				dying := replicaSet(1)
				dying.DeletionTimestamp = &now
				return dying, nil
			},
		} {
			r := newRig(5)
			r.getOwner = func() (*appsv1.ReplicaSet, error) { return read(r) }
			pass, err := r.pass(t, 0, podtest.Pod("a"), podtest.Pod("b"))
			require.ErrorContains(t, err, "can't adopt", name)
			assert.Equal(t, 2, pass.Failed)
			assert.Equal(t, []string{"read owner"}, r.calls, "no patch, no creation")
			assert.True(t, pass.Observed && pass.Waiting())
			require.NoError(t, pass.ScaleErr, "claim errors set no ReplicaFailure")
			adds, _ := r.pending()
			assert.Zero(t, adds)
		}
	})
	t.Run("C15 a pod that is gone is not adopted and no error", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patch = func(pod *corev1.Pod) error { return fmt.Errorf("wrapped: %w", notFound(pod.Name)) }
		pass, err := r.pass(t, 0, podtest.Pod("orphan"))
		require.NoError(t, err)
		assert.Empty(t, pass.Adopted)
		assert.Len(t, pass.Created, 1, "it is replaced")
	})
	t.Run("C15 and it is not asked for again, though the cache has it", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patch = func(p *corev1.Pod) error { return notFound(p.Name) }
		mine, orphan := podtest.Pod("mine", owned(r.owner)), podtest.Pod("orphan")
		_, err := r.pass(t, 0, mine, orphan)
		require.NoError(t, err)
		require.Len(t, r.callsOf("patch"), 1)
		for i := range 10 {
			pass, err := r.pass(t, i, mine, orphan)
			require.NoError(t, err)
			assert.Empty(t, r.calls)
			assert.Len(t, pass.Active, 1)
		}
	})
	t.Run("C15 one that is to be released and is gone is not asked for again, though a call has shown it", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return timeout() }
		r.get = func(name string) (*corev1.Pod, error) {
			return podtest.Pod(name, owned(r.owner), podtest.Labels(api)), nil
		}
		_, err := r.pass(t, 0)
		require.ErrorContains(t, err, "is there, but its labels")
		r.patch = func(p *corev1.Pod) error { return notFound(p.Name) }
		mine := podtest.Pod("mine", owned(r.owner))
		pass, err := r.pass(t, 1, mine)
		require.NoError(t, err)
		require.Equal(t, []string{"web-bbbbb"}, names(pass.Released))
		for hour := range 3 {
			pass, err = r.pass(t, 3600*(1+hour), mine)
			require.NoError(t, err)
			assert.Empty(t, r.calls)
			assert.Empty(t, pass.Released)
		}
	})
	t.Run("an adoption whose answer has no controller is undecided and holds its place", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patched = func(p *corev1.Pod) { p.OwnerReferences = nil } // a webhook does that
		for second := range 600 {
			pass, err := r.pass(t, second, podtest.Pod("orphan"))
			if len(r.callsOf("patch")) > 0 {
				require.ErrorContains(t, err, "the answer is not controlled by")
			}
			assert.Empty(t, pass.Adopted)
			assert.Equal(t, []string{"orphan"}, names(pass.AdoptionPending))
			assert.Empty(t, r.callsOf("create"))
		}
	})
	t.Run("an adoption whose answer another owner controls is refused", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patched = func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }
		pass, err := r.pass(t, 0, podtest.Pod("orphan"))
		require.NoError(t, err)
		assert.Empty(t, pass.Adopted)
		assert.Equal(t, []string{"orphan"}, names(pass.AdoptionRejected))
		assert.Len(t, pass.Created, 1)
	})
	t.Run("W42 a pod that the server calls invalid is set aside and everything else goes on", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.patch = func(pod *corev1.Pod) error {
			if pod.Name == "barred" {
				return invalid(pod.Name)
			}
			return nil
		}
		pass, err := r.pass(t, 0, podtest.Pod("barred"), podtest.Pod("free"))
		require.NoError(t, err)
		assert.Equal(t, []string{"barred"}, names(pass.AdoptionRejected))
		assert.Equal(t, []string{"free"}, names(pass.Adopted))
		assert.Len(t, pass.Created, 2)
		assert.Equal(t, 5*time.Second, pass.RequeueAfter, "the cache may not show the adoption")
		pass, err = r.pass(t, 1, podtest.Pod("barred"))
		require.NoError(t, err)
		assert.Equal(t, 59*time.Second, pass.RequeueAfter, "the policy may go")
	})
	t.Run("W42 a pod set aside is not patched again for a minute, unless it or the owner's generation changes", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.patch = func(pod *corev1.Pod) error { return invalid(pod.Name) }
		orphans := make([]*corev1.Pod, 200)
		for i := range orphans {
			orphans[i] = podtest.Pod(fmt.Sprintf("orphan-%03d", i))
			orphans[i].ResourceVersion = "7"
		}
		patches := func(seconds int) int {
			pass, err := r.pass(t, seconds, orphans...)
			require.NoError(t, err)
			assert.Len(t, pass.AdoptionRejected, 200, "told in each pass")
			assert.Positive(t, pass.RequeueAfter)
			return len(r.callsOf("patch"))
		}
		assert.Equal(t, 200, patches(0))
		for range 100 {
			assert.Zero(t, patches(59))
		}
		assert.Empty(t, r.calls, "nor is the owner read")
		assert.Equal(t, 200, patches(60))
		orphans[3].ResourceVersion = "8"
		assert.Equal(t, 1, patches(61))
		orphans[4] = orphans[4].DeepCopy()
		orphans[4].UID = "uid-again"
		assert.Equal(t, 1, patches(62))
		pass, err := r.pass(t, 63, orphans[10:]...)
		require.NoError(t, err)
		assert.Equal(t, 57*time.Second, pass.RequeueAfter)
		assert.Equal(t, 10, patches(63), "what was not seen is not remembered")
		r.owner.Generation++
		assert.Equal(t, 200, patches(63))
		assert.Equal(t, 0, patches(-3600), "a clock that goes back starts the wait again")
		assert.Equal(t, 200, patches(-3540))
		r.forget(t)
		assert.Equal(t, 200, patches(-3540))
	})
	t.Run("W42 C26 a pod whose adoption is not decided is tried again at growing intervals, whatever events come", func(t *testing.T) {
		t.Parallel()
		r := newRig(200)
		r.patch = func(pod *corev1.Pod) error { return forbidden(pod.Name, "policy") }
		orphans := make([]*corev1.Pod, 200)
		for i := range orphans {
			orphans[i] = podtest.Pod(fmt.Sprintf("orphan-%03d", i))
			orphans[i].ResourceVersion = "7"
		}
		all := 0
		for i := range 100 {
			pass, err := r.pass(t, 0, orphans...)
			all += len(r.callsOf("patch"))
			assert.Equal(t, i == 0, err != nil, "an error only if it was tried")
			assert.True(t, pass.Observed)
			assert.Empty(t, pass.Created)
			assert.Len(t, pass.AdoptionPending, 200, "told in each pass")
			assert.Empty(t, pass.AdoptionRejected, "they may be ours yet")
			assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
		}
		assert.Equal(t, 200, all, "100 passes at one instant")
		pass, err := r.pass(t, 1, orphans...)
		assert.True(t, apierrors.IsForbidden(err))
		assert.Len(t, r.callsOf("patch"), 200)
		assert.Equal(t, 100*time.Millisecond, pass.RequeueAfter)
		orphans[3].ResourceVersion = "8"
		_, err = r.pass(t, 1, orphans...)
		require.Error(t, err)
		assert.Len(t, r.callsOf("patch"), 1, "it has changed")
		r.patch = func(*corev1.Pod) error { return nil }
		pass, err = r.pass(t, 2, orphans...)
		require.NoError(t, err)
		assert.Len(t, pass.Adopted, 200)
		assert.Empty(t, pass.AdoptionPending)
	})
	t.Run("W42 a pod is set aside from the end of its call on", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		orphan := podsOf(r.owner, 1)[0]
		orphan.OwnerReferences = nil
		r.patch = func(p *corev1.Pod) error {
			r.now = r.now.Add(2 * time.Minute)
			return invalid(p.Name)
		}
		pass, err := r.pass(t, 0, orphan)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, pass.RequeueAfter)
		pass, err = r.pass(t, 130, orphan)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("patch"))
		assert.Equal(t, 50*time.Second, pass.RequeueAfter)
	})
	t.Run("C13 C26 any other failure keeps the other claims, and holds one place: no pod is created in its stead", func(t *testing.T) {
		t.Parallel()
		for _, failure := range []error{forbidden("x", "policy"), apierrors.NewBadRequest("x"), conflict("x"), busy(2), errors.New("connection lost"), context.DeadlineExceeded} {
			for _, want := range []int32{0, 3, 4, 9} {
				r := newRig(want)
				r.patch = func(pod *corev1.Pod) error {
					if pod.Name == "b" {
						return failure
					}
					return nil
				}
				pass, err := r.pass(t, 0, podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("c"), podtest.Pod("mine", owned(r.owner)))
				require.ErrorIs(t, err, failure)
				assert.Equal(t, []string{"a", "c"}, names(pass.Adopted))
				assert.Equal(t, []string{"b"}, names(pass.AdoptionPending))
				assert.Len(t, pass.Active, 3)
				assert.Len(t, pass.Created, max(int(want)-4, 0))
				assert.Len(t, pass.Deleted, max(3-int(want), 0), "and none is deleted because of it")
				assert.True(t, pass.Observed)
				assert.Equal(t, 1, pass.Failed)
				assert.Equal(t, []string{"Warning FailedAdopt Error adopting b: " + failure.Error()}, r.eventsOf("Warning"))
				require.NoError(t, pass.ScaleErr)
			}
		}
	})
	t.Run("an adoption that fails is told again after a pass that had none", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patch = func(pod *corev1.Pod) error { return conflict(pod.Name) }
		for _, orphans := range [][]*corev1.Pod{{podtest.Pod("orphan")}, nil, {podtest.Pod("orphan")}} {
			_, _ = r.pass(t, 0, append(podsOf(r.owner, 1), orphans...)...)
			assert.Len(t, r.eventsOf("Warning FailedAdopt"), len(orphans))
		}
	})
	t.Run("C26 the places that the Kind holds stay held beside them", func(t *testing.T) {
		t.Parallel()
		for held, want := range map[int]int{0: 3, 2: 1, 9: 0, math.MaxInt: 0} {
			r := newRig(5)
			spec := r.kind.Spec
			r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
				s, err := spec(rs)
				s.PendingAdoptions = held
				return s, err
			}
			r.patch = func(*corev1.Pod) error { return forbidden("b", "policy") }
			pass, err := r.pass(t, 0, podtest.Pod("b"), podtest.Pod("mine", owned(r.owner)))
			require.ErrorContains(t, err, "policy")
			assert.Equal(t, want, len(pass.Created), held) //nolint:testifylint // pods are long
		}
	})
	t.Run("C13 every failed claim is told", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.patch = func(pod *corev1.Pod) error { return errors.New("no " + pod.Name) }
		_, err := r.pass(t, 0, podtest.Pod("a"), podtest.Pod("leaves", owned(r.owner), relabelled))
		require.ErrorContains(t, err, "no a")
		require.ErrorContains(t, err, "no leaves")
	})
	t.Run("a pod set aside does not replace the rate limiter of a failure", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.patch = func(pod *corev1.Pod) error { return invalid(pod.Name) }
		r.create = func(int) error { return errors.New("boom") }
		pass, err := r.pass(t, 0, podtest.Pod("a"))
		require.Error(t, err)
		assert.Zero(t, pass.RequeueAfter)
	})
	t.Run("a client that answers without a pod has adopted it all the same", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.silent = true
		pass, err := r.pass(t, 0, podtest.Pod("a"))
		require.NoError(t, err)
		assert.Len(t, pass.Active, 1)
	})
	t.Run("C14 an adopted pod that turns out to be on its way out does not count", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patched = podtest.Deleting
		pass, err := r.pass(t, 0, podtest.Pod("a"))
		require.NoError(t, err)
		assert.Len(t, pass.Adopted, 1)
		assert.Empty(t, pass.Active)
		assert.Len(t, pass.Created, 1)
	})
	t.Run("C13 pods are released though no pod may be adopted", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, notFound("web") }
		pass, err := r.pass(t, 0, podtest.Pod("a"), podtest.Pod("leaves", owned(r.owner), relabelled))
		require.Error(t, err)
		assert.Equal(t, []string{"leaves"}, names(pass.Released))
	})
	t.Run("C16 a pod that is gone or replaced is as good as released", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{notFound("x"), invalid("x")} {
			r := newRig(1)
			r.patch = func(*corev1.Pod) error { return err }
			pass, err := r.pass(t, 0, podtest.Pod("x", owned(r.owner), relabelled))
			require.NoError(t, err)
			assert.Len(t, pass.Released, 1)
			assert.Len(t, pass.Created, 1)
		}
	})
	t.Run("C16 a release that is called Invalid is tried again after a minute: a policy may have said so", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patch = func(*corev1.Pod) error { return invalid("x") }
		leaves := podtest.Pod("x", owned(r.owner), relabelled)
		pass, err := r.pass(t, 0, leaves)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, pass.RequeueAfter)
		pass, err = r.pass(t, 59, leaves)
		require.NoError(t, err)
		assert.Empty(t, r.calls, "not in each pass")
		assert.Equal(t, time.Second, pass.RequeueAfter)
		pass, err = r.pass(t, 60, leaves)
		require.NoError(t, err)
		assert.Equal(t, []string{"x"}, names(pass.Released), "it is")
	})
	t.Run("C16 W27 a release that failed is told, and the server's delay heeded, also if the owner must not adopt", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, notFound("web") }
		r.patch = func(*corev1.Pod) error { return busy(7) }
		pass, err := r.pass(t, 0, podtest.Pod("x", owned(r.owner), relabelled), podtest.Pod("orphan"))
		require.Error(t, err)
		assert.Equal(t, 7*time.Second, pass.RequeueAfter)
		assert.Equal(t, []string{"Warning FailedRelease Error releasing x: " + busy(7).Error()}, r.eventsOf("Warning"))
	})
	t.Run("C16 a release that failed otherwise is an error, changes no count and is told once while it lasts", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.patch = func(pod *corev1.Pod) error { return conflict(pod.Name) }
		leaves := podtest.Pod("x", owned(r.owner), relabelled)
		pass, err := r.pass(t, 0, leaves)
		assert.True(t, apierrors.IsConflict(err))
		assert.Len(t, pass.Created, 2)
		assert.Empty(t, pass.Released)
		assert.Equal(t, []string{"Warning FailedRelease Error releasing x: " + conflict("x").Error()}, r.eventsOf("Warning"))
		_, err = r.pass(t, 0, leaves)
		require.NoError(t, err)
		assert.Empty(t, r.calls, "it is held for a second")
		pass, err = r.pass(t, 1, leaves)
		require.Error(t, err)
		assert.Equal(t, 1, pass.Failed, "it is tried again")
		assert.Zero(t, pass.RequeueAfter, "the rate limiter says when")
		assert.Empty(t, r.events)
		r.patch = func(*corev1.Pod) error { return nil }
		_, err = r.pass(t, 3, leaves)
		require.NoError(t, err)
		r.patch = func(pod *corev1.Pod) error { return conflict(pod.Name) }
		_, err = r.pass(t, 3, leaves)
		require.Error(t, err)
		assert.Len(t, r.events, 1, "another one is told again")
		_, err = r.pass(t, 3)
		require.NoError(t, err)
		_, err = r.pass(t, 3, leaves)
		require.Error(t, err)
		assert.Len(t, r.events, 1, "so is one after a pass that had none to release")
	})
	t.Run("a context that has ended is an error, and decides nothing, if nothing is to be claimed", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.children = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 2), nil }
		r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
			t.Error("it is too late to scale")
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		pass, err := r.sync(t, ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.True(t, pass.Waiting())
	})
	t.Run("W39 claims run in parallel within the cap", func(t *testing.T) {
		t.Parallel()
		r := newRig(8)
		r.opts.MaxParallel = 8
		together := make(chan struct{})
		var under atomic.Int64
		r.patch = func(*corev1.Pod) error {
			if under.Add(1) == 8 {
				close(together)
			}
			<-together
			return nil
		}
		var orphans []*corev1.Pod
		for i := range 8 {
			orphans = append(orphans, podtest.Pod(strconv.Itoa(i)))
		}
		pass, err := r.pass(t, 0, orphans...)
		require.NoError(t, err)
		assert.Len(t, pass.Adopted, 8)
	})
	t.Run("C14 an adopted pod goes on as the server has it now, so that it may be deleted in the same pass", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		orphan := podtest.Pod("orphan")
		orphan.ResourceVersion, r.version = "old", "patched"
		r.remove = func(_ *corev1.Pod, opts metav1.DeleteOptions) error {
			assert.Equal(t, "patched", *opts.Preconditions.ResourceVersion)
			return nil
		}
		pass, err := r.pass(t, 0, orphan)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1)
	})
}

// A cache that is behind shows what was adopted or released as it was before. A merge
// patch that names a version would fail.
func TestClaimsThatTheCacheDoesNotShowYet(t *testing.T) {
	t.Parallel()
	relabelled := podtest.Labels(map[string]string{"app": "debug"})
	r := newRig(3)
	r.version = "9"
	r.patched = func(pod *corev1.Pod) {
		pod.OwnerReferences = nil
		if pod.Labels["app"] != "debug" {
			owned(r.owner)(pod)
		}
	}
	stays := podtest.Pod("stays", owned(r.owner), version("5"))
	orphan, leaves := podtest.Pod("orphan", version("7")), podtest.Pod("leaves", owned(r.owner), relabelled, version("8"))
	first, err := r.pass(t, 0, stays, orphan, leaves, podtest.Pod("mine", owned(r.owner), version("6")))
	require.NoError(t, err)
	require.Equal(t, []string{"orphan"}, names(first.Adopted))
	require.Equal(t, []string{"leaves"}, names(first.Released))

	mine := podtest.Pod("mine", owned(r.owner), version("6"))
	for _, seconds := range []int{1, 2, 299} {
		behind, err := r.pass(t, seconds, stays, orphan, leaves, mine)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.ElementsMatch(t, []string{"stays", "mine", "orphan"}, names(behind.Active))
	}
	gone, err := r.pass(t, 299, stays, mine)
	require.NoError(t, err)
	assert.Len(t, gone.Created, 1, "what left the cache is no more")

	r = newRig(1)
	r.version = "9"
	r.patched = owned(r.owner)
	_, err = r.pass(t, 0, orphan)
	require.NoError(t, err)
	r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{podtest.Pod("orphan", version("10"))}, nil }
	_, err = r.passAt(t, 5*time.Minute+1, orphan)
	require.NoError(t, err)
	assert.Len(t, r.callsOf("list"), 1, "the answer proves nothing any more")
	assert.Len(t, r.callsOf("patch orphan"), 1)

	again := podtest.Pod("orphan", version("12"))
	_, err = r.pass(t, 301, again)
	require.NoError(t, err)
	assert.Len(t, r.callsOf("patch orphan"), 1, "somebody made it an orphan again")
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{forbidden("orphan", "policy"), apierrors.NewBadRequest("policy")} {
		t.Run("W42 C26 "+string(apierrors.ReasonForError(refusal))+" for five minutes gives the place up, if a dry run shows that rights and admission work", func(t *testing.T) {
			t.Parallel()
			r := newRig(3)
			r.patch = func(*corev1.Pod) error { return refusal }
			orphan, mine := podtest.Pod("orphan", version("7")), podsOf(r.owner, 2)
			pass := func(seconds int) podPass {
				pass, _ := r.pass(t, seconds, append(mine, orphan)...)
				return pass
			}
			for seconds := 0; seconds < 300; seconds += 10 {
				assert.Equal(t, []string{"orphan"}, names(pass(seconds).AdoptionPending))
				assert.Empty(t, r.callsOf("dry-run"))
				assert.Empty(t, r.callsOf("create"), "the place is held")
			}
			given := pass(360)
			assert.Len(t, r.callsOf("dry-run web-000"), 1)
			assert.Equal(t, []string{"orphan"}, names(given.AdoptionRejected))
			assert.Len(t, given.Created, 1)

			r.settle()
			mine = append(mine, podtest.Pod(given.Created[0].Name, owned(r.owner)))
			still := pass(430)
			assert.Len(t, r.callsOf("patch"), 1, "it is tried again")
			assert.Equal(t, []string{"orphan"}, names(still.AdoptionRejected), "and its place is not held anew")
			assert.Empty(t, r.eventsOf("Warning"), "nor is it told again")
			mine = mine[1:]
			assert.Len(t, pass(440).Created, 1, "who is lost is replaced")
		})
	}
	t.Run("W42 C26 one dry run tells of all", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.patch = func(pod *corev1.Pod) error { return forbidden(pod.Name, "policy") }
		pods := append(podsOf(r.owner, 2), podtest.Pod("a", version("7")), podtest.Pod("b", version("7")), podtest.Pod("c", version("7")))
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		pass, _ := r.pass(t, 301, pods...)
		assert.Len(t, pass.AdoptionRejected, 3)
		assert.Len(t, r.callsOf("dry-run"), 1)
	})
	t.Run("W42 C26 a look at the owner that fails, or a context that ends, does not make what was learnt forgotten", func(t *testing.T) {
		t.Parallel()
		r := newRig(4)
		r.patch = func(pod *corev1.Pod) error {
			if pod.Name == "invalid" {
				return invalid(pod.Name)
			}
			return forbidden(pod.Name, "policy")
		}
		pods := append(podsOf(r.owner, 2), podtest.Pod("orphan", version("7")), podtest.Pod("invalid", version("7")))
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		getOwner := r.getOwner
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, busy(0) }
		_, err = r.pass(t, 20, pods...)
		require.Error(t, err)
		r.getOwner = getOwner
		r.children = func() ([]*corev1.Pod, error) { return pods, nil }
		r.now = podtest.Now.Add(40 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.sync(t, ctx)
		require.Error(t, err)
		_, err = r.pass(t, 50, pods...)
		require.Error(t, err)
		assert.Empty(t, r.callsOf("patch invalid"), "set aside for a minute")
		r.settle()
		pass, _ := r.pass(t, 301, pods...)
		assert.Equal(t, []string{"orphan"}, names(pass.AdoptionRejected[:1]), "refused for five minutes")
		assert.Len(t, r.callsOf("dry-run web-000"), 1)
	})
	t.Run("W42 C26 a dry run that fails, or nobody to try it with, keeps the place", func(t *testing.T) {
		t.Parallel()
		for _, mine := range [][]*corev1.Pod{podsOf(replicaSet(1), 2), nil} {
			r := newRig(3)
			r.patch = func(pod *corev1.Pod) error { return forbidden(pod.Name, "no right") }
			r.dryRun = r.patch
			for _, seconds := range []int{0, 360, 720, 3600} {
				pass, _ := r.pass(t, seconds, append(mine, podtest.Pod("orphan", version("7")))...)
				r.settle()
				assert.Equal(t, []string{"orphan"}, names(pass.AdoptionPending))
				assert.Len(t, pass.Created, 2-len(mine))
			}
		}
	})
	t.Run("C26 no other refusal gives a place up", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.patch = func(*corev1.Pod) error { return busy(0) }
		for _, seconds := range []int{0, 360, 3600} {
			pass, _ := r.pass(t, seconds, append(podsOf(r.owner, 2), podtest.Pod("orphan", version("7")))...)
			assert.Equal(t, []string{"orphan"}, names(pass.AdoptionPending))
			assert.Empty(t, r.callsOf("dry-run"))
		}
	})
}
