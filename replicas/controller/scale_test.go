// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"sync"
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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
	"github.com/replicakit/replicakit/slowstart"
)

func TestCreates(t *testing.T) {
	t.Parallel()
	t.Run("P7 each call is given a pod of its own, which a client may write to", func(t *testing.T) {
		t.Parallel()
		r := newRig(50)
		r.opts.MaxParallel = 8
		seen := sync.Map{}
		r.send = func(pod *corev1.Pod) {
			_, twice := seen.LoadOrStore(pod, true)
			assert.False(t, twice)
			pod.Name, pod.Labels["app"] = "mine", "mine"
		}
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 50)
	})
	t.Run("a client that answers without a pod is asked for it", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.silent = true
		r.get = func(name string) (*corev1.Pod, error) { return podtest.Pod(name, owned(r.owner)), nil }
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
	})
	t.Run("an answer that is another pod is an error, and nothing is deleted because of it", func(t *testing.T) {
		t.Parallel()
		for name, change := range map[string]func(p *corev1.Pod){
			"another name":      func(p *corev1.Pod) { p.Name = "web-other" },
			"another namespace": func(p *corev1.Pod) { p.Namespace = "other" },
		} {
			r := newRig(1)
			r.mutate = change
			pass, err := r.pass(t, 0)
			require.ErrorContains(t, err, `the creation of "default/web-bbbbb" was answered with `, name)
			assert.Empty(t, pass.Created, name)
			assert.Empty(t, r.callsOf("delete"), name)
			assert.Zero(t, sum(r.pending()), name)
		}
	})
	t.Run("a look that is answered with nothing tells nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
		r.get = func(string) (*corev1.Pod, error) { return nil, nil }
		pods := podsOf(r.owner, 3)
		for second := range 3 {
			pass, err := r.pass(t, second, pods...)
			require.Error(t, err)
			assert.Len(t, pass.Active, 3, "none is known to be gone")
			assert.Empty(t, pass.Deleted)
		}
	})
	t.Run("D7 nothing is under way when a pass ends, whatever fails in it", func(t *testing.T) {
		t.Parallel()
		for name, fails := range map[string]func() error{
			"nothing": func() error { return nil },
			"a call":  func() error { return errors.New("refused") },
			"a panic": func() error { panic("bug in the client") },
		} {
			synctest.Test(t, func(t *testing.T) { // synctest fails if a goroutine can never end
				r := newRig(0)
				r.opts.MaxParallel = 8
				var under, calls atomic.Int64
				call := func() error {
					under.Add(1)
					defer under.Add(-1)
					n := calls.Add(1)
					time.Sleep(time.Duration(n%5) * time.Second)
					if n == 20 {
						return fails()
					}
					return nil
				}
				r.create = func(int) error { return call() }
				r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return call() }
				r.patch = func(*corev1.Pod) error { return call() }
				pods := podsOf(r.owner, 50)
				for _, p := range pods[:25] {
					p.OwnerReferences = nil
				}
				pass := func(want int32, pods ...*corev1.Pod) {
					defer func() { _ = recover() }()
					calls.Store(0)
					r.owner.Spec.Replicas = &want
					_, _ = r.pass(t, 0, pods...)
				}
				pass(50, pods...) // adopts
				assert.Zero(t, under.Load(), name)
				pass(100, pods[25:]...) // creates
				assert.Zero(t, under.Load(), name)
				r.settle()
				pass(0, pods[25:]...) // deletes
				assert.Zero(t, under.Load(), name)
				assert.GreaterOrEqual(t, calls.Load(), int64(20), name)
			})
		}
	})
	t.Run("B1 B2 the burst is what is expected", func(t *testing.T) {
		t.Parallel()
		r := newRig(700)
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		adds, _ := r.pending()
		assert.Equal(t, 500, adds)
	})
	t.Run("W4 a panic in a call reaches the caller with only what succeeded still expected", func(t *testing.T) {
		t.Parallel()
		for _, parallel := range []int{1, 8} {
			r := newRig(10)
			r.opts.MaxParallel = parallel
			r.create = func(i int) error {
				if i == 3 {
					panic("bug in the client")
				}
				return nil
			}
			func() {
				defer func() {
					var p *slowstart.Panic
					err, _ := recover().(error)
					require.ErrorAs(t, err, &p)
					assert.Equal(t, "bug in the client", p.Value)
					assert.Contains(t, r.events, `Warning Panicked controller: ReplicaSet "default/web": a function of the Kind or the client panicked, and the log has the stack: bug in the client`)
				}()
				_, _ = r.pass(t, 0)
			}()
			adds, _ := r.pending()
			assert.Equal(t, int(r.created.Load())-1, adds)
		}
	})
	t.Run("a panic of the event sink does not make a created or deleted pod forgotten", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.tell = func() { panic("bug in the sink") }
		assert.Panics(t, func() { _, _ = r.pass(t, 0) })
		adds, _ := r.pending()
		assert.Equal(t, 1, adds)
		r.settle()
		assert.Panics(t, func() { _, _ = r.pass(t, 0, podsOf(r.owner, 2)...) })
		_, dels := r.pending()
		assert.Equal(t, 1, dels)
	})
	t.Run("S12 a context that ends stops slow start between batches", func(t *testing.T) {
		t.Parallel()
		r := newRig(20)
		ctx, cancel := context.WithCancel(context.Background())
		r.create = func(i int) error {
			if i == 2 {
				cancel()
			}
			return nil
		}
		pass, err := r.sync(t, ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, pass.Created, 3)
		adds, _ := r.pending()
		assert.Equal(t, 3, adds)
	})
}

