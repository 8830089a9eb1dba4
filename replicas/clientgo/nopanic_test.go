// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

type setClient = controller.Client[*appsv1.ReplicaSet, *corev1.Pod]

// parts holds the arguments of New. Each case spoils one of them.
type parts struct {
	kind             controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]
	client           setClient
	owners, children cache.SharedIndexInformer
	opts             clientgo.Options
}

func newParts() *parts {
	kube := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(kube, 0)
	return &parts{
		kind: controller.ReplicaSets(), client: typed.NewClient(kube.AppsV1().ReplicaSets, kube.CoreV1().Pods),
		owners: factory.Apps().V1().ReplicaSets().Informer(), children: factory.Core().V1().Pods().Informer(),
	}
}

// The tests pass nil pointers to these types as arguments. An interface that holds a nil pointer is not equal to
// nil. The type noSetsInside is an exception, because the test passes the value noSetsInside{}. Its method
// Informer returns nil.
type (
	noInformer   struct{ cache.SharedIndexInformer }
	noRegisterer struct{ prometheus.Registerer }
	noSink       struct{ controller.EventSink }
	noEvents     struct{ typedcorev1.EventsGetter }
	noMetrics    struct{ workqueue.MetricsProvider }
	noLimiter    struct {
		workqueue.TypedRateLimiter[types.NamespacedName]
	}
	noKube    struct{ kubernetes.Interface }
	nilClient struct{ setClient }
	noSets    struct {
		appsinformers.ReplicaSetInformer
	}
	noRCs struct {
		coreinformers.ReplicationControllerInformer
	}
	noPods      struct{ coreinformers.PodInformer }
	noSetClient struct {
		typedappsv1.ReplicaSetInterface
	}
	noSetsInside struct {
		appsinformers.ReplicaSetInformer
	}
)

func (noSetsInside) Informer() cache.SharedIndexInformer { return nil }

