// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

func TestDeletes(t *testing.T) {
	t.Parallel()
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
					time.Sleep(time.Second) // with synctest, the sleep ends when no other call can start
					under.Add(-1)
					return nil
				}
				_, err := r.pass(t, 0, podsOf(r.owner, 300)...)
				require.NoError(t, err)
				assert.Equal(t, want, most.Load())
			})
		}
	})
	t.Run("W26 a pod whose version is not known is deleted by its UID alone", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		seen := versionsOf(r, func(*corev1.Pod, string) error { return nil })
		_, err := r.pass(t, 0, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-000 "}, *seen)
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

// versionsOf makes the rig record its delete calls, and returns the list of records. A record consists of the
// pod's name and the resourceVersion in the preconditions. If there is no resourceVersion, the record ends with a
// space. The results of the calls come from the function answer.
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

// changed answers delete calls as if the pods had changed on the server. The calls with the versions of the cache
// meet Conflicts, and those with the versions of a list succeed.
func (r *rig[O, C]) changed(pod *corev1.Pod, version string) error {
	if version != "" && len(r.callsOf("list")) == 0 {
		return conflict(pod.Name)
	}
	return nil
}

// afterConflict makes a pass that meets a Conflict, and the next one, which lists.
func afterConflict(t *testing.T, r *podRig, pods ...*corev1.Pod) (podPass, error) {
	t.Helper()
	pass, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	require.Positive(t, telemetry.Conflicts(pass.Calls))
	require.Empty(t, pass.Deleted)
	require.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
	return r.pass(t, 1, pods...)
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	t.Run("W25 calls that were under way at the first conflict are made again by the next pass", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.opts.MaxParallel = 8
		pods := versioned(podsOf(r.owner, 40))
		r.live = func() ([]*corev1.Pod, error) { return inVersion("99", pods), nil }
		seen := versionsOf(r, r.changed)
		pass, err := afterConflict(t, r, pods...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 40)
		assert.Len(t, *seen, 8+40)
	})
	t.Run("W25 they are few: calls with a version start in growing batches", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.opts.MaxParallel = 0
		pods := versioned(podsOf(r.owner, 300))
		r.live = func() ([]*corev1.Pod, error) { return inVersion("999", pods), nil }
		seen := versionsOf(r, r.changed)
		pass, err := afterConflict(t, r, pods...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 300)
		assert.Len(t, *seen, 16+300)

		synctest.Test(t, func(t *testing.T) {
			r := newRig(0)
			r.opts.MaxParallel = 0
			var under, most atomic.Int64
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
				n := under.Add(1)
				defer under.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Second) // with synctest, the sleep ends when no other call can start
				return nil
			}
			_, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			assert.Greater(t, most.Load(), int64(64), "and they do grow")
		})
	})
	t.Run("W25 a live list with objects that were not asked for, or with one twice, does no harm", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := versioned(podsOf(r.owner, 6))
		r.live = func() ([]*corev1.Pod, error) { // pods[5], which the plan keeps, is gone from the server
			live := inVersion("99", pods[:5])
			live[0].Namespace = "other"
			live[1].Labels = api
			return append(live, live[2]), nil
		}
		_ = versionsOf(r, r.changed)
		pass, err := afterConflict(t, r, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-002", "web-003"}, names(pass.Deleted))
	})
}

