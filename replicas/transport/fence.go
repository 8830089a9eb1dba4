// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultRenewDeadline is the default renew deadline of electors in client-go and controller-runtime.
const DefaultRenewDeadline = 10 * time.Second

// A Fence refuses the writes of a leader that cannot prove that it holds its lease. A process can be paused,
// for example because its machine sleeps. When it continues, its lease may have expired, and another process
// may have become the leader, but the elector of the paused process may notice that only after the next write.
// With a Fence, the process does not send this write, and the call returns an error. But a Fence cannot recall
// a write that had been given to the network before the pause. Such a write may arrive after it.
//
// The elector sends its requests for the lease through the Fence, which inspects them, so no other connection
// between the two is required. For each renewal that the server accepts, the Fence records when the elector
// sent it. When the renew deadline has passed since the last of these times, the Fence refuses writes. Another
// process takes over the lease only after the lease duration, which must be longer:
//
//	renew deadline < lease duration
//
// The Fence measures the time on the wall clock and on the monotonic clock, and uses the longer of the two,
// because the wall clock can be set back, and the monotonic clock can stop while a machine sleeps.
//
// After a pause, client-go's elector may release a lease that another process has acquired meanwhile, so that
// a third one could become the leader while the second is still writing. The Fence refuses such a release, and
// no other request for the lease. It never refuses a read. Before the process first holds the lease, a Fence with the
// name of a lease allows all writes, because the controllers that need it have not started yet. The zero Fence has no
// lease and refuses nothing.
type Fence struct {
	lease    types.NamespacedName
	deadline time.Duration
	now      func() reading // nil means readClocks
	refused  atomic.Int64

	mu     sync.Mutex
	holder string   // the identity of this process in the lease; "" before the process first holds the lease
	sent   *reading // when the last renewal was sent; nil if the lease is not held
	other  string   // the other process that held the lease when the lease was last read; "" if there was none
}

// NewFence returns a Fence for a lease, with the elector's renew deadline; zero or less means
// DefaultRenewDeadline. Wrap the configuration before you make the elector's client from it:
//
//	fence := transport.NewFence(types.NamespacedName{Namespace: "default", Name: "pools.example.com"}, 0)
//	config.Wrap(fence.Wrap)
//
// The namespace and the name must be those of the elector's lease. If one of them is empty, the Fence refuses all
// writes. Otherwise, without an elector, it refuses none. A Fence supports only leases of coordination.k8s.io/v1.
func NewFence(lease types.NamespacedName, renewDeadline time.Duration) *Fence {
	if renewDeadline <= 0 {
		renewDeadline = DefaultRenewDeadline
	}
	return &Fence{lease: lease, deadline: renewDeadline}
}

var errNotWritten = errors.New("not written")

// Wrap returns a RoundTripper that sends each request through next, unless the Fence refuses it. A nil next
// means http.DefaultTransport. The Fence checks a request just before it is sent, after any delay by
// client-go's rate limiter, and again when client-go resends it, and each time that a part of its body is read.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper { return wrap(next, f.trip) }

// Refused returns the number of writes that the Fence has refused.
func (f *Fence) Refused() int64 { return f.refused.Load() }

// Check returns an error if the Fence would refuse a write now.
func (f *Fence) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.deadline > 0 && (f.lease.Namespace == "" || f.lease.Name == ""):
		// controller-runtime finds out the namespace by itself if LeaderElectionNamespace is "". A Fence that waits for such a
		// lease would never refuse a write, and nobody would notice.
		return fmt.Errorf("%w: the Fence's lease %q has no namespace or no name", errNotWritten, f.lease)
	case f.holder == "":
		return nil
	case f.sent == nil:
		return fmt.Errorf("%w: the lease is not held", errNotWritten)
	}
	if age := f.read().since(*f.sent); age >= f.deadline {
		return fmt.Errorf("%w: the lease was renewed %v ago, and a write needs a renewal in the last %v", errNotWritten, age.Round(time.Millisecond), f.deadline)
	}
	return nil
}

func (f *Fence) trip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	switch asked, isLease := f.asksFor(req); {
	case isLease:
		return f.tripOfLease(next, req, asked)
	case isRead(req):
		return next.RoundTrip(req)
	}
	if err := f.check(); err != nil {
		return refuse(req, err)
	}
	return next.RoundTrip(f.guard(req))
}

// check is Check, and counts the refused writes.
func (f *Fence) check() error {
	err := f.Check()
	if err != nil {
		f.refused.Add(1)
	}
	return err
}

// asksFor reports whether a request is one for the lease, and returns the lease that it would write.
func (f *Fence) asksFor(req *http.Request) (asked *coordinationv1.Lease, isLease bool) {
	of := req.URL.Path
	if req.Method != http.MethodPost { // a creation has the name in its body only
		var name string
		if of, name = path.Split(of); name != f.lease.Name {
			return nil, false
		}
	}
	if !strings.HasSuffix(strings.TrimSuffix(of, "/"), "/apis/coordination.k8s.io/v1/namespaces/"+f.lease.Namespace+"/leases") {
		return nil, false
	}
	if (req.Method == http.MethodPost || req.Method == http.MethodPut) && req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			asked = readLease(body)
		}
	}
	return asked, req.Method != http.MethodPost || asked != nil && asked.Name == f.lease.Name
}

