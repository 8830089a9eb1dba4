// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

// An alarm rings once at each of its times.
type alarm struct {
	times []time.Time
	ring  func()
}

func (a *alarm) Due() (time.Time, bool) {
	if len(a.times) == 0 {
		return time.Time{}, false
	}
	return a.times[0], true
}

func (a *alarm) Step() {
	a.times = a.times[1:]
	a.ring()
}

func TestWorld(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0)
	clock := replicastest.NewClock(start)
	var log []string
	part := func(name string, delays ...time.Duration) *alarm {
		a := &alarm{ring: func() { log = append(log, name+" "+clock.Now().Sub(start).String()) }}
		for _, d := range delays {
			a.times = append(a.times, start.Add(d))
		}
		return a
	}
	world := &replicastest.World{Clock: clock, Parts: []replicastest.Part{part("a", time.Second, 3*time.Second), part("b", 0, time.Second)}}

	world.Run(0)
	assert.Equal(t, []string{"b 0s"}, log)
	world.Run(2 * time.Second)
	assert.Equal(t, []string{"b 0s", "a 1s", "b 1s"}, log, "in the order of time, then of the parts")
	assert.Equal(t, start.Add(2*time.Second), clock.Now())
	world.Run(time.Minute)
	assert.Equal(t, "a 3s", log[3])
	assert.Equal(t, start.Add(62*time.Second), clock.Now())
	clock.Advance(-time.Hour)
	assert.Equal(t, start.Add(62*time.Second), clock.Now(), "time does not go back")
}

func TestRunUntil(t *testing.T) {
	t.Parallel()
	clock := replicastest.NewClock(time.Unix(0, 0))
	rings := 0
	times := []time.Time{time.Unix(1, 0), time.Unix(2, 0), time.Unix(3, 0), time.Unix(9, 0)}
	world := &replicastest.World{Clock: clock, Parts: []replicastest.Part{&alarm{times, func() { rings++ }}}}

	assert.True(t, world.RunUntil(time.Unix(5, 0), func() bool { return rings == 2 }))
	assert.Equal(t, time.Unix(2, 0), clock.Now())
	assert.False(t, world.RunUntil(time.Unix(5, 0), func() bool { return rings == 4 }))
	assert.Equal(t, 3, rings)
}

func TestBusyWorld(t *testing.T) {
	t.Parallel()
	clock := replicastest.NewClock(time.Unix(0, 0))
	a := &alarm{times: []time.Time{clock.Now()}}
	a.ring = func() { a.times = append(a.times, clock.Now()) }
	world := &replicastest.World{Clock: clock, Parts: []replicastest.Part{a}}
	assert.Panics(t, func() { world.Run(time.Second) })
}
