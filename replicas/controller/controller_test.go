// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
	"github.com/replicakit/replicakit/replicas/ledger"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	type kind = controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]
	for want, change := range map[string]func(k *kind, o *controller.Options){
		`controller: kind: Owner "/, Kind=" is incomplete`:                                                                       func(k *kind, _ *controller.Options) { k.Owner = schema.GroupVersionKind{} },
		`controller: kind: Owner "apps/, Kind=ReplicaSet" is incomplete`:                                                         func(k *kind, _ *controller.Options) { k.Owner.Version = "" },
		`controller: kind ReplicaSet: Child "/v1, Kind=" is incomplete`:                                                          func(k *kind, _ *controller.Options) { k.Child.Kind = "" },
		`controller: kind RepilcaSet: Owner is "apps/v1, Kind=RepilcaSet", but the owners have the Go type *v1.ReplicaSet`:       func(k *kind, _ *controller.Options) { k.Owner.Kind = "RepilcaSet" },
		`controller: kind ReplicaSet: Owner is "extensions/v1, Kind=ReplicaSet", but the owners have the Go type *v1.ReplicaSet`: func(k *kind, _ *controller.Options) { k.Owner.Group = "extensions" },
		`controller: kind ReplicaSet: Child is "/v2, Kind=Pod", but the children have the Go type *v1.Pod`:                       func(k *kind, _ *controller.Options) { k.Child.Version = "v2" },
		`controller: kind ReplicaSet has no Spec`:                                                                                func(k *kind, _ *controller.Options) { k.Spec = nil },
		`controller: kind ReplicaSet: PatchType "application/json-patch+json" is neither a strategic nor a JSON merge patch`:     func(k *kind, _ *controller.Options) { k.PatchType = types.JSONPatchType },
		`controller: kind ReplicaSet: Client returned nil`: func(k *kind, _ *controller.Options) {
			k.Client = func(podClient) podClient { return nil }
		},
		`controller: MaxParallel -1 is negative`:          func(_ *kind, o *controller.Options) { o.MaxParallel = -1 },
		`controller: ExpectationsTimeout -1s is negative`: func(_ *kind, o *controller.Options) { o.ExpectationsTimeout = -time.Second },
	} {
		r, k, o := newRig(1), controller.ReplicaSets(), controller.Options{}
		change(&k, &o)
		c, err := controller.New(k, r, r, r.wake, o)
		require.EqualError(t, err, want)
		assert.Nil(t, c)
	}
	r, k := newRig(1), controller.ReplicaSets()
	_, err := controller.New(k, nil, r, r.wake, controller.Options{})
	require.EqualError(t, err, "controller: client is nil")
	_, err = controller.New(k, (*podRig)(nil), r, r.wake, controller.Options{})
	require.EqualError(t, err, "controller: client is nil")
	_, err = controller.New(k, r, nil, r.wake, controller.Options{})
	require.EqualError(t, err, "controller: cache is nil")
	_, err = controller.New(k, r, (*podRig)(nil), r.wake, controller.Options{})
	require.EqualError(t, err, "controller: cache is nil")
	_, err = controller.New(k, r, r, nil, controller.Options{})
	require.EqualError(t, err, "controller: enqueue is nil")
	k.Client = func(podClient) podClient { return (*podRig)(nil) }
	_, err = controller.New(k, r, r, r.wake, controller.Options{})
	require.EqualError(t, err, "controller: kind ReplicaSet: Client returned nil", "a nil pointer is nil too")
	k.Client = nil
	_, err = controller.New(k, r, r, r.wake, controller.Options{})
	require.NoError(t, err, "no option is needed")
}

type podClient = controller.Client[*appsv1.ReplicaSet, *corev1.Pod]

// An ownCalls is a Client of an operator that makes creations and deletions in its own way. It is no Versioner, because
// it embeds an interface.
type ownCalls struct {
	podClient
	create func(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
	remove func(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) error
	listed string // the resourceVersion of lists; "" for that of the inner client
}

func (c ownCalls) Create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	if c.create == nil {
		return c.podClient.Create(ctx, pod)
	}
	return c.create(ctx, pod)
}

func (c ownCalls) Delete(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) error {
	if c.remove == nil {
		return c.podClient.Delete(ctx, pod, opts)
	}
	return c.remove(ctx, pod, opts)
}

func (c ownCalls) List(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[*corev1.Pod], error) {
	list, err := c.podClient.List(ctx, namespace, matching)
	if c.listed != "" {
		list.Version = c.listed
	}
	return list, err
}

