// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/internal/sim/invariant"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

type podController = replicastest.Controller[*appsv1.ReplicaSet, *corev1.Pod]

type podPass = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]

const (
	namespace = "default"
	// calm is how long the controllers may take to settle after the last fault. The longest error back-off is almost 17
	// minutes, and an expectation may have to expire after that.
	calm = 40 * time.Minute
	// lag is the minimum delay of events. Without a delay, two controllers that see different specs would undo each
	// other's work for ever, and the clock would never advance.
	lag = 100 * time.Millisecond
	// settleSteps is the maximum number of steps that the controllers may take to settle.
	settleSteps = 50_000
	// mostSteps is the maximum number of steps of a story. Nothing else ends a story whose parts keep each other busy.
	mostSteps = 400_000
	// disputeSteps is the number of steps after which a story with two controllers shortens its long waits. With
	// different views, two controllers overwrite each other's status ten times a second.
	disputeSteps = 4_000
)

// A Report is the result of a story.
type Report struct {
	Steps  int            // number of steps of the cluster and the controllers, plus the number of calls
	Faults map[string]int // how often each kind of fault happened
	Settle int            // number of steps that the cluster took to settle after the last fault
	// Known is the number of violations of each rule in invariant.KnownToFail, which do not set Err.
	Known map[invariant.Rule]int
	// Calls is the number of API calls until the cluster had settled, keyed by verb and kind.
	Calls map[string]int
	// Most is the highest number of calls for one owner in one hour, by verb and kind.
	Most map[string]int
	Err  error // the first failure
}

// Run plays a story on a cluster of four nodes, ends all faults and checks that the cluster settles.
func Run(seed uint64, story Story) Report { return RunSpoiled(seed, story, nil) }

// RunSpoiled is like Run, but calls the function spoil with each new controller, which it may change.
func RunSpoiled(seed uint64, story Story, spoil func(*podController)) Report {
	return newRun(seed, shapeOf(seed), spoil).tell(story)
}

// tell plays a story to its end.
func (r *run) tell(story Story) Report {
	err := r.play(story)
	if err == nil {
		err = r.settle()
	}
	if r.shape.updates {
		maps.Copy(r.report.Faults, r.pools.updates.seen)
	}
	r.report.Known, r.report.Most, r.report.Err = r.checker.Known(), r.checker.Most(), err
	return r.report
}

// A run holds the state of a story while the story is played.
type run struct {
	*replicastest.PodCluster
	shape       shape
	spoil       func(*podController) // changes each new controller; may be nil
	ctx         context.Context
	seed        uint64
	world       *replicastest.World
	checker     *invariant.Checker
	controllers [2]*podController                                   // the second may be nil
	elsewhere   *elsewhere                                          // may be nil
	pools       *pools                                              // may be nil
	old         *replicastest.View[*appsv1.ReplicaSet, *corev1.Pod] // the view of an outdated API server; nil before the first snapshot
	report      Report

	fault       fault
	meddler     meddler
	quick       int                  // number of calls whose answers will arrive only after all pending events
	sudden      int                  // number of later calls to the method surprise that will deliver all pending events
	relabelled  types.NamespacedName // the last relabelled pod
	restless    *restless            // changes owners at intervals; may be nil
	isBlind     bool                 // reads fail until the next call that is not a read
	endContext  int                  // the context of the pass ends before the n-th call from now; 0 means never
	cancel      func()               // ends the context of the pass
	ended       bool                 // the context of the pass has ended
	limbo       limbo
	unread      unread
	cut         cut
	reaper      *reaper // may be nil
	pause       pause
	fenced      *podController // the controller that must not write; nil means that all controllers may write
	races, dice int            // number of times that other parts will act during a pass, and the maximum number of steps each time
	churn       []replicastest.Part
	backup      func()
	backedUp    bool
	random      *rand.Rand
}

