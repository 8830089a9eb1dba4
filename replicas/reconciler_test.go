package replicas_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
)

var podResource = schema.GroupResource{Resource: "pods"}

func notFound(name string) error { return apierrors.NewNotFound(podResource, name) }
func conflict(name string) error {
	return apierrors.NewConflict(podResource, name, errors.New("the object has been modified"))
}

func invalid(name string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, nil)
}

func forbidden(name, why string) error {
	return apierrors.NewForbidden(podResource, name, errors.New(why))
}

func quotaFull() error {
	return forbidden("web-x", "exceeded quota: pods, requested: pods=1, used: pods=3, limited: pods=3")
}

func namespaceTerminating() error {
	err := apierrors.NewForbidden(podResource, "", errors.New("unable to create new content in namespace default because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func namespaceGone() error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default")
}

func busy(seconds int) error { return apierrors.NewTooManyRequests("slow down", seconds) }

// rig is a Reconciler over calls that a test scripts: it is its PodControl, its
// OwnerReader and its EventSink.
type rig struct {
	*replicas.Reconciler
	rs  *appsv1.ReplicaSet
	key expectations.Key
	now time.Time

	mu     sync.Mutex
	calls  []string
	events []string

	version     string // what the server answers to writes
	silent      bool   // answer without an object
	tell        func() // called for every event
	patched     podtest.Option
	createCalls atomic.Int64
	create      func(i int) error // of the i-th create call
	remove      func(pod *corev1.Pod, opts metav1.DeleteOptions) error
	patch       func(pod *corev1.Pod) error
	owner       func() (metav1.Object, error)
	live        func() ([]*corev1.Pod, error) // what a live list finds
	get         func(name string) (*corev1.Pod, error)
}

func newRig(want int32) *rig {
	r := &rig{rs: replicaSet(want), now: podtest.Now}
	r.key = expectations.Key{NamespacedName: types.NamespacedName{Namespace: r.rs.Namespace, Name: r.rs.Name}, UID: r.rs.UID}
	r.create = func(int) error { return nil }
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
	r.patch = func(*corev1.Pod) error { return nil }
	r.owner = func() (metav1.Object, error) { return r.rs, nil }
	r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("no list was expected") }
	r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
	r.Reconciler = &replicas.Reconciler{
		Pods:         r,
		Owners:       r,
		Events:       r,
		Expectations: &expectations.Store[expectations.Key]{Now: func() time.Time { return podtest.Now }},
		Kind:         appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		MaxParallel:  1,
		Now:          func() time.Time { return r.now },
	}
	return r
}

func (r *rig) note(list *[]string, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*list = append(*list, fmt.Sprintf(format, args...))
}

func (r *rig) CreatePod(_ context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	i := int(r.createCalls.Add(1)) - 1
	r.note(&r.calls, "create %s/%s", namespace, pod.GenerateName)
	if err := r.create(i); err != nil || r.silent {
		return nil, err
	}
	stored := pod.DeepCopy()
	stored.Name, stored.UID = fmt.Sprintf("web-new%d", i), types.UID(fmt.Sprintf("uid-new%d", i))
	stored.ResourceVersion = r.version
	return stored, nil
}

func (r *rig) DeletePod(_ context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) (string, error) {
	r.note(&r.calls, "delete %s", pod.Name)
	return r.version, r.remove(pod, opts)
}

func (r *rig) PatchPod(_ context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
	r.note(&r.calls, "patch %s %s", pod.Name, patch.Data)
	if err := r.patch(pod); err != nil || r.silent {
		return nil, err
	}
	patched := pod.DeepCopy()
	patched.ResourceVersion = r.version
	if r.patched != nil {
		r.patched(patched)
	}
	return patched, nil
}

func (r *rig) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	r.note(&r.calls, "get pod %s", name)
	return r.get(name)
}

func (r *rig) ListPods(_ context.Context, namespace string, matching labels.Selector) ([]*corev1.Pod, error) {
	r.note(&r.calls, "list %s %s", namespace, matching)
	return r.live()
}

func (r *rig) GetOwner(context.Context, string, string) (metav1.Object, error) {
	r.note(&r.calls, "get owner")
	return r.owner()
}

func (r *rig) Event(_ metav1.Object, eventType, reason, message string) {
	r.note(&r.events, "%s %s %s", eventType, reason, message)
	if r.tell != nil {
		r.tell()
	}
}

// creator is a rig that looks at, or writes into, what it creates.
type creator struct {
	*rig
	create func(*corev1.Pod)
}

func (c creator) CreatePod(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	c.create(pod)
	return c.rig.CreatePod(ctx, namespace, pod)
}

// reconcile makes one pass at an instant, seconds after podtest.Now.
func (r *rig) reconcile(t *testing.T, seconds int, pods ...*corev1.Pod) (replicas.Result, error) {
	t.Helper()
	return r.reconcileAt(t, time.Duration(seconds)*time.Second, pods...)
}

// reconcileAt makes one pass at an instant, so long after podtest.Now.
func (r *rig) reconcileAt(t *testing.T, at time.Duration, pods ...*corev1.Pod) (replicas.Result, error) {
	t.Helper()
	spec, err := replicas.ReplicaSetSpec(r.rs)
	require.NoError(t, err)
	r.now = podtest.Now.Add(at)
	r.calls, r.events = nil, nil
	return r.Reconcile(context.Background(), spec, func(context.Context) ([]*corev1.Pod, error) { return pods, nil })
}

// callsOf and eventsOf return those that begin so, of the last pass.
func (r *rig) callsOf(start string) []string  { return starting(r.calls, start) }
func (r *rig) eventsOf(start string) []string { return starting(r.events, start) }

func starting(list []string, start string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !strings.HasPrefix(s, start) })
}

// pending returns what is recorded for the owner.
func (r *rig) pending() (adds, dels int) {
	p, _ := r.Expectations.Get(r.key)
	return p.Total()
}

func (r *rig) settle() { r.Expectations.Forget(r.key) }