func TestKindClient(t *testing.T) {
	t.Parallel()
	t.Run("is asked once, and gets the calls of all passes", func(t *testing.T) {
		t.Parallel()
		r, asked, sent := newRig(2), 0, 0
		r.kind.Client = func(client podClient) podClient {
			asked++
			return ownCalls{podClient: client, create: func(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
				sent++
				return client.Create(ctx, pod)
			}}
		}
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 2)
		_, err = r.pass(t, 1, pass.Created...)
		require.NoError(t, err)
		assert.Equal(t, 1, asked)
		assert.Equal(t, 2, sent)
	})
	t.Run("does not take the versions away", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.serverAt = func() (string, error) { return "10", nil }
		r.kind.Client = func(client podClient) podClient {
			_, ok := client.(controller.Versioner)
			require.True(t, ok)
			return ownCalls{podClient: client}
		}
		r.start().NewTerm(t.Context(), podtest.Namespace)
		assert.Equal(t, []string{"owners of default", "children of default"}, r.calls)
	})
	t.Run("is inside the guard against restores", func(t *testing.T) {
		t.Parallel()
		r := expired(3, podsOf(replicaSet(3), 1)...)
		r.childrenVersion, r.liveVersion = "900", "901"
		r.kind.Client = func(client podClient) podClient { return ownCalls{podClient: client, listed: "100"} }
		expects(r)
		_, err := r.pass(t, late, podsOf(r.owner, 2)...)
		requireRestored(t, r, err, "a live list of children has version 100, and the cache had shown 900")
	})
}

// An operator marks a pod in place of deleting it. Another controller drains the pod, and deletes it in the end.
func TestADeletionThatIsAnUpdate(t *testing.T) {
	t.Parallel()
	isMarked := func(pod *corev1.Pod) bool { return pod.Annotations["drain"] != "" }
	mark := func(pod *corev1.Pod) *corev1.Pod {
		pod = pod.DeepCopy()
		pod.Annotations, pod.ResourceVersion = map[string]string{"drain": "yes"}, "8"
		return pod
	}
	drains := func(order podrank.Order[*corev1.Pod]) (r *podRig, marked *[]string) {
		r, marked = newRig(2), &[]string{}
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := spec(rs)
			s.Rules.Order = order
			return s, err
		}
		r.kind.Client = func(client podClient) podClient {
			return ownCalls{podClient: client, remove: func(_ context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) error {
				assert.Equal(t, pod.UID, *opts.Preconditions.UID)
				assert.Equal(t, pod.ResourceVersion, *opts.Preconditions.ResourceVersion)
				*marked = append(*marked, pod.Name)
				return nil
			}}
		}
		return r, marked
	}
	t.Run("holds everything until the pod has a deletionTimestamp", func(t *testing.T) {
		t.Parallel()
		r, marked := drains(podrank.Order[*corev1.Pod]{})
		pods := ready(r.owner, 3)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		require.Len(t, *marked, 1)
		assert.Equal(t, *marked, names(pass.Deleted))
		assert.Empty(t, r.callsOf("delete"))
		i := slices.Index(names(pods), (*marked)[0])
		*r.owner.Spec.Replicas = 3
		for second, is := range []*corev1.Pod{pods[i], mark(pods[i])} {
			pods[i] = is
			pass, err = r.pass(t, 1+second, pods...)
			require.NoError(t, err)
			require.Len(t, pass.Gates, 1)
			assert.Equal(t, controller.CallsNotSeen, pass.Gates[0].Reason)
			assert.Empty(t, pass.Created)
			assert.EqualValues(t, 3, pass.Counts.Replicas, "without ChildrenVersion, the cache alone is counted")
		}
		pods[i] = mark(pods[i])
		pods[i].DeletionTimestamp = &metav1.Time{Time: podtest.Now}
		pass, err = r.pass(t, 3, pods...)
		require.NoError(t, err)
		assert.Empty(t, pass.Gates)
		assert.Len(t, pass.Created, 1, "the owner wants three again")
	})
	first, err := podrank.NewOrder(podrank.First("drained", isMarked), podrank.CreationTime())
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		order podrank.Order[*corev1.Pod]
		again bool // the same pod
	}{
		"after five minutes, another pod may be chosen":          {podrank.Order[*corev1.Pod]{}, false},
		"after five minutes, Order chooses the marked pod again": {first, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, marked := drains(tt.order)
			pods := ready(r.owner, 3)
			_, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			require.Len(t, *marked, 1)
			for i, p := range pods {
				if pods[i] = podtest.Pod(p.Name, owned(r.owner), version("9"), podtest.NotReady); p.Name == (*marked)[0] { // the others are not ready any more
					pods[i] = mark(p)
				}
			}
			r.live = func() ([]*corev1.Pod, error) { return pods, nil }
			pass, err := r.pass(t, late, pods...)
			require.NoError(t, err)
			require.Equal(t, 1, telemetry.LiveLists(pass.Calls))
			require.Len(t, *marked, 2)
			assert.Equal(t, tt.again, (*marked)[0] == (*marked)[1], "%v", *marked)
		})
	}
}

