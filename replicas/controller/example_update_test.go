// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A cacheSet keeps N cacheNodes of one version.
type cacheSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas int32  `json:"replicas"`
		Version  string `json:"version"`
	} `json:"spec"`
	Status struct {
		Updated int32 `json:"updated"`
		Ready   int32 `json:"ready"`
	} `json:"status"`
}

// A cacheNode has a controller of its own, which restarts the node if its version changes.
type cacheNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Version string `json:"version"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64 `json:"observedGeneration"`
		Ready              bool  `json:"ready"`
	} `json:"status"`
}

func (s *cacheSet) DeepCopy() *cacheSet {
	c := *s
	s.DeepCopyInto(&c.ObjectMeta)
	return &c
}
func (s *cacheSet) DeepCopyObject() runtime.Object { return s.DeepCopy() }

func (n *cacheNode) DeepCopy() *cacheNode {
	c := *n
	n.DeepCopyInto(&c.ObjectMeta)
	return &c
}
func (n *cacheNode) DeepCopyObject() runtime.Object { return n.DeepCopy() }

// cacheSets returns the Kind of cacheSets. Nodes keep their data, so a node of another version is changed and not
// replaced. One may be unavailable.
func cacheSets() controller.Kind[*cacheSet, *cacheNode] {
	group, one := schema.GroupVersion{Group: "example.com", Version: "v1"}, intstr.FromInt32(1)
	return controller.Kind[*cacheSet, *cacheNode]{
		Owner: group.WithKind("CacheSet"), Child: group.WithKind("CacheNode"),
		Spec: func(set *cacheSet) (replicas.Spec[*cacheNode], error) {
			own := labels.Set{"cache": set.Name}
			return replicas.Spec[*cacheNode]{
				Replicas: set.Spec.Replicas, Selector: own.AsSelector(), MaxUnavailable: &one,
				New: func(string) (*cacheNode, error) {
					node := &cacheNode{ObjectMeta: metav1.ObjectMeta{Labels: own}}
					node.Spec.Version = set.Spec.Version
					return node, nil
				},
				Update: func(node *cacheNode) (change replicas.Change[*cacheNode]) {
					if node.Spec.Version != set.Spec.Version {
						change.To = node.DeepCopy()
						change.To.Spec.Version = set.Spec.Version
					}
					return change
				},
				Rules: replicas.Rules[*cacheNode]{
					// The server raises the generation with the change, so from then on the node is not ready.
					Ready: func(node *cacheNode) bool {
						return node.Status.Ready && node.Status.ObservedGeneration == node.Generation
					},
				},
			}, nil
		},
		Status: func(set *cacheSet, o controller.Outcome[*cacheNode]) error {
			set.Status.Updated, set.Status.Ready = o.Updated, o.Counts.Ready
			return nil
		},
		StatusOf: func(set *cacheSet) any { return &set.Status },
	}
}

// A rollout that changes one child after the other. The next one is changed when the one before it runs its new version.
func ExampleKind_update() {
	kind := cacheSets()
	kind.Observe = func(_ context.Context, pass controller.Pass[*cacheSet, *cacheNode]) {
		for _, node := range pass.Changed {
			fmt.Printf("%s gets version %s: %d of %d are updated, %d are ready\n",
				node.Name, node.Spec.Version, pass.Updated, pass.Desired, pass.Counts.Ready)
		}
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Counting: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Ready = func(node *cacheNode) { // the controller of the nodes has restarted one
		node.Status.Ready, node.Status.ObservedGeneration = true, node.Generation
	}
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	set := &cacheSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	set.Spec.Replicas, set.Spec.Version = 3, "one"
	if _, err := cluster.CreateOwner(ctx, set); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	_, err = cluster.EditOwner(ctx, "default", "web", func(set *cacheSet) { set.Spec.Version = "two" })
	if err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	fmt.Println(cluster.Owners("default")[0].Status.Ready, "are ready")
	// Output:
	// web-bbbbc gets version two: 1 of 3 are updated, 2 are ready
	// web-bbbbd gets version two: 2 of 3 are updated, 2 are ready
	// web-bbbbf gets version two: 3 of 3 are updated, 2 are ready
	// 3 are ready
}
