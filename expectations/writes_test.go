// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

func at(name, version string) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.ResourceVersion = version
	return pod
}

func TestWrites(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wrote  []*corev1.Pod
		cached *corev1.Pod
		after  time.Duration
		want   expectations.State
		wait   time.Duration
	}{
		"an object that was not written is up to date":  {nil, at("a", "5"), 0, expectations.Satisfied, 0},
		"an older one is not":                           {[]*corev1.Pod{at("a", "9")}, at("a", "5"), 0, expectations.Waiting, time.Minute + 1},
		"versions are numbers":                          {[]*corev1.Pod{at("a", "10")}, at("a", "9"), 0, expectations.Waiting, time.Minute + 1},
		"the time that is left":                         {[]*corev1.Pod{at("a", "9")}, at("a", "5"), 20 * time.Second, expectations.Waiting, 40*time.Second + 1},
		"the same one is":                               {[]*corev1.Pod{at("a", "9")}, at("a", "9"), 0, expectations.Satisfied, 0},
		"a newer one is":                                {[]*corev1.Pod{at("a", "9")}, at("a", "11"), 0, expectations.Satisfied, 0},
		"another object was not written":                {[]*corev1.Pod{at("a", "9")}, at("b", "5"), 0, expectations.Satisfied, 0},
		"the highest version counts":                    {[]*corev1.Pod{at("a", "9"), at("a", "7")}, at("a", "8"), 0, expectations.Waiting, time.Minute + 1},
		"after the timeout it has expired":              {[]*corev1.Pod{at("a", "9")}, at("a", "5"), time.Minute + 1, expectations.Expired, 0},
		"a version that is none proves nothing":         {[]*corev1.Pod{at("a", "x")}, at("a", "5"), 0, expectations.Satisfied, 0},
		"an answer without a version proves nothing":    {[]*corev1.Pod{at("a", "")}, at("a", "5"), 0, expectations.Satisfied, 0},
		"an answer that is nil is ignored":              {[]*corev1.Pod{nil}, at("a", "5"), 0, expectations.Satisfied, 0},
		"what the cache does not have is not asked for": {[]*corev1.Pod{at("a", "9")}, nil, 0, expectations.Satisfied, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clock{start}
			w := &expectations.Writes{Timeout: time.Minute, Now: c.Now}
			for _, p := range tt.wrote {
				w.At(p)
			}
			c.advance(tt.after)
			state, wait := w.State(tt.cached)
			assert.Equal(t, tt.want, state)
			assert.Equal(t, tt.wait, wait)
		})
	}
	t.Run("what was seen is forgotten, so that a restored server blocks nothing", func(t *testing.T) {
		t.Parallel()
		var w expectations.Writes
		w.At(at("a", "9"))
		state, _ := w.State(at("a", "9"))
		assert.Equal(t, expectations.Satisfied, state)
		state, _ = w.State(at("a", "3"))
		assert.Equal(t, expectations.Satisfied, state)
	})
	t.Run("an object that is gone is forgotten", func(t *testing.T) {
		t.Parallel()
		var w expectations.Writes
		w.At(at("a", "9"))
		w.Forget(nil)
		state, _ := w.State(at("a", "5"))
		assert.Equal(t, expectations.Waiting, state)
		w.Forget(at("a", "5"))
		state, _ = w.State(at("a", "5"))
		assert.Equal(t, expectations.Satisfied, state)
	})
	t.Run("objects without UIDs go by their names", func(t *testing.T) {
		t.Parallel()
		var w expectations.Writes
		written, other := at("a", "9"), at("b", "5")
		written.UID, other.UID = "", ""
		w.At(written)
		state, _ := w.State(other)
		assert.Equal(t, expectations.Satisfied, state)
		old := written.DeepCopy()
		old.ResourceVersion = "5"
		state, _ = w.State(old)
		assert.Equal(t, expectations.Waiting, state)
	})
	t.Run("several goroutines may use it at once", func(t *testing.T) {
		t.Parallel()
		var w expectations.Writes
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for v := range 100 {
					w.At(at("a", strconv.Itoa(8*v+i)))
					w.State(at("a", strconv.Itoa(8*v)))
					w.Forget(at("b", "1"))
				}
			})
		}
		all.Wait()
	})
}
