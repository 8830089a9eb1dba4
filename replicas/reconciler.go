package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/slowstart"
)

// DefaultMaxParallel is how many calls a Reconciler has under way at once for
// one owner where MaxParallel is 0.
const DefaultMaxParallel = 128

// A Reconciler makes one pass for one owner at a time: it plans as Manage does
// and carries the plan out. Fill in Kind, Pods and Expectations; the other fields
// may stay zero. One Reconciler, with its Expectations and Consistency, serves
// owners of one kind. It must not be copied after its first use. Passes for different
// owners may run at the same time, those of one owner must not.
type Reconciler struct {
	// Kind is the owners' kind. A Spec of another group or kind is refused: owners
	// of two kinds may have one name. Required.
	Kind schema.GroupVersionKind
	// Pods makes the calls. Required.
	Pods PodControl
	// Expectations is what passes started and events have not confirmed. Its
	// other half is a Router with the same Expectations. Required.
	Expectations *expectations.Store[expectations.Key]
	// Owners is read before the first adoption of a pass. nil: nothing is
	// adopted.
	Owners OwnerReader
	// Events is told what was done. nil: nobody is.
	Events EventSink
	// Related returns the pods of the owner's siblings and its own, for ranking
	// by co-location; see Spec.Related. It is called only when something
	// will be deleted. An error costs the ranking, not the pass. nil: Spec.Related
	// is taken as it is.
	Related func(ctx context.Context, owner metav1.Object) ([]*corev1.Pod, error)
	// Consistency holds a pass back while the caches are behind the
	// Reconciler's own writes, which it records there. Who reads owners from a
	// cache should ask its Ready before that, too. nil: without.
	Consistency *expectations.ConsistencyStore
	// MaxParallel caps the calls under way at once in a pass. 0 means
	// DefaultMaxParallel. At 1 every call is made inline, in order.
	MaxParallel int
	// Now is the clock that a pass, and what holds the next ones back, goes by;
	// nil means time.Now.
	Now func() time.Time
	// BeforeScale is called with the pods owned and what is about to be created
	// or deleted, if anything is, before the first call: for logs and metrics.
	// It must only look. nil: without.
	BeforeScale func(ctx context.Context, spec Spec, owned []*corev1.Pod, scale Scale)

	owners owners
}

// A Result tells what a pass did and what the status step needs to know. Its
// lists point to the pods as the pass last saw them.
type Result struct {
	// Adopted and Released were patched, Released also where the pod turned out
	// to be gone. SetAside were not adopted, as a policy or another owner forbids
	// it: the server said so now, or less than a minute ago.
	Adopted, Released, SetAside []*corev1.Pod
	// Created and Deleted are the calls that succeeded.
	Created, Deleted []*corev1.Pod
	// Failed counts the calls that failed, and the adoptions that were not tried
	// as the owner must not adopt; Skipped the creations that slow start did not
	// try after a failure.
	Failed, Skipped int
	// Conflicts counts the delete calls that met a Conflict, and LiveLists the
	// lists of the owner's pods, past the cache, that this led to.
	Conflicts, LiveLists int
	// Held reports whether creations or deletions were not tried, as they were
	// put off in an earlier pass.
	Held bool
	// Active are the owned pods before anything was created or deleted;
	// Terminating those owned and being deleted.
	Active, Terminating []*corev1.Pod
	// Observed reports whether the pods were listed and claimed: if not, there
	// is nothing to write a status from.
	Observed bool
	// Waiting reports whether the number of pods was left alone because
	// something must happen first: expectations, a stale cache, a hold, a failed
	// claim, a conflict, the deletion of the owner.
	Waiting bool
	// ScaleErr is why creating or deleting failed, for the ReplicaFailure
	// condition; part of the error of the pass.
	ScaleErr error
	// RelatedErr is why there was no ranking by co-location, if so.
	RelatedErr error
	// RequeueAfter asks for another pass that no event may ask for. 0: none.
	// With an error, a positive value comes from the server or from a hold, and
	// replaces the caller's rate limiter.
	RequeueAfter time.Duration
}

