// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
	"github.com/replicakit/replicakit/selector"
)

// A server records the requests that it receives. A function in the test answers these requests.
type server struct {
	mu       sync.Mutex
	requests []string
}

func (s *server) log(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, line)
}

// clusterOver returns a cluster. Its client and its uncached reader send HTTP requests, and the function answer
// makes the responses. Its cache holds the objects.
func clusterOver(t *testing.T, answer func(method, path string, body map[string]any) (code int, reply any), objects ...client.Object) (*fakeCluster, *server) {
	t.Helper()
	s := &server{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		body := map[string]any{}
		if len(data) > 0 {
			assert.NoError(t, json.Unmarshal(data, &body))
		}
		s.log(r.Method + " " + r.URL.RequestURI() + " " + string(data))
		code, reply := answer(r.Method, r.URL.RequestURI(), body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		assert.NoError(t, json.NewEncoder(w).Encode(reply))
	}))
	t.Cleanup(srv.Close)
	f := newFakeCluster(interceptor.Funcs{}, objects...)
	config := &rest.Config{Host: srv.URL}
	c, err := client.NewWithWatch(config, client.Options{Scheme: f.scheme, Mapper: f.mapper})
	require.NoError(t, err)
	f.client, f.live = c, c
	return f, s
}

// stored adds a name-based UID and a resourceVersion to an object, as if a server had stored the object.
func stored(body map[string]any) map[string]any {
	meta := body["metadata"].(map[string]any)
	meta["uid"], meta["resourceVersion"] = "uid-"+meta["name"].(string), "7"
	return body
}

// If a webhook removes or changes the labels of a new child, or removes its owner references, the controller
// notices the change. The server answers with JSON, because the child is a custom resource. A field that the JSON
// omits must be cleared in the child.
func TestAWebhookThatTakesLabelsAwayIsSeen(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(meta map[string]any){
		"the labels":           func(meta map[string]any) { delete(meta, "labels") },
		"the owner references": func(meta map[string]any) { delete(meta, "ownerReferences") }, // the next pass adopts the child
		"the value of a label": func(meta map[string]any) { meta["labels"] = map[string]any{"pool": "red"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, s := clusterOver(t, func(method, path string, body map[string]any) (int, any) {
				switch {
				case method == http.MethodPost:
					take(stored(body)["metadata"].(map[string]any))
				case strings.HasSuffix(path, "/workerpools/blue"):
					return http.StatusOK, blue(1)
				}
				return http.StatusOK, body
			}, blue(1))
			r := newReconciler(t, f, controllerruntime.Options{})
			_, err := r.Reconcile(t.Context(), request)
			if name == "the owner references" {
				require.NoError(t, err)
				assert.NotContains(t, strings.Join(s.requests, "\n"), "DELETE")
				return
			}
			require.ErrorContains(t, err, "does not belong to the owner")
			require.Len(t, s.requests, 5)
			assert.Contains(t, s.requests[0], "GET /apis/example.com/v1/namespaces/default/workers?", "a new process looks live first")
			assert.Contains(t, s.requests[1], "GET /apis/example.com/v1/namespaces/default/workerpools?limit=1")
			assert.Contains(t, s.requests[2], "GET /apis/example.com/v1/namespaces/default/workerpools/blue", "at the owner too, as that list has no version")
			assert.Contains(t, s.requests[4], "DELETE /apis/example.com/v1/namespaces/default/workers/blue-")
			assert.Contains(t, s.requests[4], `"uid":"uid-blue-`)
		})
	}
}

// If the server drops a field of the status, later passes do not send the field again.
func TestAStatusFieldThatTheServerDrops(t *testing.T) {
	t.Parallel()
	f, s := clusterOver(t, func(method, _ string, body map[string]any) (int, any) {
		if method == http.MethodGet {
			return http.StatusOK, blue(0)
		}
		delete(body, "status")
		return http.StatusOK, body
	}, blue(0))
	kind := plainPools()
	kind.Status = func(p *WorkerPool, _ outcome) error {
		p.Status.ReadyReplicas = 5
		return nil
	}
	r, err := controllerruntime.New(f, kind, controllerruntime.Options{Name: t.Name()})
	require.NoError(t, err)
	for range 3 {
		_, err := r.Reconcile(t.Context(), request)
		require.NoError(t, err)
	}
	require.Len(t, s.requests, 1)
	assert.Contains(t, s.requests[0], "PATCH /apis/example.com/v1/namespaces/default/workerpools/blue/status")
	assert.Contains(t, s.requests[0], `"status":{"readyReplicas":5}`)
}

