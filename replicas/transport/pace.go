// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// The window of a Pace is the number of concurrent calls that it allows, at first firstWindow. Slow calls
	// shrink it to leastWindow at most, and overloads to 1.
	firstWindow, leastWindow = 10, 4
	// leastEach is the number of concurrent calls that each owner may make even if the window is full.
	leastEach = 2
	// The ceiling is near*window at the last overload. Below it the window grows fast, and above it only once
	// per growsEvery, each time by more.
	near       = 0.9
	growsEvery = time.Second
	// A call is slow if it takes longer than slower*usual + slowerBy. The window shrinks only if more than three
	// quarters of the calls are slow, because a slow webhook may delay some of them. While the server is busy, the
	// calls of other clients take up to about that long too. But with 10 ms instead of 100 ms, a server with two
	// cores gets so few calls at once that 1,000 creations take 1.3 times as long.
	slower, slowerBy = 2, 100 * time.Millisecond
	// usualFor is the length of a measuring period. The usual duration of a call is the shortest one in the
	// current and the previous period.
	usualFor = time.Minute
	// mostKinds is the maximum number of callKinds that a Pace remembers.
	mostKinds = 1000
	// longestHold is the maximum delay after a Retry-After, even if the server demands a longer delay.
	longestHold = 10 * time.Second
)

// A Pace sends calls as fast as the server answers. A constant number of calls per second would be too low
// for one server and too high for another, so a Pace limits the number of concurrent calls instead. The limit
// grows while calls succeed, and is halved when the server is overloaded. It also falls when more than three
// quarters of the calls take longer than usual.
//
// A server is overloaded if it cannot be reached, or responds with 429, 502, 503 or 504 and a body that is not
// a Status but, for example, plain text. Load balancers, and API Priority and Fairness, send such responses.
// When one has a Retry-After header, the Pace sends no calls for that time, up to 10 seconds. But a response
// whose body is a Status concerns one object only, and does not lower the limit: a webhook may have sent it, or
// it refuses an eviction.
//
// The usual duration of a call is that of the fastest call of the same kind in the last two minutes. So when
// even the fastest calls of a busy server are slow for several minutes, the usual duration rises, and calls that
// take no longer do not lower the limit any further.
//
// The owners of waiting calls take turns, and one call is sent in each turn; see WithOwner. When the limit is
// reached, each owner is still allowed two concurrent calls, because an admission webhook may be delaying those
// of other owners, but not in the first second after an overload. Watch requests and requests for leases never
// wait.
//
// The zero Pace has no rate limit, and limits calls only according to the server's responses.
type Pace struct {
	perSecond float64 // 0 means no limit
	burst     float64

	mu       sync.Mutex
	window   float64
	underWay int
	of       map[types.NamespacedName]int // the number of calls under way for each owner
	full     bool                         // whether a call has waited or has found a full window since the counts began
	growing  bool                         // whether the window grows by one with each answer that is not slow, until the window is halved
	ceiling  float64                      // near*window at the last overload; 0 if there was none
	changed  time.Time                    // when the window was last made smaller
	refused  time.Time                    // when the window was last made smaller because of an overload
	near     time.Time                    // when the window first reached the ceiling after it was last made smaller; zero if it has not
	grown    time.Time                    // when the window last grew above the ceiling
	held     time.Time                    // no call is sent before this time
	tokens   float64                      // calls that perSecond allows now
	filled   time.Time
	timer    *time.Timer

	answers int // the number of answers until the end of the current count
	good    int // the number of successful answers
	slow    int // the number of successful answers to slow calls
	usual   map[callKind]*usual

	owners  []types.NamespacedName // owners with waiting calls; the first owner has the next turn
	waiting map[types.NamespacedName][]*turn
}

// NewPace returns a Pace that sends at most perSecond calls per second, with bursts of at most burst calls, and
// of 1 if burst is less. But if perSecond is zero, negative, infinite or NaN, only the server's responses limit
// the calls. The smallest positive perSecond is a limit too: no call is sent after the burst, and each call ends
// with its context. Turn off client-go's own rate limiter:
//
//	config.QPS = -1
//	config.Wrap(transport.NewPace(0, 0).Wrap)
//
// With a Fence, call the Fence's Wrap first, so that the Fence checks each call after it has waited.
func NewPace(perSecond float64, burst int) *Pace {
	p := &Pace{}
	if perSecond > 0 && !math.IsInf(perSecond, 0) {
		p.perSecond, p.burst = perSecond, float64(max(burst, 1))
		p.tokens = p.burst
	}
	return p
}

// Wrap returns a RoundTripper in which each call waits for its turn before it is sent through next. A nil next
// means http.DefaultTransport. A call whose context ends while it waits returns the context's error.
func (p *Pace) Wrap(next http.RoundTripper) http.RoundTripper { return wrap(next, p.trip) }

