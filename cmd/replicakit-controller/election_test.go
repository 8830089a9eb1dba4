// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A leaseServer keeps one lease as an API server does.
type leaseServer struct {
	mu      sync.Mutex
	record  resourcelock.LeaderElectionRecord
	version int                // 0: there is no lease
	wrong   map[string]trouble // by the name of the manager
}

// A trouble is how the calls of a manager go wrong.
type trouble struct {
	cut  bool          // no call arrives
	lost bool          // calls take effect, and their answers are lost
	slow time.Duration // how long each call takes to the server, and its answer back
}

// A leaseClient is the view that one manager has of the lease.
type leaseClient struct {
	server         *leaseServer
	name, identity string
	version        int // in the last answer
}

func (c *leaseClient) Describe() string   { return "kube-system/lease" }
func (c *leaseClient) Identity() string   { return c.identity }
func (c *leaseClient) RecordEvent(string) {}

var errNoAnswer = errors.New("no answer")

// call makes a call, which returns the version of its answer.
func (c *leaseClient) call(f func(s *leaseServer) (version int, err error)) error {
	c.server.mu.Lock()
	wrong := c.server.wrong[c.name]
	c.server.mu.Unlock()
	time.Sleep(wrong.slow)
	defer time.Sleep(wrong.slow)
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if wrong.cut {
		return errNoAnswer
	}
	version, err := f(c.server)
	if wrong.lost {
		return errNoAnswer
	}
	if err == nil {
		c.version = version
	}
	return err
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (c *leaseClient) Get(context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = c.call(func(s *leaseServer) (int, error) {
		if s.version == 0 {
			return 0, apierrors.NewNotFound(leaseResource, "lease")
		}
		copied := s.record
		record, raw = &copied, fmt.Append(nil, copied)
		return s.version, nil
	})
	return record, raw, err
}

func (c *leaseClient) Create(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.call(func(s *leaseServer) (int, error) {
		if s.version != 0 {
			return 0, apierrors.NewAlreadyExists(leaseResource, "lease")
		}
		s.record, s.version = record, 1
		return s.version, nil
	})
}

func (c *leaseClient) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.call(func(s *leaseServer) (int, error) {
		if s.version != c.version {
			return 0, apierrors.NewConflict(leaseResource, "lease", errors.New("changed"))
		}
		s.record = record
		s.version++
		return s.version, nil
	})
}

// A campaigner is a manager that campaigns for the lease.
type campaigner struct {
	identity string
	permit   *permit
	stop     func()
	ended    chan error
}

// An electionStory is what happens to managers at random: they are cut off, their calls
// take long or lose their answers, they end in order or are started again.
type electionStory struct {
	*testing.T
	*rand.Rand
	server   *leaseServer
	managers map[string]*campaigner
	started  int
	leaders  map[string]bool // the identities that were seen to be able to write
}

// TestElectionAtRandom checks the fence each half second: a manager that can write is the one that the
// lease names. In the end nothing goes wrong any more, and one manager can write.
func TestElectionAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				story := &electionStory{
					T: t, Rand: rand.New(rand.NewPCG(seed, 1)), server: &leaseServer{wrong: map[string]trouble{}},
					managers: map[string]*campaigner{}, leaders: map[string]bool{},
				}
				story.play()
			})
		})
	}
}

func (s *electionStory) play() {
	names := []string{"a", "b", "c"}
	for range 60 {
		s.happen(names[s.IntN(len(names))])
		s.pass(time.Duration(s.IntN(20_000)) * time.Millisecond)
		s.keep(names)
	}
	assert.Greater(s, len(s.leaders), 2, "the lease changes hands")
	s.server.mu.Lock()
	clear(s.server.wrong)
	s.server.mu.Unlock()
	for range 3 { // managers that lost the lease end, and are started again
		s.pass(time.Minute)
		s.keep(names)
	}
	assert.Len(s, s.writers(), 1)
	for _, m := range s.managers {
		m.stop()
	}
	for name, m := range s.managers {
		require.NoError(s, <-m.ended, name)
	}
	assert.Empty(s, s.writers())
	assert.Empty(s, s.server.record.HolderIdentity, "the lease is released")
}

// happen lets one thing happen to a manager.
func (s *electionStory) happen(name string) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	switch s.IntN(8) {
	case 0, 1:
		s.server.wrong[name] = trouble{cut: true}
	case 2:
		s.server.wrong[name] = trouble{lost: true}
	case 3:
		s.server.wrong[name] = trouble{slow: time.Duration(s.IntN(12_000)) * time.Millisecond, lost: s.IntN(3) == 0}
	case 4:
		if m := s.managers[name]; m != nil {
			m.stop()
		}
	default:
		delete(s.server.wrong, name)
	}
}

// keep starts managers again that have ended.
func (s *electionStory) keep(names []string) {
	for _, name := range names {
		if m := s.managers[name]; m != nil {
			select {
			case <-m.ended:
				m.stop()
			default:
				continue
			}
		}
		s.managers[name] = s.start(name)
	}
}

func (s *electionStory) start(name string) *campaigner {
	s.started++
	ctx, stop := context.WithCancel(s.Context())
	m := &manager{opts: defaults(), watchdog: leaderelection.NewLeaderHealthzAdaptor(watchdogPatience)}
	c := &campaigner{identity: fmt.Sprintf("%s-%d", name, s.started), permit: newPermit(m.opts.renewDeadline), stop: stop, ended: make(chan error, 1)}
	lock := &watchedLock{Interface: &leaseClient{server: s.server, name: name, identity: c.identity}, permit: c.permit}
	go func() {
		c.ended <- m.campaign(ctx, lock, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	}()
	return c
}

// pass lets time pass, and checks who can write in each half second of it.
func (s *electionStory) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(500*time.Millisecond, time.Until(end)))
		s.server.mu.Lock()
		holder := s.server.record.HolderIdentity
		s.server.mu.Unlock()
		for _, writer := range s.writers() {
			s.leaders[writer] = true
			require.Equal(s, holder, writer, "who can write")
		}
	}
}

// writers are the identities of the managers that can write.
func (s *electionStory) writers() (identities []string) {
	for _, m := range s.managers {
		if m.permit.check() == nil {
			identities = append(identities, m.identity)
		}
	}
	return identities
}
