// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// progressing describes the progress of a rollout, in the same way as kubectl rollout status.
func progressing(o controller.Outcome[*corev1.Pod], updated int32) string {
	switch {
	case updated < o.Desired:
		return fmt.Sprintf("%d of %d are updated", updated, o.Desired)
	case o.Counts.Replicas > updated:
		return fmt.Sprintf("%d old ones are to go", o.Counts.Replicas-updated)
	case o.Counts.Available < updated:
		return fmt.Sprintf("%d of %d are available", o.Counts.Available, updated)
	}
	return "complete"
}

// imageOf returns the image that the pods of a ReplicaSet should have. For brevity, it is an annotation.
func imageOf(rs *appsv1.ReplicaSet) string { return rs.Spec.Template.Annotations["image"] }

// surging returns a Kind that replaces pods with another image. It creates at most one pod more than wanted, and
// deletes no available pod if fewer available pods than wanted would remain.
func surging() controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	spec, surge := kind.Spec, intstr.FromInt32(1)
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.MaxSurge = &surge
		s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Annotations["image"] != imageOf(rs) }
		return s, err
	}
	return kind
}

// A rollout, with a status like that of kubectl rollout status.
func ExampleOutcome() {
	kind, told := surging(), ""
	kind.Observe = func(_ context.Context, pass controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) {
		if !pass.Observed {
			return
		}
		updated := int32(0)
		for _, pod := range pass.Active {
			if pod.Annotations["image"] == imageOf(pass.Owner) {
				updated++
			}
		}
		if text := progressing(pass.Outcome, updated); text != told {
			told = text
			fmt.Println(text)
		}
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	if _, err := cluster.CreateOwner(ctx, replicastest.NewReplicaSet("default", "web", 2)); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	fmt.Println("rollout:")
	_, err = cluster.EditOwner(ctx, "default", "web", func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Annotations = map[string]string{"image": "two"}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	// Output:
	// 0 of 2 are updated
	// 0 of 2 are available
	// complete
	// rollout:
	// 0 of 2 are updated
	// 1 of 2 are updated
	// 1 old ones are to go
	// complete
}
