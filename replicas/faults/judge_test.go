// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/replicakit/replicakit/replicas/faults"
)

// A cluster is a server with ReplicaSets and pods for the judge.
type cluster struct {
	mu       sync.Mutex
	version  int
	objects  map[string]map[string]map[string]any // by resource and name
	events   map[string][]string
	versions map[string][]int
	changed  chan struct{} // closed and replaced by each change
	refuses  map[string]int
	broken   error
	hides    bool // watches show nothing
}

func newCluster() *cluster {
	return &cluster{
		objects: map[string]map[string]map[string]any{"replicasets": {}, "pods": {}}, events: map[string][]string{}, versions: map[string][]int{},
		changed: make(chan struct{}), refuses: map[string]int{},
	}
}

func (s *cluster) put(resource, name string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	kind := map[bool]string{true: "ADDED", false: "MODIFIED"}[s.objects[resource][name] == nil]
	if object == nil {
		kind, object = "DELETED", s.objects[resource][name]
		delete(s.objects[resource], name)
	} else {
		s.objects[resource][name] = object
	}
	metadata := object["metadata"].(map[string]any)
	metadata["resourceVersion"], metadata["name"], metadata["namespace"], metadata["uid"] = strconv.Itoa(s.version), name, "default", resource+name
	text, _ := json.Marshal(map[string]any{"type": kind, "object": object})
	s.events[resource] = append(s.events[resource], string(text)+"\n")
	s.versions[resource] = append(s.versions[resource], s.version)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *cluster) scale(n int) {
	s.put("replicasets", "web", map[string]any{"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": map[string]any{}, "spec": map[string]any{"replicas": n}})
}

func (s *cluster) create(names ...string) {
	for _, name := range names {
		s.put("pods", name, map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"ownerReferences": []any{map[string]any{"uid": "replicasetsweb"}}}})
	}
}

func (s *cluster) delete(names ...string) {
	for _, name := range names {
		s.put("pods", name, nil)
	}
}

func (s *cluster) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
	verb := map[bool]string{true: "watch ", false: "list "}[req.URL.Query().Get("watch") != ""]
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req}
	switch code := s.refuses[verb+resource]; {
	case s.broken != nil:
		return nil, s.broken
	case code != 0:
		resp.StatusCode, resp.Status = code, http.StatusText(code)
		resp.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","message":"you may not"}`))
	case verb == "list ":
		items, _ := json.Marshal(slices.Collect(maps.Values(s.objects[resource])))
		if len(s.objects[resource]) == 0 {
			items = []byte("[]")
		}
		resp.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":%s}`, s.version, items)))
	default:
		from := 0
		_, _ = fmt.Sscan(req.URL.Query().Get("resourceVersion"), &from)
		r, w := io.Pipe()
		resp.Body = r
		context.AfterFunc(req.Context(), func() { _ = w.CloseWithError(req.Context().Err()) })
		go s.watch(req.Context(), resource, from, w)
	}
	return resp, nil
}

