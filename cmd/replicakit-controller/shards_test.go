// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/internal/shard"
)

// A leaseServer keeps leases as an API server does, and who is at work under them.
type leaseServer struct {
	t      *testing.T
	mu     sync.Mutex
	leases map[string]*storedLease
	cut    map[string]bool          // managers that get no answers, by name
	lost   map[string]time.Duration // the answers to the next writes, by lease: how much later these take effect
	wrong  map[string]trouble       // what else goes wrong between them and the server

	atWork map[int][]*worker // by range
	by     map[*worker]string
	// identities are those that managers go by, of workers too.
	identities map[any]string
}

// A trouble is how a manager's calls go wrong.
type trouble struct {
	slow time.Duration // each way
	lost bool          // the answers, of calls that took effect
}

type storedLease struct {
	record  resourcelock.LeaderElectionRecord
	version int
}

func newLeaseServer(t *testing.T) *leaseServer {
	t.Helper()
	return &leaseServer{
		t: t, leases: map[string]*storedLease{}, cut: map[string]bool{}, lost: map[string]time.Duration{},
		wrong: map[string]trouble{}, atWork: map[int][]*worker{}, by: map[*worker]string{}, identities: map[any]string{},
	}
}

// A serverLock is one manager's view of a lease.
type serverLock struct {
	server                  *leaseServer
	manager, name, identity string
	version                 int
}

func (l *serverLock) Describe() string   { return "kube-system/" + l.name }
func (l *serverLock) Identity() string   { return l.identity }
func (l *serverLock) RecordEvent(string) {}

var errNoAnswer = errors.New("no answer")

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l *serverLock) call(f func(stored *storedLease) error) error {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	wrong := l.server.wrong[l.manager]
	l.server.wait(wrong.slow)
	if l.server.cut[l.manager] {
		return errNoAnswer
	}
	version := l.version
	err := f(l.server.leases[l.name])
	l.server.wait(wrong.slow)
	if wrong.lost {
		l.version = version // of the last answer
		return errNoAnswer
	}
	return err
}

// wait lets others have the server for a while.
func (s *leaseServer) wait(d time.Duration) {
	if d == 0 {
		return
	}
	s.mu.Unlock()
	time.Sleep(d)
	s.mu.Lock()
}

// losesAnswer reports whether the answer to this write is lost. The write is what was
// sent, and takes effect all the same.
func (l *serverLock) losesAnswer(write func(sent *serverLock)) bool {
	l.server.mu.Lock()
	late, lost := l.server.lost[l.name]
	delete(l.server.lost, l.name)
	l.server.mu.Unlock()
	sent := *l
	switch {
	case !lost:
	case late == 0:
		write(&sent)
	default:
		time.AfterFunc(late, func() { write(&sent) })
	}
	return lost
}

func (s *leaseServer) loseAnswer(lease string, late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[lease] = late
}

func (l *serverLock) Get(context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = l.call(func(stored *storedLease) error {
		if stored == nil {
			return apierrors.NewNotFound(leaseResource, l.name)
		}
		l.version = stored.version
		copied := stored.record
		record, raw = &copied, fmt.Append(nil, copied)
		return nil
	})
	return record, raw, err
}

func (l *serverLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.losesAnswer(func(sent *serverLock) { _ = sent.Create(ctx, record) }) {
		return errNoAnswer
	}
	return l.call(func(stored *storedLease) error {
		if stored != nil {
			return apierrors.NewAlreadyExists(leaseResource, l.name)
		}
		l.version = 1
		l.server.leases[l.name] = &storedLease{record, 1}
		return nil
	})
}

func (l *serverLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.losesAnswer(func(sent *serverLock) { _ = sent.Update(ctx, record) }) {
		return errNoAnswer
	}
	return l.call(func(stored *storedLease) error {
		switch {
		case stored == nil:
			return apierrors.NewNotFound(leaseResource, l.name)
		case stored.version != l.version:
			return apierrors.NewConflict(leaseResource, l.name, errors.New("changed"))
		}
		l.version++
		*stored = storedLease{record, l.version}
		return nil
	})
}

