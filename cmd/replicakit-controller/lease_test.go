// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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

const deadline = 10 * time.Second

// at returns a permit and what sets its clocks.
func at(start time.Time) (p *permit, set func(time.Time)) {
	var now atomic.Pointer[time.Time]
	now.Store(&start)
	p = newPermit(deadline)
	p.now = func() reading { return readingOf(*now.Load()) }
	return p, func(t time.Time) { now.Store(&t) }
}

func TestPermit(t *testing.T) {
	t.Parallel()
	start := time.Now()
	p, set := at(start)
	require.EqualError(t, p.check(), "not written: the lease is not held")
	p.renew(readingOf(start))
	require.NoError(t, p.check())
	set(start.Add(10*time.Second - 1))
	require.NoError(t, p.check())
	set(start.Add(10 * time.Second))
	require.EqualError(t, p.check(), "not written: the lease was renewed 10s ago, and must have been in the last 10s")
	p.renew(readingOf(start.Add(9 * time.Second)))
	require.NoError(t, p.check())
	p.revoke()
	require.EqualError(t, p.check(), "not written: the lease is not held")
	require.Error(t, p.ask(t.Context()))
	assert.True(t, p.told.Load())
	p.renew(readingOf(start.Add(10 * time.Second)))
	assert.False(t, p.told.Load(), "the next time is told again")
}

// A fakeLock has one answer to each kind of call.
type fakeLock struct {
	resourcelock.Interface
	record   resourcelock.LeaderElectionRecord
	err      error
	answered func()
}

func (l *fakeLock) Describe() string { return "kube-system/lease" }

func (l *fakeLock) Identity() string { return "me" }

func (l *fakeLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &l.record, nil, l.err
}

func (l *fakeLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	if l.answered != nil {
		l.answered()
	}
	return l.err
}