func (s *cluster) watch(ctx context.Context, resource string, from int, w *io.PipeWriter) {
	for at := 0; ; {
		s.mu.Lock()
		events, versions, changed := s.events[resource], s.versions[resource], s.changed
		if s.hides {
			events = nil
		}
		s.mu.Unlock()
		for ; at < len(events); at++ {
			if versions[at] > from {
				_, _ = io.WriteString(w, events[at])
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func judgeOf(s *cluster) *faults.Judge {
	return &faults.Judge{
		Client: &http.Client{Transport: s}, Server: "server:6443", Namespace: "default", Faults: &faults.Faults{},
		Owner: appsv1.SchemeGroupVersion.WithResource("replicasets"), Child: corev1.SchemeGroupVersion.WithResource("pods"),
		SettlesWithin: 10 * time.Second,
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for does, tc := range map[string]struct {
		change func(*faults.Judge)
		before func(*cluster)
		act    func(*cluster)
		want   []string
	}{
		"a number that is reached": {act: func(s *cluster) { s.scale(2); s.create("a", "b") }},
		"one too many": {
			act:  func(s *cluster) { s.scale(2); s.create("a", "b", "c"); s.delete("c") },
			want: []string{"more than 2: default/web has 3 of 2 by c"},
		},
		"one too many, and another when it is gone": {
			act:  func(s *cluster) { s.scale(1); s.create("a", "b"); s.delete("b"); s.create("c"); s.delete("c") },
			want: []string{"more than 1: default/web has 2 of 1 by b", "more than 1: default/web has 2 of 1 by c"},
		},
		"a surge that is allowed": {
			change: func(j *faults.Judge) { j.MaxSurge = 1 },
			act:    func(s *cluster) { s.scale(2); s.create("a", "b", "c"); s.delete("c") },
		},
		"one too few": {
			act:  func(s *cluster) { s.scale(2); s.create("a", "b"); s.delete("b"); s.create("c") },
			want: []string{"fewer than 2: default/web has 1 of 2 by b"},
		},
		"one too few that is allowed": {
			change: func(j *faults.Judge) { j.MaxUnavailable = 1 },
			act:    func(s *cluster) { s.scale(2); s.create("a", "b"); s.delete("b"); s.create("c") },
		},
		"on the way to another number, all between are right": {
			act: func(s *cluster) {
				s.scale(3)
				s.create("a", "b", "c")
				s.scale(1)
				s.delete("a", "b")
				s.scale(2)
				s.create("d")
			},
		},
		"past the new number": {
			act:  func(s *cluster) { s.scale(3); s.create("a", "b", "c"); s.scale(2); s.delete("a", "b"); s.create("d") },
			want: []string{"fewer than 2: default/web has 1 of 2 by b"},
		},
		"a number that is never reached": {
			act:  func(s *cluster) { s.scale(2); s.create("a") },
			want: []string{"not settled within 10s: default/web has 1 of 2 by "},
		},
		"what was there before is not judged": {
			before: func(s *cluster) { s.create("a", "b", "c"); s.scale(1) },
			act:    func(s *cluster) { s.delete("a", "b") },
		},
		"pods of other owners do not count": {
			change: func(j *faults.Judge) {
				j.Owns = func(_, child *unstructured.Unstructured) bool { return child.GetName() != "x" }
			},
			act: func(s *cluster) { s.scale(1); s.create("a", "x") },
		},
		"pods that have ended do not count": {
			act: func(s *cluster) {
				s.scale(1)
				s.create("a")
				s.put("pods", "done", map[string]any{
					"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"ownerReferences": []any{map[string]any{"uid": "replicasetsweb"}}},
					"status": map[string]any{"phase": "Succeeded"},
				})
			},
		},
		"a number of its own": {
			change: func(j *faults.Judge) { j.Wanted = func(*unstructured.Unstructured) int { return 2 } },
			act:    func(s *cluster) { s.scale(9); s.create("a", "b") },
		},
		"an owner that is deleted wants nothing": {
			act: func(s *cluster) { s.scale(3); s.create("a"); s.put("replicasets", "web", nil) },
		},
	} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newCluster()
				j := judgeOf(s)
				if tc.change != nil {
					tc.change(j)
				}
				if tc.before != nil {
					tc.before(s)
				}
				require.NoError(t, j.Begin(t.Context()))
				_, _ = call(t, j.Faults.Wrap(newFake()), "GET", pods)
				tc.act(s)
				report, err := j.End(t.Context())
				var broken []string
				for _, b := range report.Broken {
					broken = append(broken, fmt.Sprintf("%s: %s has %d of %d by %s", b.Rule, b.Owner, b.Children, b.Wanted, b.Child))
				}
				assert.Equal(t, tc.want, broken)
				if tc.want == nil {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, report.String())
				}
				synctest.Wait()
			})
		})
	}
}

