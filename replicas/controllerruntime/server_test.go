// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimeconfig "sigs.k8s.io/controller-runtime/pkg/config"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/internal/follow"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

const (
	patience = 3 * time.Minute
	tick     = 20 * time.Millisecond
)

// newManager returns a manager with a cache of the given namespaces.
func newManager(t *testing.T, opts manager.Options, namespaces ...string) manager.Manager {
	t.Helper()
	anyName := true // a test may run twice with the same controller name
	opts.Controller.SkipNameValidation = &anyName
	opts.Metrics = metricsserver.Options{BindAddress: "0"}
	opts.Cache.DefaultNamespaces = map[string]cache.Config{}
	for _, namespace := range namespaces {
		opts.Cache.DefaultNamespaces[namespace] = cache.Config{}
	}
	mgr, err := manager.New(realServer(t), opts)
	require.NoError(t, err)
	return mgr
}

// start runs the manager until the test ends. The channel ended receives the result of the manager's Start.
func start(t *testing.T, mgr manager.Manager) (ended <-chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	end, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		end <- mgr.Start(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return end
}

func newNamespace(t *testing.T, c client.Client) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	return ns.Name
}

func directClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(realServer(t), client.Options{})
	require.NoError(t, err)
	return c
}

func web(namespace string, replicas int32) *appsv1.ReplicaSet {
	set := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: set},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: set},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64)},
			},
		},
	}
}

func pods(t *testing.T, c client.Client, namespace string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	require.NoError(t, c.List(t.Context(), &list, client.InNamespace(namespace)))
	return list.Items
}

func scale(t *testing.T, c client.Client, rs *appsv1.ReplicaSet, replicas int32) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	require.NoError(t, c.Patch(t.Context(), rs, patch))
}

// settled waits until the number of pods is want, and the status of the ReplicaSet is up to date.
func settled(t *testing.T, c client.Client, namespace string, want int) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		var rs appsv1.ReplicaSet
		require.NoError(collect, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, &rs))
		assert.Len(collect, pods(t, c, namespace), want)
		assert.Equal(collect, int32(want), rs.Status.Replicas)
		assert.Equal(collect, rs.Generation, rs.Status.ObservedGeneration)
	}, patience, tick)
}

func TestAddServesOwners(t *testing.T) {
	t.Parallel()
	c := directClient(t)
	namespace := newNamespace(t, c)
	mgr := newManager(t, manager.Options{}, namespace)
	var passes atomic.Int64
	kind := controller.ReplicaSets()
	kind.Observe = func(context.Context, controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) { passes.Add(1) }
	opts := controllerruntime.Options{Name: namespace, Runtime: runtimecontroller.Options{MaxConcurrentReconciles: 3}}
	require.NoError(t, controllerruntime.Add(mgr, kind, opts))
	start(t, mgr)

	stray := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stray", Labels: map[string]string{"app": "web"}}, Spec: web("", 0).Spec.Template.Spec}
	require.NoError(t, c.Create(t.Context(), stray))
	rs := web(namespace, 5)
	require.NoError(t, c.Create(t.Context(), rs))
	settled(t, c, namespace, 5)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(stray), stray))
	assert.True(t, metav1.IsControlledBy(stray, rs), "adopted")

	scale(t, c, rs, 2)
	settled(t, c, namespace, 2)
	require.NoError(t, c.Delete(t.Context(), &pods(t, c, namespace)[0]))
	settled(t, c, namespace, 2)

	late := stray.DeepCopy()
	late.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "late", Labels: stray.Labels}
	require.NoError(t, c.Create(t.Context(), late))
	settled(t, c, namespace, 2)

	assert.Positive(t, passes.Load(), "the kind's own observer is told")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		var list corev1.EventList
		require.NoError(collect, c.List(t.Context(), &list, client.InNamespace(namespace)))
		reasons := map[string]string{}
		for _, e := range list.Items {
			reasons[e.Reason] = e.Source.Component
		}
		assert.Equal(collect, map[string]string{controller.SuccessfulCreate: namespace, controller.SuccessfulDelete: namespace}, reasons)
	}, patience, tick)
	label := fmt.Sprintf(`controller=%q`, namespace)
	metricsShow(t, "replicakit_children_created_total{"+label+"} 5", "replicakit_children_deleted_total{"+label+"} 4",
		"replicakit_child_errors_total{"+label+"} 0", "replicakit_owners{"+label+`,state="refused"} 0`)
}