// A sharer is a manager that shares the work.
type sharer struct {
	name  string
	stop  func()
	ended chan error
}

func equalRanges(n int) string {
	texts := make([]string, n)
	step := ^uint64(0)/uint64(n) + 1 // of a power of two
	for i := range n {
		texts[i] = shard.Range{First: uint64(i) * step, Last: uint64(i+1)*step - 1}.String()
	}
	return strings.Join(texts, ",")
}

// start starts a manager that shares the work, or does all of it for no ranges.
func (s *leaseServer) start(name string, ranges int, args ...string) *sharer {
	s.t.Helper()
	if ranges > 0 {
		args = append(args, "--shard-ranges="+equalRanges(ranges))
	}
	opts, err := parse(args, s.t.Output())
	require.NoError(s.t, err)
	ctx, stop := context.WithCancel(s.t.Context())
	m := &sharer{name, stop, make(chan error, 1)}
	sh := &share{
		manager: &manager{opts: opts},
		lock: func(lease, identity string) (resourcelock.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.identities[name] = identity // in the end that of the ranges' leases
			return &serverLock{server: s, manager: name, name: lease, identity: identity}, nil
		},
		work: func(w *worker, ctx context.Context) error { return s.work(name, w, ctx) },
	}
	go func() { m.ended <- sh.run(ctx) }()
	return m
}

// work does what a worker does: it writes whenever it may.
func (s *leaseServer) work(name string, w *worker, ctx context.Context) error { //nolint:revive // as a method of a worker's
	assert.Len(s.t, w.permits, 2)
	assert.NotSame(s.t, w.permits[0], w.permits[1], "the joint lease's, and its own")
	s.mu.Lock()
	s.by[w], s.identities[w] = name, s.identities[name]
	s.atWork[w.shard.index] = append(s.atWork[w.shard.index], w)
	s.mu.Unlock()
	for ctx.Err() == nil {
		s.check()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.atWork[w.shard.index] = slices.DeleteFunc(s.atWork[w.shard.index], func(other *worker) bool { return other == w })
	return nil
}

// workers are those at work on a range.
func (s *leaseServer) workers(index int) []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.atWork[index])
}

// check sees to it that nobody but one may write in a range, and nobody in one of
// another partition.
func (s *leaseServer) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	partitions := map[string]bool{}
	for index, workers := range s.atWork {
		var may []string
		for _, w := range workers {
			if w.mayWrite() {
				may = append(may, s.by[w])
				partitions[w.opts.ranges.Fingerprint()] = true
			}
		}
		assert.LessOrEqual(s.t, len(may), 1, "range %d: %v", index, may)
	}
	assert.LessOrEqual(s.t, len(partitions), 1)
}

// served says who may write in each range.
func (s *leaseServer) served() map[int]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := map[int]string{}
	for index, workers := range s.atWork {
		for _, w := range workers {
			if w.mayWrite() {
				served[index] = s.by[w]
			}
		}
	}
	return served
}

// counts says how many ranges each manager has.
func (s *leaseServer) counts() map[string]int {
	n := map[string]int{}
	for _, name := range s.served() {
		n[name]++
	}
	return n
}

func (s *leaseServer) cutOff(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[name] = true
}

