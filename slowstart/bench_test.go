// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package slowstart_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/replicakit/replicakit/slowstart"
)

func BenchmarkRun(b *testing.B) {
	noop := func(context.Context, int) error { return nil }
	for _, maxParallel := range []int{0, 128, 1} {
		b.Run(fmt.Sprintf("calls=500/maxParallel=%d", maxParallel), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				slowstart.Run(b.Context(), 500, slowstart.Options{MaxParallel: maxParallel}, noop)
			}
		})
	}
}
