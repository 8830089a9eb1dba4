// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// A Worker is a custom resource, and so is a WorkerPool.
type Worker struct {
	metav1.ObjectMeta
	Image   string
	Ready   bool
	Broken  bool
	Leading bool
}

type WorkerPool struct {
	metav1.ObjectMeta
	Replicas int32
	Image    string
}

// workers contains the rules for Workers, such as which Workers are ready and which must go.
var workers = replicas.Rules[*Worker]{
	Ready:    func(w *Worker) bool { return w.Ready },
	MustGo:   func(w *Worker) bool { return w.Broken },
	MustStay: func(w *Worker) bool { return w.Leading },
	Order: podrank.Must(podrank.NewOrder(
		podrank.First("not ready", func(w *Worker) bool { return !w.Ready }),
		podrank.Newest[*Worker](),
	)),
}

// planWorkers returns the plan for a pool of Workers.
func planWorkers(pool *WorkerPool, list []*Worker, now time.Time) (replicas.Plan[*Worker], error) {
	app := labels.Set{"pool": pool.Name}
	return replicas.Manage(list, replicas.Spec[*Worker]{
		Owner:    pool,
		Kind:     schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "WorkerPool"},
		Replicas: pool.Replicas,
		Selector: labels.SelectorFromSet(app),
		New: func(string) (*Worker, error) {
			return &Worker{ObjectMeta: metav1.ObjectMeta{Labels: app}, Image: pool.Image}, nil
		},
		Rules: workers,
		Facts: replicas.Facts[*Worker]{Now: now, Names: func(prefix string) string { return prefix + rand.String(5) }},
	})
}

// The children are custom resources. Spec.Rules defines which children are ready, which must go, which must stay,
// and which are deleted first.
func ExampleManage_workers() {
	now := time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	pool := &WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pool", UID: "4a1f"}, Replicas: 2, Image: "worker:2"}
	worker := func(name string, age time.Duration) *Worker {
		return &Worker{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{"pool": "pool"},
				CreationTimestamp: metav1.NewTime(now.Add(-age)),
				OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(pool, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "WorkerPool"})},
			},
			Ready: true,
		}
	}
	old, leader, broken := worker("pool-old", time.Hour), worker("pool-leader", time.Minute), worker("pool-broken", 2*time.Hour)
	leader.Leading, broken.Broken = true, true

	plan, err := planWorkers(pool, []*Worker{old, leader, broken}, now)
	fmt.Println(plan, err)

	pool.Replicas = 1
	plan, err = planWorkers(pool, []*Worker{old, leader}, now)
	fmt.Println(plan, err)

	pool.Replicas = 4
	plan, err = planWorkers(pool, []*Worker{old, leader}, now)
	fmt.Println(plan, err)
	child, err := plan.Scale.New(0)
	fmt.Println(child.Namespace, child.Name == plan.Scale.Names[0], child.OwnerReferences[0].Kind, child.Image, err)
	// Output:
	// delete 1: default/pool-broken (must go) <nil>
	// delete 1: default/pool-old (all others must stay) <nil>
	// create 2 <nil>
	// default true WorkerPool worker:2 <nil>
}
