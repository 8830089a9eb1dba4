// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// failing is a node that ends every pod within a tenth of a second, as it does with
// pods that it cannot admit.
type failing struct {
	*replicastest.PodCluster
	t    *testing.T
	next time.Time
	ends bool // no pod fails any more
}

func (f *failing) Due() (time.Time, bool) { return f.next, !f.ends }

func (f *failing) Step() {
	f.next = f.Clock.Now().Add(100 * time.Millisecond)
	for _, p := range f.Children(namespace) {
		if p.Status.Phase != corev1.PodFailed {
			_, err := f.EditChild(f.t.Context(), namespace, p.Name, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			require.NoError(f.t, err)
		}
	}
}

// Pods that end as soon as they are created are replaced ever more slowly, if that is
// asked for: kubernetes#72593.
func TestPodsThatFailAtOnce(t *testing.T) {
	t.Parallel()
	play := func(opts controller.Options) (world *replicastest.World, node *failing, held *int) {
		cluster := replicastest.NewPodCluster(replicastest.Options{Seed: 1, Nodes: 1})
		createReplicaSet(t, cluster, 1)
		node, held = &failing{PodCluster: cluster, t: t, next: cluster.Clock.Now()}, new(int)
		c, err := cluster.NewControllerWith(opts)
		require.NoError(t, err)
		c.Passed = func(pass replicastest.PodPass) {
			if pass.BackedOff {
				*held++
			}
		}
		return &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{node, cluster, c}}, node, held
	}
	world, node, _ := play(controller.Options{})
	world.Run(30 * time.Second)
	assert.Greater(t, len(node.Children(namespace)), 100, "as Kubernetes does")

	world, node, held := play(controller.Options{BackOffFailed: true})
	for _, step := range []struct {
		until time.Duration
		pods  int
	}{{9 * time.Second, 1}, {29 * time.Second, 2}, {69 * time.Second, 3}, {149 * time.Second, 4}, {309 * time.Second, 5}} {
		world.Run(step.until - node.Clock.Now().Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
		assert.Len(t, node.Children(namespace), step.pods, "after %v", step.until)
	}
	assert.Positive(t, *held)
	told := 0
	for _, e := range node.Events {
		if e.Reason == controller.CreationsHeld {
			told++
		}
	}
	assert.LessOrEqual(t, told, len(node.Children(namespace)), "once for each hold at most")
	assert.Positive(t, told)
	node.ends = true
	world.Run(10 * time.Minute)
	running := 0
	for _, p := range node.Children(namespace) {
		if p.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	assert.Equal(t, 1, running, "what is wanted, once pods run again")
}