// metricsShow waits until the metrics in controller-runtime's registry contain the lines. The test must wait,
// because a pass is counted only after it has ended.
func metricsShow(t *testing.T, lines ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		shown := metricsServed(collect)
		for _, line := range lines {
			assert.True(collect, strings.Contains(shown, line+"\n"), line) //nolint:testifylint // all metrics are too many to print
		}
	}, patience, tick)
}

func metricsServed(t require.TestingT) (shown string) {
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.Metric {
			labels := []string{}
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			shown += fmt.Sprintf("%s{%s} %v\n", family.GetName(), strings.Join(labels, ","), m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	return shown
}

// If a custom controller uses Owns instead of ChildEvents, Owns adds the owner to the queue after each event of a
// child. The passes confirm creations and deletions from lists that they read from the cache.
func TestNewInAControllerOfOnesOwn(t *testing.T) {
	t.Parallel()
	c := directClient(t)
	namespace := newNamespace(t, c)
	mgr := newManager(t, manager.Options{}, namespace)
	r, err := controllerruntime.New(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: "own"})
	require.NoError(t, err)
	require.NoError(t, builder.ControllerManagedBy(mgr).Named("own").For(&appsv1.ReplicaSet{}).Owns(&corev1.Pod{}).
		WithOptions(runtimecontroller.Options{RateLimiter: r.RateLimiter()}).Complete(r))
	start(t, mgr)

	rs := web(namespace, 10)
	require.NoError(t, c.Create(t.Context(), rs))
	settled(t, c, namespace, 10)
	scale(t, c, rs, 3)
	settled(t, c, namespace, 3)
	scale(t, c, rs, 6)
	settled(t, c, namespace, 6)
}

func TestTwoKindsShareTheirChildren(t *testing.T) {
	t.Parallel()
	c := directClient(t)
	namespace := newNamespace(t, c)
	mgr := newManager(t, manager.Options{}, namespace)
	require.NoError(t, controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: "sets"}))
	require.NoError(t, controllerruntime.Add(mgr, controller.ReplicationControllers(), controllerruntime.Options{Name: "controllers"}))
	start(t, mgr)
	require.NoError(t, c.Create(t.Context(), web(namespace, 2)))
	settled(t, c, namespace, 2)
}

func TestOneKindTwice(t *testing.T) {
	t.Parallel()
	mgr := newManager(t, manager.Options{}, "default")
	require.NoError(t, controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: "first"}))
	err := controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: "second"})
	require.ErrorContains(t, err, "controllerruntime: kind ReplicaSet: the cluster has a controller of this kind already: call Add or New once for each kind and cluster: indexer conflict")
}

// services is a Kind of owners that have pods too. Its Status sets one condition.
func services() controller.Kind[*appsv1.ReplicaSet, *corev1.Service] {
	return controller.Kind[*appsv1.ReplicaSet, *corev1.Service]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Child: corev1.SchemeGroupVersion.WithKind("Service"),
		Spec: func(rs *appsv1.ReplicaSet) (replicas.Spec[*corev1.Service], error) {
			pods, err := replicas.ReplicaSetSpec(rs)
			return replicas.Spec[*corev1.Service]{
				Replicas: pods.Replicas, Selector: pods.Selector, Finalizer: "example.com/services",
				New: func(string) (*corev1.Service, error) {
					return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: rs.Spec.Template.Labels}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}, nil
				},
			}, err
		},
		Status: func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Service]) error {
			rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Services", Status: corev1.ConditionTrue, Message: strconv.Itoa(int(o.Counts.Replicas))}}
			return nil
		},
		StatusOf: func(rs *appsv1.ReplicaSet) any { return &rs.Status },
	}
}

// removes returns a Prepare that removes a finalizer from a deleted owner without children.
func removes[C controller.Object](c client.Client, finalizer string) func(context.Context, *appsv1.ReplicaSet, *controller.Step[C]) error {
	return func(ctx context.Context, rs *appsv1.ReplicaSet, step *controller.Step[C]) error {
		if rs.DeletionTimestamp == nil || !step.NoneLeft() {
			return nil
		}
		without := rs.DeepCopy()
		controllerutil.RemoveFinalizer(without, finalizer)
		return client.IgnoreNotFound(c.Patch(ctx, without, client.MergeFromWithOptions(rs, client.MergeFromWithOptimisticLock{})))
	}
}

