// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/status"
)

func BenchmarkCalculate(b *testing.B) {
	rs := replicaSet(minReadySeconds(30))
	for _, n := range []int{10, 500, 10000} {
		pods := podtest.Fleet(n, 100, 1)
		terminating := podtest.Fleet(n/10, 100, 2)
		for _, p := range terminating {
			podtest.OwnedBy(rs, "apps/v1", "ReplicaSet")(p)
			podtest.Deleting(p)
		}
		for name, opts := range map[string]status.Options{
			"":             {Now: now},
			"/terminating": {Now: now, Terminating: terminating, ManageErr: errQuota},
		} {
			b.Run(fmt.Sprintf("pods=%d%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					status.Calculate(rs, pods, opts)
				}
			})
		}
		b.Run(fmt.Sprintf("pods=%d/floor", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				barePass(pods)
			}
		})
	}
}

// barePass reads only the fields that every calculation needs, which are the phase, one label, and the conditions
// up to Ready.
func barePass(pods []*corev1.Pod) (ready int) {
	for _, p := range pods {
		if p.Status.Phase != corev1.PodFailed && p.Labels["app"] != "" && status.IsPodReady(p) {
			ready++
		}
	}
	return ready
}

func BenchmarkCalculateReplicationController(b *testing.B) {
	rc := replicationController(replicaSet(minReadySeconds(30)))
	pods := podtest.Fleet(10000, 100, 1)
	b.Run("pods=10000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			status.CalculateReplicationController(rc, pods, status.Options{Now: now})
		}
	})
}

func BenchmarkNextAvailabilityCheck(b *testing.B) {
	pods := podtest.Fleet(10000, 100, 1)
	b.Run("pods=10000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			status.NextAvailabilityCheck(pods, 30, now.Add(-100*time.Hour))
		}
	})
}