func newRun(seed uint64, shape shape, spoil func(*podController)) *run {
	cluster := shape.cluster(seed)
	r := &run{
		PodCluster: cluster,
		shape:      shape,
		spoil:      spoil,
		ctx:        context.Background(),
		seed:       seed,
		world:      &replicastest.World{Clock: cluster.Clock},
		checker:    invariant.New(cluster),
		report:     Report{Faults: map[string]int{}},
		cancel:     func() {},
		random:     rand.New(rand.NewPCG(seed, 2)),
	}
	r.checker.Delay, r.checker.BackOff = shape.delay, shape.backOff
	r.checker.Vetoed, r.checker.BurstReplicas = shape.isVetoed, shape.burst
	r.checker.Leads = func(c *podController) bool { return c != r.fenced }
	r.checker.ReadyWithin = shape.within
	if shape.ruled {
		r.checker.Rule(mustGo, mustStay)
	}
	if shape.elsewhere {
		r.elsewhere = newElsewhere(cluster)
	}
	if shape.pools {
		r.pools = newPools(cluster.Clock, shape, seed)
	}
	r.restart(0)
	return r
}

// err returns the first failure so far. Call it only between two steps.
func (r *run) err() error {
	if err := r.checker.Awake(r.shape.owners()); err != nil {
		return err
	}
	if r.pools != nil && r.pools.err != nil {
		return r.pools.err
	}
	if r.elsewhere == nil {
		return nil
	}
	return r.elsewhere.checker.Awake(namespace)
}

func (r *run) play(story Story) error {
	for _, owner := range []string{"web", "db"} {
		if err := r.createOwner(owner, 2); err != nil {
			return err
		}
	}
	for i, op := range story {
		if op.Do != "run" {
			r.report.Faults[op.Do]++
		}
		err := kinds()[op.Do].do(r, op)
		if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			// An API error is a normal answer to a user, for example NotFound or a webhook's denial.
			err = nil
		}
		if err == nil {
			err = r.err()
		}
		if err != nil {
			return fmt.Errorf("%d. %s: %w", i+1, op, err)
		}
	}
	return nil
}

// pass lets the world run for the duration d.
func (r *run) pass(d time.Duration) error {
	return r.passUnless(d, never)
}

func never() bool { return false }

// hours is pass for a long duration, but stops early if two controllers keep overwriting each other's work.
func (r *run) hours(d time.Duration) error {
	isCut := func() bool { return r.controllers[1] != nil && r.report.Steps > disputeSteps }
	err := r.passUnless(d, isCut)
	if isCut() {
		r.report.Faults["hours cut short"]++
	}
	return err
}

// passUnless is pass, but stops when isCut returns true.
func (r *run) passUnless(d time.Duration, isCut func() bool) error {
	end := r.Clock.Now().Add(d)
	for replicastest.Crashes(func() { r.runUntil(end, isCut) }) {
		if r.pools != nil && r.pools.inside.Passing != nil {
			// The process that crashed was that of the pool.
			r.pools.restart()
			r.show()
			continue
		}
		r.restart(r.dead())
	}
	if r.report.Steps > mostSteps {
		return fmt.Errorf("chaos: the story has not ended after %d steps", r.report.Steps)
	}
	if !isCut() {
		r.Clock.Advance(end.Sub(r.Clock.Now()))
	}
	return r.err()
}

func (r *run) runUntil(end time.Time, isCut func() bool) {
	r.world.RunUntil(end, func() bool {
		r.report.Steps++
		return r.report.Steps > mostSteps || isCut() || r.err() != nil
	})
}

// dead returns the index of the controller that has crashed in the middle of a pass.
func (r *run) dead() int {
	if insideOf(r.controllers[0]).Passing == nil {
		return 1
	}
	return 0
}

// restart replaces a controller with a new one that has empty caches.
func (r *run) restart(i int) {
	if old := r.controllers[i]; old != nil {
		old.View.Stop()
		r.checker.Drop(old)
	} else if i > 0 {
		return
	}
	r.start(i)
}

func (r *run) start(i int) {
	var c *podController
	opts := controller.Options{BackOffFailed: &r.shape.backOff, StatusDelay: r.shape.delay}
	c, err := r.NewControllerWith(opts)
	if err != nil {
		panic(err)
	}
	c.RememberWrites = r.shape.versions
	r.checker.Watch(c)
	if r.spoil != nil {
		r.spoil(c)
	}
	c.Client.Fault = func(call replicastest.Call) replicastest.Fault {
		if c == r.fenced && call.Verb != "get" && call.Verb != "list" {
			// A fence refuses the writes of a leader whose lease has ended, but not its reads.
			return replicastest.Fault{Before: failure.Forbidden.Of(call)}
		}
		r.pauses(i)
		return r.beforeCall(call)
	}
	insideOf(c).Listed = func() {
		r.race()
		r.surprise(c)
	}
	sync := c.Sync
	c.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// A later call may end the context of this pass.
		r.cancel, r.ended = cancel, false
		return sync(ctx, key)
	}
	done := c.Client.Done
	c.Client.Done = func(call replicastest.Call, err error) {
		done(call, err)
		r.meddle(call, true)
		r.quicken(c)
		r.afterCall()
	}
	r.controllers[i] = c
	r.noLag(i)
	r.show()
}

