// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/replicas/faults"
)

const pods = "http://server/api/v1/namespaces/default/pods"

// A fake is a server that records what reaches it, and when. Watches get the lines of the channel events.
type fake struct {
	mu      sync.Mutex
	began   time.Time
	landed  []string // such as "POST /api/v1/namespaces/default/pods?a=b after 3s"
	events  chan string
	version int
}

func newFake() *fake { return &fake{began: time.Now(), events: make(chan string, 10)} }

func (s *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Body != nil {
		_, _ = io.ReadAll(req.Body)
	}
	s.version++
	after := time.Since(s.began)
	line := req.Method + " " + req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
	if req.URL.RawQuery != "" {
		line += "?" + req.URL.RawQuery
	}
	if after > 0 {
		line += " after " + after.String()
	}
	s.landed = append(s.landed, line)
	body := io.NopCloser(strings.NewReader(`{"metadata":{"name":"made","resourceVersion":"` + strings.Repeat("1", s.version) + `"}}`))
	if req.URL.Query().Get("watch") != "" {
		r, w := io.Pipe()
		go func() {
			for e := range s.events {
				if _, err := w.Write([]byte(e)); err != nil {
					return
				}
			}
			_ = w.Close()
		}()
		go func() {
			<-req.Context().Done()
			_ = w.CloseWithError(req.Context().Err())
		}()
		body = r
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: req}, nil
}

func (s *fake) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.landed...)
}

// An answer is what a client reads of a response.
type answer struct {
	header http.Header
	body   io.Reader
}

// call sends a request, and returns the status, or 0 if the connection broke.
func call(t *testing.T, client http.RoundTripper, method, url string) (status int, got answer) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(`{"metadata":{"name":"web"}}`))
	require.NoError(t, err)
	if method == http.MethodGet {
		req.Body = nil
	}
	resp, err := client.RoundTrip(req)
	if err != nil {
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		return 0, answer{}
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.StatusCode, answer{resp.Header, resp.Body}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for does, tc := range map[string]struct {
		rules    []faults.Rule
		method   string
		url      string
		statuses []int // of the calls
		landed   []string
	}{
		"without rules, nothing is spoiled": {nil, "POST", pods, []int{200, 200}, []string{"POST pods", "POST pods"}},
		"an answer is lost after the call has landed": {
			[]faults.Rule{{Verb: "create", Resource: "pods", Fault: faults.LoseAnswer, Skip: 1, Times: 1}},
			"POST", pods,
			[]int{200, 0, 200},
			[]string{"POST pods", "POST pods", "POST pods"},
		},
		"a call lands late": {
			[]faults.Rule{{Fault: faults.LandLate, Delay: time.Minute}},
			"DELETE", pods + "/web-1",
			[]int{0},
			[]string{"DELETE web-1 after 1m0s"},
		},
		"a call is refused": {
			[]faults.Rule{{Fault: faults.Refuse, Status: 500, Times: 1}},
			"PATCH", pods + "/web-1",
			[]int{500, 200},
			[]string{"PATCH web-1"},
		},
		"a call is cut off before it lands": {
			[]faults.Rule{{Fault: faults.Refuse, Times: 1}},
			"PUT", pods + "/web-1",
			[]int{0, 200},
			[]string{"PUT web-1"},
		},
		"a call meets the first rule that applies": {
			[]faults.Rule{{Fault: faults.Refuse, Status: 429, Times: 1}, {Fault: faults.Refuse, Status: 500, Times: 1}},
			"GET", pods + "/web-1",
			[]int{429, 500, 200},
			[]string{"GET web-1"},
		},
		"a rule is for a verb, a resource and a name": {
			[]faults.Rule{
				{Verb: "get", Fault: faults.Refuse}, {Resource: "pods/status", Fault: faults.Refuse}, {Name: "db-*", Fault: faults.Refuse}, {Process: 2, Fault: faults.Refuse},
			},
			"DELETE", pods + "/web-1",
			[]int{200},
			[]string{"DELETE web-1"},
		},
		"the name of a new object is in its body": {
			[]faults.Rule{{Name: "w?b", Fault: faults.Refuse, Status: 503}}, "POST", pods, []int{503}, nil,
		},
		"a subresource is a resource of its own": {
			[]faults.Rule{{Verb: "update", Resource: "pods/status", Fault: faults.Refuse, Status: 409}}, "PUT", pods + "/web/status", []int{409}, nil,
		},
		"the server's address has a path, and the group has a name": {
			[]faults.Rule{{Verb: "list", Resource: "workers", Fault: faults.Refuse, Status: 410}},
			"GET", "http://server/k8s/clusters/c-1/apis/example.com/v1/workers",
			[]int{410},
			nil,
		},
		"logs, which may have no end, are not spoiled": {[]faults.Rule{{Fault: faults.Refuse}}, "GET", pods + "/web/log?follow=true", []int{200}, []string{"GET log?follow=true"}},
		"discovery is not spoiled":                     {[]faults.Rule{{Fault: faults.Refuse}}, "GET", "http://server/apis/apps/v1", []int{200}, []string{"GET v1"}},
		"a list of the cache is old": {
			[]faults.Rule{{Fault: faults.OldList, Delay: hour, Skip: 1}},
			"GET", pods + "?resourceVersion=0",
			[]int{200, 200},
			[]string{"GET pods?resourceVersion=0", "GET pods?resourceVersion=1&resourceVersionMatch=Exact"},
		},
		"a list that the server must answer with its newest state is never old": {
			[]faults.Rule{{Fault: faults.OldList, Delay: hour}}, "GET", pods, []int{200, 200}, []string{"GET pods", "GET pods"},
		},
		"a list is not old as long as nothing old is known": {
			[]faults.Rule{{Fault: faults.OldList, Delay: hour, Times: 1}},
			"GET", pods + "?resourceVersion=0",
			[]int{200, 200, 200},
			[]string{"GET pods?resourceVersion=0", "GET pods?resourceVersion=1&resourceVersionMatch=Exact", "GET pods?resourceVersion=0"},
		},
		"a stopped process sends nothing but the call at which it was stopped": {
			[]faults.Rule{{Verb: "create", Fault: faults.StopProcess, Delay: time.Second}}, "POST", pods, []int{0, 0}, []string{"POST pods after 1s"},
		},
	} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newFake()
				f := &faults.Faults{Rules: tc.rules}
				client := f.Wrap(server)
				var statuses []int
				for range tc.statuses {
					status, _ := call(t, client, tc.method, tc.url)
					statuses = append(statuses, status)
				}
				time.Sleep(2 * hour)
				assert.Equal(t, tc.statuses, statuses)
				assert.Equal(t, tc.landed, server.got())
			})
		})
	}
}