// State returns the current limit of concurrent calls, and the number of waiting calls.
func (p *Pace) State() (window, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, calls := range p.waiting {
		waiting += len(calls)
	}
	return int(p.window), waiting
}

type ownerKey struct{}

// WithOwner returns a context for calls that belong to an owner. Owners take turns, and all calls without
// an owner share one turn. Packages clientgo and controllerruntime set the owner for each pass.
func WithOwner(ctx context.Context, owner types.NamespacedName) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

func (p *Pace) trip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if isWatch(req) || strings.Contains(req.URL.Path, "/apis/coordination.k8s.io/") {
		return next.RoundTrip(req)
	}
	owner, _ := req.Context().Value(ownerKey{}).(types.NamespacedName)
	if err := p.wait(req.Context(), owner); err != nil {
		return refuse(req, err)
	}
	sent := time.Now()
	resp, err := next.RoundTrip(req)
	p.mu.Lock()
	defer p.mu.Unlock()
	if req.Context().Err() == nil {
		p.learn(kindOf(req), sent, time.Now(), resp, err)
	}
	p.leave(owner)
	return resp, err
}

// A turn represents one waiting call.
type turn struct {
	come chan struct{} // closed when the call can be sent
}

// wait waits until a call for the owner can be sent, or ctx ends.
func (p *Pace) wait(ctx context.Context, owner types.NamespacedName) error {
	t := &turn{make(chan struct{})}
	p.mu.Lock()
	if p.window == 0 {
		p.begin()
	}
	if len(p.waiting[owner]) == 0 {
		p.owners = append(p.owners, owner)
	}
	p.waiting[owner] = append(p.waiting[owner], t)
	p.next()
	p.mu.Unlock()
	select {
	case <-t.come:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-t.come: // the turn came just as ctx ended
		p.leave(owner)
	default:
		p.remove(owner, t)
	}
	return ctx.Err()
}

func (p *Pace) begin() {
	p.window, p.growing = firstWindow, true
	p.of, p.usual, p.waiting = map[types.NamespacedName]int{}, map[callKind]*usual{}, map[types.NamespacedName][]*turn{}
	p.look()
}

// remove removes a call from the waiting calls.
func (p *Pace) remove(owner types.NamespacedName, t *turn) {
	i := slices.Index(p.waiting[owner], t)
	if p.waiting[owner] = slices.Delete(p.waiting[owner], i, i+1); len(p.waiting[owner]) == 0 {
		delete(p.waiting, owner)
		p.owners = slices.DeleteFunc(p.owners, func(other types.NamespacedName) bool { return other == owner })
	}
}

// next releases all waiting calls that can be sent now. The lock must be held.
func (p *Pace) next() {
	for len(p.owners) > 0 {
		i, delay := p.turn(time.Now())
		if i < 0 { // the end of a call that is under way calls next again
			return
		}
		if delay > 0 {
			if p.timer != nil {
				p.timer.Stop()
			}
			p.timer = time.AfterFunc(delay, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.next()
			})
			return
		}
		p.tokens--
		p.underWay++
		owner := p.owners[i]
		p.of[owner]++
		t := p.waiting[owner][0]
		close(t.come)
		p.owners = append(slices.Delete(p.owners, i, i+1), owner)
		p.remove(owner, t)
	}
}

// turn returns the index of the owner whose call is sent next, and the delay before it. The index is -1 if no
// call can be sent before one that is under way has ended.
func (p *Pace) turn(now time.Time) (i int, delay time.Duration) {
	delay = p.delay(now)
	if p.underWay < int(p.window) {
		return 0, delay
	}
	p.full = true
	// A webhook keeps all calls of web, which fill the window. Those of db do not wait for it.
	i = slices.IndexFunc(p.owners, func(owner types.NamespacedName) bool { return p.of[owner] < leastEach })
	// One call of web hangs in a webhook, and an overload has shrunk the window to 1. Only the timer can send a
	// call of another owner, because no call ends.
	return i, max(delay, p.refused.Add(growsEvery).Sub(now))
}

// longestDelay keeps a delay within time.Duration. After it, the delay is computed again.
const longestDelay = 24 * time.Hour

// delay returns how long the next call must wait because of a Retry-After header or the limit perSecond.
func (p *Pace) delay(now time.Time) time.Duration {
	if held := p.held.Sub(now); held > 0 || p.perSecond == 0 {
		return held
	}
	p.tokens = min(p.burst, p.tokens+now.Sub(p.filled).Seconds()*p.perSecond)
	p.filled = now
	if p.tokens >= 1 {
		return 0
	}
	return time.Duration(min((1-p.tokens)/p.perSecond*float64(time.Second), float64(longestDelay))) + 1
}

