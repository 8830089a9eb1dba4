// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
	"github.com/replicakit/replicakit/internal/follow"
)

// A hangingProxy forwards requests to an API server. When hang is called, all open watches stop sending events,
// but do not end.
type hangingProxy struct {
	*httptest.Server
	mu   sync.Mutex
	hung chan struct{} // when hang closes this channel, all open watches hang
}

func newHangingProxy(t *testing.T, cluster *controlplane.ControlPlane) *hangingProxy {
	t.Helper()
	p := &hangingProxy{hung: make(chan struct{})}
	p.Server = newProxy(t, cluster.Config, func(answer *http.Response) error {
		if answer.Request.URL.Query().Has("watch") {
			p.mu.Lock()
			defer p.mu.Unlock()
			answer.Body = hangingBody{answer.Body, answer.Request.Context(), p.hung}
		}
		return nil
	})
	return p
}

// newProxy starts a proxy that sends requests with the rights of config, and calls the function modify with each
// answer.
func newProxy(t *testing.T, config *rest.Config, modify func(*http.Response) error) *httptest.Server {
	t.Helper()
	server, err := url.Parse(config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Header.Del("Authorization")
		},
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: modify,
	})
	t.Cleanup(proxy.CloseClientConnections)
	return proxy
}

func (p *hangingProxy) hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.hung)
	p.hung = make(chan struct{})
}

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

// If a watch hangs while its objects change, the manager lists these objects again. The manager lists them without
// a restart, even if it does not hold the lease. The test sets short times, so that the list comes after seconds
// instead of minutes.
func TestAWatchThatHangsIsListedAnew(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	const namespace = "relist"
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	proxy := newHangingProxy(t, cluster)
	opts, err := parse([]string{"--kubeconfig=" + kubeconfigFor(t, proxy.URL), "--namespace=" + namespace}, io.Discard)
	require.NoError(t, err)
	config, err := loadConfig(opts)
	require.NoError(t, err)
	m := newManager(opts, config)
	m.controllers = controllers()
	w := &worker{manager: m, others: newOthers(m)}
	clients, err := w.clients()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(follow.WithTimes(t.Context(), follow.Times{
		Look: 200 * time.Millisecond, Ask: 200 * time.Millisecond, Relist: 3 * time.Second, Stale: 4 * time.Second,
	}))
	cell, err := w.newCell(ctx, namespace, clients)
	require.NoError(t, err)
	admitted := map[string]chan struct{}{}
	for _, c := range controllers() {
		admitted[c.name] = make(chan struct{})
		close(admitted[c.name])
	}
	var running sync.WaitGroup
	running.Go(func() { cell.run(ctx, admitted) })
	defer running.Wait()
	defer cancel()

	sets := client.AppsV1().ReplicaSets(namespace)
	_, err = sets.Create(t.Context(), newReplicaSet("web", 2), metav1.CreateOptions{})
	require.NoError(t, err)
	has := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			rs, err := sets.Get(t.Context(), "web", metav1.GetOptions{})
			return err == nil && int(rs.Status.Replicas) == n
		}, patience, 50*time.Millisecond, "%d pods", n)
	}
	has(2)
	for n := range 3 { // in each round, all watches hang that are open at the time
		proxy.hang()
		_, err = sets.Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"spec":{"replicas":`+string(rune('3'+n))+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		has(3 + n)
	}
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, pods.Items, 5)

	hung := func() (hung float64) {
		t.Helper()
		families, err := m.registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				if f.GetName() == "replicakit_watch_relists_total" {
					hung += metric.GetCounter().GetValue()
				}
			}
		}
		return hung
	}
	require.Eventually(t, func() bool { return hung() >= 3 }, patience, 50*time.Millisecond, "it is counted")
	last, since := hung(), time.Now()
	require.Eventually(t, func() bool {
		if now := hung(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 10*time.Second
	}, patience, 100*time.Millisecond, "lists of what does not change show nothing that was missed")
}