func TestReconcileCreates(t *testing.T) {
	t.Parallel()
	t.Run("K1 the expectation is recorded before the first call and K4 stays when they succeed", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(int) error {
			adds, _ := r.pending()
			assert.Equal(t, 5, adds)
			return nil
		}
		result, err := r.reconcile(t, 0)
		require.NoError(t, err)
		adds, _ := r.pending()
		assert.Equal(t, 5, adds)
		assert.Len(t, result.Created, 5)
		assert.Empty(t, result.Active, "T1 active pods are those from before")
		assert.True(t, result.Observed)
		assert.False(t, result.Waiting)
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
		result, err := r.reconcile(t, 0)
		require.ErrorIs(t, err, boom)
		require.EqualError(t, result.ScaleErr, "boom", "T11 the condition's message is the error's text and no more")
		assert.Len(t, result.Created, 6, "S9 batches of 1, 2 and 4, one of them refused")
		assert.Equal(t, 1, result.Failed)
		assert.Equal(t, 13, result.Skipped)
		adds, _ := r.pending()
		assert.Equal(t, 6, adds)
		assert.True(t, result.Observed, "K3 status is still written")
		assert.Zero(t, result.RequeueAfter, "the rate limiter decides")
	})
	t.Run("P7 each call is given a pod of its own, which a client may write to", func(t *testing.T) {
		t.Parallel()
		r := newRig(50)
		r.MaxParallel = 8
		seen := sync.Map{}
		r.Pods = creator{r, func(pod *corev1.Pod) {
			_, twice := seen.LoadOrStore(pod, true)
			assert.False(t, twice)
			assert.Empty(t, pod.Name)
			pod.Name, pod.Labels["app"] = "mine", "mine"
		}}
		result, err := r.reconcile(t, 0)
		require.NoError(t, err)
		assert.Len(t, result.Created, 50)
	})
	t.Run("a client that answers without a pod has created one all the same", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.silent = true
		result, err := r.reconcile(t, 0)
		require.NoError(t, err)
		assert.Len(t, result.Created, 2)
		adds, _ := r.pending()
		assert.Equal(t, 2, adds)
	})
	t.Run("D7 nothing is under way when a pass ends, whatever fails in it", func(t *testing.T) {
		t.Parallel()
		for name, fails := range map[string]func() error{
			"nothing": func() error { return nil },
			"a call":  func() error { return errors.New("refused") },
			"a panic": func() error { panic("bug in the client") },
		} {
			synctest.Test(t, func(t *testing.T) { // which fails for a goroutine that can never end
				r := newRig(0)
				r.MaxParallel = 8
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
				pods := podsOf(r.rs, 50)
				for _, p := range pods[:25] {
					p.OwnerReferences = nil
				}
				pass := func(want int32, pods ...*corev1.Pod) {
					defer func() { _ = recover() }()
					calls.Store(0)
					r.rs.Spec.Replicas = &want
					_, _ = r.reconcile(t, 0, pods...)
				}
				pass(50, pods...) // adopts
				assert.Zero(t, under.Load(), name)
				pass(100, pods[25:]...) // creates
				assert.Zero(t, under.Load(), name)
				r.Expectations.Forget(r.key)
				pass(0, pods[25:]...) // deletes
				assert.Zero(t, under.Load(), name)
				assert.GreaterOrEqual(t, calls.Load(), int64(20), name)
			})
		}
	})
	t.Run("B1 B2 the burst is what is expected", func(t *testing.T) {
		t.Parallel()
		r := newRig(700)
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		adds, _ := r.pending()
		assert.Equal(t, 500, adds)
	})
	t.Run("W13 a pass that expects something asks to be woken when that expires", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		result, err := r.reconcile(t, 0)
		require.NoError(t, err)
		assert.InDelta(t, expectations.DefaultTimeout, result.RequeueAfter, float64(time.Millisecond))
	})
	t.Run("W4 a panic in a call reaches the caller with only what succeeded still expected", func(t *testing.T) {
		t.Parallel()
		for _, parallel := range []int{1, 8} {
			r := newRig(10)
			r.MaxParallel = parallel
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
				}()
				_, _ = r.reconcile(t, 0)
			}()
			adds, _ := r.pending()
			assert.Equal(t, int(r.createCalls.Load())-1, adds)
		}
	})
	t.Run("a panic of the event sink does not make a created or deleted pod forgotten", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.tell = func() { panic("bug in the sink") }
		assert.Panics(t, func() { _, _ = r.reconcile(t, 0) })
		adds, _ := r.pending()
		assert.Equal(t, 1, adds)
		r.settle()
		assert.Panics(t, func() { _, _ = r.reconcile(t, 0, podsOf(r.rs, 2)...) })
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
		spec := specOf(t, r.rs)
		result, err := r.Reconcile(ctx, spec, func(context.Context) ([]*corev1.Pod, error) { return nil, nil })
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, result.Created, 3)
		adds, _ := r.pending()
		assert.Equal(t, 3, adds)
	})
}

func TestReconcileDeletes(t *testing.T) {
	t.Parallel()
	t.Run("D6 every victim is expected to go before the first call", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
			_, dels := r.pending()
			assert.Equal(t, 3, dels)
			return nil
		}
		result, err := r.reconcile(t, 0, podsOf(r.rs, 4)...)
		require.NoError(t, err)
		assert.Len(t, result.Deleted, 3)
		assert.Len(t, result.Active, 4)
		_, dels := r.pending()
		assert.Equal(t, 3, dels)
	})
	t.Run("D7 all calls are under way at once, W23 within the cap, which is 128 by default", func(t *testing.T) {
		t.Parallel()
		for parallel, want := range map[int]int64{3: 3, 0: 128} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(0)
				r.MaxParallel = parallel
				var under, most atomic.Int64
				r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
					n := under.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Second) // until no other call can start
					under.Add(-1)
					return nil
				}
				_, err := r.reconcile(t, 0, podsOf(r.rs, 300)...)
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
		result, err := r.reconcile(t, 0, podsOf(r.rs, 3)...)
		require.ErrorContains(t, err, "no web-000")
		require.ErrorContains(t, err, "no web-002")
		assert.Equal(t, 2, result.Failed)
		_, dels := r.pending()
		assert.Equal(t, 1, dels)
	})
	t.Run("D8 P14 a pod that is gone already is not expected, no event and no error", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(pod *corev1.Pod, _ metav1.DeleteOptions) error { return notFound(pod.Name) }
		result, err := r.reconcile(t, 0, podsOf(r.rs, 2)...)
		require.NoError(t, err)
		assert.Empty(t, result.Deleted)
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
		pods := podsOf(r.rs, 3)
		podtest.NotReady(pods[1])
		for _, p := range pods[:2] {
			p.ResourceVersion = "7"
		}
		_, err := r.reconcile(t, 0, pods...)
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
		assert.Panics(t, func() { _, _ = r.reconcile(t, 0, podsOf(r.rs, 3)...) })
		_, dels := r.pending()
		assert.Equal(t, 1, dels)
	})
}

func TestMemoryFollowsWhatWasTried(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	r := newRig(20_000_000)
	spec := specOf(t, r.rs)
	spec.BurstReplicas = math.MaxInt
	r.create = func(i int) error {
		if i < 100 {
			return nil
		}
		return errors.New("refused")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result, err := r.Reconcile(context.Background(), spec, func(context.Context) ([]*corev1.Pod, error) { return nil, nil })
	runtime.ReadMemStats(&after)
	require.Error(t, err)
	assert.Len(t, result.Created, 100)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20), "bytes")
	adds, _ := r.pending()
	assert.Equal(t, 100, adds)
}