func TestRetryAfterIsTheDelay(t *testing.T) {
	t.Parallel()
	f := &faults.Faults{Rules: []faults.Rule{{Fault: faults.Refuse, Status: 429, Delay: 1500 * time.Millisecond}}}
	_, got := call(t, f.Wrap(newFake()), "POST", pods)
	assert.Equal(t, "2", got.header.Get("Retry-After"))
	var status struct{ Kind, Reason string }
	require.NoError(t, json.NewDecoder(got.body).Decode(&status))
	assert.Equal(t, "Status", status.Kind)
	assert.Equal(t, "TooManyRequests", status.Reason)
}

// If a rule is not valid, each call fails, because a run without this rule would prove less than its author believes.
func TestARuleThatIsNotValidFailsEachCall(t *testing.T) {
	t.Parallel()
	for why, tc := range map[string]struct {
		rule faults.Rule
		want string
	}{
		"no fault":                         {faults.Rule{}, `there is no fault ""`},
		"an unknown verb":                  {faults.Rule{Fault: faults.Refuse, Verb: "POST"}, `there is no verb "POST"`},
		"a verb that cannot meet it":       {faults.Rule{Fault: faults.LoseAnswer, Verb: "get"}, "cannot spoil the verb get"},
		"an old list of anything but list": {faults.Rule{Fault: faults.OldList, Verb: "watch"}, "cannot spoil the verb watch"},
		"a pattern":                        {faults.Rule{Fault: faults.Refuse, Name: "["}, "is no pattern"},
		"a negative delay":                 {faults.Rule{Fault: faults.Refuse, Delay: -1}, "is negative"},
		"a share above 1":                  {faults.Rule{Fault: faults.Refuse, Share: 30}, "is not between 0 and 1"},
		"a status of success":              {faults.Rule{Fault: faults.Refuse, Status: 200}, "is no error"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			f := &faults.Faults{Rules: []faults.Rule{{Fault: faults.Refuse}, tc.rule}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, pods, http.NoBody)
			require.NoError(t, err)
			resp, err := f.Wrap(newFake()).RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			require.ErrorContains(t, err, "faults: rule 2: ")
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, (&faults.Judge{Client: http.DefaultClient, Faults: f}).Begin(t.Context()), tc.want)
		})
	}
}

