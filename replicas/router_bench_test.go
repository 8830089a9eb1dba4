package replicas_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// cachedRouter returns a Router over the one owner web, whose functions cost
// nothing.
func cachedRouter() *replicas.Router {
	rs := routedOwner("web", web)
	owners := []metav1.Object{rs}
	spec, err := replicas.ReplicaSetSpec(rs)
	exp := &expectations.Store[expectations.Key]{}
	exp.Set(expectations.KeyOf(rs), expectations.Changes{Creations: 1})
	return &replicas.Router{
		Kind:         appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Owner:        func(_, name string) (metav1.Object, bool) { return rs, name == rs.Name },
		OwnersIn:     func(string) []metav1.Object { return owners },
		Spec:         func(metav1.Object) (replicas.Spec, error) { return spec, err },
		Expectations: exp,
		Wake:         func(types.NamespacedName, time.Duration) {},
	}
}

// One event of a pod that has an owner: nothing is allocated. An orphan is asked
// of every owner of its namespace.
func BenchmarkRouter(b *testing.B) {
	r, rs := cachedRouter(), routedOwner("web", web)
	pod := podtest.Pod("web-0", owned(rs), version("1"))
	changed := podtest.Pod("web-0", owned(rs), version("2"))
	for _, event := range []struct {
		name string
		run  func() error
	}{
		{"PodAdded", func() error { return r.PodAdded(pod) }},
		{"PodUpdated", func() error { return r.PodUpdated(pod, changed) }},
		{"PodUpdated/resync", func() error { return r.PodUpdated(pod, pod) }},
		{"PodDeleted", func() error { return r.PodDeleted(pod) }},
		{"PodDeleted/tombstone", func() error { return r.PodDeleted(deletedFinalStateUnknown{Obj: pod}) }},
	} {
		b.Run(event.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = event.run()
			}
		})
	}
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("PodAdded/orphan/owners=%d", n), func(b *testing.B) {
			benchmarkOrphan(b, n, podtest.Pod("orphan"))
		})
	}
}

func benchmarkOrphan(b *testing.B, n int, orphan *corev1.Pod) {
	b.Helper()
	r, owners := cachedRouter(), make([]metav1.Object, n)
	for i := range owners {
		rs := routedOwner(fmt.Sprintf("web-%d", i), web)
		rs.ResourceVersion = "1"
		owners[i] = rs
	}
	r.Spec = func(owner metav1.Object) (replicas.Spec, error) {
		return replicas.ReplicaSetSpec(owner.(*appsv1.ReplicaSet))
	}
	r.OwnersIn = func(string) []metav1.Object { return owners }
	b.ReportAllocs()
	for b.Loop() {
		_ = r.PodAdded(orphan)
	}
}