// versions are the resourceVersions of deletes, "" for none, as a remove notes
// them.
func (r *rig) versions(answer func(pod *corev1.Pod, version string) error) *[]string {
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

// changed refuses deletes with a version: the pods have changed since.
func changed(pod *corev1.Pod, version string) error {
	if version != "" {
		return conflict(pod.Name)
	}
	return nil
}

func refusing(pod *corev1.Pod, _ string) error { return conflict(pod.Name) }

// versioned gives pods a version, as an API server would.
func versioned(pods []*corev1.Pod) []*corev1.Pod {
	for _, p := range pods {
		p.ResourceVersion = "7"
	}
	return pods
}

func TestReconcileConflicts(t *testing.T) {
	t.Parallel()
	t.Run("W25 W26 after the first conflict a live list decides, and the UID alone is sent", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := versioned(podsOf(r.rs, 5))
		podtest.NotReady(pods[3])
		r.live = func() ([]*corev1.Pod, error) { return deepCopies(pods), nil }
		seen := r.versions(changed)
		result, err := r.reconcile(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-003 ", "web-000 7", "web-000 ", "web-001 ", "web-002 "}, *seen)
		assert.Equal(t, 1, count(r.calls, "list default app=web"))
		assert.Len(t, result.Deleted, 4)
		_, dels := r.pending()
		assert.Equal(t, 4, dels)
		assert.Equal(t, 1, result.Conflicts)
		assert.Equal(t, 1, result.LiveLists)
		assert.False(t, result.Waiting || result.Held)
		assert.Zero(t, result.Failed)
	})
	t.Run("W25 calls that were under way at the first conflict are made again, and no more than twice", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.MaxParallel = 8
		pods := versioned(podsOf(r.rs, 40))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		seen := r.versions(changed)
		result, err := r.reconcile(t, 0, pods...)
		require.NoError(t, err)
		assert.Len(t, result.Deleted, 40)
		assert.LessOrEqual(t, len(*seen), 40+8)
	})
	t.Run("W25 they are few: calls with a version start in growing batches", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.MaxParallel = 0
		pods := versioned(podsOf(r.rs, 300))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		seen := r.versions(changed)
		result, err := r.reconcile(t, 0, pods...)
		require.NoError(t, err)
		assert.Len(t, result.Deleted, 300)
		assert.LessOrEqual(t, len(*seen), 300+16)

		r = newRig(0)
		r.MaxParallel = 0
		var under, most atomic.Int64
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error {
			n := under.Add(1)
			defer under.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		_, err = r.reconcile(t, 0, pods...)
		require.NoError(t, err)
		assert.Greater(t, most.Load(), int64(64), "and they do grow")
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
			pods := versioned(podsOf(r.rs, 4))
			r.live = func() ([]*corev1.Pod, error) {
				live := deepCopies(pods)
				change(live[0])
				return live, nil
			}
			seen := r.versions(changed)
			result, err := r.reconcile(t, 0, pods...)
			require.NoError(t, err)
			assert.Equal(t, []string{"web-000 7", "web-001 ", "web-002 "}[:len(*seen)], *seen)
			assert.NotContains(t, names(result.Deleted), "web-000")
			assert.True(t, result.Waiting, "the cache is behind")
			assert.Equal(t, 50*time.Millisecond, result.RequeueAfter)
			assert.Empty(t, r.eventsOf("Warning"))
		})
	}
	t.Run("W25 no more are deleted than a live list shows to be too many", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		pods := versioned(podsOf(r.rs, 6))
		r.live = func() ([]*corev1.Pod, error) { return pods[:5], nil } // a survivor has died
		_ = r.versions(changed)
		result, err := r.reconcile(t, 0, pods...)
		require.NoError(t, err)
		assert.Len(t, result.Deleted, 2)
		_, dels := r.pending()
		assert.Equal(t, 2, dels)
		assert.Equal(t, 50*time.Millisecond, result.RequeueAfter)
	})
	t.Run("W25 if the list fails nothing more is changed, and the error says so", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		pods := versioned(podsOf(r.rs, 10))
		r.live = func() ([]*corev1.Pod, error) { return nil, busy(7) }
		seen := r.versions(changed)
		result, err := r.reconcile(t, 0, pods...)
		require.ErrorContains(t, err, "unable to delete pods: listing them live: slow down")
		require.ErrorContains(t, result.ScaleErr, "slow down")
		assert.Len(t, *seen, 1)
		_, dels := r.pending()
		assert.Zero(t, dels)
		assert.Equal(t, 7*time.Second, result.RequeueAfter)
		assert.Equal(t, []string{"Warning DeletionsHeld Holding deletions for 7s: unable to delete pods: listing them live: slow down"}, r.events)
		_, err = r.reconcile(t, 6, pods...)
		require.NoError(t, err)
		assert.Len(t, *seen, 1, "held")
		r.live = func() ([]*corev1.Pod, error) { return append(pods, pods[0]), nil }
		_, err = r.reconcile(t, 7, pods...)
		require.ErrorContains(t, err, "listed twice", "a list that cannot be")
		assert.Len(t, *seen, 1)
	})
	for _, n := range []int{1, 3, 4, 10} {
		t.Run(fmt.Sprintf("P15 W25 a conflict of a delete by UID alone is a failure if the pod is still there, %d pods", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(0)
			pods := versioned(podsOf(r.rs, n))
			r.live = func() ([]*corev1.Pod, error) { return pods, nil }
			r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
			_ = r.versions(refusing)
			result, err := r.reconcile(t, 0, pods...)
			assert.True(t, apierrors.IsConflict(err))
			require.ErrorContains(t, result.ScaleErr, "unable to delete pods: Operation cannot be fulfilled")
			assert.Equal(t, n, result.Failed)
			assert.Len(t, r.eventsOf("Warning FailedDelete"), n)
			assert.Equal(t, 50*time.Millisecond, result.RequeueAfter)
			_, dels := r.pending()
			assert.Zero(t, dels)
			gets, lists := r.callsOf("get pod"), r.callsOf("list")
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
			pods := versioned(podsOf(r.rs, n))
			next := deepCopies(pods)
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
			_ = r.versions(refusing)
			result, err := r.reconcile(t, 0, pods...)
			require.NoError(t, err)
			assert.Zero(t, result.Failed)
			assert.Empty(t, r.eventsOf("Warning"))
			_, dels := r.pending()
			assert.Zero(t, dels)
		})
	}
	t.Run("W25 a pod that cannot be read either is not taken for gone", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{2, 5} {
			r := newRig(0)
			pods := versioned(podsOf(r.rs, n))
			r.live = func() ([]*corev1.Pod, error) {
				if len(r.callsOf("list")) == 1 {
					return pods, nil
				}
				return nil, busy(1)
			}
			r.get = func(string) (*corev1.Pod, error) { return nil, busy(1) }
			_ = r.versions(refusing)
			_, err := r.reconcile(t, 0, pods...)
			assert.True(t, apierrors.IsConflict(err), n)
		}
	})
	t.Run("W25 deletions are held from 50 ms to a minute, whatever events come, and an event tells so once", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		pods := versioned(podsOf(r.rs, 5))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		seen := r.versions(refusing)
		var told []string
		at := time.Duration(0)
		for i, ms := range []int{50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000} {
			wait := time.Duration(ms) * time.Millisecond
			result, err := r.reconcileAt(t, at, pods...)
			require.Error(t, err)
			assert.Equal(t, wait, result.RequeueAfter)
			assert.Len(t, r.callsOf("delete"), 5+min(1, 1-min(i, 1)), "the first pass finds out that the view is old")
			told = append(told, r.eventsOf("Warning DeletionsHeld")...)
			calls := len(*seen)
			for range 3 {
				result, err = r.reconcileAt(t, at+wait-time.Millisecond, pods...)
				require.NoError(t, err)
				assert.True(t, result.Held && result.Waiting)
				assert.Equal(t, time.Millisecond, result.RequeueAfter)
			}
			assert.Len(t, *seen, calls)
			at += wait
		}
		require.Len(t, told, 1)
		assert.Contains(t, told[0], "Warning DeletionsHeld Holding deletions for 1.6s: unable to delete pods: Operation cannot be fulfilled")

		*seen = nil
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
		_, err := r.reconcileAt(t, at, pods...)
		require.NoError(t, err)
		r.settle()
		_ = r.versions(refusing)
		result, _ := r.reconcileAt(t, at, pods...)
		assert.Equal(t, 50*time.Millisecond, result.RequeueAfter, "a success starts anew")
	})
	t.Run("W25 a new generation of the owner, and Forget, end the hold; creations are not held", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(r *rig){
			"generation": func(r *rig) { r.rs.Generation++ },
			"Forget":     func(r *rig) { r.Forget(r.key) },
			"creation":   func(r *rig) { *r.rs.Spec.Replicas = 9 },
		} {
			r := newRig(0)
			pods := versioned(podsOf(r.rs, 5))
			r.live = func() ([]*corev1.Pod, error) { return pods, nil }
			_ = r.versions(refusing)
			_, err := r.reconcile(t, 0, pods...)
			require.Error(t, err)
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
			end(r)
			result, err := r.reconcile(t, 0, pods...)
			require.NoError(t, err)
			assert.Positive(t, len(result.Deleted)+len(result.Created), name)
			assert.False(t, result.Held)
		}
	})
	t.Run("W25 deletions are held from the end of their calls on, however long these took", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		pods := versioned(podsOf(r.rs, 1))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		r.get = func(string) (*corev1.Pod, error) { return pods[0], nil }
		r.remove = func(pod *corev1.Pod, _ metav1.DeleteOptions) error {
			r.now = r.now.Add(10 * time.Second)
			return conflict(pod.Name)
		}
		result, err := r.reconcile(t, 0, pods...)
		require.Error(t, err)
		assert.Equal(t, 50*time.Millisecond, result.RequeueAfter)
		result, err = r.reconcile(t, 20, pods...)
		require.NoError(t, err)
		assert.True(t, result.Held)
		assert.Equal(t, 50*time.Millisecond, result.RequeueAfter)
	})
	t.Run("W25 when nothing is left to delete, the next deletion starts anew, and its hold is told again", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := versioned(podsOf(r.rs, 2))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
		_ = r.versions(refusing)
		told := 0
		refused := func(hour int) {
			at := time.Duration(hour) * time.Hour
			for i, ms := range []int{50, 100, 200, 400, 800, 1600} {
				wait := time.Duration(ms) * time.Millisecond
				result, err := r.reconcileAt(t, at, pods...)
				require.Error(t, err)
				assert.Equal(t, wait, result.RequeueAfter, "pass %d of hour %d", i, hour)
				told += len(r.eventsOf("Warning DeletionsHeld"))
				at += wait
			}
		}
		refused(0)
		assert.Equal(t, 1, told)
		_, err := r.reconcile(t, 60, pods[0])
		require.NoError(t, err)
		refused(1)
		assert.Equal(t, 2, told)
	})
	t.Run("W27 a server's Retry-After holds deletions too", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		pods := podsOf(r.rs, 1)
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return busy(7) }
		result, err := r.reconcile(t, 0, pods...)
		require.Error(t, err)
		assert.Equal(t, 7*time.Second, result.RequeueAfter)
		result, err = r.reconcile(t, 6, pods...)
		require.NoError(t, err)
		assert.True(t, result.Held)
		assert.Empty(t, r.calls)
		assert.Equal(t, time.Second, result.RequeueAfter)
		_, err = r.reconcile(t, 7, pods...)
		require.Error(t, err)
		assert.Equal(t, []string{"delete web-000"}, r.calls, "a server that is busy is not asked for a list besides")
	})
}

