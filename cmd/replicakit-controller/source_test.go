// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/internal/shard"
)

// The two halves, in the wrong order.
const halves = "0x8000000000000000-0x10000000000000000,0x0-0x8000000000000000"

func upperHalf(t *testing.T) shard.Range {
	t.Helper()
	ranges, err := shard.Parse(halves)
	require.NoError(t, err)
	require.True(t, ranges[1].Contains("default"))
	return ranges[1]
}

// serviceProxy is the way to an API server inside of a cluster.
const serviceProxy = "/api/v1/namespaces/default/services/https:virtual:443/proxy"

// lowerNamespace is one that is not in the upper half.
const lowerNamespace = "web"

func TestFence(t *testing.T) {
	t.Parallel()
	ours := upperHalf(t)
	require.False(t, ours.Contains(lowerNamespace))
	for _, row := range []struct {
		name, method, base, path string
		passes                   bool
	}{
		{"a write in the range", http.MethodPost, "", "/api/v1/namespaces/default/pods", true},
		{"one of a group", http.MethodPut, "", "/apis/apps/v1/namespaces/default/replicasets/web/status", true},
		{"a write outside of the range", http.MethodPost, "", "/api/v1/namespaces/" + lowerNamespace + "/pods", false},
		{"a change outside of the range", http.MethodPut, "", "/apis/apps/v1/namespaces/" + lowerNamespace + "/replicasets/web/status", false},
		{"a patch outside of the range", http.MethodPatch, "", "/api/v1/namespaces/" + lowerNamespace + "/pods/p", false},
		{"a deletion outside of the range", http.MethodDelete, "", "/api/v1/namespaces/" + lowerNamespace + "/pods/p", false},
		{"an event outside of the range", http.MethodPost, "", "/apis/events.k8s.io/v1/namespaces/" + lowerNamespace + "/events", false},
		{"what is in no namespace", http.MethodPost, "", "/apis/example.com/v1/clusterthings", false},
		{"a namespace itself", http.MethodDelete, "", "/api/v1/namespaces/default", false},
		{"no API", http.MethodPost, "", "/default", false},
		{"no API, with a namespace", http.MethodPost, "", "/version/namespaces/default/pods", false},
		{"a read outside of the range", http.MethodGet, "", "/api/v1/namespaces/" + lowerNamespace + "/pods", true},
		{"behind a proxy with a path of its own", http.MethodDelete, "/clusters/namespaces/x", "/api/v1/namespaces/default/pods/p", true},
		{"a write outside of the range, behind the proxy of another cluster's service", http.MethodDelete, serviceProxy, "/api/v1/namespaces/" + lowerNamespace + "/pods/p", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			passed := false
			wrapped := fence{ours, row.base}.wrap(roundTripper(func(*http.Request) (*http.Response, error) {
				passed = true
				return nil, nil
			}))
			req, err := http.NewRequestWithContext(t.Context(), row.method, "http://server"+row.base+row.path, strings.NewReader("{}"))
			require.NoError(t, err)
			_, err = wrapped.RoundTrip(req) //nolint:bodyclose // there is no answer
			assert.Equal(t, row.passes, passed)
			if !row.passes {
				assert.ErrorContains(t, err, "is not in the range 0x8000000000000000-0x10000000000000000")
			}
		})
	}
}

// TestWritesOfAWorker sees that each write is one that drain waits for, and that no
// write is sent again below the controller.
func TestWritesOfAWorker(t *testing.T) {
	t.Parallel()
	w := &worker{}
	served := &recorder{then: func() {
		if assert.False(t, w.writes.underWay.TryLock(), "drain waits for it") {
			return
		}
		w.writes.underWay.Unlock()
	}}
	served.code.Store(http.StatusTooManyRequests)
	server := httptest.NewServer(served)
	t.Cleanup(server.Close)
	config, err := loadConfig(options{master: server.URL, qps: 1000, burst: 1000})
	require.NoError(t, err)
	w.manager = &manager{config: config}
	client, err := w.client("c")
	require.NoError(t, err)
	require.Error(t, client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	assert.EqualValues(t, 1, served.whole.Load())
}

// TestWorkerOfARange sees what reaches the server.
func TestWorkerOfARange(t *testing.T) {
	t.Parallel()
	served := &recorder{}
	server := httptest.NewServer(served)
	t.Cleanup(server.Close)
	config, err := loadConfig(options{master: server.URL + serviceProxy + "/", qps: 1000, burst: 1000})
	require.NoError(t, err)
	joint, _ := at(time.Now())
	own, _ := at(time.Now())
	w := &worker{manager: &manager{config: config}, permits: []*permit{joint, own}, shard: &part{0, upperHalf(t)}}
	client, err := w.client("c")
	require.NoError(t, err)
	for _, row := range []struct {
		name, namespace string
		joint, own      bool
		want            string // "": it arrives
	}{
		{"no lease", "default", false, false, "the lease is not held"},
		{"the joint lease alone", "default", true, false, "the lease is not held"},
		{"the range's lease alone", "default", false, true, "the lease is not held"},
		{"both", "default", true, true, ""},
		{"both, in another range", lowerNamespace, true, true, `namespace "web" is not in the range`},
	} {
		for p, held := range map[*permit]bool{joint: row.joint, own: row.own} {
			p.revoke()
			if held {
				p.renew(p.now())
			}
		}
		before := served.whole.Load()
		_, err := client.CoreV1().Pods(row.namespace).Create(t.Context(), podIn(row.namespace), metav1.CreateOptions{})
		if row.want != "" {
			require.ErrorContains(t, err, row.want, row.name)
			assert.Equal(t, before, served.whole.Load(), row.name)
			continue
		}
		assert.Equal(t, before+1, served.whole.Load(), "%s: %v", row.name, err)
	}
}

func podIn(namespace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"}}
}

// A halfServer answers lists of a pod in each of two namespaces, and knows what it
// was asked for.
type halfServer struct {
	shards  bool // it has the feature gate
	refuses bool
	lists   []string // their shardSelectors
	watches []string
	watch   *watch.FakeWatcher
}

func (s *halfServer) source() source {
	return source{
		list: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			s.lists = append(s.lists, opts.ShardSelector)
			if s.refuses && opts.ShardSelector != "" {
				return nil, apierrors.NewBadRequest("no such option")
			}
			list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "more"}, Items: []corev1.Pod{*podIn("default"), *podIn(lowerNamespace)}}
			if s.shards && opts.ShardSelector != "" {
				list.Items = list.Items[:1]
				list.ShardInfo = &metav1.ShardInfo{Selector: opts.ShardSelector}
			}
			return list, nil
		},
		watch: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			s.watches = append(s.watches, opts.ShardSelector)
			return s.watch, nil
		},
	}
}