// Two runs with one seed spoil the same calls, also if other calls come between them.
func TestTheSeedDecides(t *testing.T) {
	t.Parallel()
	run := func(seed uint64, between int) (statuses []int) {
		f := &faults.Faults{Seed: seed, Rules: []faults.Rule{{Verb: "create", Share: 0.5, Fault: faults.LoseAnswer}, {Verb: "delete", Share: 0.5, Fault: faults.Refuse}}}
		client := f.Wrap(newFake())
		for range 64 {
			for range between {
				_, _ = call(t, client, "DELETE", pods+"/web")
			}
			status, _ := call(t, client, "POST", pods)
			statuses = append(statuses, status)
		}
		return statuses
	}
	assert.Equal(t, run(1, 0), run(1, 3))
	assert.NotEqual(t, run(1, 0), run(2, 0))
	assert.Contains(t, run(1, 0), 0)
	assert.Contains(t, run(1, 0), 200)
}

// watch asks for a watch, and returns a channel of its lines with their times. The channel is closed with the watch.
func watch(t *testing.T, client http.RoundTripper, query string) <-chan string {
	t.Helper()
	status, got := call(t, client, "GET", pods+"?watch=1"+query)
	require.Equal(t, 200, status)
	began, lines := time.Now(), make(chan string, 100)
	go func() {
		defer close(lines)
		for body := bufio.NewReader(got.body); ; {
			line, err := body.ReadString('\n')
			if line != "" {
				lines <- time.Since(began).String() + " " + strings.TrimSpace(line)
			}
			if err != nil {
				lines <- time.Since(began).String() + " " + err.Error()
				return
			}
		}
	}()
	return lines
}

func drain(lines <-chan string) (all []string) {
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return all
			}
			all = append(all, line)
		default:
			return all
		}
	}
}

const bookmark = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`

func TestWatches(t *testing.T) {
	t.Parallel()
	expired := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"faults: Gone","reason":"Expired","details":{},"code":410}}`
	for does, tc := range map[string]struct {
		rule  faults.Rule
		query string
		want  []string // the server sends the events 1 and 2 at once, a pod is created after a second, and the event 3 comes after two
	}{
		"without a fault, events come at once": {faults.Rule{Fault: faults.Refuse, Verb: "get"}, "", []string{"0s 1", "0s 2", "2s 3"}},
		"each event is late":                   {faults.Rule{Fault: faults.WatchLate, Delay: 5 * time.Second}, "", []string{"5s 1", "5s 2", "7s 3"}},
		"the watch hangs from a call on":       {faults.Rule{Verb: "create", Fault: faults.WatchHang, Delay: 5 * time.Second}, "", []string{"0s 1", "0s 2", "6s 3"}},
		"the watch hangs for ever":             {faults.Rule{Verb: "create", Fault: faults.WatchHang}, "", []string{"0s 1", "0s 2"}},
		"all events come again":                {faults.Rule{Fault: faults.WatchReplay, Delay: 3 * time.Second}, "", []string{"0s 1", "0s 2", "2s 3", "3s 1", "3s 2", "3s 3"}},
		"the watch ends":                       {faults.Rule{Verb: "create", Fault: faults.WatchEnd}, "", []string{"0s 1", "0s 2", "1s EOF"}},
		"the watch ends with an error":         {faults.Rule{Verb: "create", Fault: faults.WatchEnd, Status: 410}, "", []string{"0s 1", "0s 2", "1s " + expired, "1s EOF"}},
		"initial events are not spoiled":       {faults.Rule{Fault: faults.WatchHang, Delay: 5 * time.Second}, "&sendInitialEvents=true", []string{"0s 1", "0s 2", "0s " + bookmark, "5s 3"}},
		"a watch of other objects is not spoiled": {
			faults.Rule{Verb: "watch", Resource: "nodes", Fault: faults.WatchHang}, "", []string{"0s 1", "0s 2", "2s 3"},
		},
		"a process that is stopped has no watches": {
			faults.Rule{Verb: "create", Fault: faults.StopProcess}, "", []string{"0s 1", "0s 2", "1s faults: the connection is broken: unexpected EOF"},
		},
	} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newFake()
				defer close(server.events)
				f := &faults.Faults{Rules: []faults.Rule{tc.rule}}
				client := f.Wrap(server)
				lines := watch(t, client, tc.query)
				server.events <- "1\n"
				server.events <- "2\n"
				if tc.query != "" {
					server.events <- bookmark + "\n"
				}
				time.Sleep(time.Second)
				_, _ = call(t, client, "POST", pods)
				time.Sleep(time.Second)
				server.events <- "3\n"
				time.Sleep(time.Hour)
				assert.Equal(t, tc.want, drain(lines))
			})
		})
	}
}