// Reconcile makes one pass for the owner in spec, in this order: is the cache as
// new as our own writes; are the expectations satisfied (both BEFORE listing, as
// a pod that arrives in between must not be created twice); list the pods;
// adopt and release; create in slow start, or delete. Related, Rules and BurstReplicas of
// spec are the caller's to set; Now is set by the Reconciler's clock, so that a
// Spec can be used again. list returns the owner's pods
// and the orphans of its namespace, from a cache as a rule, and is not called
// where the pass is refused or must wait for the cache.
//
// Expectations are recorded before the first call and lowered for what was not
// done, whether calls fail, are never made, or panic: a panic of a call reaches
// the caller after the calls around it have ended, with the record right.
//
// A create that fails because the namespace is going away or gone is no error:
// creations of this owner are held for a minute, doubling to five. A full quota
// holds them for a second, doubling to a minute; a server's Retry-After, for
// what it says. Deletions and status go on meanwhile. A new generation of the
// owner, a success, or nothing left to create ends the hold; so does, of a full
// quota, a pod of the owner that is gone.
//
// A spec that can only be a mistake is a *RefusedError, told by an event on the
// owner. Do not try again: the owner has to change first.
//
// A pod whose adoption the server calls Invalid is set aside, and everything else
// goes on. It is tried again in a minute, for which another pass is asked; or as
// soon as it or the owner's generation changes. An adopted pod goes on
// as the server answered it, so that it can be deleted at once. After any
// other failed claim nothing is created or deleted in this pass, as the count of
// owned pods is not to be trusted. Its Result is Observed all the same, and
// Waiting: the status is written from the pods that are owned as far as the
// claims went.
// A pod whose adoption failed so is tried again after 50 ms, doubling to a
// minute, or as soon as it or the owner's generation changes; passes until then
// are Waiting, without a call or an error for it.
//
// Deletes carry the pod's UID, and the resourceVersion of pods that were ready.
// After the first Conflict of a pass no more resourceVersions are sent: the
// owner's pods are listed live, and the victims that are still its own, matching
// and active go by their UID alone, as long as there are too many. If the list
// fails, nothing more is changed. If it shows that victims were chosen from an
// old view, or if a pod that is still the same cannot be deleted for a Conflict,
// as a webhook may answer, deletions of this owner are held: for 50 ms, doubling
// to a minute with each such pass. A server's Retry-After holds them for what it
// says. Once the hold lasts a second, an event DeletionsHeld tells why, once. It
// ends with a new generation of the owner, with a success, or when nothing is left
// to delete.
//
// A hold counts from when the calls have ended. No event cuts it short. No server
// can make it longer than five minutes.
//
// Differs from Kubernetes: deletes have preconditions, and a Conflict leads to a
// live list; creations and deletions are held after certain failures; claims run
// in parallel; every error is reported; a namespace that is terminating stops
// slow start and leaves no expectation.
func (r *Reconciler) Reconcile(ctx context.Context, spec Spec, list func(context.Context) ([]*corev1.Pod, error)) (Result, error) {
	spec.Now = r.now()
	if err := r.check(&spec, list); err != nil {
		r.Refuse(spec.Owner, err)
		return Result{}, err
	}
	p := r.begin(spec)
	if p.cacheIsStale() {
		return p.result, nil
	}
	p.readExpectations()
	pods, err := list(ctx)
	if err != nil {
		return Result{RequeueAfter: serverDelay([]error{err})}, spec.failure("listing pods: %w", err)
	}
	if err := p.claim(ctx, pods); err != nil {
		p.result.Waiting = true
		return p.end(err)
	}
	if p.spec.blocked().Reason != "" || p.undecided {
		p.result.Waiting = true
		return p.end(nil)
	}
	return p.end(p.scale(ctx))
}

// Refuse tells the owner's events why its spec can not be acted on, once for
// each generation of it, and reports whether err says so: whether it is a
// *RefusedError. Reconcile calls it itself; call it where making the Spec
// failed.
func (r *Reconciler) Refuse(owner metav1.Object, err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) || refused == nil {
		return false
	}
	if object.IsNil(owner) {
		return true
	}
	if state := r.stateOf(owner, time.Time{}); !state.refused {
		state.refused = true
		r.event(owner, corev1.EventTypeWarning, refused.Reason, refused.Error())
	}
	return true
}

// Forget drops everything that is remembered of an owner that is gone:
// expectations, own writes, holds. An empty UID means every incarnation under
// that name: to know that an owner is not found is to know its name alone. An
// incarnation that is never forgotten, because its deletion was not noticed, is
// dropped in a pass of another one of its name, an hour after its own last one.
func (r *Reconciler) Forget(key expectations.Key) {
	r.Consistency.Clear(key)
	r.owners.forget(key)
	switch {
	case r.Expectations == nil:
	case key.UID == "":
		r.Expectations.ForgetName(key.NamespacedName)
	default:
		r.Expectations.Forget(key)
	}
}

// stateOf returns what is remembered of an owner, in a pass made now, and forgets
// other incarnations that were left behind. A zero now is no pass.
func (r *Reconciler) stateOf(owner metav1.Object, now time.Time) *ownerState {
	key := expectations.KeyOf(owner)
	state, idle := r.owners.of(key, owner.GetGeneration(), now)
	for _, uid := range idle {
		left := expectations.Key{NamespacedName: key.NamespacedName, UID: uid}
		if s, _ := r.Expectations.State(left); s != expectations.Waiting {
			r.Forget(left)
		}
	}
	return state
}

