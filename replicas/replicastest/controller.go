// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// A Controller is a controller.Controller with its own view of a cluster, and with a client, a work queue and a clock
// of its own. It is a Part. To simulate a restart, make a new Controller on the same cluster, and leave the old one out
// of the World. To run two at once, put both into the World.
type Controller[O Object[O], C Object[C]] struct {
	Client *Client[O, C]
	View   *View[O, C]
	Worker *Worker
	// Sync makes a pass. The default is the method Sync of a controller.Controller. Replace it to test a reconcile loop
	// of your own. See Worker.Sync for the meaning of the results.
	Sync func(ctx context.Context, key types.NamespacedName) (again time.Duration, err error)
	// BurstReplicas replaces the BurstReplicas of every Spec, unless it is 0.
	BurstReplicas int
	// Skew is how far the controller's clock is ahead of the cluster's clock. It may be negative.
	Skew time.Duration
	// RememberWrites makes the controller's caches report their resourceVersions, as client-go's do in 0.36 and later.
	// The controller then waits until its caches show its writes.
	RememberWrites bool
	// Passed is called after each pass for an owner that is in the cache. Passed may be nil.
	Passed func(controller.Pass[O, C])

	controller *controller.Controller
	cluster    *Cluster[O, C]
	suffix     []int // digits of the current name's suffix that are still to be returned as random numbers; used only if Options.Counting is set
	inside     *inside.Controller[controller.Pass[O, C], C]
	hidden
}

// NewController returns a Controller with empty caches.
func (c *Cluster[O, C]) NewController() *Controller[O, C] {
	ctl, err := c.NewControllerWith(controller.Options{})
	if err != nil {
		panic(err) // NewCluster has checked the Kind
	}
	return ctl
}

// NewControllerWith returns a Controller with the given options, or the error of controller.New. It replaces the
// options Now, Events, Random and MaxParallel. MaxParallel is 1, so calls are made one at a time.
func (c *Cluster[O, C]) NewControllerWith(opts controller.Options) (*Controller[O, C], error) {
	ctl := &Controller[O, C]{Client: c.NewClient(), View: c.NewView(), cluster: c}
	ctl.Worker = &Worker{Clock: c.Clock, Sync: ctl.pass}
	opts.Now, opts.Events, opts.Random, opts.MaxParallel = ctl.now, ctl.Client, ctl.random(), 1
	var err error
	if ctl.controller, err = controller.New(ctl.kind(), ctl.Client, cache[O, C]{ctl.View.Cache, ctl}, ctl.Worker.Wake, opts); err != nil {
		ctl.View.Stop()
		return nil, err
	}
	ctl.inside = &inside.Controller[controller.Pass[O, C], C]{Ledgers: inside.Hide(inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[C]]](ctl.controller)), Now: ctl.now, Queued: ctl.Worker.queued}
	ctl.hidden = inside.Hide(ctl.inside)
	ctl.Sync = ctl.controller.Sync
	ctl.View.Handle(ctl.controller)
	return ctl, nil
}

// limited returns the cluster's Kind with this controller's BurstReplicas.
func (c *Controller[O, C]) limited() controller.Kind[O, C] {
	kind := c.cluster.kind
	spec := kind.Spec
	if spec != nil {
		kind.Spec = func(owner O) (replicas.Spec[C], error) {
			s, err := spec(owner)
			if c.BurstReplicas != 0 {
				s.BurstReplicas = c.BurstReplicas
			}
			return s, err
		}
	}
	return kind
}

// kind returns the Kind whose passes this Controller observes.
func (c *Controller[O, C]) kind() controller.Kind[O, C] {
	kind := c.limited()
	observe := kind.Observe
	kind.Observe = func(ctx context.Context, pass controller.Pass[O, C]) {
		if pass.Err != nil && isDeath(pass.Err.Error()) {
			return // a process that died observes nothing
		}
		if observe != nil {
			observe(ctx, pass)
		}
		c.observe(pass)
	}
	return kind
}

// recordPass records the owner and the Scale of a pass, before its calls.
func (c *Controller[O, C]) recordPass(owner O, owned []C, s replicas.Scale[C]) {
	// This owner may be newer than the cached one, because a pass reads it from the server before it deletes.
	c.inside.Passing = &controller.Pass[O, C]{Owner: owner, Scale: s}
	if c.inside.Scaling != nil {
		c.inside.Scaling(owned)
	}
}

func (c *Controller[O, C]) observe(pass controller.Pass[O, C]) {
	passing := c.inside.Passing
	c.inside.Passing = nil
	// An owner that is not in the cache has no pass.
	if c.Passed != nil && passing != nil {
		c.Passed(pass)
	}
}

// random returns the source of random numbers for names and delays.
func (c *Controller[O, C]) random() func(n int) int {
	if !c.cluster.counting {
		return c.cluster.Random
	}
	return func(n int) int {
		if n != letters {
			// Only names draw from 27 letters. A delay is not random, so the times in a transcript stay as they are.
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

// letters is the number of characters in alphabet, and suffixLength that in the suffix of a name.
const letters, suffixLength = 27, 5

func digits(n uint64) []int {
	d := make([]int, suffixLength)
	for i := range d {
		d[suffixLength-1-i] = int(n % letters)
		n /= letters
	}
	return d
}

// now returns the time on the controller's clock.
func (c *Controller[O, C]) now() time.Time { return c.cluster.Clock.Now().Add(c.Skew) }

// Due returns the time of the next event or pass, and whether there is one.
func (c *Controller[O, C]) Due() (time.Time, bool) {
	_, due, ok := c.next()
	return due, ok
}

// Step delivers an event or makes a pass. An event comes before a pass that is due at the same time.
func (c *Controller[O, C]) Step() {
	if part, _, ok := c.next(); ok {
		part.Step()
	}
}

func (c *Controller[O, C]) next() (Part, time.Time, bool) {
	event, arrives := c.View.Due()
	// Before its first list has arrived, a new process would create children that exist.
	if work, ok := c.Worker.Due(); ok && c.View.synced() && (!arrives || work.Before(event)) {
		return c.Worker, work, true
	}
	return c.View, event, arrives
}

func (c *Controller[O, C]) pass(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	c.inside.Passing, c.inside.Related = nil, nil
	if owner, ok := c.View.OwnerWatch.cache.get(key.Namespace, key.Name); ok {
		c.inside.Passing = &controller.Pass[O, C]{Owner: owner}
	}
	again, err := c.Sync(inside.WithScaling(ctx, c.recordPass), key)
	c.inside.Passing = nil
	return again, err
}

// A cache wraps the Cache of a controller's View, and records what the controller reads.
type cache[O Object[O], C Object[C]] struct {
	controller.Cache[O, C]
	controller *Controller[O, C]
}

func (c cache[O, C]) Children(ctx context.Context, owner O) ([]C, error) {
	children, err := c.Cache.Children(ctx, owner)
	if listed := c.controller.inside.Listed; listed != nil {
		listed()
	}
	return children, err
}

// Related also keeps the list for tests.
func (c cache[O, C]) Related(ctx context.Context, owner O) ([]C, error) {
	related, err := c.Cache.Related(ctx, owner)
	c.controller.inside.Related = related
	return related, err
}

// ChildrenVersion is "" unless RememberWrites is set, and so is OwnersVersion.
func (c cache[O, C]) ChildrenVersion() string {
	if !c.controller.RememberWrites {
		return ""
	}
	return c.Cache.ChildrenVersion()
}

func (c cache[O, C]) OwnersVersion() string {
	if !c.controller.RememberWrites {
		return ""
	}
	return c.Cache.OwnersVersion()
}