// A custom resource is adopted with a merge patch. The server's answer to this patch shows the child's new
// owner.
func TestAdoption(t *testing.T) {
	t.Parallel()
	f, s := clusterOver(t, func(method, _ string, body map[string]any) (int, any) {
		if method == http.MethodGet {
			return http.StatusOK, blue(1)
		}
		if method == http.MethodPatch {
			g := orphan("stray")
			g.OwnerReferences = nil
			reply := map[string]any{}
			data, _ := json.Marshal(g)
			_ = json.Unmarshal(data, &reply)
			maps.Copy(reply["metadata"].(map[string]any), body["metadata"].(map[string]any))
			return http.StatusOK, reply
		}
		return http.StatusOK, body
	}, blue(1), orphan("stray"))
	r := newReconciler(t, f, controllerruntime.Options{})
	_, err := r.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(s.requests), 2)
	assert.Equal(t, "GET /apis/example.com/v1/namespaces/default/workerpools/blue ", s.requests[0], "the owner is read live first")
	assert.True(t, strings.HasPrefix(s.requests[1], "PATCH /apis/example.com/v1/namespaces/default/workers/stray "), s.requests[1])
}

// A live list bypasses the cache and is read in pages. If the pages have different resourceVersions, or if one
// page fails, List returns an error.
func TestLiveList(t *testing.T) {
	t.Parallel()
	page := func(version, next string, names ...string) any {
		list := WorkerList{}
		list.ResourceVersion, list.Continue = version, next
		for _, name := range names {
			list.Items = append(list.Items, *orphan(name))
		}
		return list
	}
	for name, tt := range map[string]struct {
		second any
		code   int
		want   string
	}{
		"two pages":          {page("9", "", "b"), http.StatusOK, ""},
		"of another version": {page("10", "", "b"), http.StatusOK, `a page of version "10" follows a page of version "9"`},
		"the second is lost": {map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}, http.StatusGone, "too old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, s := clusterOver(t, func(_, uri string, _ map[string]any) (int, any) {
				if strings.Contains(uri, "continue=more") {
					return tt.code, tt.second
				}
				return http.StatusOK, page("9", "more", "a")
			})
			c, err := controllerruntime.NewClient(f.client, f.live, plainPools())
			require.NoError(t, err)
			list, err := c.List(t.Context(), "default", labels.Set{"pool": "blue"}.AsSelector())
			require.Len(t, s.requests, 2)
			assert.Equal(t, "GET /apis/example.com/v1/namespaces/default/workers?labelSelector=pool%3Dblue&limit=500 ", s.requests[0])
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				assert.Empty(t, list.Items, "half a list is none")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "9", list.Version)
			require.Len(t, list.Items, 2)
		})
	}
}

// A custom reconcile loop can adopt and delete children with the client that NewClient returns.
func TestNewClient(t *testing.T) {
	t.Parallel()
	stray := orphan("stray")
	stray.Labels["kept"] = "no"
	f := newFakeCluster(interceptor.Funcs{}, blue(1), stray)
	c, err := controllerruntime.NewClient(f.client, f.live, plainPools())
	require.NoError(t, err)
	claimed, err := selector.Claimer[*Worker]{
		Owner: blue(1), Kind: groupVersion.WithKind("WorkerPool"), PatchType: types.MergePatchType,
		Selector: labels.Set{"pool": "blue"}.AsSelector(),
		CanAdopt: selector.CanAdopt(func(ctx context.Context) (metav1.Object, error) { return c.GetOwner(ctx, "default", "blue") }, blue(1)),
		Patch: func(ctx context.Context, w *Worker, patch selector.Patch) (*Worker, error) {
			return c.Patch(ctx, w, patch, metav1.PatchOptions{})
		},
	}.Claim(t.Context(), []*Worker{stray})
	require.NoError(t, err)
	require.Len(t, claimed.Adopted, 1)
	assert.Equal(t, types.UID("blue-uid"), metav1.GetControllerOf(claimed.Adopted[0]).UID)
	assert.Empty(t, stray.OwnerReferences, "what was read is not changed")

	err = c.Delete(t.Context(), stray, metav1.DeleteOptions{})
	require.NoError(t, err)
	_, err = c.Get(t.Context(), "default", "stray")
	require.True(t, apierrors.IsNotFound(err))
}

// If the server answers a creation with Retry-After, client-go sends the creation again. If the call then fails,
// its error wraps ErrResent.
func TestCreationsThatAreSentTwiceAreTold(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]int{"sent once": 0, "sent twice": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if calls++; calls <= busy {
					w.Header().Set("Retry-After", "0")
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				w.WriteHeader(http.StatusForbidden)
			}))
			t.Cleanup(srv.Close)
			f := newFakeCluster(interceptor.Funcs{})
			direct, err := client.New(&rest.Config{Host: srv.URL}, client.Options{Scheme: f.scheme, Mapper: f.mapper})
			require.NoError(t, err)
			c, err := controllerruntime.NewClient(direct, direct, plainPools())
			require.NoError(t, err)
			_, err = c.Create(t.Context(), orphan("new"))
			assert.True(t, apierrors.IsForbidden(err), err)
			assert.Equal(t, busy > 0, errors.Is(err, controller.ErrResent))
		})
	}
}

