// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

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

// fleets returns the Kind of the examples. A new image is set in the Runners that exist.
func fleets() controller.Kind[*Fleet, *Runner] {
	version := schema.GroupVersion{Group: "example.com", Version: "v1"}
	return controller.Kind[*Fleet, *Runner]{
		Owner: version.WithKind("Fleet"),
		Child: version.WithKind("Runner"),
		Spec: func(f *Fleet) (replicas.Spec[*Runner], error) {
			set := labels.Set{"fleet": f.Name}
			return replicas.Spec[*Runner]{
				Replicas: f.Spec.Replicas,
				Selector: set.AsSelector(),
				New: func(string) (*Runner, error) {
					return &Runner{ObjectMeta: metav1.ObjectMeta{Labels: set}, Spec: RunnerSpec{Image: f.Spec.Image}}, nil
				},
				Update: func(r *Runner) (change replicas.Change[*Runner]) {
					if r.Spec.Image != f.Spec.Image {
						change.To = r.DeepCopy()
						change.To.Spec.Image = f.Spec.Image
					}
					return change
				},
				Rules: replicas.Rules[*Runner]{Ready: func(r *Runner) bool {
					return r.Status.Ready && r.Status.ObservedGeneration >= r.Generation
				}},
			}, nil
		},
		Status: func(f *Fleet, o controller.Outcome[*Runner]) error {
			f.Status.Ready = o.Counts.Ready
			return nil
		},
	}
}

// This example runs a controller for your own Kind on a simulated cluster. Each Fleet owns Runners. While the
// watch of Runners is broken, the Fleet is scaled down.
func ExampleNewCluster() {
	cluster, err := replicastest.NewCluster(fleets(), replicastest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Ready = func(r *Runner) { r.Status.Ready, r.Status.ObservedGeneration = true, r.Generation }
	c := cluster.NewController()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
	ctx := context.Background()

	_, _ = cluster.CreateOwner(ctx, &Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ci"}, Spec: FleetSpec{Replicas: 3}})
	world.Run(time.Minute)
	fmt.Println("ready", cluster.Owners("default")[0].Status.Ready)

	c.View.ChildWatch.Break()
	_, _ = cluster.EditOwner(ctx, "default", "ci", func(f *Fleet) { f.Spec.Replicas = 1 })
	world.Run(time.Minute)
	c.View.ChildWatch.Relist()
	world.Run(time.Minute)
	fmt.Println("ready", cluster.Owners("default")[0].Status.Ready, "of", len(cluster.Children("default")))
	// Output:
	// ready 3
	// ready 1 of 1
}

// A new image makes a Runner unready until the Runner's own controller has seen it. Without the comparison of
// generations in Rules.Ready, all Runners would be changed at once, although MaxUnavailable is 1.
func ExampleCheckUpdate() {
	one := intstr.FromInt32(1)
	kind := fleets()
	kind.Spec = func(f *Fleet) (replicas.Spec[*Runner], error) {
		spec, err := fleets().Spec(f)
		spec.MaxUnavailable = &one
		return spec, err
	}
	old := &Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ci"}, Spec: FleetSpec{Replicas: 3, Image: "one"}}
	updated := old.DeepCopy()
	updated.Spec.Image = "two"
	runner := &Runner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ci-a", Generation: 1, Labels: map[string]string{"fleet": "ci"}},
		Spec:       RunnerSpec{Image: "one"},
		Status:     RunnerStatus{Ready: true, ObservedGeneration: 1},
	}
	fmt.Println(replicastest.CheckUpdate(kind, old, updated, runner))

	careful := kind.Spec
	kind.Spec = func(f *Fleet) (replicas.Spec[*Runner], error) {
		spec, err := careful(f)
		spec.Rules.Ready = func(r *Runner) bool { return r.Status.Ready }
		return spec, err
	}
	fmt.Println(replicastest.CheckUpdate(kind, old, updated, runner))
	// Output:
	// <nil>
	// replicastest: Runner "default/ci-a": Rules.Ready is still true after the change of spec.image="two", although the child's own controller has not seen it, so MaxUnavailable would limit nothing: let it be false while status.observedGeneration is below metadata.generation
}

// Fleet and the types below are the API of the example. controller-gen can generate their methods.
type Fleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   FleetSpec   `json:"spec"`
	Status FleetStatus `json:"status,omitzero"`
}

type FleetSpec struct {
	Replicas int32  `json:"replicas"`
	Image    string `json:"image,omitempty"`
}

type FleetStatus struct {
	Ready int32 `json:"ready,omitempty"`
}

type Runner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   RunnerSpec   `json:"spec,omitzero"`
	Status RunnerStatus `json:"status,omitzero"`
}

type RunnerSpec struct {
	Image string `json:"image,omitempty"`
}

type RunnerStatus struct {
	Ready              bool  `json:"ready,omitempty"`
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

func (f *Fleet) DeepCopy() *Fleet {
	c := *f
	f.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (f *Fleet) DeepCopyObject() runtime.Object { return f.DeepCopy() }

func (r *Runner) DeepCopy() *Runner {
	c := *r
	r.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (r *Runner) DeepCopyObject() runtime.Object { return r.DeepCopy() }