func TestWatchedLock(t *testing.T) {
	t.Parallel()
	type play struct {
		*watchedLock
		server *fakeLock
		set    func(time.Time)
		ended  []string
	}
	start := time.Now()
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me", RenewTime: metav1.NewTime(start)}
	for _, row := range []struct {
		name    string
		tell    func(ctx context.Context, p *play) error
		granted bool
		ended   []string
	}{
		{"nothing is permitted before there is a lease", func(context.Context, *play) error { return nil }, false, nil},
		{"a lease that was created is ours", func(ctx context.Context, p *play) error { return p.Create(ctx, mine) }, true, nil},
		{"one that was renewed is ours", func(ctx context.Context, p *play) error { return p.Update(ctx, mine) }, true, nil},
		{"a pause in the middle of a renewal: the time that was sent counts, not the answer's", func(ctx context.Context, p *play) error {
			p.server.answered = func() { p.set(start.Add(deadline)) }
			return p.Update(ctx, mine)
		}, false, nil},
		{"a renewal without an answer leaves the one before", func(ctx context.Context, p *play) error {
			err := p.Update(ctx, mine)
			p.server.err = errors.New("timeout")
			later := mine
			later.RenewTime = metav1.NewTime(start.Add(deadline))
			p.set(start.Add(deadline - 1))
			return errors.Join(err, ignore(p.Update(ctx, later)))
		}, true, nil},
		{"nor does it prove anything", func(ctx context.Context, p *play) error {
			err := p.Update(ctx, mine)
			p.server.err = errors.New("timeout")
			later := mine
			later.RenewTime = metav1.NewTime(start.Add(deadline))
			p.set(start.Add(deadline))
			return errors.Join(err, ignore(p.Update(ctx, later)))
		}, false, nil},
		{"to release it is no renewal", func(ctx context.Context, p *play) error {
			return p.Update(ctx, resourcelock.LeaderElectionRecord{RenewTime: metav1.NewTime(start)})
		}, false, nil},
		{"whoever gives the lease up writes nothing more, whatever the answer", func(ctx context.Context, p *play) error {
			err := p.Update(ctx, mine)
			p.server.err = errors.New("timeout")
			return errors.Join(err, ignore(p.Update(ctx, resourcelock.LeaderElectionRecord{RenewTime: metav1.NewTime(start)})))
		}, false, nil},
		{"to see oneself changes nothing", func(ctx context.Context, p *play) error {
			p.server.record = mine
			return errors.Join(p.Update(ctx, mine), p.get(ctx))
		}, true, nil},
		{"nor does it prove anything, if nobody has answered when it was taken", func(ctx context.Context, p *play) error {
			p.server.err = errors.New("timeout")
			err := ignore(p.Create(ctx, mine))
			p.server.err, p.server.record = nil, mine
			return errors.Join(err, p.get(ctx))
		}, false, nil},
		{"whoever waits may see another holder", func(ctx context.Context, p *play) error {
			p.server.record.HolderIdentity = "other"
			return p.get(ctx)
		}, false, nil},
		{"there is no namespace for the lease", func(ctx context.Context, p *play) error {
			p.server.err = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "kube-system")
			return ignore(p.Create(ctx, mine))
		}, false, []string{`--leader-elect-resource-namespace=kube-system: namespaces "kube-system" not found`}},
		{"whoever leads has lost", func(ctx context.Context, p *play) error {
			p.server.record.HolderIdentity = "other"
			return errors.Join(p.Update(ctx, mine), p.get(ctx))
		}, false, []string{"the lease was lost to other"}},
		{"a lease that somebody emptied may be another's soon", func(ctx context.Context, p *play) error {
			return errors.Join(p.Update(ctx, mine), p.get(ctx))
		}, false, nil},
		{"and then is lost", func(ctx context.Context, p *play) error {
			err := errors.Join(p.Update(ctx, mine), p.get(ctx))
			p.server.record.HolderIdentity = "other"
			return errors.Join(err, p.get(ctx))
		}, false, []string{"the lease was lost to other"}},
		{"so may one that somebody deleted", func(ctx context.Context, p *play) error {
			err := p.Update(ctx, mine)
			p.server.err = apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "lease")
			return errors.Join(err, ignore(p.get(ctx)))
		}, false, nil},
		{"a read that fails tells nothing", func(ctx context.Context, p *play) error {
			err := p.Update(ctx, mine)
			p.server.err = errors.New("timeout")
			return errors.Join(err, ignore(p.get(ctx)))
		}, true, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := &play{server: &fakeLock{}}
			var permit *permit
			permit, p.set = at(start)
			p.watchedLock = &watchedLock{Interface: p.server, permit: permit, end: func(err error) { p.ended = append(p.ended, err.Error()) }}
			require.NoError(t, row.tell(t.Context(), p))
			assert.Equal(t, row.granted, permit.check() == nil)
			assert.Equal(t, row.ended, p.ended)
		})
	}
}

// TestReleaseOfAnothersLease sees that nobody gives up what another holds.
func TestReleaseOfAnothersLease(t *testing.T) {
	t.Parallel()
	for holder, want := range map[string]bool{"me": true, "other": false, "": false} {
		server, written := &fakeLock{}, false
		server.record.HolderIdentity, server.answered = holder, func() { written = true }
		release(t.Context(), server)
		assert.Equal(t, want, written, "held by %q", holder)
	}
}

// TestRenewalsOfOneSecond has a lease that is renewed more than once in a second: an
// elector that waits for it must see each renewal, or it waits for too short a time.
func TestRenewalsOfOneSecond(t *testing.T) {
	t.Parallel()
	server := fake.NewClientset()
	lock := func(identity string) *watchedLock {
		return &watchedLock{permit: newPermit(deadline), end: func(error) {}, Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "lease"}, Client: server.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}}
	}
	holder, waits := lock("holder"), lock("waits")
	at := metav1.NewTime(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC))
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "holder", LeaseDurationSeconds: 2, RenewTime: at}
	require.NoError(t, holder.Create(t.Context(), record))
	_, before, err := waits.Get(t.Context())
	require.NoError(t, err)
	_, same, err := waits.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before, same)
	record.RenewTime = metav1.NewTime(at.Add(500 * time.Millisecond))
	require.NoError(t, holder.Update(t.Context(), record))
	_, after, err := waits.Get(t.Context())
	require.NoError(t, err)
	assert.NotEqual(t, before, after)
}