// The client sends the options of patches and deletions to the server. If the client dropped DryRun, a dry run
// would change or delete the child.
func TestOptionsReachTheServer(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{}, blue(1), orphan("stray"))
	c, err := controllerruntime.NewClient(f.client, f.live, plainPools())
	require.NoError(t, err)
	all := []string{metav1.DryRunAll}
	patch := selector.Patch{Type: types.MergePatchType, Data: []byte(`{"metadata":{"labels":{"patched":"yes"}}}`)}
	_, err = c.Patch(t.Context(), orphan("stray"), patch, metav1.PatchOptions{DryRun: all})
	require.NoError(t, err)
	err = c.Delete(t.Context(), orphan("stray"), metav1.DeleteOptions{DryRun: all})
	require.NoError(t, err)
	stored, err := c.Get(t.Context(), "default", "stray")
	require.NoError(t, err)
	assert.Empty(t, stored.Labels["patched"])
}

// A patch of a subresource goes to the subresource, with the same options, and the answer is the whole child.
func TestAPatchGoesToItsSubresource(t *testing.T) {
	t.Parallel()
	f, s := clusterOver(t, func(string, string, map[string]any) (int, any) {
		w := orphan("stray")
		w.Generation = 2
		return http.StatusOK, w
	})
	c, err := controllerruntime.NewClient(f.client, f.live, plainPools())
	require.NoError(t, err)
	opts := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "pools"}
	for _, subresource := range []string{"", "resize", "status"} {
		patched, err := c.Patch(t.Context(), orphan("stray"), selector.Patch{Type: types.MergePatchType, Data: []byte("{}"), Subresource: subresource}, opts)
		require.NoError(t, err)
		assert.EqualValues(t, 2, patched.Generation)
	}
	const path, query = "PATCH /apis/example.com/v1/namespaces/default/workers/stray", "?dryRun=All&fieldManager=pools {}"
	assert.Equal(t, []string{path + query, path + "/resize" + query, path + "/status" + query}, s.requests)
}

// A deletion reaches the client with all options of the Spec, also those that client.DeleteOptions has no field for.
func TestDeleteOptionsReachTheServer(t *testing.T) {
	t.Parallel()
	var sent *metav1.DeleteOptions
	f := newFakeCluster(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
			sent = (&client.DeleteOptions{}).ApplyOptions(opts).AsDeleteOptions()
			return nil
		},
	}, blue(1), orphan("stray"))
	c, err := controllerruntime.NewClient(f.client, f.live, pools())
	require.NoError(t, err)
	yes, seconds, uid := true, int64(7), types.UID("uid")
	opts := metav1.DeleteOptions{OrphanDependents: &yes, GracePeriodSeconds: &seconds, Preconditions: &metav1.Preconditions{UID: &uid}} //nolint:staticcheck // servers still accept OrphanDependents
	require.NoError(t, c.Delete(t.Context(), orphan("stray"), opts))
	assert.Equal(t, opts, *sent)
}

func TestNewClientRefuses(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{})
	_, err := controllerruntime.NewClient(nil, f.live, plainPools())
	require.EqualError(t, err, "controllerruntime: client is nil")
	_, err = controllerruntime.NewClient(f.client, nil, plainPools())
	require.EqualError(t, err, "controllerruntime: reader is nil")
	strange := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	_, err = controllerruntime.NewClient(strange, strange, plainPools())
	require.ErrorContains(t, err, "controllerruntime: the scheme does not know example.com/v1, Kind=Worker")
}

// To read the server's current resourceVersion, the client lists at most one object.
func TestServerVersions(t *testing.T) {
	t.Parallel()
	f, s := clusterOver(t, func(_, path string, _ map[string]any) (int, any) {
		kind, version := "WorkerList", "7"
		if strings.Contains(path, "/workerpools") {
			kind, version = "WorkerPoolList", "8"
		}
		return http.StatusOK, map[string]any{"apiVersion": "example.com/v1", "kind": kind, "metadata": map[string]any{"resourceVersion": version, "continue": "more"}}
	})
	calls, err := controllerruntime.NewClient(f.client, f.live, plainPools())
	require.NoError(t, err)
	versioner, ok := calls.(controller.Versioner)
	require.True(t, ok)
	version, err := versioner.ServerChildrenVersion(t.Context(), "default")
	require.NoError(t, err)
	assert.Equal(t, "7", version)
	version, err = versioner.ServerOwnersVersion(t.Context(), "default")
	require.NoError(t, err)
	assert.Equal(t, "8", version)
	require.Len(t, s.requests, 2)
	assert.Contains(t, s.requests[0], "GET /apis/example.com/v1/namespaces/default/workers?limit=1")
	assert.Contains(t, s.requests[1], "GET /apis/example.com/v1/namespaces/default/workerpools?limit=1")
}