// A run that proves nothing is no green run.
func TestNothingProven(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, s *cluster, j *faults.Judge) {
		t.Helper()
		require.NoError(t, j.Begin(t.Context()))
		s.scale(1)
		s.create("a")
	}
	for why, tc := range map[string]struct {
		run  func(t *testing.T, s *cluster, j *faults.Judge) error
		want string
	}{
		"the server cannot be reached": {func(t *testing.T, s *cluster, j *faults.Judge) error {
			t.Helper()
			s.broken = io.ErrClosedPipe
			return j.Begin(t.Context())
		}, "faults: judge: the server cannot be reached: "},
		"the judge may not list": {func(t *testing.T, s *cluster, j *faults.Judge) error {
			t.Helper()
			s.refuses["list pods"] = 403
			return j.Begin(t.Context())
		}, "faults: judge: pods: Forbidden: you may not"},
		"the judge may not watch": {func(t *testing.T, s *cluster, j *faults.Judge) error {
			t.Helper()
			s.refuses["watch replicasets"] = 403
			return j.Begin(t.Context())
		}, "faults: judge: replicasets: Forbidden: you may not"},
		"the judge has not begun": {func(t *testing.T, _ *cluster, j *faults.Judge) error {
			t.Helper()
			_, err := j.End(t.Context())
			return err
		}, "has not begun"},
		"the judge has no client": {func(t *testing.T, _ *cluster, j *faults.Judge) error {
			t.Helper()
			j.Client = nil
			return j.Begin(t.Context())
		}, "needs Client and Faults"},
		"the server is gone at the end": {func(t *testing.T, s *cluster, j *faults.Judge) error {
			t.Helper()
			begin(t, s, j)
			s.mu.Lock()
			s.broken = io.ErrClosedPipe
			s.mu.Unlock()
			_, err := j.End(t.Context())
			return err
		}, "cannot be reached"},
		"the judge's own watch shows nothing": {func(t *testing.T, s *cluster, j *faults.Judge) error {
			t.Helper()
			s.hides = true
			begin(t, s, j)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := j.End(ctx)
			return err
		}, "the watches do not show what the server has"},
		"the judge's own watch has missed changes before a number was reached": {func(t *testing.T, s *cluster, j *faults.Judge) error {
			t.Helper()
			s.hides = true
			begin(t, s, j)
			s.mu.Lock()
			s.hides = false
			s.events["pods"][0] = strings.Replace(s.events["pods"][0], "ADDED", "ERROR", 1)
			s.mu.Unlock()
			s.scale(2)
			_, err := j.End(t.Context())
			return err
		}, "the watch of pods missed changes"},
		"the judge's context has ended before a number was reached": {func(t *testing.T, s *cluster, j *faults.Judge) error {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, j.Begin(ctx))
			s.scale(2)
			synctest.Wait()
			cancel()
			_, err := j.End(t.Context())
			return err
		}, "context canceled"},
		"no call went through the faults": {func(t *testing.T, s *cluster, j *faults.Judge) error {
			t.Helper()
			begin(t, s, j)
			_, err := j.End(t.Context())
			return err
		}, "no call went through the faults"},
		"no owner existed": {func(t *testing.T, _ *cluster, j *faults.Judge) error {
			t.Helper()
			require.NoError(t, j.Begin(t.Context()))
			_, _ = call(t, j.Faults.Wrap(newFake()), "GET", pods)
			_, err := j.End(t.Context())
			return err
		}, `there were no replicasets in namespace "default"`},
		"no rule spoiled a call": {func(t *testing.T, s *cluster, j *faults.Judge) error {
			t.Helper()
			j.Faults.Rules = []faults.Rule{{Verb: "delete", Resource: "nodes", Fault: faults.LoseAnswer}}
			begin(t, s, j)
			_, _ = call(t, j.Faults.Wrap(newFake()), "GET", pods)
			_, err := j.End(t.Context())
			return err
		}, "rule 1, delete nodes: answer lost, matched nothing"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newCluster()
				require.ErrorContains(t, tc.run(t, s, judgeOf(s)), tc.want)
			})
		})
	}
}