// The memory that a pass allocates depends on the size of its burst, but not on the number of wanted children.
func TestMemory(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	allocated := func(want int32) float64 {
		r := newRig(want)
		r.create = func(int) error { return errors.New("refused") }
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		_, err := r.sync(t, context.Background())
		goruntime.ReadMemStats(&after)
		require.Error(t, err)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	allocated(1) // what is made once in a process
	assert.Less(t, allocated(20_000_000), 2*allocated(1000), "bytes")
}

func TestNoteResent(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(server.Close)
	// call returns a function that sends the given number of requests and returns err.
	call := func(times int, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			for range times {
				req, failed := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
				require.NoError(t, failed)
				resp, failed := server.Client().Do(req)
				require.NoError(t, failed)
				require.NoError(t, resp.Body.Close())
			}
			return err
		}
	}
	for _, tt := range []struct {
		name  string
		times int
		err   error
		want  bool
	}{
		{"an error of a request that was sent twice", 2, quotaFull(), true},
		{"of one that was sent once", 1, quotaFull(), false},
		{"of one that was not sent", 0, quotaFull(), false},
		{"a success", 2, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := controller.NoteResent(t.Context(), call(tt.times, tt.err))
			require.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.want, errors.Is(err, controller.ErrResent))
			assert.Equal(t, tt.err != nil, apierrors.IsForbidden(err), "it is the server's still")
		})
	}
}

// A client that decodes the answer into its argument writes to the maps of the child, and sends several children at
// once. The maps may be one map for all children, or a map of the owner in the cache.
func TestTheClientGetsACopyOfTheChild(t *testing.T) {
	t.Parallel()
	shared := map[string]string{"app": "web"}
	for name, of := range map[string]func(r *podRig) map[string]string{
		"with one map for all children": func(*podRig) map[string]string { return shared },
		"with a map of the owner":       func(r *podRig) map[string]string { return r.owner.Labels },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(30)
			r.owner.Labels = map[string]string{"app": "web"}
			was := clone(r.owner)
			made := make(chan *corev1.Pod, 30)
			withSpec(r, func(s *replicas.SpecOfPods) {
				s.New = func(string) (*corev1.Pod, error) {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: of(r), Annotations: of(r)}}
					made <- pod
					return pod, nil
				}
			})
			r.opts.MaxParallel = 16
			r.send = func(p *corev1.Pod) {
				p.UID, p.Labels[p.Name], p.Annotations[p.Name] = "answered", "hooked", "hooked"
			}
			pass, err := r.pass(t, 0)
			require.NoError(t, err)
			require.Len(t, pass.Created, 30)
			for _, p := range pass.Created {
				assert.Equal(t, map[string]string{"app": "web"}, p.Labels)
			}
			assert.Equal(t, was, r.owner, "the owner in the cache")
			assert.Equal(t, map[string]string{"app": "web"}, shared)
			close(made)
			for pod := range made {
				assert.Empty(t, pod.UID)
			}
		})
	}
}

