// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAdoption(t *testing.T) {
	t.Parallel()

	// All pods exist before the controllers start. The ReplicaSet wants exactly as many pods as it may adopt, so
	// it has no reason to create or delete pods.
	shapes := []struct {
		name    string
		pod     string
		edit    func(pod *corev1.Pod, o owners)
		after   func(w *world, name string)
		adopted bool
	}{
		{name: "C8 V4 a pod without owners", pod: "plain", adopted: true},
		{
			name: "C10 a pod that refers to us, but not as its controller", pod: "referring", adopted: true,
			edit: func(pod *corev1.Pod, o owners) { pod.OwnerReferences = append(pod.OwnerReferences, o.us(false)) },
		},
		{
			name: "C10 a pod with an owner that is no controller", pod: "shared", adopted: true,
			edit: func(pod *corev1.Pod, o owners) {
				pod.OwnerReferences = append(pod.OwnerReferences, o.deployment(false))
			},
		},
		{
			name: "C1 a pod whose controller is of another kind", pod: "taken",
			edit: func(pod *corev1.Pod, o owners) { pod.OwnerReferences = append(pod.OwnerReferences, o.deployment(true)) },
		},
		{
			name: "C1 C9 V3 a pod whose controller is of another kind and has our name", pod: "namesake",
			edit: func(pod *corev1.Pod, o owners) { pod.OwnerReferences = append(pod.OwnerReferences, o.namesake(true)) },
		},
		{
			name: "C1 a pod of another controller that refers to us too", pod: "both",
			edit: func(pod *corev1.Pod, o owners) {
				pod.OwnerReferences = append(pod.OwnerReferences, o.deployment(true), o.us(false))
			},
		},
		{
			name: "C5 a pod that the selector does not match", pod: "stranger",
			edit: func(pod *corev1.Pod, _ owners) { pod.Labels = labels("other") },
		},
		{
			name: "C25 Y6 a failed pod", pod: "failed",
			after: func(w *world, name string) { w.phase(name, corev1.PodFailed) },
		},
		{
			name: "C25 Y6 a finished pod", pod: "finished",
			after: func(w *world, name string) { w.phase(name, corev1.PodSucceeded) },
		},
		{
			name: "C25 Y6 a pod being deleted", pod: "dying",
			edit:  func(pod *corev1.Pod, _ owners) { pod.Finalizers = []string{finalizer} },
			after: func(w *world, name string) { w.deletePod(name) },
		},
	}

	w := newWorldWith(t, settings{idle: true})
	rs := replicaSet("web", 0)
	for _, s := range shapes {
		if s.adopted {
			*rs.Spec.Replicas++
		}
	}
	rs = w.create(rs)
	o := owners{us: refsTo(rs, "apps/v1", "ReplicaSet")}
	o.deployment = refsTo(w.createDeployment("front"), "apps/v1", "Deployment")
	o.namesake = refsTo(w.createDeployment("web"), "apps/v1", "Deployment")
	before := map[string]*corev1.Pod{}
	for _, s := range shapes {
		pod := orphan(s.pod)
		if s.edit != nil {
			s.edit(pod, o)
		}
		w.createPod(pod)
		if s.after != nil {
			s.after(w, s.pod)
		}
		before[s.pod] = w.pod(s.pod)
	}
	w.start()
	w.has(rs, int(*rs.Spec.Replicas))
	w.settle(rs)

	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			pod, was := w.pod(s.pod), before[s.pod]
			if !s.adopted {
				assert.Equal(t, was, pod, "it is left alone")
				return
			}
			want := []metav1.OwnerReference{}
			for _, ref := range was.OwnerReferences {
				if ref.UID != rs.UID {
					want = append(want, ref)
				}
			}
			want = append(want, *metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
			assert.ElementsMatch(t, want, pod.OwnerReferences)
			assert.Equal(t, was.UID, pod.UID)
			assert.Equal(t, was.Labels, pod.Labels)
		})
	}
	t.Run("C17 C19 C20 C24 adopting takes one look at the owner and one patch a pod", func(t *testing.T) {
		t.Parallel()
		looks, patches := w.wire.to(http.MethodGet, "replicasets", "web"), w.wire.of(http.MethodPatch, "pods")
		require.Len(t, looks, 1)
		require.Len(t, patches, int(*rs.Spec.Replicas))
		for _, patch := range patches {
			assert.Less(t, looks[0].end, patch.begin, "looked before")
			assert.Equal(t, string(types.StrategicMergePatchType), patch.contentType)
			assert.Equal(t, `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"`+
				string(rs.UID)+`","controller":true,"blockOwnerDeletion":true}],"uid":"`+string(before[patch.name].UID)+`"}}`, patch.body)
		}
	})
	t.Run("B3 nothing was created or deleted", func(t *testing.T) {
		t.Parallel()
		assert.Empty(t, w.wire.of(http.MethodPost, "pods"))
		assert.Empty(t, w.wire.of(http.MethodDelete, "pods"))
	})
}

