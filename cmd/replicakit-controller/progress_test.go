// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// A watchedServer is one whose version a test sets, as it does that of the watch.
type watchedServer struct {
	cached, live  atomic.Int64
	down, strange atomic.Bool
	relists       atomic.Int64
}

// follower follows until the test ends, from an instant when both are at 100.
func (s *watchedServer) follower(t *testing.T) *follower {
	t.Helper()
	s.cached.Store(100)
	s.live.Store(100)
	f := &follower{
		resource: "pods",
		relist:   func() { s.relists.Add(1) },
		every:    askInterval,
		patience: staleAfter,
		cached: func() string {
			if s.cached.Load() == 0 {
				return ""
			}
			return strconv.FormatInt(s.cached.Load(), 10)
		},
		live: func(context.Context) (string, error) {
			if s.down.Load() {
				return "", errors.New("no connection")
			}
			if s.strange.Load() {
				return "x", nil
			}
			return strconv.FormatInt(s.live.Load(), 10), nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go f.follow(ctx)
	synctest.Wait()
	return f
}

// age returns for how long the watch is behind, which is nothing to complain of.
func age(t *testing.T, f *follower) time.Duration {
	t.Helper()
	age, restored, wrong := f.behind()
	require.NoError(t, wrong)
	assert.False(t, restored)
	return age
}

func TestFollower(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]func(t *testing.T, s *watchedServer, f *follower){
		"a watch that nothing is told of as nothing changes": func(t *testing.T, _ *watchedServer, f *follower) {
			t.Helper()
			time.Sleep(time.Hour + 5*time.Second)
			assert.Equal(t, 5*time.Second, age(t, f))
		},
		"a watch that is told by a bookmark a minute": func(t *testing.T, s *watchedServer, f *follower) {
			t.Helper()
			for range 60 {
				s.live.Add(7)
				time.Sleep(time.Minute)
				assert.LessOrEqual(t, age(t, f), 90*time.Second)
				s.cached.Store(s.live.Load())
			}
		},
		"a watch that hangs is told after three minutes, and when it goes on": func(t *testing.T, s *watchedServer, f *follower) {
			t.Helper()
			time.Sleep(time.Second)
			s.live.Add(1)
			time.Sleep(staleAfter - time.Second)
			assert.Equal(t, staleAfter, age(t, f))
			time.Sleep(time.Second)
			_, restored, wrong := f.behind()
			assert.False(t, restored)
			require.EqualError(t, wrong, "pods: the watch is 3m1s behind the server")
			time.Sleep(askInterval)
			synctest.Wait()
			assert.Equal(t, int64(1), s.relists.Load(), "it is listed anew within four minutes")
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.True(t, f.told)
			assert.Equal(t, int64(1+time.Hour/staleAfter), s.relists.Load(), "and again if that does not help")
			assert.LessOrEqual(t, len(f.asked), mostAsked)
			s.cached.Store(101)
			assert.Less(t, age(t, f), askInterval)
			time.Sleep(askInterval)
			synctest.Wait()
			assert.False(t, f.told)
		},
		"a server that does not answer": func(t *testing.T, s *watchedServer, f *follower) {
			t.Helper()
			s.down.Store(true)
			time.Sleep(staleAfter)
			assert.Equal(t, staleAfter, age(t, f))
			time.Sleep(time.Second)
			_, _, wrong := f.behind()
			require.EqualError(t, wrong, "pods: the watch is 3m1s behind, and the server does not say where it is: no connection")
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.Zero(t, s.relists.Load(), "who knows which of the two it is")
			s.down.Store(false)
			time.Sleep(askInterval)
			synctest.Wait()
			assert.Less(t, age(t, f), askInterval)
		},
		"a server that is restored is told at once, until it is listed again": func(t *testing.T, s *watchedServer, f *follower) {
			t.Helper()
			s.live.Store(60)
			time.Sleep(askInterval)
			synctest.Wait()
			told := func() {
				t.Helper()
				_, restored, wrong := f.behind()
				assert.True(t, restored)
				require.ErrorContains(t, wrong, "pods: the watch has come to version 100, and the server was at an older one")
			}
			told()
			s.live.Store(300)
			s.cached.Store(300) // what came in between 60 and 100 is missing
			time.Sleep(time.Hour)
			told()
			assert.Zero(t, s.relists.Load(), "that is for people to decide")
			s.cached.Store(90)
			s.live.Store(90)
			time.Sleep(askInterval)
			synctest.Wait()
			assert.Less(t, age(t, f), askInterval)
		},
		"versions that cannot be compared are no reason to complain": func(t *testing.T, s *watchedServer, f *follower) {
			t.Helper()
			s.strange.Store(true)
			time.Sleep(time.Hour + time.Second)
			assert.Equal(t, time.Second, age(t, f))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &watchedServer{}
				story(t, server, server.follower(t))
			})
		})
	}

	t.Run("nothing is known before the first list", func(t *testing.T) {
		t.Parallel()
		f := &follower{cached: func() string { return "" }}
		f.ask(t.Context())
		assert.Zero(t, age(t, f))
	})
}

// TestAWatchThatHangs has a real watch say nothing, and then go on.
func TestAWatchThatHangs(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	const namespace = "hang"
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	gate := newGate()
	config := rest.CopyConfig(cluster.Config)
	config.Wrap(gate.wrap)
	watching, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	asking, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(watching, 0, informers.WithNamespace(namespace))
	f := newFollower(corev1.SchemeGroupVersion.WithResource("pods"), namespace, asking, factory.Core().V1().Pods().Informer(), func() {})
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())

	change := func(name string) {
		t.Helper()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: newReplicaSet("", 0).Spec.Template.Spec}
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	comes := func() bool {
		_, _, _ = f.behind()
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.asked) == 0
	}
	change("one")
	f.ask(t.Context())
	change("two") // tells the watch that it has come so far
	require.Eventually(t, comes, patience, 10*time.Millisecond)

	gate.close()
	change("three")
	f.ask(t.Context())
	require.NoError(t, f.err, "lists are answered")
	assert.Never(t, comes, time.Second, 50*time.Millisecond)
	gate.open()
	require.Eventually(t, comes, patience, 10*time.Millisecond)
}

// A gate holds back what watches are told while it is closed.
type gate struct{ pass atomic.Pointer[chan struct{}] }

func newGate() *gate {
	g := &gate{}
	g.close()
	g.open()
	return g
}

func (g *gate) close() { g.pass.Store(new(make(chan struct{}))) }

func (g *gate) open() { close(*g.pass.Load()) }

func (g *gate) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil && req.URL.Query().Has("watch") {
			resp.Body = gatedBody{resp.Body, g}
		}
		return resp, err
	})
}

type gatedBody struct {
	io.ReadCloser
	gate *gate
}

func (b gatedBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	<-*b.gate.pass.Load()
	return n, err
}
