// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

func TestDeletes(t *testing.T) {
	t.Parallel()
	t.Run("D6 what was deleted is waited for", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pass, err := r.pass(t, 0, podsOf(r.owner, 4)...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 3)
		assert.Len(t, pass.Active, 4)
		_, dels := r.pending()
		assert.Equal(t, 3, dels)
	})
	t.Run("D7 all calls are under way at once, W23 within the cap, which is 128 by default", func(t *testing.T) {
		t.Parallel()
		for parallel, want := range map[int]int64{3: 3, 0: 128} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(0)
				r.opts.MaxParallel = parallel
				var under, most atomic.Int64
				r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
					n := under.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Second) // until no other call can start
					under.Add(-1)
					return nil
				}
				_, err := r.pass(t, 0, podsOf(r.owner, 300)...)
				require.NoError(t, err)
				assert.Equal(t, want, most.Load())
			})
		}
	})
	t.Run("D8 D9 W20 a failed delete is not expected, the others go on, every error is told", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(pod *corev1.Pod, _ metav1.DeleteOptions) error {
			if pod.Name != "web-001" {
				return fmt.Errorf("no %s", pod.Name)
			}
			return nil
		}
		pass, err := r.pass(t, 0, podsOf(r.owner, 3)...)
		require.ErrorContains(t, err, "no web-000")
		require.ErrorContains(t, err, "no web-002")
		assert.Equal(t, 2, pass.Failed)
		_, dels := r.pending()
		assert.Equal(t, 1, dels)
	})
	t.Run("D8 P14 a pod that is gone already is not expected, no event and no error", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(pod *corev1.Pod, _ metav1.DeleteOptions) error { return notFound(pod.Name) }
		pass, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		assert.Empty(t, pass.Deleted)
		assert.Empty(t, r.events)
		_, dels := r.pending()
		assert.Zero(t, dels)
	})
	t.Run("W26 P16 the UID is a precondition, and the version too of pods that were ready", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		seen := map[string]*metav1.Preconditions{}
		r.remove = func(pod *corev1.Pod, opts metav1.DeleteOptions) error {
			seen[pod.Name] = opts.Preconditions
			return nil
		}
		pods := podsOf(r.owner, 3)
		podtest.NotReady(pods[1])
		for _, p := range pods[:2] {
			p.ResourceVersion = "7"
		}
		_, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, pods[0].UID, *seen["web-000"].UID)
		assert.Equal(t, "7", *seen["web-000"].ResourceVersion)
		assert.Equal(t, pods[1].UID, *seen["web-001"].UID)
		assert.Nil(t, seen["web-001"].ResourceVersion)
		assert.Nil(t, seen["web-002"].ResourceVersion, "a pod whose version nobody knows")
	})
	t.Run("a panic in a call leaves only what was deleted expected", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(pod *corev1.Pod, _ metav1.DeleteOptions) error {
			if pod.Name == "web-001" {
				panic("bug")
			}
			return nil
		}
		assert.Panics(t, func() { _, _ = r.pass(t, 0, podsOf(r.owner, 3)...) })
		_, dels := r.pending()
		assert.Equal(t, 1, dels)
	})
}

// versionsOf are the resourceVersions of deletes, "" for none, as a remove notes
// them.
func versionsOf(r *podRig, answer func(pod *corev1.Pod, version string) error) *[]string {
	var seen []string
	r.remove = func(pod *corev1.Pod, opts metav1.DeleteOptions) error {
		version := ""
		if v := opts.Preconditions.ResourceVersion; v != nil {
			version = *v
		}
		r.note(&seen, "%s %s", pod.Name, version)
		return answer(pod, version)
	}
	return &seen
}

// changed refuses deletes with a version that the cache showed: the pods have changed since.
// That of a live list is current.
func (r *rig[O, C]) changed(pod *corev1.Pod, version string) error {
	if version != "" && len(r.callsOf("list")) == 0 {
		return conflict(pod.Name)
	}
	return nil
}

func refusing(pod *corev1.Pod, _ string) error { return conflict(pod.Name) }

