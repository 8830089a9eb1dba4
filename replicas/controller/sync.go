// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

// A reconciler is a Controller with its types.
type reconciler[O, C Object] struct {
	watcher[O, C]
	client Client[O, C]
	cache  Cache[O, C]
	opts   Options
	writes *expectations.ConsistencyStore
	lists  *lists[C]
	live   func(ctx context.Context, namespace string, matching labels.Selector) (List[C], error) // lists.get
	owners owners[C]
	term   term

	ownerResource, childResource schema.GroupResource
	patchType                    types.PatchType
	// statusCounts says that generations grow when a status is written.
	statusCounts atomic.Bool
	whole        wholeness
	measures     *measures[O, C]
}

func newReconciler[O, C Object](kind Kind[O, C], client Client[O, C], cache Cache[O, C], opts Options) *reconciler[O, C] {
	r := &reconciler[O, C]{
		client: client, cache: cache, opts: opts,
		lists:         newLists(client.List, opts),
		owners:        owners[C]{patience: opts.ExpectationsTimeout},
		ownerResource: resource(kind.Owner), childResource: resource(kind.Child),
		patchType: patchTypeFor(kind.PatchType, kind.Child), measures: newMeasures[O, C](),
	}
	r.kind, r.from, r.left, r.gone, r.back = kind, cache, r.childLeft, r.forget, r.wentBack
	r.ready, r.isOwn, r.live = r.becameReady, r.isOwnWrite, r.lists.get
	r.statusDelay = opts.StatusDelay
	r.pending = &expectations.Store[expectations.Key]{
		Timeout: opts.ExpectationsTimeout, Now: opts.Now,
		Jitter: func() time.Duration {
			return time.Duration(opts.Random(int(opts.ExpectationsTimeout/10/time.Millisecond)+1)) * time.Millisecond
		},
	}
	r.writes = &expectations.ConsistencyStore{Now: opts.Now, GiveUpAfter: opts.ExpectationsTimeout, ReadVersion: func(resource schema.GroupResource) string {
		if resource == r.childResource {
			return cache.ChildrenVersion()
		}
		return cache.OwnersVersion()
	}}
	return r
}

// A pass is one call of Sync.
type pass[O, C Object] struct {
	*reconciler[O, C]
	Pass[O, C]
	// What the pass asks: the reconciler's, or a recorder before them.
	client   Client[O, C]
	cache    Cache[O, C]
	list     func(ctx context.Context, namespace string, matching labels.Selector) (List[C], error)
	random   func(n int) int
	recorder *recorder[O, C] // nil if nobody wants a recording

	key   expectations.Key
	spec  replicas.Spec[C]
	asked replicas.Spec[C] // spec as the Kind made it
	rules status.Rules[C]
	state *ownerState[C]
	// children is the view that the pass goes by: what is known, laid over what the cache
	// had when the pass read it, from start on.
	children  []C
	snapshot  ledger.Snapshot[C]
	start     ledger.Moment
	unmet     bool // the cache still lacks what was expected of it
	inTerm    int  // the term in which the pass began
	termBegan time.Time
	begins    bool // nothing but that the owner is new to the term makes the view an old one
	// leaving are children of the view that are deleted; counted those that the
	// status counts as active.
	leaving leaving
	counted []C
	// retryAfter is what the server, or a hold, makes an error wait.
	retryAfter time.Duration
	// asideBefore is what state.aside was before the pass.
	asideBefore map[types.UID]*aside
	// claimErr is what went wrong with claims, which stops nothing else.
	claimErr error
	// ownerRead says that a read begun in this pass has shown that the server's owner wants
	// what the pass goes by; ownerOld that a read has shown that it does not.
	ownerRead, ownerOld bool
	asRead              O // the owner as the pass has read it last, nil if it has not
	// newborns are the children to create, for an owner that is in no namespace.
	newborns []newborn[C]
}