func TestNobodyIsToldOfEvents(t *testing.T) {
	t.Parallel()
	for _, sink := range []controller.EventSink{nil, (*podRig)(nil)} {
		r := newRig(1)
		r.opts.Events = sink
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
	}
}

func TestControllerThatNewDidNotMake(t *testing.T) {
	t.Parallel()
	for _, c := range []*controller.Controller{nil, {}} {
		_, err := c.Sync(t.Context(), types.NamespacedName{})
		require.EqualError(t, err, "controller: New did not make this Controller")
	}
	for method, err := range everyMethod(&controller.Controller{}, podtest.Pod("a")) {
		require.Error(t, err, method)
	}
}

func TestCachesThatFail(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(r *podRig){
		`controller: ReplicaSet "default/web": reading it: boom`: func(r *podRig) { r.owners = func() ([]*appsv1.ReplicaSet, error) { return nil, errors.New("boom") } },
		`controller: ReplicaSet "default/web": the cache returned nil`: func(r *podRig) {
			r.owners = func() ([]*appsv1.ReplicaSet, error) { return []*appsv1.ReplicaSet{nil}, nil }
		},
		`controller: ReplicaSet "default/web": listing children: boom`: func(r *podRig) { r.children = func() ([]*corev1.Pod, error) { return nil, errors.New("boom") } },
		`controller: ReplicaSet "default/web": the cache: ledger: children[1] is nil`: func(r *podRig) {
			r.children = func() ([]*corev1.Pod, error) { return []*corev1.Pod{podtest.Pod("a"), nil}, nil }
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := newRig(3)
			change(r)
			pass, err := r.sync(t, t.Context())
			require.EqualError(t, err, want)
			assert.Empty(t, r.calls)
			assert.Empty(t, r.statuses)
			assert.False(t, pass.Observed)
		})
	}
	t.Run("children listed twice are an error of their owner", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		pods := podsOf(r.owner, 2)
		_, err := r.pass(t, 0, append(pods, pods[0])...)
		require.ErrorContains(t, err, `child "default/web-000" (uid-web-000) is listed twice`)
		assert.Empty(t, r.calls)
		stranger := podtest.Pod("stranger", ownedBy("other"))
		_, err = r.pass(t, 0, append(pods, stranger, stranger)...)
		require.NoError(t, err, "those of others are for others to stumble over")
	})
}

func TestObserve(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	passes := 0
	r.kind.Observe = func(_ context.Context, pass podPass) {
		passes++
		if passes == 1 {
			assert.Equal(t, "default/web", pass.Name.String())
			assert.Same(t, r.owner, pass.Owner)
			assert.Equal(t, 2, pass.Scale.Create)
			assert.Len(t, pass.Created, 2)
		}
	}
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	r.forgetName(t)
	assert.Equal(t, 2, passes, "an owner that is not found is a pass too")
	assert.Nil(t, r.last.Owner)
}

// A worker is a child that is not a pod.
type worker struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Busy bool
}

func (w *worker) DeepCopyObject() runtime.Object {
	return &worker{w.TypeMeta, *w.DeepCopy(), w.Busy}
}

// A pool is an owner of workers.
type pool struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Workers int32
	Status  struct{ Workers, Idle int32 }
}

func (p *pool) DeepCopyObject() runtime.Object {
	copied := *p
	copied.ObjectMeta = *p.DeepCopy()
	return &copied
}

