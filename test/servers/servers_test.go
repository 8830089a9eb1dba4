// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers_test runs replicas/clientgo and replicas/controllerruntime on a
// real etcd and a real kube-apiserver. All tests together take less than a minute. With each of these
// adapters, a controller creates, scales and adopts pods, restarts, and handles lost responses. In two
// tests, another client changes the owner, or the pod to be deleted, just before the controller's request
// arrives. The tests in test/e2e check the same behavior and much more. The tests in test/e2e use only
// replicas/clientgo and take minutes.
//
// `make test-servers` builds the needed programs and runs the tests.
package servers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	runtimecache "sigs.k8s.io/controller-runtime/pkg/cache"
	runtimeconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
	"github.com/replicakit/replicakit/replicas/faults"
)

const (
	patience = time.Minute
	glance   = 20 * time.Millisecond
)

// shared is the server that all tests use.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	flag.Parse() // see controlplane.BeforeTimeout
	log.SetLogger(logr.Discard())
	if *operator != "" {
		os.Exit(operate())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	binaries, err := controlplane.Binaries()
	if err == nil {
		shared, err = controlplane.Start(binaries, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		return 1
	}
	defer func() { _ = shared.Stop() }()
	return m.Run()
}

// adapters run the controller of ReplicaSets for one namespace until ctx ends.
var adapters = map[string]func(ctx context.Context, config *rest.Config, namespace string) error{
	"clientgo":          clientgoOf(),
	"controllerruntime": runtimeOf(controller.ReplicaSets()),
}

// clientgoOf returns an adapter of client-go. The adapter makes its informers with the given options.
func clientgoOf(options ...informers.SharedInformerOption) func(context.Context, *rest.Config, string) error {
	return func(ctx context.Context, config *rest.Config, namespace string) error {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, append(options, informers.WithNamespace(namespace))...)
		c, err := clientgo.NewReplicaSetController(ctx, factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 0)
		if err != nil {
			return err
		}
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
		_ = c.Run(ctx, clientgo.DefaultWorkers)
		return nil
	}
}

// runtimeOf returns an adapter of controller-runtime for a Kind.
func runtimeOf(kind controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]) func(context.Context, *rest.Config, string) error {
	return func(ctx context.Context, config *rest.Config, namespace string) error {
		anyName := true
		mgr, err := manager.New(config, manager.Options{
			Scheme:     scheme.Scheme,
			Metrics:    metricsserver.Options{BindAddress: "0"},
			Cache:      runtimecache.Options{DefaultNamespaces: map[string]runtimecache.Config{namespace: {}}},
			Controller: runtimeconfig.Controller{SkipNameValidation: &anyName},
		})
		if err != nil {
			return err
		}
		if err := controllerruntime.Add(mgr, kind, controllerruntime.Options{}); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
}

func TestServers(t *testing.T) {
	t.Parallel()
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for does, test := range map[string]func(*world){
				"creates pods and says so in the status":          creates,
				"scales up, down, to zero and up again":           scales,
				"adopts pods that have no owner":                  adopts,
				"goes on after a restart":                         restarts,
				"makes and deletes none too many if answers fail": losesAnswers,
			} {
				t.Run(does, func(t *testing.T) {
					t.Parallel()
					test(newWorld(t, adapter))
				})
			}
		})
	}
}

// If a pod gets a job right before its deletion reaches the server, the pod stays. Before, the cache has shown the
// pod without a job.
func TestAVictimThatMustStayByNow(t *testing.T) {
	t.Parallel()
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Annotations["job"] != "" }
		return s, err
	}
	w := newWorld(t, runtimeOf(kind))
	var once sync.Once
	victim := ""
	w.before = func(request *http.Request) {
		if request.Method != http.MethodDelete {
			return
		}
		once.Do(func() {
			victim = path.Base(request.URL.Path)
			job := []byte(`{"metadata":{"annotations":{"job":"1"}}}`)
			_, err := w.client.CoreV1().Pods(w.namespace).Patch(t.Context(), victim, types.MergePatchType, job, metav1.PatchOptions{})
			assert.NoError(t, err)
		})
	}
	w.start()
	w.create(3)
	w.has(3)
	w.scale(2)
	w.has(2)
	require.NotEmpty(t, victim)
	pod, err := w.client.CoreV1().Pods(w.namespace).Get(t.Context(), victim, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Nil(t, pod.DeletionTimestamp)
}

