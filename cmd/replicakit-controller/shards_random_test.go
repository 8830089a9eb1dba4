// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A managersStory is what happens to managers at random: they are cut off, their calls
// take long or lose their answers, they end in order or are started again.
type managersStory struct {
	*leaseServer
	*rand.Rand
	ranges   int
	managers map[string]*sharer
}

// TestShareAtRandom holds the fence to what it promises, at every instant: whoever may
// write in a range is the one that the range's lease names, and nobody else may. And once
// nothing goes wrong any more, each range is served.
func TestShareAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				story := &managersStory{newLeaseServer(t), rand.New(rand.NewPCG(seed, 1)), 4, map[string]*sharer{}}
				story.play()
			})
		})
	}
}

func (s *managersStory) play() {
	names := []string{"a", "b", "c"}
	for range 60 {
		name := names[s.IntN(len(names))]
		s.happen(name)
		s.pass(time.Duration(s.IntN(20_000)) * time.Millisecond)
		for _, name := range names {
			s.keep(name)
		}
	}
	s.mu.Lock()
	clear(s.cut)
	clear(s.wrong)
	s.mu.Unlock()
	for range 8 { // those that lost the joint lease end, and are started again
		s.pass(time.Minute)
		for _, name := range names {
			s.keep(name)
		}
	}
	assert.Len(s.t, s.served(), s.ranges)
	for _, m := range s.managers {
		m.stop()
	}
	for _, m := range s.managers {
		require.NoError(s.t, <-m.ended, m.name)
	}
	assert.Empty(s.t, s.served())
}

// happen lets one thing happen to a manager.
func (s *managersStory) happen(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.IntN(8) {
	case 0, 1:
		s.cut[name] = true
	case 2:
		s.wrong[name] = trouble{lost: true}
	case 3:
		s.wrong[name] = trouble{slow: time.Duration(s.IntN(12_000)) * time.Millisecond, lost: s.IntN(3) == 0}
	case 4:
		if m := s.managers[name]; m != nil {
			m.stop()
		}
	default:
		delete(s.cut, name)
		delete(s.wrong, name)
	}
}

// keep starts a manager again that has ended.
func (s *managersStory) keep(name string) {
	if m := s.managers[name]; m != nil {
		select {
		case <-m.ended:
			m.stop()
		default:
			return
		}
	}
	s.managers[name] = s.start(name, s.ranges)
}

// pass lets time pass, and judges who may write in each half second of it.
func (s *managersStory) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(500*time.Millisecond, time.Until(end)))
		s.judge()
	}
}

func (s *managersStory) judge() {
	s.check()
	s.mu.Lock()
	defer s.mu.Unlock()
	for index, workers := range s.atWork {
		for _, w := range workers {
			if !w.mayWrite() {
				continue
			}
			lease := s.leases[w.opts.rangeLease(index)]
			require.NotNil(s.t, lease)
			holder := s.identities[w]
			require.Equal(s.t, holder, lease.record.HolderIdentity, "who writes in range %d", index)
		}
	}
}
