// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failovers is how often each story is told.
var failovers = flag.Int("failovers", 4, "`times` that a controller takes over in each story")

// A controller works, and stops. Another one takes over whose watches have hung since
// before the last change.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		held     string // what the standby's watches do not show
		from, to int32
	}{
		"its owners, and more are wanted by then":  {"replicasets", 2, 6},
		"its owners, and fewer are wanted by then": {"replicasets", 6, 2},
		"its pods, and there are more by then":     {"pods", 2, 6},
		"its pods, and there are fewer by then":    {"pods", 6, 2},
	} {
		t.Run(name+": no pod too many is made, and none is deleted", func(t *testing.T) {
			t.Parallel()
			w := newWorldWith(t, settings{idle: true})
			for i := range *failovers {
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

// failover scales a ReplicaSet, and then another controller takes over whose watches of a
// resource have hung since before that. It returns the pods before and after: both when
// the watches hang and when they have gone on.
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
	time.Sleep(200 * time.Millisecond) // whatever it does, it does now
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

// looks are the calls from which a new leader learns what its caches do not show, or by
// which it shows that it does not look.
func (w *world) looks(owner string) []call {
	looks := append(w.wire.to(http.MethodGet, "replicasets", owner), w.wire.writes()...)
	return append(looks, w.wire.of(http.MethodGet, "pods")[1:]...) // the first one fills its cache
}

// sync waits until the caches are filled.
func (c *controllers) sync(t *testing.T) {
	t.Helper()
	for kind, synced := range c.factory.WaitForCacheSync(t.Context().Done()) {
		require.True(t, synced, "%v", kind)
	}
}