// The report names each broken promise with the calls that broke it, and each rule that matched nothing.
func TestReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newCluster()
		j := judgeOf(s)
		j.Faults = &faults.Faults{Seed: 7, Rules: []faults.Rule{
			{Verb: "create", Resource: "pods", Times: 1, Fault: faults.LoseAnswer}, {Verb: "delete", Fault: faults.LandLate, Delay: time.Second},
		}}
		require.NoError(t, j.Begin(t.Context()))
		client := j.Faults.Wrap(newFake())
		s.scale(1)
		_, _ = call(t, client, "POST", pods)
		s.create("made")
		time.Sleep(time.Second)
		_, _ = call(t, client, "POST", pods)
		_, _ = call(t, client, "PUT", strings.TrimSuffix(pods, "pods")+"services/web") // has the name of the pod
		time.Sleep(time.Second)
		s.create("web")
		s.delete("web")
		report, err := j.End(t.Context())
		require.Error(t, err)
		assert.Equal(t, `seed 7: 3 calls, 1 moments at which a promise was broken
   2.000s default/web: more than 1: 2 children, 1 wanted; web
     0.000s process 1: create pods web: server 200, client 0 [create pods: answer lost]
     1.000s process 1: create pods web: server 200, client 200
rule 1, create pods: answer lost, matched 2 calls and spoiled 1
rule 2, delete: lands late 1s, matched nothing
`, report.String())
	})
}

// The judge waits for calls that will land later, and for faults that end by themselves.
func TestSettledWaitsForTheFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newCluster()
		j := judgeOf(s)
		j.Faults.Rules = []faults.Rule{{Fault: faults.LandLate, Delay: time.Hour}}
		require.NoError(t, j.Begin(t.Context()))
		s.scale(1)
		s.create("a")
		_, _ = call(t, j.Faults.Wrap(newFake()), "DELETE", pods+"/a")
		began := time.Now()
		require.NoError(t, j.Settled(t.Context()))
		assert.GreaterOrEqual(t, time.Since(began), time.Hour)
		_, err := j.End(t.Context())
		require.NoError(t, err)
	})
}

// The delay of an old list is about the past.
func TestSettledDoesNotWaitForAnOldList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := judgeOf(newCluster())
		j.Faults.Rules = []faults.Rule{{Fault: faults.OldList, Delay: time.Hour}}
		require.NoError(t, j.Begin(t.Context()))
		client := j.Faults.Wrap(newFake())
		_, _ = call(t, client, "GET", pods)
		_, _ = call(t, client, "GET", pods+"?resourceVersion=0")
		require.Len(t, j.Faults.Calls()[1].Faults, 1)
		began := time.Now()
		require.NoError(t, j.Settled(t.Context()))
		assert.Less(t, time.Since(began), time.Minute)
		_, _ = j.End(t.Context())
	})
}

// An operator whose watch is late acts late, for as long as it runs. If its number never settles, the judge says so.
func TestANumberThatNeverSettlesWithALateWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, server := newCluster(), newFake()
		j := judgeOf(s)
		j.Faults.Rules = []faults.Rule{{Fault: faults.WatchLate, Delay: time.Second}}
		require.NoError(t, j.Begin(t.Context()))
		watch(t, j.Faults.Wrap(server), "")
		s.scale(1)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer close(server.events)
			for ctx.Err() == nil {
				s.create("a", "b")
				s.delete("a", "b")
				server.events <- "1\n"
				time.Sleep(500 * time.Millisecond)
			}
		}()
		began := time.Now()
		require.ErrorContains(t, j.Settled(t.Context()), "not settled within 11s")
		assert.Less(t, time.Since(began), time.Minute)
		stop()
		report, err := j.End(t.Context())
		require.Error(t, err)
		assert.Equal(t, "more than 1", report.Broken[0].Rule)
	})
}
