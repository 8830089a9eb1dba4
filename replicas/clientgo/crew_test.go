// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

// hangingGate returns a gate and a function for onPod. If the label app of a pod begins with "hangs", the
// function makes the write of the pod wait at the gate. All other writes go through.
func hangingGate() (*gate, func(string, *corev1.Pod) error) {
	g := newGate()
	return g, func(verb string, p *corev1.Pod) error {
		if strings.HasPrefix(p.Labels["app"], "hangs") {
			return g.onPod(verb, p)
		}
		return nil
	}
}

func in(namespace string) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Namespace = namespace }
}

// podsIn counts the pods of a namespace.
func (b *bench) podsIn(namespace string) (n int) {
	for _, p := range b.allPods() {
		if p.Namespace == namespace {
			n++
		}
	}
	return n
}

func TestOwnersThatHang(t *testing.T) {
	t.Parallel()

	bubble(t, "D7 Z2 a few owners whose calls hang hold the others up for a second at most", func(t inBubble) {
		b := newBench()
		for i := range 5 {
			b.add(replicaSet(fmt.Sprintf("hangs-%d", i), 1))
		}
		g, onPod := hangingGate()
		b.onPod = onPod
		b.start(t)
		settle()
		assert.Equal(t, 5, b.slowPasses(t))
		assert.NotNil(t, b.logged("A sync takes long, so another worker starts"))
		healthy := replicaSet("healthy", 3, in("other"))
		b.add(healthy)
		after(time.Millisecond)
		assert.Equal(t, 3, b.podsIn("other"), "at once")
		b.scale(healthy, 1)
		after(time.Millisecond)
		assert.Equal(t, 1, b.podsIn("other"))
		close(g.opened)
		settle()
		assert.Zero(t, b.slowPasses(t))
		assert.Equal(t, 5, b.podsIn(namespace))
	})

	bubble(t, "a namespace full of them has as many passes as there are workers, and all others the rest", func(t inBubble) {
		b := newBench()
		for i := range 200 {
			b.add(replicaSet(fmt.Sprintf("hangs-%03d", i), 1, in("bad")))
		}
		g, onPod := hangingGate()
		b.onPod = onPod
		b.start(t)
		settle()
		b.add(replicaSet("healthy", 3, in("good")))
		after(time.Millisecond)
		assert.Equal(t, 3, b.podsIn("good"))
		after(time.Hour)
		assert.Len(t, g.owners(), clientgo.DefaultWorkers)
		b.add(replicaSet("neighbour", 1, in("bad")))
		settle()
		assert.Zero(t, b.podsIn("bad"), "it waits for those before it")
		close(g.opened)
		settle()
		assert.Equal(t, 201, b.podsIn("bad"), "nobody who was put off is forgotten")
		assert.Zero(t, b.slowPasses(t))
	})

	bubble(t, "there are no more than four such passes for each worker, wherever they are", func(t inBubble) {
		b := newBench()
		for i := range 100 {
			b.add(replicaSet(fmt.Sprintf("hangs-%03d", i), 1, in(fmt.Sprintf("bad-%03d", i))))
		}
		g, onPod := hangingGate()
		b.onPod, b.workers = onPod, 3
		b.start(t)
		after(time.Hour)
		assert.Len(t, g.owners(), 3+4*3)
		assert.Equal(t, 12, b.slowPasses(t))
		b.add(replicaSet("healthy", 1, in("good")))
		settle()
		assert.Zero(t, b.podsIn("good"))
		close(g.opened)
		settle()
		assert.Len(t, b.allPods(), 101)
		assert.Zero(t, b.slowPasses(t))
		g2, onPod := hangingGate()
		b.setOnPod(onPod)
		for i := range 100 {
			b.add(replicaSet(fmt.Sprintf("hangs-again-%03d", i), 1, in(fmt.Sprintf("bad-%03d", i))))
		}
		after(time.Hour)
		assert.Len(t, g2.owners(), 3+4*3, "as many workers as before")
		close(g2.opened)
		settle()
	})

	bubble(t, "Z5 Run waits for the passes that do not count too, and begins no others", func(t inBubble) {
		b := newBench()
		for i := range 20 {
			b.add(replicaSet(fmt.Sprintf("hangs-%d", i), 1))
		}
		g, onPod := hangingGate()
		b.onPod = onPod
		b.start(t)
		after(time.Minute)
		b.cancel()
		after(time.Hour)
		assert.Zero(t, b.returned.Load(), "calls are under way")
		close(g.opened)
		settle()
		assert.Equal(t, int32(1), b.returned.Load())
		assert.Len(t, b.allPods(), 5)
		assert.Empty(t, b.errors())
	})

	bubble(t, "V18 one owner never has two workers, however long its pass takes", func(t inBubble) {
		b := newBench(replicaSet("hangs", 2))
		g, onPod := hangingGate()
		b.onPod = onPod
		b.start(t)
		for range 5 {
			b.change(replicaSet("hangs", 2), func(rs object) { rs.SetLabels(map[string]string{"at": time.Now().String()}) })
			after(10 * time.Second)
		}
		assert.Equal(t, []string{"hangs"}, g.owners())
		close(g.opened)
		settle()
		assert.Len(t, b.allPods(), 2)
	})
}

func (b *bench) slowPasses(t inBubble) int {
	t.Helper()
	return b.metric(t, "replicakit_slow_passes")
}
