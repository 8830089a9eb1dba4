// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench compares this library with Kubernetes. In each run, the library and Kubernetes do the same
// work on the same pods.
//
//	make bench                               # everything, into docs/benchmarks.md
//	go test -bench Choose -benchtime 100ms   # one work
//	go test ./...                            # each benchmark once, small: that both sides do the same
//
// Each benchmark has up to two sides. side=kubernetes is the code of Kubernetes itself, and side=ours is this library.
//
// The program in the directory cluster measures a whole controller on real servers. Run it with make
// bench-cluster.
package bench

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// BenchmarkWork runs each work in each size on each side.
func BenchmarkWork(b *testing.B) {
	for _, w := range works {
		b.Run(w.name, func(b *testing.B) {
			for _, size := range w.sizes {
				b.Run(fmt.Sprintf("%s=%d", w.counts, size), func(b *testing.B) { w.benchmark(b, size) })
			}
		})
	}
}

func (w work) benchmark(b *testing.B, size int) {
	b.Helper()
	for _, s := range w.sides(size) {
		if s.stop != nil {
			defer s.stop()
		}
		if w.goroutines == nil {
			b.Run("side="+s.name, s.benchmark)
		}
		for _, goroutines := range w.goroutines {
			b.Run(fmt.Sprintf("goroutines=%d/side=%s", goroutines, s.name), func(b *testing.B) { s.benchmarkParallel(b, goroutines) })
		}
	}
}

func (s side) benchmark(b *testing.B) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.run(i)
	}
}

// benchmarkParallel divides b.N calls among the goroutines. The result is the elapsed time, divided by b.N.
func (s side) benchmarkParallel(b *testing.B, goroutines int) {
	b.Helper()
	b.ReportAllocs()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < b.N; i += goroutines {
				s.run(i)
			}
		})
	}
	wg.Wait()
}

// BenchmarkMemory reports how many bytes each side keeps for one owner or pod.
func BenchmarkMemory(b *testing.B) {
	for _, m := range memories {
		for _, size := range m.sizes {
			for _, k := range m.sides(size) {
				b.Run(fmt.Sprintf("%s/%ss=%d/side=%s", m.name, m.counts, size, k.name), func(b *testing.B) {
					var bytes int64
					for b.Loop() {
						bytes = retained(k.make)
					}
					b.ReportMetric(0, "ns/op") // hides the time per call, which is mostly garbage collection
					b.ReportMetric(float64(bytes)/float64(size), "B/"+m.counts)
				})
			}
		}
	}
}

// If Kubernetes and this library run the same work, both results have the same size. Each work runs once, in a
// small size. The memory benchmarks also run once, but the test does not compare their results.
func TestSidesAgree(t *testing.T) {
	t.Parallel()
	for _, w := range works {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			size := min(slices.Max(w.sizes), 500)
			sides := w.sides(size)
			for _, s := range sides {
				if s.stop != nil {
					defer s.stop()
				}
			}
			want := sides[0].run(0)
			assert.Positive(t, want)
			for _, s := range sides[1:] {
				assert.Equal(t, want, s.run(0), s.name)
			}
		})
	}
	for _, m := range memories {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, k := range m.sides(500) {
				assert.NotNil(t, k.make(), k.name)
			}
		})
	}
}