func TestConflicts(t *testing.T) {
	t.Parallel()
	t.Run("W25 W26 after the first conflict a live list decides, and its versions are sent", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := versioned(podsOf(r.owner, 5))
		podtest.NotReady(pods[3])
		r.live = func() ([]*corev1.Pod, error) { return inVersion("8", pods), nil }
		seen := versionsOf(r, r.changed)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-003 ", "web-000 7", "web-000 8", "web-001 8", "web-002 8"}, *seen)
		assert.Equal(t, 1, count(r.calls, "list default app=web"))
		assert.Len(t, pass.Deleted, 4)
		_, dels := r.pending()
		assert.Equal(t, 4, dels)
		assert.Equal(t, 1, pass.Conflicts())
		assert.Equal(t, 1, pass.LiveLists())
		assert.False(t, pass.Waiting() || pass.HeldBack())
		assert.Zero(t, pass.Failed)
	})
	t.Run("W25 calls that were under way at the first conflict are made again, and no more than twice", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.opts.MaxParallel = 8
		pods := versioned(podsOf(r.owner, 40))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		seen := versionsOf(r, r.changed)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 40)
		assert.LessOrEqual(t, len(*seen), 40+8)
	})
	t.Run("W25 they are few: calls with a version start in growing batches", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.opts.MaxParallel = 0
		pods := versioned(podsOf(r.owner, 300))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		seen := versionsOf(r, r.changed)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 300)
		assert.LessOrEqual(t, len(*seen), 300+16)

		synctest.Test(t, func(t *testing.T) {
			r := newRig(0)
			r.opts.MaxParallel = 0
			var under, most atomic.Int64
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
				n := under.Add(1)
				defer under.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Second) // until no other call can start
				return nil
			}
			_, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			assert.Greater(t, most.Load(), int64(64), "and they do grow")
		})
	})
	for name, change := range map[string]func(p *corev1.Pod){
		"C8 an orphan by now":           func(p *corev1.Pod) { p.OwnerReferences = nil },
		"C9 another owner's by now":     func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" },
		"C10 no longer matching":        func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} },
		"Y6 being deleted already":      podtest.Deleting,
		"Y6 finished":                   podtest.Phase(corev1.PodFailed),
		"W26 another pod of that name":  func(p *corev1.Pod) { p.UID = "another" },
		"in another namespace, somehow": func(p *corev1.Pod) { p.Namespace = "other" },
	} {
		t.Run("W25 a victim is spared that a live list shows to be "+name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			pods := versioned(podsOf(r.owner, 4))
			r.live = func() ([]*corev1.Pod, error) {
				live := clones(pods)
				change(live[0])
				live[0].ResourceVersion = "8"
				return live, nil
			}
			seen := versionsOf(r, r.changed)
			pass, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			assert.Equal(t, []string{"web-000 7", "web-001 7", "web-002 7"}[:len(*seen)], *seen)
			assert.NotContains(t, names(pass.Deleted), "web-000")
			assert.True(t, pass.Waiting(), "the cache is behind")
			assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
			assert.Empty(t, r.eventsOf("Warning"))
		})
	}
	t.Run("W25 no more are deleted than a live list shows to be too many", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		pods := versioned(podsOf(r.owner, 6))
		r.live = func() ([]*corev1.Pod, error) { return pods[:5], nil } // a survivor has died
		_ = versionsOf(r, r.changed)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 2)
		_, dels := r.pending()
		assert.Equal(t, 2, dels)
		assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
	})
	t.Run("W25 if the list fails nothing more is changed, and the error says so", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		pods := versioned(podsOf(r.owner, 10))
		r.live = func() ([]*corev1.Pod, error) { return nil, busy(7) }
		seen := versionsOf(r, r.changed)
		pass, err := r.pass(t, 0, pods...)
		require.ErrorContains(t, err, "unable to delete pods: listing them live: slow down")
		require.ErrorContains(t, pass.ScaleErr, "slow down")
		assert.Len(t, *seen, 1)
		_, dels := r.pending()
		assert.Zero(t, dels)
		assert.Equal(t, 7*time.Second, pass.RequeueAfter)
		assert.Equal(t, []string{"Warning DeletionsHeld Holding deletions for 7s: unable to delete pods: listing them live: slow down"}, r.events)
		_, err = r.pass(t, 6, pods...)
		require.NoError(t, err)
		assert.Len(t, *seen, 1, "held")
		r.live = func() ([]*corev1.Pod, error) { return append(pods, pods[0]), nil }
		pass, err = r.pass(t, 7, pods...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 10, "what is listed twice is one")
	})
	for _, n := range []int{1, 3, 4, 10} {
		t.Run(fmt.Sprintf("P15 W25 a second conflict is a failure if the pod is still there, %d pods", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(0)
			pods := versioned(podsOf(r.owner, n))
			r.live = func() ([]*corev1.Pod, error) { return pods, nil }
			r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
			_ = versionsOf(r, refusing)
			pass, err := r.pass(t, 0, pods...)
			assert.True(t, apierrors.IsConflict(err))
			require.ErrorContains(t, pass.ScaleErr, "unable to delete pods: Operation cannot be fulfilled")
			assert.Equal(t, n, pass.Failed)
			assert.Len(t, r.eventsOf("Warning FailedDelete"), n)
			assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
			_, dels := r.pending()
			assert.Zero(t, dels)
			gets, lists := r.callsOf("get"), r.callsOf("list")
			if n <= 3 {
				assert.Len(t, gets, n)
				assert.Len(t, lists, 1)
			} else {
				assert.Empty(t, gets)
				assert.Len(t, lists, 2)
			}
		})
		t.Run(fmt.Sprintf("D8 W26 and none if there is none or another pod of that name, %d pods", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(0)
			pods := versioned(podsOf(r.owner, n))
			next := clones(pods)
			for _, p := range next[:n-1] {
				p.UID = "next-" + p.UID
			}
			next = next[:n-1]
			r.live = func() ([]*corev1.Pod, error) {
				if len(r.callsOf("list")) == 1 {
					return pods, nil
				}
				return next, nil
			}
			r.get = func(name string) (*corev1.Pod, error) { return find(next, name) }
			_ = versionsOf(r, refusing)
			pass, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			assert.Zero(t, pass.Failed)
			assert.Empty(t, r.eventsOf("Warning"))
			_, dels := r.pending()
			assert.Zero(t, dels)
		})
	}
	t.Run("W25 a pod that cannot be read either is not taken for gone", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{2, 5} {
			r := newRig(0)
			pods := versioned(podsOf(r.owner, n))
			r.live = func() ([]*corev1.Pod, error) {
				if len(r.callsOf("list")) == 1 {
					return pods, nil
				}
				return nil, busy(1)
			}
			r.get = func(string) (*corev1.Pod, error) { return nil, busy(1) }
			_ = versionsOf(r, refusing)
			_, err := r.pass(t, 0, pods...)
			assert.True(t, apierrors.IsConflict(err), n)
		}
	})
	t.Run("W25 deletions are held from 50 ms to a minute, whatever events come, and an event tells so once", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		pods := versioned(podsOf(r.owner, 5))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		seen := versionsOf(r, refusing)
		var told []string
		at := time.Duration(0)
		for i, ms := range []int{50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000} {
			wait := time.Duration(ms) * time.Millisecond
			pass, err := r.passAt(t, at, pods...)
			require.Error(t, err)
			assert.Equal(t, wait, pass.RequeueAfter)
			assert.Len(t, r.callsOf("delete"), 5+min(1, 1-min(i, 1)), "the first pass finds out that the view is old")
			told = append(told, r.eventsOf("Warning DeletionsHeld")...)
			calls := len(*seen)
			for range 3 {
				pass, err = r.passAt(t, at+wait-time.Millisecond, pods...)
				require.NoError(t, err)
				assert.True(t, pass.HeldBack() && pass.Waiting())
				assert.Equal(t, time.Millisecond, pass.RequeueAfter)
			}
			assert.Len(t, *seen, calls)
			at += wait
		}
		require.Len(t, told, 1)
		assert.Contains(t, told[0], "Warning DeletionsHeld Holding deletions for 1.6s: unable to delete pods: Operation cannot be fulfilled")

		*seen = nil
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
		_, err := r.passAt(t, at, pods...)
		require.NoError(t, err)
		r.settle()
		_ = versionsOf(r, refusing)
		pass, _ := r.passAt(t, at, pods...)
		assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter, "a success starts anew")
	})
	t.Run("W25 a new generation of the owner, and Forget, end the hold; creations are not held", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(r *podRig){
			"generation": func(r *podRig) { r.owner.Generation++ },
			"Forget":     func(r *podRig) { r.forget(t) },
			"creation":   func(r *podRig) { *r.owner.Spec.Replicas = 9 },
		} {
			r := newRig(0)
			pods := versioned(podsOf(r.owner, 5))
			r.live = func() ([]*corev1.Pod, error) { return pods, nil }
			_ = versionsOf(r, refusing)
			_, err := r.pass(t, 0, pods...)
			require.Error(t, err)
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
			end(r)
			pass, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			assert.Positive(t, len(pass.Deleted)+len(pass.Created), name)
			assert.False(t, pass.HeldBack())
		}
	})
	t.Run("W25 deletions are held from the end of their calls on, however long these took", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		pods := versioned(podsOf(r.owner, 1))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		r.get = func(string) (*corev1.Pod, error) { return pods[0], nil }
		r.remove = func(pod *corev1.Pod, _ metav1.DeleteOptions) error {
			r.now = r.now.Add(10 * time.Second)
			return conflict(pod.Name)
		}
		pass, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
		pass, err = r.pass(t, 20, pods...)
		require.NoError(t, err)
		assert.True(t, pass.HeldBack())
		assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
	})
	t.Run("W25 when nothing is left to delete, the next deletion starts anew, and its hold is told again", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := versioned(podsOf(r.owner, 2))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
		_ = versionsOf(r, refusing)
		told := 0
		refused := func(hour int) {
			at := time.Duration(hour) * time.Hour
			for i, ms := range []int{50, 100, 200, 400, 800, 1600} {
				wait := time.Duration(ms) * time.Millisecond
				pass, err := r.passAt(t, at, pods...)
				require.Error(t, err)
				assert.Equal(t, wait, pass.RequeueAfter, "pass %d of hour %d", i, hour)
				told += len(r.eventsOf("Warning DeletionsHeld"))
				at += wait
			}
		}
		refused(0)
		assert.Equal(t, 1, told)
		_, err := r.pass(t, 60, pods[0])
		require.NoError(t, err)
		refused(1)
		assert.Equal(t, 2, told)
	})
	t.Run("W27 a server's Retry-After holds deletions too", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		pods := podsOf(r.owner, 1)
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return busy(7) }
		pass, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		assert.Equal(t, 7*time.Second, pass.RequeueAfter)
		pass, err = r.pass(t, 6, pods...)
		require.NoError(t, err)
		assert.True(t, pass.HeldBack())
		assert.Empty(t, r.calls)
		assert.Equal(t, time.Second, pass.RequeueAfter)
		_, err = r.pass(t, 7, pods...)
		require.Error(t, err)
		assert.Equal(t, []string{"read owner", "delete web-000", "get web-000"}, r.calls, "no other is asked for, but the answer may have come after the fact")
	})
}

