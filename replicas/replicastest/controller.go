package replicastest

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A Controller is a whole ReplicaSet controller: the library's, on a view of a
// cluster. It is a Part. A controller that is started again is a new one on the
// same cluster; two run at once as two parts of one world.
type Controller struct {
	Client *Client
	View   *View
	Worker *Worker
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
	Passed func(Pass)

	controller *controller.Controller
	cluster    *Cluster
	remembers  bool
	passing    *appsv1.ReplicaSet
	related    []*corev1.Pod // as the pass under way has them
	suffix     []int         // of the next name, in a cluster that is Counting
}

// A Pass tells what a pass did.
type Pass = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]

// A Scaling is what a pass is about to do.
type Scaling struct {
	Owner   *appsv1.ReplicaSet
	Owned   []*corev1.Pod // those that it counts
	Related []*corev1.Pod // those that count for co-location
	Scale   replicas.Scale
}

// NewController returns a controller that has seen nothing yet.
func NewController(cluster *Cluster) *Controller {
	return NewControllerWith(cluster, controller.Options{})
}

// NewControllerWith returns a controller with options. Clock, events, random
// numbers and the one call at a time are the simulation's.
func NewControllerWith(cluster *Cluster, opts controller.Options) *Controller {
	c := &Controller{Client: NewClient(cluster), View: NewView(cluster), cluster: cluster}
	c.Worker = &Worker{Clock: cluster.Clock, Sync: c.sync}
	opts.Now, opts.Events, opts.Random, opts.MaxParallel = c.Now, c.Client, c.random(), 1
	var err error
	if c.controller, err = controller.New(c.kind(), c.Client, cache{c.View, c}, c.Worker.Wake, opts); err != nil {
		panic(err)
	}
	c.View.Handle(c.controller)
	return c
}

func (c *Controller) kind() controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.Spec, error) {
		spec, err := replicas.ReplicaSetSpec(rs)
		spec.BurstReplicas = c.BurstReplicas
		return spec, err
	}
	kind.BeforeScale = func(_ context.Context, rs *appsv1.ReplicaSet, owned []*corev1.Pod, scale replicas.Scale) replicas.Scale {
		if c.Scaling != nil {
			c.Scaling(Scaling{rs, owned, c.related, scale})
		}
		return scale
	}
	kind.Observe = func(_ context.Context, pass Pass) {
		pass.Owner, c.passing = c.passing, nil // also if the cache was stale
		if c.Passed != nil && pass.Owner != nil {
			c.Passed(pass)
		}
	}
	return kind
}

// random returns what makes names: in a cluster that is Counting they count up too,
// and nothing is spread.
func (c *Controller) random() func(n int) int {
	if !c.cluster.counting {
		return c.cluster.Random
	}
	return func(n int) int {
		if n != letters {
			return 0
		}
		if len(c.suffix) == 0 {
			c.cluster.names++
			c.suffix = digits(c.cluster.names)
		}
		digit := c.suffix[0]
		c.suffix = c.suffix[1:]
		return digit
	}
}

// letters is how many letters names are made of, suffixLength how many of them each
// has at its end.
const letters, suffixLength = 27, 5

func digits(n uint64) []int {
	d := make([]int, suffixLength)
	for i := range d {
		d[suffixLength-1-i] = int(n % letters)
		n /= letters
	}
	return d
}

// Expectations returns the record of what the controller started and has not seen.
func (c *Controller) Expectations() *expectations.Store[expectations.Key] {
	return c.controller.Expectations()
}

// RememberWrites lets the controller know how far its caches have come: from now on
// it waits for them to see what it wrote.
func (c *Controller) RememberWrites() { c.remembers = true }

// Now is what the controller takes the time to be.
func (c *Controller) Now() time.Time { return c.cluster.Clock.Now().Add(c.Skew) }

// Passing returns the ReplicaSet that a pass is made for at this moment, as the
// pass sees it, or nil.
func (c *Controller) Passing() *appsv1.ReplicaSet { return c.passing }

// Pass runs a pass for a ReplicaSet: calls made meanwhile are made for it.
func (c *Controller) Pass(rs *appsv1.ReplicaSet, pass func()) {
	c.passing, c.related = rs, nil
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

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	rs, _ := c.View.ReplicaSets.Get(key.Namespace, key.Name)
	c.Pass(rs, func() { again, err = c.controller.Sync(ctx, key) })
	return again, err
}

// A cache is the view of a controller, and tells of what is asked of it.
type cache struct {
	*View
	controller *Controller
}

// Children lists pods.
func (c cache) Children(ctx context.Context, rs *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	pods, err := c.View.Children(ctx, rs)
	if c.controller.Listed != nil {
		c.controller.Listed()
	}
	return pods, err
}

// Related finds the pods of siblings, and keeps them for who wants to know.
func (c cache) Related(ctx context.Context, rs *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	var err error
	c.controller.related, err = c.View.Related(ctx, rs)
	return c.controller.related, err
}

// ChildrenVersion is known to a controller that remembers its writes.
func (c cache) ChildrenVersion() string {
	if !c.controller.remembers {
		return ""
	}
	return c.View.ChildrenVersion()
}

// OwnersVersion is known to a controller that remembers its writes.
func (c cache) OwnersVersion() string {
	if !c.controller.remembers {
		return ""
	}
	return c.View.OwnersVersion()
}
