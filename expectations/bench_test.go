// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

const benchKeys = 1000

func benchmarkKeys() []expectations.Key {
	keys := make([]expectations.Key, benchKeys)
	for i := range keys {
		keys[i] = expectations.Key{
			NamespacedName: types.NamespacedName{Namespace: fmt.Sprintf("team-%d", i%20), Name: fmt.Sprintf("web-%d-5d9c7b6f4d", i)},
			UID:            types.UID(fmt.Sprintf("%08x-4d1f-4000-8000-%012x", i*7919, i)),
		}
	}
	return keys
}

// BenchmarkObserveAndCheck measures one observation, as in an informer's handler, and one check, as in a worker.
// If the owners are waiting, the check reads the clock. If the owners are satisfied, the check does not read the
// clock.
func BenchmarkObserveAndCheck(b *testing.B) {
	for _, owners := range []struct {
		name      string
		creations int
	}{{"waiting", math.MaxInt32}, {"satisfied", 0}} {
		b.Run(fmt.Sprintf("%s/keys=%d", owners.name, benchKeys), func(b *testing.B) {
			var s expectations.Store[expectations.Key]
			keys := benchmarkKeys()
			for _, key := range keys {
				s.Set(key, expectations.Changes{Creations: owners.creations})
			}
			inParallel(b, func(i int) {
				s.CreationObserved(keys[i%benchKeys], "web-0")
				s.State(keys[i%benchKeys])
			})
		})
	}
}

func inParallel(b *testing.B, op func(i int)) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	var start atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for i := int(start.Add(benchKeys / 3)); pb.Next(); i++ {
			op(i)
		}
	})
}

// BenchmarkScaleDown records a scale-down by 100 pods. Each deletion is observed twice, as an update event and as
// a delete event.
func BenchmarkScaleDown(b *testing.B) {
	const pods = 100
	var s expectations.Store[expectations.Key]
	keys := benchmarkKeys()
	uids := make([][]types.UID, benchKeys)
	for i := range uids {
		for j := range pods {
			uids[i] = append(uids[i], types.UID(fmt.Sprintf("%08x-77aa-4000-8000-%012x", i*7919, j)))
		}
	}
	b.Run(fmt.Sprintf("pods=%d/keys=%d", pods, benchKeys), func(b *testing.B) {
		inParallel(b, func(i int) {
			key, uids := keys[i%benchKeys], uids[i%benchKeys]
			s.Set(key, expectations.Changes{Deleting: uids})
			for _, uid := range uids {
				s.DeletionObserved(key, uid)
				s.DeletionObserved(key, uid)
			}
			s.State(key)
		})
	})
}