// Sync makes one pass for an owner. If the cache does not show the Controller's own
// earlier writes yet, the pass does nothing but ask for another one. Otherwise it
// asks the expectations, lists the children, adopts and releases, creates in slow
// start or deletes, and writes the status. Both questions come BEFORE the list: a
// child that arrives in between must not be created twice. As long as no event of any
// child came, the pass itself settles what its view shows of the expectations. An owner
// that the cache does not have is forgotten, except what was sent without an answer: that
// is remembered for five minutes, since the owner may have left the cache for a moment.
//
// If err is nil and requeueAfter is positive, call Sync again after that time. If
// err is not nil and requeueAfter is positive, the server or a hold asks for this
// delay: use it instead of your rate limiter's. If the spec is refused, err is nil:
// an event tells it, Kind.Observe gets the error, and only a change of the owner
// helps against that.
//
// # Old views
//
// Nothing is created or deleted on a view that is known to be old: if an
// expectation has expired, if another write of the Controller has not come back in
// Options.ExpectationsTimeout, which is five minutes by default, or if the server was
// restored to an older state. If there is something to create or delete
// then, the children are listed live; also if there is nothing, but the cache still
// lacks what an expired expectation waits for, so that the number is right by chance
// alone. If the list fails, nothing is changed. What a live list, or the answer to a
// call, has shown counts until the cache shows it too. If that takes more than five
// minutes, the children are listed again. A child that is older than the list and not in it is
// gone, even if the cache shows it later. If the cache does not tell how far it has
// come, passes follow every five seconds until it shows what the list has shown; they make
// no calls. If events of other children are newer than that, the children are listed again
// after five seconds, doubling to five minutes.
//
// A Controller has at most two live lists under way at once, for 30 seconds each at
// most, and owners with the same namespace and selector share one. If two more wait
// already, the pass ends and asks for another one after a second. After a list that
// failed there is none for a second, doubling to 15 seconds.
//
// # The owner
//
// Before a pass deletes children it reads the owner from the server, once, unless it
// has read it before an adoption. If that owner wants something else, is being deleted
// or is gone, nothing is deleted. What this and any other read or write shows of the
// owner is remembered. As long as the cache has an older one, passes do nothing: they
// look at the cache after 50 ms, doubling to a second, and then read the owner from the
// server, at least every ten seconds, and go by that. If such a pass fails, the next
// read waits twice as long, up to five minutes. An owner that is gone is looked
// for after five minutes at the latest. Generations tell whether an owner wants
// something else; if they are 0 or grow with each status write, what Kind.Spec returns
// does. If the owner cannot be read, nothing is deleted, an event tells why, and
// creations go on. Only the first creations of an owner in a process are preceded by a
// read: later one too many is deleted again.
//
// # New processes
//
// The caches of a new process, or of a new leader, may be older than what another
// process saw. So before the first pass for an owner that creates or deletes there is
// one look at the server. If the Client is a Versioner and the cache tells its version,
// that is one small list for all owners, and passes wait at most two seconds until the
// cache has come as far. Otherwise the children of the owner are listed live. The owner
// itself is read before its first children are created. An owner that was created at
// least five minutes after the first pass needs no look, even if clocks differ. NewTerm
// makes a process that goes on a new one.
//
// # Creations
//
// A child has its name before it is created: the owner's name and five random
// characters, as the API server makes it from generateName, which is set too. If a
// creation fails and the server did not refuse it, the Controller looks for the child
// on the server after the last call of the pass. If the child is there and is the
// owner's, it counts as created. If it is not there, the same name is sent again, in
// later passes too, so a request that takes effect late does not make one child too
// many. A name that another object has by then is not sent again.
//
// Each request that was sent under a name is settled by its answer, by a child of the
// owner that has the name, or by a look that finds nothing five minutes after the last
// request. Until then a name that is not sent again is looked for, also before other
// children are created. If that look fails, nothing is created. A refusal settles a
// request if it is a BadRequest, Forbidden, Invalid or AlreadyExists, or if the
// namespace is going, unless the client sent the request twice; see ErrResent.
//
// Creations of an owner in a namespace are held, while those in other namespaces,
// deletions and status go on:
//   - if the namespace is being deleted or is gone: for a minute, doubling to five.
//     This is no error.
//   - if a quota is full: for a second, doubling to a minute.
//   - if the server answers with Retry-After: for that time.
//   - if a webhook changed the labels or the owner reference of a new child, so
//     that it is not the owner's: for a second, doubling to five minutes. The child
//     is deleted again.
//   - if a creation had no answer, and the child is found with other labels: for
//     the same time. Its user may have changed the labels, so the child is released
//     and not deleted.
//
// A change of the owner's generation ends a hold. The first three also end if
// nothing is left to create, and the hold for a quota if a child of the owner is
// gone. After a success the next hold is a short one again.
//
// # Deletions
//
// A delete call carries the child's UID, and its resourceVersion too if the child
// was ready. After the first Conflict in a pass the children are listed live.
// Victims that still are active, match and belong to the owner are then deleted by
// their UID alone, as long as there are too many children, or if they must go.
//
// Deletions of an owner are held for 50 ms, doubling to a minute, if that list
// shows that victims were chosen from an old view, or if a child that has not
// changed cannot be deleted because of a Conflict, as some webhooks answer. A
// Retry-After of the server holds them for that time. When the hold reaches a
// second, one event DeletionsHeld says why.
//
// If the answer to a delete call is lost, the Controller looks for the child on the
// server. If the child is still there, it is the first to go in the next pass. Until
// it is gone, or has another resourceVersion than the call carried, it counts as gone
// for other deletions, for limits and for Kind.BeforeScale.
//
// # Claims
//
// If the server calls an adoption Invalid (422), the orphan is left alone for a
// minute, and a child is created in its place. Any other failure, such as a server
// that is busy, missing rights, or a policy, leaves the adoption undecided: no
// child is created in the orphan's place, and none is deleted because of it. One
// event tells why, and the adoption is tried again after 50 ms, doubling to a
// minute. If a BadRequest or Forbidden lasts for five minutes, the same patch is
// sent as a dry run for a child that the owner already has; if the server would
// take it there, the orphan is treated as if its adoption were Invalid. An orphan
// that is gone (404) is no failure. If the owner cannot be read before its first
// adoption, or may not adopt, the pass creates and deletes nothing. A release that
// fails is tried again, after a minute if the server calls it Invalid, and nothing
// waits for it.
//
// # Status
//
// If the spec has MinReadySeconds, a pass follows when the next ready child has been
// ready for so long. Since when a pod is ready, it tells by itself; of any other child
// it is when the Controller first saw it so.
//
// If Cache.ChildrenVersion tells how far the cache has come, the status counts what
// the pass created and deleted, and later passes count it too, until the cache
// shows it. So one write is enough, and no count goes back and forth. A created
// child counts by the labels and conditions in the server's answer. A deleted child
// counts as terminating, or not at all if neither a grace period nor a finalizer
// keeps it. If the version is not known, the status is that of the children as they
// were before. Until a Controller has seen that the cache has whole owners, it writes the
// status to the owner as it reads it; see OwnerCache.
//
// Expectations are recorded before the first call, and lowered for each call that
// failed or was not made. That holds for calls that panic too: a panic reaches the
// caller of Sync after the calls of the same batch have ended.
//
// Differs from Kubernetes: all of the above. Also, claims run in parallel, every
// error is reported, and the time at which the next child becomes available is
// computed from the children and not from the status that the server stored.
func (c *Controller) Sync(ctx context.Context, owner types.NamespacedName) (requeueAfter time.Duration, err error) {
	if c == nil || c.reconciler == nil {
		return 0, errors.New("controller: New did not make this Controller")
	}
	return c.reconciler.sync(ctx, owner)
}

