// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A pool keeps workers, which are no pods.
type pool struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   struct{ Replicas int32 }
	Status struct{ Replicas, Ready int32 }
}

func (p *pool) DeepCopy() *pool {
	c := *p
	p.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (p *pool) DeepCopyObject() runtime.Object { return p.DeepCopy() }

type worker struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Status struct{ Ready bool }
}

func (w *worker) DeepCopy() *worker {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (w *worker) DeepCopyObject() runtime.Object { return w.DeepCopy() }

func isReady(w *worker) bool { return w.Status.Ready }

// workers are what the labels of workers select.
func workers() map[string]string { return map[string]string{"app": "pool"} }

func poolKind() controller.Kind[*pool, *worker] {
	version := schema.GroupVersion{Group: "example.com", Version: "v1"}
	return controller.Kind[*pool, *worker]{
		Owner: version.WithKind("Pool"), Child: version.WithKind("Worker"),
		Spec: func(p *pool) (replicas.Spec[*worker], error) {
			return replicas.Spec[*worker]{
				Replicas: p.Spec.Replicas, Selector: labels.SelectorFromSet(workers()),
				Rules: replicas.Rules[*worker]{Ready: isReady},
				New:   func(string) (*worker, error) { return &worker{ObjectMeta: metav1.ObjectMeta{Labels: workers()}}, nil },
			}, nil
		},
		Status: func(p *pool, o controller.Outcome[*worker]) error {
			p.Status.Replicas, p.Status.Ready = o.Counts.Replicas, o.Counts.Ready
			return nil
		},
	}
}

// pools are a cluster of one pool, with a controller of its own. It shares the clock, and
// has faults of its own.
type pools struct {
	*replicastest.Cluster[*pool, *worker]
	controller *replicastest.Controller[*pool, *worker]
	wanted     int32
	most       int32 // that were wanted since the pool has settled
	err        error
}

func newPools(clock *replicastest.Clock, versions bool) *pools {
	cluster, err := replicastest.NewCluster(poolKind(), replicastest.Options{Clock: clock, Counting: true})
	if err != nil {
		panic(err)
	}
	p := &pools{Cluster: cluster}
	p.Ready = func(w *worker) { w.Status.Ready = true }
	p.Changed = p.changed
	p.controller = p.NewController()
	p.controller.View.ChildWatch.Lag, p.controller.View.OwnerWatch.Lag = lag, lag
	if versions {
		p.controller.RememberWrites()
	}
	p.controller.Scaling = p.scaling
	if _, err := p.CreateOwner(context.Background(), &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool"}}); err != nil {
		panic(err)
	}
	return p
}

// changed: there are never more workers of the pool than were wanted.
func (p *pools) changed(_, after metav1.Object) {
	if _, is := after.(*worker); !is || p.err != nil {
		return
	}
	if n := len(p.owned()); n > int(p.most) {
		p.err = fmt.Errorf("chaos: the pool has %d workers, and wants %d at most", n, p.most)
	}
}

func (p *pools) owned() (owned []*worker) {
	for _, w := range p.Children(namespace) {
		if metav1.GetControllerOf(w) != nil && w.Labels["app"] == "pool" {
			owned = append(owned, w)
		}
	}
	return owned
}

// scaling: workers that are not ready go first, and of the others the newest.
func (p *pools) scaling(s replicastest.Scaling[*pool, *worker]) {
	gone, ready := map[types.UID]bool{}, 0
	for _, v := range s.Scale.Delete {
		gone[v.Object.UID] = true
		if isReady(v.Object) {
			ready++
		}
	}
	for _, w := range s.Owned {
		if ready > 0 && !isReady(w) && !gone[w.UID] {
			p.err = fmt.Errorf("chaos: a worker goes that is ready, and %s stays", w.Name)
		}
	}
}

// scale changes how many workers are wanted.
func (p *pools) scale(n int) error {
	p.wanted = int32(n)
	p.most = max(p.most, p.wanted)
	_, err := p.EditOwner(context.Background(), namespace, "pool", func(is *pool) { is.Spec.Replicas = p.wanted })
	return err
}

// orphan makes a worker that the pool adopts.
func (p *pools) orphan() error {
	p.most++
	_, err := p.CreateChild(context.Background(), namespace, &worker{ObjectMeta: metav1.ObjectMeta{GenerateName: "orphan-", Labels: maps.Clone(workers())}})
	return err
}

// fails lets calls fail: before their effect, after it, or late.
func (p *pools) fails(op Op) {
	lost := replicastest.Lost()
	rule := replicastest.Rule{Skip: op.N / 6, Times: 1 + op.M/3, With: lost[op.M%len(lost)], Landed: op.N%3 == 0}
	if op.N%3 == 1 {
		rule.Late = 4 * op.For
	}
	p.controller.Client.Heal()
	p.controller.Client.Fail(rule)
}

// watches lets the watch of workers be late, hang or go on.
func (p *pools) watches(op Op) {
	watch := p.controller.View.ChildWatch
	watch.Lag = lag
	switch op.N % 4 {
	case 0:
		watch.Hang()
	case 1:
		watch.Lag += op.For
	case 2:
		watch.Relist()
	default:
		watch.Resume()
	}
}

// calm ends all that is wrong.
func (p *pools) calm() {
	p.controller.Client.Heal()
	p.controller.View.ChildWatch.Lag = lag
	p.controller.View.ChildWatch.Relist()
}

// settled checks that the pool has what it wants, and knows it.
func (p *pools) settled() error {
	is, err := p.GetOwner(context.Background(), namespace, "pool")
	if err != nil || p.err != nil {
		return fmt.Errorf("chaos: the pool: %w, %w", err, p.err)
	}
	n := len(p.owned())
	if all := len(p.Children(namespace)); n != int(p.wanted) || all != n || is.Status.Replicas != p.wanted || is.Status.Ready != p.wanted {
		return fmt.Errorf("chaos: the pool wants %d workers, has %d of %d, and says %v", p.wanted, n, all, is.Status)
	}
	return nil
}
