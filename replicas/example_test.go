package replicas_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// A ReplicaSet that wants two pods has one that is ready, one that is not, one
// that is cheap to lose, and an orphan that matches.
func ExampleManage() {
	rs := replicaSet(2)
	pods := []*corev1.Pod{
		podtest.Pod("web-a", owned(rs)),
		podtest.Pod("web-b", owned(rs), podtest.NotReady),
		podtest.Pod("web-c", owned(rs), podtest.Cost("-100")),
		podtest.Pod("stray"),
	}

	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	plan, err := replicas.Manage(pods, spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan)
	// Output:
	// adopt 1: default/stray; delete 2: default/web-b (not ready), default/web-c (deletion cost -100 < 0)
}

// What could not be adopted must not count: ScaleTo decides again for the pods
// that are really owned.
func ExampleScaleTo() {
	rs := replicaSet(2)
	spec, _ := replicas.ReplicaSetSpec(rs)
	spec.Now = time.Now()
	plan, _ := replicas.Manage([]*corev1.Pod{podtest.Pod("web-a", owned(rs)), podtest.Pod("stray")}, spec)
	fmt.Println(plan)

	adoptionFailed := true
	if adoptionFailed {
		scale, _ := replicas.ScaleTo(plan.Claims.Owned, spec)
		fmt.Println(scale)
	}
	// Output:
	// adopt 1: default/stray
	// create 1
}

// A Reconciler makes the calls too. Here every create succeeds; the pods have
// not been seen yet when the second pass comes, which therefore waits.
func ExampleReconciler() {
	reconciler := &replicas.Reconciler{
		Kind:         appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Pods:         printer{},
		Expectations: &expectations.Store[expectations.Key]{},
		MaxParallel:  1,
	}
	spec, _ := replicas.ReplicaSetSpec(replicaSet(2))
	none := func(context.Context) ([]*corev1.Pod, error) { return nil, nil }
	for range 2 {
		result, err := reconciler.Reconcile(context.Background(), spec, none)
		fmt.Println("created", len(result.Created), "waiting", result.Waiting, "error", err)
	}
	// Output:
	// create default/web-
	// create default/web-
	// created 2 waiting false error <nil>
	// created 0 waiting true error <nil>
}

// printer is a PodControl that prints its calls.
type printer struct{}

func (printer) CreatePod(_ context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	fmt.Printf("create %s/%s\n", namespace, pod.GenerateName)
	return pod, nil
}

func (printer) DeletePod(_ context.Context, pod *corev1.Pod, _ metav1.DeleteOptions) (string, error) {
	fmt.Printf("delete %s/%s\n", pod.Namespace, pod.Name)
	return "", nil
}

func (printer) PatchPod(_ context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
	fmt.Printf("patch %s/%s %s\n", pod.Namespace, pod.Name, patch.Data)
	return pod, nil
}

func (printer) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	return nil, notFound(name)
}

func (printer) ListPods(context.Context, string, labels.Selector) ([]*corev1.Pod, error) {
	return nil, nil
}
