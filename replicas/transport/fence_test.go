// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
)

func TestSince(t *testing.T) {
	t.Parallel()
	sent := reading{wall: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), monotonic: time.Hour}
	for _, row := range []struct {
		name            string
		wall, monotonic time.Duration
		want            time.Duration
	}{
		{"both clocks run", time.Second, time.Second, time.Second},
		{"the machine slept: the monotonic clock stood still", time.Minute, time.Second, time.Minute},
		{"the wall clock was set back", -time.Hour, time.Minute, time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, row.want, reading{sent.wall.Add(row.wall), sent.monotonic + row.monotonic}.since(sent))
		})
	}
	before := time.Now()
	assert.GreaterOrEqual(t, readClocks().since(readingOf(before)), time.Duration(0))
	assert.GreaterOrEqual(t, readingOf(before.Add(time.Hour)).since(readingOf(before)), time.Hour)
}

// A Fence of a lease that cannot exist refuses all writes.
func TestALeaseNeedsANamespace(t *testing.T) {
	t.Parallel()
	for _, lease := range []types.NamespacedName{{Name: "pools"}, {Namespace: "default"}, {}} {
		require.ErrorContains(t, NewFence(lease, 0).Check(), "has no namespace or no name")
	}
	require.NoError(t, (&Fence{}).Check())
}

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/default/leases/pools"

// at returns a Fence with clocks that stand still at the given time. The returned function sets the clocks to
// another time.
func at(start time.Time) (f *Fence, set func(time.Time)) {
	var now atomic.Pointer[time.Time]
	now.Store(&start)
	f = NewFence(types.NamespacedName{Namespace: "default", Name: "pools"}, 0)
	f.now = func() reading { return readingOf(*now.Load()) }
	return f, func(t time.Time) { now.Store(&t) }
}

// held returns a Fence of a process that has just renewed the lease.
func held() (f *Fence, set func(time.Time)) {
	f, set = at(time.Now())
	f.renew("me", f.now())
	return f, set
}

// A leaseStory sends an elector's requests through a Fence. Its fields determine the server's answers.
type leaseStory struct {
	*testing.T
	fence  *Fence
	set    func(time.Time)
	code   int    // the status code of the server's answers
	holder string // the holder in the server's lease
	err    error  // returned instead of an answer
	during func() // called while the server handles a request
}

func (s *leaseStory) send(method, path string, body []byte) {
	s.Helper()
	trip := s.fence.Wrap(tripper(func(req *http.Request) (*http.Response, error) {
		if s.during != nil {
			s.during()
		}
		if s.err != nil {
			return nil, s.err
		}
		answer := encode(s.T, "me", s.holder)
		if !isRead(req) {
			answer = nil
		}
		return &http.Response{StatusCode: s.code, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(answer))}, nil
	}))
	req, err := http.NewRequestWithContext(s.Context(), method, "https://server"+path, bytes.NewReader(body))
	require.NoError(s, err)
	resp, err := trip.RoundTrip(req)
	if s.err != nil {
		require.ErrorIs(s, err, s.err)
		return
	}
	require.NoError(s, err)
	read, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	assert.Equal(s, method == http.MethodGet, len(read) > 0, "the answer is there for the elector")
	require.NoError(s, resp.Body.Close())
}

func (s *leaseStory) renew(holder string) {
	s.send(http.MethodPut, leasePath, encode(s.T, "pools", holder))
}

func (s *leaseStory) look(holder string) {
	s.holder = holder
	s.send(http.MethodGet, leasePath, nil)
}

