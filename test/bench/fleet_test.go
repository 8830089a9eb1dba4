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

// lean returns a fleet of n pods, about ten on each node. Each pod has five conditions, two labels and one
// container. The generated pods are next to each other in memory, and share the strings of labels and images. A
// processor reads pods in this layout fastest.
func lean(n int) fleet {
	return newFleet(n, func(p *corev1.Pod, _ *rand.Rand) *corev1.Pod { return p })
}

// cached returns a fleet of n pods as in a controller's cache. The pods have annotations, more labels, a second
// container, an init container that has ended, and a sidecar. In some pods, the sidecar has restarted. Each pod is
// decoded from the format of the API server, so no two pods share a string. The pods are in random order. The field
// related lists the same pods in another random order, because a controller lists the related pods separately.
func cached(n int) fleet {
	f := newFleet(n, func(p *corev1.Pod, r *rand.Rand) *corev1.Pod {
		enrich(p, r)
		return decoded(p)
	})
	r := rand.New(rand.NewPCG(2, 0))
	r.Shuffle(n, func(i, j int) { f.pods[i], f.pods[j] = f.pods[j], f.pods[i] })
	f.related = slices.Clone(f.pods)
	r.Shuffle(n, func(i, j int) { f.related[i], f.related[j] = f.related[j], f.related[i] })
	return f
}

func newFleet(n int, finish func(*corev1.Pod, *rand.Rand) *corev1.Pod) fleet {
	excess, r := max(n/10, 1), rand.New(rand.NewPCG(1, 0))
	f := fleet{rs: replicaSet(n - excess), pods: podtest.Fleet(n, max(n/10, 1), 1), excess: excess, now: time.Now()}
	for i, p := range f.pods {
		podtest.OwnedBy(f.rs, "apps/v1", "ReplicaSet")(p)
		age(p, f.now.Sub(podtest.Now))
		f.pods[i] = finish(p, r)
	}
	f.related = f.pods
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
	if r.IntN(10) == 0 {
		p.Status.InitContainerStatuses[1].RestartCount = int32(r.IntN(3))
	}
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
