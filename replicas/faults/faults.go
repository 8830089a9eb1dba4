// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Faults spoils the calls and watches of one operator, and records each call. If the same calls are made again with
// the same seed and rules, they meet the same faults. The zero Faults spoils nothing and records.
//
// Set the fields before the first call. A Faults must not be copied. Its methods are safe for concurrent use.
type Faults struct {
	Seed  uint64
	Rules []Rule

	mu       sync.Mutex
	current  *process
	started  int         // the number of the process that runs
	met      map[int]int // the number of calls that each rule matched
	done     map[int]int // the number of faults of each rule
	calls    []*Call
	versions []version
	pending  int       // number of calls that will reach the server later
	until    time.Time // the last fault that ends by itself ends then
}

// A Call is one call of the operator, and what became of it.
type Call struct {
	Process                         int // 1 for the first process of Run
	Verb, Resource, Namespace, Name string
	Began                           time.Time
	Landed                          time.Time // when the server answered; zero if it never got the call, or if no answer came
	Server                          int       // the status of the server's answer; 0 if none came
	Client                          int       // the status that the client got; 0 means a broken connection
	Faults                          []Rule    // those that the call met or began; usually none
}

func (c Call) String() string {
	text := []string{fmt.Sprintf("process %d: %s %s %s: server %d, client %d", c.Process, c.Verb, c.Resource, c.Name, c.Server, c.Client)}
	if late := c.Landed.Sub(c.Began).Round(time.Millisecond); late > 0 {
		text[0] += fmt.Sprintf(", after %v", late)
	}
	for _, r := range c.Faults {
		text = append(text, "["+r.text()+"]")
	}
	return strings.Join(text, " ")
}

// A process is one process of the operator: all transports that were wrapped between two stops.
type process struct {
	number  int
	ctx     context.Context //nolint:containedctx // it ends when the process is stopped
	stop    context.CancelFunc
	watches map[*stream]struct{}
}

// A version is a resourceVersion of the server, and when it was seen.
type version struct {
	at     time.Time
	number uint64
}

// errBroken is the error of a client whose connection was closed by the other side.
var errBroken = fmt.Errorf("faults: the connection is broken: %w", io.ErrUnexpectedEOF)

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// Wrap returns a RoundTripper that sends requests through the argument next, and spoils them by the rules. A nil next
// means http.DefaultTransport. The result belongs to the process that runs when Wrap is called. Once this process is
// stopped, each request fails. If a rule is not valid, each request fails too, with an error that names it.
func (f *Faults) Wrap(next http.RoundTripper) http.RoundTripper {
	next = cmp.Or(next, http.DefaultTransport)
	p := f.running()
	return roundTripper(func(req *http.Request) (*http.Response, error) { return f.trip(p, next, req) })
}

// Run runs the operator until ctx ends or the operator ends by itself, and returns its error. The function
// operator runs one process of it, and must make its clients itself. When a rule stops the process, its calls fail
// and its context ends. After the function has returned, Run calls it again for the next process.
func (f *Faults) Run(ctx context.Context, operator func(ctx context.Context) error) error {
	if operator == nil {
		return errors.New("faults: there is no operator to run")
	}
	for {
		p := f.running()
		life, end := context.WithCancel(ctx)
		detach := context.AfterFunc(p.ctx, end)
		err := operator(life)
		detach()
		end()
		if p.ctx.Err() == nil || ctx.Err() != nil {
			return err
		}
	}
}

// running returns the process that runs.
func (f *Faults) running() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil || f.current.ctx.Err() != nil {
		f.started++
		f.current = &process{number: f.started, watches: map[*stream]struct{}{}}
		f.current.ctx, f.current.stop = context.WithCancel(context.Background())
	}
	if f.met == nil {
		f.met, f.done = map[int]int{}, map[int]int{}
	}
	return f.current
}

// Calls returns all calls until now, in the order in which they began. Calls for anything but objects, such as
// discovery and logs, are neither spoiled nor recorded.
func (f *Faults) Calls() (calls []Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		calls = append(calls, *c)
	}
	return calls
}

func (f *Faults) check() error {
	for i, r := range f.Rules {
		if err := r.check(); err != nil {
			return fmt.Errorf("faults: rule %d: %w", i+1, err)
		}
	}
	return nil
}

