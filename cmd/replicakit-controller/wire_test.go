// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// A wire forwards requests to an API server. The wire records the encodings of requests and answers.
type wire struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]encodings // by method and resource, such as "POST pods"
}

// encodings holds the media types of a request and of its answer. If the request has no body, its media type is
// empty.
type encodings struct{ request, answer string }

func newWire(t *testing.T, cluster *controlplane.ControlPlane) *wire {
	t.Helper()
	server, err := url.Parse(cluster.Config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(cluster.Config)
	require.NoError(t, err)
	w := &wire{calls: map[string]encodings{}}
	w.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Header.Del("Authorization") // the transport has the credentials of an administrator
		},
		Transport:      transport,
		FlushInterval:  -1, // each event of a watch is forwarded immediately
		ModifyResponse: w.note,
	})
	t.Cleanup(w.CloseClientConnections)
	return w
}

// note records successful calls for objects in a namespace. note skips discovery calls, because these always use
// JSON.
func (w *wire) note(answer *http.Response) error {
	_, path, ok := strings.Cut(answer.Request.URL.Path, "/namespaces/")
	if !ok || answer.StatusCode >= http.StatusBadRequest {
		return nil
	}
	parts := append(strings.Split(path, "/"), "", "", "")
	what := answer.Request.Method + " " + strings.TrimSuffix(parts[1]+"/"+parts[3], "/")
	if answer.Request.URL.Query().Has("watch") {
		what = "WATCH " + parts[1]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[what] = encodings{answer.Request.Header.Get("Content-Type"), answer.Header.Get("Content-Type")}
	return nil
}

func (w *wire) has(what ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(what, func(what string) bool { return w.calls[what] == encodings{} })
}

func TestEverythingIsAskedForAsProtobuf(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	const namespace, protobuf = "wire", "application/vnd.kubernetes.protobuf"
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	wire := newWire(t, cluster)
	p := start(t, "--kubeconfig="+kubeconfigFor(t, wire.URL), "--namespace="+namespace, "--leader-elect-resource-namespace="+namespace)

	set := newReplicaSet("web", 2)
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: set.Spec.Template.Labels}, Spec: set.Spec.Template.Spec}
	_, err = client.CoreV1().Pods(namespace).Create(t.Context(), orphan, metav1.CreateOptions{})
	require.NoError(t, err)
	sets := client.AppsV1().ReplicaSets(namespace)
	_, err = sets.Create(t.Context(), set, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return wire.has("PATCH pods", "POST pods", "PATCH replicasets/status") }, patience, 20*time.Millisecond)
	_, err = sets.Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return wire.has("DELETE pods", "POST events", "POST leases", "GET replicasets", "WATCH pods", "WATCH replicasets", "WATCH replicationcontrollers")
	}, patience, 20*time.Millisecond)
	p.stop()

	wire.mu.Lock()
	defer wire.mu.Unlock()
	for what, got := range wire.calls {
		assert.True(t, strings.HasPrefix(got.answer, protobuf), "the answer to %s is %s", what, got.answer)
		switch method, _, _ := strings.Cut(what, " "); method {
		case http.MethodPost, http.MethodPut, http.MethodDelete:
			assert.Equal(t, protobuf, got.request, what)
		case http.MethodPatch:
			assert.Contains(t, got.request, "-patch+json", what) // patches have no other encoding
		}
	}
}
