// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A templateReader reads a PodTemplate from a cache or from the server.
type templateReader func(ctx context.Context, namespace, name string) (*corev1.PodTemplate, error)

// fromTemplates returns a Kind whose pods are made from a PodTemplate. It has the name of the owner, and is another
// object, so it can change when the owner does not. Pods with another image than that of the template are replaced.
func fromTemplates(cached, live templateReader) controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	plain := kind.Spec
	spec := func(ctx context.Context, rs *appsv1.ReplicaSet, read templateReader) (replicas.SpecOfPods, error) {
		s, err := plain(rs)
		if err != nil {
			return s, err
		}
		template, err := read(ctx, rs.Namespace, rs.Name)
		if apierrors.IsNotFound(err) { // the pods stay until there is a template again
			s.Paused = true
			return s, nil
		}
		if err != nil {
			return s, err
		}
		pod := template.Template.Spec
		s.New = func(string) (*corev1.Pod, error) {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: rs.Spec.Selector.MatchLabels}, Spec: *pod.DeepCopy()}, nil
		}
		s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image != pod.Containers[0].Image }
		return s, nil
	}
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		return spec(context.Background(), rs, cached)
	}
	kind.SpecLive = func(ctx context.Context, rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		return spec(ctx, rs, live)
	}
	return kind
}

// templateOf returns a PodTemplate, or the error of one that does not exist if the image is "".
func templateOf(namespace, name, image string) (*corev1.PodTemplate, error) {
	if image == "" {
		return nil, apierrors.NewNotFound(corev1.Resource("podtemplates"), name)
	}
	t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	t.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: image}}
	return t, nil
}

// A person gives the template another image, sees the mistake and changes it back. The cache of the operator shows only
// the first change yet, so by Spec all pods must go. SpecLive reads the template from the server, and all pods stay.
//
// In an operator with controller-runtime, the readers are the manager's client and its APIReader, and Build of the
// Options adds the watch that wakes the owner of a template.
func ExampleKind_specLive() {
	cached, live := "web:1", "web:1"
	kind := fromTemplates(func(_ context.Context, namespace, name string) (*corev1.PodTemplate, error) {
		return templateOf(namespace, name, cached)
	}, func(_ context.Context, namespace, name string) (*corev1.PodTemplate, error) {
		return templateOf(namespace, name, live)
	})
	kind.Observe = func(_ context.Context, pass controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) {
		for _, g := range pass.Gates {
			if g.Reason == controller.InputsStale {
				fmt.Println(g.Reason, "stops", g.Stops)
			}
		}
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	operator := cluster.NewController()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, operator}}
	if _, err := cluster.CreateOwner(context.Background(), replicastest.NewReplicaSet("default", "web", 2)); err != nil {
		fmt.Println(err)
		return
	}
	watch := func(image string) { // the watch of templates shows a change to the cache, and wakes the owner
		cached = image
		operator.Worker.Wake(types.NamespacedName{Namespace: "default", Name: "web"}, 0)
	}
	images := func() {
		var all []string
		for _, pod := range cluster.Children("default") {
			all = append(all, pod.Spec.Containers[0].Image)
		}
		fmt.Println(strings.Join(all, " "))
	}
	world.Run(time.Minute)
	images()

	watch("web:2") // and the person has changed it back
	world.Run(10 * time.Millisecond)
	watch("web:1")
	world.Run(time.Minute)
	images()

	live = "web:3"
	watch("web:3")
	world.Run(time.Minute)
	images()
	// Output:
	// web:1 web:1
	// InputsStale stops deletions, updates
	// web:1 web:1
	// web:3 web:3
}
