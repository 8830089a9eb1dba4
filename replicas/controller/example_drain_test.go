// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// The annotation drainRequest asks a pod to drain. Its value names the request. When the pod is drained, an agent
// sets the annotation drainedFor to the value of the request that it has seen.
const drainRequest, drainedFor = "example.com/drain", "example.com/drained"

// withDrain returns a Kind whose pods drain before they are deleted. Each request has a name of its own, so what an
// agent answered to an earlier request does not count. The function annotate sets drainRequest, or removes it if the
// value is "". It must send the pod's resourceVersion, so that it fails if the pod has changed.
func withDrain(annotate func(ctx context.Context, pod *corev1.Pod, request string) error) controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	kind.Prepare = func(ctx context.Context, _ *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		going := sets.New[string]()
		for _, d := range step.Delete {
			going.Insert(d.Object.Name)
		}
		for _, pod := range step.Active {
			_, isAsked := pod.Annotations[drainRequest]
			request := "" // calls the drain off
			switch {
			case going.Has(pod.Name) && !isAsked:
				request = pod.ResourceVersion // no other request of this pod was made from this version
			case going.Has(pod.Name), !isAsked, step.Later > 0:
				continue
			}
			if err := annotate(ctx, pod, request); err != nil {
				return err
			}
		}
		step.Delete = slices.DeleteFunc(step.Delete, func(d replicas.Deletion[*corev1.Pod]) bool { return !isDrained(d.Object) })
		return nil
	}
	return kind
}

func isDrained(pod *corev1.Pod) bool {
	request := pod.Annotations[drainRequest]
	return request != "" && pod.Annotations[drainedFor] == request
}

// requestDrain returns the change that sets or removes the annotation drainRequest of the given version of a pod. With
// client-go, a patch with that resourceVersion does the same.
func requestDrain(pod *corev1.Pod, request string) (change func(*corev1.Pod), conflict *error) {
	conflict = new(error)
	return func(p *corev1.Pod) {
		switch {
		case p.ResourceVersion != pod.ResourceVersion:
			*conflict = apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("want version %s", pod.ResourceVersion))
		case request == "":
			delete(p.Annotations, drainRequest)
		default:
			setAnnotation(p, drainRequest, request)
		}
	}, conflict
}

func setAnnotation(p *corev1.Pod, key, value string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[key] = value
}

// Prepare asks a pod to drain before the pod is deleted. The pod is deleted only after an agent has marked it as
// drained. If the pod is wanted again before that, Prepare cancels the drain. The cluster is simulated, and the
// example itself plays the agent.
func ExampleStep() {
	var cluster *replicastest.PodCluster
	kind := withDrain(func(ctx context.Context, pod *corev1.Pod, request string) error {
		change, conflict := requestDrain(pod, request)
		if _, err := cluster.EditChild(ctx, pod.Namespace, pod.Name, change); err != nil {
			return err
		}
		return *conflict
	})
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	scale := func(n int32) error {
		_, err := cluster.EditOwner(ctx, "default", "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
		world.Run(10 * time.Second)
		return err
	}
	show := func() {
		asked := 0
		for _, pod := range cluster.Children("default") {
			if pod.Annotations[drainRequest] != "" {
				asked++
			}
		}
		fmt.Println(len(cluster.Children("default")), "pods,", asked, "asked to drain")
	}
	if _, err := cluster.CreateOwner(ctx, replicastest.NewReplicaSet("default", "web", 0)); err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range []int32{3, 2, 3, 2} {
		if err := scale(n); err != nil {
			fmt.Println(err)
			return
		}
		show()
	}
	for _, pod := range cluster.Children("default") { // the agent marks each draining pod as drained
		if request := pod.Annotations[drainRequest]; request != "" {
			if _, err := cluster.EditChild(ctx, pod.Namespace, pod.Name, func(p *corev1.Pod) { setAnnotation(p, drainedFor, request) }); err != nil {
				fmt.Println(err)
			}
		}
	}
	world.Run(time.Minute)
	show()
	// Output:
	// 3 pods, 0 asked to drain
	// 3 pods, 1 asked to drain
	// 3 pods, 0 asked to drain
	// 3 pods, 1 asked to drain
	// 2 pods, 0 asked to drain
}