func (f *Faults) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *Faults) trip(p *process, next http.RoundTripper, req *http.Request) (resp *http.Response, err error) {
	req, body, err := copyOf(req)
	if err = errors.Join(err, f.check()); err != nil {
		return nil, err
	}
	c := callOf(req, body)
	switch {
	case c == nil && p.ctx.Err() != nil:
		return nil, errBroken
	case c == nil:
		return next.RoundTrip(req)
	}
	c.Process = p.number
	rule, begins := f.decide(p, c, req)
	defer func() {
		if err == nil {
			f.locked(func() { c.Client = resp.StatusCode })
		}
	}()
	switch rule.Fault {
	case Refuse:
		return refuse(req, rule)
	case LandLate, StopProcess:
		f.locked(func() { f.pending++ })
		time.AfterFunc(rule.Delay, func() {
			if resp, err := f.send(context.WithoutCancel(req.Context()), next, c, req); err == nil {
				_ = resp.Body.Close()
			}
			f.locked(func() { f.pending-- })
		})
		return nil, errBroken
	case OldList:
		f.locked(func() { ask(req, f.before(rule.Delay)) })
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	if resp, err = f.send(ctx, next, c, req); err == nil && isWatch(c, resp) {
		s := &stream{faults: f, process: p, resource: c.Resource, body: resp.Body, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1)}
		s.open(isWatchList(req), begins)
		resp.Body = s
		return resp, nil
	}
	cancel(nil)
	if err == nil && (rule.Fault == LoseAnswer || p.ctx.Err() != nil) {
		return nil, errBroken
	}
	return resp, err
}

// send sends a call, and reads the answer to its end, unless it is that of a watch.
func (f *Faults) send(ctx context.Context, next http.RoundTripper, c *Call, req *http.Request) (*http.Response, error) {
	resp, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	var object metav1.PartialObjectMetadata
	if !isWatch(c, resp) {
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		object = metaOf(answer)
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(answer)), int64(len(answer))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Landed, c.Server = time.Now(), resp.StatusCode
	f.saw(object)
	if c.Verb == "create" {
		c.Name = cmp.Or(c.Name, object.Name) // the server has chosen it
	}
	return resp, nil
}

// decide records a call. It returns the rule whose fault the call meets, and those whose faults begin with the watch
// that the call asks for. Faults of watches that begin with any other call begin here.
func (f *Faults) decide(p *process, c *Call, req *http.Request) (met Rule, begins []Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
	if p.ctx.Err() != nil {
		c.Faults = []Rule{{Fault: StopProcess}}
		return Rule{Fault: Refuse}, nil
	}
	for k := range 2 * len(f.Rules) { // faults of watches come last, because a watch that is refused must not use them up
		i := k % len(f.Rules)
		r, asked := f.Rules[i], *c
		if r.spoilsWatches() != (k >= len(f.Rules)) {
			continue
		}
		if r.Fault == OldList && c.Verb == "watch" && isWatchList(req) {
			asked.Verb = "list"
		}
		isRefused := met.Fault == Refuse && r.spoilsWatches() && c.Verb == "watch"
		if isRefused || !r.matches(&asked) || r.Fault == OldList && !asksCache(req) {
			continue
		}
		n := f.met[i] + 1
		isTaken := met.Fault != "" && !r.spoilsWatches() || r.Fault == OldList && f.before(r.Delay) == 0
		strikes := !isTaken && r.strikes(f.Seed, i, n, f.done[i])
		if asked.Verb == c.Verb {
			f.met[i] = n
		}
		switch {
		case !strikes:
			continue
		case asked.Verb != c.Verb: // the informer lists next, as with a server that has no such watches, and meets the fault then
			met = Rule{Fault: Refuse, Status: http.StatusUnprocessableEntity}
			continue
		case !r.spoilsWatches():
			met = r
		case c.Verb == "watch":
			begins = append(begins, r)
		case !p.begin(r, c.Resource):
			continue
		}
		f.done[i]++
		c.Faults = append(c.Faults, r)
		if r.Fault != OldList { // its delay is about the past
			f.until = later(f.until, time.Now().Add(r.Delay))
		}
	}
	if met.Fault == StopProcess {
		p.stop()
	}
	return met, begins
}

// begin begins a fault of the open watches of a resource, and reports whether there are any.
func (p *process) begin(r Rule, resource string) (begun bool) {
	resource, _, _ = strings.Cut(resource, "/")
	for s := range p.watches {
		if s.resource == resource {
			begun = true
			s.change(func() { s.apply(r) })
		}
	}
	return begun
}

func (f *Faults) saw(object metav1.PartialObjectMetadata) {
	if number := numberOf(object.ResourceVersion); number > 0 {
		f.versions = append(f.versions, version{time.Now(), number})
	}
}

// before returns the newest version that was seen before a delay, or the oldest one, or 0 if none was.
func (f *Faults) before(delay time.Duration) (number uint64) {
	limit := time.Now().Add(-delay)
	for i, v := range f.versions {
		if i == 0 || !v.at.After(limit) {
			number = max(number, v.number)
		}
	}
	return number
}

