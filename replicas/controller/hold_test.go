// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/podtest"
)

func TestHolds(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]func() error{
		"S10 W10 P11 a terminating namespace": namespaceTerminating,
		"S10 W10 a namespace that is gone":    namespaceGone,
	} {
		t.Run(name+" stops at once: no error, no event, nothing expected, hold a minute, doubling to five", func(t *testing.T) {
			t.Parallel()
			r := newRig(50)
			r.create = func(int) error { return fmt.Errorf("wrapped: %w", cause()) }
			at := 0
			for _, minutes := range []int{1, 2, 4, 5, 5} {
				calls := r.created.Load()
				pass, err := r.pass(t, at)
				require.NoError(t, err)
				require.NoError(t, pass.ScaleErr)
				assert.Equal(t, calls+1, r.created.Load(), "one call, not fifty")
				assert.Empty(t, r.events)
				adds, _ := r.pending()
				assert.Zero(t, adds)
				assert.True(t, pass.Waiting())
				assert.Equal(t, time.Duration(minutes)*time.Minute, pass.RequeueAfter)

				pass, err = r.pass(t, at+minutes*60-1)
				require.NoError(t, err)
				assert.Equal(t, time.Second, pass.RequeueAfter, "an event in between creates nothing")
				assert.True(t, pass.Waiting())
				assert.Equal(t, calls+1, r.created.Load())
				at += minutes * 60
			}
			r.create = func(int) error { return nil }
			pass, err := r.pass(t, at)
			require.NoError(t, err)
			assert.Len(t, pass.Created, 50)
		})
	}
	t.Run("W10 W20 an ending namespace beside another failure holds, and the other is the error", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		boom := errors.New("boom")
		r.create = func(i int) error {
			return [](func() error){func() error { return nil }, namespaceTerminating, func() error { return boom }}[i]()
		}
		pass, err := r.pass(t, 0)
		require.ErrorIs(t, err, boom)
		assert.Equal(t, time.Minute, pass.RequeueAfter)
		pass, err = r.pass(t, 1, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		assert.True(t, pass.Waiting())
	})
	t.Run("W10 W27 an ending namespace does not shorten what a server asked to wait", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.patch = func(*corev1.Pod) error { return busy(200) }
		r.create = func(i int) error { return []error{nil, namespaceTerminating(), errors.New("boom")}[i] }
		pass, err := r.pass(t, 0, podtest.Pod("orphan"))
		require.Error(t, err)
		assert.Equal(t, 200*time.Second, pass.RequeueAfter)
	})
	t.Run("any other 404 on creation is an error", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "x") }
		pass, err := r.pass(t, 0)
		assert.True(t, apierrors.IsNotFound(err))
		assert.Zero(t, pass.RequeueAfter)
	})
	t.Run("a clock that goes back an hour does not hold for an hour", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(i int) error {
			if i == 0 {
				return quotaFull()
			}
			return nil
		}
		_, err := r.pass(t, 3600)
		require.Error(t, err)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, time.Second, pass.RequeueAfter)
		pass, err = r.pass(t, 1)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
	})
	t.Run("a full quota is an error and holds for a second, doubling to a minute", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(int) error { return quotaFull() }
		at := 0
		for _, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
			pass, err := r.pass(t, at)
			assert.True(t, apierrors.IsForbidden(err))
			assert.Equal(t, time.Duration(seconds)*time.Second, pass.RequeueAfter)
			at += seconds
		}
	})
	t.Run("a full quota is tried again when a pod of the owner is gone, not when it begins to go", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		full := true
		r.create = func(int) error {
			if full {
				return quotaFull()
			}
			return nil
		}
		pods := podsOf(r.owner, 3)
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		full = false
		podtest.Deleting(pods[2])
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.True(t, pass.Waiting())
		assert.Empty(t, pass.Created)
		pass, err = r.pass(t, 0, pods[:2]...)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 3)
	})
	t.Run("a full quota counts what was still created", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(i int) error {
			if i >= 2 {
				return quotaFull()
			}
			return nil
		}
		pass, err := r.pass(t, 0)
		require.Error(t, err)
		require.Len(t, pass.Created, 2)
		r.settle()
		calls := r.created.Load()
		_, err = r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		assert.Equal(t, calls, r.created.Load(), "nothing is gone")
		_, err = r.pass(t, 0, podsOf(r.owner, 1)...)
		require.Error(t, err)
		assert.Greater(t, r.created.Load(), calls, "one of the two created is gone")
	})
	t.Run("a namespace that ends holds though pods go", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(i int) error {
			if i == 0 {
				return quotaFull()
			}
			return namespaceTerminating()
		}
		_, err := r.pass(t, 0, podsOf(r.owner, 3)...)
		require.Error(t, err)
		_, err = r.pass(t, 2, podsOf(r.owner, 3)...)
		require.NoError(t, err)
		_, err = r.pass(t, 2, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		assert.EqualValues(t, 2, r.created.Load())
	})
	t.Run("a success ends a hold", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(i int) error {
			if i == 0 || i == 2 {
				return quotaFull()
			}
			return nil
		}
		pass, _ := r.pass(t, 0)
		assert.Equal(t, time.Second, pass.RequeueAfter)
		pass, _ = r.pass(t, 1)
		assert.Equal(t, time.Second, pass.RequeueAfter, "one was created, so the next hold is a first one")
	})
	t.Run("a new generation of the owner, and Forget, end a hold", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(r *podRig){
			"generation": func(r *podRig) { r.owner.Generation++ },
			"Forget":     func(r *podRig) { r.forget(t) },
		} {
			r := newRig(5)
			r.create = func(i int) error {
				if i == 0 {
					return quotaFull()
				}
				return nil
			}
			_, _ = r.pass(t, 0)
			pass, err := r.pass(t, 0)
			require.NoError(t, err)
			assert.Empty(t, pass.Created)
			end(r)
			pass, err = r.pass(t, 0)
			require.NoError(t, err)
			assert.Len(t, pass.Created, 5, name)
		}
	})
	t.Run("creations are held from the end of their calls on, however long these took", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			err  error
			hold time.Duration
		}{"quota": {quotaFull(), time.Second}, "namespace": {namespaceTerminating(), time.Minute}, "Retry-After": {busy(7), 7 * time.Second}} {
			r := newRig(1)
			r.create = func(int) error {
				r.now = r.now.Add(2 * time.Minute)
				return c.err
			}
			pass, _ := r.pass(t, 0)
			assert.Equal(t, c.hold, pass.RequeueAfter, name)
			pass, err := r.pass(t, 120)
			require.NoError(t, err, name)
			assert.True(t, pass.HeldBack(), name)
			assert.Equal(t, c.hold, pass.RequeueAfter, name)
		}
	})
	t.Run("when nothing is missing any more, the next creation starts anew", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return quotaFull() }
		for i, seconds := range []int{0, 1, 3} {
			pass, err := r.pass(t, seconds)
			require.Error(t, err)
			assert.Equal(t, time.Second<<i, pass.RequeueAfter)
		}
		_, err := r.pass(t, 10, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		pass, err := r.pass(t, 20)
		require.Error(t, err)
		assert.Equal(t, time.Second, pass.RequeueAfter)
	})
	t.Run("W27 when nothing is missing any more, the next creation waits as long as the server said", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return busy(7) }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		_, err = r.pass(t, 1, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		r.create = func(int) error { return nil }
		pass, err := r.pass(t, 2)
		require.NoError(t, err)
		assert.Empty(t, pass.Created)
		assert.Equal(t, 5*time.Second, pass.RequeueAfter)
		pass, err = r.pass(t, 7)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
	})
	t.Run("deletions go on while creations are held", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(int) error { return namespaceTerminating() }
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		*r.owner.Spec.Replicas = 1
		pass, err := r.pass(t, 1, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1)
	})
	t.Run("W27 a server's Retry-After replaces the rate limiter and holds creations", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(i int) error {
			if i == 0 {
				return busy(7)
			}
			return nil
		}
		pass, err := r.pass(t, 0)
		assert.True(t, apierrors.IsTooManyRequests(err))
		assert.Equal(t, 7*time.Second, pass.RequeueAfter)
		pass, err = r.pass(t, 6)
		require.NoError(t, err)
		assert.Empty(t, pass.Created)
		assert.Equal(t, time.Second, pass.RequeueAfter)
		pass, err = r.pass(t, 7)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 5)
	})
	t.Run("W27 of several Retry-Afters the longest counts, also against a quota's hold", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(i int) error { return []error{nil, busy(9), busy(2)}[i] }
		pass, err := r.pass(t, 0)
		require.Error(t, err)
		assert.Equal(t, 9*time.Second, pass.RequeueAfter)
		r = newRig(5)
		r.create = func(i int) error { return []error{nil, quotaFull(), busy(0)}[i] }
		pass, err = r.pass(t, 0)
		require.Error(t, err)
		assert.Equal(t, time.Second, pass.RequeueAfter)
	})
	t.Run("W27 a server's Retry-After to a list, a claim or a look at the owner replaces the rate limiter", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patch = func(*corev1.Pod) error { return busy(4) }
		pass, err := r.pass(t, 0, podtest.Pod("orphan"))
		require.Error(t, err)
		assert.Equal(t, 4*time.Second, pass.RequeueAfter)
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, busy(5) }
		pass, err = r.pass(t, 4, podtest.Pod("orphan"))
		require.Error(t, err)
		assert.Equal(t, 5*time.Second, pass.RequeueAfter)
		r.children = func() ([]*corev1.Pod, error) { return nil, busy(6) }
		pass, err = r.sync(t, t.Context())
		require.Error(t, err)
		assert.Equal(t, 6*time.Second, pass.RequeueAfter)
	})
	t.Run("W27 no server holds an owner for more than five minutes", func(t *testing.T) {
		t.Parallel()
		for _, seconds := range []int{301, math.MaxInt32} {
			forEver := func() error { return busy(seconds) }
			for name, refuse := range map[string]func(r *podRig) []*corev1.Pod{
				"create": func(r *podRig) []*corev1.Pod {
					r.create = func(int) error { return forEver() }
					return podsOf(r.owner, 1)
				},
				"delete": func(r *podRig) []*corev1.Pod {
					r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return forEver() }
					return podsOf(r.owner, 3)
				},
				"adopt": func(r *podRig) []*corev1.Pod {
					r.patch = func(*corev1.Pod) error { return forEver() }
					return []*corev1.Pod{podtest.Pod("orphan")}
				},
				"read the owner": func(r *podRig) []*corev1.Pod {
					r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, forEver() }
					return []*corev1.Pod{podtest.Pod("orphan")}
				},
			} {
				r := newRig(2)
				pass, err := r.pass(t, 0, refuse(r)...)
				require.Error(t, err, name)
				assert.Equal(t, 5*time.Minute, pass.RequeueAfter, name)
			}
			r := newRig(2)
			r.children = func() ([]*corev1.Pod, error) { return nil, forEver() }
			pass, err := r.sync(t, t.Context())
			require.Error(t, err)
			assert.Equal(t, 5*time.Minute, pass.RequeueAfter)
		}
		r := newRig(2)
		r.create = func(int) error { return busy(math.MaxInt32) }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		r.create = func(int) error { return nil }
		pass, err := r.pass(t, 300)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 2, "the hold is as short")
	})
	t.Run("W27 a server's Retry-After on a delete replaces the rate limiter", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return busy(3) }
		pass, err := r.pass(t, 0, podsOf(r.owner, 1)...)
		require.Error(t, err)
		assert.Equal(t, 3*time.Second, pass.RequeueAfter)
	})
}

