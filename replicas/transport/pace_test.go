// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/transport"
)

// An apiServer handles at most atOnce calls at the same time. Further calls wait in a queue. If the queue is
// full, the apiServer refuses the call, as API Priority and Fairness does.
type apiServer struct {
	mu         sync.Mutex
	atOnce     int // 0 means no limit
	queue      int
	takes      time.Duration
	slow       func(*http.Request) time.Duration // the time that a webhook adds; nil means 0
	retryAfter int
	err        error // returned instead of an answer

	queued                     []chan struct{}
	answered, refused, working int
	underWay, most             int // the current and the highest number of calls under way, including queued calls
}

func (s *apiServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.underWay++
	s.most = max(s.most, s.underWay)
	defer func() {
		s.underWay--
		s.mu.Unlock()
	}()
	if s.err != nil {
		return nil, s.err
	}
	if s.atOnce > 0 && (s.working >= s.atOnce || len(s.queued) > 0) {
		if len(s.queued) >= s.queue {
			s.refused++
			header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
			if s.retryAfter > 0 {
				header.Set("Retry-After", strconv.Itoa(s.retryAfter))
			}
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: header, Body: http.NoBody}, nil
		}
		turn := make(chan struct{})
		s.queued = append(s.queued, turn)
		s.mu.Unlock()
		<-turn
		s.mu.Lock()
		s.working--
	}
	s.working++
	takes := s.takes
	s.mu.Unlock()
	time.Sleep(takes)
	s.mu.Lock()
	s.working--
	for s.working < s.atOnce && len(s.queued) > 0 { // start the first calls in the queue
		s.working++
		close(s.queued[0])
		s.queued = s.queued[1:]
	}
	if s.slow != nil { // a call that waits for a webhook is not counted in the field working
		slow := s.slow(req)
		s.mu.Unlock()
		time.Sleep(slow)
		s.mu.Lock()
	}
	s.answered++
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody}, nil
}

// load starts several callers for each owner. Each caller sends one call after another until ctx ends.
func load(ctx context.Context, pace *transport.Pace, server http.RoundTripper, owners, callers int, path string) *sync.WaitGroup {
	var running sync.WaitGroup
	client := pace.Wrap(server)
	for owner := range owners {
		name := types.NamespacedName{Namespace: path, Name: strconv.Itoa(owner)}
		for range callers {
			running.Go(func() {
				for ctx.Err() == nil {
					req, err := http.NewRequestWithContext(transport.WithOwner(ctx, name), http.MethodPost, "https://server"+path, http.NoBody)
					if err != nil {
						panic(err)
					}
					if resp, err := client.RoundTrip(req); err == nil {
						_ = resp.Body.Close()
					} else {
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
	}
	return &running
}

const podsPath = "/api/v1/namespaces/default/pods"

// With a Pace, a server of any size answers more than 80 % of the calls that it could answer. The server refuses
// fewer than one call per 100 answers.
func TestPaceFollowsTheServer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		server    *apiServer
		perSecond float64 // calls that the server can answer
	}{
		"a small server":                       {&apiServer{atOnce: 2, queue: 50, takes: 10 * time.Millisecond}, 200},
		"a large one":                          {&apiServer{atOnce: 100, queue: 1000, takes: 50 * time.Millisecond}, 2000},
		"one that lets few wait":               {&apiServer{atOnce: 40, queue: 10, takes: 40 * time.Millisecond}, 1000},
		"one that lets none wait, with a rest": {&apiServer{atOnce: 40, takes: 20 * time.Millisecond, retryAfter: 1}, 1250},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				s := row.server
				running := load(ctx, transport.NewPace(0, 0), s, 5, 100, podsPath)
				time.Sleep(5 * time.Second)
				s.mu.Lock()
				s.most = 0
				s.mu.Unlock()
				running.Wait()
				assert.Greater(t, float64(s.answered)/30, row.perSecond*0.8, "answers a second")
				assert.Less(t, float64(s.refused), float64(s.answered)*0.01, "refused")
				if s.queue > 100 {
					assert.Less(t, s.most, 5*s.atOnce, "it is not filled with calls that wait")
				}
			})
		})
	}
}

// If a server slows down, a Pace sends fewer calls at the same time. When the server is fast again, the Pace
// sends about as many calls as before.
func TestPaceOfAServerThatSlowsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{atOnce: 50, queue: 10_000, takes: 20 * time.Millisecond}
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		running := load(ctx, transport.NewPace(0, 0), server, 5, 100, podsPath)
		during := func(d time.Duration) (perSecond float64, most int) {
			server.mu.Lock()
			before := server.answered
			server.most = 0
			server.mu.Unlock()
			time.Sleep(d)
			server.mu.Lock()
			defer server.mu.Unlock()
			return float64(server.answered-before) / d.Seconds(), server.most
		}
		during(5 * time.Second)
		fast, _ := during(5 * time.Second)
		server.mu.Lock()
		server.atOnce = 3
		server.mu.Unlock()
		during(10 * time.Second)
		_, most := during(5 * time.Second)
		assert.Less(t, most, 30)
		server.mu.Lock()
		server.atOnce = 50
		server.mu.Unlock()
		during(5 * time.Second)
		again, _ := during(5 * time.Second)
		assert.Greater(t, again, fast*0.8)
		running.Wait()
	})
}