// end ends managers in order.
func end(t *testing.T, managers ...*sharer) {
	t.Helper()
	for _, m := range managers {
		m.stop()
	}
	for _, m := range managers {
		assert.NoError(t, <-m.ended, m.name)
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	for _, story := range []struct {
		name string
		tell func(*testing.T, *leaseServer)
	}{
		{"managers that start together take one range each", func(t *testing.T, s *leaseServer) {
			t.Helper()
			managers := []*sharer{s.start("a", 4), s.start("b", 4), s.start("c", 4), s.start("d", 4)}
			time.Sleep(10 * time.Second)
			assert.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, s.counts())
			time.Sleep(5 * time.Minute)
			assert.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, s.counts())
			s.mu.Lock()
			joint := s.leases["replicakit-controller"].record
			s.mu.Unlock()
			assert.Regexp(t, "^shards-4-", joint.HolderIdentity, "one without ranges waits for it")
			assert.Less(t, time.Since(joint.RenewTime.Time), 5*time.Second)
			end(t, managers...)
			assert.Empty(t, s.counts())
		}},
		{"one alone takes all, one after the other", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a := s.start("a", 4)
			for i, after := range []time.Duration{time.Second, 20 * time.Second, 20 * time.Second, 20 * time.Second} {
				time.Sleep(after)
				assert.LessOrEqual(t, s.counts()["a"], i+1)
			}
			assert.Equal(t, map[string]int{"a": 4}, s.counts())
			end(t, a)
		}},
		{"one alone takes no more than it may", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a := s.start("a", 4, "--shards-per-manager=2")
			time.Sleep(5 * time.Minute)
			assert.Equal(t, map[string]int{"a": 2}, s.counts())
			end(t, a)
		}},
		{"a standby comes at once when one ends in order", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a, b := s.start("a", 2), s.start("b", 2)
			time.Sleep(10 * time.Second)
			c := s.start("c", 2)
			time.Sleep(time.Minute)
			assert.Equal(t, map[string]int{"a": 1, "b": 1}, s.counts())
			end(t, a)
			time.Sleep(4 * time.Second)
			assert.Equal(t, map[string]int{"b": 1, "c": 1}, s.counts())
			end(t, b, c)
		}},
		{"without a standby the others take over what is free", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a, b := s.start("a", 2), s.start("b", 2)
			time.Sleep(time.Minute)
			end(t, a)
			time.Sleep(10 * time.Second)
			assert.Equal(t, map[string]int{"b": 1}, s.counts())
			time.Sleep(10 * time.Second)
			assert.Equal(t, map[string]int{"b": 2}, s.counts())
			end(t, b)
		}},
		{"one that gets no answers stops before another takes over, and ends", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a, b := s.start("a", 2), s.start("b", 2)
			time.Sleep(10 * time.Second)
			c := s.start("c", 2)
			time.Sleep(10 * time.Second)
			s.cutOff("a")
			time.Sleep(11 * time.Second)
			assert.Equal(t, map[string]int{"b": 1}, s.counts())
			time.Sleep(9 * time.Second)
			assert.Equal(t, map[string]int{"b": 1, "c": 1}, s.counts())
			require.ErrorIs(t, <-a.ended, errLeaseLost)
			end(t, b, c)
		}},
		{"whoever gets no answer when it takes a range has it all the same", func(t *testing.T, s *leaseServer) {
			t.Helper()
			for range 2 { // there is no lease, and there is one
				s.loseAnswer("replicakit-controller-shard-0", 0)
				a, b := s.start("a", 2), s.start("b", 2)
				time.Sleep(10 * time.Second)
				assert.Equal(t, map[string]int{"a": 1, "b": 1}, s.counts())
				end(t, a, b)
			}
		}},
		{"so has whoever looks before it is taken", func(t *testing.T, s *leaseServer) {
			t.Helper()
			s.loseAnswer("replicakit-controller-shard-0", 3*time.Second)
			a := s.start("a", 2)
			time.Sleep(2 * time.Second)
			assert.Equal(t, map[int]string{1: "a"}, s.served())
			time.Sleep(5 * time.Second)
			assert.Equal(t, map[int]string{0: "a", 1: "a"}, s.served())
			end(t, a)
		}},
		{"one that loses a range goes on with the others, and takes it again when it is free", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a := s.start("a", 2)
			time.Sleep(time.Minute)
			require.Equal(t, map[string]int{"a": 2}, s.counts())
			s.mu.Lock()
			before := s.atWork[0][0]
			stolen := s.leases["replicakit-controller-shard-1"]
			stolen.record.HolderIdentity = "thief"
			stolen.version++
			s.mu.Unlock()
			time.Sleep(5 * time.Second)
			assert.Equal(t, map[int]string{0: "a"}, s.served())
			assert.Equal(t, "thief", stolen.record.HolderIdentity)
			assert.Empty(t, s.workers(1), "the work on it has ended")
			time.Sleep(time.Minute) // the thief does not renew it
			assert.Equal(t, map[int]string{0: "a", 1: "a"}, s.served())
			require.Len(t, s.workers(0), 1)
			assert.Same(t, before, s.workers(0)[0], "the other range was never given up")
			assert.Empty(t, a.ended)
			end(t, a)
		}},
		{"one that loses a range again and again has as many as it may", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a := s.start("a", 4, "--shards-per-manager=2")
			for range 5 {
				time.Sleep(3 * time.Minute)
				require.Equal(t, map[string]int{"a": 2}, s.counts())
				for index := range s.served() {
					s.mu.Lock()
					stolen := s.leases["replicakit-controller-shard-"+strconv.Itoa(index)]
					stolen.record.HolderIdentity = "thief"
					stolen.version++
					s.mu.Unlock()
				}
			}
			time.Sleep(3 * time.Minute)
			assert.Equal(t, map[string]int{"a": 2}, s.counts())
			end(t, a)
		}},
		{"whoever has other ranges ends before any work", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a := s.start("a", 2)
			time.Sleep(time.Minute)
			b := s.start("b", 4)
			err := <-b.ended
			require.ErrorIs(t, err, errNotAlike)
			require.ErrorContains(t, err, "lease kube-system/replicakit-controller is held by shards-2-")
			require.ErrorContains(t, err, ", and this is shards-4-")
			assert.Equal(t, map[string]int{"a": 2}, s.counts())
			end(t, a)
		}},
		{"of two partitions that start at once only one works", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a, b := s.start("a", 2), s.start("b", 4)
			select {
			case err := <-a.ended:
				require.ErrorIs(t, err, errNotAlike)
				end(t, b)
			case err := <-b.ended:
				require.ErrorIs(t, err, errNotAlike)
				end(t, a)
			}
		}},
		{"after all have ended, or died, others begin with other ranges", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a, b := s.start("a", 2), s.start("b", 2)
			time.Sleep(10 * time.Second)
			end(t, a)
			s.cutOff("b")
			c := s.start("c", 4)
			time.Sleep(4 * time.Minute)
			assert.Equal(t, map[string]int{"c": 4}, s.counts())
			require.ErrorIs(t, <-b.ended, errLeaseLost)
			end(t, c)
		}},
		{"whoever has another lease duration is not joined: its leases outlive what the joint lease says", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a := s.start("a", 2, "--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s", "--shards-per-manager=1")
			time.Sleep(10 * time.Second)
			b := s.start("b", 2)
			time.Sleep(time.Minute)
			s.cutOff("a")
			time.Sleep(5 * time.Second)
			b.stop()
			err := <-b.ended
			c := s.start("c", 4)
			time.Sleep(5 * time.Minute)
			require.ErrorIs(t, err, errNotAlike)
			require.ErrorContains(t, err, "another --leader-elect-lease-duration")
			require.ErrorIs(t, <-a.ended, errLeaseLost)
			assert.Equal(t, map[string]int{"c": 4}, s.counts())
			end(t, c)
		}},
		{"whoever runs other controllers is not joined: the other kind of a range would be nobody's", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a := s.start("a", 2, "--controllers=replicaset")
			time.Sleep(time.Minute)
			for _, others := range []string{"*", "replicationcontroller"} {
				b := s.start("b", 2, "--controllers="+others)
				err := <-b.ended
				require.ErrorIs(t, err, errNotAlike)
				require.ErrorContains(t, err, "with other --controllers")
				require.ErrorContains(t, err, "-15s-replicaset, and this is shards-2-")
			}
			assert.Equal(t, map[string]int{"a": 2}, s.counts())
			end(t, a)
		}},
		{"the same controllers may be named in several ways", func(t *testing.T, s *leaseServer) {
			t.Helper()
			a, b := s.start("a", 2), s.start("b", 2, "--controllers=replicationcontroller,replicaset-controller")
			time.Sleep(10 * time.Second)
			assert.Equal(t, map[string]int{"a": 1, "b": 1}, s.counts())
			end(t, a, b)
		}},
		{"one without ranges at work is not joined", func(t *testing.T, s *leaseServer) {
			t.Helper()
			alone := &serverLock{server: s, manager: "alone", name: "replicakit-controller", identity: "host_1"}
			record := resourcelock.LeaderElectionRecord{HolderIdentity: "host_1", LeaseDurationSeconds: 15, RenewTime: metav1.Now()}
			require.NoError(t, alone.Create(t.Context(), record))
			a := s.start("a", 2)
			for len(a.ended) == 0 {
				time.Sleep(2 * time.Second)
				record.RenewTime = metav1.Now()
				require.NoError(t, alone.Update(t.Context(), record))
				require.Empty(t, s.counts())
			}
			require.ErrorIs(t, <-a.ended, errNotAlike)
		}},
		{"many managers hold the joint lease together", func(t *testing.T, s *leaseServer) {
			t.Helper()
			var managers []*sharer
			for i := range 32 {
				managers = append(managers, s.start(strconv.Itoa(i), 16))
			}
			time.Sleep(5 * time.Minute)
			assert.Len(t, s.counts(), 16)
			end(t, managers...)
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { story.tell(t, newLeaseServer(t)) })
		})
	}
}