// A writer counts the status writes of a Kind, and the Conflicts among them.
type writer[C controller.Object] struct{ writes, conflicts atomic.Int64 }

func (w *writer[C]) observe(_ context.Context, pass controller.Pass[*appsv1.ReplicaSet, C]) {
	for _, call := range pass.Calls {
		switch {
		case call.Verb != "PatchStatus":
		case apierrors.IsConflict(call.Err):
			w.conflicts.Add(1)
		case call.Err == nil:
			w.writes.Add(1)
		}
	}
}

// An owner has pods and Services, each by a Kind of its own. Both write its status, and neither loses what the other has
// written. Each keeps the owner with a finalizer until its children are gone.
func TestTwoChildTypesOfOneOwner(t *testing.T) {
	t.Parallel()
	c := directClient(t)
	namespace := newNamespace(t, c)
	mgr := newManager(t, manager.Options{}, namespace)
	const podsFinalizer, servicesFinalizer = "example.com/pods", "example.com/services"
	ofPods, ofServices := controller.ReplicaSets(), services()
	ofPods.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := replicas.ReplicaSetSpec(rs)
		s.Finalizer = podsFinalizer
		return s, err
	}
	ofPods.Prepare, ofServices.Prepare = removes[*corev1.Pod](c, podsFinalizer), removes[*corev1.Service](c, servicesFinalizer)
	var podWriter writer[*corev1.Pod]
	var serviceWriter writer[*corev1.Service]
	ofPods.Observe, ofServices.Observe = podWriter.observe, serviceWriter.observe
	require.NoError(t, controllerruntime.Add(mgr, ofPods, controllerruntime.Options{Name: namespace}))
	require.NoError(t, controllerruntime.Add(mgr, ofServices, controllerruntime.Options{Name: namespace + "-services"}))
	start(t, mgr)

	rs := web(namespace, 1)
	rs.Finalizers = []string{podsFinalizer, servicesFinalizer}
	require.NoError(t, c.Create(t.Context(), rs))
	servicesOf := func(t require.TestingT) []corev1.Service {
		var list corev1.ServiceList
		require.NoError(t, c.List(context.Background(), &list, client.InNamespace(namespace)))
		return list.Items
	}
	for _, n := range []int32{1, 6, 2, 9, 3} {
		scale(t, c, rs, n)
		settled(t, c, namespace, int(n))
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(rs), rs))
			require.Len(collect, rs.Status.Conditions, 1)
			assert.Equal(collect, strconv.Itoa(int(n)), rs.Status.Conditions[0].Message)
			assert.Len(collect, servicesOf(collect), int(n))
			assert.Equal(collect, n, rs.Status.Replicas, "the pods' part is kept")
		}, patience, tick)
	}
	t.Logf("pods: %d status writes, %d Conflicts; services: %d and %d", podWriter.writes.Load(), podWriter.conflicts.Load(), serviceWriter.writes.Load(), serviceWriter.conflicts.Load())
	assert.Positive(t, podWriter.writes.Load())
	assert.Positive(t, serviceWriter.writes.Load())
	assert.LessOrEqual(t, podWriter.conflicts.Load(), serviceWriter.writes.Load(), "each write of one is at most one Conflict of the other")
	assert.LessOrEqual(t, serviceWriter.conflicts.Load(), podWriter.writes.Load())

	require.NoError(t, c.Delete(t.Context(), rs))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.True(collect, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(rs), &appsv1.ReplicaSet{})))
		assert.Empty(collect, servicesOf(collect))
		assert.Empty(collect, pods(t, c, namespace))
	}, patience, tick) // no garbage collector runs
}

// Both Kinds have the kind of their owners as the default name. The metrics of the first one stay.
func TestTheSecondKindOfOneOwnerNeedsAName(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, directClient(t))
	mgr := newManager(t, manager.Options{}, namespace)
	require.NoError(t, controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: namespace}))
	want := fmt.Sprintf("controllerruntime: kind ReplicaSet with children of kind Service: another controller has the name %q: set Options.Name: ", namespace)
	require.ErrorContains(t, controllerruntime.Add(mgr, services(), controllerruntime.Options{Name: namespace}), want)
	metricsShow(t, fmt.Sprintf(`replicakit_watch_relists_total{controller=%q,kind="Pod"} 0`, namespace))

	_, err := controllerruntime.New(newManager(t, manager.Options{}, namespace), services(), controllerruntime.Options{Name: namespace})
	require.ErrorContains(t, err, want)
}

