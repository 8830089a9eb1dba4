// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// groupOf returns a Kind for one group of a pool's workers. Each group has its own label.
func groupOf(group string, n int32) controller.Kind[*pool, *worker] {
	set := labels.Set{"app": "pool", "group": group}
	return workersOf(func(spec *workers) {
		spec.Replicas, spec.Selector = n, set.AsSelector()
		spec.New = func(string) (*worker, error) { return &worker{ObjectMeta: metav1.ObjectMeta{Labels: set}}, nil }
	})
}

// Two controllers have different Kinds for two groups of workers of one owner (kuberay 1739). Each controller
// releases the workers of the other group, and the other controller adopts them again. Each release of
// the same worker waits twice as long as the last one, up to a minute, and an event reports the problem.
func TestTwoKindsOfOneOwner(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, groupOf("head", 1), 0, true)
	view, client, worker := s.NewView(), s.NewClient(), &replicastest.Worker{Clock: s.Clock}
	kind := groupOf("worker", 3)
	kind.Status = nil
	second, err := controller.New(kind, client, view, worker.Wake, controller.Options{Now: s.Clock.Now, Events: client, Random: s.Random, MaxParallel: 1})
	require.NoError(t, err)
	worker.Sync = second.Sync
	view.Handle(second)
	view.ChildWatch.Lag, s.controller.View.ChildWatch.Lag = 100*time.Millisecond, 100*time.Millisecond
	s.world.Parts = append(s.world.Parts, view, worker)
	calls, others := s.controller.Client.Record(), client.Record()
	patches := func() int { return calls.Count("patch") + others.Count("patch") }
	s.world.Run(10 * time.Minute)
	made := patches()
	assert.LessOrEqual(t, made, 2*4*(6+10), "each of 4 workers is released and adopted, at last each minute")
	s.world.Run(20 * time.Minute)
	assert.LessOrEqual(t, patches()-made, 2*4*20, "they do not fight at each event")
	groups := map[string]int{}
	for _, w := range s.Children(namespace) {
		groups[w.Labels["group"]]++
	}
	assert.Equal(t, map[string]int{"head": 1, "worker": 3}, groups)
	told := false
	for _, e := range s.Events {
		told = told || strings.Contains(e.Message, "another controller, with another selector, has adopted it for this owner")
	}
	assert.True(t, told, "%v", s.Events)
}