// A delete whose answer is lost may take effect later.
func TestDoubtedDeletes(t *testing.T) {
	t.Parallel()
	lost := func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
	done := func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
	for _, after := range []int{1, 301, 86400} { // seconds
		t.Run(fmt.Sprintf("after %d seconds it goes first: no clock ends a doubt", after), func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			pods := podsOf(r.owner, 2)
			r.remove = lost
			_, err := r.pass(t, 0, pods...)
			require.Error(t, err)
			require.Equal(t, []string{"delete web-000"}, r.callsOf("delete"))
			r.remove = done
			pods[1].Status.Conditions = nil // no longer ready
			pass, err := r.pass(t, after, pods...)
			require.NoError(t, err)
			assert.Equal(t, []string{"web-000"}, names(pass.Deleted))
		})
	}
	t.Run("nothing is deleted while such a pod is looked for in vain, and an event says so once while that lasts", func(t *testing.T) {
		t.Parallel()
		r := newRig(4)
		pods := podsOf(r.owner, 6)
		r.remove = lost
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		require.Len(t, r.callsOf("delete"), 2)
		r.settle()
		*r.owner.Spec.Replicas = 5
		r.get = func(name string) (*corev1.Pod, error) { return nil, forbidden(name, "no rights") }
		for i, want := range []int{1, 0} {
			pass, err := r.pass(t, 400+10*i, pods...)
			require.NoError(t, err)
			require.ErrorContains(t, pass.LookErr, "no rights")
			assert.Empty(t, pass.Deleted)
			assert.Len(t, r.eventsOf("Warning FailedLook"), want)
		}
		r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
		r.remove = done
		for range 2 {
			pass, err := r.pass(t, 420, pods...)
			require.NoError(t, err)
			require.NoError(t, pass.LookErr)
		}
		assert.Len(t, r.callsOf("delete"), 1)
	})
	t.Run("one that carried a resourceVersion can take effect no more once the pod has another one", func(t *testing.T) {
		t.Parallel()
		for name, change := range map[string]func(cached, server []*corev1.Pod){
			"as the cache shows": func(cached, _ []*corev1.Pod) { cached[0].ResourceVersion = "8" },
			"as the look shows":  func(_, server []*corev1.Pod) { server[0].ResourceVersion = "8" },
		} {
			r := newRig(1)
			pods := versioned(podsOf(r.owner, 2))
			server := clones(pods)
			r.get = func(name string) (*corev1.Pod, error) { return find(server, name) }
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
				change(pods, server)
				return timeout()
			}
			_, err := r.pass(t, 0, clones(pods)...)
			require.Error(t, err)
			r.remove = done
			podtest.NotReady(pods[1])
			pass, err := r.pass(t, 1, pods...)
			require.NoError(t, err)
			assert.Equal(t, []string{"web-001"}, names(pass.Deleted), name)
		}
	})
	t.Run("one that the look shows to be nobody's is left alone, though the cache has it as it was", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := versioned(podsOf(r.owner, 2))
		podtest.NotReady(pods[0])
		server := clones(pods)
		r.get = func(name string) (*corev1.Pod, error) { return find(server, name) }
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
			server[0].ResourceVersion, server[0].OwnerReferences, server[0].Labels = "8", nil, map[string]string{"app": "debug"}
			return timeout()
		}
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		require.Equal(t, []string{"delete web-000"}, r.callsOf("delete"))
		pass, err := r.pass(t, 1, pods...)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("delete"))
		assert.Equal(t, []string{"web-001"}, names(pass.Active))
	})
	for name, change := range map[string]func(*corev1.Pod){
		"going":            func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: podtest.Now} },
		"nobody's":         func(p *corev1.Pod) { p.OwnerReferences = nil },
		"matching no more": func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} },
	} {
		t.Run("none is deleted if two are found after five minutes, "+name, func(t *testing.T) {
			t.Parallel()
			r := newRig(2)
			pods := versioned(podsOf(r.owner, 4))
			server := clones(pods)
			r.get = func(name string) (*corev1.Pod, error) { return find(server, name) }
			r.remove = lost
			_, err := r.pass(t, 0, pods...)
			require.Error(t, err)
			require.Equal(t, []string{"delete web-000", "delete web-001"}, r.callsOf("delete"))
			r.settle()
			*r.owner.Spec.Replicas = 3
			for _, p := range server[:2] {
				p.ResourceVersion = "8"
				change(p)
			}
			podtest.NotReady(pods[3])
			r.remove = done
			_, err = r.pass(t, 301, pods...)
			require.NoError(t, err)
			assert.Empty(t, r.callsOf("delete"))
			pass, err := r.pass(t, 301, pods...)
			require.NoError(t, err)
			if name == "nobody's" {
				assert.Equal(t, []string{"web-000", "web-001"}, names(pass.Adopted), "then one of four is too many")
				assert.Len(t, pass.Deleted, 1)
				return
			}
			assert.Empty(t, r.callsOf("delete"))
			assert.Equal(t, []string{"web-002", "web-003"}, names(pass.Active))
		})
	}
	t.Run("it counts as gone, though the pod must stay by now", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		spec, stays := r.kind.Spec, ""
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
			s, err := spec(rs)
			s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Name == stays }
			return s, err
		}
		pods := podsOf(r.owner, 4)
		r.remove = lost
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		r.remove, stays = done, "web-000"
		pass, err := r.pass(t, 1, pods...)
		require.NoError(t, err)
		assert.Empty(t, pass.Deleted, "web-000 may go yet, and would be one too many")
		assert.Equal(t, 299*time.Second+1, pass.RequeueAfter)
		pass, err = r.pass(t, -3600, pods...)
		require.NoError(t, err)
		assert.Empty(t, pass.Deleted)
		assert.Equal(t, 5*time.Minute+1, pass.RequeueAfter, "a clock that went back makes it wait no longer")
		*r.owner.Spec.Replicas = 2
		pass, err = r.pass(t, 2, pods...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1)
	})
	t.Run("to a veto it is gone", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		spec, stays := r.kind.Spec, ""
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
			s, err := spec(rs)
			s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Name == stays }
			return s, err
		}
		var asked []string
		r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
			asked = names(s.Active)
			return nil
		}
		pods := podsOf(r.owner, 4)
		r.remove = lost
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		require.Len(t, asked, 4)
		stays = "web-000"
		*r.owner.Spec.Replicas = 2
		_, err = r.pass(t, 1, pods...)
		require.Error(t, err)
		assert.Equal(t, []string{"web-001", "web-002", "web-003"}, asked)
	})
	t.Run("no more go because another one must", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		spec, must := r.kind.Spec, ""
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.Spec[*corev1.Pod], error) {
			s, err := spec(rs)
			s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Name == must }
			return s, err
		}
		pods := podsOf(r.owner, 3)
		r.remove = lost
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		require.NotContains(t, r.callsOf("delete"), "delete web-002")
		r.remove, must = done, "web-002"
		pass, err := r.pass(t, 10, pods...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 2)
	})
}

