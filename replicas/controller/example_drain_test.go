// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/status"
)

// The annotation drainRequest asks a pod to drain. Its value names the request, and says until when the pod may take.
// When the pod is drained, an agent sets drainedFor to the value that it has seen.
const drainRequest, drainedFor = "example.com/drain", "example.com/drained"

// drainLimit is how long a drain may take. After that, the pod is deleted as it is.
const drainLimit = 10 * time.Minute

// podsFinalizer keeps an owner that is being deleted until its last pod is drained and gone.
const podsFinalizer = "example.com/pods"

// withDrain returns a Kind whose pods drain before they are deleted, also if their owner is deleted. The function release
// removes podsFinalizer from the owner.
func withDrain(now func() time.Time, release func(ctx context.Context, rs *appsv1.ReplicaSet) error) controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		at := now() // one time for all rules of a pass
		s.Finalizer = podsFinalizer
		s.Retire = func(pod *corev1.Pod, leaves bool) (c replicas.Change[*corev1.Pod]) {
			if leaves && !status.IsPodReady(pod) {
				return c // it cannot drain, so it is deleted at once
			}
			c.To = pod.DeepCopy()
			if delete(c.To.Annotations, drainRequest); leaves {
				// No other request of this pod is made from this version, so an answer to an earlier one does not count.
				request := pod.ResourceVersion + " until " + at.Add(drainLimit).UTC().Format(time.RFC3339)
				metav1.SetMetaDataAnnotation(&c.To.ObjectMeta, drainRequest, request)
			}
			return c
		}
		s.Rules.Leaving = func(pod *corev1.Pod) bool { return pod.Annotations[drainRequest] != "" }
		s.Rules.Discard = func(pod *corev1.Pod) bool {
			end, isAsked := drainEnds(pod)
			return isDrained(pod) || isAsked && !at.Before(end)
		}
		return s, err
	}
	kind.Prepare = func(ctx context.Context, rs *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		for _, pod := range step.Terminating { // no event tells that the time is over
			if end, isAsked := drainEnds(pod); isAsked && (step.RequeueAfter == 0 || end.Sub(step.Now) < step.RequeueAfter) {
				step.RequeueAfter = max(end.Sub(step.Now), time.Second)
			}
		}
		if rs.DeletionTimestamp == nil || !slices.Contains(rs.Finalizers, podsFinalizer) || !step.NoneLeft() {
			return nil
		}
		return release(ctx, rs)
	}
	return kind
}

func isDrained(pod *corev1.Pod) bool {
	request := pod.Annotations[drainRequest]
	return request != "" && pod.Annotations[drainedFor] == request
}

// drainEnds returns the time at which a pod goes even if it is not drained. A request that a person has made by hand may
// have none.
func drainEnds(pod *corev1.Pod) (end time.Time, isAsked bool) {
	_, until, _ := strings.Cut(pod.Annotations[drainRequest], " until ")
	end, err := time.Parse(time.RFC3339, until)
	return end, err == nil
}

// withoutFinalizer removes podsFinalizer. The finalizers of others stay.
func withoutFinalizer(rs *appsv1.ReplicaSet) {
	rs.Finalizers = slices.DeleteFunc(rs.Finalizers, func(f string) bool { return f == podsFinalizer })
}

// drains marks all pods as drained that are asked to drain, as an agent does.
func drains(ctx context.Context, cluster *replicastest.PodCluster) {
	for _, pod := range cluster.Children("default") {
		if request := pod.Annotations[drainRequest]; request != "" {
			_, _ = cluster.EditChild(ctx, pod.Namespace, pod.Name, func(p *corev1.Pod) { setAnnotation(p, drainedFor, request) })
		}
	}
}

func setAnnotation(p *corev1.Pod, key, value string) {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
}

// A pod is asked to drain before it is deleted, and goes when an agent has marked it as drained, or when its time is over.
// If it is wanted again before that, the request is taken back, and no pod is created. When the owner is deleted, all its
// pods drain. The cluster is simulated, and the example itself plays the agent.
func ExampleKind_retire() {
	var cluster *replicastest.PodCluster
	kind := withDrain(func() time.Time { return cluster.Clock.Now() }, func(ctx context.Context, rs *appsv1.ReplicaSet) error {
		_, err := cluster.EditOwner(ctx, rs.Namespace, rs.Name, withoutFinalizer)
		return err
	})
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	show := func(when string, lasts time.Duration) {
		world.Run(lasts)
		pods := cluster.Children("default")
		asked := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.Annotations[drainRequest] == "" })
		fmt.Printf("%s: %d pods, %d of them asked to drain\n", when, len(pods), len(asked))
	}
	scale := func(n int32) {
		_, err := cluster.EditOwner(ctx, "default", "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
		if err != nil {
			fmt.Println(err)
		}
		show(fmt.Sprintf("%d are wanted", n), time.Minute)
	}
	rs := replicastest.NewReplicaSet("default", "web", 0)
	rs.Finalizers = []string{podsFinalizer}
	if _, err := cluster.CreateOwner(ctx, rs); err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range []int32{3, 2, 3, 2} {
		scale(n)
	}
	drains(ctx, cluster)
	show("it is drained", time.Minute)
	scale(1)
	show("no agent answers in time", drainLimit)
	if err := cluster.DeleteOwner(ctx, "default", "web", metav1.DeletePropagationBackground); err != nil {
		fmt.Println(err)
		return
	}
	show("the owner is deleted", time.Minute)
	drains(ctx, cluster)
	show("it is drained", time.Minute)
	fmt.Println(len(cluster.Owners("default")), "owners")
	// Output:
	// 3 are wanted: 3 pods, 0 of them asked to drain
	// 2 are wanted: 3 pods, 1 of them asked to drain
	// 3 are wanted: 3 pods, 0 of them asked to drain
	// 2 are wanted: 3 pods, 1 of them asked to drain
	// it is drained: 2 pods, 0 of them asked to drain
	// 1 are wanted: 2 pods, 1 of them asked to drain
	// no agent answers in time: 1 pods, 0 of them asked to drain
	// the owner is deleted: 1 pods, 1 of them asked to drain
	// it is drained: 0 pods, 0 of them asked to drain
	// 0 owners
}
