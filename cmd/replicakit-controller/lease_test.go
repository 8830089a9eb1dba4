// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
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

// A fakeLock returns the same record from each Get, and the same error from each call.
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
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	type play struct {
		*watchedLock
		server *fakeLock
	}
	for _, row := range []struct {
		name    string
		happens func(ctx context.Context, p *play) error
		ended   []string
	}{
		{"a lease that is waited for may be another's", func(ctx context.Context, p *play) error {
			p.server.record.HolderIdentity = "other"
			return p.get(ctx)
		}, nil},
		{"there is no namespace for the lease", func(ctx context.Context, p *play) error {
			p.server.err = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "kube-system")
			return ignore(p.Create(ctx, mine))
		}, []string{`--leader-elect-resource-namespace=kube-system: namespaces "kube-system" not found`}},
		{"a leader that sees another holder has lost", func(ctx context.Context, p *play) error {
			p.server.record.HolderIdentity = "other"
			return errors.Join(p.Update(ctx, mine), p.get(ctx))
		}, []string{"the lease was lost to other"}},
		{"a lease that was created is held too", func(ctx context.Context, p *play) error {
			p.server.record.HolderIdentity = "other"
			return errors.Join(p.Create(ctx, mine), p.get(ctx))
		}, []string{"the lease was lost to other"}},
		{"one that could not be written is not", func(ctx context.Context, p *play) error {
			p.server.err = errors.New("timeout")
			err := ignore(p.Update(ctx, mine))
			p.server.err, p.server.record.HolderIdentity = nil, "other"
			return errors.Join(err, p.get(ctx))
		}, nil},
		{"a lease that somebody emptied is not lost yet", func(ctx context.Context, p *play) error {
			return errors.Join(p.Update(ctx, mine), p.get(ctx))
		}, nil},
		{"to see oneself changes nothing", func(ctx context.Context, p *play) error {
			p.server.record = mine
			return errors.Join(p.Update(ctx, mine), p.get(ctx))
		}, nil},
		{"a read that fails shows nothing", func(ctx context.Context, p *play) error {
			err := p.Update(ctx, mine)
			p.server.err = errors.New("timeout")
			return errors.Join(err, ignore(p.get(ctx)))
		}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p, ended := &play{server: &fakeLock{}}, []string(nil)
			p.watchedLock = &watchedLock{Interface: p.server, end: func(err error) { ended = append(ended, err.Error()) }}
			require.NoError(t, row.happens(t.Context(), p))
			assert.Equal(t, row.ended, ended)
		})
	}
}

// If another process or no process holds the lease, release does not write the lease.
func TestReleaseOfAnothersLease(t *testing.T) {
	t.Parallel()
	for holder, want := range map[string]bool{"me": true, "other": false, "": false} {
		server, written := &fakeLock{}, false
		server.record.HolderIdentity, server.answered = holder, func() { written = true }
		release(t.Context(), server)
		assert.Equal(t, want, written, "held by %q", holder)
	}
}

// If a lease is renewed more than once in a second, a waiting elector sees each renewal. If the elector missed a
// renewal, it could take over the lease too early.
func TestRenewalsOfOneSecond(t *testing.T) {
	t.Parallel()
	server := fake.NewClientset()
	lock := func(identity string) *watchedLock {
		return &watchedLock{end: func(error) {}, Interface: &resourcelock.LeaseLock{
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

// ignore expects an error, and returns nil for it. If err is nil, ignore returns an error.
func ignore(err error) error {
	if err == nil {
		return errors.New("there must be an error")
	}
	return nil
}

// A recorder is a server that counts the requests that it has received completely.
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

// The fence checks a write just before the write is sent. The fence also checks a write that has waited for the
// rate limit, or that client-go resends. If the last renewal of the lease is too old at this check, the fence
// refuses the write.
func TestFenceOfAWorker(t *testing.T) {
	t.Parallel()
	fenced := func(t *testing.T, served *recorder, opts options) *worker {
		t.Helper()
		server := httptest.NewServer(served)
		t.Cleanup(server.Close)
		opts.master, opts.lease, opts.resourceLock, opts.renewDeadline = server.URL, defaults().lease, "leases", 500*time.Millisecond
		config, err := loadConfig(opts)
		require.NoError(t, err)
		m := newManager(opts, config)
		lock, err := m.lock("me")
		require.NoError(t, err)
		_ = lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}) // the recorder's answer contains no lease
		require.NoError(t, m.fence.Check())
		served.whole.Store(0)
		return &worker{manager: m}
	}
	late := func() { time.Sleep(600 * time.Millisecond) }

	t.Run("what client-go sends again, as the server asks for", func(t *testing.T) {
		t.Parallel()
		served := &recorder{}
		w := fenced(t, served, options{})
		served.then = late
		served.code.Store(http.StatusTooManyRequests)
		client, err := w.client("c")
		require.NoError(t, err)
		_, err = client.AppsV1().ReplicaSets("default").UpdateStatus(t.Context(), newReplicaSet("web", 1), metav1.UpdateOptions{})
		require.ErrorContains(t, err, "not written: the lease was renewed")
		assert.EqualValues(t, 1, served.whole.Load())
	})

	t.Run("what waits for its turn", func(t *testing.T) {
		t.Parallel()
		served := &recorder{}
		w := fenced(t, served, options{qps: 1, burst: 1})
		client, err := w.client("c")
		require.NoError(t, err)
		require.NoError(t, client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		err = client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{})
		require.ErrorContains(t, err, "not written: the lease was renewed")
		assert.EqualValues(t, 1, served.whole.Load())
		assert.EqualValues(t, 1, w.fence.Refused())
	})
}
