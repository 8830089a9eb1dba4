// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/selector"
)

// A NodeSet owns numbered pods, and its name is the beginning of their names.
type NodeSet struct{ metav1.ObjectMeta }

var nodeSetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "NodeSet"}

// nodeSetPods adopts and releases pods, and returns the pods that belong to the set.
func nodeSetPods(ctx context.Context, set *NodeSet, client podClient, pods []*corev1.Pod) ([]*corev1.Pod, error) {
	claimed, err := selector.Claimer[*corev1.Pod]{
		Owner:    set,
		Kind:     nodeSetKind,
		Selector: labels.SelectorFromSet(labels.Set{"app": "compute"}),
		Filter:   func(p *corev1.Pod) bool { return strings.HasPrefix(p.Name, set.Name+"-") },
		CanAdopt: selector.CanAdopt(client.readSet, set),
		Patch:    client.patchPod,
	}.Claim(ctx, pods)
	return claimed.Ours(), err
}

// The selector matches pods by label, and the filter matches the pods that have the owner's name as prefix. As in
// Kubernetes, the owner releases its own pods if the filter does not match them.
func ExampleClaimer_Claim_filter() {
	set := &NodeSet{metav1.ObjectMeta{Namespace: "hpc", Name: "gpu", UID: "4a1f"}}
	compute := metav1.ObjectMeta{Namespace: "hpc", Labels: map[string]string{"app": "compute"}}
	ours := compute
	ours.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, nodeSetKind)}
	pod := func(meta metav1.ObjectMeta, name string) *corev1.Pod {
		meta.Name = name
		return &corev1.Pod{ObjectMeta: meta}
	}
	pods, err := nodeSetPods(context.Background(), set, podClient{set}, []*corev1.Pod{
		pod(ours, "gpu-0"), pod(compute, "gpu-1"), pod(compute, "cpu-0"), pod(ours, "renamed"),
	})
	for _, p := range pods {
		fmt.Println("ours:", p.Name)
	}
	fmt.Println(err)
	// Output:
	// read gpu
	// patch gpu-1
	// patch renamed
	// ours: gpu-0
	// ours: gpu-1
	// <nil>
}

// A podClient takes the place of a real client.
type podClient struct{ live *NodeSet }

func (c podClient) readSet(context.Context) (metav1.Object, error) {
	fmt.Println("read", c.live.Name)
	return c.live, nil
}

func (c podClient) patchPod(_ context.Context, p *corev1.Pod, _ selector.Patch) (*corev1.Pod, error) {
	fmt.Println("patch", p.Name)
	return p, nil
}