// show updates r.world.Parts after a part has come or gone.
func (r *run) show() {
	r.world.Parts = append([]replicastest.Part{r.PodCluster}, r.churn...)
	if r.elsewhere != nil {
		r.world.Parts = append(r.world.Parts, r.elsewhere.PodCluster, r.elsewhere.controller)
	}
	if r.pools != nil {
		r.world.Parts = append(r.world.Parts, r.pools.Cluster, r.pools.controller)
		if r.shape.templates {
			r.world.Parts = append(r.world.Parts, r.pools.template)
		}
		if r.shape.updates {
			r.world.Parts = append(r.world.Parts, r.pools.updates)
		}
	}
	if r.restless != nil {
		r.world.Parts = append(r.world.Parts, r.restless)
	}
	if r.reaper != nil {
		r.world.Parts = append(r.world.Parts, r.reaper)
	}
	for _, c := range r.controllers {
		if c != nil {
			r.world.Parts = append(r.world.Parts, c)
		}
	}
}

// snapshot keeps what an API server shows that gets no further changes.
func (r *run) snapshot() {
	if r.old != nil {
		r.old.Stop()
	}
	r.old = r.NewView()
	r.old.ChildWatch.Hang()
	r.old.OwnerWatch.Hang()
}

// behind restarts a controller, whose first lists come from the old server of snapshot. It learns of the changes since
// then up to a minute later.
func (r *run) behind(op Op) {
	if r.old == nil {
		return
	}
	r.restart(op.N % 2)
	if c := r.controllers[op.N%2]; c != nil && inside.Of[inside.View](c.View).ListFrom(inside.Of[inside.View](r.old), 8*op.For) {
		r.report.Faults["first lists from behind"]++
	}
}

// toggleSecond starts or stops the second controller.
func (r *run) toggleSecond() {
	if c := r.controllers[1]; c != nil {
		c.View.Stop()
		r.checker.Drop(c)
		r.controllers[1] = nil
		r.show()
		return
	}
	r.start(1)
}

// controller returns one of the running controllers.
func (r *run) controller(n int) *podController {
	if c := r.controllers[n%2]; c != nil {
		return c
	}
	return r.controllers[0]
}

func insideOf(c *podController) *inside.Controller[podPass, *corev1.Pod] {
	return inside.Of[*inside.Controller[podPass, *corev1.Pod]](c)
}

func (r *run) podStream(n int) inside.Stream {
	return inside.Of[inside.Stream](r.controller(n).View.ChildWatch)
}

func (r *run) ownerStream(n int) inside.Stream {
	return inside.Of[inside.Stream](r.controller(n).View.OwnerWatch)
}

// beforeCall returns the fault for a call that is about to be sent.
func (r *run) beforeCall(call replicastest.Call) replicastest.Fault {
	r.report.Steps++
	r.race()
	r.meddle(call, false)
	if fault, ok := r.inLimbo(call); ok {
		return fault
	}
	if fault, ok := r.readsFail(call); ok {
		return fault
	}
	if fault, ok := r.inCut(call); ok {
		return fault
	}
	if r.endContext > 0 {
		if r.endContext--; r.endContext == 0 {
			r.report.Faults["contexts that ended"]++
			r.cancel()
			r.ended = true
		}
	}
	if r.ended {
		// The remaining calls of the pass fail anyway, because their context has ended.
		return replicastest.Fault{}
	}
	f := &r.fault
	isLook := r.isBlind && (call.Verb == "get" || call.Verb == "list")
	r.isBlind = isLook
	switch {
	case isLook:
		return replicastest.Fault{Before: failure.InternalError.Of(call)}
	case f.left == 0, f.verb != "" && f.verb != call.Verb:
		return replicastest.Fault{}
	case f.skip > 0:
		f.skip--
		return replicastest.Fault{}
	case f.crash && f.after:
		// See afterCall.
		return replicastest.Fault{}
	case f.crash:
		*f = fault{}
		panic(replicastest.Crash{})
	}
	r.report.Faults["failed calls"]++
	return r.hit(f, call)
}

