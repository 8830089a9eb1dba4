// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
)

// A fleet is a ReplicaSet and its pods. A tenth of the pods is surplus. The field related lists the same pods. For
// the deletion order, each side counts the related pods on each node.
type fleet struct {
	rs            *appsv1.ReplicaSet
	pods, related []*corev1.Pod
	excess        int
	now           time.Time
}

// healthy returns a fleet in which each pod runs on a node and has been ready since its start. Nothing
// but the neighbors of the pods and their times decides which of them go.
func healthy(n int) fleet {
	return inCache(n, func(p *corev1.Pod, r *rand.Rand) {
		if p.Spec.NodeName == "" {
			p.Spec.NodeName = "node-" + strconv.Itoa(r.IntN(max(n/10, 1)))
		}
		p.Status.Phase, p.Annotations = corev1.PodRunning, nil
		for i := range p.Status.Conditions {
			p.Status.Conditions[i].Status = corev1.ConditionTrue
		}
		for i := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[i].RestartCount = 0
		}
		enrich(p, r)
	})
}

// mixed returns a fleet like healthy, but 15 of 100 pods are not ready, pending or without a node, some have a
// deletion cost, and some containers have restarted.
func mixed(n int) fleet {
	return inCache(n, func(p *corev1.Pod, r *rand.Rand) {
		enrich(p, r)
		if r.IntN(10) == 0 {
			p.Status.InitContainerStatuses[1].RestartCount = int32(r.IntN(3))
		}
	})
}

// inCache returns a fleet of n pods as in a controller's cache. Each pod has annotations, labels, two containers, an
// init container that has ended, and a sidecar, and is decoded from the format of the API server, so no two pods share a
// string. The pods are in random order. The field related lists the same pods in another random order, because a
// controller lists the related pods separately.
func inCache(n int, change func(*corev1.Pod, *rand.Rand)) fleet {
	excess, r := max(n/10, 1), rand.New(rand.NewPCG(1, 0))
	f := fleet{rs: replicaSet(n - excess), pods: podtest.Fleet(n, max(n/10, 1), 1), excess: excess, now: time.Now()}
	for i, p := range f.pods {
		podtest.OwnedBy(f.rs, "apps/v1", "ReplicaSet")(p)
		age(p, f.now.Sub(podtest.Now))
		change(p, r)
		f.pods[i] = decoded(p)
	}
	r.Shuffle(n, func(i, j int) { f.pods[i], f.pods[j] = f.pods[j], f.pods[i] })
	f.related = slices.Clone(f.pods)
	r.Shuffle(n, func(i, j int) { f.related[i], f.related[j] = f.related[j], f.related[i] })
	return f
}

func replicaSet(replicas int) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web", "pod-template-hash": "5d9c7b6f4d"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web-5d9c7b6f4d", UID: "9f7d3c1e-51ab-4c1e-8d0f-2b9e6f00a1c4"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        new(int32(replicas)),
			MinReadySeconds: 30,
			Selector:        &metav1.LabelSelector{MatchLabels: labels},
			Template:        corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
}

func enrich(p *corev1.Pod, r *rand.Rand) {
	p.Labels["app.kubernetes.io/part-of"] = "shop"
	p.Labels["app.kubernetes.io/version"] = "1.4.2"
	p.Labels["topology.kubernetes.io/zone"] = "zone-" + strconv.Itoa(r.IntN(3))
	if p.Annotations == nil {
		p.Annotations = make(map[string]string)
	}
	p.Annotations["kubectl.kubernetes.io/restartedAt"] = "2026-05-04T12:00:00Z"
	p.Annotations["prometheus.io/scrape"] = "true"
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "cache", Image: "registry.example/cache:1"})
	p.Spec.InitContainers = []corev1.Container{
		{Name: "migrate", Image: "registry.example/migrate:1"},
		{Name: "proxy", Image: "registry.example/proxy:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "cache", Ready: true})
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "migrate", RestartCount: 1}, {Name: "proxy", Ready: true}}
}

// age moves all times of a pod by the duration d.
func age(p *corev1.Pod, d time.Duration) {
	p.CreationTimestamp.Time = p.CreationTimestamp.Add(d)
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		c.LastTransitionTime.Time = c.LastTransitionTime.Add(d)
	}
}

// decoded returns the pod as an informer decodes it.
func decoded(p *corev1.Pod) *corev1.Pod {
	var q corev1.Pod
	if err := q.Unmarshal(must(p.Marshal())); err != nil {
		panic(err)
	}
	return &q
}
