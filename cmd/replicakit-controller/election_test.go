// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/replicakit/replicakit/replicas/transport"
)

// A leaseServer keeps one lease as an API server does.
type leaseServer struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease // nil if no lease exists
	version int
	wrong   map[string]trouble // by name of the manager
}

// A trouble describes how the calls of a manager fail.
type trouble struct {
	cut  bool          // no call reaches the server
	lost bool          // calls take effect, but their answers are lost
	slow time.Duration // the delay of each call on its way to the server, and of each answer on its way back
}

// holder returns the identity of the process that holds the lease, or "".
func (s *leaseServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

var errNoAnswer = errors.New("no answer")

// wire returns the connection of a manager to the server.
func (s *leaseServer) wire(name string) roundTripper {
	return func(req *http.Request) (*http.Response, error) {
		s.mu.Lock()
		wrong := s.wrong[name]
		s.mu.Unlock()
		time.Sleep(wrong.slow)
		defer time.Sleep(wrong.slow)
		if wrong.cut || req.Context().Err() != nil {
			return nil, errNoAnswer
		}
		answer, err := s.answer(req)
		if err != nil {
			return nil, err
		}
		if wrong.lost {
			return nil, errNoAnswer
		}
		return answer, nil
	}
}

func (s *leaseServer) answer(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lease coordinationv1.Lease
	if !isRead(req) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &lease)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case req.Method == http.MethodPost && s.lease != nil:
		return answered(http.StatusConflict, apierrors.NewAlreadyExists(leaseResource, "lease").Status())
	case req.Method != http.MethodPost && s.lease == nil:
		return answered(http.StatusNotFound, apierrors.NewNotFound(leaseResource, "lease").Status())
	case req.Method == http.MethodPut && lease.ResourceVersion != strconv.Itoa(s.version):
		return answered(http.StatusConflict, apierrors.NewConflict(leaseResource, "lease", errors.New("changed")).Status())
	case !isRead(req):
		s.version++
		lease.ResourceVersion = strconv.Itoa(s.version)
		s.lease = &lease
	}
	stored := *s.lease
	stored.APIVersion, stored.Kind = "coordination.k8s.io/v1", "Lease"
	return answered(http.StatusOK, stored)
}

func answered(code int, with any) (*http.Response, error) {
	body, err := json.Marshal(with)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// A campaigner is a manager that campaigns for the lease.
type campaigner struct {
	identity string
	fence    *transport.Fence
	began    atomic.Bool // whether the manager has begun to work
	stop     func()
	ended    chan error
}

// An electionStory plays random events for three managers. For example, the calls of a manager fail, take long, or
// lose their answers. A manager may also be stopped, and is then started again.
type electionStory struct {
	*testing.T
	*rand.Rand
	server   *leaseServer
	managers map[string]*campaigner
	started  int
	leaders  map[string]bool // the identities of all managers that could write at one of the checks
}

// At any time, only the manager that the lease names can write. The test checks the fences every half second. Three
// minutes after calls have stopped failing, exactly one manager can write.
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
	for range 3 { // if a manager has ended because it lost the lease, start it again
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
	assert.Empty(s, s.server.holder(), "the lease is released")
}

// happen starts or ends the trouble of a manager, or stops the manager.
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

// keep starts each manager that is not running.
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
	c := &campaigner{identity: fmt.Sprintf("%s-%d", name, s.started), fence: transport.NewFence(m.opts.lease, m.opts.renewDeadline), stop: stop, ended: make(chan error, 1)}
	client, err := coordinationv1client.NewForConfigAndClient(&rest.Config{QPS: -1}, &http.Client{Transport: c.fence.Wrap(s.server.wire(name))})
	require.NoError(s, err)
	lock := &watchedLock{Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: m.opts.lease.Namespace, Name: m.opts.lease.Name},
		Client:    client, LockConfig: resourcelock.ResourceLockConfig{Identity: c.identity},
	}}
	go func() {
		c.ended <- m.campaign(ctx, lock, func(ctx context.Context) error {
			c.began.Store(true)
			<-ctx.Done()
			return nil
		})
	}()
	return c
}

// pass lets time pass. Every half second, it checks that only the holder of the lease can write.
func (s *electionStory) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(500*time.Millisecond, time.Until(end)))
		holder := s.server.holder()
		for _, writer := range s.writers() {
			s.leaders[writer] = true
			require.Equal(s, holder, writer, "who can write")
		}
	}
}

// leads reports whether a manager has begun to work, and may write now.
func (c *campaigner) leads() bool { return c.began.Load() && c.fence.Check() == nil }

// writers returns the identities of the managers that can write.
func (s *electionStory) writers() (identities []string) {
	for _, m := range s.managers {
		if m.leads() {
			identities = append(identities, m.identity)
		}
	}
	return identities
}