// While a server is busy, the window swings between the size at which most calls are slow, and half of it. At the
// start it does not grow far beyond this size.
func TestPaceKeepsTheServerBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{atOnce: 4, queue: 1000, takes: 10 * time.Millisecond}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		pace := transport.NewPace(0, 0)
		running := load(ctx, pace, server, 1, 500, podsPath)
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			window, _ := pace.State()
			assert.Less(t, window, 140)
		}
		for ctx.Err() == nil {
			window, _ := pace.State()
			assert.InDelta(t, 40, window, 20, "a call is slow after 120 ms; four at once, 10 ms each, answer 48 calls in this time")
			time.Sleep(100 * time.Millisecond)
		}
		running.Wait()
	})
}

// If a webhook delays some of the calls, the window keeps its size. If it delays nearly all, the window shrinks,
// because the Pace cannot know that the server itself has time.
func TestPaceWithAWebhookThatDelaysSomeCalls(t *testing.T) {
	t.Parallel()
	for percent, window := range map[int]int{50: 500, 95: 4} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			server := &apiServer{takes: 20 * time.Millisecond, slow: func(*http.Request) time.Duration {
				if int(calls.Add(1)*37%100) < percent {
					return 150 * time.Millisecond
				}
				return 0
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			pace := transport.NewPace(0, 0)
			running := load(ctx, pace, server, 5, 120, podsPath)
			running.Wait()
			got, _ := pace.State()
			assert.InDelta(t, window, got, float64(window)/2, "%d %% of the calls", percent)
		})
	}
}

// If a webhook delays the calls of one owner for a long time, another owner can still make two calls at the same
// time.
func TestPaceWithAWebhookThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{takes: 20 * time.Millisecond}
		server.slow = func(req *http.Request) time.Duration {
			if req.URL.Path == podsPath {
				return 30 * time.Second
			}
			return 0
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		pace := transport.NewPace(0, 0)
		hanging := load(ctx, pace, server, 1, 500, podsPath)
		time.Sleep(time.Second)
		others := load(ctx, pace, server, 1, 4, "/api/v1/namespaces/other/pods")
		others.Wait()
		hanging.Wait()
		assert.Greater(t, server.answered, 25*100, "two at once, 20 ms each, for 29 seconds")
	})
}

// If overloads have shrunk the window to one call, and this call hangs, the call of another owner waits for a
// second after the last overload, and not for the end of the call that hangs.
func TestPaceWithOneCallThatHangsAfterAnOverload(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		code int
		err  error
	}{
		"the server refuses calls":       {code: http.StatusTooManyRequests},
		"the server cannot be connected": {err: errors.New("no connection")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pace := transport.NewPace(0, 0)
				send := func(owner string, answer wire) {
					req := newRequest(t, http.MethodPost, podsPath)
					_, _ = pace.Wrap(answer).RoundTrip(req.WithContext(transport.WithOwner(t.Context(), types.NamespacedName{Name: owner}))) //nolint:bodyclose // there is none
				}
				overloaded := func(*http.Request) (*http.Response, error) {
					time.Sleep(time.Millisecond)
					if answer.err != nil {
						return nil, answer.err
					}
					return &http.Response{StatusCode: answer.code, Header: http.Header{"Content-Type": {"text/plain"}}, Body: http.NoBody}, nil
				}
				for _, half := range []int{5, 2, 1} {
					time.Sleep(time.Millisecond) // a call that was sent before the last overload does not count
					send("web", overloaded)
					window, _ := pace.State()
					require.Equal(t, half, window)
				}
				var hanging sync.WaitGroup
				hanging.Go(func() {
					send("web", func(*http.Request) (*http.Response, error) {
						time.Sleep(time.Hour)
						return nil, errors.New("webhook timed out")
					})
				})
				synctest.Wait()
				began := time.Now()
				send("other", func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody}, nil
				})
				assert.Equal(t, time.Second, time.Since(began))
				hanging.Wait()
			})
		})
	}
}