// end returns when the last fault ends that ends by itself. It is not before now as long as a call has yet to land.
func (f *Faults) end() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pending > 0 {
		return later(f.until, time.Now())
	}
	return f.until
}

func later(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// pathOf matches the path of a request for objects: namespace, resource, name and subresource.
var pathOf = regexp.MustCompile(`^.*?/(?:api|apis/[^/]+)/v[^/]+/(?:namespaces/([^/]+)/)?([^/]+)(?:/([^/]+))?(?:/([^/]+))?$`)

// connections are subresources whose answers may have no end.
var connections = []string{"attach", "exec", "log", "portforward", "proxy"}

var methods = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get",
}

// callOf reads the verb, the resource and the name of a request. It returns nil for requests that are not about
// objects.
func callOf(req *http.Request, body []byte) *Call {
	part := pathOf.FindStringSubmatch(req.URL.Path)
	if part == nil || slices.Contains(connections, part[4]) {
		return nil
	}
	c := &Call{Began: time.Now(), Verb: methods[req.Method], Namespace: part[1], Resource: part[2], Name: cmp.Or(part[3], metaOf(body).Name)}
	if c.Namespace != "" && (c.Resource == "status" || c.Resource == "finalize") {
		c.Namespace, c.Resource, c.Name, part[4] = "", "namespaces", c.Namespace, c.Resource
	}
	if part[4] != "" {
		c.Resource += "/" + part[4]
	}
	watch := req.URL.Query().Get("watch")
	switch {
	case c.Verb == "get" && (watch == "true" || watch == "1"):
		c.Verb = "watch"
	case c.Verb == "get" && c.Name == "":
		c.Verb = "list"
	case c.Verb == "delete" && c.Name == "":
		c.Verb = "deletecollection"
	}
	return c
}

// copyOf returns a copy of a request, and its body. It reads the body to its end and closes it, as a RoundTripper must.
// The server is asked for JSON in place of other encodings, which any client understands too. Compression is left to the
// transport.
func copyOf(req *http.Request) (_ *http.Request, body []byte, err error) {
	req = req.Clone(req.Context())
	req.Header.Del("Accept-Encoding")
	if accept := req.Header.Get("Accept"); accept != "" {
		req.Header.Set("Accept", otherEncodings.ReplaceAllString(accept, runtime.ContentTypeJSON))
	}
	if req.Body != nil && req.Body != http.NoBody {
		body, err = io.ReadAll(req.Body)
		_ = req.Body.Close()
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
	}
	return req, body, err
}

var otherEncodings = regexp.MustCompile(`application/(vnd\.kubernetes\.protobuf|cbor(-seq)?)`)

// metaOf reads the metadata of an object or a list in JSON, or of an object in protobuf. If it can read neither, all
// fields are empty.
func metaOf(data []byte) (m metav1.PartialObjectMetadata) {
	var object runtime.Unknown
	if body, isProtobuf := bytes.CutPrefix(data, []byte("k8s\x00")); !isProtobuf {
		_ = json.Unmarshal(data, &m)
	} else if object.Unmarshal(body) == nil {
		_ = m.Unmarshal(object.Raw)
	}
	return m
}

func numberOf(version string) uint64 {
	number, _ := strconv.ParseUint(version, 10, 64)
	return number
}

func isWatch(c *Call, resp *http.Response) bool {
	return c.Verb == "watch" && resp.StatusCode == http.StatusOK
}

// isWatchList reports whether a watch begins with the existing objects.
func isWatchList(req *http.Request) bool { return req.URL.Query().Get("sendInitialEvents") == "true" }

// asksCache reports whether a list, or a watch with initial events, may be answered with any state.
func asksCache(req *http.Request) bool {
	version := req.URL.Query().Get("resourceVersion")
	return version == "0" || version == "" && isWatchList(req)
}

// ask changes a list of the cache into one of an earlier version.
func ask(req *http.Request, version uint64) {
	query := req.URL.Query()
	query.Set("resourceVersion", strconv.FormatUint(version, 10))
	query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	req.URL.RawQuery = query.Encode()
}

// refuse answers a call in place of the server.
func refuse(req *http.Request, r Rule) (*http.Response, error) {
	if r.Status == 0 {
		return nil, errBroken
	}
	resp := &http.Response{
		Status: fmt.Sprint(r.Status, " ", http.StatusText(r.Status)), StatusCode: r.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(statusOf(r.Status))),
		ContentLength: -1, Request: req,
	}
	if r.Delay > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(int((r.Delay+time.Second-1)/time.Second)))
	}
	return resp, nil
}

func statusOf(code int) []byte {
	status := apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, false).Status()
	status.TypeMeta, status.Message = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, "faults: "+http.StatusText(code)
	if code == http.StatusGone {
		status.Reason = metav1.StatusReasonExpired
	}
	text, _ := json.Marshal(status) // has nothing that cannot be encoded
	return text
}