func find(pods []*corev1.Pod, name string) (*corev1.Pod, error) {
	for _, p := range pods {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, notFound(name)
}

func TestReconcileRelated(t *testing.T) {
	t.Parallel()
	t.Run("L3 related pods are asked for only to delete, and rank", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		asked := 0
		r.Related = func(context.Context, metav1.Object) ([]*corev1.Pod, error) {
			asked++
			return []*corev1.Pod{podtest.Pod("other", podtest.On("node-2"))}, nil
		}
		pods := podsOf(r.rs, 2)
		podtest.On("node-2")(pods[1])
		_, err := r.reconcile(t, 0, pods...)
		require.NoError(t, err)
		assert.Zero(t, asked)
		r.rs.Spec.Replicas = new(int32)
		*r.rs.Spec.Replicas = 1
		_, err = r.reconcile(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, 1, asked)
		assert.Equal(t, []string{"delete web-001"}, r.calls)
	})
	t.Run("L4 W37 a failure costs the ranking, not the pass, and is told", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.Related = func(context.Context, metav1.Object) ([]*corev1.Pod, error) {
			return []*corev1.Pod{podtest.Pod("half a list", podtest.On("node-2"))}, errors.New("no index")
		}
		r.BeforeScale = func(_ context.Context, spec replicas.Spec, _ []*corev1.Pod, _ replicas.Scale) {
			assert.Nil(t, spec.Related)
		}
		result, err := r.reconcile(t, 0, podsOf(r.rs, 2)...)
		require.NoError(t, err)
		require.EqualError(t, result.RelatedErr, "no index")
		assert.Len(t, result.Deleted, 1)
		assert.Contains(t, r.events, "Warning FailedRelatedPods Error listing related pods: no index")
	})
}

func TestReconcileEvents(t *testing.T) {
	t.Parallel()
	t.Run("P10 a created pod", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		assert.Equal(t, []string{"Normal SuccessfulCreate Created pod: web-new0"}, r.events)
	})
	t.Run("P11 a pod that could not be created, its error's type kept", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return forbidden("web-", "not today") }
		result, err := r.reconcile(t, 0)
		assert.True(t, apierrors.IsForbidden(err))
		assert.Zero(t, result.RequeueAfter, "not every 403 is a quota")
		assert.Equal(t, []string{`Warning FailedCreate Error creating: pods "web-" is forbidden: not today`}, r.events)
	})
	t.Run("P13 a deleted pod", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		_, err := r.reconcile(t, 0, podsOf(r.rs, 1)...)
		require.NoError(t, err)
		assert.Equal(t, []string{"Normal SuccessfulDelete Deleted pod: web-000"}, r.events)
	})
	t.Run("P15 W25 a pod that could not be deleted, its error's type kept", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(pod *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(pod.Name, "not today") }
		_, err := r.reconcile(t, 0, podsOf(r.rs, 1)...)
		assert.True(t, apierrors.IsForbidden(err))
		require.ErrorContains(t, err, "unable to delete pods: ")
		assert.Equal(t, []string{`Warning FailedDelete Error deleting: pods "web-000" is forbidden: not today`}, r.events)
	})
}

func TestReconcileHolds(t *testing.T) {
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
				calls := r.createCalls.Load()
				result, err := r.reconcile(t, at)
				require.NoError(t, err)
				require.NoError(t, result.ScaleErr)
				assert.Equal(t, calls+1, r.createCalls.Load(), "one call, not fifty")
				assert.Empty(t, r.events)
				adds, _ := r.pending()
				assert.Zero(t, adds)
				assert.True(t, result.Waiting)
				assert.Equal(t, time.Duration(minutes)*time.Minute, result.RequeueAfter)

				result, err = r.reconcile(t, at+minutes*60-1)
				require.NoError(t, err)
				assert.Equal(t, time.Second, result.RequeueAfter, "an event in between creates nothing")
				assert.True(t, result.Waiting)
				assert.Equal(t, calls+1, r.createCalls.Load())
				at += minutes * 60
			}
			r.create = func(int) error { return nil }
			result, err := r.reconcile(t, at)
			require.NoError(t, err)
			assert.Len(t, result.Created, 50)
		})
	}
	t.Run("W10 W20 an ending namespace beside another failure holds, and the other is the error", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		boom := errors.New("boom")
		r.create = func(i int) error {
			return [](func() error){func() error { return nil }, namespaceTerminating, func() error { return boom }}[i]()
		}
		result, err := r.reconcile(t, 0)
		require.ErrorIs(t, err, boom)
		assert.Equal(t, time.Minute, result.RequeueAfter)
		result, err = r.reconcile(t, 1, podsOf(r.rs, 1)...)
		require.NoError(t, err)
		assert.True(t, result.Waiting)
	})
	t.Run("any other 404 on creation is an error", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "x") }
		result, err := r.reconcile(t, 0)
		assert.True(t, apierrors.IsNotFound(err))
		assert.Zero(t, result.RequeueAfter)
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
		_, err := r.reconcile(t, 3600)
		require.Error(t, err)
		result, err := r.reconcile(t, 0)
		require.NoError(t, err)
		assert.Equal(t, time.Second, result.RequeueAfter)
		result, err = r.reconcile(t, 1)
		require.NoError(t, err)
		assert.Len(t, result.Created, 1)
	})
	t.Run("a full quota is an error and holds for a second, doubling to a minute", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(int) error { return quotaFull() }
		at := 0
		for _, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
			result, err := r.reconcile(t, at)
			assert.True(t, apierrors.IsForbidden(err))
			assert.Equal(t, time.Duration(seconds)*time.Second, result.RequeueAfter)
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
		pods := podsOf(r.rs, 3)
		_, err := r.reconcile(t, 0, pods...)
		require.Error(t, err)
		full = false
		podtest.Deleting(pods[2])
		result, err := r.reconcile(t, 0, pods...)
		require.NoError(t, err)
		assert.True(t, result.Waiting)
		assert.Empty(t, result.Created)
		result, err = r.reconcile(t, 0, pods[:2]...)
		require.NoError(t, err)
		assert.Len(t, result.Created, 3)
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
		result, err := r.reconcile(t, 0)
		require.Error(t, err)
		require.Len(t, result.Created, 2)
		r.settle()
		calls := r.createCalls.Load()
		_, err = r.reconcile(t, 0, podsOf(r.rs, 2)...)
		require.NoError(t, err)
		assert.Equal(t, calls, r.createCalls.Load(), "nothing is gone")
		_, err = r.reconcile(t, 0, podsOf(r.rs, 1)...)
		require.Error(t, err)
		assert.Greater(t, r.createCalls.Load(), calls, "one of the two created is gone")
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
		_, err := r.reconcile(t, 0, podsOf(r.rs, 3)...)
		require.Error(t, err)
		_, err = r.reconcile(t, 2, podsOf(r.rs, 3)...)
		require.NoError(t, err)
		_, err = r.reconcile(t, 2, podsOf(r.rs, 1)...)
		require.NoError(t, err)
		assert.EqualValues(t, 2, r.createCalls.Load())
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
		result, _ := r.reconcile(t, 0)
		assert.Equal(t, time.Second, result.RequeueAfter)
		result, _ = r.reconcile(t, 1)
		assert.Equal(t, time.Second, result.RequeueAfter, "one was created, so the next hold is a first one")
	})
	t.Run("a new generation of the owner, and Forget, end a hold", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(r *rig){
			"generation": func(r *rig) { r.rs.Generation++ },
			"Forget":     func(r *rig) { r.Forget(r.key) },
		} {
			r := newRig(5)
			r.create = func(i int) error {
				if i == 0 {
					return quotaFull()
				}
				return nil
			}
			_, _ = r.reconcile(t, 0)
			result, err := r.reconcile(t, 0)
			require.NoError(t, err)
			assert.Empty(t, result.Created)
			end(r)
			result, err = r.reconcile(t, 0)
			require.NoError(t, err)
			assert.Len(t, result.Created, 5, name)
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
			result, _ := r.reconcile(t, 0)
			assert.Equal(t, c.hold, result.RequeueAfter, name)
			result, err := r.reconcile(t, 120)
			require.NoError(t, err, name)
			assert.True(t, result.Held, name)
			assert.Equal(t, c.hold, result.RequeueAfter, name)
		}
	})
	t.Run("when nothing is missing any more, the next creation starts anew", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return quotaFull() }
		for i, seconds := range []int{0, 1, 3} {
			result, err := r.reconcile(t, seconds)
			require.Error(t, err)
			assert.Equal(t, time.Second<<i, result.RequeueAfter)
		}
		_, err := r.reconcile(t, 10, podsOf(r.rs, 1)...)
		require.NoError(t, err)
		result, err := r.reconcile(t, 20)
		require.Error(t, err)
		assert.Equal(t, time.Second, result.RequeueAfter)
	})
	t.Run("deletions go on while creations are held", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(int) error { return namespaceTerminating() }
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		*r.rs.Spec.Replicas = 1
		result, err := r.reconcile(t, 1, podsOf(r.rs, 2)...)
		require.NoError(t, err)
		assert.Len(t, result.Deleted, 1)
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
		result, err := r.reconcile(t, 0)
		assert.True(t, apierrors.IsTooManyRequests(err))
		assert.Equal(t, 7*time.Second, result.RequeueAfter)
		result, err = r.reconcile(t, 6)
		require.NoError(t, err)
		assert.Empty(t, result.Created)
		assert.Equal(t, time.Second, result.RequeueAfter)
		result, err = r.reconcile(t, 7)
		require.NoError(t, err)
		assert.Len(t, result.Created, 5)
	})
	t.Run("W27 of several Retry-Afters the longest counts, also against a quota's hold", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.create = func(i int) error { return []error{nil, busy(9), busy(2)}[i] }
		result, err := r.reconcile(t, 0)
		require.Error(t, err)
		assert.Equal(t, 9*time.Second, result.RequeueAfter)
		r = newRig(5)
		r.create = func(i int) error { return []error{nil, quotaFull(), busy(0)}[i] }
		result, err = r.reconcile(t, 0)
		require.Error(t, err)
		assert.Equal(t, time.Second, result.RequeueAfter)
	})
	t.Run("W27 a server's Retry-After to a list, a claim or a look at the owner replaces the rate limiter", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patch = func(*corev1.Pod) error { return busy(4) }
		result, err := r.reconcile(t, 0, podtest.Pod("orphan"))
		require.Error(t, err)
		assert.Equal(t, 4*time.Second, result.RequeueAfter)
		r.owner = func() (metav1.Object, error) { return nil, busy(5) }
		result, err = r.reconcile(t, 4, podtest.Pod("orphan"))
		require.Error(t, err)
		assert.Equal(t, 5*time.Second, result.RequeueAfter)
		result, err = r.Reconcile(context.Background(), specOf(t, r.rs), func(context.Context) ([]*corev1.Pod, error) { return nil, busy(6) })
		require.Error(t, err)
		assert.Equal(t, 6*time.Second, result.RequeueAfter)
	})
	t.Run("W27 no server holds an owner for more than five minutes", func(t *testing.T) {
		t.Parallel()
		for _, seconds := range []int{301, math.MaxInt32} {
			forEver := func() error { return busy(seconds) }
			for name, refuse := range map[string]func(r *rig) []*corev1.Pod{
				"create": func(r *rig) []*corev1.Pod { r.create = func(int) error { return forEver() }; return podsOf(r.rs, 1) },
				"delete": func(r *rig) []*corev1.Pod {
					r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return forEver() }
					return podsOf(r.rs, 3)
				},
				"adopt": func(r *rig) []*corev1.Pod {
					r.patch = func(*corev1.Pod) error { return forEver() }
					return []*corev1.Pod{podtest.Pod("orphan")}
				},
				"read the owner": func(r *rig) []*corev1.Pod {
					r.owner = func() (metav1.Object, error) { return nil, forEver() }
					return []*corev1.Pod{podtest.Pod("orphan")}
				},
			} {
				r := newRig(2)
				result, err := r.reconcile(t, 0, refuse(r)...)
				require.Error(t, err, name)
				assert.Equal(t, 5*time.Minute, result.RequeueAfter, name)
			}
			r := newRig(2)
			result, err := r.Reconcile(context.Background(), specOf(t, r.rs), func(context.Context) ([]*corev1.Pod, error) { return nil, forEver() })
			require.Error(t, err)
			assert.Equal(t, 5*time.Minute, result.RequeueAfter)
		}
		r := newRig(2)
		r.create = func(int) error { return busy(math.MaxInt32) }
		_, err := r.reconcile(t, 0)
		require.Error(t, err)
		r.create = func(int) error { return nil }
		result, err := r.reconcile(t, 300)
		require.NoError(t, err)
		assert.Len(t, result.Created, 2, "the hold is as short")
	})
	t.Run("W27 a server's Retry-After on a delete replaces the rate limiter", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return busy(3) }
		result, err := r.reconcile(t, 0, podsOf(r.rs, 1)...)
		require.Error(t, err)
		assert.Equal(t, 3*time.Second, result.RequeueAfter)
	})
}