// hit returns the Fault that f is for a call, and prepares f for the next call.
func (r *run) hit(f *fault, call replicastest.Call) replicastest.Fault {
	is := replicastest.Fault{Before: f.is.Of(call), Resend: f.resend, Late: f.late}
	if f.mixed {
		f.after = !f.after
	}
	if f.after {
		is = replicastest.Fault{After: f.is.Of(call), Resend: f.resend}
	}
	r.isBlind = f.blind
	if f.left--; f.left == 0 && f.then != nil {
		*f = *f.then
	}
	return is
}

// A pause stops the first controller in the middle of a pass, before one of its calls. Its watches hang meanwhile, and
// all other parts go on.
type pause struct {
	after int  // the pause begins before the n-th call from now; 0 means no pause
	long  bool // the controller's lease ends during the pause, so the controller must not write afterwards
	d     time.Duration
}

// pauses interrupts the first controller if the pause is due at this call.
func (r *run) pauses(i int) {
	if i > 0 || r.pause.after == 0 {
		return
	}
	if r.pause.after--; r.pause.after > 0 {
		return
	}
	r.report.Faults["pauses"]++
	c := r.controllers[0]
	pods, sets := inside.Of[inside.Stream](c.View.ChildWatch).Hung(), inside.Of[inside.Stream](c.View.OwnerWatch).Hung()
	c.View.ChildWatch.Hang()
	c.View.OwnerWatch.Hang()
	r.world.Parts = slices.DeleteFunc(slices.Clone(r.world.Parts), func(p replicastest.Part) bool { return p == replicastest.Part(c) })
	end := r.Clock.Now().Add(r.pause.d)
	for replicastest.Crashes(func() { r.runUntil(end, never) }) {
		// Only the second controller can crash now.
		r.restart(1)
	}
	if !pods {
		c.View.ChildWatch.Resume()
	}
	if !sets {
		c.View.OwnerWatch.Resume()
	}
	r.show()
	if r.pause.long {
		// Its lease has ended meanwhile. The pass that now goes on does not know that yet.
		r.fenced = c
	}
}

// endPause lets the controller write again, as if it had renewed its lease.
func (r *run) endPause() { r.pause, r.fenced = pause{}, nil }

// stir makes the pods change every n seconds, or no longer if n is 0.
func (r *run) stir(n int) {
	r.churn = nil
	if n > 0 {
		r.churn = []replicastest.Part{inside.Of[inside.Cluster](r.PodCluster).Churn(namespace, time.Duration(n)*time.Second)}
	}
	r.show()
}

// restore brings the last backup back.
func (r *run) restore() {
	if !r.backedUp {
		return
	}
	r.backup()
	r.checker.Restored()
	// A Controller that notices a restore asks for this with controller.ErrRestored.
	for i := range r.controllers {
		r.restart(i)
	}
}

// catchUp resumes the watches of a controller.
func (r *run) catchUp(n int) {
	view := r.controller(n).View
	view.ChildWatch.Resume()
	view.OwnerWatch.Resume()
}

// afterCall crashes the process if it must crash after this call.
func (r *run) afterCall() {
	if f := r.fault; f.crash && f.after && f.skip == 0 && f.left > 0 {
		r.fault = fault{}
		panic(replicastest.Crash{})
	}
}

// race lets the cluster or a watch take a few steps in the middle of a pass.
func (r *run) race() {
	if r.races == 0 {
		return
	}
	r.races--
	for range r.random.IntN(1 + r.dice) {
		c := r.controllers[r.random.IntN(2)]
		switch {
		case c == nil:
			r.Step()
		case r.random.IntN(2) == 0:
			c.View.Step()
		}
	}
}

func (r *run) refreshed(c *podController) {
	c.View.ChildWatch.Relist()
	c.View.OwnerWatch.Relist()
}

