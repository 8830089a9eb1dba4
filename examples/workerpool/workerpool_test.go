// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/replicakit/replicakit/examples/workerpool/api/v1"
	"github.com/replicakit/replicakit/internal/follow"
)

func TestUpAndDown(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	n := w.count()
	w.operate(0, config)
	w.work()
	w.create(w.pool(5))
	w.settled(5)
	for _, replicas := range []int{8, 2, 0, 3} {
		w.scale(replicas)
		w.settled(replicas)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		s := w.get().Status
		assert.Equal(c, int32(3), s.ReadyReplicas)
		assert.Equal(c, int32(3), s.UpdatedReplicas)
		assert.True(c, meta.IsStatusConditionTrue(s.Conditions, "Available"))
	}, patience, tick)
	most, _ := n.extremes()
	assert.Equal(t, 8, most)
}

func TestKubectlScale(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	w.operate(0, config)
	w.create(w.pool(1))
	w.settled(1)
	out, err := exec.CommandContext(t.Context(), filepath.Join(binaries(), "kubectl"), "--kubeconfig", kubeconfig(t, config),
		"--namespace", w.namespace, "scale", "workerpool/web", "--replicas=4", "--current-replicas=1").CombinedOutput()
	require.NoError(t, err, string(out))
	w.settled(4)
	assert.Equal(t, "app=web", w.get().Status.Selector)
}

// kubeconfig writes a kubeconfig file for kubectl, and returns its path.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}

func TestAdoptionAndRelease(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	pool := w.pool(3)
	stray := &v1.Worker{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "stray", Labels: map[string]string{"app": "web", revisionLabel: revision(pool)}},
		Spec:       pool.Spec.Template.Spec,
	}
	w.create(stray)
	w.operate(0, config)
	w.create(pool)
	w.settled(3)
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(stray), stray))
	assert.True(t, metav1.IsControlledBy(stray, pool), "adopted")

	stray.Labels["app"] = "other"
	require.NoError(t, w.client.Update(t.Context(), stray))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Len(c, w.workers(), 4, "one was created in its stead")
		require.NoError(c, w.client.Get(t.Context(), client.ObjectKeyFromObject(stray), stray))
		assert.Nil(c, metav1.GetControllerOf(stray), "released")
	}, patience, tick)
}

// If the template changes, all Workers are replaced. At most maxUnavailable Workers are unavailable at any moment.
func TestNewTemplate(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	n := w.count()
	w.operate(0, config)
	w.work()
	pool := w.pool(6)
	pool.Spec.MaxUnavailable = 2
	w.create(pool)
	w.updated(6)
	n.since()
	w.patch(`{"template":{"spec":{"image":"two"}}}`)
	w.updated(6)
	most, fewest := n.extremes()
	assert.Equal(t, 4, fewest, "6 replicas, of which 2 may be unavailable")
	assert.Equal(t, 6, most)
	for _, worker := range w.workers() {
		assert.Equal(t, "two", worker.Spec.Image)
	}
}

// While a hundred Workers are replaced, at least eighty Workers are ready at each moment.
func TestARolloutOfAHundred(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	n := w.count()
	w.operate(0, config)
	w.work()
	pool := w.pool(100)
	pool.Spec.MaxUnavailable = 20
	w.create(pool)
	w.updated(100)
	n.since()
	w.patch(`{"template":{"spec":{"image":"two"}}}`)
	w.updated(100)
	most, fewest := n.extremes()
	assert.GreaterOrEqual(t, fewest, 80)
	assert.LessOrEqual(t, most, 100)
}

// If a new template does not work, only maxUnavailable Workers become unavailable. The next working template
// repairs the pool.
func TestBrokenTemplate(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	n := w.count()
	w.operate(0, config)
	w.work()
	pool := w.pool(5)
	pool.Spec.MaxUnavailable = 2
	w.create(pool)
	w.updated(5)
	n.since()
	w.patch(`{"template":{"spec":{"image":"broken"}}}`)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, int32(2), w.get().Status.UpdatedReplicas)
		assert.Equal(c, int32(3), w.get().Status.ReadyReplicas)
	}, patience, tick)
	w.patch(`{"template":{"spec":{"image":"mended"}}}`)
	w.updated(5)
	_, fewest := n.extremes()
	assert.Equal(t, 3, fewest)
}

// updated waits until the status shows that all Workers are ready and have the current template.
func (w world) updated(want int) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		pool := w.get()
		assert.Equal(c, pool.Generation, pool.Status.ObservedGeneration)
		assert.Equal(c, int32(want), pool.Status.UpdatedReplicas)
		assert.Equal(c, int32(want), pool.Status.ReadyReplicas)
		assert.Equal(c, int32(want), pool.Status.Replicas)
	}, patience, tick)
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	n := w.count()
	stop := w.operate(0, config)
	w.create(w.pool(100))
	require.Eventually(t, func() bool { return len(w.workers()) >= 10 }, patience, time.Millisecond)
	stop()
	w.operate(0, config)
	w.settled(100)
	most, _ := n.extremes()
	assert.Equal(t, 100, most, "never one too many")
}

