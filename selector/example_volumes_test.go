// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/selector"
)

// A VirtualMachine lists the names of its volumes. The volumes have no labels.
type VirtualMachine struct {
	metav1.ObjectMeta
	Volumes []string
}

// claimVolumes adopts the volumes that the machine lists, and returns them. If the machine no longer lists one of
// its volumes, the volume is not released.
func claimVolumes(ctx context.Context, vm *VirtualMachine, volumes []*corev1.PersistentVolumeClaim,
	patch func(context.Context, *corev1.PersistentVolumeClaim, selector.Patch) (*corev1.PersistentVolumeClaim, error),
) ([]*corev1.PersistentVolumeClaim, error) {
	claimed, err := selector.Claimer[*corev1.PersistentVolumeClaim]{
		Owner:  vm,
		Kind:   schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "VirtualMachine"},
		Filter: selector.Named[*corev1.PersistentVolumeClaim](vm.Volumes...),
		Keep:   selector.All[*corev1.PersistentVolumeClaim],
		Patch:  patch,
	}.Claim(ctx, volumes)
	return claimed.Ours(), err
}

// An owner can claim objects by name, without a selector.
func ExampleClaimer_Claim_names() {
	vm := &VirtualMachine{metav1.ObjectMeta{Namespace: "default", Name: "vm", UID: "4a1f"}, []string{"root", "data"}}
	volume := func(name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	adopt := func(_ context.Context, v *corev1.PersistentVolumeClaim, _ selector.Patch) (*corev1.PersistentVolumeClaim, error) {
		fmt.Println("adopt", v.Name)
		return v, nil
	}
	volumes, err := claimVolumes(context.Background(), vm, []*corev1.PersistentVolumeClaim{volume("data"), volume("cache"), volume("root")}, adopt)
	fmt.Println(len(volumes), err)
	// Output:
	// adopt data
	// adopt root
	// 2 <nil>
}