// A delete call without an answer may still take effect later.
func TestDoubtedDeletes(t *testing.T) {
	t.Parallel()
	lost := func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
	done := func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
	t.Run("it counts as gone, though the pod must stay by now", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		spec, stays := r.kind.Spec, ""
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
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
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
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

// The pass after a Conflict calls Prepare with the children of a live list. Prepare had allowed a deletion that was
// based on the cache.
func TestAVetoIsAskedAgainAfterALiveList(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		veto func(s *controller.Step[*corev1.Pod])
		want []string
		err  string
	}{
		"it allows":      {func(*controller.Step[*corev1.Pod]) {}, []string{"web-000", "web-001"}, ""},
		"it does not":    {func(s *controller.Step[*corev1.Pod]) { s.Delete = nil }, nil, ""},
		"it adds to it":  {func(s *controller.Step[*corev1.Pod]) { s.Delete = append(s.Delete, s.Delete...) }, nil, "step.Delete: a child was added"},
		"it is at peace": {nil, []string{"web-000", "web-001"}, ""},
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
				return append(inVersion("99", pods), podtest.Pod("web-new", owned(r.owner))), nil
			}
			pass, err := afterConflict(t, r, pods...)
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

// A Kind may count a child as active while the child is being deleted. The Controller then does not delete this
// child again, and deletes no other child in its place.
func TestDeletesOfReplicasThatGoAlready(t *testing.T) {
	t.Parallel()
	all := func(want int32) *podRig {
		r := newRig(want)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
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
		podtest.NotReady(pods[1]) // an unready pod ranks first for deletion
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
			podtest.Deleting(pods[2]) // by someone else
			pods[2].ResourceVersion = "8"
			return pods, nil
		}
		_, _ = r.pass(t, 0, clones(pods)...)
		assert.Equal(t, []string{"read owner", "delete web-000"}, r.calls)
		_, _ = r.pass(t, 1, clones(pods)...)
		assert.Equal(t, []string{"list default app=web", "read owner", "delete web-000"}, r.calls)
	})
}

func TestAChildThatMustGoDoesSoWhateverIsDoubted(t *testing.T) {
	t.Parallel()
	r := mustGoRig(1, "web-002")
	pods := podsOf(r.owner, 4)
	limit := 1
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
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
}

// A mustGoPodRig is a rig in which Rules.MustGo returns true for one pod. The name of this pod is in the field
// name.
type mustGoPodRig struct {
	*podRig
	name string
}

func mustGoRig(want int32, name string) *mustGoPodRig {
	r := &mustGoPodRig{newRig(want), name}
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
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
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
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
		pass, err := afterConflict(t, r, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-001", "web-002"}, names(pass.Deleted))
	})
}

// inVersion returns copies of the pods with this resourceVersion.
func inVersion(is string, pods []*corev1.Pod) []*corev1.Pod {
	later := clones(pods)
	for _, p := range later {
		p.ResourceVersion = is
	}
	return later
}

// A delete call requires that the child still has the resourceVersion that the pass has seen. If a pod is not
// ready, its deletion usually requires only the pod's UID. Four rows of the table show when the deletion of an
// unready pod also requires the resourceVersion.
func TestDeletesCarryWhatWasJudged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*replicas.SpecOfPods)
		asks   bool
		want   string
	}{
		"a pod that is not ready":                {func(*replicas.SpecOfPods) {}, false, "web-000 7"},
		"if pods may have to stay":               {func(s *replicas.SpecOfPods) { s.Rules.MustStay = func(*corev1.Pod) bool { return false } }, false, "web-000 7"},
		"if the author's step has judged it":     {func(*replicas.SpecOfPods) {}, true, "web-000 7"},
		"if it is discarded, as it has ended":    {func(s *replicas.SpecOfPods) { s.Rules.Discard = func(*corev1.Pod) bool { return true } }, false, "web-000 7"},
		"if it counts as ready by the own rules": {func(s *replicas.SpecOfPods) { s.Rules.Ready = func(*corev1.Pod) bool { return true } }, false, "web-000 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(0)
			pods := versioned(podsOf(r.owner, 1))
			podtest.NotReady(pods[0])
			spec := r.kind.Spec
			r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
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

// If a client ends the goroutine of a call, the call has no answer. The call stays in flight, and the pass ends
// with an error. A fake client ends the goroutine if an assertion of the package require fails.
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
		assert.Len(t, r.known().UnansweredCalls(), int(2-min(want, 2)))
		assert.Equal(t, int(max(want, 2)-2), p.InFlight)
		assert.Equal(t, 1, telemetry.LiveReads(p.Calls), "what became of it?")
		assert.Equal(t, 1, p.Failed)
	}
}
