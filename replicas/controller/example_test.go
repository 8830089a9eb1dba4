// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// A ReplicaSet wants two pods, and the client prints its calls. The first pass creates the pods. The second pass
// waits, because the cache does not show the pods yet. The events of the pods then request a third pass. This pass
// creates nothing, and only writes the status.
func ExampleNew() {
	two := int32(2)
	app := map[string]string{"app": "web"}
	c := &cluster{owner: &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &two,
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}},
		},
	}}

	kind := controller.ReplicaSets()
	kind.Observe = func(_ context.Context, pass controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) {
		fmt.Println("created", len(pass.Created), "waiting", pass.Waiting(), "error", pass.Err)
	}
	enqueue := func(owner types.NamespacedName, after time.Duration) { fmt.Println("enqueue", owner) }
	ctl, err := controller.New(kind, c, c, enqueue, controller.Options{MaxParallel: 1})
	if err != nil {
		fmt.Println(err)
		return
	}

	key := types.NamespacedName{Namespace: "default", Name: "web"}
	_, _ = ctl.Sync(context.Background(), key)
	_, _ = ctl.Sync(context.Background(), key)
	for _, pod := range c.created { // the watch shows the pods
		c.pods = append(c.pods, pod)
		_ = ctl.ChildAdded(pod)
	}
	_, _ = ctl.Sync(context.Background(), key)
	// Output:
	// create pod of web-
	// create pod of web-
	// status: 0 replicas
	// created 2 waiting false error <nil>
	// created 0 waiting true error <nil>
	// enqueue default/web
	// enqueue default/web
	// status: 2 replicas
	// created 0 waiting false error <nil>
}

// A cluster is the client and the cache of one ReplicaSet.
type cluster struct {
	owner         *appsv1.ReplicaSet
	pods, created []*corev1.Pod // the pods in the cache, and the pods on the server
}

func (c *cluster) Create(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	fmt.Println("create pod of", pod.GenerateName)
	pod.UID = types.UID(pod.Name)
	c.created = append(c.created, pod)
	return pod, nil
}

func (c *cluster) Delete(_ context.Context, pod *corev1.Pod, _ metav1.DeleteOptions) error {
	fmt.Println("delete", pod.Name)
	return nil
}

func (c *cluster) Patch(_ context.Context, pod *corev1.Pod, patch selector.Patch, _ metav1.PatchOptions) (*corev1.Pod, error) {
	fmt.Println("patch", pod.Name, string(patch.Data))
	return pod, nil
}

func (c *cluster) Get(_ context.Context, _, name string) (*corev1.Pod, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (c *cluster) List(context.Context, string, labels.Selector) (ledger.List[*corev1.Pod], error) {
	return ledger.List[*corev1.Pod]{Items: c.created}, nil
}

func (c *cluster) GetOwner(context.Context, string, string) (*appsv1.ReplicaSet, error) {
	return c.owner.DeepCopy(), nil
}

func (c *cluster) PatchStatus(_ context.Context, rs *appsv1.ReplicaSet, _ selector.Patch) (*appsv1.ReplicaSet, error) {
	fmt.Println("status:", rs.Status.Replicas, "replicas")
	c.owner = rs
	return rs, nil
}

func (c *cluster) Owner(_ context.Context, name types.NamespacedName) (*appsv1.ReplicaSet, error) {
	if name.Name != c.owner.Name {
		return nil, apierrors.NewNotFound(appsv1.Resource("replicasets"), name.Name)
	}
	return c.owner, nil
}

func (c *cluster) Owners(context.Context, string) ([]*appsv1.ReplicaSet, error) {
	return []*appsv1.ReplicaSet{c.owner}, nil
}

func (c *cluster) Children(context.Context, *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return c.pods, nil
}

func (c *cluster) Related(context.Context, *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return c.pods, nil
}

// This cache does not know its version, so passes do not wait until the cache shows the last status write.
func (c *cluster) OwnersVersion() string   { return "" }
func (c *cluster) ChildrenVersion() string { return "" }