func (l *watchedLock) get(ctx context.Context) error {
	_, _, err := l.Get(ctx)
	return err
}

// ignore is for an error that is meant to come.
func ignore(err error) error {
	if err == nil {
		return errors.New("there must be an error")
	}
	return nil
}

// A recorder is a server that knows which requests came whole.
type recorder struct {
	whole atomic.Int32
	code  atomic.Int32
	then  func()
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if _, err := io.ReadAll(req.Body); err != nil {
		return
	}
	r.whole.Add(1)
	if r.then != nil {
		r.then()
	}
	if code := int(r.code.Load()); code != 0 {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(code)
	}
}

func TestPermitOnTheWire(t *testing.T) {
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
			p, set := at(time.Now())
			p.renew(p.now())
			transport, _ := server.Client().Transport.(*http.Transport)
			late := func() { set(time.Now().Add(time.Minute)) }
			dial := func() {}
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				dial()
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			client := &http.Client{Transport: p.wrap(transport)}
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

			transport = transport.Clone() // without connections
			t.Cleanup(transport.CloseIdleConnections)
			client.Transport = p.wrap(transport)
			dial = late
			require.ErrorContains(t, call(http.MethodDelete, bytes.NewBufferString("{}")), "not written: the lease was renewed")
			assert.Zero(t, served.whole.Load(), "the lease ended while the request waited for a connection")

			for _, method := range writes {
				require.ErrorContains(t, call(method, bytes.NewBufferString("{}")), "not written: the lease was renewed", method)
				require.ErrorContains(t, call(method, nil), "not written: the lease was renewed", method)
			}
			assert.Zero(t, served.whole.Load(), "the lease has ended")

			require.NoError(t, call(http.MethodGet, nil))
			assert.EqualValues(t, 1, served.whole.Load(), "reads go on")
		})
	}

	t.Run("what the transport sends again by itself", func(t *testing.T) {
		t.Parallel()
		p, set := at(time.Now())
		p.renew(p.now())
		again := roundTripper(func(req *http.Request) (*http.Response, error) {
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
		_, err = p.wrap(again).RoundTrip(req) //nolint:bodyclose // there is no answer
		require.ErrorContains(t, err, "not written: the lease was renewed")
	})

	t.Run("what client-go sends again, as the server asks for", func(t *testing.T) {
		t.Parallel()
		p, set := at(time.Now())
		p.renew(p.now())
		served := &recorder{then: func() { set(time.Now().Add(time.Minute)) }}
		served.code.Store(http.StatusTooManyRequests)
		server := httptest.NewServer(served)
		t.Cleanup(server.Close)
		config, err := loadConfig(options{master: server.URL, qps: 20, burst: 30})
		require.NoError(t, err)
		w := &worker{manager: &manager{config: config}, permit: p}
		client, err := w.client("c")
		require.NoError(t, err)
		_, err = client.AppsV1().ReplicaSets("default").UpdateStatus(t.Context(), newReplicaSet("web", 1), metav1.UpdateOptions{})
		require.ErrorContains(t, err, "not written: the lease was renewed")
		assert.EqualValues(t, 1, served.whole.Load())
	})

	t.Run("what waits for the rate limiter", func(t *testing.T) {
		t.Parallel()
		served := &recorder{}
		server := httptest.NewServer(served)
		t.Cleanup(server.Close)
		config, err := loadConfig(options{master: server.URL, qps: 1, burst: 1})
		require.NoError(t, err)
		p := newPermit(500 * time.Millisecond)
		w := &worker{manager: &manager{config: config}, permit: p}
		client, err := w.client("c")
		require.NoError(t, err)
		require.True(t, client.CoreV1().RESTClient().GetRateLimiter().TryAccept())
		p.renew(p.now())
		require.NoError(t, p.check())
		err = client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{})
		require.ErrorContains(t, err, "not written: the lease was renewed")
		assert.Zero(t, served.whole.Load())
	})
}