// After a Conflict a live list counts those whose deletion may take effect yet.
func TestDoubtedDeletesBesideAConflict(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	pods := versioned(podsOf(r.owner, 4))
	podtest.NotReady(pods[0])
	r.remove = func(p *corev1.Pod, opts metav1.DeleteOptions) error {
		if p.Name == "web-000" {
			return timeout()
		}
		if opts.Preconditions.ResourceVersion != nil {
			return conflict(p.Name)
		}
		return nil
	}
	r.live = func() ([]*corev1.Pod, error) { return pods[:3], nil } // a survivor has died
	pass, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	assert.Empty(t, pass.Deleted, "if web-000 goes after all, there are as many as wanted")
	assert.True(t, pass.Waiting())
}

// One was doubted before, and after a Conflict it may go anyway, but no other in addition.
func TestDoubtedBeforeAConflict(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	pods := versioned(podsOf(r.owner, 4))
	podtest.NotReady(pods[0]) // deleted by its UID alone
	limit := 1
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
		s, err := spec(rs)
		s.MaxDeletions = &limit
		return s, err
	}
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
	_, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	require.Equal(t, []string{"delete web-000"}, r.callsOf("delete"))
	limit = 2
	r.remove = func(p *corev1.Pod, opts metav1.DeleteOptions) error {
		if p.Name == "web-000" {
			return forbidden(p.Name, "a policy")
		}
		if opts.Preconditions.ResourceVersion != nil {
			return conflict(p.Name)
		}
		return nil
	}
	r.live = func() ([]*corev1.Pod, error) { return pods[:3], nil } // a survivor has died
	pass, err := r.pass(t, 1, pods...)
	require.Error(t, err)
	assert.Empty(t, pass.Deleted, "if web-000 goes after all, there are as many as wanted")
}