// forEver is the end of a fault without an end.
const forEver = 100 * 365 * 24 * time.Hour

// A stream is the body of a watch. It reads the server's events at once, as a client that does not hang would, and
// gives them to the client as the faults allow.
type stream struct {
	faults   *Faults
	process  *process
	resource string
	body     io.ReadCloser
	ctx      context.Context //nolint:containedctx // it ends with the watch, and its cause ends all reads
	cancel   context.CancelCauseFunc
	detach   func() bool   // from the process
	wake     chan struct{} // has room for one

	mu     sync.Mutex
	queue  []event
	sent   []event // for a replay
	rest   []byte  // of the event that the client reads
	lag    time.Duration
	held   time.Time
	begins []Rule // whose faults begin after the initial events; nil once they have begun
}

// An event is one event of a watch, or the error after the last one.
type event struct {
	data []byte
	err  error
	due  time.Time
}

// open lets the client read the watch until the process is stopped. The rules begin after the initial events, if there
// are any.
func (s *stream) open(hasInitialEvents bool, begins []Rule) {
	s.detach = context.AfterFunc(s.process.ctx, func() { s.cancel(errBroken) })
	s.faults.locked(func() { s.process.watches[s] = struct{}{} })
	if s.begins = begins; !hasInitialEvents {
		s.change(s.start)
	}
	go s.pump()
}

// start begins the faults that wait for the end of the initial events.
func (s *stream) start() {
	for _, r := range s.begins {
		s.apply(r)
	}
	s.begins = nil
}

func (s *stream) pump() {
	body := bufio.NewReader(s.body)
	for {
		data, err := body.ReadBytes('\n')
		s.change(func() {
			if s.queue = append(s.queue, event{data: data, due: time.Now().Add(s.lag)}); err != nil {
				s.queue = append(s.queue, event{err: err})
			}
		})
		if err != nil {
			return
		}
		var e metav1.WatchEvent
		_ = json.Unmarshal(data, &e)
		s.faults.locked(func() { s.faults.saw(metaOf(e.Object.Raw)) })
	}
}

// change changes the state of the stream, and wakes its reader.
func (s *stream) change(do func()) {
	s.mu.Lock()
	do()
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// apply begins a fault of the watch.
func (s *stream) apply(r Rule) {
	switch r.Fault {
	case WatchLate:
		s.lag = r.Delay
	case WatchHang:
		if s.held = time.Now().Add(r.Delay); r.Delay == 0 {
			s.held = time.Now().Add(forEver)
		}
	case WatchReplay:
		time.AfterFunc(r.Delay, func() { s.change(func() { s.queue = append(slices.Clone(s.sent), s.queue...) }) })
	case WatchEnd:
		time.AfterFunc(r.Delay, func() { s.change(func() { s.end(r.Status) }) })
	}
}

// end drops what the client has not read. The client must list or watch again.
func (s *stream) end(status int) {
	s.queue, s.held = []event{{err: io.EOF}}, time.Time{}
	if status != 0 {
		last := fmt.Appendf(nil, `{"type":"ERROR","object":%s}`+"\n", statusOf(status))
		s.queue = append([]event{{data: last}}, s.queue...)
	}
}

func (s *stream) Close() error {
	s.detach()
	s.cancel(http.ErrBodyReadAfterClose)
	s.faults.locked(func() { delete(s.process.watches, s) })
	return s.body.Close()
}

func (s *stream) Read(data []byte) (int, error) {
	for s.ctx.Err() == nil {
		s.mu.Lock()
		wait := s.advance()
		n := copy(data, s.rest)
		s.rest = s.rest[n:]
		s.mu.Unlock()
		if n > 0 || len(data) == 0 {
			return n, nil
		}
		select {
		case <-s.wake:
		case <-time.After(wait):
		case <-s.ctx.Done():
		}
	}
	return 0, context.Cause(s.ctx)
}

// advance makes the next event that is due the one that the client reads. It returns the time until it should be called
// again if there is none.
func (s *stream) advance() (wait time.Duration) {
	if len(s.rest) > 0 {
		return 0
	}
	if len(s.queue) == 0 {
		return forEver
	}
	next := s.queue[0]
	if wait := time.Until(later(next.due, s.held)); wait > 0 {
		return wait
	}
	s.queue, s.rest = s.queue[1:], next.data
	switch {
	case next.err != nil:
		s.cancel(next.err)
	case bytes.Contains(next.data, []byte(metav1.InitialEventsAnnotationKey)):
		s.start()
	default:
		s.sent = append(s.sent, next)
	}
	return 0
}