// A controller of the operator's own has the name that Add chooses, and so controller-runtime refuses it.
func TestTheNameOfAnotherController(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, directClient(t))
	mgr := newManager(t, manager.Options{}, namespace)
	var skip bool
	opts := runtimecontroller.Options{SkipNameValidation: &skip}
	none := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	require.NoError(t, builder.ControllerManagedBy(mgr).Named(namespace).For(&corev1.ConfigMap{}).WithOptions(opts).Complete(none))
	err := controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: namespace, Runtime: opts})
	require.ErrorContains(t, err, fmt.Sprintf("another controller has the name %q: set Options.Name: controller with name", namespace))
}

// forgetful is a cache that accepts an index but does not add it.
type forgetful struct{ cache.Cache }

func (forgetful) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

func TestAnIndexThatIsMissingEndsTheManager(t *testing.T) {
	t.Parallel()
	mgr := newManager(t, manager.Options{NewCache: func(config *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := cache.New(config, opts)
		return forgetful{c}, err
	}}, "default")
	require.NoError(t, controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: "forgetful"}))
	endsWith(t, start(t, mgr), `listing Pod in namespace "" by the index "replicakit/controllerOf/ReplicaSet.apps"`)
}

// If the cache contains owners in a namespace but does not cover the children there, the manager ends with an
// error. Otherwise, the controller would create children for these owners forever.
func TestACacheWithoutTheChildrenEndsTheManager(t *testing.T) {
	t.Parallel()
	c := directClient(t)
	here, there := newNamespace(t, c), newNamespace(t, c)
	require.NoError(t, c.Create(t.Context(), web(here, 0)))
	require.NoError(t, c.Create(t.Context(), web(there, 0)))
	mgr := newManager(t, manager.Options{Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Namespaces: map[string]cache.Config{here: {}}},
	}}}, here, there)
	require.NoError(t, controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: "half"}))
	endsWith(t, start(t, mgr), fmt.Sprintf(`listing Pod in namespace %q`, there))
}

func endsWith(t *testing.T, ended <-chan error, want string) {
	t.Helper()
	select {
	case err := <-ended:
		require.ErrorContains(t, err, want)
	case <-time.After(patience):
		require.FailNow(t, "the manager goes on")
	}
}

// If Prepare drops the creations because a ConfigMap is missing, and does not set step.RequeueAfter, the controller
// schedules no further pass. The event of the ConfigMap causes the next pass.
func TestFurtherWatches(t *testing.T) {
	t.Parallel()
	c := directClient(t)
	namespace := newNamespace(t, c)
	mgr := newManager(t, manager.Options{}, namespace)
	vetoed := make(chan struct{}, 100)
	kind := controller.ReplicaSets()
	kind.Prepare = func(ctx context.Context, rs *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		err := mgr.GetClient().Get(ctx, client.ObjectKeyFromObject(rs), &corev1.ConfigMap{})
		if apierrors.IsNotFound(err) {
			step.Create = nil
			vetoed <- struct{}{}
		}
		return client.IgnoreNotFound(err)
	}
	ownerOf := func(_ context.Context, config client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(config)}}
	}
	require.NoError(t, controllerruntime.Add(mgr, kind, controllerruntime.Options{Name: namespace, Build: func(b *builder.Builder) error {
		b.Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(ownerOf)).Named("is replaced")
		return nil
	}}))
	start(t, mgr)
	require.NoError(t, c.Create(t.Context(), web(namespace, 2)))
	select {
	case <-vetoed:
	case <-time.After(patience):
		require.FailNow(t, "no pass")
	}
	assert.Empty(t, pods(t, c, namespace))
	require.NoError(t, c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}))
	settled(t, c, namespace, 2)
}

func TestABuilderHookThatFails(t *testing.T) {
	t.Parallel()
	mgr := newManager(t, manager.Options{}, "default")
	err := controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: "hooked", Build: func(*builder.Builder) error {
		return errors.New("claims cannot be watched")
	}})
	require.EqualError(t, err, "controllerruntime: kind ReplicaSet: Options.Build: claims cannot be watched")
}

