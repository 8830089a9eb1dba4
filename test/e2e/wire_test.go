// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A wire records all requests of the controllers to the server, in order. It can also delay watches and lose
// answers.
type wire struct {
	mu    sync.Mutex
	clock int // counts the beginnings and the ends of calls
	calls []*call
	lags  map[string]time.Duration // the delays of watches, by resource
	holds map[string]chan struct{} // for each resource, its watches hang until this channel is closed
	loss  func() fault             // returns the fault for the next answer to a write of a pod, or nil for no fault
	traps []trap
}

func newWire() *wire {
	return &wire{lags: map[string]time.Duration{}, holds: map[string]chan struct{}{}}
}

// A trap waits until enough requests with its verb and resource have begun, and then runs trap.do in a goroutine.
// The number of these requests that have not begun yet is in trap.calls.
type trap struct {
	verb, resource string
	calls          int
	do             func()
}

// A call is one request, with its HTTP verb, its resource and the name of the object. Examples of a resource are
// "pods" and "pods/status".
type call struct {
	verb, resource, name string
	contentType, body    string // set only if the request is a patch
	begin, end           int    // times by wire.clock, with end 0 until the call ends
	status               int    // the HTTP status, or 0 if no answer came
}

func (c call) ok() bool { return c.status >= 200 && c.status < 300 }

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		c := w.begin(request)
		response, err := next.RoundTrip(request)
		if fault := w.faultOf(c); fault != nil && err == nil {
			response, err = fault(response)
		}
		w.end(c, response)
		if err == nil && request.URL.Query().Has("watch") {
			lagging := newLagging(response.Body, func() time.Duration { return w.lagOf(c.resource) })
			response.Body = held{lagging, func() <-chan struct{} { return w.holdOf(c.resource) }}
		}
		return response, err
	})
}

// lag delays the watches of a resource by the given time, from now on.
func (w *wire) lag(resource string, by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lags[resource] = by
}

func (w *wire) lagOf(resource string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lags[resource]
}

// hold makes the watches of a resource hang until the returned function is called. No event is lost.
func (w *wire) hold(resource string) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	hold := make(chan struct{})
	w.holds[resource] = hold
	return sync.OnceFunc(func() {
		close(hold)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.holds, resource)
	})
}

func (w *wire) holdOf(resource string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holds[resource]
}

// held is the body of a watch that may hang.
type held struct {
	io.ReadCloser
	hold func() <-chan struct{}
}

func (h held) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if hold := h.hold(); hold != nil {
		<-hold
	}
	return n, err
}

// A fault takes the server's answer to a call, and returns the answer or the error that the client gets instead.
// The server has already handled the call, so the call may have taken effect.
type fault func(*http.Response) (*http.Response, error)

// cut drops the answer and returns an error, as if the connection was lost.
func cut(answer *http.Response) (*http.Response, error) {
	_ = answer.Body.Close()
	return nil, io.ErrUnexpectedEOF
}

// replace returns a fault that answers with another status code. If retryAfter is not empty, it is the number of
// seconds in the header Retry-After.
func replace(code int, retryAfter string) fault {
	return func(answer *http.Response) (*http.Response, error) {
		_ = answer.Body.Close()
		replaced := &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: answer.Request}
		if retryAfter != "" {
			replaced.Header.Set("Retry-After", retryAfter)
		}
		return replaced, nil
	}
}

// lose applies the fault to a share of the answers to writes of pods, from now on.
func (w *wire) lose(share float64, f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loss = func() fault {
		if rand.Float64() < share {
			return f
		}
		return nil
	}
}

func (w *wire) faultOf(c *call) fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loss == nil || c.resource != "pods" || c.verb == http.MethodGet {
		return nil
	}
	return w.loss()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func (w *wire) begin(request *http.Request) *call {
	c := &call{verb: request.Method}
	c.resource, c.name = resourceOf(request.URL.Path)
	if request.Method == http.MethodPatch {
		c.contentType = request.Header.Get("Content-Type")
		c.body = bodyOf(request)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	c.begin = w.clock
	w.calls = append(w.calls, c)
	for i := range w.traps {
		if t := &w.traps[i]; t.verb == c.verb && t.resource == c.resource {
			if t.calls--; t.calls == 0 {
				go t.do()
			}
		}
	}
	return c
}

// w.at sets a trap for the n-th call with the verb and the resource, counted from now. When this call begins, the
// trap runs do() in a goroutine. After do() has returned, the trap closes the returned channel.
func (w *wire) at(verb, resource string, n int, do func()) <-chan struct{} {
	done := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traps = append(w.traps, trap{verb, resource, n, func() { defer close(done); do() }})
	return done
}

func (w *wire) end(c *call, response *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	c.end = w.clock
	if response != nil {
		c.status = response.StatusCode
	}
}

// of returns the calls with the verb to the resource, in the order in which they began.
func (w *wire) of(verb, resource string) []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []call
	for _, c := range w.calls {
		if c.verb == verb && c.resource == resource {
			found = append(found, *c)
		}
	}
	return found
}

// to returns the calls with the verb to the object with the name, in the order in which they began.
func (w *wire) to(verb, resource, name string) []call {
	return slices.DeleteFunc(w.of(verb, resource), func(c call) bool { return c.name != name })
}

// writes returns all calls that may change something, except those about events.
func (w *wire) writes() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []call
	for _, c := range w.calls {
		if c.verb != http.MethodGet && c.resource != "events" {
			found = append(found, *c)
		}
	}
	return found
}

// resourceOf returns the resource and the name in the path of a namespaced request. For example, the path
// /api/v1/namespaces/NAMESPACE/pods/NAME/status contains the resource pods/status and the name NAME.
func resourceOf(path string) (resource, name string) {
	_, rest, ok := strings.Cut(path, "/namespaces/")
	if !ok {
		return "", ""
	}
	parts := append(strings.Split(rest, "/"), "", "", "")
	resource, name = parts[1], parts[2]
	if parts[3] != "" {
		resource += "/" + parts[3]
	}
	return resource, name
}

func bodyOf(request *http.Request) string {
	if request.GetBody == nil {
		return ""
	}
	body, err := request.GetBody()
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(body)
	_ = body.Close()
	return string(text)
}

// lagging is the body of a watch in which every piece arrives late.
type lagging struct {
	io.ReadCloser
	pieces chan piece
	rest   []byte
}

type piece struct {
	data []byte
	err  error
	due  time.Time
}

func newLagging(body io.ReadCloser, by func() time.Duration) *lagging {
	l := &lagging{ReadCloser: body, pieces: make(chan piece, 1<<12)}
	go func() {
		defer close(l.pieces)
		for {
			buffer := make([]byte, 32<<10)
			n, err := body.Read(buffer)
			l.pieces <- piece{buffer[:n], err, time.Now().Add(by())}
			if err != nil {
				return
			}
		}
	}()
	return l
}

func (l *lagging) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		next, open := <-l.pieces
		if !open {
			return 0, io.EOF
		}
		time.Sleep(time.Until(next.due))
		l.rest = next.data
		if len(next.data) == 0 {
			return 0, next.err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}