// owners contains functions that return references to owners. If the argument controller is true, the reference
// says that the owner is the controller.
type owners struct {
	us, deployment, namesake func(controller bool) metav1.OwnerReference
}

func refsTo(owner metav1.Object, apiVersion, kind string) func(bool) metav1.OwnerReference {
	return func(controller bool) metav1.OwnerReference { return ref(owner, apiVersion, kind, controller) }
}

func TestClaim(t *testing.T) {
	t.Parallel()

	t.Run("C8 V4 orphans count, the rest is created", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createPod(orphan("one"))
		w.createPod(orphan("two"))
		w.cachesAreFresh()
		rs := w.create(replicaSet("web", 5))
		w.has(rs, 5)
		w.podIs("one", "adopted", ownedBy(rs))
		w.podIs("two", "adopted", ownedBy(rs))
		assert.Equal(t, 5, w.history.everOwned(rs))
	})

	t.Run("C8 V4 an orphan that comes later is surplus", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 2))
		w.runAll(w.has(rs, 2))
		w.settle(rs)
		w.allow(rs, 1)
		late := w.createPod(orphan("late"))
		w.eventually(func(c *assert.CollectT) {
			assert.Equal(c, 3, w.history.everOwned(rs), "adopted")
			assert.NotContains(c, uids(w.history.find(active)), late.UID, "and deleted")
		}, "an orphan in surplus")
		w.has(rs, 2)
	})

	t.Run("C4 C21 V9 V10 a pod whose labels change is released, replaced, and adopted again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 2))
		w.allow(rs, 1)
		pods := w.has(rs, 2)
		w.runAll(pods)
		w.patchPod(pods[0].Name, `{"metadata":{"labels":{"app":"debug"}}}`)
		w.podIs(pods[0].Name, "released", func(p *corev1.Pod) bool { return len(p.OwnerReferences) == 0 })
		substitutes := w.has(rs, 2)
		assert.NotContains(t, uids(substitutes), pods[0].UID)
		release := w.wire.to(http.MethodPatch, "pods", pods[0].Name)
		require.Len(t, release, 1)
		assert.Equal(t, `{"metadata":{"uid":"`+string(pods[0].UID)+`","ownerReferences":[{"$patch":"delete","uid":"`+string(rs.UID)+`"}]}}`, release[0].body)

		w.settle(rs)
		w.patchPod(pods[0].Name, `{"metadata":{"labels":{"app":"web"}}}`)
		w.podIs(pods[0].Name, "adopted again", ownedBy(rs))
		w.eventually(func(c *assert.CollectT) {
			assert.Equal(c, uids(pods), uids(w.active(rs)), "the substitute, which is not ready, goes")
		}, "back to the first two")
	})

	t.Run("C1 V5 overlapping selectors share the orphans and never fight", func(t *testing.T) {
		t.Parallel()
		w := newWorldWith(t, settings{idle: true})
		one, two := replicaSet("one", 3), replicaSet("two", 3)
		for _, rs := range []*appsv1.ReplicaSet{one, two} {
			rs.Spec.Selector.MatchLabels, rs.Spec.Template.Labels = labels("web"), labels("web")
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			w.createPod(orphan(name))
		}
		one, two = w.create(one), w.create(two)
		w.allow(one, 1) // either ReplicaSet may adopt all four orphans
		w.allow(two, 1)
		w.start()
		w.has(one, 3)
		w.has(two, 3)
		w.settle(one)
		w.settle(two)
		before := w.wire.writes()
		w.settle(one)
		w.settle(two)
		assert.Len(t, w.wire.writes(), len(before)+2, "two statuses, for two new generations")
	})

	t.Run("C5 V9 another owner's pod is not touched while its labels match ours", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		wide := replicaSet("wide", 1)
		wide.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "wide"}},
		}}
		web := w.create(replicaSet("web", 3))
		w.has(web, 3)
		wide = w.create(wide)
		w.has(wide, 1)
		w.settle(wide)
		w.has(web, 3)
		assert.Equal(t, 1, w.history.everOwned(wide))
		assert.Empty(t, w.wire.of(http.MethodPatch, "pods"))
	})
}