func (r *reconciler[O, C]) sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error) {
	p := &pass[O, C]{reconciler: r, client: r.client, cache: r.cache, list: r.live, random: r.opts.Random}
	p.Name, p.Now = owner, r.opts.Now()
	p.inTerm, p.termBegan = r.term.begin(p.Now)
	p.record()
	defer p.owners.takeEvents(p.Name, nil)
	p.end(p.run(ctx))
	p.Took = r.opts.Now().Sub(p.Now)
	r.measures.add(&p.Pass)
	if r.kind.Observe != nil {
		r.kind.Observe(ctx, p.Pass)
	}
	p.hand(ctx)
	if onlyRefused(p.Err) {
		return p.RequeueAfter, nil
	}
	return p.RequeueAfter, p.Err
}

func (r *reconciler[O, C]) metrics() []Sample { return r.measures.samples() }

func (r *reconciler[O, C]) newTerm() { r.term.next() }

// run is the pass on one page: look, list and plan, claim, scale, report.
func (p *pass[O, C]) run(ctx context.Context) error {
	if goOn, err := p.look(ctx); !goOn {
		return err
	}
	defer p.state.known.Done()
	plan, err := p.plan(ctx)
	if !p.Observed {
		return err
	}
	var scale replicas.Scale[C]
	if err == nil {
		scale, err = p.claim(ctx, plan)
	}
	if errors.Is(err, errWait) {
		return nil
	}
	if errors.As(err, new(heldError)) { // no error: lists are tried again later
		p.comeBack(p.lists.retryIn(err))
		return p.report(ctx, p.claimErr)
	}
	if err == nil {
		err = p.scale(ctx, scale)
	}
	return p.report(ctx, joinErrors(err, p.claimErr))
}

