// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/replicas/controller"
)

func TestFaults(t *testing.T) {
	t.Parallel()

	t.Run("K2 W11 the API server is restarted in the middle of a scale-up, and of a scale-down", func(t *testing.T) {
		t.Parallel()
		const wanted = 400
		own, err := startCluster(time.Millisecond)
		require.NoError(t, err)
		t.Cleanup(own.stop)
		w := newWorldWith(t, settings{cluster: own})
		restart := func() { assert.NoError(t, own.restartAPIServer(t.Context())) }

		restarted := w.wire.at(http.MethodPost, "pods", wanted/2, restart)
		rs := w.create(replicaSet("web", wanted))
		<-restarted
		w.has(rs, wanted)
		created, lost := answers(w.wire.of(http.MethodPost, "pods"))
		t.Logf("%d creations succeeded, %d had no answer; %d pods at once", created, lost, w.history.mostAtOnce(rs.UID))
		assert.Positive(t, lost)
		assert.Equal(t, wanted, w.history.everOwned(rs), "none too many, whatever became of the answers")

		before := w.history.everOwned(rs)
		restarted = w.wire.at(http.MethodDelete, "pods", wanted/4, restart)
		w.scale(rs, wanted/2)
		<-restarted
		w.has(rs, wanted/2)
		w.settle(rs)
		w.has(rs, wanted/2)
		deleted, lost := answers(w.wire.of(http.MethodDelete, "pods"))
		t.Logf("%d deletions succeeded, %d had no answer", deleted, lost)
		assert.Positive(t, lost)
		assert.Equal(t, before, w.history.everOwned(rs), "no pod too many was deleted and had to be replaced")
	})

	t.Run("K1 Z5 the controller is killed in the middle of a burst, again and again", func(t *testing.T) {
		t.Parallel()
		const wanted, kills = 300, 3
		w := newWorldWith(t, settings{idle: true})
		rs := w.create(replicaSet("web", wanted))
		for kill := range kills {
			process := child(t, w.cluster.kubeconfig, w.namespace)
			w.eventually(func(c *assert.CollectT) {
				assert.Greater(c, w.history.everOwned(rs), (kill+1)*wanted/(kills+2))
			}, "the burst must be under way")
			require.NoError(t, process.Process.Kill())
			_ = process.Wait()
			t.Logf("killed with %d of %d pods", w.history.everOwned(rs), wanted)
		}
		child(t, w.cluster.kubeconfig, w.namespace)
		w.allow(rs, controller.DefaultMaxParallel)
		w.has(rs, wanted)
		t.Logf("%d pods at once, %d ever", w.history.mostAtOnce(rs.UID), w.history.everOwned(rs))
		assert.LessOrEqual(t, w.history.everOwned(rs), wanted+kills*controller.DefaultMaxParallel)
	})
}

// answers counts the calls that succeeded and the calls that got no answer.
func answers(calls []call) (succeeded, lost int) {
	for _, c := range calls {
		switch {
		case c.ok():
			succeeded++
		case c.status == 0:
			lost++
		}
	}
	return succeeded, lost
}