func TestPartialSource(t *testing.T) {
	t.Parallel()
	ours := upperHalf(t)
	selector := ours.Selector()
	for _, row := range []struct {
		name           string
		ask            bool
		server         halfServer
		lists, watches []string
	}{
		{"a server that is not asked", false, halfServer{shards: true}, []string{""}, []string{""}},
		{"one that leaves out what is not ours", true, halfServer{shards: true}, []string{selector}, []string{selector}},
		{"one that does not know the option", true, halfServer{}, []string{selector}, []string{""}},
		{"one that refuses the option", true, halfServer{refuses: true}, []string{selector, ""}, []string{""}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.server.watch = watch.NewFake()
			p := &partialSource{source: row.server.source(), Range: ours, ask: row.ask, logger: logr.Discard()}
			list, err := p.listOurs(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			pods, ok := list.(*corev1.PodList)
			require.True(t, ok)
			require.Len(t, pods.Items, 1)
			assert.Equal(t, "default", pods.Items[0].Namespace)
			assert.Equal(t, "5", pods.ResourceVersion)
			assert.Equal(t, "more", pods.Continue)
			_, err = p.watchOurs(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			assert.Equal(t, row.lists, row.server.lists)
			assert.Equal(t, row.watches, row.server.watches)
		})
	}
	t.Run("the next list may come from another server", func(t *testing.T) {
		t.Parallel()
		server := &halfServer{shards: true, watch: watch.NewFake()}
		p := &partialSource{source: server.source(), Range: ours, ask: true, logger: logr.Discard()}
		for _, server.shards = range []bool{true, false, true} {
			_, err := p.listOurs(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			_, err = p.watchOurs(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
		}
		assert.Equal(t, []string{selector, selector, selector}, server.lists)
		assert.Equal(t, []string{selector, "", selector}, server.watches)
	})
}

func TestPartialWatch(t *testing.T) {
	t.Parallel()
	ours := upperHalf(t)
	begin := func(t *testing.T) (server *watch.FakeWatcher, filtered watch.Interface) {
		t.Helper()
		server = watch.NewFake()
		p := &partialSource{source: (&halfServer{watch: server}).source(), Range: ours, logger: logr.Discard()}
		w, err := p.watchOurs(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return server, w
	}
	t.Run("events of other ranges are dropped, bookmarks and errors are not", func(t *testing.T) {
		t.Parallel()
		server, w := begin(t)
		sent := []watch.Event{
			{Type: watch.Added, Object: podIn("default")},
			{Type: watch.Added, Object: podIn(lowerNamespace)},
			{Type: watch.Modified, Object: podIn(lowerNamespace)},
			{Type: watch.Bookmark, Object: &corev1.Pod{}},
			{Type: watch.Deleted, Object: podIn(lowerNamespace)},
			{Type: watch.Deleted, Object: podIn("default")},
			{Type: watch.Added, Object: &corev1.Pod{}},
			{Type: watch.Error, Object: &metav1.Status{}},
		}
		go func() {
			for _, event := range sent {
				server.Action(event.Type, event.Object)
			}
			server.Stop()
		}()
		var got []watch.Event
		for event := range w.ResultChan() {
			got = append(got, event)
		}
		assert.Equal(t, []watch.Event{sent[0], sent[3], sent[5], sent[7]}, got)
	})
	t.Run("nothing is left of one that is stopped with an event under way", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			server, w := begin(t)
			server.Add(podIn("default"))
			synctest.Wait()
			w.Stop()
			w.Stop()
		}) // a goroutine that is left is a deadlock
	})
}