// If a user scales down, and up again right before the controller reads the owner from the server, no pod is
// deleted. Prepare never gets a pod to delete.
func TestTheAuthorsStepIsNotAskedForAnOldOwner(t *testing.T) {
	t.Parallel()
	kind := controller.ReplicaSets()
	var victims atomic.Int64
	kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		victims.Add(int64(len(step.Delete)))
		return nil
	}
	w := newWorld(t, runtimeOf(kind))
	var isArmed atomic.Bool
	w.before = func(request *http.Request) {
		if request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/replicasets/web") && isArmed.CompareAndSwap(true, false) {
			w.scale(5)
		}
	}
	w.start()
	w.create(5)
	w.has(5)
	isArmed.Store(true)
	w.scale(3)
	require.Eventually(t, func() bool { return !isArmed.Load() }, patience, glance, "the owner is read before children are deleted")
	w.has(5)
	assert.Len(t, w.ever, 5)
	assert.Zero(t, victims.Load())
}

func creates(w *world) {
	w.start()
	w.create(3)
	w.has(3)
	assert.Len(w.t, w.ever, 3)
}

func scales(w *world) {
	w.start()
	w.create(3)
	w.has(3)
	for _, n := range []int32{40, 4, 0, 2} {
		w.scale(n)
		w.has(n)
	}
	assert.Len(w.t, w.ever, 40+2)
}

func adopts(w *world) {
	for range 2 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "orphan-", Labels: app}, Spec: podSpec}
		_, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), pod, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
	w.start()
	w.create(3)
	w.has(3)
	pods, err := w.client.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	assert.Len(w.t, pods.Items, 3, "two are adopted, and one is created")
}

func restarts(w *world) {
	stop := w.start()
	w.create(4)
	w.has(4)
	for _, n := range []int32{9, 5} {
		stop()
		w.scale(n)
		stop = w.start()
		w.has(n)
	}
	assert.Len(w.t, w.ever, 9)
}

func losesAnswers(w *world) {
	for _, verb := range []string{"create", "delete"} {
		w.faults.Rules = append(w.faults.Rules, faults.Rule{Verb: verb, Resource: "pods", Share: 0.3, Fault: faults.LoseAnswer})
	}
	w.start()
	w.create(20)
	w.has(20)
	assert.Len(w.t, w.ever, 20, "no pod is created twice")
	w.scale(5)
	w.has(5)
	assert.Len(w.t, w.ever, 20, "no pod too many is deleted and replaced")
	lost := map[string]int{}
	for _, c := range w.faults.Calls() {
		lost[c.Verb] += len(c.Faults)
	}
	assert.Positive(w.t, lost["create"])
	assert.Positive(w.t, lost["delete"])
}

// Ten bad minutes, with built-in resources, which clients send and read as protobuf.
func TestInBadMinutes(t *testing.T) {
	t.Parallel()
	client, err := rest.HTTPClientFor(shared.Config)
	require.NoError(t, err)
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.faults = &faults.Faults{Seed: seed, Rules: faults.Minute(seed, "replicasets", "pods")}
			w.adapter = func(ctx context.Context, config *rest.Config, namespace string) error {
				config.ContentType = runtime.ContentTypeProtobuf
				return w.faults.Run(ctx, func(ctx context.Context) error { return clientgoOf()(ctx, config, namespace) })
			}
			judge := &faults.Judge{
				Client: client, Server: shared.Config.Host, Faults: w.faults, Namespace: w.namespace,
				Owner: appsv1.SchemeGroupVersion.WithResource("replicasets"), Child: corev1.SchemeGroupVersion.WithResource("pods"),
			}
			require.NoError(t, judge.Begin(t.Context()))
			w.start()
			w.create(3)
			require.NoError(t, judge.Settled(t.Context()))
			w.scale(1)
			report, err := judge.End(t.Context())
			require.NoError(t, err)
			t.Log(report)
		})
	}
}

