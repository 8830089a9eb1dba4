package sim

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// A Controller is a whole ReplicaSet controller: the library's Reconciler, Router
// and ReplicaSetReporter on a view of a cluster. It is a Part. A controller that
// is started again is a new one on the same cluster; two run at once as two
// parts of one world.
type Controller struct {
	Client     *Client
	View       *View
	Worker     *Worker
	Reconciler *replicas.Reconciler
	Router     *replicas.Router
	Reporter   replicas.ReplicaSetReporter
	// BurstReplicas goes into every Spec.
	BurstReplicas int
	// Skew is how far the controller's clock is ahead of the cluster's.
	Skew time.Duration
	// Listed is called when a pass has listed the pods; what arrives then comes
	// too late for the list. nil: nobody.
	Listed func()
	// Scaling is told what a pass is about to create and delete; nil: nobody.
	Scaling func(Scaling)
	// Passed is told of every pass; nil: nobody.
	Passed func(rs *appsv1.ReplicaSet, result replicas.Result, err error)

	clock   *Clock
	passing *appsv1.ReplicaSet
}

// A Scaling is what a pass is about to do.
type Scaling struct {
	Owner   *appsv1.ReplicaSet
	Owned   []*corev1.Pod // those that it counts
	Related []*corev1.Pod // those that count for co-location
	Scale   replicas.Scale
}

// NewController returns a controller that has seen nothing yet.
func NewController(cluster *Cluster) *Controller {
	client := NewClient(cluster)
	exp := &expectations.Store[expectations.Key]{}
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	c := &Controller{
		Client:     client,
		View:       NewView(cluster),
		Reconciler: &replicas.Reconciler{Kind: kind, Pods: client, Owners: client, Events: client, Expectations: exp, MaxParallel: 1},
		Reporter:   replicas.ReplicaSetReporter{Client: client.ReplicaSets()},
		clock:      cluster.Clock,
	}
	exp.Now, c.Reconciler.Now, c.Reporter.Now = c.Now, c.Now, c.Now
	c.Worker = &Worker{Clock: cluster.Clock, Sync: c.sync}
	c.Router = &replicas.Router{
		Kind:         kind,
		Owner:        c.View.Owner,
		OwnersIn:     c.View.OwnersIn,
		Spec:         specOf,
		Expectations: exp,
		Forget:       c.Reconciler.Forget,
		Wake:         c.Worker.Wake,
	}
	c.View.Handle(c.Router)
	c.Reconciler.Related = c.siblings
	c.Reconciler.BeforeScale = func(_ context.Context, spec replicas.Spec, owned []*corev1.Pod, scale replicas.Scale) {
		if c.Scaling != nil {
			c.Scaling(Scaling{c.passing, owned, spec.Related, scale})
		}
	}
	return c
}

// Expectations returns the record of what the controller started and has not seen.
func (c *Controller) Expectations() *expectations.Store[expectations.Key] {
	return c.Reconciler.Expectations
}

func specOf(owner metav1.Object) (replicas.Spec, error) {
	rs, _ := owner.(*appsv1.ReplicaSet)
	return replicas.ReplicaSetSpec(rs)
}

// siblings returns the pods of the ReplicaSets of owner's Deployment as the
// caches have them.
func (c *Controller) siblings(_ context.Context, owner metav1.Object) ([]*corev1.Pod, error) {
	namespace := owner.GetNamespace()
	return replicas.Related(owner, c.View.ReplicaSets.In(namespace), selector.ForReplicaSet, c.View.Pods.In(namespace)), nil
}

// RememberWrites gives the controller a ConsistencyStore: from now on it waits
// for its caches to see what it wrote.
func (c *Controller) RememberWrites() {
	store := &expectations.ConsistencyStore{ReadVersion: c.View.ReadVersion, Now: c.Now}
	c.Reconciler.Consistency, c.Reporter.Consistency = store, store
}

// Now is what the controller takes the time to be.
func (c *Controller) Now() time.Time { return c.clock.Now().Add(c.Skew) }

// Passing returns the ReplicaSet that a pass is made for at this moment, as the
// pass sees it, or nil.
func (c *Controller) Passing() *appsv1.ReplicaSet { return c.passing }

// Pass runs a pass for a ReplicaSet: calls made meanwhile are made for it.
func (c *Controller) Pass(rs *appsv1.ReplicaSet, pass func()) {
	c.passing = rs
	pass()
	c.passing = nil
}

// Due returns when the next event arrives, or the next pass is due.
func (c *Controller) Due() (time.Time, bool) {
	_, due, ok := c.next()
	return due, ok
}

// Step delivers an event or makes a pass, the event first.
func (c *Controller) Step() {
	if part, _, ok := c.next(); ok {
		part.Step()
	}
}

func (c *Controller) next() (Part, time.Time, bool) {
	event, arrives := c.View.Due()
	if work, ok := c.Worker.Due(); ok && c.View.Synced() && (!arrives || work.Before(event)) {
		return c.Worker, work, true
	}
	return c.View, event, arrives
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	rs, ok := c.View.ReplicaSets.Get(key.Namespace, key.Name)
	if !ok {
		c.Reconciler.Forget(expectations.Key{NamespacedName: key})
		return 0, nil
	}
	var result replicas.Result
	var err error
	c.Pass(rs, func() { result, err = c.pass(ctx, rs) })
	if c.Passed != nil {
		c.Passed(rs, result, err)
	}
	if c.Reconciler.Refuse(rs, err) {
		return 0, nil // trying again is useless until rs changes
	}
	return result.RequeueAfter, err
}

func (c *Controller) pass(ctx context.Context, rs *appsv1.ReplicaSet) (replicas.Result, error) {
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		return replicas.Result{}, err
	}
	spec.BurstReplicas = c.BurstReplicas
	result, err := c.Reconciler.Reconcile(ctx, spec, func(context.Context) ([]*corev1.Pod, error) {
		pods := c.View.Pods.In(rs.Namespace)
		if c.Listed != nil {
			c.Listed()
		}
		return pods, nil
	})
	return c.Reporter.Report(ctx, rs, result, err)
}