func pools() controller.Kind[*pool, *worker] {
	group := schema.GroupVersion{Group: "example.com", Version: "v1"}
	return controller.Kind[*pool, *worker]{
		Owner: group.WithKind("Pool"), Child: group.WithKind("Worker"),
		Spec: func(p *pool) (replicas.Spec[*worker], error) {
			return replicas.Spec[*worker]{
				Replicas: p.Workers, Selector: labels.SelectorFromSet(labels.Set{"pool": p.Name}),
				New: func(string) (*worker, error) {
					return &worker{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": p.Name}}}, nil
				},
				Rules: replicas.Rules[*worker]{Ready: func(w *worker) bool { return !w.Busy }, MustStay: func(w *worker) bool { return w.Busy }},
			}, nil
		},
		Status: func(p *pool, o controller.Outcome[*worker]) error {
			p.Status.Workers, p.Status.Idle = o.Counts.Replicas, o.Counts.Ready
			return nil
		},
	}
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	owner := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue", UID: "uid-of-blue", Generation: 1}, Workers: 3}
	r := rigOf(pools(), owner)
	orphan := &worker{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stray", UID: "uid-stray", Labels: map[string]string{"pool": "blue"}}}
	pass, err := r.pass(t, 0, orphan)
	require.NoError(t, err)
	assert.Equal(t, []string{"stray"}, names(pass.Adopted))
	assert.Equal(t, `patch stray {"metadata":{"uid":"uid-stray","ownerReferences":[{"apiVersion":"example.com/v1","kind":"Pool","name":"blue","uid":"uid-of-blue","controller":true,"blockOwnerDeletion":true}]}}`,
		r.calls[1], "a merge patch, as custom resources need it")
	assert.Equal(t, []string{"blue-bbbbb", "blue-bbbbc"}, names(pass.Created))
	assert.Equal(t, "blue", pass.Created[0].Labels["pool"])

	children := slices.Concat(pass.Adopted, pass.Created)
	children[0].OwnerReferences = children[1].OwnerReferences // the adoption has set the same owner reference on the server
	for _, w := range pass.Created {
		require.NoError(t, r.start().ChildAdded(w))
	}
	assert.Equal(t, []string{"default/blue"}, r.wakes())
	children[1].Busy = true
	pass, err = r.pass(t, 1, children...)
	require.NoError(t, err)
	assert.Empty(t, r.calls)
	assert.EqualValues(t, 3, pass.Status.Status.Workers)
	assert.EqualValues(t, 2, pass.Status.Status.Idle)

	owner.Workers = 0
	pass, err = r.pass(t, 2, children...)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"stray", "blue-bbbbc"}, names(pass.Deleted), "one that is busy must stay")
	require.NoError(t, r.start().ChildDeleted(children[0]))
	require.NoError(t, r.start().ChildDeleted(children[2]))
}

func TestACallBeyondTheRoomIsNotSent(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	errs := controller.AskTwice(r.client(), r.owner, podtest.Pod("web-a", owned(r.owner)))
	require.Len(t, errs, 4)
	require.NoError(t, errors.Join(errs[0], errs[2]))
	require.ErrorIs(t, errs[1], controller.ErrOverLimit)
	require.EqualError(t, errs[1], `controller: ReplicaSet "default/web": creation of "default/web-a": there is no room for this call: it is call 2, and there is room for 1`)
	require.EqualError(t, errs[3], `controller: ReplicaSet "default/web": deletion of "default/web-a": there is no room for this call: it is call 2, and there is room for 1`)
	assert.Equal(t, []string{"create default/web-a", "delete web-a"}, r.calls)
}

