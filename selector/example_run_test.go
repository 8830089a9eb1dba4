// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
)

// Up to sixteen calls run at the same time, and Claim returns the outcome of each call. The pods in the list
// Refused do not belong to the owner. The pods in the list AdoptionPending may belong to the owner.
func ExampleClaimer_Claim_parallel() {
	pools := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Pool"}
	resource := schema.GroupResource{Resource: "pods"}
	answers := map[string]error{
		"b": apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "b", nil),
		"c": apierrors.NewConflict(resource, "c", errors.New("it has been modified")),
		"d": apierrors.NewNotFound(resource, "d"),
	}
	claimer := selector.Claimer[*corev1.Pod]{
		Owner:    &metav1.ObjectMeta{Namespace: "default", Name: "pool", UID: "4a1f"},
		Kind:     pools,
		Selector: labels.SelectorFromSet(labels.Set{"app": "pool"}),
		Patch: func(_ context.Context, p *corev1.Pod, _ selector.Patch) (*corev1.Pod, error) {
			return p, answers[p.Name]
		},
		Run: func(ctx context.Context, n int, call func(context.Context, int) error) error {
			return slowstart.Run(ctx, n, slowstart.Options{InitialBatchSize: n, MaxParallel: 16}, call).Err
		},
	}
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c", "d"} {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "pool"}}})
	}
	claimed, err := claimer.Claim(context.Background(), pods)
	fmt.Println("adopted:  ", claimed.Adopted[0].Name)
	fmt.Println("refused:  ", claimed.Refused[0].Object.Name)
	fmt.Println("undecided:", claimed.AdoptionPending[0].Object.Name)
	fmt.Println("gone:     ", claimed.Gone[0].Object.Name)
	fmt.Println(err)
	// Output:
	// adopted:   a
	// refused:   b
	// undecided: c
	// gone:      d
	// selector: Pool "default/pool": adopting "default/c": Operation cannot be fulfilled on pods "c": it has been modified
}
