package replicas_test

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
)

func ExampleRouter() {
	rs := replicaSet(3)
	rs.Spec.MinReadySeconds = 10
	var exp expectations.Store[expectations.Key]

	router := replicas.Router{
		Kind:     appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Owner:    func(_, name string) (metav1.Object, bool) { return rs, name == rs.Name },
		OwnersIn: func(string) []metav1.Object { return []metav1.Object{rs} },
		Spec: func(owner metav1.Object) (replicas.Spec, error) {
			return replicas.ReplicaSetSpec(owner.(*appsv1.ReplicaSet))
		},
		Expectations: &exp,
		Wake: func(owner types.NamespacedName, after time.Duration) {
			state, _ := exp.State(expectations.KeyOf(rs))
			fmt.Printf("wake %s after %s: %s\n", owner, after, state)
		},
	}

	fmt.Println("two pods were created, their events come in")
	exp.Set(expectations.KeyOf(rs), expectations.Changes{Creations: 2})
	_ = router.PodAdded(podtest.Pod("web-0", owned(rs)))
	_ = router.PodAdded(podtest.Pod("web-1", owned(rs)))

	fmt.Println("one becomes ready, and may be available later")
	_ = router.PodUpdated(
		podtest.Pod("web-0", owned(rs), version("1"), podtest.NotReady),
		podtest.Pod("web-0", owned(rs), version("2")))

	fmt.Println("an orphan turns up that the owner selects")
	_ = router.PodAdded(podtest.Pod("web-2"))

	fmt.Println("something else is no event")
	fmt.Println(router.PodAdded("default/web-3"))

	// Output:
	// two pods were created, their events come in
	// wake default/web after 0s: waiting
	// wake default/web after 0s: satisfied
	// one becomes ready, and may be available later
	// wake default/web after 0s: satisfied
	// wake default/web after 10s: satisfied
	// an orphan turns up that the owner selects
	// wake default/web after 0s: satisfied
	// something else is no event
	// replicas: router: string is not a pod
}
