// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/replicakit/replicakit/examples/workerpool/api/v1"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A simulation is the operator on a simulated cluster. The simulation produces faults that occur on a real cluster
// only by accident. Hours of simulated time take milliseconds.
type simulation struct {
	*replicastest.Cluster[*v1.WorkerPool, *v1.Worker]
	operator *replicastest.Controller[*v1.WorkerPool, *v1.Worker]
	world    *replicastest.World
}

// simulate returns a simulation with a pool of n replicas. Each Worker becomes ready.
func simulate(t *testing.T, n int32) *simulation {
	t.Helper()
	cluster, err := replicastest.NewCluster(workerPools, replicastest.Options{Seed: 1})
	require.NoError(t, err)
	cluster.Ready = func(w *v1.Worker) { w.Status.Ready = true }
	operator := cluster.NewController()
	_, err = cluster.CreateOwner(t.Context(), newPool(metav1.NamespaceDefault, n))
	require.NoError(t, err)
	parts := []replicastest.Part{cluster, operator}
	return &simulation{cluster, operator, &replicastest.World{Clock: cluster.Clock, Parts: parts}}
}

func (s *simulation) edit(t *testing.T, change func(*v1.WorkerPool)) {
	t.Helper()
	_, err := s.EditOwner(t.Context(), metav1.NamespaceDefault, "web", change)
	require.NoError(t, err)
}

// workers returns the existing Workers, and the number of ready Workers.
func (s *simulation) workers() ([]*v1.Worker, int) {
	all := s.Children(metav1.NamespaceDefault)
	return all, int(count(all, isReady))
}

// If calls take effect but their answers are lost, the operator creates no Worker twice, and does not delete too
// many Workers. The test uses each of the errors that Lost returns.
func TestSimulatedLostAnswers(t *testing.T) {
	t.Parallel()
	for _, lost := range replicastest.Lost() {
		t.Run(lost.Error(), func(t *testing.T) {
			t.Parallel()
			s := simulate(t, 5)
			calls := s.operator.Client.Record()
			s.operator.Client.Fail(
				replicastest.Rule{Verb: "create", Skip: 1, Times: 3, Err: lost, Landed: true},
				replicastest.Rule{Verb: "delete", Times: 2, Err: lost, Landed: true})
			most := 0
			s.Changed = func(metav1.Object, metav1.Object) {
				all, _ := s.workers()
				most = max(most, len(all))
			}
			s.world.Run(time.Hour)
			s.edit(t, func(p *v1.WorkerPool) { p.Spec.Replicas = 2 })
			s.world.Run(time.Hour)
			all, ready := s.workers()
			assert.Len(t, all, 2)
			assert.Equal(t, 2, ready)
			assert.Equal(t, 5, most, "never one too many")
			assert.GreaterOrEqual(t, len(calls.Failed()), 5, "%s", calls)
		})
	}
}

// If a creation gets no answer and takes effect a minute later, the operator still reaches the wanted number of
// Workers.
func TestSimulatedLateCreation(t *testing.T) {
	t.Parallel()
	s := simulate(t, 3)
	s.operator.Client.Fail(replicastest.Rule{Verb: "create", Skip: 1, Times: 1, Late: time.Minute})
	s.world.Run(time.Hour)
	all, _ := s.workers()
	assert.Len(t, all, 3)
}

// If the watch of Workers hangs without an error, the operator still reaches the wanted number of Workers. If the
// template then changes, at most maxUnavailable Workers are unavailable at any moment.
func TestSimulatedHungWatch(t *testing.T) {
	t.Parallel()
	s := simulate(t, 4)
	s.world.Run(time.Minute)
	s.operator.View.ChildWatch.Hang()
	for _, n := range []int32{8, 2, 6} {
		s.edit(t, func(p *v1.WorkerPool) { p.Spec.Replicas = n })
		s.world.Run(time.Hour)
		all, _ := s.workers()
		assert.Len(t, all, int(n))
	}

	s.edit(t, func(p *v1.WorkerPool) { p.Spec.MaxUnavailable, p.Spec.Template.Spec.Image = 1, "two" })
	s.world.RunUntil(s.Clock.Now().Add(time.Hour), func() bool {
		all, ready := s.workers()
		require.LessOrEqual(t, len(all), 6)
		require.GreaterOrEqual(t, ready, 5, "6 replicas, of which 1 may be unavailable")
		return false
	})
	s.operator.View.ChildWatch.Resume()
	s.world.Run(time.Hour)
	all, ready := s.workers()
	assert.Equal(t, 6, ready)
	for _, w := range all {
		assert.Equal(t, "two", w.Spec.Image)
	}
}

// If an operator dies after its first creation, a new operator without any memory still reaches the wanted number
// of Workers.
func TestSimulatedCrash(t *testing.T) {
	t.Parallel()
	s := simulate(t, 3)
	s.operator.Client.Done = func(call replicastest.Call, _ error) {
		if call.Verb == "create" {
			panic(replicastest.Crash{})
		}
	}
	require.True(t, replicastest.Crashes(func() { s.world.Run(time.Minute) }))
	s.operator.View.Stop()
	s.operator = s.NewController()
	s.world.Parts[1] = s.operator
	s.world.Run(time.Minute)
	all, _ := s.workers()
	assert.Len(t, all, 3)
	pool, err := s.GetOwner(context.Background(), metav1.NamespaceDefault, "web")
	require.NoError(t, err)
	assert.Equal(t, int32(3), pool.Status.ReadyReplicas)
}

// The operator keeps its promises through all faults: a pool scaled and rolled out while caches are late, answers
// are lost and processes die.
func TestSimulatedStories(t *testing.T) {
	t.Parallel()
	wants := func(n int32) func(*v1.WorkerPool) { return func(p *v1.WorkerPool) { p.Spec.Replicas = n } }
	image := func(image string) func(*v1.WorkerPool) {
		return func(p *v1.WorkerPool) { p.Spec.Template.Spec.Image = image }
	}
	require.NoError(t, replicastest.Play(1, 60, func(s *replicastest.Story[*v1.WorkerPool, *v1.Worker]) {
		s.Kind, s.Owner = workerPools, newPool(metav1.NamespaceDefault, 4)
		s.Owner.Spec.MaxUnavailable = 1
		s.Ready = func(w *v1.Worker) { w.Status.Ready = true }
		s.Changes = []func(*v1.WorkerPool){wants(3), wants(4), wants(6), image("two"), image("three")}
		s.Always = map[string]func() error{"never more than six": s.AtMost(6), "never fewer than two": s.AtLeast(2)}
		s.AtEnd = map[string]func() error{
			"as many as wanted": s.AsWanted,
			"all are ready, and of the newest revision": func() error {
				for _, p := range s.Cluster.Owners(metav1.NamespaceDefault) {
					if p.Status.ReadyReplicas != p.Spec.Replicas {
						return fmt.Errorf("%d of %d are ready", p.Status.ReadyReplicas, p.Spec.Replicas)
					}
					for _, w := range s.Cluster.Children(metav1.NamespaceDefault) {
						if w.Labels[revisionLabel] != revision(p) {
							return fmt.Errorf("%s is of an old revision", w.Name)
						}
					}
				}
				return nil
			},
		}
	}))
}