// leave records that a call has ended, and releases the waiting calls that can be sent now.
func (p *Pace) leave(owner types.NamespacedName) {
	p.underWay--
	if p.of[owner]--; p.of[owner] == 0 {
		delete(p.of, owner)
	}
	p.next()
}

// learn adjusts the window to the outcome of a call.
func (p *Pace) learn(kind callKind, sent, now time.Time, resp *http.Response, err error) {
	if err == nil && isOverload(resp) {
		p.hold(now, resp.Header.Get("Retry-After"))
	}
	isSlow := false
	switch {
	case !sent.After(p.changed), isLocal(err):
		// Of forty calls at once, one is refused and halves the window. The other refusals are of the same
		// overload, and must not halve it again. Nor must a call that never reached the server.
		return
	case err != nil:
		p.refused = now
		p.halve(now, 1)
		p.growing = true // the server is away and not slow, so when it is back, the window grows fast
		return
	case isOverload(resp):
		p.refused, p.ceiling = now, near*p.window
		p.halve(now, 1)
		return
	case resp.StatusCode < 300: // only successes, because a refusal may take much less time
		if len(p.usual) > mostKinds {
			clear(p.usual)
		}
		if p.usual[kind] == nil {
			p.usual[kind] = &usual{}
		}
		p.good++
		if isSlow = p.usual[kind].isExceeded(now, now.Sub(sent)); isSlow {
			p.slow++
		}
	}
	// A new Pace sends 1,000 calls to a server that handles two at once. Its slow answers would widen the window
	// far beyond what the server can answer in time, before the first count ends and halves it.
	if p.growing && p.full && !isSlow {
		p.window++
	}
	if p.answers--; p.answers > 0 {
		return
	}
	switch {
	case 4*p.slow > 3*p.good:
		p.halve(now, leastWindow)
	case p.full && !p.growing:
		p.grow(now)
	}
	p.look()
}

// look starts a new count, of as many answers as the window is wide.
func (p *Pace) look() {
	p.answers, p.good, p.slow, p.full = int(p.window), 0, 0, len(p.owners) > 0
}

func (p *Pace) grow(now time.Time) {
	// At this size the server was overloaded before. But it may have more room now, so each step is larger.
	if p.ceiling > 0 && p.window >= p.ceiling {
		if p.near.IsZero() {
			p.near = now
		}
		if now.Sub(p.grown) < growsEvery {
			return
		}
		p.grown = now
		p.window += min(float64(now.Sub(p.near)/(2*growsEvery)), p.window/10)
	}
	p.window++
}

// A callKind identifies calls that usually take about the same time.
type callKind struct {
	method, resource, subresource string
	named                         bool
}

func kindOf(req *http.Request) callKind {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if i := slices.Index(parts, "namespaces"); i >= 0 && len(parts) > i+2 {
		parts = parts[i+2:]
	} else if i := slices.Index(parts, "apis"); i >= 0 && len(parts) > i+3 {
		parts = parts[i+3:]
	} else if i := slices.Index(parts, "api"); i >= 0 && len(parts) > i+2 {
		parts = parts[i+2:]
	}
	kind := callKind{method: req.Method, resource: parts[0], named: len(parts) > 1}
	if len(parts) > 2 {
		kind.subresource = parts[2]
	}
	return kind
}

// isLocal reports whether a call failed before it reached the server, or was canceled.
func isLocal(err error) bool {
	return errors.Is(err, errNotWritten) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// usual holds the durations of the fastest calls of one kind, which are those of a server that has little to do.
type usual struct {
	fastest, earlier time.Duration // the durations of the fastest calls in this period and in the previous period
	since            time.Time
}

// isExceeded records the duration of a call, and reports whether the call was slow.
func (u *usual) isExceeded(now time.Time, took time.Duration) bool {
	if now.Sub(u.since) >= usualFor {
		u.earlier, u.fastest, u.since = u.fastest, took, now
	}
	u.fastest = min(u.fastest, took)
	usually := u.fastest
	if u.earlier > 0 {
		usually = min(usually, u.earlier)
	}
	return took > slower*usually+slowerBy
}

// halve halves the window, but not below least.
func (p *Pace) halve(now time.Time, least float64) {
	p.window = max(min(p.window, least), p.window/2)
	p.changed, p.growing, p.near = now, false, time.Time{}
	p.look()
}

func (p *Pace) hold(now time.Time, retryAfter string) {
	seconds, err := strconv.Atoi(retryAfter)
	if err != nil || seconds <= 0 {
		return
	}
	if until := now.Add(min(time.Duration(seconds)*time.Second, longestHold)); until.After(p.held) {
		p.held = until
	}
}

// isOverload reports whether a response comes from an overloaded server, or from a proxy in front of it.
func isOverload(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		// A webhook answered one creation with a 429, in a Status. The server itself has room for other calls.
		return !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/")
	}
	return false
}