// A slowLock is read only after a while, as if the program had stood still.
type slowLock struct {
	*serverLock
	before func()
}

func (l slowLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.before()
	return l.serverLock.Get(ctx)
}

// TestLookThatTakesLong has a candidate stand still between the clock and the lease:
// how long the lease lasts counts from when it was seen, not from when it was asked for.
func TestLookThatTakesLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseServer(t)
		holder := &serverLock{server: s, manager: "a", name: "lease", identity: "a"}
		renew := func(write func(context.Context, resourcelock.LeaderElectionRecord) error) {
			require.NoError(t, write(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15, RenewTime: metav1.Now()}))
		}
		renew(holder.Create)
		pause := 20 * time.Second
		lock := slowLock{&serverLock{server: s, manager: "b", name: "lease", identity: "b"}, func() { time.Sleep(pause) }}
		c := &candidate{lock: &watchedLock{Interface: lock, permit: newPermit(10 * time.Second), end: func(error) {}}}
		go func() {
			time.Sleep(pause - time.Second)
			renew(holder.Update)
		}()
		c.look(t.Context())
		pause = 0
		for range 6 { // for twelve seconds
			time.Sleep(2 * time.Second)
			c.look(t.Context())
			require.Zero(t, c.free, "it was seen %v after the renewal", time.Since(c.since))
		}
		time.Sleep(4 * time.Second)
		c.look(t.Context())
		assert.NotZero(t, c.free)
	})
}

func TestJointLock(t *testing.T) {
	t.Parallel()
	s := newLeaseServer(t)
	ctx := t.Context()
	lock := func(identity string) *jointLock {
		return &jointLock{Interface: &serverLock{server: s, name: "lease", identity: identity}}
	}
	record := func(identity string, renewed int64) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: identity, RenewTime: metav1.Unix(0, renewed)}
	}
	one, two, stranger := lock("us"), lock("us"), lock("them")
	require.NoError(t, one.Create(ctx, record("us", 1)))
	_, _, err := two.Get(ctx)
	require.NoError(t, err)
	require.NoError(t, two.Update(ctx, record("us", 2)))
	require.NoError(t, one.Update(ctx, record("us", 3)), "on top of the other's")

	_, _, err = stranger.Get(ctx)
	require.NoError(t, err, "it may have ended")
	_, _, err = stranger.Get(ctx)
	require.NoError(t, err)
	require.NoError(t, one.Update(ctx, record("us", 4)))
	_, _, err = stranger.Get(ctx)
	require.ErrorIs(t, err, errNotAlike)

	require.NoError(t, two.Update(ctx, record("them", 5)))
	require.True(t, apierrors.IsConflict(one.Update(ctx, record("us", 6))), "what is another's is not taken back")
}