// If one owner has many calls, the calls of an owner with few calls do not wait for all of them.
func TestPaceIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{atOnce: 4, queue: 1000, takes: 10 * time.Millisecond}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		pace := transport.NewPace(0, 0)
		many := load(ctx, pace, server, 1, 500, podsPath)
		time.Sleep(time.Second)
		few, ofFew := 0, pace.Wrap(server)
		for ctx.Err() == nil {
			req := newRequest(t, http.MethodDelete, podsPath+"/web")
			if _, err := ofFew.RoundTrip(req.WithContext(transport.WithOwner(ctx, types.NamespacedName{Name: "few"}))); err == nil { //nolint:bodyclose // there is none
				few++
			}
		}
		assert.Greater(t, few, 70, "of its calls, one after the other, in nine seconds")
		many.Wait()
	})
}

func TestPaceHasALimit(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []float64{math.SmallestNonzeroFloat64, 1e-12, 0.5, 20, 300} { // at the first two, the next call is allowed after more time than a Duration can hold
		synctest.Test(t, func(t *testing.T) {
			server := &apiServer{takes: time.Millisecond}
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			load(ctx, transport.NewPace(perSecond, 30), server, 3, 20, podsPath).Wait()
			assert.InDelta(t, 30+60*perSecond, server.answered, 3, "%v a second", perSecond)
		})
	}
	for _, none := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		synctest.Test(t, func(t *testing.T) {
			server := &apiServer{takes: time.Millisecond}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			load(ctx, transport.NewPace(none, -1), server, 1, 10, podsPath).Wait()
			assert.Greater(t, server.answered, 5000, "%v", none)
		})
	}
}

// A 429 from a webhook does not delay other calls. If the server is overloaded, calls wait for the time in
// Retry-After, but not longer than 10 s. Watches and requests for leases never wait.
func TestPaceOfOtherAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pace := transport.NewPace(0, 0)
		answers := func(code int, header http.Header) wire {
			return func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Millisecond)
				return &http.Response{StatusCode: code, Header: header, Body: http.NoBody}, nil
			}
		}
		send := func(to wire, method, path string) time.Duration {
			t.Helper()
			began := time.Now()
			_, err := pace.Wrap(to).RoundTrip(newRequest(t, method, path)) //nolint:bodyclose // there is none
			require.NoError(t, err)
			return time.Since(began)
		}
		ofAWebhook := answers(http.StatusTooManyRequests, http.Header{"Content-Type": {"application/json"}, "Retry-After": {"60"}})
		send(ofAWebhook, http.MethodPost, podsPath)
		assert.Equal(t, time.Millisecond, send(ofAWebhook, http.MethodPost, podsPath))

		overloaded := answers(http.StatusTooManyRequests, http.Header{"Content-Type": {"text/plain"}, "Retry-After": {"60"}})
		well := answers(http.StatusOK, http.Header{})
		send(overloaded, http.MethodPost, podsPath)
		assert.Equal(t, time.Millisecond, send(well, http.MethodGet, podsPath+"?watch=true"), "a watch is sent at once")
		assert.Equal(t, time.Millisecond, send(well, http.MethodPut, leases), "a renewal too")
		waited := send(well, http.MethodPost, podsPath)
		assert.InDelta(t, 10, waited.Seconds(), 0.1, "the others wait, but not for as long as the server likes")

		send(overloaded, http.MethodPost, podsPath)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := pace.Wrap(well).RoundTrip(newRequest(t, http.MethodPost, podsPath).WithContext(ctx)) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, context.DeadlineExceeded)
		send(well, http.MethodPost, podsPath)
	})
}

const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/pools"

// If the server cannot be reached, a Pace sends only a few calls at the same time. When the server is back, the
// Pace soon sends calls at full speed.
func TestPaceOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{takes: 20 * time.Millisecond, err: errors.New("no connection")}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		running := load(ctx, transport.NewPace(0, 0), server, 3, 50, podsPath)
		time.Sleep(10 * time.Second)
		server.mu.Lock()
		server.err = nil
		server.mu.Unlock()
		running.Wait()
		assert.Greater(t, server.answered, 9*150*50*8/10)
	})
}

// If many calls are sent and some of them are canceled, all calls end. After a minute, a new call is sent at
// once.
func TestPaceAtRandom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{atOnce: 3, queue: 5, takes: 3 * time.Millisecond, retryAfter: 1}
		pace := transport.NewPace(100, 10)
		client := pace.Wrap(server)
		var running sync.WaitGroup
		for i := range 2000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%40)*time.Millisecond)
			running.Go(func() {
				defer cancel()
				req := newRequest(t, http.MethodPost, podsPath)
				_, _ = client.RoundTrip(req.WithContext(transport.WithOwner(ctx, types.NamespacedName{Name: strconv.Itoa(i % 7)}))) //nolint:bodyclose // there is none
			})
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		running.Wait()
		time.Sleep(time.Minute)
		began := time.Now()
		_, err := client.RoundTrip(newRequest(t, http.MethodPost, podsPath)) //nolint:bodyclose // there is none
		require.NoError(t, err)
		assert.Equal(t, server.takes, time.Since(began))
	})
}
