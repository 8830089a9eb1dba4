// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A Kind is played 20 times with faults, and keeps its rules.
func ExamplePlay() {
	wants := func(n int32) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n }
	}
	err := replicastest.Play(1, 20, func(s *replicastest.Story[*appsv1.ReplicaSet, *corev1.Pod]) {
		s.Kind = controller.ReplicaSets()
		s.Owner = replicastest.NewReplicaSet("default", "web", 3)
		s.Changes = []func(*appsv1.ReplicaSet){wants(2), wants(3), wants(5)}
		s.Always = map[string]func() error{"never more than five": s.AtMost(5), "never fewer than two": s.AtLeast(2)}
		s.AtEnd = map[string]func() error{"as many as wanted": s.AsWanted}
	})
	fmt.Println(err)
	// Output: <nil>
}

// This Prepare takes back the address of a member that the plan deletes, although the member is still alive. The
// report names the seed and the rule, and then what happened.
func ExampleStory() {
	wants := func(n int32) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n }
	}
	err := replicastest.Play(1, 100, func(s *replicastest.Story[*appsv1.ReplicaSet, *corev1.Pod]) {
		addresses := sets.New[string]()
		s.Kind = controller.ReplicaSets()
		spec := s.Kind.Spec
		s.Kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			is, err := spec(rs)
			is.Slots = replicas.Ordinals(rs.Name)
			return is, err
		}
		s.Kind.Prepare = func(ctx context.Context, _ *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
			return s.Call(ctx, replicastest.Call{Verb: "patch", Kind: "Addresses"}, func() error {
				addresses.Insert(step.Create...)
				for _, d := range step.Delete {
					addresses.Delete(d.Object.Name)
				}
				return nil
			})
		}
		s.Owner = replicastest.NewReplicaSet("default", "db", 3)
		s.Changes = []func(*appsv1.ReplicaSet){wants(2), wants(3)}
		s.Always = map[string]func() error{
			"each member that is alive has its address": func() error {
				for _, pod := range s.Cluster.Children("default") {
					if pod.DeletionTimestamp == nil && !addresses.Has(pod.Name) {
						return fmt.Errorf("%s has none", pod.Name)
					}
				}
				return nil
			},
		}
	})
	first, _, _ := strings.Cut(err.Error(), "\n") // the other lines tell what happened
	fmt.Println(first)
	// Output:
	// replicastest: seed 1: "each member that is alive has its address" is broken: db-2 has none
}
