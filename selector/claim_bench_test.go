// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/selector"
)

func BenchmarkClaimOwned(b *testing.B) {
	rs := benchReplicaSet()
	benchmarkClaim(b, rs, podtest.OwnedBy(rs, "apps/v1", "ReplicaSet"))
}

func BenchmarkClaimOrphans(b *testing.B) {
	benchmarkClaim(b, benchReplicaSet(), func(*corev1.Pod) {})
}

func benchmarkClaim(b *testing.B, rs *appsv1.ReplicaSet, option podtest.Option) {
	b.Helper()
	sel, err := selector.ForReplicaSet(rs)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{10, 500, 10000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			pods := podtest.Fleet(n, 500, 1)
			for _, p := range pods {
				option(p)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := plan(rs, sel, pods); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchReplicaSet() *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web-5d9c7b6f4d", UID: types.UID("9f7d3c1e-web")},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"app": "web", "pod-template-hash": "5d9c7b6f4d"},
		}},
	}
}