// look finds the owner and what it wants, and reports whether there is something
// to go on with.
func (p *pass[O, C]) look(ctx context.Context) (goOn bool, err error) {
	p.owners.awaitWrite(p.Name) // before the cache is asked, which may be told meanwhile
	stale, ready := p.writes.Ready(expectations.Key{NamespacedName: p.Name})
	if !ready {
		p.Stale, p.Waiting = stale, true
		p.comeBack(stale.RetryAfter)
		return false, nil
	}
	owner, err := p.cache.Owner(ctx, p.Name)
	switch {
	case apierrors.IsNotFound(err):
		p.forget(expectations.Key{NamespacedName: p.Name})
		if next := p.owners.sweep(p.Name, p.Now); next > 0 {
			p.comeBack(next)
		}
		return false, nil
	case err != nil:
		return false, fmt.Errorf("controller: %s %q: reading it: %w", p.kind.Owner.Kind, p.Name, err)
	case object.IsNil(owner):
		return false, fmt.Errorf("controller: %s %q: the cache returned nil", p.kind.Owner.Kind, p.Name)
	}
	if err := p.checkScope(owner); err != nil {
		return false, err
	}
	p.Owner, p.key = owner, expectations.KeyOf(owner)
	p.state = p.owners.get(p.key)
	p.recordBefore(stale)
	owner, goOn, err = p.upToDate(ctx, owner)
	if !goOn {
		return false, err
	}
	p.Owner, p.state = owner, p.stateOf(owner, p.Now)
	p.state.wrote.read(owner.GetResourceVersion())
	if stale != (expectations.Stale{}) {
		p.state.known.Distrust()
	}
	p.Generation = owner.GetGeneration()
	if p.spec, err = p.kind.Spec(owner); err != nil {
		p.refuse(err)
		return false, err
	}
	p.asked = p.spec
	p.spec.Owner, p.spec.Kind, p.spec.Now = owner, p.kind.Owner, p.Now
	p.rules, p.Desired = counting(&p.spec, p.Now), p.spec.Replicas
	p.deletePendingStrays(ctx)
	return true, nil
}

// checkScope refuses an owner that events could not find.
func (r *reconciler[O, C]) checkScope(owner O) error {
	if r.kind.ClusterScoped == (owner.GetNamespace() == "") {
		return nil
	}
	where := "no namespace"
	if r.kind.ClusterScoped {
		where = "a namespace"
	}
	return fmt.Errorf("controller: %s %q: it is in %s, and Kind.ClusterScoped is %t", r.kind.Owner.Kind, object.Name(owner), where, r.kind.ClusterScoped)
}

// refuse tells the owner's events why it can not be acted on, once for each generation
// and text: annotations change without a new generation.
func (p *pass[O, C]) refuse(err error) {
	if e, ok := asRefused(err); ok && p.state.refused != e.Error() {
		p.state.refused = e.Error()
		p.event(corev1.EventTypeWarning, e.Reason, e.Error())
	}
}

func asRefused(err error) (e *replicas.RefusedError, ok bool) {
	return e, errors.As(err, &e) && e != nil
}

// onlyRefused reports whether a spec that is refused is all that went wrong.
func onlyRefused(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it goes through the tree itself
	case *replicas.RefusedError:
		return true
	case interface{ Unwrap() error }:
		return onlyRefused(e.Unwrap())
	case interface{ Unwrap() []error }:
		errs := e.Unwrap()
		return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !onlyRefused(err) })
	}
	return false
}