func TestNamespacedCaches(t *testing.T) {
	t.Parallel()
	c := directClient(t)
	one, two, other := newNamespace(t, c), newNamespace(t, c), newNamespace(t, c)
	for _, namespace := range []string{one, two, other} {
		require.NoError(t, c.Create(t.Context(), web(namespace, 2)))
	}
	mgr := newManager(t, manager.Options{}, one, two)
	require.NoError(t, controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{Name: "namespaced"}))
	start(t, mgr)
	settled(t, c, one, 2)
	settled(t, c, two, 2)
	assert.Empty(t, pods(t, c, other))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A cluster-scoped owner keeps its children in a namespace and adopts an orphan in another namespace. In this
// test, the owner is a Namespace that keeps ConfigMaps inside itself. No child is created twice, although every
// second response to a creation is lost.
func TestOwnersInNoNamespace(t *testing.T) {
	t.Parallel()
	c, set := directClient(t), labels.Set{"kept": t.Name()}
	owner := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "owner-", Labels: set}}
	require.NoError(t, c.Create(t.Context(), owner))
	elsewhere := newNamespace(t, c)
	orphan := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "orphan", Labels: set}}
	require.NoError(t, c.Create(t.Context(), orphan))
	kind := controller.Kind[*corev1.Namespace, *corev1.ConfigMap]{
		Owner: corev1.SchemeGroupVersion.WithKind("Namespace"), Child: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Spec: func(ns *corev1.Namespace) (replicas.Spec[*corev1.ConfigMap], error) {
			spec := replicas.Spec[*corev1.ConfigMap]{
				Selector: set.AsSelector(),
				New: func(string) (*corev1.ConfigMap, error) {
					return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Labels: set}}, nil
				},
			}
			if ns.Name == owner.Name {
				spec.Replicas = 3
			} else {
				spec.Selector = labels.SelectorFromSet(labels.Set{"kept": "by-nobody"})
			}
			return spec, nil
		},
	}
	lossy, posts := realServer(t), atomic.Int64{}
	lossy.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/configmaps") && posts.Add(1)%2 == 1 {
				_ = resp.Body.Close()
				return nil, io.ErrUnexpectedEOF // the creation has taken effect
			}
			return resp, err
		})
	})
	mgr, err := manager.New(lossy, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(t, err)
	require.NoError(t, controllerruntime.Add(mgr, kind, controllerruntime.Options{}))
	start(t, mgr)
	defer func() {
		// The test may see the third ConfigMap before the response to its creation is counted.
		assert.Eventually(t, func() bool { return posts.Load() >= 3 }, patience, tick)
		assert.EqualValues(t, 3, posts.Load(), "none was made twice")
	}()
	kept := func(want map[string]int) {
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			var list corev1.ConfigMapList
			require.NoError(collect, c.List(t.Context(), &list, client.MatchingLabels(set)))
			in := map[string]int{}
			for _, item := range list.Items {
				assert.True(collect, metav1.IsControlledBy(&item, owner))
				in[item.Namespace]++
			}
			assert.Equal(collect, want, in)
		}, patience, tick)
	}
	kept(map[string]int{owner.Name: 2, elsewhere: 1})
	require.NoError(t, c.Delete(t.Context(), orphan))
	kept(map[string]int{owner.Name: 3})
}

// If a manager elects no leader, each Add logs one warning. Without a leader, two processes can work at the same
// time and create each child twice.
//
//nolint:paralleltest // the metric that says who leads is that of the process
func TestAManagerWithoutALeaderIsWarnedAbout(t *testing.T) {
	namespace := newNamespace(t, directClient(t))
	warnings := func(elects bool) int {
		var lines atomic.Int64
		started := make(chan struct{})
		mgr := newManager(t, manager.Options{
			LeaderElection: elects, LeaderElectionID: "warned", LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
			Logger: funcr.New(func(_, line string) {
				if strings.Contains(line, "elects no leader") {
					lines.Add(1)
				}
			}, funcr.Options{}),
		}, namespace)
		require.NoError(t, controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{}))
		require.NoError(t, mgr.Add(manager.RunnableFunc(func(context.Context) error {
			close(started)
			return nil
		})))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		select {
		case <-started:
		case <-time.After(patience):
			require.Fail(t, "it does not start")
		}
		if !elects {
			assert.Eventually(t, func() bool { return lines.Load() > 0 }, patience, tick)
		}
		stop()
		require.NoError(t, <-ended)
		return int(lines.Load())
	}
	assert.Equal(t, 1, warnings(false))
	assert.Zero(t, warnings(true))
}