func TestReconcileClaims(t *testing.T) {
	t.Parallel()
	relabelled := podtest.Labels(map[string]string{"app": "debug"})
	t.Run("Y8 B1 adopted pods count, released ones do not", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		result, err := r.reconcile(t, 0,
			podtest.Pod("orphan"), podtest.Pod("owned", owned(r.rs)), podtest.Pod("leaves", owned(r.rs), relabelled))
		require.NoError(t, err)
		assert.Equal(t, []string{"orphan"}, names(result.Adopted))
		assert.Equal(t, []string{"leaves"}, names(result.Released))
		assert.Equal(t, []string{"owned", "orphan"}, names(result.Active))
		assert.Len(t, result.Created, 1)
		assert.Equal(t, []string{
			"get owner",
			`patch orphan {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"uid-of-web","controller":true,"blockOwnerDeletion":true}],"uid":"uid-orphan"}}`,
			`patch leaves {"metadata":{"uid":"uid-leaves","ownerReferences":[{"$patch":"delete","uid":"uid-of-web"}]}}`,
			"create default/web-",
		}, r.calls, "claims come before creation")
	})
	t.Run("C17 the owner is read live once, and only to adopt", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		_, err := r.reconcile(t, 0, podsOf(r.rs, 2)...)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		_, err = r.reconcile(t, 0, podtest.Pod("a"), podtest.Pod("b"))
		require.NoError(t, err)
		assert.Equal(t, 1, count(r.calls, "get owner"))
	})
	t.Run("C18 C19 an owner that is gone, replaced or being deleted adopts nothing and is an error", func(t *testing.T) {
		t.Parallel()
		now := metav1.NewTime(podtest.Now)
		for name, read := range map[string]func(r *rig) (metav1.Object, error){
			"gone":     func(*rig) (metav1.Object, error) { return nil, notFound("web") },
			"replaced": func(*rig) (metav1.Object, error) { other := replicaSet(1); other.UID = "other"; return other, nil },
			"deleted": func(*rig) (metav1.Object, error) {
				dying := replicaSet(1)
				dying.DeletionTimestamp = &now
				return dying, nil
			},
		} {
			r := newRig(5)
			r.owner = func() (metav1.Object, error) { return read(r) }
			result, err := r.reconcile(t, 0, podtest.Pod("a"), podtest.Pod("b"))
			require.ErrorContains(t, err, "can't adopt", name)
			assert.Equal(t, 2, result.Failed)
			assert.Equal(t, []string{"get owner"}, r.calls, "no patch, no creation")
			assert.True(t, result.Observed && result.Waiting)
			require.NoError(t, result.ScaleErr, "claim errors set no ReplicaFailure")
			adds, _ := r.pending()
			assert.Zero(t, adds)
		}
	})
	t.Run("nobody to read owners from: nothing is adopted", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.Owners = nil
		result, err := r.reconcile(t, 0, podtest.Pod("orphan"))
		require.NoError(t, err)
		assert.Len(t, result.Created, 1)
		assert.Empty(t, result.Adopted)
	})
	t.Run("C15 a pod that is gone is not adopted and no error", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patch = func(pod *corev1.Pod) error { return fmt.Errorf("wrapped: %w", notFound(pod.Name)) }
		result, err := r.reconcile(t, 0, podtest.Pod("orphan"))
		require.NoError(t, err)
		assert.Empty(t, result.Adopted)
		assert.Len(t, result.Created, 1, "it is replaced")
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
		result, err := r.reconcile(t, 0, podtest.Pod("barred"), podtest.Pod("free"))
		require.NoError(t, err)
		assert.Equal(t, []string{"barred"}, names(result.SetAside))
		assert.Equal(t, []string{"free"}, names(result.Adopted))
		assert.Len(t, result.Created, 2)
		assert.Equal(t, time.Minute, result.RequeueAfter, "the policy may go")
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
			result, err := r.reconcile(t, seconds, orphans...)
			require.NoError(t, err)
			assert.Len(t, result.SetAside, 200, "told in each pass")
			assert.Positive(t, result.RequeueAfter)
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
		result, err := r.reconcile(t, 63, orphans[10:]...)
		require.NoError(t, err)
		assert.Equal(t, 57*time.Second, result.RequeueAfter)
		assert.Equal(t, 10, patches(63), "what was not seen is not remembered")
		r.rs.Generation++
		assert.Equal(t, 200, patches(63))
		assert.Equal(t, 0, patches(-3600), "a clock that goes back starts the wait again")
		assert.Equal(t, 200, patches(-3540))
		r.Forget(r.key)
		assert.Equal(t, 200, patches(-3540))
	})
	t.Run("W42 C26 a pod whose adoption is not decided is tried again at growing intervals, whatever events come", func(t *testing.T) {
		t.Parallel()
		r := newRig(250)
		r.patch = func(pod *corev1.Pod) error { return forbidden(pod.Name, "policy") }
		orphans := make([]*corev1.Pod, 200)
		for i := range orphans {
			orphans[i] = podtest.Pod(fmt.Sprintf("orphan-%03d", i))
			orphans[i].ResourceVersion = "7"
		}
		all := 0
		for i := range 100 {
			result, err := r.reconcile(t, 0, orphans...)
			all += len(r.callsOf("patch"))
			assert.Equal(t, i == 0, err != nil, "an error only if it was tried")
			assert.True(t, result.Waiting && result.Observed)
			assert.Empty(t, result.Created, "the count is not to be trusted")
			assert.Empty(t, result.SetAside, "they may be ours yet")
			assert.Equal(t, 50*time.Millisecond, result.RequeueAfter)
		}
		assert.Equal(t, 200, all, "100 passes at one instant")
		result, err := r.reconcile(t, 1, orphans...)
		assert.True(t, apierrors.IsForbidden(err))
		assert.Len(t, r.callsOf("patch"), 200)
		assert.Equal(t, 100*time.Millisecond, result.RequeueAfter)
		orphans[3].ResourceVersion = "8"
		_, err = r.reconcile(t, 1, orphans...)
		require.Error(t, err)
		assert.Len(t, r.callsOf("patch"), 1, "it has changed")
		r.patch = func(*corev1.Pod) error { return nil }
		result, err = r.reconcile(t, 2, orphans...)
		require.NoError(t, err)
		assert.Len(t, result.Adopted, 200)
		assert.Len(t, result.Created, 50)
	})
	t.Run("W42 a pod is set aside from the end of its call on", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		orphan := podsOf(r.rs, 1)[0]
		orphan.OwnerReferences = nil
		r.patch = func(p *corev1.Pod) error {
			r.now = r.now.Add(2 * time.Minute)
			return invalid(p.Name)
		}
		result, err := r.reconcile(t, 0, orphan)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, result.RequeueAfter)
		result, err = r.reconcile(t, 130, orphan)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("patch"))
		assert.Equal(t, 50*time.Second, result.RequeueAfter)
	})
	t.Run("C13 C26 any other failure keeps the other claims but nothing is created or deleted", func(t *testing.T) {
		t.Parallel()
		for _, failure := range []error{forbidden("x", "policy"), apierrors.NewBadRequest("x"), conflict("x"), busy(2), errors.New("connection lost"), context.DeadlineExceeded} {
			for _, want := range []int32{0, 9} {
				r := newRig(want)
				r.patch = func(pod *corev1.Pod) error {
					if pod.Name == "b" {
						return failure
					}
					return nil
				}
				result, err := r.reconcile(t, 0, podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("c"), podtest.Pod("mine", owned(r.rs)))
				require.ErrorIs(t, err, failure)
				assert.Equal(t, []string{"a", "c"}, names(result.Adopted))
				assert.Len(t, result.Active, 3)
				assert.Empty(t, result.Created)
				assert.Empty(t, result.Deleted)
				assert.True(t, result.Waiting && result.Observed)
				assert.Equal(t, 1, result.Failed)
				require.NoError(t, result.ScaleErr)
			}
		}
	})
	t.Run("C13 every failed claim is told", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.patch = func(pod *corev1.Pod) error { return errors.New("no " + pod.Name) }
		_, err := r.reconcile(t, 0, podtest.Pod("a"), podtest.Pod("leaves", owned(r.rs), relabelled))
		require.ErrorContains(t, err, "no a")
		require.ErrorContains(t, err, "no leaves")
	})
	t.Run("a pod set aside does not replace the rate limiter of a failure", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.patch = func(pod *corev1.Pod) error { return invalid(pod.Name) }
		r.create = func(int) error { return errors.New("boom") }
		result, err := r.reconcile(t, 0, podtest.Pod("a"))
		require.Error(t, err)
		assert.Zero(t, result.RequeueAfter)
	})
	t.Run("a client that answers without a pod has adopted it all the same", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.silent = true
		result, err := r.reconcile(t, 0, podtest.Pod("a"))
		require.NoError(t, err)
		assert.Len(t, result.Active, 1)
	})
	t.Run("C14 an adopted pod that turns out to be on its way out does not count", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patched = podtest.Deleting
		result, err := r.reconcile(t, 0, podtest.Pod("a"))
		require.NoError(t, err)
		assert.Len(t, result.Adopted, 1)
		assert.Empty(t, result.Active)
		assert.Len(t, result.Created, 1)
	})
	t.Run("C13 pods are released though no pod may be adopted", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.owner = func() (metav1.Object, error) { return nil, notFound("web") }
		result, err := r.reconcile(t, 0, podtest.Pod("a"), podtest.Pod("leaves", owned(r.rs), relabelled))
		require.Error(t, err)
		assert.Equal(t, []string{"leaves"}, names(result.Released))
	})
	t.Run("C16 a pod that is gone or replaced is as good as released", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{notFound("x"), invalid("x")} {
			r := newRig(1)
			r.patch = func(*corev1.Pod) error { return err }
			result, err := r.reconcile(t, 0, podtest.Pod("x", owned(r.rs), relabelled))
			require.NoError(t, err)
			assert.Len(t, result.Released, 1)
			assert.Len(t, result.Created, 1)
		}
	})
	t.Run("C16 a release that failed otherwise is an error and nothing is created or deleted", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.patch = func(pod *corev1.Pod) error { return conflict(pod.Name) }
		result, err := r.reconcile(t, 0, podtest.Pod("x", owned(r.rs), relabelled))
		assert.True(t, apierrors.IsConflict(err))
		assert.Empty(t, result.Created)
		assert.Empty(t, result.Released)
	})
	t.Run("W39 claims run in parallel within the cap", func(t *testing.T) {
		t.Parallel()
		r := newRig(8)
		r.MaxParallel = 8
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
		result, err := r.reconcile(t, 0, orphans...)
		require.NoError(t, err)
		assert.Len(t, result.Adopted, 8)
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
		result, err := r.reconcile(t, 0, orphan)
		require.NoError(t, err)
		assert.Len(t, result.Deleted, 1)
	})
}