// If every third answer to a creation or deletion is lost, the number of Workers still never exceeds the wanted
// number.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	n := w.count()
	lossy := rest.CopyConfig(config)
	var calls, lost atomic.Int64
	lossy.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || !strings.Contains(req.URL.Path, "/workers") || req.Method != http.MethodPost && req.Method != http.MethodDelete || calls.Add(1)%3 != 0 {
				return resp, err
			}
			lost.Add(1)
			return nil, errors.Join(errors.New("connection lost"), resp.Body.Close())
		})
	})
	w.operate(0, lossy)
	w.create(w.pool(60))
	w.settled(60)
	most, _ := n.extremes()
	assert.Equal(t, 60, most, "never one too many")
	w.scale(20)
	w.settled(20)
	assert.Greater(t, lost.Load(), int64(20))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// If the watch of Workers hangs, it sends no events and does not end. The expectations then expire, and the
// operator lists the Workers from the API server.
func TestAWatchThatHangs(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	n := w.count()
	var hangs atomic.Bool
	hanging := rest.CopyConfig(config)
	hanging.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && strings.HasSuffix(req.URL.Path, "/workers") && req.URL.Query().Get("watch") != "" {
				resp.Body = &hangingBody{resp.Body, req, &hangs}
			}
			return resp, err
		})
	})
	w.operate(time.Second, hanging)
	w.create(w.pool(5))
	w.settled(5)
	hangs.Store(true)
	for _, replicas := range []int{10, 4, 7} {
		w.scale(replicas)
		require.Eventually(t, func() bool { return len(w.workers()) == replicas }, patience, tick)
	}
	time.Sleep(3 * time.Second) // several times as long as the expectations' timeout
	assert.Len(t, w.workers(), 7, "nobody is created or deleted on the old view")
	most, _ := n.extremes()
	assert.Equal(t, 10, most)
}

// If all watches of pools and Workers hang, including new ones, the operator still notices changes. The objects in
// the operator's caches are listed again at regular intervals. With the short times of this test, the operator
// notices changes after seconds instead of minutes. If lists follow each other too soon, an informer waits longer
// and longer between them. If WORKERPOOL_TIMES=real is set, the test uses the times of a real operator.
func TestAllWatchesHang(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	w.work()
	var hangs atomic.Bool
	hanging := rest.CopyConfig(config)
	hanging.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && strings.Contains(req.URL.Path, w.namespace) && req.URL.Query().Get("watch") != "" {
				resp.Body = &hangingBody{resp.Body, req, &hangs}
			}
			return resp, err
		})
	})
	const within = 4 * time.Minute
	if os.Getenv("WORKERPOOL_TIMES") != "real" {
		w.ctx = follow.WithTimes(context.Background(), follow.Times{Look: 200 * time.Millisecond, Ask: 200 * time.Millisecond, Relist: 4 * time.Second, Stale: 6 * time.Second})
	}
	w.operate(0, hanging)
	w.create(w.pool(5))
	w.settled(5)
	hangs.Store(true)
	began := time.Now()
	w.scale(8)
	require.Eventually(t, func() bool { return len(w.workers()) == 8 }, within, tick)
	t.Logf("the pool was scaled after %v", time.Since(began).Round(time.Second))
	began = time.Now()
	victim := w.workers()[0]
	require.NoError(t, w.client.Delete(t.Context(), &victim))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.EqualValues(c, 8, w.get().Status.ReadyReplicas)
		workers := w.workers()
		assert.Len(c, workers, 8)
		for _, worker := range workers {
			assert.NotEqual(c, victim.UID, worker.UID)
		}
	}, 2*within, tick)
	t.Logf("the Worker was replaced, and the status said so, after %v", time.Since(began).Round(time.Second))
}

type hangingBody struct {
	io.ReadCloser
	req   *http.Request
	hangs *atomic.Bool
}

func (b *hangingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.hangs.Load() {
		<-b.req.Context().Done()
		return 0, b.req.Context().Err()
	}
	return n, err
}

func TestAThousandWorkers(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	n := w.count()
	w.operate(0, config)
	w.create(w.pool(1000))
	w.settled(1000)
	w.scale(0)
	w.settled(0)
	most, _ := n.extremes()
	assert.Equal(t, 1000, most)
}

// If owners in two clusters have the same name, one operator handles them independently of each other.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	config := server(t)
	env := newServer()
	t.Cleanup(func() { _ = env.Stop() })
	other, err := env.Start()
	require.NoError(t, err)
	here, there := newWorld(t, config), newWorld(t, other)
	there.namespace = here.namespace
	there.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: here.namespace}})
	here.operate(0, config, other)
	here.create(here.pool(3))
	there.create(there.pool(5))
	here.settled(3)
	there.settled(5)
	here.scale(1)
	there.scale(0)
	here.settled(1)
	there.settled(0)
}
