// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package readyourwrites_test compares two controllers under the same failures of a simulated API server. The
// first controller is the usual loop of list, compare, and create or delete. The loop uses controller-runtime's
// read-your-writes client. The second controller is replicakit's adapter. A table in docs/why.md shows the results
// of both controllers.
package readyourwrites_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

const (
	namespace = "default"
	patience  = time.Minute
	tick      = 10 * time.Millisecond
)

// A story is a sequence of failures while the controller serves the ReplicaSet default/a. In each story except the
// first, the watch still hangs at the end.
type story struct {
	row     string
	wanted  int
	theirs  int // how many pods the owner has at the end, with the loop
	comment string
	ours    string // the text after the number of pods in the column "with replicakit" of docs/why.md
	tell    func(w *world)
}

var stories = []story{
	{"the watch is a second late", 3, 3, "", "", func(w *world) {
		w.scale("a", 3)
		w.hold()
		time.AfterFunc(time.Second, w.goOn)
		w.work(w.first, "a")
		w.work(w.first, "a")
	}},
	{"the watch hangs, and the answer to a creation is lost", 1, 2, "", "", func(w *world) {
		w.scale("a", 1)
		w.hold()
		w.loseOne()
		w.work(w.first, "a")
	}},
	{"the watch hangs, and the answer to a deletion is lost", 2, 1, "; a living pod was deleted", "", func(w *world) {
		w.settle("a", 3)
		w.scale("a", 2)
		w.hold()
		w.loseOne()
		w.work(w.first, "a")
	}},
	{"the watch hangs, and another owner has created a pod before", 1, 0, ": every list fails", "", func(w *world) {
		w.scale("a", 1)
		w.scale("b", 1)
		w.hold()
		w.work(w.first, "b")
		w.work(w.first, "a")
	}},
	{"etcd is restored from a backup, then the watch hangs", 3, 4, ": the option stops working, silently", "; the program exits, and is restarted", func(w *world) {
		w.settle("a", 2)
		before := w.seen(w.first, "a")
		w.restore()
		require.Eventually(w, func() bool { return w.seen(w.first, "a") < before }, patience, tick)
		w.scale("a", 3)
		w.hold()
		w.work(w.first, "a")
		w.work(w.first, "a")
	}},
	{"a standby takes over, and its watch hangs", 3, 6, "", "", func(w *world) {
		standby := w.start()
		w.scale("a", 3)
		w.hold()
		w.work(w.first, "a")
		w.work(standby, "a")
	}},
}

// After each story, the loop has as many pods as the table in docs/why.md says. The adapter has the wanted number
// of pods. After the watch goes on, the adapter still keeps the wanted number.
func TestBadMinutes(t *testing.T) {
	t.Parallel()
	ctrl.SetLogger(logr.Discard())
	page, err := os.ReadFile("../../../docs/why.md")
	require.NoError(t, err)
	for _, s := range stories {
		t.Run(s.row, func(t *testing.T) {
			t.Parallel()
			row := fmt.Sprintf("| %s | %d | %d%s | %d%s |", s.row, s.wanted, s.theirs, s.comment, s.wanted, s.ours)
			assert.Contains(t, string(page), "\n"+row+"\n", "put this row into docs/why.md")
			t.Run("loop", func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, newLoop)
				s.tell(w)
				assert.Equal(t, s.theirs, w.pods("a"))
			})
			t.Run("adapter", func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, newAdapter)
				s.tell(w)
				assert.Equal(t, s.wanted, w.pods("a"))
				w.goOn()
				w.settle("a", s.wanted)
				assert.Equal(t, s.wanted, w.pods("a"))
			})
		})
	}
	assert.Len(t, stories, strings.Count(string(page), "\n| ")-1, "take rows that no story has out of docs/why.md")
}

// A process is a controller with its own cache. The function pass makes one pass, which brings an owner to the
// wanted number of pods.
type process struct {
	cache cache.Cache
	pass  func(ctx context.Context, owner client.ObjectKey, wanted int) (again time.Duration, err error)
}

// newLoop returns a process with the usual loop. Each pass lists the pods, compares their number with the wanted
// number, and creates or deletes the difference.
func newLoop(t *testing.T, from cluster.Cluster) process {
	t.Helper()
	c := from.GetClient()
	return process{from.GetCache(), func(ctx context.Context, owner client.ObjectKey, wanted int) (again time.Duration, err error) {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"owner": owner.Name}); err != nil {
			return 0, err
		}
		for range wanted - len(pods.Items) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: owner.Name + "-", Namespace: namespace, Labels: map[string]string{"owner": owner.Name}}}
			if err := c.Create(ctx, pod); err != nil {
				return 0, err
			}
		}
		for i := range len(pods.Items) - wanted { // the cache lists pods in no particular order
			if err := c.Delete(ctx, &pods.Items[i]); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}}
}