// A world is a namespace with one ReplicaSet, named web.
type world struct {
	t         *testing.T
	adapter   func(ctx context.Context, config *rest.Config, namespace string) error
	client    kubernetes.Interface
	namespace string

	before  func(*http.Request)     // called before each request of the adapter; may be nil
	instead func(*http.Request) int // returns the HTTP status to answer a request with, or 0 to forward the request; may be nil
	faults  *faults.Faults          // spoils the requests that are forwarded

	mu     sync.Mutex
	active map[types.UID]bool // the pods of web that are neither being deleted nor asked to leave
	ever   map[types.UID]bool // all pods that web has ever had
}

var (
	app     = map[string]string{"app": "web"}
	podSpec = corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "pause"}}}
)

func newWorld(t *testing.T, adapter func(context.Context, *rest.Config, string) error) *world {
	t.Helper()
	w := &world{t: t, adapter: adapter, faults: &faults.Faults{}, active: map[types.UID]bool{}, ever: map[types.UID]bool{}}
	client, err := kubernetes.NewForConfig(unlimited())
	require.NoError(t, err)
	w.client = client
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "servers-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.namespace = namespace.Name
	w.watch()
	return w
}

// unlimited returns the configuration of a client without a rate limit.
func unlimited() *rest.Config {
	config := rest.CopyConfig(shared.Config)
	config.QPS = -1
	return config
}

// watch keeps the fields active and ever up to date.
func (w *world) watch() {
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(w.namespace))
	see := func(obj any) { w.see(obj.(*corev1.Pod), true) }
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, obj any) { see(obj) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			w.see(obj.(*corev1.Pod), false)
		},
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	w.t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
}

func (w *world) see(pod *corev1.Pod, exists bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.active, pod.UID)
	if metav1.GetControllerOfNoCopy(pod) != nil {
		w.ever[pod.UID] = true
		if exists && stays(pod) {
			w.active[pod.UID] = true
		}
	}
}

// start runs the adapter until the test ends, or until the caller calls the returned function stop.
func (w *world) start() (stop func()) {
	w.t.Helper()
	config := unlimited()
	config.Wrap(w.faults.Wrap)
	config.Wrap(w.intercept)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(w.t, w.adapter(ctx, config, w.namespace)) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.t.Cleanup(stop)
	return stop
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// intercept wraps the transport of the adapter. If one of the functions w.before and w.instead is set, the new
// transport calls this function for each request.
func (w *world) intercept(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if w.before != nil {
			w.before(request)
		}
		if w.instead != nil {
			if status := w.instead(request); status != 0 {
				return refusal(request, status), nil
			}
		}
		return next.RoundTrip(request)
	})
}

// refusal returns an answer that a proxy or a webhook could send instead of the server.
func refusal(request *http.Request, status int) *http.Response {
	body, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(status), Message: http.StatusText(status),
		Reason: map[int]metav1.StatusReason{
			http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
		}[status],
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	})
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}
}

func (w *world) create(replicas int32) {
	w.t.Helper()
	_, err := w.client.AppsV1().ReplicaSets(w.namespace).Create(w.t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: podSpec},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) scale(replicas int32) {
	w.t.Helper()
	w.patch(`{"spec":{"replicas":%d}}`, replicas)
}

func (w *world) patch(format string, args ...any) *appsv1.ReplicaSet {
	w.t.Helper()
	rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Patch(w.t.Context(), "web", types.MergePatchType, fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	require.NoError(w.t, err)
	return rs
}

// has waits until web has n pods and its status shows this number. It then changes web, and waits until the status
// shows that a pass has seen this change. After this pass, web must still have n pods.
func (w *world) has(n int32) {
	w.t.Helper()
	for generation := int64(1); ; {
		require.EventuallyWithT(w.t, func(c *assert.CollectT) {
			rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Get(w.t.Context(), "web", metav1.GetOptions{})
			require.NoError(c, err)
			w.mu.Lock()
			defer w.mu.Unlock()
			assert.Len(c, w.active, int(n))
			assert.Equal(c, n, rs.Status.Replicas)
			assert.GreaterOrEqual(c, rs.Status.ObservedGeneration, generation)
		}, patience, glance, "%d pods", n)
		if generation > 1 {
			return
		}
		generation = w.patch(`{"spec":{"template":{"metadata":{"annotations":{"looked":"at %d"}}}}}`, time.Now().UnixNano()).Generation
	}
}