func TestReconcileOrder(t *testing.T) {
	t.Parallel()
	t.Run("Y4 expectations are read before the pods are listed", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.Expectations.Set(r.key, expectations.Changes{Creations: 1})
		result, err := r.Reconcile(context.Background(), specOf(t, r.rs), func(context.Context) ([]*corev1.Pod, error) {
			r.Expectations.CreationObserved(r.key, "web-0") // its pod arrives after the list was taken
			return nil, nil
		})
		require.NoError(t, err)
		assert.Empty(t, result.Created)
		assert.True(t, result.Waiting)
	})
	t.Run("Y10 while waiting pods are claimed, nothing is created or deleted, and expiry wakes", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.Expectations.Set(r.key, expectations.Changes{Creations: 1})
		result, err := r.reconcile(t, 0, podtest.Pod("orphan"))
		require.NoError(t, err)
		assert.Len(t, result.Adopted, 1)
		assert.Empty(t, result.Created)
		assert.True(t, result.Waiting && result.Observed)
		assert.Positive(t, result.RequeueAfter)
	})
	t.Run("Y10 an owner that is being deleted neither creates nor deletes, adopts nor releases", func(t *testing.T) {
		t.Parallel()
		for _, want := range []int32{0, 5} {
			r := newRig(want)
			now := metav1.NewTime(podtest.Now)
			r.rs.DeletionTimestamp = &now
			result, err := r.reconcile(t, 0, podtest.Pod("orphan"), podtest.Pod("mine", owned(r.rs)))
			require.NoError(t, err)
			assert.Empty(t, r.calls)
			assert.True(t, result.Waiting && result.Observed)
			assert.Equal(t, []string{"mine"}, names(result.Active))
		}
	})
	t.Run("a new generation of the owner still waits for what the last one started", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		r.rs.Generation++
		result, err := r.reconcile(t, 0)
		require.NoError(t, err)
		assert.Empty(t, result.Created)
	})
	t.Run("Y10 a caller that says Waiting is believed", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		spec := specOf(t, r.rs)
		spec.Pending = expectations.Waiting
		result, err := r.Reconcile(context.Background(), spec, func(context.Context) ([]*corev1.Pod, error) { return nil, nil })
		require.NoError(t, err)
		assert.True(t, result.Waiting)
		assert.Empty(t, r.calls)
	})
	t.Run("E3 an expired expectation acts", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		now := podtest.Now
		r.Expectations.Now = func() time.Time { return now }
		r.Expectations.Set(r.key, expectations.Changes{Creations: 1})
		now = now.Add(expectations.DefaultTimeout + 1)
		result, err := r.reconcile(t, 0)
		require.NoError(t, err)
		assert.Len(t, result.Created, 1)
	})
	t.Run("Y6 a list that fails ends the pass without an observation", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		boom := errors.New("boom")
		result, err := r.Reconcile(context.Background(), specOf(t, r.rs), func(context.Context) ([]*corev1.Pod, error) { return nil, boom })
		require.ErrorIs(t, err, boom)
		assert.False(t, result.Observed)
		assert.Empty(t, r.calls)
	})
	t.Run("Y9 T8 terminating pods are told by UID and selector", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		stranger := replicaSet(1)
		stranger.UID = "stranger"
		result, err := r.reconcile(t, 0,
			podtest.Pod("mine", owned(r.rs), podtest.Deleting),
			podtest.Pod("relabelled", owned(r.rs), podtest.Deleting, podtest.Labels(nil)),
			podtest.Pod("finished", owned(r.rs), podtest.Deleting, podtest.Phase(corev1.PodFailed)),
			podtest.Pod("stranger", owned(stranger), podtest.Deleting),
			podtest.Pod("orphan", podtest.Deleting))
		require.NoError(t, err)
		assert.Equal(t, []string{"mine"}, names(result.Terminating))
		assert.Empty(t, r.calls)
	})
	t.Run("Y14 the cached pods and the owner stay as they were", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		pods := fleet(r.rs, 40, 3)
		rsBefore, before := r.rs.DeepCopy(), deepCopies(pods)
		_, err := r.reconcile(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, rsBefore, r.rs)
		assert.Equal(t, before, pods)
	})
	t.Run("pods without UIDs are deleted without a precondition, and expected by name", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.remove = func(_ *corev1.Pod, opts metav1.DeleteOptions) error {
			assert.Nil(t, opts.Preconditions)
			return nil
		}
		result, err := r.reconcile(t, 0, podtest.Pod("a", owned(r.rs), podtest.UID("")), podtest.Pod("b", owned(r.rs), podtest.UID("")))
		require.NoError(t, err)
		assert.Len(t, result.Deleted, 2)
		_, dels := r.pending()
		assert.Equal(t, 2, dels)
		assert.True(t, r.Expectations.DeletionObserved(r.key, "default/a"))
	})
	t.Run("BeforeScale sees what is about to happen, once", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		var seen []string
		r.BeforeScale = func(_ context.Context, spec replicas.Spec, owned []*corev1.Pod, scale replicas.Scale) {
			assert.Empty(t, r.calls)
			seen = append(seen, fmt.Sprint(spec.Replicas, len(owned), scale.Create, len(scale.Delete)))
		}
		_, err := r.reconcile(t, 0, podsOf(r.rs, 3)...)
		require.NoError(t, err)
		r.settle()
		_, err = r.reconcile(t, 0, podsOf(r.rs, 1)...)
		require.NoError(t, err)
		assert.Equal(t, []string{"1 3 0 2"}, seen)
	})
}

