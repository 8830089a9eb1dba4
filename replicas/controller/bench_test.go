// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// A still is a cache that always returns the same owners and pods, without any work. It is also a client, but
// every call to this client panics.
type still struct {
	controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
	controller.Cache[*appsv1.ReplicaSet, *corev1.Pod]

	owners []*appsv1.ReplicaSet
	pods   []*corev1.Pod
}

func (s *still) Owner(context.Context, types.NamespacedName) (*appsv1.ReplicaSet, error) {
	return s.owners[0], nil
}

func (s *still) Owners(context.Context, string) ([]*appsv1.ReplicaSet, error) { return s.owners, nil }

func (s *still) Children(context.Context, *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return s.pods, nil
}
func (s *still) ChildrenVersion() string { return "" }
func (s *still) OwnersVersion() string   { return "" }

func (s *still) controller(tb testing.TB) *controller.Controller {
	tb.Helper()
	kind := controller.ReplicaSets()
	kind.Status = nil
	c, err := controller.New(kind, s, s, func(types.NamespacedName, time.Duration) {}, controller.Options{})
	require.NoError(tb, err)
	return c
}

// stillEvents returns a Controller with one owner, web. The Controller waits until the cache shows one pod that it
// has created for web.
func stillEvents(tb testing.TB) *controller.Controller {
	tb.Helper()
	rs := ownerNamed("web", web)
	rs.ResourceVersion = "1"
	c := (&still{owners: []*appsv1.ReplicaSet{rs}}).controller(tb)
	known := inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]]](c).Ledger(expectations.KeyOf(rs))
	require.NoError(tb, known.Created(known.Start(), podtest.Pod("web-new", owned(rs)), podtest.Now))
	return c
}

// BenchmarkEvents handles one event in each iteration. TestEventsAllocatesNothing checks that an event of a pod
// with an owner allocates nothing. For an event of an orphan, the handler compares the orphan with every owner in
// its namespace.
func BenchmarkEvents(b *testing.B) {
	c, rs := stillEvents(b), ownerNamed("web", web)
	pod := podtest.Pod("web-0", owned(rs), version("1"))
	changed := podtest.Pod("web-0", owned(rs), version("2"))
	for _, event := range []struct {
		name string
		run  func() error
	}{
		{"ChildAdded", func() error { return c.ChildAdded(pod) }},
		{"ChildUpdated", func() error { return c.ChildUpdated(pod, changed) }},
		{"ChildUpdated/resync", func() error { return c.ChildUpdated(pod, pod) }},
		{"ChildDeleted", func() error { return c.ChildDeleted(pod) }},
		{"ChildDeleted/tombstone", func() error { return c.ChildDeleted(deletedFinalStateUnknown{Obj: pod}) }},
	} {
		b.Run(event.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = event.run()
			}
		})
	}
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("ChildAdded/orphan/owners=%d", n), func(b *testing.B) {
			s := &still{}
			for i := range n {
				rs := ownerNamed(fmt.Sprintf("web-%d", i), web)
				rs.ResourceVersion = "1"
				s.owners = append(s.owners, rs)
			}
			c, orphan := s.controller(b), podtest.Pod("orphan")
			b.ReportAllocs()
			for b.Loop() {
				_ = c.ChildAdded(orphan)
			}
		})
	}
}

// BenchmarkSync makes passes for an owner that already has all its pods.
func BenchmarkSync(b *testing.B) {
	for _, n := range []int{5, 1000, 10000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			rs := replicaSet(int32(n))
			s := &still{owners: []*appsv1.ReplicaSet{rs}, pods: podtest.Fleet(n, 500, 1)}
			for _, p := range s.pods {
				owned(rs)(p)
			}
			c, key := s.controller(b), expectations.KeyOf(rs).NamespacedName
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Sync(context.Background(), key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A writer is a still whose client stores the status, and whose cache shows it at once.
type writer struct {
	*still
	version int64
}

func (w *writer) PatchStatus(_ context.Context, rs *appsv1.ReplicaSet, _ selector.Patch) (*appsv1.ReplicaSet, error) {
	w.version++
	stored := *rs
	stored.ResourceVersion = strconv.FormatInt(w.version, 10)
	w.owners[0] = &stored
	return &stored, nil
}

// BenchmarkSyncAndStatus makes passes that write the status and change nothing else. After each write, a pass finds
// out whether the new status wants something else, for which it makes a second plan if the Kind has rules.
func BenchmarkSyncAndStatus(b *testing.B) {
	for _, n := range []int{5, 1000, 10000, -1000, -10000} {
		name, rules := fmt.Sprintf("pods=%d", max(n, -n)), n < 0
		if n = max(n, -n); rules {
			name += "/rules"
		}
		b.Run(name, func(b *testing.B) {
			rs := replicaSet(int32(n))
			rs.Generation = 0 // else another status in each pass is a gate
			w := &writer{still: &still{owners: []*appsv1.ReplicaSet{rs}, pods: podtest.Fleet(n, 500, 1)}, version: 1}
			for _, p := range w.pods {
				owned(rs)(p)
			}
			kind, round := controller.ReplicaSets(), int32(0)
			kind.Status = func(rs *appsv1.ReplicaSet, _ controller.Outcome[*corev1.Pod]) error {
				round++
				rs.Status.Replicas = round
				return nil
			}
			if spec := kind.Spec; rules {
				kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
					s, err := spec(rs)
					s.Rules.MustGo = func(*corev1.Pod) bool { return false }
					return s, err
				}
			}
			c, err := controller.New(kind, w, w, func(types.NamespacedName, time.Duration) {}, controller.Options{})
			require.NoError(b, err)
			key := expectations.KeyOf(rs).NamespacedName
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Sync(context.Background(), key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