// What a veto allowed was allowed of the cache.
func TestAVetoIsAskedAgainAfterALiveList(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		veto func(s *controller.Step[*corev1.Pod])
		want []string
		err  string
	}{
		"it allows":      {func(*controller.Step[*corev1.Pod]) {}, []string{"web-000"}, ""},
		"it does not":    {func(s *controller.Step[*corev1.Pod]) { s.Delete = nil }, nil, ""},
		"it adds to it":  {func(s *controller.Step[*corev1.Pod]) { s.Delete = append(s.Delete, s.Delete...) }, nil, "step.Delete: a child was added"},
		"it is at peace": {nil, []string{"web-000"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(2)
			pods := versioned(podsOf(r.owner, 3))
			var asked [][]string
			if tt.veto != nil {
				r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
					if asked = append(asked, names(s.Active)); len(asked) == 1 {
						return nil
					}
					tt.veto(s)
					return nil
				}
			}
			_ = versionsOf(r, r.changed)
			r.live = func() ([]*corev1.Pod, error) {
				return append(clones(pods), podtest.Pod("web-new", owned(r.owner))), nil
			}
			pass, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			if tt.err != "" {
				require.ErrorContains(t, pass.Err, tt.err)
			}
			assert.Equal(t, tt.want, names(pass.Deleted))
			if tt.veto != nil {
				assert.Equal(t, [][]string{{"web-000", "web-001", "web-002"}, {"web-000", "web-001", "web-002", "web-new"}}, asked)
			}
		})
	}
}