// What the author of a Kind forgot or confused is said where a person looks: in an event, an error or a gate.
func TestMistakesOfAKind(t *testing.T) {
	t.Parallel()
	poolsWith := func(change func(*replicas.Spec[*worker])) *rig[*pool, *worker] {
		r := rigOf(pools(), &pool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue", UID: "uid-of-blue", Generation: 1}, Workers: 1})
		spec := r.kind.Spec
		r.kind.Spec = func(p *pool) (replicas.Spec[*worker], error) {
			s, err := spec(p)
			change(&s)
			return s, err
		}
		return r
	}
	for name, slots := range map[string]func(int) string{"New is forgotten": nil, "New is forgotten for slots": replicas.Ordinals("blue")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := poolsWith(func(s *replicas.Spec[*worker]) { s.New, s.Slots = nil, slots })
			for i := range 3 {
				_, err := r.pass(t, i)
				const want = `replicas: Pool "default/blue": New is nil, and *controller_test.worker is not a pod`
				require.EqualError(t, err, want)
				if i == 0 {
					assert.Equal(t, []string{"Warning FailedSpec " + want}, r.events)
				} else {
					assert.Empty(t, r.events, "it is sent once")
				}
			}
		})
	}
	t.Run("Ready is forgotten", func(t *testing.T) {
		t.Parallel()
		forget := func(s *replicas.Spec[*worker]) { s.Rules.Ready = nil }
		r := poolsWith(forget)
		w := &worker{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "a", Labels: map[string]string{"pool": "blue"}, CreationTimestamp: metav1.Time{Time: podtest.Now}}}
		w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r.owner, r.kind.Owner)}
		pass, err := r.pass(t, 20, w)
		require.NoError(t, err)
		assert.Empty(t, pass.Gates)
		assert.Equal(t, 40*time.Second, pass.RequeueAfter)
		pass, err = r.pass(t, 60, w)
		require.NoError(t, err)
		assert.Contains(t, requireGate(t, pass.Gates, controller.ReadyUnset).String(), "neither Rules.Ready nor Rules.Available is set")
		assert.False(t, pass.Waiting())

		for what, r := range map[string]*rig[*pool, *worker]{
			"Ready is set":     poolsWith(func(*replicas.Spec[*worker]) {}),
			"Available is set": poolsWith(func(s *replicas.Spec[*worker]) { s.Rules.Ready, s.Rules.Available = nil, s.Rules.Ready }),
			"no status":        poolsWith(forget),
			"of unknown age":   poolsWith(forget),
		} {
			of := clone(w)
			switch what {
			case "no status":
				r.kind.Status = nil
			case "of unknown age":
				of.CreationTimestamp = metav1.Time{}
			}
			pass, err := r.pass(t, 60, of)
			require.NoError(t, err)
			assert.Empty(t, pass.Gates, what)
			assert.Zero(t, pass.RequeueAfter, what)
		}
	})
	t.Run("Status changes the spec", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		status, n := r.kind.Status, int32(5)
		r.kind.Status = func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Pod]) error {
			rs.Spec.Replicas, rs.Spec.Template.Labels["app"] = &n, "other"
			return status(rs, o)
		}
		for i := range 3 {
			pass, err := r.pass(t, i, podsOf(r.owner, 2)...)
			require.EqualError(t, err, `controller: writing status of ReplicaSet "default/web": Kind.Status may change the status alone, and has changed map[spec:map[replicas:5 template:map[metadata:map[labels:map[app:other]]]]]`)
			require.ErrorContains(t, requireGate(t, pass.Gates, controller.StatusFaulty).Err, "replicas:5")
			assert.Len(t, r.eventsOf("Warning FailedStatus"), max(1-i, 0), "it is sent once")
			assert.Empty(t, r.statuses)
		}
		r.once, r.kind.Status = sync.Once{}, func(rs *appsv1.ReplicaSet, _ controller.Outcome[*corev1.Pod]) error {
			rs.Finalizers, rs.Status.Replicas = []string{"example.com/x"}, 2
			return nil
		}
		_, err := r.pass(t, 4, podsOf(r.owner, 2)...)
		require.ErrorContains(t, err, "has changed map[metadata:map[finalizers:[example.com/x]]]")
		assert.Empty(t, r.statuses)
	})
	t.Run("Status sets another status in each pass", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		of, faulty := podsOf(r.owner, 3), true
		r.kind.Status = func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Pod]) error {
			rs.Status.Replicas, rs.Status.ReadyReplicas = o.Counts.Replicas, o.Counts.Ready
			if faulty {
				rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Checked", LastTransitionTime: metav1.Time{Time: o.Now}}}
			}
			return nil
		}
		write := func(seconds int, pods ...*corev1.Pod) (gates []controller.Gate) {
			pass, err := r.pass(t, seconds, pods...)
			require.NoError(t, err)
			if pass.Status != nil {
				r.owner = pass.Status
			}
			return pass.Gates
		}
		for i := range 6 {
			gates := write(i, of[:2]...)
			if i < 3 {
				assert.Empty(t, gates, "%d", i)
				continue
			}
			require.ErrorContains(t, requireGate(t, gates, controller.StatusFaulty).Err, "the same outcome")
			assert.Len(t, r.eventsOf("Warning FailedStatus"), max(4-i, 0), "it is sent once")
		}
		podtest.NotReady(of[1])
		of[1].ResourceVersion = "8"
		assert.Empty(t, write(6, of[:2]...), "another outcome is a reason to write")
		for i := 7; i < 10; i++ {
			write(i, of[:2]...)
		}
		requireGate(t, r.last.Gates, controller.StatusFaulty)
		r.owner = clone(r.owner)
		r.owner.Status.Replicas = 7
		assert.Empty(t, write(10, of[:2]...), "so is another client, which has written the status")
		faulty = false
		assert.Empty(t, write(11, of[:2]...))
	})
	t.Run("Status counts what the children do", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		pods := podsOf(r.owner, 2)
		r.kind.Status = func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Pod]) error {
			rs.Status.Replicas++
			return nil
		}
		for i := range 8 {
			pods[0].ResourceVersion = strconv.Itoa(10 + i)
			pass, err := r.pass(t, i, pods...)
			require.NoError(t, err)
			require.NotNil(t, pass.Status)
			assert.Empty(t, pass.Gates)
			r.owner = pass.Status
		}
	})
}
