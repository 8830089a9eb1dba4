// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// The watch of the pods is late for twenty minutes, and pods are deleted all the time. Passes wait for the cache to
// show their calls, and what then is missing is created in the same pass, so the next one waits again. That is one
// gate, so the log has one line, and another one when the watch is in time.
func TestAGateThatLastsIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lag, every time.Duration
		hangs      bool
		most       int // the most changes of gates while the watch is late
	}{
		"as late as the pods are deleted":   {lag: 61 * time.Second, every: time.Minute, most: 1},
		"later than pods are deleted":       {lag: 30 * time.Second, every: 10 * time.Second, most: 1},
		"later than the wait for the cache": {lag: 6 * time.Minute, every: time.Minute, most: 5}, // a live list each five minutes ends the wait
		"it hangs":                          {hangs: true, every: time.Minute, most: 5},
	} {
		for _, versions := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, versions: %t", name, versions), func(t *testing.T) {
				t.Parallel()
				cluster := newCluster(3)
				createReplicaSet(t, cluster, 3)
				c := cluster.NewController()
				c.RememberWrites = versions
				world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
				world.Run(time.Hour)
				var changes []controller.GateChange
				c.Passed = func(pass podPass) { changes = append(changes, pass.GateChanges...) }
				if c.View.ChildWatch.Lag = tt.lag; tt.hangs {
					c.View.ChildWatch.Hang()
				}
				_, err := cluster.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = 6 })
				require.NoError(t, err)
				for range 20 * time.Minute / tt.every {
					world.Run(tt.every)
					for _, p := range cluster.Children(namespace)[:min(1, len(cluster.Children(namespace)))] {
						_, err := cluster.DeleteChild(t.Context(), namespace, p.Name, metav1.DeleteOptions{})
						require.NoError(t, err)
					}
				}
				assert.NotEmpty(t, changes)
				assert.LessOrEqual(t, len(changes), tt.most, "%v", changes)
				c.View.ChildWatch.Lag = 0
				c.View.ChildWatch.Relist()
				world.Run(10 * time.Minute)
				last := changes[len(changes)-1]
				assert.Equal(t, controller.CallsNotSeen, last.Reason)
				assert.True(t, last.Ended, "the end is told")
			})
		}
	}
}

// The watch of owners hangs, and each status write adds a version that the cache does not show.
func TestAnOwnerThatTheCacheShowsLateIsToldOnce(t *testing.T) {
	t.Parallel()
	cluster := newCluster(3)
	createReplicaSet(t, cluster, 3)
	c := cluster.NewController()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
	world.Run(time.Hour)
	var changes []controller.GateChange
	c.Passed = func(pass podPass) { changes = append(changes, pass.GateChanges...) }
	c.View.OwnerWatch.Hang()
	for range 20 {
		_, err := cluster.DeleteChild(t.Context(), namespace, cluster.Children(namespace)[0].Name, metav1.DeleteOptions{})
		require.NoError(t, err)
		world.Run(time.Minute)
	}
	begun := map[controller.GateReason]int{}
	for _, change := range changes {
		begun[change.Reason]++
	}
	assert.Equal(t, map[controller.GateReason]int{controller.OwnWriteNotSeen: 1}, begun)
	c.View.OwnerWatch.Relist()
	world.Run(10 * time.Minute)
	last := changes[len(changes)-1]
	assert.Equal(t, controller.OwnWriteNotSeen, last.Reason)
	assert.True(t, last.Ended, "the end is told")
}