func TestAVictimThatIsGoneAfterTheLiveList(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	pods := versioned(podsOf(r.owner, 2))
	r.live = func() ([]*corev1.Pod, error) { return clones(pods), nil }
	calls := 0
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error {
		if calls++; calls == 1 {
			return conflict(p.Name)
		}
		return notFound(p.Name)
	}
	_, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	survivor := pods[0]
	if r.callsOf("delete")[0] == "delete "+survivor.Name {
		survivor = pods[1]
	}
	pass, err := r.pass(t, 1, pods...)
	require.NoError(t, err)
	assert.Empty(t, r.calls, "the cache is behind")
	assert.Equal(t, []string{survivor.Name}, names(pass.Active))
}

// Kinds may count children that are being deleted as replicas.
func TestDeletesOfReplicasThatGoAlready(t *testing.T) {
	t.Parallel()
	all := func(want int32) *podRig {
		r := newRig(want)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
			s, err := spec(rs)
			s.Rules.Active = func(*corev1.Pod) bool { return true }
			return s, err
		}
		return r
	}
	t.Run("no other is deleted while the first one goes, nor the first one again", func(t *testing.T) {
		t.Parallel()
		r := all(2)
		pods := podsOf(r.owner, 3)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		require.Equal(t, []string{"web-000"}, names(pass.Deleted))
		going := podtest.Pod("web-000", owned(r.owner), podtest.Deleting, version("8"))
		require.NoError(t, r.start().ChildUpdated(pods[0], going))
		podtest.NotReady(pods[1]) // so it is the first of all to go
		pass, err = r.pass(t, 1, going, pods[1], pods[2])
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.Len(t, pass.Active, 3)
	})
	t.Run("W25 nor after a conflict", func(t *testing.T) {
		t.Parallel()
		r := all(1)
		pods := versioned(podsOf(r.owner, 3))
		gone := false
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
			if gone {
				return nil
			}
			gone = true
			return conflict("web-000")
		}
		r.live = func() ([]*corev1.Pod, error) {
			podtest.Deleting(pods[2]) // by somebody else
			pods[2].ResourceVersion = "8"
			return pods, nil
		}
		_, _ = r.pass(t, 0, clones(pods)...)
		assert.Equal(t, []string{"read owner", "delete web-000", "list default app=web", "delete web-000"}, r.calls)
	})
}