func TestReconcileConsistency(t *testing.T) {
	t.Parallel()
	at := func(r *rig, version string) {
		r.Consistency = &expectations.ConsistencyStore{
			ReadVersion: func(schema.GroupResource) string { return version },
			Now:         func() time.Time { return podtest.Now },
		}
	}
	t.Run("X10 Y2 a pass waits for a cache that is behind our own writes: no error, nothing listed, look again", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		at(r, "5")
		r.Consistency.WroteAt(r.key, podResource, "6")
		result, err := r.Reconcile(context.Background(), specOf(t, r.rs), func(context.Context) ([]*corev1.Pod, error) {
			t.Error("listed from a stale cache")
			return nil, nil
		})
		require.NoError(t, err)
		assert.True(t, result.Waiting)
		assert.False(t, result.Observed)
		assert.Equal(t, 50*time.Millisecond, result.RequeueAfter)
	})
	for name, pod := range map[string]*corev1.Pod{
		"X9 P12 an adoption is recorded": podtest.Pod("orphan"),
		"X9 W41 so is a release":         podtest.Pod("leaves", owned(replicaSet(1)), podtest.Labels(nil)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(0)
			r.version = "9"
			at(r, "5")
			_, err := r.reconcile(t, 0, pod)
			require.NoError(t, err)
			stale, ready := r.Consistency.Ready(r.key)
			assert.False(t, ready)
			assert.Equal(t, "9", stale.Wrote)
		})
	}
	t.Run("X9 P12 a creation is recorded", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.version = "9"
		at(r, "5")
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		_, ready := r.Consistency.Ready(r.key)
		assert.False(t, ready)
	})
	t.Run("X9 W41 a deletion that left the pod there is recorded", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.version = "9"
		at(r, "5")
		_, err := r.reconcile(t, 0, podsOf(r.rs, 1)...)
		require.NoError(t, err)
		_, ready := r.Consistency.Ready(r.key)
		assert.False(t, ready)
	})
	t.Run("X4 Forget drops the record", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		at(r, "5")
		r.Consistency.WroteAt(r.key, podResource, "6")
		r.Forget(r.key)
		_, ready := r.Consistency.Ready(r.key)
		assert.True(t, ready)
	})
}

func TestReconcileRefuses(t *testing.T) {
	t.Parallel()
	t.Run("Y5 W7 a spec that can not be acted on is told once for each generation", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.rs.Spec.Template.Labels = map[string]string{"app": "db"}
		_, err := r.reconcile(t, 0)
		requireRefused(t, err, replicas.InvalidTemplate)
		assert.Equal(t, []string{"Warning InvalidTemplate " + err.Error()}, r.events)
		_, err = r.reconcile(t, 0)
		requireRefused(t, err, replicas.InvalidTemplate)
		assert.Empty(t, r.events)
		r.rs.Generation++
		_, _ = r.reconcile(t, 0)
		assert.Len(t, r.events, 1)
		assert.Empty(t, r.calls)
	})
	t.Run("Refuse tells why no Spec could be made, and nothing of other errors", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.rs.Spec.Selector = nil
		_, err := replicas.ReplicaSetSpec(r.rs)
		assert.True(t, r.Refuse(r.rs, err))
		assert.True(t, r.Refuse(r.rs, err))
		assert.Len(t, r.events, 1)
		assert.False(t, r.Refuse(r.rs, errors.New("other")))
		assert.True(t, r.Refuse(nil, err), "nobody to tell")
		assert.Len(t, r.events, 1)
	})
	list := func(context.Context) ([]*corev1.Pod, error) { return nil, nil }
	t.Run("a Reconciler that is not filled in is an error, not a panic", func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, replicaSet(1))
		_, err := (&replicas.Reconciler{}).Reconcile(context.Background(), spec, list)
		require.EqualError(t, err, "replicas: reconciler has no Kind")
		_, err = (&replicas.Reconciler{Kind: spec.Kind}).Reconcile(context.Background(), spec, list)
		require.EqualError(t, err, "replicas: reconciler has no Pods")
		_, err = (&replicas.Reconciler{Kind: spec.Kind, Pods: newRig(1)}).Reconcile(context.Background(), spec, list)
		require.EqualError(t, err, "replicas: reconciler has no Expectations")
		r := newRig(1)
		_, err = r.Reconcile(context.Background(), spec, nil)
		require.EqualError(t, err, "replicas: list is nil")
		r.MaxParallel = -1
		_, err = r.Reconcile(context.Background(), spec, list)
		require.EqualError(t, err, "replicas: reconciler: MaxParallel -1 is negative")
		_, err = newRig(1).Reconcile(context.Background(), replicas.Spec{}, list)
		require.EqualError(t, err, "replicas: owner is nil")
	})
}

