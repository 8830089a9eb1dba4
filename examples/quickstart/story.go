// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

const namespace, name = "default", "web"

// A story runs a controller on a simulated cluster and triggers the events. The field err holds the first
// error.
type story struct {
	*narrator
	ctx     context.Context
	cluster *replicastest.PodCluster
	keeper  *keeper
	world   *replicastest.World
	err     error
}

// tell runs the whole story, and returns the text to print and the first error.
func tell() (string, error) {
	s, err := newStory()
	if err != nil {
		return "", err
	}
	s.print("A fleet of pods kept alive by replicakit. The cluster is simulated and its time is virtual.")
	s.slowStart()
	s.fullQuota()
	s.staleView()
	s.lostNode()
	s.labelChange()
	s.scaleDown()
	s.print("")
	s.print("It took %d creates, %d deletes, %d patches and %d status writes.",
		s.calls["create"], s.calls["delete"], s.calls["patch"], s.calls["status"])
	s.print("The controller that made them is examples/quickstart/main.go.")
	return s.text.String(), s.err
}

func newStory() (*story, error) {
	cluster := replicastest.NewPodCluster(replicastest.Options{Seed: 1, Nodes: 8})
	n := &narrator{now: cluster.Clock.Now, calls: map[string]int{}}
	client := cluster.NewClient()
	client.Done = n.call
	kind := controller.ReplicaSets()
	kind.Observe = n.passed
	kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		n.victims = step.Delete
		return nil
	}
	if err := createReplicaSet(cluster, 10); err != nil { // before the keeper starts, so that the first list contains the ReplicaSet
		return nil, err
	}
	k, err := newKeeper(cluster, client, kind)
	if err != nil {
		return nil, err
	}
	return &story{
		narrator: n,
		ctx:      context.Background(),
		cluster:  cluster,
		keeper:   k,
		world:    &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, k.view, k.queue}},
	}, nil
}

func (s *story) slowStart() {
	s.act("slowstart", "how fast do I dare?",
		"Ten pods are missing. One call tests whether the server allows it; then come two at once, then four.")
	s.say("you", "create ReplicaSet web with 10 replicas, available when ready for 5s")
	s.wait(2500 * time.Millisecond)
	s.status()
	s.wait(5 * time.Second)
	s.status()
}

func (s *story) fullQuota() {
	s.act("slowstart", "what if the server refuses?",
		"After a batch with a failure, a single call tries again, after a pause that grows each time.")
	s.say("you", "set a quota of 14 pods, and scale to 20")
	s.cluster.SetQuota(namespace, 14)
	s.scale(20)
	s.wait(0)
	s.event()
	s.status()
	s.wait(4 * time.Second)
	s.say("you", "raise the quota to 100 pods")
	s.cluster.SetQuota(namespace, 100)
	s.wait(16 * time.Second)
	s.status()
}

func (s *story) staleView() {
	s.act("expectations", "what have I started and not yet seen?",
		"A cache is always late. What was started is remembered until a watch event confirms it.")
	s.say("you", "delay the watch of pods by 5s, and scale to 22")
	s.keeper.view.ChildWatch.Lag = 5 * time.Second
	s.scale(22)
	s.wait(time.Second)
	s.say("cache", "shows %d pods, for which the plan would be: %s", len(s.seen()), s.plan())
	s.say("you", "annotate %s, so that there are passes meanwhile", name)
	s.annotate()
	s.wait(time.Second)
	s.say("wait", "%s did nothing, because %s", count(s.waited, "pass"), s.why)
	s.keeper.view.ChildWatch.Lag = 0
	s.wait(4 * time.Second)
	s.say("cache", "shows %d pods, for which the plan would be: %s", len(s.seen()), s.plan())
	s.wait(10 * time.Second)
	s.status()
}

func (s *story) lostNode() {
	s.act("status", "what do I report?",
		"A node is lost. Its pods are first not ready, then terminating: counted apart, and replaced at once.")
	s.say("you", "pull the plug of node-2")
	s.cluster.LoseNode("node-2")
	s.wait(time.Minute)
	s.status()
	s.wait(5 * time.Minute)
	s.status()
	s.say("you", "remove node-2")
	s.cluster.RemoveNode("node-2")
	s.wait(time.Minute)
	s.status()
}