// An informer that asks for a watch with initial events gets an old list too: it is first told that the server has no
// such watches.
func TestAnOldListInPlaceOfAWatchWithInitialEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faults.Faults{Rules: []faults.Rule{{Verb: "list", Resource: "pods", Fault: faults.OldList, Times: 1}}}
		server := newFake()
		client := f.Wrap(server)
		_, _ = call(t, client, "GET", pods+"/web")
		status, _ := call(t, client, "GET", pods+"?watch=1&sendInitialEvents=true")
		assert.Equal(t, 422, status)
		_, _ = call(t, client, "GET", pods+"?resourceVersion=0")
		assert.Equal(t, []string{"GET web", "GET pods?resourceVersion=1&resourceVersionMatch=Exact"}, server.got())
		server.events <- "1\n"
		close(server.events)
		assert.Contains(t, <-watch(t, client, "&sendInitialEvents=true"), " 1")
	})
}

// A watch that is refused does not use up the fault of the watch that follows.
func TestARefusedWatchIsNotSpoiled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faults.Faults{Rules: []faults.Rule{
			{Verb: "watch", Fault: faults.WatchHang, Delay: time.Second, Times: 1}, {Verb: "watch", Fault: faults.Refuse, Status: 410, Times: 1},
		}}
		server := newFake()
		defer close(server.events)
		client := f.Wrap(server)
		status, _ := call(t, client, "GET", pods+"?watch=1")
		assert.Equal(t, 410, status)
		lines := watch(t, client, "")
		server.events <- "1\n"
		assert.Equal(t, "1s 1", <-lines)
	})
}

// A reverse proxy, for example, closes the body only after its read has returned.
func TestAWatchThatHangsEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faults.Faults{Rules: []faults.Rule{{Fault: faults.WatchHang}}}
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, pods+"?watch=1", http.NoBody)
		require.NoError(t, err)
		server := newFake()
		defer close(server.events)
		resp, err := f.Wrap(server).RoundTrip(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		time.AfterFunc(time.Second, cancel)
		time.AfterFunc(time.Hour, func() { _ = resp.Body.Close() })
		_, err = resp.Body.Read(make([]byte, 10))
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// Run begins the next process when a rule stops one, and returns the error of a process that ends by itself.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faults.Faults{Rules: []faults.Rule{{Verb: "create", Fault: faults.StopProcess, Process: 1, Delay: time.Minute}}}
		server, ran := newFake(), 0
		own := errors.New("its own end")
		require.ErrorIs(t, f.Run(t.Context(), func(ctx context.Context) error {
			ran++
			_, _ = call(t, f.Wrap(server), "POST", pods)
			if ran == 1 {
				<-ctx.Done()
				return nil
			}
			return own
		}), own)
		assert.Equal(t, 2, ran)
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"POST pods", "POST pods after 1m0s"}, server.got(), "the call of the first process lands after that of the second")
	})
}

// The log says what each call did.
func TestCallsAreRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faults.Faults{Rules: []faults.Rule{
			{Verb: "create", Fault: faults.LoseAnswer, Times: 1}, {Verb: "delete", Fault: faults.LandLate, Delay: time.Second}, {Verb: "get", Fault: faults.Refuse, Status: 500},
		}}
		client := f.Wrap(newFake())
		for _, c := range [][2]string{{"POST", ""}, {"POST", ""}, {"DELETE", "/a"}, {"GET", "/a"}} {
			_, _ = call(t, client, c[0], pods+c[1])
		}
		time.Sleep(time.Minute)
		var lines []string
		for _, c := range f.Calls() {
			lines = append(lines, c.String())
		}
		assert.Equal(t, []string{
			"process 1: create pods web: server 200, client 0 [create: answer lost]",
			"process 1: create pods web: server 200, client 200",
			"process 1: delete pods a: server 200, client 0, after 1s [delete: lands late 1s]",
			"process 1: get pods a: server 0, client 500 [get: refused 500]",
		}, lines)
	})
}
