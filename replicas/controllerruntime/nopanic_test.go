// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
	"github.com/replicakit/replicakit/selector"
)

// The tests pass nil pointers to these types as arguments. An interface that holds a nil pointer is not equal to
// nil.
type (
	noManager struct{ manager.Manager }
	noCluster struct{ cluster.Cluster }
	noClient  struct{ client.Client }
	noReader  struct{ client.Reader }
	noCache   struct{ cache.Cache }
	noMapper  struct{ meta.RESTMapper }
	noSink    struct{ controller.EventSink }
	noLimiter struct {
		workqueue.TypedRateLimiter[reconcile.Request]
	}
)

// A lacking cluster may have a nil cache or a nil event recorder.
type lacking struct {
	*fakeCluster
	cache    cache.Cache
	recorder record.EventRecorder
}

func (l lacking) GetCache() cache.Cache                           { return l.cache }
func (l lacking) GetEventRecorderFor(string) record.EventRecorder { return l.recorder }

// A clientWithout may have a nil scheme or a nil RESTMapper.
type clientWithout struct {
	client.Client
	scheme *runtime.Scheme
	mapper meta.RESTMapper
}

func (c clientWithout) Scheme() *runtime.Scheme     { return c.scheme }
func (c clientWithout) RESTMapper() meta.RESTMapper { return c.mapper }

// constructors contains a test for each exported function. The test passes nil and other bad arguments to the
// function, and checks the result.
var constructors = map[string]func(t *testing.T){
	"Add": func(t *testing.T) {
		t.Helper()
		for _, none := range []manager.Manager{nil, (*noManager)(nil)} {
			require.EqualError(t, controllerruntime.Add(none, plainPools(), controllerruntime.Options{}), "controllerruntime: manager is nil")
		}
	},
	"New": func(t *testing.T) {
		t.Helper()
		for _, none := range []cluster.Cluster{nil, (*noCluster)(nil)} {
			_, err := controllerruntime.New(none, plainPools(), controllerruntime.Options{})
			require.EqualError(t, err, "controllerruntime: kind WorkerPool: cluster is nil")
		}
		for want, spoil := range map[string]func(f *fakeCluster) cluster.Cluster{
			"GetScheme":       func(f *fakeCluster) cluster.Cluster { f.scheme = nil; return f },
			"GetRESTMapper":   func(f *fakeCluster) cluster.Cluster { f.mapper = (*noMapper)(nil); return f },
			"GetClient":       func(f *fakeCluster) cluster.Cluster { f.client = nil; return f },
			"GetAPIReader":    func(f *fakeCluster) cluster.Cluster { f.live = (*noReader)(nil); return f },
			"GetCache":        func(f *fakeCluster) cluster.Cluster { return lacking{fakeCluster: f, cache: (*noCache)(nil)} },
			"GetFieldIndexer": func(f *fakeCluster) cluster.Cluster { f.indexer = nil; return f },
		} {
			_, err := controllerruntime.New(spoil(newFakeCluster(interceptor.Funcs{})), plainPools(), controllerruntime.Options{Name: t.Name()})
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "returned nil")
		}
		_, err := controllerruntime.New(newFakeCluster(interceptor.Funcs{}), controller.Kind[*WorkerPool, *Worker]{}, controllerruntime.Options{})
		require.ErrorContains(t, err, "the scheme does not know")
		f := newFakeCluster(interceptor.Funcs{}, blue(1))
		opts := controllerruntime.Options{Name: t.Name()}
		opts.Runtime.RateLimiter, opts.Controller.Events = (*noLimiter)(nil), (*noSink)(nil)
		r, err := controllerruntime.New(lacking{fakeCluster: f, cache: readCache{Reader: f.cache}, recorder: (*record.FakeRecorder)(nil)}, plainPools(), opts)
		require.NoError(t, err, "nil pointers mean the defaults, and no recorder means no events")
		_, err = r.Reconcile(t.Context(), request)
		require.NoError(t, err)
		assert.Len(t, f.workers(t), 1)
		assert.Positive(t, r.RateLimiter().When(request))
	},
	"NewHandlers": func(t *testing.T) {
		t.Helper()
		store, real := &expectations.Store[expectations.Key]{}, newFakeCluster(interceptor.Funcs{}).client
		for _, none := range []client.Client{nil, (*noClient)(nil)} {
			_, err := controllerruntime.NewHandlers(none, plainPools(), store)
			require.EqualError(t, err, "controllerruntime: client is nil")
		}
		_, err := controllerruntime.NewHandlers(clientWithout{Client: real}, plainPools(), store)
		require.ErrorContains(t, err, "there is no scheme that could know example.com/v1, Kind=WorkerPool")
		_, err = controllerruntime.NewHandlers(clientWithout{real, newScheme(), (*noMapper)(nil)}, plainPools(), store)
		require.NoError(t, err, "then the Kind says whether owners are in a namespace")
		_, err = controllerruntime.NewHandlers(real, plainPools(), nil)
		require.ErrorContains(t, err, "store is nil")
	},
	"NewClient": func(t *testing.T) {
		t.Helper()
		real := newFakeCluster(interceptor.Funcs{}).client
		for _, none := range []client.Client{nil, (*noClient)(nil)} {
			_, err := controllerruntime.NewClient(none, real, plainPools())
			require.EqualError(t, err, "controllerruntime: client is nil")
		}
		for _, none := range []client.Reader{nil, (*noReader)(nil)} {
			_, err := controllerruntime.NewClient(real, none, plainPools())
			require.EqualError(t, err, "controllerruntime: reader is nil")
		}
		_, err := controllerruntime.NewClient(clientWithout{Client: real}, real, plainPools())
		require.ErrorContains(t, err, "there is no scheme that could know")
		c, err := controllerruntime.NewClient(real, real, plainPools())
		require.NoError(t, err)
		ctx, errs := t.Context(), map[string]error{}
		_, errs["Create"] = c.Create(ctx, nil)
		errs["Delete"] = c.Delete(ctx, nil, metav1.DeleteOptions{})
		_, errs["Patch"] = c.Patch(ctx, nil, selector.Patch{}, metav1.PatchOptions{})
		_, errs["List"] = c.List(ctx, "", nil)
		_, errs["PatchStatus"] = c.PatchStatus(ctx, nil, selector.Patch{})
		for name, err := range errs {
			require.ErrorContains(t, err, "is nil", name)
		}
	},
	"Index": func(t *testing.T) {
		t.Helper()
		_, extract := controllerruntime.Index(controller.Kind[*WorkerPool, *Worker]{})
		assert.Empty(t, extract(nil))
		assert.Empty(t, extract((*Worker)(nil)))
	},
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
