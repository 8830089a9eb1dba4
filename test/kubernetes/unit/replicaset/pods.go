// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"cmp"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// named returns a copy of the pod. The UID of the copy consists of the pod's namespace and name. If our
// controller created the pod, the copy has the name that our controller chose. Some tests report the
// deletion of a pod without a UID, and TestDeletionTimestamp creates the same pod twice. Therefore the copy
// does not keep the UID of the pod.
func (rsc *ReplicaSetController) named(pod *corev1.Pod) *corev1.Pod {
	if pod == nil {
		return nil
	}
	pod = pod.DeepCopy()
	pod.Name = cmp.Or(rsc.names[nameOf(pod)], pod.Name)
	pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
	return pod
}

// namedIn replaces the pod in the object of an event with the result of named(pod). The object can be a
// tombstone.
func (rsc *ReplicaSetController) namedIn(obj any) any {
	switch obj := obj.(type) {
	case *corev1.Pod:
		return rsc.named(obj)
	case cache.DeletedFinalStateUnknown:
		obj.Obj = rsc.namedIn(obj.Obj)
		return obj
	default:
		return obj
	}
}

// added handles a pod that a test adds to the cache. The test has chosen the pod's name, but our controller
// expects one of the names in its own create requests. Therefore the method added assigns one of the expected
// names to the pod. If obj is a pod, the result is the copy that the call named(pod) returns.
func (rsc *ReplicaSetController) added(obj any) any {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj
	}
	if ref := metav1.GetControllerOf(pod); ref != nil && pod.DeletionTimestamp == nil {
		key := expectations.Key{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: ref.Name}, UID: ref.UID}
		if names := rsc.record.awaited(key); len(names) > 0 && rsc.names[nameOf(pod)] == "" {
			rsc.names[nameOf(pod)] = names[0]
		}
	}
	return rsc.named(pod)
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// testName returns the name that the tests use for a pod that our controller created.
func (rsc *ReplicaSetController) testName(namespace, ours string) string {
	for test, name := range rsc.names {
		if name == ours && test.Namespace == namespace {
			return test.Name
		}
	}
	return ours
}

// podsOf returns all pods in a namespace.
func (rsc *ReplicaSetController) podsOf(namespace string) []*corev1.Pod {
	pods, err := rsc.podsIn(namespace, labels.Everything())
	ignore(err)
	return pods
}

// podsIn returns the pods in a namespace that match the selector.
func (rsc *ReplicaSetController) podsIn(namespace string, sel labels.Selector) ([]*corev1.Pod, error) {
	pods, err := rsc.pods.Pods(namespace).List(sel)
	if err != nil {
		return nil, err
	}
	for i, pod := range pods {
		pods[i] = rsc.named(pod)
	}
	return pods, nil
}

// client passes our controller's API calls to the fakes of the tests, and returns what an API server would
// return.
type client struct {
	rsc *ReplicaSetController
	setClient
}

func (c client) Create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	template := &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	ref := metav1.GetControllerOf(pod)
	if err := c.rsc.podControl.CreatePods(ctx, pod.Namespace, template, &appsv1.ReplicaSet{}, ref); err != nil {
		return nil, err
	}
	return pod, nil
}

func (c client) Delete(ctx context.Context, pod *corev1.Pod, _ metav1.DeleteOptions) error {
	return c.rsc.podControl.DeletePod(ctx, pod.Namespace, c.rsc.testName(pod.Namespace, pod.Name), &appsv1.ReplicaSet{})
}

func (c client) Patch(ctx context.Context, pod *corev1.Pod, patch selector.Patch, _ metav1.PatchOptions) (*corev1.Pod, error) {
	return pod, c.rsc.podControl.PatchPod(ctx, pod.Namespace, c.rsc.testName(pod.Namespace, pod.Name), patch.Data)
}

func (c client) Get(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := c.rsc.pods.Pods(namespace).Get(c.rsc.testName(namespace, name))
	return c.rsc.named(pod), err
}

func (c client) List(_ context.Context, namespace string, matching labels.Selector) (ledger.List[*corev1.Pod], error) {
	pods, err := c.rsc.podsIn(namespace, matching)
	return ledger.List[*corev1.Pod]{Items: pods}, err
}

// listers lets our controller read the caches of the tests.
type listers struct{ rsc *ReplicaSetController }

func (l listers) Owner(_ context.Context, name types.NamespacedName) (*appsv1.ReplicaSet, error) {
	rs, err := l.rsc.rsLister.ReplicaSets(name.Namespace).Get(name.Name)
	if err != nil {
		return nil, err
	}
	return stored(rs), nil
}

func (l listers) Owners(_ context.Context, namespace string) ([]*appsv1.ReplicaSet, error) {
	return l.rsc.ownersIn(namespace), nil
}

func (l listers) Children(_ context.Context, owner *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return l.rsc.podsOf(owner.Namespace), nil
}

func (l listers) Related(_ context.Context, owner *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return l.rsc.related(owner), nil
}

func (listers) OwnersVersion() string   { return "" }
func (listers) ChildrenVersion() string { return "" }

// stored returns a copy of a test's ReplicaSet in the form in which an API server would store it. The
// ReplicaSets of the tests have the apiVersion v1, and their template does not match their selector. Our
// controller refuses a ReplicaSet with the apiVersion v1, or with a template that does not match the
// selector.
func stored(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	rs = rs.DeepCopy()
	rs.TypeMeta = metav1.TypeMeta{}
	if rs.Spec.Selector != nil {
		rs.Spec.Template.Labels = labels.Merge(rs.Spec.Template.Labels, rs.Spec.Selector.MatchLabels)
	}
	return rs
}