// A box is a child whose DeepCopyObject returns something else.
type box struct {
	corev1.Pod
	copied runtime.Object
}

func (b *box) DeepCopyObject() runtime.Object { return b.copied }

func TestAChildWithoutACopyIsNotSent(t *testing.T) {
	t.Parallel()
	for name, copied := range map[string]runtime.Object{"nothing": nil, "another type": &corev1.Pod{}, "a nil child": (*box)(nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods := controller.ReplicaSets()
			r := rigOf(controller.Kind[*appsv1.ReplicaSet, *box]{
				Owner: pods.Owner, Child: pods.Child,
				Spec: func(rs *appsv1.ReplicaSet) (replicas.Spec[*box], error) {
					return replicas.Spec[*box]{Replicas: 1, Selector: labels.SelectorFromSet(web), New: func(string) (*box, error) {
						return &box{corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: web}}, copied}, nil
					}}, nil
				},
			}, replicaSet(1))
			_, err := r.pass(t, 0)
			require.ErrorContains(t, err, "*controller_test.box.DeepCopyObject returned another type")
			assert.Zero(t, r.created.Load())
		})
	}
}

func TestDeletes(t *testing.T) {
	t.Parallel()
	t.Run("D7 all calls are under way at once, W23 within the cap, which is 128 by default", func(t *testing.T) {
		t.Parallel()
		for parallel, want := range map[int]int64{3: 3, 0: 128} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(0)
				r.opts.MaxParallel = parallel
				most := mostAtOnce(r)
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

// mostAtOnce makes each deletion take a second, and returns how many were under way at once at most.
func mostAtOnce(r *podRig) *atomic.Int64 {
	var under, most atomic.Int64
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
		n := under.Add(1)
		defer under.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Second) // with synctest, the sleep ends when no other call can start
		return nil
	}
	return &most
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
			most := mostAtOnce(r)
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

// A deletion without an answer may still take effect, so Prepare sees the plan without that pod.
func TestAPodInDoubtIsGoneToAVeto(t *testing.T) {
	t.Parallel()
	r := newRig(3)
	var stays string
	withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Name == stays } })
	var asked []string
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
		asked = names(s.Active)
		return nil
	}
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
	_, err := r.pass(t, 0, podsOf(r.owner, 4)...)
	require.Error(t, err)
	require.Len(t, asked, 4)
	stays, *r.owner.Spec.Replicas = "web-000", 2
	_, err = r.pass(t, 1, podsOf(r.owner, 4)...)
	require.Error(t, err)
	assert.Equal(t, []string{"web-001", "web-002", "web-003"}, asked)
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

// mustGoRig returns a rig in which Rules.MustGo returns true for the named pod.
func mustGoRig(want int32, name string) *podRig {
	r := newRig(want)
	withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Name == name } })
	return r
}

// A context that has ended is an error, though no status has to be written.
func TestDeletesThatCannotBeMade(t *testing.T) {
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
}

// inVersion returns copies of the pods with this resourceVersion.
func inVersion(is string, pods []*corev1.Pod) []*corev1.Pod {
	later := clones(pods)
	for _, p := range later {
		p.ResourceVersion = is
	}
	return later
}

// A delete call requires that the child still has the resourceVersion that the pass has seen, also if a pod is not ready.
func TestDeletesCarryWhatWasJudged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *podRig){
		"a pod that is not ready": func(*podRig) {},
		"if pods may have to stay": func(r *podRig) {
			withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.MustStay = func(*corev1.Pod) bool { return false } })
		},
		"if the author's step has judged it": func(r *podRig) {
			r.kind.Prepare = func(context.Context, *appsv1.ReplicaSet, *controller.Step[*corev1.Pod]) error { return nil }
		},
		"if it is discarded, as it has ended": func(r *podRig) {
			withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.Discard = func(*corev1.Pod) bool { return true } })
		},
		"if it counts as ready by the own rules": func(r *podRig) {
			withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.Ready = func(*corev1.Pod) bool { return true } })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(0)
			change(r)
			pods := versioned(podsOf(r.owner, 1))
			podtest.NotReady(pods[0])
			seen := versionsOf(r, func(*corev1.Pod, string) error { return nil })
			_, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			assert.Equal(t, []string{"web-000 7"}, *seen)
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
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { goruntime.Goexit(); return nil }
		r.create = func(int) error { goruntime.Goexit(); return nil }
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