// end completes what is told of the pass. After an error only the server or a hold
// says when to requeue: the caller's rate limiter does otherwise. A refusal is no
// error to the caller: what else asks for a requeue stays.
func (p *pass[O, C]) end(err error) {
	if p.state != nil {
		p.InFlight = len(p.state.known.Open())
	}
	failed := err != nil && !onlyRefused(err)
	p.wentByRead(failed)
	if p.Err = err; failed {
		p.RequeueAfter = p.retryAfter
		return
	}
	if p.state == nil {
		return
	}
	switch s, remaining := p.pending.State(p.key); {
	case s == expectations.Waiting:
		p.comeBack(remaining)
	case s == expectations.Expired && p.Observed && p.spec.Pending != expectations.Expired:
		p.comeBack(1) // since the pass asked
	}
	if remaining := p.state.strays.remaining(p.opts.Now(), 0); remaining > 0 {
		p.comeBack(remaining) // otherwise this pass ended before it came to them
	}
	if again := p.state.known.Again(p.opts.Now()); again > 0 {
		p.comeBack(again)
	}
}

// forget drops everything that is remembered of an owner that is gone, except what is in
// flight: the owner may only have left the cache. An empty UID
// means every incarnation under that name: to know that an owner is not found is to
// know its name alone.
func (r *reconciler[O, C]) forget(key expectations.Key) {
	r.writes.Clear(key)
	r.owners.forget(key)
	if key.UID == "" {
		r.pending.ForgetName(key.NamespacedName)
		return
	}
	r.pending.Forget(key)
}

// childLeft notes for an owner that a child left the cache, as of a version.
func (r *reconciler[O, C]) childLeft(key expectations.Key, child types.UID, version string) {
	if state := r.owners.get(key); state != nil {
		r.owners.log(key.NamespacedName).note(recordedEvent{Left: child, Version: version})
		state.known.Left(child, version, r.opts.Now())
	}
}

// wentBack notes for an owner that it has an older version again: the server was
// restored from a backup.
func (r *reconciler[O, C]) wentBack(key expectations.Key) {
	if state := r.owners.get(key); state != nil {
		r.owners.log(key.NamespacedName).note(recordedEvent{WentBack: true})
		state.known.Void()
	}
}

// stateOf returns what is remembered of an owner, in a pass made now, and forgets
// other incarnations that were left behind. A zero now is no pass.
func (r *reconciler[O, C]) stateOf(owner metav1.Object, now time.Time) *ownerState[C] {
	key := expectations.KeyOf(owner)
	state, idle := r.owners.of(key, owner.GetGeneration(), now)
	for _, uid := range idle {
		left := expectations.Key{NamespacedName: key.NamespacedName, UID: uid}
		if s, _ := r.pending.State(left); s != expectations.Waiting {
			r.forget(left)
		}
	}
	r.owners.sweep(key.NamespacedName, now)
	return state
}

// remember makes sure that what was just recorded can be forgotten by name, also
// if forget ran while this pass was under way.
func (p *pass[O, C]) remember() { p.state = p.stateOf(p.Owner, p.Now) }

// wrote records a write of a child of this owner (X9).
func (p *pass[O, C]) wrote(resourceVersion string) {
	p.writes.WroteAt(p.key, p.childResource, resourceVersion)
}

func (p *pass[O, C]) event(eventType, reason, message string) {
	if p.opts.Events != nil {
		p.opts.Events.Event(p.Owner, eventType, reason, message)
	}
}

// tell sends an event about a state that begins, once while it lasts.
func (p *pass[O, C]) tell(told *bool, lasts bool, reason, message string) {
	if lasts && !*told {
		p.event(corev1.EventTypeWarning, reason, message)
	}
	*told = lasts
}

// comeBack asks for another pass after d, at once if that is over already; the
// earliest wish wins.
func (p *pass[O, C]) comeBack(d time.Duration) { p.RequeueAfter = earliest(p.RequeueAfter, max(d, 1)) }

// all are the options for n calls that need no slow start.
func (r *reconciler[O, C]) all(n int) slowstart.Options {
	return slowstart.Options{InitialBatchSize: n, MaxParallel: r.opts.MaxParallel}
}

// failure is an error that names the owner.
func (p *pass[O, C]) failure(format string, args ...any) error {
	return fmt.Errorf("controller: %s %q: %w", p.kind.Owner.Kind, object.Name(p.Owner), fmt.Errorf(format, args...))
}

// joinErrors is errors.Join, but leaves a single error as it is.
func joinErrors(a, b error) error {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return errors.Join(a, b)
}
