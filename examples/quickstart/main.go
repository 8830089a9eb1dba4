// Command quickstart keeps a fleet of pods alive on a simulated cluster, in
// virtual time, and tells what it does and why.
//
//	go run ./examples/quickstart
//
// This file is a whole ReplicaSet controller: newController wires the library
// up, sync is what its worker does. Only the cluster, its watches and the work
// queue are simulated; a real controller has a client, informers and a
// rate-limited queue in their place. What happens to the fleet is in story.go,
// the output in print.go.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim"
	"github.com/replicakit/replicakit/replicas"
)

func main() {
	text, err := tell()
	fmt.Print(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// A controller keeps the ReplicaSets of a cluster at their wanted number of pods.
type controller struct {
	view       *sim.View   // what the watches have told so far: two informers
	queue      *sim.Worker // a work queue that never runs one owner twice at once
	reconciler *replicas.Reconciler
	reporter   replicas.ReplicaSetReporter
	now        func() time.Time
	passed     func(replicas.Result, error) // for logs
}

// replicaSets is the kind of the owners.
var replicaSets = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

func newController(cluster *sim.Cluster, client *sim.Client) *controller {
	c := &controller{view: sim.NewView(cluster), now: cluster.Clock.Now}
	c.queue = &sim.Worker{Clock: cluster.Clock, Sync: c.sync}

	// What was started and not yet seen. The Reconciler records it, the Router
	// settles it: both must have the same.
	pending := &expectations.Store[expectations.Key]{Now: c.now}

	// The Reconciler makes the passes.
	c.reconciler = &replicas.Reconciler{
		Kind:         replicaSets,
		Pods:         client, // creates, patches and deletes: the one interface to implement
		Owners:       client, // a live read before the first adoption
		Events:       client,
		Expectations: pending,
		Related:      c.related,
		Now:          c.now,
		MaxParallel:  1, // the simulation has no goroutines; leave it 0 on a real cluster
	}

	// The Router turns watch events into settled expectations and woken owners.
	router := &replicas.Router{
		Kind:         replicaSets,
		Owner:        c.view.Owner,
		OwnersIn:     c.view.OwnersIn,
		Spec:         specOf,
		Expectations: pending,
		Forget:       c.reconciler.Forget,
		Wake:         c.queue.Wake,
	}
	c.view.Handle(router)

	// The reporter writes the status after a pass.
	c.reporter = replicas.ReplicaSetReporter{Client: client.ReplicaSets(), Now: c.now}
	return c
}

// sync works on one ReplicaSet, and says when to come back.
func (c *controller) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	rs, ok := c.view.ReplicaSets.Get(key.Namespace, key.Name)
	if !ok {
		c.reconciler.Forget(expectations.Key{NamespacedName: key})
		return 0, nil
	}
	result, err := c.pass(ctx, rs)
	c.passed(result, err)
	if c.reconciler.Refuse(rs, err) {
		return 0, nil // its spec is at fault: useless to try again before it changes
	}
	return result.RequeueAfter, err
}

// pass does what is to be done, then writes the status. The pods are those of the
// whole namespace; a real controller has an index of owned pods and orphans.
func (c *controller) pass(ctx context.Context, rs *appsv1.ReplicaSet) (replicas.Result, error) {
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		return replicas.Result{}, err
	}
	result, err := c.reconciler.Reconcile(ctx, spec, func(context.Context) ([]*corev1.Pod, error) {
		return c.view.Pods.In(rs.Namespace), nil
	})
	return c.reporter.Report(ctx, rs, result, err)
}

// specOf is what a ReplicaSet asks for.
func specOf(owner metav1.Object) (replicas.Spec, error) {
	rs, _ := owner.(*appsv1.ReplicaSet)
	return replicas.ReplicaSetSpec(rs)
}

// related returns the pods that count as neighbours: of pods that are alike, those
// on the most crowded node go first. Here they are the ReplicaSet's own;
// replicas.Related finds those of all ReplicaSets of one Deployment.
func (c *controller) related(_ context.Context, rs metav1.Object) ([]*corev1.Pod, error) {
	return slices.DeleteFunc(c.view.Pods.In(rs.GetNamespace()), func(p *corev1.Pod) bool {
		return !metav1.IsControlledBy(p, rs)
	}), nil
}