func TestReconcileKind(t *testing.T) {
	t.Parallel()
	list := func(context.Context) ([]*corev1.Pod, error) { return nil, nil }
	t.Run("a Spec of another kind is an error, and the next one is served", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		for _, kind := range []schema.GroupVersionKind{
			appsv1.SchemeGroupVersion.WithKind("RepilcaSet"),
			corev1.SchemeGroupVersion.WithKind("ReplicaSet"),
			corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		} {
			spec := specOf(t, r.rs)
			spec.Kind = kind
			_, err := r.Reconcile(context.Background(), spec, list)
			require.EqualError(t, err, `replicas: owner "default/web": the spec's kind is `+kind.GroupKind().String()+`, the reconciler's is ReplicaSet.apps`)
		}
		assert.Empty(t, r.calls)
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		assert.Len(t, r.calls, 1)
	})
	t.Run("the version of the kind is the Spec's alone", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.Kind.Version = ""
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
	})
	t.Run("a kind that is not the owner's own is an error", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.rs.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		spec := specOf(t, r.rs)
		spec.Kind.Kind, r.Kind.Kind = "RepilcaSet", "RepilcaSet"
		const want = `replicas: owner "default/web": kind "apps/v1, Kind=RepilcaSet" is not the owner's own, which is ReplicaSet.apps`
		_, err = r.Reconcile(context.Background(), spec, list)
		require.EqualError(t, err, want)
		_, err = replicas.Manage(nil, spec)
		require.EqualError(t, err, want)
	})
}

func TestReconcileClock(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	spec := specOf(t, r.rs)
	create := r.create
	r.create = func(int) error { return namespaceTerminating() }
	var calls int
	for range 4 { // with one Spec, half a minute apart
		_, err := r.Reconcile(context.Background(), spec, func(context.Context) ([]*corev1.Pod, error) { return nil, nil })
		require.NoError(t, err)
		calls += len(r.calls)
		r.calls, r.create = nil, create
		r.now = r.now.Add(30 * time.Second)
	}
	assert.Equal(t, 2, calls, "creations are held for a minute, not for ever")
	spec.Now = time.Time{}
	_, err := r.Reconcile(context.Background(), spec, func(context.Context) ([]*corev1.Pod, error) { return nil, nil })
	require.NoError(t, err, "and nobody need tell the time")
}

func TestForget(t *testing.T) {
	t.Parallel()
	t.Run("V17 an owner that is gone leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		r.Forget(r.key)
		adds, _ := r.pending()
		assert.Zero(t, adds)
	})
	t.Run("Y3 without a UID, whichever incarnation was known goes", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		r.Consistency = &expectations.ConsistencyStore{ReadVersion: func(schema.GroupResource) string { return "1" }}
		r.Consistency.WroteAt(r.key, podResource, "2")
		r.Forget(expectations.Key{NamespacedName: r.key.NamespacedName})
		adds, _ := r.pending()
		assert.Zero(t, adds)
		_, ready := r.Consistency.Ready(r.key)
		assert.True(t, ready)
	})
	t.Run("W12 a pass of the old incarnation that ends late leaves nothing to the new one", func(t *testing.T) {
		t.Parallel()
		for _, pods := range [][]*corev1.Pod{nil, podsOf(replicaSet(3), 7)} {
			r := newRig(3)
			_, err := r.Reconcile(context.Background(), specOf(t, r.rs), func(context.Context) ([]*corev1.Pod, error) {
				r.Forget(r.key) // the owner is deleted while its pass is under way
				return pods, nil
			})
			require.NoError(t, err)
			assert.NotZero(t, sum(r.pending()), "recorded all the same, as its pods may come")
			r.Forget(expectations.Key{NamespacedName: r.key.NamespacedName})
			assert.Zero(t, sum(r.pending()), "but the last look at the name drops it")
		}
		r := newRig(3)
		_, err := r.Reconcile(context.Background(), specOf(t, r.rs), func(context.Context) ([]*corev1.Pod, error) {
			r.Forget(r.key)
			return nil, nil
		})
		require.NoError(t, err)
		old := r.key
		r.rs.UID, r.key.UID = "uid-of-the-next", "uid-of-the-next"
		result, err := r.reconcile(t, 0)
		require.NoError(t, err)
		assert.Len(t, result.Created, 3, "the new incarnation starts clean")
		r.Forget(expectations.Key{NamespacedName: old.NamespacedName})
		_, ok := r.Expectations.Get(old)
		assert.False(t, ok, "and the last look at the name drops the old one's record too")
	})
}

func TestOwnersOfOneName(t *testing.T) {
	t.Parallel()
	// Two clusters may hold an owner of the same namespace and name.
	pass := func(t *testing.T, r *rig, uid types.UID, seconds int) replicas.Result {
		t.Helper()
		r.rs.UID, r.key.UID = uid, uid
		result, err := r.reconcile(t, seconds)
		require.NoError(t, err)
		return result
	}
	t.Run("W12 each expects its own, whoever comes in between", func(t *testing.T) {
		t.Parallel()
		r, created := newRig(3), 0
		for i := range 10 { // none of the pods is seen
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
			r.Forget(r.key)
			assert.Zero(t, sum(r.pending()))
			r.key.UID = "in the one"
			assert.Equal(t, 3, sum(r.pending()))
			pass(t, r, "in the other", 0)
			r.Forget(expectations.Key{NamespacedName: r.key.NamespacedName})
			assert.Empty(t, maps.Collect(r.Expectations.All()))
		}
	})
	t.Run("an incarnation that nobody forgets is dropped after an hour without a pass", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		now := 0
		r.Expectations.Now = func() time.Time { return podtest.Now.Add(time.Duration(now) * time.Second) }
		pass(t, r, "missed", 0)
		now = 3600
		pass(t, r, "again", now)
		assert.Len(t, maps.Collect(r.Expectations.All()), 2)
		now++
		pass(t, r, "again", now)
		assert.Len(t, maps.Collect(r.Expectations.All()), 1)
		pass(t, r, "missed", now)
		assert.Len(t, maps.Collect(r.Expectations.All()), 2, "if it does come back, it starts clean")
	})
	t.Run("an incarnation that is still waiting is not dropped", func(t *testing.T) {
		t.Parallel()
		r := newRig(3) // its clock stands still
		pass(t, r, "waiting", 0)
		pass(t, r, "again", 7200)
		assert.Len(t, maps.Collect(r.Expectations.All()), 2)
	})
}

func TestForgetIncarnations(t *testing.T) {
	t.Parallel()
	t.Run("V16 to forget an old incarnation leaves the new one alone", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.Consistency = &expectations.ConsistencyStore{ReadVersion: func(schema.GroupResource) string { return "1" }}
		_, err := r.reconcile(t, 0)
		require.NoError(t, err)
		r.Consistency.WroteAt(r.key, podResource, "2")
		old := r.key
		old.UID = "old"
		r.Forget(old)
		assert.Equal(t, 3, sum(r.pending()))
		_, ready := r.Consistency.Ready(r.key)
		assert.False(t, ready)
		r.Forget(expectations.Key{NamespacedName: r.key.NamespacedName})
		assert.Zero(t, sum(r.pending()), "its state was kept")
	})
}

func sum(adds, dels int) int { return adds + dels }

func count(list []string, item string) int {
	return len(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s != item }))
}