func encode(t *testing.T, name, holder string) []byte {
	t.Helper()
	lease := coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
	}
	if holder != "" {
		lease.Spec.HolderIdentity = &holder
	}
	data, err := json.Marshal(lease)
	require.NoError(t, err)
	return data
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestLease(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for name, row := range map[string]struct {
		happens func(s *leaseStory)
		want    string // part of the error of Check; "" means that Check allows writes
	}{
		"a process that has not led yet may write": {func(*leaseStory) {}, ""},
		"one that waits for another holder too":    {func(s *leaseStory) { s.look("other") }, ""},
		"a lease that was created is held": {func(s *leaseStory) {
			s.send(http.MethodPost, strings.TrimSuffix(leasePath, "/pools"), encode(s.T, "pools", "me"))
			s.set(start.Add(DefaultRenewDeadline))
		}, "renewed 10s ago"},
		"another lease is nothing to it": {func(s *leaseStory) {
			s.send(http.MethodPost, strings.TrimSuffix(leasePath, "/pools"), encode(s.T, "nodes", "me"))
			s.send(http.MethodPut, strings.Replace(leasePath, "pools", "nodes", 1), encode(s.T, "nodes", "me"))
			s.send(http.MethodPut, strings.Replace(leasePath, "default", "other", 1), encode(s.T, "pools", "me"))
			s.set(start.Add(time.Hour))
		}, ""},
		"a lease that was renewed is held until the deadline": {func(s *leaseStory) {
			s.renew("me")
			s.set(start.Add(DefaultRenewDeadline - 1))
		}, ""},
		"and not longer": {func(s *leaseStory) {
			s.renew("me")
			s.set(start.Add(DefaultRenewDeadline))
		}, "not written: the lease was renewed 10s ago, and a write needs a renewal in the last 10s"},
		"a pause in the middle of a renewal: the time counts when it was sent": {func(s *leaseStory) {
			s.during = func() { s.set(start.Add(DefaultRenewDeadline)) }
			s.renew("me")
		}, "renewed 10s ago"},
		"a renewal without an answer leaves the one before": {func(s *leaseStory) {
			s.renew("me")
			s.err = errors.New("timeout")
			s.set(start.Add(DefaultRenewDeadline - 1))
			s.renew("me")
		}, ""},
		"and proves nothing": {func(s *leaseStory) {
			s.renew("me")
			s.err = errors.New("timeout")
			s.set(start.Add(DefaultRenewDeadline))
			s.renew("me")
		}, "renewed 10s ago"},
		"a renewal that is refused proves nothing": {func(s *leaseStory) {
			s.renew("me")
			s.code = http.StatusConflict
			s.set(start.Add(DefaultRenewDeadline))
			s.renew("me")
		}, "renewed 10s ago"},
		"who gives the lease up writes nothing, whatever the answer is": {func(s *leaseStory) {
			s.renew("me")
			s.err = errors.New("timeout")
			s.renew("")
		}, "not written: the lease is not held"},
		"nor while the request for it is under way": {func(s *leaseStory) {
			s.renew("me")
			s.during = func() { assert.Error(s, s.fence.Check()) }
			s.renew("")
		}, "not held"},
		"who deletes the lease writes nothing": {func(s *leaseStory) {
			s.renew("me")
			s.send(http.MethodDelete, leasePath, nil)
		}, "not held"},
		"to see oneself changes nothing":                      {func(s *leaseStory) { s.renew("me"); s.look("me") }, ""},
		"to see another holder does":                          {func(s *leaseStory) { s.renew("me"); s.look("other") }, "not held"},
		"a lease that somebody emptied may soon be another's": {func(s *leaseStory) { s.renew("me"); s.look("") }, "not held"},
		"so may one that somebody deleted": {func(s *leaseStory) {
			s.renew("me")
			s.code = http.StatusNotFound
			s.look("")
		}, "not held"},
		"a read that fails shows nothing": {func(s *leaseStory) {
			s.renew("me")
			s.err = errors.New("timeout")
			s.look("")
		}, ""},
		"it can be held again": {func(s *leaseStory) { s.renew("me"); s.renew(""); s.renew("me") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &leaseStory{T: t, code: http.StatusOK}
			s.fence, s.set = at(start)
			row.happens(s)
			if row.want == "" {
				require.NoError(t, s.fence.Check())
				return
			}
			require.ErrorContains(t, s.fence.Check(), row.want)
			assert.Zero(t, s.fence.Refused())
		})
	}
}

// If client-go is configured to send protobuf, the Fence can read the lease in the request.
func TestLeaseInProtobuf(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, coordinationv1.AddToScheme(scheme))
	me := "me"
	var body bytes.Buffer
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "pools"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &me}}
	lease.SetGroupVersionKind(schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"})
	require.NoError(t, protobuf.NewSerializer(scheme, scheme).Encode(lease, &body))
	s := &leaseStory{T: t, code: http.StatusOK}
	s.fence, s.set = at(time.Now())
	s.send(http.MethodPut, leasePath, body.Bytes())
	s.set(time.Now().Add(time.Minute))
	require.ErrorContains(t, s.fence.Check(), "not written: the lease was renewed")
	assert.Nil(t, readLease(io.NopCloser(strings.NewReader("no lease"))))
	assert.Nil(t, readLease(io.NopCloser(failing{})))
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("cut") }

// A recorder is a server that counts the requests that arrive with their whole body.
type recorder struct{ whole atomic.Int32 }

func (r *recorder) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	if _, err := io.ReadAll(req.Body); err == nil {
		r.whole.Add(1)
	}
}