func (r *Reconciler) check(spec *Spec, list func(context.Context) ([]*corev1.Pod, error)) error {
	switch {
	case r.Kind.Kind == "":
		return errors.New("replicas: reconciler has no Kind")
	case r.Pods == nil:
		return errors.New("replicas: reconciler has no Pods")
	case r.Expectations == nil:
		return errors.New("replicas: reconciler has no Expectations")
	case r.MaxParallel < 0:
		return fmt.Errorf("replicas: reconciler: MaxParallel %d is negative", r.MaxParallel)
	case list == nil:
		return errors.New("replicas: list is nil")
	}
	if err := spec.check(); err != nil {
		return err
	}
	if spec.Kind.GroupKind() != r.Kind.GroupKind() {
		return fmt.Errorf("replicas: owner %q: the spec's kind is %s, the reconciler's is %s",
			object.Name(spec.Owner), spec.Kind.GroupKind(), r.Kind.GroupKind())
	}
	return nil
}

func (r *Reconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

func (r *Reconciler) event(owner metav1.Object, eventType, reason, message string) {
	if r.Events != nil {
		r.Events.Event(owner, eventType, reason, message)
	}
}

// all are the options for n calls that need no slow start.
func (r *Reconciler) all(n int) slowstart.Options {
	return slowstart.Options{InitialBatchSize: n, MaxParallel: r.maxParallel()}
}

func (r *Reconciler) maxParallel() int {
	if r.MaxParallel == 0 {
		return DefaultMaxParallel
	}
	return r.MaxParallel
}

// pass is one call of Reconcile.
type pass struct {
	*Reconciler
	spec   Spec
	key    expectations.Key
	state  *ownerState
	result Result
	// retryAfter is what the server, or a hold, makes an error wait.
	retryAfter time.Duration
	// asideBefore is what ownerState.setAside was before the pass; undecided says
	// that some of it may be ours yet, so that the count is not to be trusted.
	asideBefore map[types.UID]*aside
	undecided   bool
}

func (r *Reconciler) begin(spec Spec) *pass {
	return &pass{Reconciler: r, spec: spec, key: expectations.KeyOf(spec.Owner), state: r.stateOf(spec.Owner, spec.Now)}
}

// remember makes sure that what was just recorded can be forgotten by name, also
// where Forget ran while this pass was under way.
func (p *pass) remember() { p.state = p.stateOf(p.spec.Owner, p.spec.Now) }

// wrotePod records a write of a pod of this owner (X9).
func (p *pass) wrotePod(resourceVersion string) {
	p.Consistency.WroteAt(p.key, podsResource, resourceVersion)
}

// end completes the result. After an error only the server or a hold says when
// to come back: the caller's rate limiter does otherwise.
func (p *pass) end(err error) (Result, error) {
	if err != nil {
		p.result.RequeueAfter = p.retryAfter
		return p.result, err
	}
	if s, remaining := p.Expectations.State(p.key); s == expectations.Waiting {
		p.comeBack(remaining)
	}
	return p.result, nil
}

// comeBack asks for another pass after d; the earliest wish wins.
func (p *pass) comeBack(d time.Duration) {
	p.result.RequeueAfter = earliest(p.result.RequeueAfter, d)
}

// earliest is the shorter of two delays, of which 0 is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// cacheIsStale reports whether the pass must wait for a cache to see our own
// writes, and asks to look again (X10).
func (p *pass) cacheIsStale() bool {
	stale, ready := p.Consistency.Ready(p.key)
	if !ready {
		p.result.Waiting = true
		p.comeBack(stale.RetryAfter)
	}
	return !ready
}

func (p *pass) readExpectations() {
	s, _ := p.Expectations.State(p.key)
	if s == expectations.Waiting {
		p.spec.Pending = s
	}
}

// scale creates or deletes what is missing or in surplus.
func (p *pass) scale(ctx context.Context) error {
	if len(p.result.Active) > int(p.spec.Replicas) {
		p.listRelated(ctx)
	}
	scale, err := ScaleTo(p.result.Active, p.spec)
	if err != nil {
		return err
	}
	if scale.IsZero() {
		p.state.nothingLeft()
		return nil
	}
	if p.held(scale) {
		return nil
	}
	if p.BeforeScale != nil {
		p.BeforeScale(ctx, p.spec, p.result.Active, scale)
	}
	if scale.Create > 0 {
		return p.create(ctx, scale)
	}
	return p.delete(ctx, scale.Delete)
}

func (p *pass) listRelated(ctx context.Context) {
	if p.Related == nil {
		return
	}
	p.spec.Related, p.result.RelatedErr = p.Related(ctx, p.spec.Owner)
	if err := p.result.RelatedErr; err != nil {
		p.spec.Related = nil
		p.event(p.spec.Owner, corev1.EventTypeWarning, FailedRelated, "Error listing related pods: "+err.Error())
	}
}

// held reports whether creations, or deletions, must wait, and asks to come back
// when they need not.
func (p *pass) held(scale Scale) bool {
	h, pods := &p.state.deletions, 0
	if scale.Create > 0 {
		h, pods = &p.state.creations, p.inQuota()
	}
	remaining := h.remaining(p.spec.Now, pods)
	if remaining <= 0 {
		return false
	}
	p.result.Held, p.result.Waiting = true, true
	p.comeBack(remaining)
	return true
}

// inQuota counts the owner's pods that a quota counts: one that is being deleted
// makes room when it is gone.
func (p *pass) inQuota() int { return len(p.result.Active) + len(p.result.Terminating) }

// create makes the pods in slow start. 0 <= created <= scale.Create holds at
// every moment, and what is expected in the end is what was created (K1, K2).
// What it remembers grows with the calls that were made, not with what is wanted.
func (p *pass) create(ctx context.Context, scale Scale) error {
	var mu sync.Mutex
	created := map[int]*corev1.Pod{}
	p.Expectations.Set(p.key, expectations.Changes{Creations: scale.Create})
	p.remember()
	defer func() {
		p.Expectations.Lower(p.key, expectations.Changes{Creations: scale.Create - len(created)})
	}()
	opts := slowstart.Options{MaxParallel: p.maxParallel()}
	run := slowstart.Run(ctx, scale.Create, opts, func(ctx context.Context, i int) error {
		newPod, err := scale.New(i)
		if err != nil {
			return err
		}
		pod, err := p.Pods.CreatePod(ctx, p.spec.Owner.GetNamespace(), newPod)
		if err == nil {
			pod = cmp.Or(pod, newPod)
			mu.Lock()
			created[i] = pod
			mu.Unlock()
		}
		p.tellCreated(pod, err)
		return err
	})
	for _, i := range run.Succeeded {
		p.result.Created = append(p.result.Created, created[i])
	}
	return p.created(run)
}

// created tells what the creations mean for the pass and for later ones.
func (p *pass) created(run slowstart.Result) error {
	p.result.Failed += len(run.Failed)
	p.result.Skipped = run.Skipped
	if run.Err == nil || len(run.Succeeded) > 0 {
		p.state.creations = hold{}
	}
	errs := make([]error, len(run.Failed))
	for i, failure := range run.Failed {
		errs[i] = failure.Err
	}
	if run.Err == nil || p.namespaceEnds(errs) {
		return nil
	}
	p.holdAfter(errs)
	p.result.ScaleErr = summarize(run)
	return p.spec.failure("creating pods: %w", p.result.ScaleErr)
}

func (p *pass) tellCreated(pod *corev1.Pod, err error) {
	switch {
	case err == nil:
		p.wrotePod(pod.ResourceVersion)
		p.event(p.spec.Owner, corev1.EventTypeNormal, SuccessfulCreate, "Created pod: "+pod.Name)
	case !namespaceIsGoing(err):
		p.event(p.spec.Owner, corev1.EventTypeWarning, FailedCreate, "Error creating: "+err.Error())
	}
}

// namespaceEnds holds creations where one failed because the namespace is going,
// and reports whether that is all that failed: then it is no error.
func (p *pass) namespaceEnds(errs []error) bool {
	if !slices.ContainsFunc(errs, namespaceIsGoing) {
		return false
	}
	p.state.creations.double(p.now(), namespaceHoldFirst, namespaceHoldLast)
	p.retryAfter = p.state.creations.wait
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil && !namespaceIsGoing(err) }) {
		return false
	}
	p.result.Waiting = true
	p.comeBack(p.state.creations.wait)
	return true
}

// holdAfter holds creations where trying again soon is useless: the quota is
// full, or the server said when.
func (p *pass) holdAfter(errs []error) {
	if slices.ContainsFunc(errs, quotaIsFull) {
		p.state.creations.double(p.now(), quotaHoldFirst, quotaHoldLast)
		p.state.creations.at = p.inQuota() + len(p.result.Created)
		p.retryAfter = max(p.retryAfter, p.state.creations.wait)
	}
	if d := serverDelay(errs); d > p.retryAfter {
		p.state.creations = hold{since: p.now(), wait: d}
		p.retryAfter = d
	}
}
