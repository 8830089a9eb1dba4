// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
)

// If the controllers know that their view is old, they create and delete nothing. If the answer to a call is lost,
// the controllers find out whether the call took effect.
func TestTruth(t *testing.T) {
	t.Parallel()

	for _, row := range []struct {
		name    string
		fault   fault
		resends bool
	}{
		{"cut off", cut, false},
		{"504", replace(http.StatusGatewayTimeout, ""), false},
		{"500", replace(http.StatusInternalServerError, ""), false},
		{"429", replace(http.StatusTooManyRequests, "1"), false},
		{"503", replace(http.StatusServiceUnavailable, "1"), false},
		{"429, and sent again by the client", replace(http.StatusTooManyRequests, "1"), true},
	} {
		t.Run("W11 of ten answers three are lost, "+row.name+": no pod too many", func(t *testing.T) {
			t.Parallel()
			const wanted, orphans = 60, 10
			w := newWorldWith(t, settings{resends: row.resends})
			for range orphans {
				pod := orphan("")
				pod.GenerateName = "orphan-"
				w.createPod(pod)
			}
			w.cachesAreFresh()
			w.wire.lose(0.3, row.fault)
			rs := w.create(replicaSet("web", wanted))
			w.has(rs, wanted)
			assert.Equal(t, wanted, w.history.everOwned(rs))
			w.scale(rs, wanted/3)
			w.has(rs, wanted/3)
			assert.Equal(t, wanted, w.history.everOwned(rs), "none was deleted in another's stead")
			status := len(w.wire.of(http.MethodPatch, "replicasets/status"))
			t.Logf("%d status writes", status)
			assert.LessOrEqual(t, status, 20, "slow start ends with a batch of which an answer is lost")
		})
	}

	t.Run("E3 W13 the watch of pods hangs for longer than anybody waits, up and down", func(t *testing.T) {
		t.Parallel()
		const few, many = 4, 20
		clock := newJumpingClock(t)
		w := newWorldWith(t, settings{options: clientgo.Options{Clock: clock}})
		rs := w.create(replicaSet("web", few))
		w.has(rs, few)
		w.settle(rs)
		hung := func(wanted int) {
			t.Helper()
			release := w.wire.hold("pods")
			defer release()
			w.scale(rs, int32(wanted))
			w.hasPods(rs, wanted)
			for range 3 {
				clock.jump(expectations.DefaultTimeout * 2)
				for range 5 {
					w.touch(rs)
					time.Sleep(100 * time.Millisecond)
				}
				assert.Len(t, w.active(rs), wanted)
			}
		}
		hung(many)
		w.has(rs, many)
		assert.Equal(t, many, w.history.everOwned(rs))
		hung(many / 2)
		w.has(rs, many/2)
		assert.Equal(t, many, w.history.everOwned(rs), "no survivor was deleted, and replaced")
		w.settle(rs)
		w.has(rs, many/2)
	})

	t.Run("a webhook that changes the selected label makes no crowd of pods", func(t *testing.T) {
		t.Parallel()
		const wanted = 3
		clock := newJumpingClock(t)
		w := newWorldWith(t, settings{options: clientgo.Options{Clock: clock}})
		lift := w.relabel("elsewhere")
		rs := w.create(replicaSet("web", wanted))
		w.eventually(func(c *assert.CollectT) {
			failure := condition(w.report(rs))
			require.NotNil(c, failure)
			assert.Equal(c, "FailedCreate", failure.Reason)
			assert.NotEmpty(c, w.events(rs, controller.FailedCreate))
		}, "it must be told")
		for range 10 {
			w.touch(rs)
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, len(w.wire.of(http.MethodPost, "pods")), wanted)
		w.eventually(func(c *assert.CollectT) {
			assert.Empty(c, w.history.find(func(*corev1.Pod) bool { return true }))
		}, "what was made must be deleted again")
		lift()
		w.eventually(func(c *assert.CollectT) {
			clock.jump(time.Minute)
			assert.Len(c, w.active(rs), wanted)
		}, "it goes on when the webhook is gone")
		w.has(rs, wanted)
		w.eventually(func(c *assert.CollectT) { assert.Nil(c, condition(w.report(rs))) }, "the condition must go")
	})

	t.Run("pods that fail at once are made slower and slower, if asked for", func(t *testing.T) {
		t.Parallel()
		const wanted = 3
		failing := func(w *world) (stop func()) {
			done := make(chan struct{})
			var running sync.WaitGroup
			running.Go(func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(glance):
					}
					for _, pod := range w.history.find(active) {
						w.phase(pod.Name, corev1.PodFailed)
					}
				}
			})
			return func() { close(done); running.Wait() }
		}
		w := newWorld(t)
		stop := failing(w)
		rs := w.create(replicaSet("web", wanted))
		w.ever(rs, 10*wanted)
		stop()
		w.has(rs, wanted)

		clock := newJumpingClock(t)
		on := true
		w = newWorldWith(t, settings{options: clientgo.Options{Clock: clock, BackOffFailed: &on}})
		stop = failing(w)
		rs = w.create(replicaSet("web", wanted))
		w.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, w.events(rs, controller.CreationsHeld)) }, "it must be told")
		for range 10 {
			w.touch(rs)
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, w.history.everOwned(rs), 2*wanted)
		stop()
		w.eventually(func(c *assert.CollectT) {
			clock.jump(10 * time.Second)
			assert.Len(c, w.active(rs), wanted)
		}, "pods that do not fail")
	})
}
