// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const failovers = 20

// After a leader has finished a scale-up or a scale-down and has stopped, a standby takes over. The standby
// creates and deletes no pod, even if its watches of one resource have hung since before the scaling.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		held     string // the resource that the standby's watches do not show
		from, to int32
	}{
		"its owners, and more are wanted by then":  {"replicasets", 2, 6},
		"its owners, and fewer are wanted by then": {"replicasets", 6, 2},
		"its pods, and there are more by then":     {"pods", 2, 6},
		"its pods, and there are fewer by then":    {"pods", 6, 2},
	} {
		t.Run(fmt.Sprintf("%d times: %s: no pod too many is made, and none is deleted", failovers, name), func(t *testing.T) {
			t.Parallel()
			w := newWorldWith(t, settings{idle: true})
			for i := range failovers {
				before, after := w.failover(fmt.Sprint("web-", i), tt.held, tt.from, tt.to)
				assert.Equal(t, before, after, "failover %d", i)
			}
		})
	}
	t.Run("Kubernetes' own controller deletes pods that are wanted", func(t *testing.T) {
		t.Parallel()
		w := newWorldWith(t, settings{idle: true, theirs: true})
		before, after := w.failover("web", "replicasets", 2, 6)
		assert.NotEqual(t, before, after)
	})
}

// failover scales a ReplicaSet while the standby's watches of a resource hang. The leader makes the change and
// stops, and the standby takes over. The results are the names of the pods before and after the takeover. The two
// results are equal only if the pods stayed the same both while the watches hung and after the watches went on.
func (w *world) failover(name, held string, from, to int32) (before, after []string) {
	w.t.Helper()
	w.wire = newWire()
	begin, stop := w.standBy()
	begin()
	rs := w.create(replicaSet(name, from))
	w.runAll(w.has(rs, int(from)))
	w.cachesAreFresh()
	leader := w.controllers

	w.wire = newWire()
	takeOver, end := w.standBy()
	standby := w.controllers
	standby.sync(w.t)
	release := w.wire.hold(held)
	defer release()
	w.controllers = leader
	w.scale(rs, to)
	pods := w.has(rs, int(to))
	for i, pod := range pods {
		if pod.Spec.NodeName == "" {
			w.run(pod, fmt.Sprint("node-", i), time.Now())
		}
	}
	before = names(pods)
	stop()

	w.controllers = standby
	takeOver()
	w.eventually(func(c *assert.CollectT) {
		assert.NotEmpty(c, w.looks(name), "a look at the server")
	}, "the new leader looks")
	time.Sleep(time.Second) // time for the new leader to act while the watches hang
	during := names(w.active(rs))
	release()
	w.has(rs, int(to))
	w.settle(rs)
	after = names(w.active(rs))
	if assert.ObjectsAreEqual(before, after) {
		after = during
	}
	end()
	return before, after
}

// looks returns all writes of a new leader, and the calls by which it reads the owner or the pods from the server.
// If a leader makes a write before the first of these reads, the leader has used only its caches.
func (w *world) looks(owner string) []call {
	looks := append(w.wire.to(http.MethodGet, "replicasets", owner), w.wire.writes()...)
	return append(looks, w.wire.of(http.MethodGet, "pods")[1:]...) // the first call fills the leader's cache
}

// sync waits until the caches are filled.
func (c *controllers) sync(t *testing.T) {
	t.Helper()
	for kind, synced := range c.factory.WaitForCacheSync(t.Context().Done()) {
		require.True(t, synced, "%v", kind)
	}
}
