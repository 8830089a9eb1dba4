// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// claimCalls are the calls that a step makes for the volume claims of its members.
type claimCalls interface {
	// List returns the resourceVersion of each claim, by the name of its member.
	List(ctx context.Context, rs *appsv1.ReplicaSet) (map[string]string, error)
	// Use creates the claim of a member. If the claim exists, Use changes an annotation of it, so that a Delete
	// that is still on its way fails with a Conflict.
	Use(ctx context.Context, rs *appsv1.ReplicaSet, member string) error
	// Delete deletes a claim, with its resourceVersion as a precondition.
	Delete(ctx context.Context, rs *appsv1.ReplicaSet, member, version string) error
	// Owner reads the owner from the API server.
	Owner(ctx context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error)
}

// withClaims returns a Kind whose members have ordinals, and a volume claim each. Which claims are needed is
// decided from what exists, and not from what this process has done, so a new process decides alike.
func withClaims(calls claimCalls) controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.Slots = replicas.Ordinals(rs.Name)
		return s, err
	}
	kind.Prepare = func(ctx context.Context, rs *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		for _, member := range step.Create {
			if err := calls.Use(ctx, rs, member); err != nil {
				return err
			}
		}
		claims, err := calls.List(ctx, rs)
		if err != nil {
			return err
		}
		for _, pod := range slices.Concat(step.Active, step.Terminating) { // a pod needs its volume until it is gone
			delete(claims, pod.Name)
		}
		withoutWanted(claims, rs)
		if len(claims) == 0 {
			return nil
		}
		if step.InFlight > 0 { // a member whose creation had no answer may still appear
			step.RequeueAfter = time.Minute
			return nil
		}
		live, err := calls.Owner(ctx, rs) // the cache may not show yet that a member is wanted again
		if err != nil || live.UID != rs.UID {
			return err
		}
		withoutWanted(claims, live)
		for member, version := range claims {
			if err := calls.Delete(ctx, rs, member, version); err != nil {
				return err
			}
		}
		return nil
	}
	return kind
}

// withoutWanted removes the claims of the members that the owner wants.
func withoutWanted(claims map[string]string, rs *appsv1.ReplicaSet) {
	ordinal := replicas.Ordinals(rs.Name)
	for i := range int(*rs.Spec.Replicas) {
		delete(claims, ordinal(i))
	}
}

// volumes keeps the claims of the example in memory.
type volumes struct {
	*replicastest.PodCluster
	claims map[string]string
	last   int
}

func (v *volumes) List(context.Context, *appsv1.ReplicaSet) (map[string]string, error) {
	return maps.Clone(v.claims), nil
}

func (v *volumes) Use(_ context.Context, _ *appsv1.ReplicaSet, member string) error {
	v.last++
	v.claims[member] = strconv.Itoa(v.last)
	return nil
}

func (v *volumes) Delete(_ context.Context, _ *appsv1.ReplicaSet, member, version string) error {
	if v.claims[member] != version {
		return apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), member, fmt.Errorf("want version %s", version))
	}
	delete(v.claims, member)
	return nil
}

func (v *volumes) Owner(ctx context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return v.GetOwner(ctx, rs.Namespace, rs.Name)
}

// Each member has a volume claim. Prepare makes the claim before the member is created, and deletes it when the
// member is gone and no longer wanted. The cluster is simulated.
func Example_volumeClaims() {
	claims := &volumes{claims: map[string]string{}}
	cluster, err := replicastest.NewCluster(withClaims(claims), replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	claims.PodCluster = cluster
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	if _, err := cluster.CreateOwner(ctx, replicastest.NewReplicaSet("default", "db", 3)); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	fmt.Println(slices.Sorted(maps.Keys(claims.claims)))
	two := int32(2)
	if _, err := cluster.EditOwner(ctx, "default", "db", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &two }); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(10 * time.Second)
	fmt.Println(slices.Sorted(maps.Keys(claims.claims)), "while db-2 stops")
	world.Run(time.Minute)
	fmt.Println(slices.Sorted(maps.Keys(claims.claims)))
	// Output:
	// [db-0 db-1 db-2]
	// [db-0 db-1 db-2] while db-2 stops
	// [db-0 db-1]
}
