// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podstate "github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// ruled returns the Kind of ReplicaSets with two rules: pods with the label "go" must go, and those with the label
// "stay" must stay. With all, pods that are being deleted count as replicas. With slow, each plan deletes at most one
// pod.
func ruled(all, slow bool) controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Labels["go"] != "" }
		s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Labels["stay"] != "" }
		if all {
			s.Rules.Active = func(p *corev1.Pod) bool { return !podstate.IsFinished(p) }
		}
		if slow {
			one := 1
			s.MaxDeletions = &one
		}
		return s, err
	}
	return kind
}

// The rules change their results, and calls fail. In the end, there are as many replicas as the ReplicaSet
// wants, and Rules.MustGo returns false for each replica.
func TestRulesLeadToTheWantedNumber(t *testing.T) {
	t.Parallel()
	for seed := range some(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		cluster, err := replicastest.NewCluster(ruled(r.IntN(2) == 0, r.IntN(2) == 0), replicastest.Options{Nodes: 3, Seed: seed})
		require.NoError(t, err)
		c := cluster.NewController()
		world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
		_, err = cluster.CreateOwner(t.Context(), replicastest.NewReplicaSet(namespace, "web", 5))
		require.NoError(t, err)
		for range 60 {
			disturb(t, r, cluster, c)
			world.Run(time.Duration(r.IntN(20)) * time.Second)
		}
		c.View.ChildWatch.Resume()
		for _, p := range cluster.Children(namespace) {
			_, _ = cluster.EditChild(t.Context(), namespace, p.Name, func(p *corev1.Pod) { delete(p.Labels, "stay") })
		}
		world.Run(2 * time.Hour)
		rs, left := cluster.Owners(namespace)[0], 0
		for _, p := range cluster.Children(namespace) {
			if metav1.IsControlledBy(p, rs) {
				left++
				assert.Empty(t, p.Labels["go"], "seed %d", seed)
			}
		}
		assert.EqualValues(t, *rs.Spec.Replicas, left, "seed %d", seed)
		assert.EqualValues(t, left, rs.Status.Replicas, "seed %d", seed)
	}
}

// disturb makes one random change. The ReplicaSet is scaled, a pod gets a label, the watch of pods hangs or
// resumes, or calls fail.
func disturb(t *testing.T, r *rand.Rand, cluster *replicastest.PodCluster, c *podController) {
	t.Helper()
	edit := func(change func(p *corev1.Pod)) {
		if pods := cluster.Children(namespace); len(pods) > 0 {
			_, _ = cluster.EditChild(t.Context(), namespace, pods[r.IntN(len(pods))].Name, change)
		}
	}
	verbs := []string{"create", "delete", "patch", "list", "get"}
	switch n := int32(r.IntN(10)); r.IntN(8) {
	case 0, 1:
		_, err := cluster.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
		require.NoError(t, err)
	case 2:
		edit(func(p *corev1.Pod) { p.Labels["go"] = "now" })
	case 3:
		edit(func(p *corev1.Pod) { p.Labels[[]string{"stay", "app"}[n%2]] = "elsewhere" })
	case 4:
		edit(func(p *corev1.Pod) { p.Labels["app"] = "web" })
	case 5:
		c.View.ChildWatch.Hang()
	case 6:
		c.View.ChildWatch.Resume()
	case 7:
		c.Client.Fail(replicastest.Rule{Verb: verbs[n%5], Times: 1 + int(n%3), Landed: n < 5, Late: time.Duration(n*10) * time.Second})
	}
}