// settle ends all faults and checks that the cluster settles.
func (r *run) settle() error {
	r.fault, r.limbo, r.cut, r.races, r.isBlind, r.endContext = fault{}, limbo{}, cut{}, 0, false, 0
	r.meddler, r.quick, r.sudden, r.unread = meddler{}, 0, 0, unread{}
	inside.Of[inside.Cluster](r.PodCluster).SkewNodes(0)
	r.endPause()
	r.stir(0)
	r.stirOwners(0)
	r.SetQuota(namespace, plenty)
	r.Webhook, r.Mutate = nil, nil
	inside.Of[inside.Cluster](r.PodCluster).AddNode("spare")
	for i := range r.report.Faults["lost nodes"] {
		r.RemoveNode("node-" + itoa(i+1))
	}
	// A namespace is gone only when its last object is, and finalizers may hold the pods.
	for range 100 {
		if inside.Of[inside.Cluster](r.PodCluster).CreateNamespace(namespace) {
			break
		}
		r.letGo()
		if err := r.pass(time.Minute); err != nil {
			return err
		}
	}
	r.letGo()
	_ = r.editOwner("web", mended)
	_ = r.editOwner("web", annotated(vetoed, false))
	_ = r.editOwner("web", noting(0))
	if r.pools != nil {
		r.pools.calm()
	}
	if r.shape.groups {
		if err := r.growGroups(); err != nil {
			return err
		}
	}
	if r.old != nil {
		r.old.Stop()
	}
	for _, c := range r.controllers {
		if c != nil {
			// Setting a clock back would lengthen all waits, so a clock that is ahead stays ahead.
			c.Skew = max(c.Skew, 0)
			c.View.ChildWatch.Lag, c.View.OwnerWatch.Lag = lag, lag
			r.refreshed(c)
		}
	}
	if err := r.createOwner("web", 3); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return r.wait()
}

// growGroups lets the groups of the pool grow while the creations of one are refused.
func (r *run) growGroups() error {
	if err := r.pools.updates.grow(); err != nil {
		return err
	}
	if err := r.pass(calm); err != nil {
		return err
	}
	return r.pools.updates.grown()
}

func (r *run) wait() error {
	before := r.report.Steps
	if err := r.pass(calm); err != nil {
		return err
	}
	r.report.Settle = r.report.Steps - before
	most := settleSteps
	if r.controllers[1] != nil {
		// Two controllers overwrite each other's status while their views differ.
		most *= 4
	}
	if r.report.Settle > most {
		return fmt.Errorf("chaos: settling took %d steps", r.report.Settle)
	}
	if err := r.checker.Settled(r.shape.owners()); err != nil {
		return err
	}
	// What has settled stays so: in the time that follows, there is no write and no call.
	version, calls, poolVersion := inside.Of[inside.Cluster](r.PodCluster).Version(), r.checker.Calls(), r.poolVersion()
	if err := r.pass(calm); err != nil {
		return err
	}
	if inside.Of[inside.Cluster](r.PodCluster).Version() != version {
		return fmt.Errorf("chaos: the cluster has settled, but %d more writes followed", inside.Of[inside.Cluster](r.PodCluster).Version()-version)
	}
	if n := r.poolVersion() - poolVersion; n > 0 {
		return fmt.Errorf("chaos: the pool has settled, but %d more writes followed", n)
	}
	if err := r.checker.Rests(calls); err != nil {
		return err
	}
	if r.elsewhere != nil {
		if err := r.elsewhere.settled(); err != nil {
			return err
		}
	}
	if err := r.ofPool((*pools).settled); err != nil {
		return err
	}
	if err := r.checker.Settled(r.shape.owners()); err != nil {
		return err
	}
	r.report.Calls = r.checker.Calls()
	if r.spoil == nil && !r.checker.Skewed && r.shape.within == 0 && r.checker.Known()[invariant.RestlessPatch] == 0 {
		if err := r.quiet(); err != nil {
			return err
		}
	}
	return r.endAll()
}

func (r *run) poolVersion() uint64 {
	if r.pools == nil {
		return 0
	}
	return inside.Of[inside.Cluster](r.pools.Cluster).Version()
}

// endAll deletes all owners and checks that the controllers forget them.
func (r *run) endAll() error {
	for _, rs := range r.Owners("") {
		if err := r.DeleteOwner(r.ctx, rs.Namespace, rs.Name, metav1.DeletePropagationBackground); err != nil {
			return err
		}
	}
	if err := r.pass(calm); err != nil {
		return err
	}
	return r.checker.Forgotten()
}