func (s *story) labelChange() {
	s.act("selector", "which ones are mine?",
		"A pod that no longer matches is released unharmed; one that matches and has no owner is adopted.")
	pod := s.cluster.Children(namespace)[0].Name
	s.say("you", "label %s app=debug", pod)
	s.label(pod, "debug")
	s.wait(time.Minute)
	s.status()
	s.say("you", "label %s app=web again: one pod too many", pod)
	s.label(pod, "web")
	s.wait(time.Minute)
	s.status()
}

func (s *story) scaleDown() {
	s.act("podrank", "who goes first?",
		"Six pods too many. The least useful go first, each with the reason why it goes instead of one that stays.")
	crowded := s.crowded()
	broken, cheap := crowded[0], crowded[1]
	s.say("you", "let %s on %s fail its probe", broken.Name, broken.Spec.NodeName)
	s.edit(broken.Name, func(p *corev1.Pod) {
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
				c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(s.now())
			}
		}
	})
	s.say("you", "annotate %s there with deletion cost -10, and scale to 16", cheap.Name)
	s.edit(cheap.Name, func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, corev1.PodDeletionCost, "-10")
	})
	s.scale(16)
	s.wait(0)
	s.status()
	s.wait(time.Minute)
	s.status()
}

// wait lets virtual time pass.
func (s *story) wait(d time.Duration) { s.world.Run(d) }

// seen returns the pods in the controller's cache.
func (s *story) seen() []*corev1.Pod { return s.keeper.view.ChildWatch.In(namespace) }

// crowded returns the pods on the node that has the most pods.
func (s *story) crowded() []*corev1.Pod {
	var fullest []*corev1.Pod
	nodes := map[string][]*corev1.Pod{}
	for _, p := range s.seen() {
		node := p.Spec.NodeName
		nodes[node] = append(nodes[node], p)
		if len(nodes[node]) > len(fullest) {
			fullest = nodes[node]
		}
	}
	return fullest
}

// plan returns the result of Manage for the pods in the cache. It makes no API calls.
func (s *story) plan() replicas.PodPlan {
	rs, _ := s.keeper.view.OwnerWatch.Get(namespace, name)
	spec, err := replicas.ReplicaSetSpec(rs)
	s.check(err)
	spec.Facts.Now = s.cluster.Clock.Now()
	plan, err := replicas.Manage(s.seen(), spec)
	s.check(err)
	return plan
}

// status reads the ReplicaSet from the API server and prints its status.
func (s *story) status() {
	rs, err := s.cluster.GetOwner(s.ctx, namespace, name)
	s.check(err)
	if err == nil {
		s.narrator.status(rs)
	}
}

// event prints the last Kubernetes event about the ReplicaSet. The random name of the pod is omitted.
func (s *story) event() {
	if last := len(s.cluster.Events) - 1; last >= 0 {
		_, why, _ := strings.Cut(s.cluster.Events[last].Message, "forbidden: ")
		s.say("event", "%s: %s", s.cluster.Events[last].Reason, why)
	}
}

func createReplicaSet(cluster *replicastest.PodCluster, n int32) error {
	rs := replicastest.NewReplicaSet(namespace, name, n) // owned by a Deployment, so the deletion order considers the pods per node
	rs.Spec.MinReadySeconds = 5
	_, err := cluster.CreateOwner(context.Background(), rs)
	return err
}

func (s *story) scale(n int32) {
	_, err := s.cluster.EditOwner(s.ctx, namespace, name, func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
	s.check(err)
}

// annotate sets an annotation on the ReplicaSet. The controller ignores this annotation.
func (s *story) annotate() {
	_, err := s.cluster.EditOwner(s.ctx, namespace, name, func(rs *appsv1.ReplicaSet) {
		metav1.SetMetaDataAnnotation(&rs.ObjectMeta, "example.com/reviewed", "yes")
	})
	s.check(err)
}

func (s *story) label(pod, app string) {
	s.edit(pod, func(p *corev1.Pod) { p.Labels["app"] = app })
}

func (s *story) edit(pod string, change func(*corev1.Pod)) {
	_, err := s.cluster.EditChild(s.ctx, namespace, pod, change)
	s.check(err)
}

func (s *story) check(err error) {
	if s.err == nil {
		s.err = err
	}
}
