// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A day logs the names that the Worker has processed, each with its time since the start.
type day struct {
	start time.Time
	log   []string
}

func newWorker(answer func(n int) (time.Duration, error)) (*replicastest.Worker, *replicastest.World, *day) {
	clock := replicastest.NewClock(time.Unix(0, 0))
	d := &day{start: clock.Now()}
	w := &replicastest.Worker{Clock: clock, Sync: func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
		d.log = append(d.log, key.Name+" "+clock.Now().Sub(d.start).String())
		return answer(len(d.log))
	}}
	return w, &replicastest.World{Clock: clock, Parts: []replicastest.Part{w}}, d
}

func done(int) (time.Duration, error) { return 0, nil }

func TestWorkerQueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wakes []time.Duration
		want  []string
	}{
		"now":                            {[]time.Duration{0}, []string{"web 0s"}},
		"a negative delay is now":        {[]time.Duration{-time.Second}, []string{"web 0s"}},
		"twice now is once":              {[]time.Duration{0, 0}, []string{"web 0s"}},
		"later":                          {[]time.Duration{time.Second}, []string{"web 1s"}},
		"of two later the earlier":       {[]time.Duration{2 * time.Second, time.Second, 3 * time.Second}, []string{"web 1s"}},
		"now does not cancel later":      {[]time.Duration{time.Second, 0}, []string{"web 0s", "web 1s"}},
		"nor does later wait behind now": {[]time.Duration{0, time.Second}, []string{"web 0s", "web 1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, world, day := newWorker(done)
			for _, d := range tc.wakes {
				w.Wake(key("web"), d)
			}
			world.Run(time.Minute)
			assert.Equal(t, tc.want, day.log)
		})
	}
	t.Run("what is queued is told with its time, and the earlier one of two", func(t *testing.T) {
		t.Parallel()
		w, world, day := newWorker(done)
		_, queued := w.Queued(key("web"))
		assert.False(t, queued)
		w.Wake(key("api"), 0)
		w.Wake(key("web"), time.Minute)
		at, queued := w.Queued(key("web"))
		assert.True(t, queued)
		assert.Equal(t, day.start.Add(time.Minute), at)
		w.Wake(key("web"), 0)
		at, _ = w.Queued(key("web"))
		assert.Equal(t, day.start, at)
		world.Run(time.Hour)
		_, queued = w.Queued(key("web"))
		assert.False(t, queued)
	})
	t.Run("names take turns", func(t *testing.T) {
		t.Parallel()
		w, world, day := newWorker(done)
		w.Wake(key("b"), 0)
		w.Wake(key("a"), 0)
		world.Run(0)
		assert.Equal(t, []string{"b 0s", "a 0s"}, day.log)
	})
}

func TestWorkerRetries(t *testing.T) {
	t.Parallel()
	t.Run("errors wait longer each time until a success", func(t *testing.T) {
		t.Parallel()
		w, world, day := newWorker(func(n int) (time.Duration, error) {
			if n == 4 {
				return 0, nil
			}
			return 0, assert.AnError
		})
		w.Wake(key("web"), 0)
		world.Run(time.Second)
		assert.Equal(t, []string{"web 0s", "web 5ms", "web 15ms", "web 35ms"}, day.log)
		w.Wake(key("web"), 0)
		world.Run(7 * time.Millisecond)
		assert.Equal(t, []string{"web 1s", "web 1.005s"}, day.log[4:])
	})
	t.Run("a delay is kept, after an error too", func(t *testing.T) {
		t.Parallel()
		answers := []error{nil, assert.AnError}
		w, world, day := newWorker(func(n int) (time.Duration, error) {
			if n > len(answers) {
				return 0, nil
			}
			return time.Second, answers[n-1]
		})
		w.Wake(key("web"), 0)
		world.Run(time.Minute)
		assert.Equal(t, []string{"web 0s", "web 1s", "web 2s"}, day.log)
	})
	t.Run("nothing due is nothing done", func(t *testing.T) {
		t.Parallel()
		w, _, day := newWorker(done)
		w.Step()
		w.Wake(key("web"), time.Second)
		w.Step()
		assert.Empty(t, day.log)
		_, ok := w.Due()
		require.True(t, ok)
	})
}