// letGo removes the finalizers and the labels "go" and "stay" from all pods.
func (r *run) letGo() {
	for _, p := range r.Children("") {
		_, _ = r.EditChild(r.ctx, p.Namespace, p.Name, unmark)
	}
}

func (r *run) noLag(n int) {
	view := r.controller(n).View
	view.ChildWatch.Lag, view.OwnerWatch.Lag = lag, lag
}

// relist lists owners and pods again, which also mends a broken watch.
func (r *run) relist(n int) { r.refreshed(r.controller(n)) }

func (r *run) endNamespace(n int) {
	if n == 0 {
		inside.Of[inside.Cluster](r.PodCluster).TerminateNamespace(namespace)
	}
}

// loseNode makes another node fail.
func (r *run) loseNode() {
	if lost := r.report.Faults["lost nodes"]; lost < 2 {
		// Two of four nodes stay.
		r.report.Faults["lost nodes"]++
		r.LoseNode("node-" + itoa(lost+1))
	}
}

// ofPool calls the function with r.pools, if there are pools.
func (r *run) ofPool(do func(*pools) error) error {
	if r.pools == nil {
		return nil
	}
	return do(r.pools)
}

func (r *run) createOwner(name string, n int32) error {
	_, err := r.CreateOwner(r.ctx, r.shape.newOwner(name, n))
	return err
}

func (r *run) editOwner(name string, change func(*appsv1.ReplicaSet)) error {
	_, err := r.EditOwner(r.ctx, r.shape.owners(), name, change)
	return err
}

// pod returns the name of pod n, or an empty name if there are no pods.
func (r *run) pod(n int) types.NamespacedName {
	pods := r.Children("")
	if len(pods) == 0 {
		return types.NamespacedName{Namespace: namespace}
	}
	p := pods[n%len(pods)]
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

func (r *run) editPod(n int, change func(*corev1.Pod)) error {
	pod := r.pod(n)
	_, err := r.EditChild(r.ctx, pod.Namespace, pod.Name, change)
	return err
}

func (r *run) deletePod(n int, opts metav1.DeleteOptions) error {
	pod := r.pod(n)
	_, err := r.DeleteChild(r.ctx, pod.Namespace, pod.Name, opts)
	return err
}

// dieUnseen makes all pod watches hang, and then deletes up to three pods.
func (r *run) dieUnseen(op Op) error {
	for _, c := range r.controllers {
		if c != nil {
			c.View.ChildWatch.Hang()
		}
	}
	for i := range 1 + op.M%3 {
		if err := r.deletePod(op.N+i, *metav1.NewDeleteOptions(0)); err != nil {
			return err
		}
	}
	return nil
}

// replacePod deletes pod n and creates another pod with the same name.
func (r *run) replacePod(n int) error {
	pod := r.pod(n)
	if pod.Name == "" {
		return nil
	}
	return r.replaceBy(pod)
}

func (r *run) replaceBy(pod types.NamespacedName) error {
	if _, err := r.DeleteChild(r.ctx, pod.Namespace, pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
		return err
	}
	return r.take(pod)
}

func (r *run) createOrphan() error {
	labels := map[string]string{"app": "web"}
	if rs, err := r.GetOwner(r.ctx, r.shape.owners(), "web"); err == nil && len(rs.Spec.Selector.MatchLabels) > 0 {
		labels = maps.Clone(rs.Spec.Selector.MatchLabels)
	}
	return r.createPod(namespace, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "orphan-", Labels: labels}})
}

func (r *run) createPod(namespace string, p *corev1.Pod) error {
	p.Spec.Containers = []corev1.Container{{Name: "web"}}
	_, err := r.CreateChild(r.ctx, namespace, p)
	return err
}

func itoa(n int) string { return strconv.Itoa(n) }

// Add merges the counts of another Report into r.
func (r *Report) Add(other Report) {
	if r.Faults == nil {
		r.Faults, r.Known = map[string]int{}, map[invariant.Rule]int{}
		r.Most = map[string]int{}
	}
	for verb, n := range other.Most {
		r.Most[verb] = max(r.Most[verb], n)
	}
	r.Steps += other.Steps
	r.Settle = max(r.Settle, other.Settle)
	for kind := range maps.Keys(other.Faults) {
		r.Faults[kind] += other.Faults[kind]
	}
	for rule, n := range other.Known {
		r.Known[rule] += n
	}
}