// constructors contains a test for each exported function. The test passes nil and other bad arguments to the
// function, and checks the result.
var constructors = map[string]func(t *testing.T){
	"New": func(t *testing.T) {
		t.Helper()
		for want, spoil := range map[string]func(*parts){
			"the informer of owners is nil":                             func(p *parts) { p.owners = nil },
			"clientgo: the informer of owners is nil":                   func(p *parts) { p.owners = (*noInformer)(nil) },
			"the informer of children is nil":                           func(p *parts) { p.children = nil },
			"clientgo: the informer of children is nil":                 func(p *parts) { p.children = (*noInformer)(nil) },
			"client is nil":                                             func(p *parts) { p.client = nil },
			"client is a nil *clientgo_test.nilClient":                  func(p *parts) { p.client = (*nilClient)(nil) },
			"owners of the client is nil":                               func(p *parts) { p.client = clientOf(nil, podsOf(nil)) },
			"children of the client is nil":                             func(p *parts) { p.client = clientOf(setsOf(&noSetClient{}), nil) },
			`owners of the client returned nil for namespace ""`:        func(p *parts) { p.client = clientOf(setsOf((*noSetClient)(nil)), podsOf(nil)) },
			`children of the client returned nil for namespace ""`:      func(p *parts) { p.client = clientOf(setsOf(&noSetClient{}), podsOf(nil)) },
			`Owner "/, Kind=" is incomplete`:                            func(p *parts) { p.kind = controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]{} },
			"ReplicaSet controller: controller: kind ReplicaSet has no": func(p *parts) { p.kind.Spec = nil },
			"burst replicas -1 is negative":                             func(p *parts) { p.opts.BurstReplicas = -1 },
		} {
			p := newParts()
			spoil(p)
			_, err := clientgo.New(t.Context(), p.kind, p.client, p.owners, p.children, p.opts)
			require.ErrorContains(t, err, want)
		}
		p := newParts()
		p.opts = clientgo.Options{
			Clock: (*testingclock.FakeClock)(nil), RateLimiter: (*noLimiter)(nil), Events: (*noSink)(nil), EventClient: (*noEvents)(nil),
			MetricsRegisterer: (*noRegisterer)(nil), QueueMetrics: (*noMetrics)(nil),
		}
		c, err := clientgo.New(t.Context(), p.kind, p.client, p.owners, p.children, p.opts)
		require.NoError(t, err, "nil pointers mean the defaults")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = c.Run(ctx, 1)
	},
	"NewReplicaSetController": func(t *testing.T) {
		t.Helper()
		kube := fake.NewClientset()
		factory := informers.NewSharedInformerFactory(kube, 0)
		sets, pods := factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods()
		for _, none := range []appsinformers.ReplicaSetInformer{nil, (*noSets)(nil), noSetsInside{}} {
			_, err := clientgo.NewReplicaSetController(t.Context(), none, pods, kube, 0)
			require.EqualError(t, err, "clientgo: the informer of owners is nil")
		}
		for _, none := range []coreinformers.PodInformer{nil, (*noPods)(nil)} {
			_, err := clientgo.NewReplicaSetController(t.Context(), sets, none, kube, 0)
			require.EqualError(t, err, "clientgo: the informer of children is nil")
		}
		for _, none := range []kubernetes.Interface{nil, (*noKube)(nil)} {
			_, err := clientgo.NewReplicaSetController(t.Context(), sets, pods, none, 0)
			require.ErrorContains(t, err, "clientgo: client is")
		}
	},
	"NewReplicationManager": func(t *testing.T) {
		t.Helper()
		kube := fake.NewClientset()
		factory := informers.NewSharedInformerFactory(kube, 0)
		rcs, pods := factory.Core().V1().ReplicationControllers(), factory.Core().V1().Pods()
		for _, none := range []coreinformers.ReplicationControllerInformer{nil, (*noRCs)(nil)} {
			_, err := clientgo.NewReplicationManager(t.Context(), pods, none, kube, 0)
			require.EqualError(t, err, "clientgo: the informer of owners is nil")
		}
		for _, none := range []coreinformers.PodInformer{nil, (*noPods)(nil)} {
			_, err := clientgo.NewReplicationManager(t.Context(), none, rcs, kube, 0)
			require.EqualError(t, err, "clientgo: the informer of children is nil")
		}
		for _, none := range []kubernetes.Interface{nil, (*noKube)(nil)} {
			_, err := clientgo.NewReplicationManager(t.Context(), pods, rcs, none, 0)
			require.ErrorContains(t, err, "clientgo: client is")
		}
	},
	"CapRetryAfter": func(t *testing.T) {
		t.Helper()
		server := httptest.NewServer(http.NotFoundHandler())
		defer server.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		for _, none := range []http.RoundTripper{nil, (*http.Transport)(nil)} {
			resp, err := clientgo.CapRetryAfter(none).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, http.StatusNotFound, resp.StatusCode)
		}
	},
}

func clientOf(sets func(string) typedappsv1.ReplicaSetInterface, pods func(string) typedcorev1.PodInterface) setClient {
	return typed.NewClient(sets, pods)
}

func setsOf(c typedappsv1.ReplicaSetInterface) func(string) typedappsv1.ReplicaSetInterface {
	return func(string) typedappsv1.ReplicaSetInterface { return c }
}

func podsOf(c typedcorev1.PodInterface) func(string) typedcorev1.PodInterface {
	return func(string) typedcorev1.PodInterface { return c }
}

// If an argument is nil or holds a nil pointer, no exported function panics. If the function returns an error,
// the error names the argument.
func TestNothingPanics(t *testing.T) {
	t.Parallel()
	for name, try := range constructors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try(t)
		})
	}
	t.Run("Controller", func(t *testing.T) {
		t.Parallel()
		for _, c := range []*clientgo.Controller{nil, {}} {
			_ = c.Run(t.Context(), 1)
		}
	})
}

// Each exported function must have a test in the map constructors. The map must not contain other tests.
func TestNothingPanicsKnowsAll(t *testing.T) {
	t.Parallel()
	assert.ElementsMatch(t, exportedFunctions(t), slices.Collect(maps.Keys(constructors)))
}

func exportedFunctions(t *testing.T) (names []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.IsExported() {
				names = append(names, d.Name.Name)
			}
		}
	}
	return names
}