func TestFenceOnTheWire(t *testing.T) {
	t.Parallel()
	for _, version := range []struct {
		name  string
		http2 bool
	}{{"HTTP 1", false}, {"HTTP 2", true}} {
		t.Run(version.name, func(t *testing.T) {
			t.Parallel()
			served := &recorder{}
			server := httptest.NewUnstartedServer(served)
			server.EnableHTTP2 = version.http2
			server.StartTLS()
			t.Cleanup(server.Close)
			f, set := held()
			transport, _ := server.Client().Transport.(*http.Transport)
			late := func() { set(time.Now().Add(time.Minute)) }
			dial := func() {}
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				dial()
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			client := &http.Client{Transport: f.Wrap(transport)}
			call := func(method string, body io.Reader) error {
				req, err := http.NewRequestWithContext(t.Context(), method, server.URL, body)
				require.NoError(t, err)
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				assert.Equal(t, version.http2, resp.ProtoMajor == 2)
				return resp.Body.Close()
			}
			writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
			for _, method := range writes {
				require.NoError(t, call(method, bytes.NewBufferString("{}")), method)
			}
			require.EqualValues(t, len(writes), served.whole.Swap(0), "with a lease")

			transport = transport.Clone() // the new transport has no connections
			t.Cleanup(transport.CloseIdleConnections)
			client.Transport = f.Wrap(transport)
			dial = late
			require.ErrorContains(t, call(http.MethodDelete, bytes.NewBufferString("{}")), "not written: the lease was renewed")
			assert.Zero(t, served.whole.Load(), "the lease ended while the request waited for a connection")

			for _, method := range writes {
				require.ErrorContains(t, call(method, bytes.NewBufferString("{}")), "not written: the lease was renewed", method)
				require.ErrorContains(t, call(method, nil), "not written: the lease was renewed", method)
			}
			assert.Zero(t, served.whole.Load(), "the lease has ended")
			assert.EqualValues(t, 1+2*len(writes), f.Refused())

			require.NoError(t, call(http.MethodGet, nil))
			assert.EqualValues(t, 1, served.whole.Load(), "reads go on")
		})
	}

	for name, row := range map[string]struct {
		length  int64
		begins  bool // whether the transport has begun to read the body when the lease ends
		refused bool
	}{
		"a body of a known length":                                 {2, false, true},
		"a body whose length is unknown":                           {-1, false, true},
		"a body whose length is unknown, written as 0":             {0, false, true},
		"the rest of a body whose length is unknown":               {-1, true, true},
		"the rest of a body whose length is unknown, written as 0": {0, true, true},
		"nothing of a body that is already given to the network":   {2, true, false},
	} {
		t.Run("after the lease has ended, the Fence refuses "+name, func(t *testing.T) {
			t.Parallel()
			f, set := held()
			sends := tripper(func(req *http.Request) (*http.Response, error) {
				if row.begins {
					n, err := req.Body.Read(make([]byte, 2))
					require.NoError(t, err)
					require.Equal(t, 2, n)
				}
				set(time.Now().Add(time.Minute))
				_, err := io.ReadAll(req.Body)
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, err
			})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1", bytes.NewBufferString("{}"))
			require.NoError(t, err)
			req.ContentLength = row.length
			_, err = f.Wrap(sends).RoundTrip(req) //nolint:bodyclose // there is none
			if !row.refused {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "not written: the lease was renewed")
		})
	}

	t.Run("what the transport sends again by itself", func(t *testing.T) {
		t.Parallel()
		f, set := held()
		again := tripper(func(req *http.Request) (*http.Response, error) {
			_, err := io.ReadAll(req.Body)
			require.NoError(t, err)
			set(time.Now().Add(time.Minute))
			body, err := req.GetBody()
			require.NoError(t, err)
			_, err = io.ReadAll(body)
			return nil, err
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1", bytes.NewBufferString("{}"))
		require.NoError(t, err)
		_, err = f.Wrap(again).RoundTrip(req) //nolint:bodyclose // there is no answer
		require.ErrorContains(t, err, "not written: the lease was renewed")
	})
}

// After a pause, client-go's elector reads the lease, and may release it without checking who holds it now. If the
// last read of the lease shows another holder, the Fence refuses the release. But if the process has never held
// the lease, the Fence does not refuse the release.
func TestTheLeaseOfAnotherProcessIsNotReleased(t *testing.T) {
	t.Parallel()
	release := func(s *leaseStory) (sent bool, err error) {
		trip := s.fence.Wrap(tripper(func(*http.Request) (*http.Response, error) {
			sent = true
			return &http.Response{StatusCode: http.StatusConflict, Header: http.Header{}, Body: http.NoBody}, nil
		}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://server"+leasePath, bytes.NewReader(encode(t, "pools", "")))
		require.NoError(t, err)
		resp, err := trip.RoundTrip(req)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		return sent, err
	}
	for name, row := range map[string]struct {
		happens func(s *leaseStory)
		refused bool
	}{
		"the lease that the process holds is released":        {func(s *leaseStory) { s.renew("me") }, false},
		"it is released again if the answer was a Conflict":   {func(s *leaseStory) { s.renew("me"); _, _ = release(s); s.look("me") }, false},
		"the lease that another process holds is not":         {func(s *leaseStory) { s.renew("me"); s.look("other") }, true},
		"nor is it after the first refusal":                   {func(s *leaseStory) { s.renew("me"); s.look("other"); _, _ = release(s) }, true},
		"a lease that is held again is released":              {func(s *leaseStory) { s.renew("me"); s.look("other"); s.renew("me") }, false},
		"a process that has never held it may do as it likes": {func(s *leaseStory) { s.look("other") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &leaseStory{T: t, code: http.StatusOK}
			s.fence, s.set = at(time.Now())
			row.happens(s)
			before := s.fence.Refused()
			sent, err := release(s)
			assert.Equal(t, !row.refused, sent)
			if row.refused {
				require.ErrorContains(t, err, "not written: the lease is not released, because other holds it")
				assert.Equal(t, before+1, s.fence.Refused())
				return
			}
			require.NoError(t, err)
		})
	}
}
