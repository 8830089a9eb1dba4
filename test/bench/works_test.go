// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/replicaset"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

// A work is a task that each side does with the same input. The string work.counts names the unit of the sizes.
// For example, a benchmark with the unit pods has the name pods=5000.
type work struct {
	name, counts string
	sizes        []int
	goroutines   []int // the numbers of goroutines to measure; if nil, the benchmark uses one goroutine, and its name omits the number
	sides        func(size int) []side
}

// A side is one implementation of a work. The function run does the work for the i-th time, and returns the size
// of the result. Both sides return the same size. If the list work.goroutines is not nil, the function run must be safe
// for concurrent use.
type side struct {
	name string
	run  func(i int) int
	stop func() // stops the goroutines of the side; may be nil
}

const (
	kubernetes = "kubernetes"
	ours       = "ours"
)

var (
	growth = []int{10, 500, 5_000}
	claims = []int{10, 500, 10_000}
)

var works = slices.Concat(
	onFleets("Choose", choose, growth),
	onFleets("ChooseComposed", chooseComposed, []int{5_000}),
	onFleets("Claim", claim, claims),
	onFleets("Status", calculate, claims),
	onFleets("Manage", manage, growth),
	onFleets("Hold", hold, claims),
	onFleets("Pass", pass, []int{10, 100, 1_000}),
	[]work{
		{name: "EachOwner", counts: "pods", sizes: []int{10_000, 100_000, 1_000_000}, sides: eachOwner},
		{name: "EachPod", counts: "pods", sizes: []int{10_000, 100_000, 1_000_000}, sides: eachPod},
		{name: "SlowStart", counts: "calls", sizes: []int{10, 500}, sides: slowStart},
		{name: "ObserveAndCheck", counts: "owners", sizes: []int{1, 10_000}, goroutines: []int{1, 16}, sides: observeAndCheck},
	},
)

// onFleets returns the same work on the healthy and on the mixed fleet.
func onFleets(name string, sides func(fleet) []side, sizes []int) []work {
	return []work{
		{name: name + "/fleet=healthy", counts: "pods", sizes: sizes, sides: of(healthy, sides)},
		{name: name + "/fleet=mixed", counts: "pods", sizes: sizes, sides: of(mixed, sides)},
	}
}

func of(pods func(int) fleet, sides func(fleet) []side) func(int) []side {
	return func(n int) []side { return sides(pods(n)) }
}

// choose selects the surplus tenth of the pods. The order includes co-location. Kubernetes sorts its list, so it
// gets a copy for each run.
func choose(f fleet) []side {
	scratch := make([]*corev1.Pod, len(f.pods))
	return []side{
		{name: kubernetes, run: func(int) int {
			copy(scratch, f.pods)
			return len(getPodsToDelete(scratch, f.related, f.excess))
		}},
		{name: ours, run: func(int) int {
			return len(podrank.Select(f.pods, f.excess, podrank.PodOptions{Now: f.now, Related: f.related}))
		}},
	}
}

// chooseComposed is like choose, but our side uses an Order that NewOrder has made from the criteria of
// Kubernetes. This Order is not the value that podrank.Kubernetes returns, so it gets no special treatment.
func chooseComposed(f fleet) []side {
	sides := choose(f)
	opts := podrank.PodOptions{Now: f.now, Related: f.related, Order: must(podrank.NewOrder(podrank.Kubernetes().Criteria()...))}
	sides[1].run = func(int) int { return len(podrank.Select(f.pods, f.excess, opts)) }
	return sides
}

// claim checks pods that the ReplicaSet already owns.
func claim(f fleet) []side {
	sel := must(metav1.LabelSelectorAsSelector(f.rs.Spec.Selector))
	return []side{
		{name: kubernetes, run: func(int) int { return len(claimPods(f, f.pods)) }},
		{name: ours, run: func(int) int {
			return len(must(selector.Claimer[*corev1.Pod]{Owner: f.rs, Selector: sel}.Plan(f.pods)).Owned)
		}},
	}
}

// claimPods claims the pods as syncReplicaSet does. Like syncReplicaSet, it parses the selector on each call.
func claimPods(f fleet, pods []*corev1.Pod) []*corev1.Pod {
	sel := must(metav1.LabelSelectorAsSelector(f.rs.Spec.Selector))
	canAdopt := func(context.Context) error { return nil }
	manager := controller.NewPodControllerRefManager(nil, f.rs, sel, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), canAdopt)
	return must(manager.ClaimPods(context.Background(), pods))
}