func TestWhatEndsBeginsAnew(t *testing.T) {
	t.Parallel()
	t.Run("W42 an adoption that is not decided is told again after one that was", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		told := 0
		for i := range 3 {
			r.patch = func(*corev1.Pod) error { return timeout() }
			_, err := r.pass(t, 1000*i, podtest.Pod(fmt.Sprint("orphan-", i)))
			require.Error(t, err)
			told += len(r.eventsOf("Warning FailedAdopt"))
			r.patch = func(*corev1.Pod) error { return nil }
			_, err = r.pass(t, 1000*i+500, podtest.Pod(fmt.Sprint("orphan-", i)))
			require.NoError(t, err)
		}
		assert.Equal(t, 3, told)
	})
	t.Run("a hold after a child that became another's is a short one after a success", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		at := 0
		for range 3 {
			r.mutate = func(p *corev1.Pod) { p.Labels = nil }
			pass, err := r.pass(t, at)
			require.Error(t, err)
			assert.Equal(t, time.Second, pass.RequeueAfter)
			r.mutate = func(*corev1.Pod) {}
			_, err = r.pass(t, at+10)
			require.NoError(t, err)
			r.settle()
			at += 20
		}
	})
	t.Run("so is the hold of lists", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		for i := range 3 {
			r.now = podtest.Now.Add(time.Duration(i) * time.Hour)
			r.awaits(r.owner, "web-lost")
			r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("boom") }
			pass, err := r.pass(t, 3600*i+400)
			require.Error(t, err)
			assert.Equal(t, time.Second, pass.RequeueAfter)
			r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 1), nil }
			_, err = r.pass(t, 3600*i+410)
			require.NoError(t, err)
			require.Len(t, r.callsOf("list"), 1)
		}
	})
	t.Run("a list that its own pass gave up holds nobody", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.awaits(r.owner, "web-lost")
		r.now = r.now.Add(400 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		r.live = func() ([]*corev1.Pod, error) {
			cancel()
			return nil, ctx.Err()
		}
		_, err := r.sync(t, ctx)
		require.ErrorIs(t, err, context.Canceled)
		r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 1), nil }
		pass, err := r.sync(t, t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, pass.LiveLists())
	})
	t.Run("W25 the first deletes after one that needed none have a version again", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := versioned(podsOf(r.owner, 2))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
		_ = versionsOf(r, refusing)
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		_, err = r.pass(t, 60, pods[0])
		require.NoError(t, err)
		seen := versionsOf(r, func(*corev1.Pod, string) error { return nil })
		_, err = r.pass(t, 120, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-000 7"}, *seen)
	})
	t.Run("but a pass that only waits ends no hold", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return quotaFull() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		r.awaits(r.owner, "web-new")
		pass, err := r.passAt(t, 100*time.Millisecond)
		require.NoError(t, err)
		require.True(t, pass.Waiting())
		r.settle()
		pass, err = r.passAt(t, 200*time.Millisecond)
		require.NoError(t, err)
		assert.True(t, pass.HeldBack())
		assert.Empty(t, r.callsOf("create"))
	})
	t.Run("V16 the end of another incarnation ends no hold", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return quotaFull() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		old := r.owner.DeepCopy()
		old.UID = "old"
		require.NoError(t, r.start().OwnerDeleted(old))
		pass, err := r.passAt(t, 100*time.Millisecond)
		require.NoError(t, err)
		assert.True(t, pass.HeldBack())
	})
}

func TestDelaysOfServers(t *testing.T) {
	t.Parallel()
	t.Run("W27 a Retry-After to a release replaces the rate limiter", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.patch = func(*corev1.Pod) error { return busy(7) }
		pass, err := r.pass(t, 0, podtest.Pod("a", owned(r.owner), podtest.Labels(api)))
		require.Error(t, err)
		assert.Equal(t, 7*time.Second, pass.RequeueAfter)
	})
	t.Run("a status that cannot be written is for the rate limiter, though deletions are held for less", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := versioned(podsOf(r.owner, 2))
		r.live = func() ([]*corev1.Pod, error) { return pods[:1], nil } // the other one is gone
		_ = versionsOf(r, r.changed)
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return errors.New("boom") }
		pass, err := r.pass(t, 0, pods...)
		require.ErrorContains(t, err, "boom")
		assert.True(t, pass.Waiting())
		assert.Zero(t, pass.RequeueAfter)
	})
}
