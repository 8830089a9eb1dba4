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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
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
	owners owners[C]

	ownerResource, childResource schema.GroupResource
	patchType                    types.PatchType
	measures                     *measures[O, C]
}

func newReconciler[O, C Object](kind Kind[O, C], client Client[O, C], cache Cache[O, C], opts Options) *reconciler[O, C] {
	r := &reconciler[O, C]{
		client: client, cache: cache, opts: opts,
		lists:         newLists(client.List, opts),
		ownerResource: resource(kind.Owner), childResource: resource(kind.Child),
		patchType: patchTypeFor(kind.PatchType, kind.Child), measures: newMeasures[O, C](),
	}
	r.kind, r.from, r.left, r.gone, r.isOwn = kind, cache, r.childLeft, r.forget, r.isOwnWrite
	r.statusDelay = opts.StatusDelay
	r.pending = &expectations.Store[expectations.Key]{
		Timeout: opts.ExpectationsTimeout, Now: opts.Now,
		Jitter: func() time.Duration {
			return time.Duration(opts.Random(int(opts.ExpectationsTimeout/10/time.Millisecond)+1)) * time.Millisecond
		},
	}
	r.writes = &expectations.ConsistencyStore{Now: opts.Now, GiveUpAfter: 2 * opts.ExpectationsTimeout, ReadVersion: func(resource schema.GroupResource) string {
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
	key   expectations.Key
	spec  replicas.SpecOf[C]
	rules status.Rules[C]
	state *ownerState[C]
	// children is the view that the pass goes by, read how far the cache had come.
	children, cached []C
	read             string
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
	// reads and listed count calls that may be made at the same time.
	reads, listed atomic.Int64
	found         foundNames
}

// Sync makes one pass for an owner: is the cache as new as our own writes; are the
// expectations satisfied (both BEFORE listing, as a child that arrives in between
// must not be created twice); list the children; adopt and release; create in slow
// start, or delete; write the status. An owner that is not found is forgotten.
//
// If err is nil, the owner is to be looked at again after requeueAfter, unless
// that is 0. If it is not, a positive requeueAfter comes from the server or from a
// hold; else the caller's rate limiter says when. A spec that is refused is no
// error: it is told by an event and to Kind.Observe, and trying again is useless
// before the owner changes.
//
// # The view is old
//
// Nothing is created or deleted on a view that is known to be old: if an
// expectation has expired unmet, if a write of our own has not come back in ten
// minutes, or if the server was restored to an older state. If there is something
// to do then, the children are listed live. If the list fails, nothing is changed.
// What such a list has proven is laid over the cache until the cache shows it.
// At most two live lists of a Controller are under way at once, owners of one
// namespace and selector share one, and a list that fails holds the others back for
// a second, doubling to 15 seconds.
//
// # Creations
//
// Children are created by name: the owner's and five random letters, as the API
// server does it, which generateName says too. A creation that fails is looked for
// on the server: if it is there and the owner's, it is created. If it is not
// there, the same name is sent again, also by later passes, so that a request that
// takes effect late makes no child too many. A name that is no longer wanted is
// looked for until it turns up, for five minutes at most.
//
// A create that fails because the namespace is going away or gone is no error:
// creations of this owner are held for a minute, doubling to five. A full quota
// holds them for a second, doubling to a minute; a server's Retry-After, for
// what it says. A child that the server made another's, since a webhook changed its
// labels or its owner reference, is deleted again, and creations are held for a
// second, doubling to five minutes. Creations are held in the same way if a child
// whose creation was not answered is found with other labels. Its user may have
// changed them, so it is released and not deleted. Deletions and status go on meanwhile. A new
// generation of the owner, a success, or nothing left to create ends the hold; so
// does, of a full quota, a child of the owner that is gone.
//
// # Deletions
//
// Deletes carry the child's UID, and the resourceVersion of those that were ready.
// After the first Conflict of a pass no more resourceVersions are sent: the
// owner's children are listed live, and the victims that are still its own, matching
// and active go by their UID alone, as long as there are too many. If the list
// shows that victims were chosen from an old view, or if a child that is still the
// same cannot be deleted for a Conflict, as a webhook may answer, deletions of this
// owner are held: for 50 ms, doubling to a minute with each such pass. A server's
// Retry-After holds them for what it says. Once the hold lasts a second, an event
// DeletionsHeld tells why, once. A delete whose answer is lost is looked for on
// the server, and its victim is the first to go in the next pass.
//
// # Claims
//
// A child whose adoption the server calls Invalid (422) is set aside for a minute,
// and one is created in its stead. As long as an adoption is not decided, because
// the server is busy, rights are missing, or a policy forbids it, none is created
// in its stead, and none is deleted because of it; an event tells why, and it is
// tried again after 50 ms, doubling to a minute. A BadRequest or Forbidden that
// lasts five minutes becomes a refusal if the server would take the same patch, in
// a dry run, for a child that the owner has. A release that fails stops nothing.
//
// # Status
//
// If it is known how far the cache has come, the status counts what the pass itself
// created and deleted, so that one write tells it: created children by the labels
// and conditions of the answer, deleted ones as terminating or, if neither a grace
// period nor a finalizer keeps them, no more. Later passes count alike until the
// cache shows it: the counts do not go back and forth. Else the status is that of
// the children before, one pass behind.
//
// No event cuts a hold short, and no server can make it longer than five minutes.
// Expectations are recorded before the first call and lowered for what was not
// done, whether calls fail, are never made, or panic: a panic of a call reaches
// the caller after the calls around it have ended, with the record right.
//
// Differs from Kubernetes: all of the above; claims run in parallel; every error
// is reported; the status is not one pass behind; when a ready pod will be available
// is reckoned from the pods, whatever the server made of the status.
func (c *Controller) Sync(ctx context.Context, owner types.NamespacedName) (requeueAfter time.Duration, err error) {
	if c == nil || c.reconciler == nil {
		return 0, errors.New("controller: New did not make this Controller")
	}
	return c.reconciler.sync(ctx, owner)
}

func (r *reconciler[O, C]) sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error) {
	p := &pass[O, C]{reconciler: r}
	p.Name, p.Now = owner, r.opts.Now()
	p.end(p.run(ctx))
	p.LiveReads, p.LiveLists = int(p.reads.Load()), int(p.listed.Load())
	p.Took = r.opts.Now().Sub(p.Now)
	r.measures.add(&p.Pass)
	if r.kind.Observe != nil {
		r.kind.Observe(ctx, p.Pass)
	}
	if onlyRefused(p.Err) {
		return p.RequeueAfter, nil
	}
	return p.RequeueAfter, p.Err
}

func (r *reconciler[O, C]) metrics() []Sample { return r.measures.samples() }

// run is the pass on one page: look, list and plan, claim, scale, report.
func (p *pass[O, C]) run(ctx context.Context) error {
	if goOn, err := p.look(ctx); !goOn {
		return err
	}
	plan, err := p.plan(ctx)
	if !p.Observed {
		return err
	}
	var scale replicas.ScaleOf[C]
	if err == nil {
		scale, err = p.claim(ctx, plan)
	}
	if errors.As(err, new(heldError)) { // no error: lists are tried again later
		p.comeBack(p.lists.held())
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
	p.state = p.stateOf(owner, p.Now)
	p.state.wrote.read(owner.GetResourceVersion())
	p.state.old = p.state.old || stale != (expectations.Stale{})
	p.Generation = owner.GetGeneration()
	if p.spec, err = p.kind.Spec(owner); err != nil {
		p.refuse(err)
		return false, err
	}
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

// refuse tells the owner's events why its spec can not be acted on, once for each
// generation of it.
func (p *pass[O, C]) refuse(err error) {
	if e, ok := asRefused(err); ok && !p.state.refused {
		p.state.refused = true
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
// says when to come back: the caller's rate limiter does otherwise.
func (p *pass[O, C]) end(err error) {
	if p.Err = err; err != nil {
		p.RequeueAfter = p.retryAfter
		return
	}
	if p.state == nil {
		return
	}
	if s, remaining := p.pending.State(p.key); s == expectations.Waiting {
		p.comeBack(remaining)
	}
	if p.state.strays.any() {
		p.comeBack(strayRetry)
	}
	if remaining := p.state.proven.remaining(p.opts.Now(), p.opts.ExpectationsTimeout); remaining > 0 {
		p.comeBack(remaining)
	}
}

// forget drops everything that is remembered of an owner that is gone. An empty UID
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

// childLeft notes for an owner that a child left the cache.
func (r *reconciler[O, C]) childLeft(key expectations.Key, child types.UID) {
	if state := r.owners.get(key); state != nil {
		state.proven.left(child)
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