// tripOfLease sends a request for the lease, and learns from the response whether this process holds it.
func (f *Fence) tripOfLease(next http.RoundTripper, req *http.Request, asked *coordinationv1.Lease) (*http.Response, error) {
	// The clocks are read before the request: the process may be paused for a minute before it reads the
	// answer, and by then another one may lead.
	sent := f.read()
	if asked != nil && holderOf(asked) == "" || req.Method == http.MethodDelete {
		// Before the request is sent, because the next holder may write as soon as the server has it.
		if err := f.release(); err != nil {
			return refuse(req, err)
		}
		asked = nil
	}
	resp, err := next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch ok := resp.StatusCode >= 200 && resp.StatusCode < 300; {
	case !isRead(req):
		if ok && asked != nil {
			f.renew(holderOf(asked), sent)
		}
	case resp.StatusCode == http.StatusNotFound:
		f.lose()
	case ok:
		var read bytes.Buffer
		if lease := readLease(struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, &read), resp.Body}); lease != nil {
			f.shown(holderOf(lease))
		}
		resp.Body = io.NopCloser(&read)
	}
	return resp, nil
}

func (f *Fence) read() reading {
	if f.now == nil {
		return readClocks()
	}
	return f.now()
}

func (f *Fence) renew(holder string, sent reading) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holder, f.sent, f.other = holder, &sent, ""
}

func (f *Fence) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = nil
}

// release records that the process gives up the lease, or returns an error if the lease is another one's.
func (f *Fence) release() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = nil
	// After a pause, client-go's elector reads the lease, does not look who holds it, and empties it. A third
	// process would lead while the second still writes.
	if f.other != "" {
		f.refused.Add(1)
		return fmt.Errorf("%w: the lease is not released, because %s holds it", errNotWritten, f.other)
	}
	return nil
}

// shown records the lease holder that the server has returned.
func (f *Fence) shown(holder string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.other = ""; holder == f.holder {
		return
	}
	f.sent = nil
	if f.holder != "" { // to a process that has not led yet, nothing is refused
		f.other = holder
	}
}

// guard returns the request with a guardedBody. An http.Transport reads the body when it has a connection, and
// again when it retries the request, and a server acts on a request only after it has the whole body.
func (f *Fence) guard(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	guarded := req.WithContext(req.Context())
	guarded.Body = f.guardBody(req, req.Body)
	if req.GetBody != nil {
		guarded.GetBody = func() (io.ReadCloser, error) {
			again, err := req.GetBody()
			return f.guardBody(req, again), err
		}
	}
	return guarded
}

// guardBody wraps a body of the request. A request whose length is unknown has a ContentLength of 0 or -1.
func (f *Fence) guardBody(req *http.Request, body io.ReadCloser) *guardedBody {
	return &guardedBody{body, f, max(req.ContentLength, 0)}
}

// A guardedBody is a request body that calls the Fence's check before each read.
type guardedBody struct {
	io.ReadCloser
	fence *Fence
	left  int64 // number of bytes not read yet; 0 if the length is unknown, and negative if the whole body has been read
}

func (b *guardedBody) Read(data []byte) (int, error) {
	// The request waits for a connection, and the lease ends meanwhile. But when the whole body has been read,
	// the server may act on it, and "not written" would be false.
	if b.left >= 0 {
		if err := b.fence.check(); err != nil {
			return 0, err
		}
	}
	n, err := b.ReadCloser.Read(data)
	if b.left > 0 {
		if b.left -= int64(n); b.left == 0 {
			b.left = -1
		}
	}
	return n, err
}

var leases = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		panic("transport: " + err.Error())
	}
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

// readLease reads a lease from JSON or protobuf, and returns nil for any other body.
func readLease(body io.ReadCloser) *coordinationv1.Lease {
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil
	}
	lease := &coordinationv1.Lease{}
	if _, _, err := leases.Decode(data, nil, lease); err != nil {
		return nil
	}
	return lease
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// A reading contains the time of the wall clock and of the monotonic clock at one instant.
type reading struct {
	wall      time.Time
	monotonic time.Duration // since the program began
}

var began = time.Now()

func readingOf(t time.Time) reading { return reading{t.Round(0), t.Sub(began)} }

func readClocks() reading { return readingOf(time.Now()) }

// since returns the time between two readings, by the clock that has gone further: a machine slept for a minute
// and its monotonic clock stood still, or the wall clock was set back an hour.
func (r reading) since(earlier reading) time.Duration {
	return max(r.wall.Sub(earlier.wall), r.monotonic-earlier.monotonic)
}
