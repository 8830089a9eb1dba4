// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// BenchmarkManage plans to delete a tenth of the pods. Facts.Related is set, so the pods are also ranked by
// co-location.
func BenchmarkManage(b *testing.B) {
	for _, n := range []int{10, 500, 5000, 50000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			rs := replicaSet(int32(n - n/10))
			pods := podtest.Fleet(n, 500, 1)
			for _, p := range pods {
				owned(rs)(p)
			}
			spec := specOf(b, rs)
			spec.BurstReplicas = n
			spec.Facts.Related = func() []*corev1.Pod { return pods }
			b.ReportAllocs()
			for b.Loop() {
				plan, err := replicas.Manage(pods, spec)
				if err != nil || len(plan.Scale.Delete) != n/10 {
					b.Fatal(err, len(plan.Scale.Delete))
				}
			}
		})
	}
}