// What a server has decided is not doubted, but it decides about one call alone.
func TestDecidedDeletesAreNotDoubted(t *testing.T) {
	t.Parallel()
	refusal := func(p *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(p.Name, "a policy") }
	t.Run("a refusal needs no look", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.remove = refusal
		pass, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		assert.True(t, apierrors.IsForbidden(err))
		assert.Zero(t, pass.LiveReads()+pass.LiveLists())
		assert.Equal(t, 1, pass.Failed)
	})
	t.Run("nor does it end the doubt that there was: the first call may take effect yet", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := podsOf(r.owner, 2)
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		r.remove = refusal
		_, err = r.pass(t, 1, pods...)
		require.Error(t, err)
		podtest.NotReady(pods[1])
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
		pass, err := r.pass(t, 2, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-000"}, names(pass.Deleted))
	})
	t.Run("who has to go does so, whoever is doubted", func(t *testing.T) {
		t.Parallel()
		r := mustGoRig(1, "web-002")
		pods := podsOf(r.owner, 4)
		limit := 1
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
			s, err := spec(rs)
			s.MaxDeletions = &limit
			return s, err
		}
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		require.Equal(t, []string{"delete web-002"}, r.callsOf("delete"))
		limit = 2
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
		r.must("web-001")
		pass, err := r.pass(t, 1, pods...)
		require.NoError(t, err)
		assert.ElementsMatch(t, []string{"web-001", "web-002"}, names(pass.Deleted))
	})
}

// A mustGoPodRig is a rig with a pod that has to go.
type mustGoPodRig struct {
	*podRig
	name string
}

func mustGoRig(want int32, name string) *mustGoPodRig {
	r := &mustGoPodRig{newRig(want), name}
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
		s, err := spec(rs)
		s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Name == r.name }
		return s, err
	}
	return r
}

func (r *mustGoPodRig) must(name string) { r.name = name }

func TestDeletesThatCannotBeMade(t *testing.T) {
	t.Parallel()
	t.Run("a context that has ended is an error, though no status has to be written", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.kind.Status = nil
		ctx, cancel := context.WithCancel(t.Context())
		r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
			cancel()
			return nil
		}
		r.children = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 2), nil }
		_, err := r.sync(t, ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, r.callsOf("delete"))
	})
	t.Run("W25 after a conflict whoever must stay by now stays", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
			s, err := spec(rs)
			s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Annotations["stay"] != "" }
			return s, err
		}
		pods := versioned(podsOf(r.owner, 3))
		r.live = func() ([]*corev1.Pod, error) {
			live := clones(pods)
			live[0].Annotations, live[0].ResourceVersion = map[string]string{"stay": "yes"}, "8"
			return live, nil
		}
		_ = versionsOf(r, r.changed)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-001"}, names(pass.Deleted))
	})
	t.Run("W25 after a conflict and a list that failed, deletions wait as long as lists do", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := versioned(podsOf(r.owner, 2))
		r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("boom") }
		seen := versionsOf(r, r.changed)
		pass, err := r.pass(t, 0, pods...)
		require.ErrorContains(t, err, "boom")
		assert.Equal(t, time.Second, pass.RequeueAfter)
		r.live = func() ([]*corev1.Pod, error) { return clones(pods), nil }
		pass, err = r.passAt(t, time.Second-1, pods...)
		require.NoError(t, err)
		assert.True(t, pass.HeldBack())
		pass, err = r.pass(t, 1, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-000 7", "web-000 7"}, *seen, "the list decides at once: the cache is known to be behind")
		assert.Len(t, pass.Deleted, 1)
	})
}

