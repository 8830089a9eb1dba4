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

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/slowstart"
)

func TestCreates(t *testing.T) {
	t.Parallel()
	t.Run("K1 K4 what was created is waited for", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		adds, _ := r.pending()
		assert.Equal(t, 5, adds)
		assert.Len(t, pass.Created, 5)
		assert.Empty(t, pass.Active, "active pods are those from before")
		assert.True(t, pass.Observed)
		assert.False(t, pass.Waiting())
	})
	t.Run("K2 failed and skipped creations are not expected, K3 the error comes back", func(t *testing.T) {
		t.Parallel()
		r := newRig(20)
		boom := errors.New("boom")
		r.create = func(i int) error {
			if i == 4 {
				return boom
			}
			return nil
		}
		pass, err := r.pass(t, 0)
		require.ErrorIs(t, err, boom)
		require.EqualError(t, pass.ScaleErr, "boom", "T11 the condition's message is the error's text and no more")
		assert.Len(t, pass.Created, 6, "S9 batches of 1, 2 and 4, one of them refused")
		assert.Equal(t, 1, pass.Failed)
		assert.Equal(t, 13, pass.Skipped)
		adds, _ := r.pending()
		assert.Equal(t, 6, adds)
		assert.True(t, pass.Observed, "K3 status is still written")
		assert.Zero(t, pass.RequeueAfter, "the rate limiter decides")
	})
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
	t.Run("W13 a pass that expects something asks to be woken when that expires", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.InDelta(t, expectations.DefaultTimeout, pass.RequeueAfter, float64(time.Millisecond))
	})
	t.Run("W13 or soon, if that expires while the pass is under way", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { // the write takes six minutes
			r.now = r.now.Add(6 * time.Minute)
			return nil
		}
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		require.Len(t, pass.Created, 1)
		assert.Equal(t, 5*time.Second, pass.RequeueAfter, "what it began itself")

		r = newRig(1)
		r.awaits(r.owner, "web-lost")
		r.now = podtest.Now.Add(299 * time.Second)
		r.children = func() ([]*corev1.Pod, error) {
			r.now = podtest.Now.Add(301 * time.Second)
			return nil, nil
		}
		pass, err = r.sync(t, t.Context())
		require.NoError(t, err)
		require.True(t, pass.Waiting())
		assert.Equal(t, 5*time.Second, pass.RequeueAfter, "what an earlier one began")
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

// A webhook times out, and the events of other objects cause four passes a second. A creation without an answer is
// sent again at once, and then after growing delays, with a gate that says so.
func TestACreationWithoutAnAnswerIsNotSentAtEachEvent(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, tt := range map[string]struct {
		wanted int32
		change func(r *podRig, at time.Duration) // called before each pass
		until  time.Duration
		want   []time.Duration
	}{
		"it is held for a second, doubling to a minute": {
			wanted: 1, until: 190 * second,
			want: []time.Duration{0, second / 4, second * 5 / 4, second * 13 / 4, second * 29 / 4, second * 61 / 4, second * 125 / 4, second * 253 / 4, second * 493 / 4, second * 733 / 4},
		},
		"a new generation of the owner ends the hold": {
			wanted: 1, until: 11 * second,
			change: func(r *podRig, at time.Duration) {
				if at == 8*second {
					r.owner.Generation++
				}
			},
			want: []time.Duration{0, second / 4, second * 5 / 4, second * 13 / 4, second * 29 / 4, 8 * second, second * 33 / 4, second * 37 / 4},
		},
		"an answer ends it, and the next creation without an answer is sent again at once": {
			wanted: 1, until: 12 * second,
			change: func(r *podRig, at time.Duration) {
				switch at {
				case 3 * second:
					r.create = func(int) error { return nil }
				case 10 * second: // the pod has ended
					r.create = func(int) error { return timeout() }
					r.children = func() ([]*corev1.Pod, error) { return nil, nil }
					for _, p := range r.known().Names() {
						r.known().CreateRejected(p.NamespacedName)
					}
					r.settle()
				}
			},
			want: []time.Duration{0, second / 4, second * 5 / 4, second * 13 / 4, 10 * second, second * 41 / 4, second * 45 / 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(tt.wanted)
			r.create = func(int) error { return timeout() }
			r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
			var sent []time.Duration
			for at := time.Duration(0); at < tt.until; at += second / 4 {
				r.now = podtest.Now.Add(at)
				if tt.change != nil {
					tt.change(r, at)
				}
				pass, _ := r.sync(t, t.Context())
				if len(r.callsOf("create")) > 0 {
					sent = append(sent, at)
					continue
				}
				if len(pass.Active) > 0 {
					continue
				}
				require.NotEmpty(t, pass.Gates, "at %v", at)
				assert.Equal(t, controller.CreationInFlight, pass.Gates[0].Reason)
				assert.LessOrEqual(t, pass.RequeueAfter, pass.Gates[0].Until.Sub(r.now))
				assert.Positive(t, pass.RequeueAfter)
			}
			assert.Equal(t, tt.want, sent)
		})
	}
	t.Run("other children are created meanwhile", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.create = func(i int) error { return map[bool]error{true: timeout()}[i < 2] }
		r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
		for range 2 {
			_, err := r.pass(t, 0)
			require.Error(t, err)
			require.Equal(t, []string{"create default/web-bbbbb"}, r.callsOf("create"))
		}
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, 1, pass.InFlight)
		assert.Len(t, pass.Created, 2)
		assert.NotContains(t, r.callsOf("create"), "create default/web-bbbbb")
	})
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