func calculate(f fleet) []side {
	features := replicaset.ReplicaSetControllerFeatures{EnableStatusTerminatingReplicas: true}
	return []side{
		{name: kubernetes, run: func(int) int {
			return int(calculateStatus(f.rs, f.pods, nil, nil, features, f.now).AvailableReplicas)
		}},
		{name: ours, run: func(int) int {
			return int(status.Calculate(f.rs, f.pods, status.Options{Now: f.now}).AvailableReplicas)
		}},
	}
}

// manage computes which of all pods must be deleted. It filters the active pods, claims them, and selects the
// surplus.
func manage(f fleet) []side {
	return []side{
		{name: kubernetes, run: func(int) int {
			active := controller.FilterActivePods(klog.Background(), f.pods)
			owned := claimPods(f, active)
			return len(getPodsToDelete(owned, f.related, len(owned)-int(*f.rs.Spec.Replicas)))
		}},
		{name: ours, run: func(int) int {
			spec := must(replicas.ReplicaSetSpec(f.rs))
			spec.Facts.Related, spec.Facts.Now, spec.BurstReplicas = func() []*corev1.Pod { return f.related }, f.now, len(f.pods)
			return len(must(replicas.Manage(f.pods, spec)).Scale.Delete)
		}},
	}
}

// hold is like manage, but there is nothing to create or delete. A controller does this work whenever a pod of a
// ReplicaSet changes.
func hold(f fleet) []side {
	f.rs.Spec.Replicas = new(int32(len(f.pods)))
	return []side{
		{name: kubernetes, run: func(int) int { return len(claimPods(f, controller.FilterActivePods(klog.Background(), f.pods))) }},
		{name: ours, run: func(int) int {
			spec := must(replicas.ReplicaSetSpec(f.rs))
			spec.Facts.Related, spec.Facts.Now = func() []*corev1.Pod { return f.related }, f.now
			return len(must(replicas.Manage(f.pods, spec)).Claims.Owned)
		}},
	}
}

// slowStart makes n calls that do nothing.
func slowStart(n int) []side {
	ctx := context.Background()
	return []side{
		{name: kubernetes, run: func(int) int { return must(slowStartBatch(n, 1, func() error { return nil })) }},
		{name: ours, run: func(int) int {
			return must(slowstart.Batch(ctx, n, 1, func(context.Context, int) error { return nil }))
		}},
	}
}

// observeAndCheck reports the creation of a child to the expectations of an owner that expects many creations. It
// then asks whether the owner may act.
func observeAndCheck(n int) []side {
	owners := replicaSets(n)
	theirs := controller.NewUIDTrackingControllerExpectations(controller.NewControllerExpectations())
	var mine expectations.Store[expectations.Key]
	logger, names, keys := klog.Background(), make([]string, n), make([]expectations.Key, n)
	for i, rs := range owners {
		names[i], keys[i] = must(controller.KeyFunc(rs)), expectations.KeyOf(rs)
		_ = theirs.ExpectCreations(logger, names[i], math.MaxInt32)
		mine.Set(keys[i], expectations.Changes{Creations: math.MaxInt32})
	}
	return []side{
		{name: kubernetes, run: func(i int) int {
			theirs.CreationObserved(logger, names[i%n])
			return count(!theirs.SatisfiedExpectations(logger, names[i%n]))
		}},
		{name: ours, run: func(i int) int {
			mine.CreationObserved(keys[i%n], "web-0")
			state, _ := mine.State(keys[i%n])
			return count(state == expectations.Waiting)
		}},
	}
}

// replicaSets returns n owners in 20 namespaces.
func replicaSets(n int) []*appsv1.ReplicaSet {
	owners := make([]*appsv1.ReplicaSet, n)
	for i := range owners {
		owners[i] = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%20),
			Name:      fmt.Sprintf("web-%d-5d9c7b6f4d", i),
			UID:       types.UID(fmt.Sprintf("%08x-4d1f-4000-8000-%012x", i*7919, i)),
		}}
	}
	return owners
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