// inVersion returns the pods in a later version.
func inVersion(is string, pods []*corev1.Pod) []*corev1.Pod {
	later := clones(pods)
	for _, p := range later {
		p.ResourceVersion = is
	}
	return later
}

// A child is deleted only in the version in which it was judged, with one exception.
func TestDeletesCarryWhatWasJudged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*replicas.PodSpec)
		asks   bool
		want   string
	}{
		"a pod that is not ready goes by its UID":    {func(*replicas.PodSpec) {}, false, "web-000 "},
		"not if pods may have to stay":               {func(s *replicas.PodSpec) { s.Rules.MustStay = func(*corev1.Pod) bool { return false } }, false, "web-000 7"},
		"nor if the author's step has judged it":     {func(*replicas.PodSpec) {}, true, "web-000 7"},
		"nor if it is discarded, as it has ended":    {func(s *replicas.PodSpec) { s.Rules.Discard = func(*corev1.Pod) bool { return true } }, false, "web-000 7"},
		"nor if it counts as ready by the own rules": {func(s *replicas.PodSpec) { s.Rules.Ready = func(*corev1.Pod) bool { return true } }, false, "web-000 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(0)
			pods := versioned(podsOf(r.owner, 1))
			podtest.NotReady(pods[0])
			spec := r.kind.Spec
			r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
				s, err := spec(rs)
				tt.change(&s)
				return s, err
			}
			if tt.asks {
				r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
					return nil
				}
			}
			seen := versionsOf(r, func(*corev1.Pod, string) error { return nil })
			_, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			assert.Equal(t, []string{tt.want}, *seen)
		})
	}
}

// A child whose deletion meets a second Conflict in a pass is held by itself.
func TestASecondConflictHoldsThatChild(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	pods := versioned(podsOf(r.owner, 4))
	is := "8"
	r.live = func() ([]*corev1.Pod, error) { return inVersion(is, pods), nil }
	r.get = func(name string) (*corev1.Pod, error) {
		is = "9"
		return find(inVersion(is, pods), name)
	}
	seen := versionsOf(r, func(p *corev1.Pod, version string) error {
		if p.Name == "web-000" || version == "7" {
			return conflict(p.Name)
		}
		return nil
	})
	pass, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	assert.Equal(t, []string{"web-001", "web-002"}, names(pass.Deleted))
	assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
	r.settle()
	left := []*corev1.Pod{pods[0], pods[3]}
	pass, err = r.passAt(t, 49*time.Millisecond, left...)
	require.NoError(t, err)
	assert.Empty(t, r.callsOf("delete"))
	assert.True(t, pass.HeldBack())
	*r.owner.Spec.Replicas, *seen = 0, nil
	pass, err = r.passAt(t, 49*time.Millisecond, left...)
	require.NoError(t, err)
	assert.Equal(t, []string{"web-003"}, names(pass.Deleted), "the hold of one is none of the others")
	assert.Equal(t, []string{"web-003 9"}, *seen)
}

// A client that ends its goroutine, as require does in a fake, leaves calls without an answer: they stay in
// flight, and the pass ends with an error.
func TestCallsThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	for _, want := range []int32{1, 3} {
		r := newRig(want)
		r.opts.MaxParallel = 2
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { runtime.Goexit(); return nil }
		r.create = func(int) error { runtime.Goexit(); return nil }
		pods := podsOf(r.owner, 2)
		r.get = func(name string) (*corev1.Pod, error) {
			if i := slices.IndexFunc(pods, func(c *corev1.Pod) bool { return c.Name == name }); i >= 0 {
				return pods[i], nil
			}
			return nil, notFound(name)
		}
		p, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		assert.Empty(t, append(p.Created, p.Deleted...))
		assert.Len(t, r.known().Doubted(), int(2-min(want, 2)))
		assert.Equal(t, int(max(want, 2)-2), p.InFlight)
		assert.Len(t, r.callsOf("get"), 1, "what became of it?")
	}
}