// newAdapter returns a process with replicakit's Reconciler for ReplicaSets.
func newAdapter(t *testing.T, from cluster.Cluster) process {
	t.Helper()
	opts := controllerruntime.Options{Name: fmt.Sprint(t.Name(), time.Now().UnixNano())}
	opts.Controller.Events = noEvents{}
	r, err := controllerruntime.New(from, controller.ReplicaSets(), opts)
	require.NoError(t, err)
	return process{from.GetCache(), func(ctx context.Context, owner client.ObjectKey, _ int) (again time.Duration, err error) {
		result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: owner})
		return result.RequeueAfter, err
	}}
}

type noEvents struct{}

func (noEvents) Event(metav1.Object, string, string, string) {}

// A world is a server with the owners a and b, and a process that serves them.
type world struct {
	*testing.T
	*server

	start func() process
	first process
}

func newWorld(t *testing.T, newProcess func(*testing.T, cluster.Cluster) process) *world {
	t.Helper()
	s, config := serve(t)
	w := &world{T: t, server: s, start: func() process { return newProcess(t, newCluster(t, config, true)) }}
	w.first = w.start()
	return w
}

// serve starts a server that has the owners a and b.
func serve(t *testing.T) (*server, *rest.Config) {
	t.Helper()
	s := newServer()
	served := httptest.NewServer(s)
	t.Cleanup(func() {
		served.CloseClientConnections()
		served.Close()
	})
	config := &rest.Config{Host: served.URL, QPS: 1000, Burst: 1000, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON}}
	direct, err := client.New(config, client.Options{Scheme: newScheme(t), Mapper: newMapper()})
	require.NoError(t, err)
	for _, owner := range []string{"a", "b"} {
		set := map[string]string{"owner": owner}
		require.NoError(t, direct.Create(t.Context(), &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: owner},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: set},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: set}},
			},
		}))
	}
	return s, config
}

// newCluster returns a started cluster of controller-runtime. Its caches are already filled.
func newCluster(t *testing.T, config *rest.Config, readYourWrites bool) cluster.Cluster {
	t.Helper()
	c, err := cluster.New(config, func(o *cluster.Options) {
		o.Scheme, o.Logger = newScheme(t), logr.Discard()
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(), nil }
		o.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: &readYourWrites}
	})
	require.NoError(t, err)
	for _, kind := range []client.Object{&corev1.Pod{}, &appsv1.ReplicaSet{}} {
		_, err := c.GetCache().GetInformer(t.Context(), kind, cache.BlockUntilSynced(false))
		require.NoError(t, err)
	}
	go func() { _ = c.Start(t.Context()) }()
	require.True(t, c.GetCache().WaitForCacheSync(t.Context()))
	return c
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)))
	return scheme
}

func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return mapper
}

// scale sets how many pods an owner wants.
func (w *world) scale(owner string, wanted int) {
	w.change(func() {
		rs := w.objects["replicasets"][owner].DeepCopy()
		require.NoError(w, unstructured.SetNestedField(rs.Object, int64(wanted), "spec", "replicas"))
		rs.SetGeneration(rs.GetGeneration() + 1)
		w.store("MODIFIED", "replicasets", rs)
	})
}

// settle scales an owner and makes passes. When the cache shows the wanted number of pods, settle makes passes
// again, until nothing is left to do.
func (w *world) settle(owner string, wanted int) {
	w.Helper()
	w.scale(owner, wanted)
	w.work(w.first, owner)
	require.Eventually(w, func() bool {
		pods := w.cached(w.first, owner)
		return len(pods) == wanted
	}, patience, tick)
	w.work(w.first, owner)
}

// work makes passes for an owner, as a work queue would. It makes another pass after an error, or if a pass asks
// for another pass within five seconds. It gives up after five seconds.
func (w *world) work(p process, owner string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
	defer cancel()
	key, wanted := client.ObjectKey{Namespace: namespace, Name: owner}, w.wanted(owner)
	require.Eventually(w, func() bool {
		var rs appsv1.ReplicaSet
		return p.cache.Get(ctx, key, &rs) == nil && int(*rs.Spec.Replicas) == wanted
	}, patience, tick)
	for {
		again, err := p.pass(ctx, key, wanted)
		if errors.Is(err, controller.ErrRestored) { // a real program ends with this error and is started again
			w.first = w.start()
			p = w.first
		}
		if err == nil && (again == 0 || again > 5*time.Second) || ctx.Err() != nil {
			return
		}
		select {
		case <-time.After(min(max(again, tick), time.Second)):
		case <-ctx.Done():
		}
	}
}

// cached returns the pods of an owner in the cache of a process.
func (w *world) cached(p process, owner string) []corev1.Pod {
	w.Helper()
	var list corev1.PodList
	require.NoError(w, p.cache.List(w.Context(), &list, client.MatchingLabels{"owner": owner}))
	return list.Items
}

// seen returns the newest version among the pods of an owner in the cache of a process.
func (w *world) seen(p process, owner string) (newest int) {
	w.Helper()
	for _, pod := range w.cached(p, owner) {
		version, err := strconv.Atoi(pod.ResourceVersion)
		require.NoError(w, err)
		newest = max(newest, version)
	}
	return newest
}