// If the server was restored from a backup, the controller deletes nothing, and the manager ends with an error.
// To simulate the restore, the test sets an older version in each response to a read of the owner.
func TestARestoredServerEndsTheManager(t *testing.T) {
	t.Parallel()
	c := directClient(t)
	namespace, set, wanted := newNamespace(t, c), map[string]string{"app": "web"}, int32(2)
	web := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &wanted, Selector: &metav1.LabelSelector{MatchLabels: set},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: set},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/web"}}},
		},
	}}
	require.NoError(t, c.Create(t.Context(), web))
	config, restored := realServer(t), atomic.Bool{}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || !restored.Load() || req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, "/replicasets/web") {
				return resp, err
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			body = regexp.MustCompile(`"resourceVersion":"[0-9]+"`).ReplaceAll(body, []byte(`"resourceVersion":"1"`))
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			return resp, err
		})
	})
	mgr, err := manager.New(config, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	require.NoError(t, err)
	require.NoError(t, controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{}))
	ended := start(t, mgr)
	pods := func() (living int) {
		var list corev1.PodList
		require.NoError(t, c.List(t.Context(), &list, client.InNamespace(namespace)))
		for _, pod := range list.Items {
			if pod.DeletionTimestamp == nil {
				living++
			}
		}
		return living
	}
	require.Eventually(t, func() bool { return pods() == 2 }, patience, tick)
	restored.Store(true)
	require.NoError(t, c.Patch(t.Context(), web, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))))
	select {
	case err := <-ended:
		require.ErrorIs(t, err, controller.ErrRestored)
	case <-time.After(patience):
		require.Fail(t, "the manager goes on")
	}
	assert.Equal(t, 2, pods())
}

// A watch that hangs before the server has sent three bookmarks is told, even though nobody set Options.Watches. Nothing
// proves then that the server sends bookmarks at all. The test sets short times, so that the log tells it after seconds
// instead of minutes.
func TestAWatchThatHangsFromTheStartIsTold(t *testing.T) {
	t.Parallel()
	c := directClient(t)
	namespace := newNamespace(t, c)
	config, hung := realServer(t), make(chan struct{})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && strings.HasSuffix(req.URL.Path, "/pods") && req.URL.Query().Has("watch") {
				resp.Body = hangingBody{resp.Body, req.Context(), hung}
			}
			return resp, err
		})
	})
	var said atomic.Pointer[string]
	logger := funcr.New(func(_, line string) {
		if strings.Contains(line, "A watch hangs, or the server sends no bookmarks") && strings.Contains(line, `"kind"="Pod"`) {
			said.CompareAndSwap(nil, &line)
		}
	}, funcr.Options{})
	ctx := follow.WithTimes(log.IntoContext(context.Background(), logger), follow.Times{
		Look: 100 * time.Millisecond, Ask: 100 * time.Millisecond, Relist: 2 * time.Second, Stale: 3 * time.Second,
	})
	anyName := true
	own := labels.SelectorFromSet(labels.Set{"of": namespace}) // a cache of one namespace does not report its version
	mgr, err := manager.New(config, manager.Options{
		BaseContext: func() context.Context { return ctx },
		Metrics:     metricsserver.Options{BindAddress: "0"},
		Controller:  runtimeconfig.Controller{SkipNameValidation: &anyName},
		Cache:       cache.Options{ByObject: map[client.Object]cache.ByObject{&appsv1.ReplicaSet{}: {Label: own}, &corev1.Pod{}: {Label: own}}},
	})
	require.NoError(t, err)
	require.NoError(t, controllerruntime.Add(mgr, controller.ReplicaSets(), controllerruntime.Options{}))
	start(t, mgr)
	rs := web(namespace, 2)
	rs.Labels = map[string]string{"of": namespace}
	rs.Spec.Template.Labels["of"] = namespace
	require.NoError(t, c.Create(t.Context(), rs))
	settled(t, c, namespace, 2)

	close(hung)
	require.NoError(t, c.Create(t.Context(), &corev1.Pod{ // the watch does not reach this version
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}, Spec: rs.Spec.Template.Spec,
	}))
	require.Eventually(t, func() bool { return said.Load() != nil }, patience, tick)
	assert.Regexp(t, `"error"="Pod: the watch is [0-9]+s behind the server"`, *said.Load())
}

// A hangingBody sends nothing and does not end after the channel hung is closed.
type hangingBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // of the request that the body answers
	hung <-chan struct{}
}

func (b hangingBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	select {
	case <-b.hung:
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	default:
		return n, err
	}
}
