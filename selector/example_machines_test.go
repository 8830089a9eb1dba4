// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

// A Machine is a custom resource, and so is a MachineSet.
type Machine struct{ metav1.ObjectMeta }

type MachineSet struct{ metav1.ObjectMeta }

var machineSetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "MachineSet"}

// claimMachines adopts and releases machines, and returns the machines that belong to the set.
func claimMachines(ctx context.Context, set *MachineSet, sel labels.Selector, machines []*Machine,
	patch func(context.Context, *Machine, selector.Patch) (*Machine, error),
) ([]*Machine, error) {
	claimed, err := selector.Claimer[*Machine]{
		Owner:      set,
		Kind:       machineSetKind,
		Selector:   sel,
		PatchType:  types.MergePatchType, // custom resources refuse strategic merge patches
		Finalizers: []string{"example.com/machine"},
		Patch:      patch,
	}.Claim(ctx, machines)
	for _, f := range claimed.Refused { // another owner was faster, which is no error
		fmt.Println("not ours:", f.Object.Name, f.Err)
	}
	return claimed.Ours(), err
}

// Custom resources need JSON merge patches. A JSON merge patch contains the whole lists of owner references and
// finalizers. Claim builds both lists from the given machine, so the patch also contains the resource version of
// this machine.
func ExampleClaimer_Claim_mergePatch() {
	set := &MachineSet{metav1.ObjectMeta{Namespace: "default", Name: "workers", UID: "4a1f"}}
	machine := &Machine{metav1.ObjectMeta{
		Namespace: "default", Name: "m1", UID: "77c0", ResourceVersion: "812",
		Labels: map[string]string{"pool": "workers"}, Finalizers: []string{"other.example/hold"},
	}}
	patch := func(_ context.Context, m *Machine, p selector.Patch) (*Machine, error) {
		fmt.Println(p.Type)
		fmt.Println(string(p.Data))
		return m, nil // the API server's answer
	}
	machines, err := claimMachines(context.Background(), set, labels.SelectorFromSet(labels.Set{"pool": "workers"}), []*Machine{machine}, patch)
	fmt.Println(len(machines), err)
	// Output:
	// application/merge-patch+json
	// {"metadata":{"uid":"77c0","resourceVersion":"812","ownerReferences":[{"apiVersion":"example.com/v1","kind":"MachineSet","name":"workers","uid":"4a1f","controller":true,"blockOwnerDeletion":true}],"finalizers":["other.example/hold","example.com/machine"]}}
	// 1 <nil>
}
