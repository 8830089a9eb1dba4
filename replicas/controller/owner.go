// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/handlers"
)

// wants determines the owner and the Spec that the pass uses, and reports whether the pass continues.
func (p *pass[O, C]) wants(ctx context.Context) bool {
	owner, err := p.cache.Owner(ctx, p.Name)
	switch {
	case err == nil && object.IsNil(owner):
		err = fmt.Errorf("controller: %s %q: the cache returned nil", p.kind.Owner.Kind, p.Name)
	case err == nil:
		err = p.checkScope(owner)
	case apierrors.IsNotFound(err):
		p.step = scales // an owner that is gone has no gates
		p.forget(expectations.Key{NamespacedName: p.Name})
		if next := p.owners.sweep(p.Name, p.Now); next > 0 {
			// A creation had no answer, and then the owner left the cache. It may return while the pod can still appear, so
			// its state stays for five minutes after the call. No event would bring the pass that drops it.
			p.requeueAfter(next)
		}
		return false
	default:
		err = fmt.Errorf("controller: %s %q: reading it: %w", p.kind.Owner.Kind, p.Name, err)
	}
	if err != nil {
		p.addError(err)
		return false
	}
	p.Owner, p.cached, p.key = owner, owner, expectations.KeyOf(owner)
	p.state = p.owners.get(p.key)
	// stateOf ends what belongs to another generation. An owner that is known to be old must not.
	owner, ok := p.upToDate(ctx, owner)
	if !ok {
		return false
	}
	p.Owner, p.state = owner, p.stateOf(owner, p.Now)
	p.Generation = owner.GetGeneration()
	if p.spec, p.remembers, err = p.specOf(owner); err != nil {
		if !isRefused(err) { // the error may be temporary, so the pass is tried again
			err = p.failure("Kind.Spec failed: %w", err)
		}
		p.refuseSpec(ctx, err)
		return false
	}
	p.state.rounds.by(p.spec.GroupOf)
	p.rules, p.Desired = p.spec.Rules.Complete(), p.spec.Wanted()
	p.deletePendingStrays(ctx)
	return true
}

// specOf returns the Spec of an owner, with what the Controller fills in.
func (p *pass[O, C]) specOf(owner O) (spec replicas.Spec[C], remembers bool, err error) {
	spec, err = p.kind.Spec(owner)
	if p.kind.SpecLive != nil {
		// A template has changed and its owner has not. The handlers must not judge children by the Spec of before.
		handlers.Renew(p.events, owner, spec, err)
	}
	if err != nil {
		return spec, false, err
	}
	return spec, p.complete(&spec, owner), nil
}

func (p *pass[O, C]) complete(spec *replicas.Spec[C], owner O) (remembers bool) {
	spec.Owner, spec.Kind = owner, p.kind.Owner
	p.mustReplace(spec)
	return p.rememberReadiness(spec)
}

// groupsIn returns the groups of a Spec. All children of an owner without groups are one group without a name.
func groupsIn[C Object](spec replicas.Spec[C]) []replicas.Group[C] {
	groups := slices.Clone(spec.Groups)
	if spec.GroupOf == nil {
		groups = []replicas.Group[C]{{
			Replicas: spec.Replicas, Slots: spec.Slots, MaxDeletions: spec.MaxDeletions,
			MaxUnavailable: spec.MaxUnavailable, MaxSurge: spec.MaxSurge, Paused: spec.Paused,
		}}
	}
	for i := range groups {
		if spec.Draining() { // the owner was deleted and has a finalizer, so none is wanted
			groups[i].Replicas = 0
		}
	}
	return groups
}

// group returns a group by its name, or the zero Group, which wants none.
func (p *pass[O, C]) group(name string) (group replicas.Group[C]) {
	for _, g := range groupsIn(p.spec) {
		if g.Name == name {
			return g
		}
	}
	return group
}

func (p *pass[O, C]) groupOf(c C) string {
	if p.spec.GroupOf == nil {
		return ""
	}
	return p.spec.GroupOf(c)
}

// rememberReadiness sets the rules NotReadySince and Available in a Spec, if the status of children is not enough.
func (p *pass[O, C]) rememberReadiness(spec *replicas.Spec[C]) (remembers bool) {
	minReady := time.Duration(spec.MinReadySeconds) * time.Second
	if _, arePods := any(*new(C)).(*corev1.Pod); arePods && spec.Rules.Ready == nil { // the Ready condition has its time
		minReady = 0
	}
	if minReady <= 0 && spec.Rules.ReadyWithin <= 0 {
		return false
	}
	rules := spec.Rules.Complete()
	if rules.Ready == nil {
		return false
	}
	spec.Rules.NotReadySince = func(c C) (claimed time.Time) {
		if rules.NotReadySince != nil {
			if claimed = rules.NotReadySince(c); claimed.IsZero() {
				return claimed
			}
		}
		// A worker that was ready for a day is not ready for a moment. Its status has no time for that, or one of another
		// clock. Counted from its creation, or from too early a time, it would be replaced at once.
		return p.state.ready.since(object.ID(c), false, claimed, p.opts.Now())
	}
	if minReady > 0 && rules.Available == nil {
		spec.Rules.Available = func(c C) bool { return rules.Ready(c) && p.Now.Sub(p.readySince(c)) >= minReady }
	}
	return true
}

func (p *pass[O, C]) readySince(c C) time.Time {
	return p.state.ready.since(object.ID(c), true, time.Time{}, p.opts.Now())
}

// checkScope returns an error if Kind.ClusterScoped does not fit an owner: no event of its children would bring a pass.
func (r *reconciler[O, C]) checkScope(owner O) error {
	if r.kind.ClusterScoped == (owner.GetNamespace() == "") {
		return nil
	}
	where := "no namespace"
	if r.kind.ClusterScoped {
		where = "a namespace"
	}
	return fmt.Errorf("controller: %s %q: the owner is in %s, but Kind.ClusterScoped is %t", r.kind.Owner.Kind, object.Name(owner), where, r.kind.ClusterScoped)
}

// refuse sends an event if err is a refusal.
func (p *pass[O, C]) refuse(err error) {
	if e, ok := asRefused(err); ok {
		p.sendRefusal(e.Reason, e.Error())
	}
}

// sendRefusal sends an event about a refusal, and within a generation of the owner another one only for another
// message.
func (p *pass[O, C]) sendRefusal(reason, message string) {
	if p.state.refused != message {
		p.state.refused = message
		p.event(corev1.EventTypeWarning, reason, message)
	}
}

// refusalEventEvery is how often the refusal of a deleted owner's spec is reported.
const refusalEventEvery = time.Hour

// refuseSpec records that the pass cannot act on the owner's spec, and writes the status that Kind.Refused sets.
func (p *pass[O, C]) refuseSpec(ctx context.Context, err error) {
	reason, message, wait := FailedSpec, err.Error(), time.Duration(0)
	refused, ok := asRefused(err)
	if ok {
		reason, message = refused.Reason, refused.Error()
	}
	if p.Owner.GetDeletionTimestamp() != nil {
		// No user changes an owner that was deleted, so no event wakes it, and its finalizer keeps it. A person who asks
		// months later why it is still there must find an event, and the server drops events after an hour.
		message += " (the owner is being deleted, and the Controller deletes none of its children)"
		h := p.state.holds.getOrAdd(SpecRefused, "")
		if h.Remaining(p.Now) <= 0 {
			h.Hold, p.state.refused = backoff.Hold{Since: p.Now, Wait: refusalEventEvery}, ""
		}
		wait = h.Remaining(p.Now)
	}
	p.sendRefusal(reason, message)
	p.gate(SpecRefused, "", wait, err)
	p.addError(err)
	if !ok || p.kind.Refused == nil {
		return
	}
	p.writeStatus(ctx, func(owner O) error {
		if owner.GetGeneration() == p.Generation { // after a Conflict, the spec may have been mended
			p.kind.Refused(owner, refused)
		}
		return nil
	})
}

// upToDate returns the owner that the pass uses, which is usually the cached one.
func (p *pass[O, C]) upToDate(ctx context.Context, cached O) (owner O, goOn bool) {
	if p.state == nil { // no call has shown anything of the owner yet
		return cached, true
	}
	known, now := &p.state.owner, p.opts.Now()
	if known.isIn(cached.GetResourceVersion()) {
		*known = ownerVersion{}
		return cached, true
	}
	p.Generation = cached.GetGeneration()
	if known.readIn(now) > 0 {
		// A status write met a Conflict, and the read after it showed that ten are wanted, where the cache has two. Another
		// process has created eight pods, and each of their events brings a pass. None of these passes deletes the pods, and
		// none reads the owner sooner than its turn.
		p.waitForOwner()
		return cached, false
	}
	if p.held(OwnerUnread, "", "", "") {
		return cached, false
	}
	known.read = now
	fresh, err := p.fetchOwner(ctx)
	switch {
	case p.ownerErr != nil:
		// The cached owner is known to be old, so without an answer no pass may use it, not even for claims.
		p.addError(p.unread(ctx, StopsClaims, p.ownerErr))
		return cached, false
	case err != nil || p.ownerOld: // it is gone
		p.waitForOwner()
		return cached, false
	}
	// The watch of owners hangs, perhaps for minutes. So this pass goes on with the owner from the server. The next ones
	// wait for the cache again, until it is time for another read.
	known.show(fresh.GetResourceVersion(), false, now)
	p.cacheIsOld, p.ownerRead = true, true
	p.requeueAfter(known.readIn(now))
	return fresh, true
}

// waitForOwner postpones the rest of the pass, because the cache shows an older owner than a call has shown.
func (p *pass[O, C]) waitForOwner() *Gate {
	known := &p.state.owner
	own, wait := p.state.wrote.await(known.version), max(known.readIn(p.opts.Now()), 1)
	if own && !known.gone { // the newest version that a call has shown is the Controller's own status write
		return p.gate(OwnWriteNotSeen, p.ownerResource.String(), wait, nil)
	}
	reason := OwnerStale
	if known.gone {
		reason = OwnerGone
	}
	p.cacheIsOld = true
	g := p.gate(reason, "", wait, nil)
	g.Earlier = true
	return g
}

// fetchOwner reads the owner from the server, or another owner that has its name now. It sets p.ownerErr if the answer
// says nothing about the owner.
func (p *pass[O, C]) fetchOwner(ctx context.Context) (O, error) {
	fresh, err := p.askOwner(ctx)
	switch {
	case err == nil && object.IsNil(fresh):
		err = errNoObject
	case err == nil && nameOf(fresh) != p.Name:
		err = fmt.Errorf("the read returned %q", object.Name(fresh))
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("%w (the right to get %s in the group %q is needed)", err, p.ownerResource.Resource, p.kind.Owner.Group)
	}
	if p.ownerErr = err; apierrors.IsNotFound(err) { // that the owner is gone is an answer, too
		p.ownerErr = nil
	}
	p.holdReads()
	switch {
	case p.ownerErr != nil:
	case err != nil || fresh.GetUID() != p.Owner.GetUID(): // perhaps it was deleted and created again under its name
		p.ownerGone()
	default:
		p.fresh = fresh
		p.noticeOlderOwner(fresh)
	}
	return fresh, err
}

// readOwner reads the owner from the server, and finds out whether it still wants what p.Owner wants.
func (p *pass[O, C]) readOwner(ctx context.Context) (O, error) {
	fresh, err := p.fetchOwner(ctx)
	if err != nil || p.ownerOld {
		return fresh, err
	}
	if p.ownerRead = p.wantsTheSame(fresh); !p.ownerRead {
		// The next pass must remember this, or it would use the cached owner again, and so would each pass after it.
		p.ownerOld = true
		p.observeOwner(fresh)
	}
	return fresh, nil
}

// holdReads sets or ends the hold of reads, after a read of the owner.
func (p *pass[O, C]) holdReads() {
	if p.ownerErr == nil {
		p.state.holds.end("", OwnerUnread)
		return
	}
	h := p.state.holds.getOrAdd(OwnerUnread, "")
	OwnerUnread.grow(&h.Hold, p.opts.Now())
	h.Wait, h.why = max(h.Wait, serverDelay([]error{p.ownerErr})), p.ownerErr
}

// observeOwner records a version of the owner that a call has returned.
func (p *pass[O, C]) observeOwner(shown O) {
	p.noticeOlderOwner(shown)
	p.state.owner.show(shown.GetResourceVersion(), false, p.opts.Now())
}

// noticeOlderOwner looks for a sign that the server was restored from a backup.
func (p *pass[O, C]) noticeOlderOwner(shown O) {
	_ = p.restores.NoticeOlder(shown, p.cached.GetResourceVersion())
	_ = p.restores.NoticeOlder(shown, p.state.owner.version)
}

func (p *pass[O, C]) ownerGone() {
	p.ownerOld = true
	p.state.owner.show(p.cached.GetResourceVersion(), true, p.opts.Now())
}

// unread records that the owner could not be read, and returns an error. The parts in stops are skipped, too.
func (p *pass[O, C]) unread(ctx context.Context, stops Stops, why error) error {
	if ctx.Err() == nil {
		p.sendEventOnce(OwnerUnread, "Error reading the owner: "+why.Error())
	}
	g := p.gate(OwnerUnread, "", max(p.state.holds.getOrAdd(OwnerUnread, "").Wait, serverDelay([]error{why})), why)
	g.Stops |= stops
	return p.failure("reading it before the number of children is changed: %w", why)
}

// ownerAgrees removes from scale what the owner on the server may no longer want. The result ok is false if Prepare
// would see deletions or changes that could not be checked, or if SpecLive failed.
func (p *pass[O, C]) ownerAgrees(ctx context.Context, planned, scale replicas.Scale[C]) (agreed replicas.Scale[C], ok bool) {
	// Prepare sees the whole plan, also what is held, and may drain each child in it.
	isShown := p.kind.Prepare != nil && deletesOrChanges(planned)
	if (isShown || deletesOrChanges(scale)) && !p.mayTake(ctx) {
		// Without a Prepare that would see the doubtful deletions, creations go on: one too many can be taken back. But
		// where SpecLive has failed, the template of a new child is as doubtful as the deletions.
		if _, unread := p.state.holds[holdKey{OwnerUnread, specLive}]; isShown || unread {
			return replicas.Scale[C]{}, false
		}
		scale.Update, scale.Delete, scale.Discard = nil, nil, nil
	}
	if scale.Create > 0 {
		scale.Create = p.mayCreate(ctx, scale.Create)
		scale.Names = scale.Names[:scale.Create]
	}
	return scale, true
}

// deletesOrChanges reports whether a scale deletes or changes children.
func deletesOrChanges[C Object](scale replicas.Scale[C]) bool {
	return len(scale.Update)+len(scale.Delete)+len(scale.Discard) > 0
}

// mayTake reports whether the pass may delete and change children.
func (p *pass[O, C]) mayTake(ctx context.Context) bool {
	if p.held(InputsStale, specLive, "", "") || p.held(OwnerUnread, specLive, "", "") {
		return false
	}
	// The cached owner wants two pods of image 1, and the owner on the server five of image 2. By the cached one, three
	// would go, and two would be put back to image 1. So the owner is read first, and then what else the Spec reads.
	if !p.checkOwner(ctx, true) && p.ownerErr != nil {
		p.addScaleError(StopsDeletions, p.ownerErr)
	}
	return p.ownerRead && p.inputsAgree(ctx)
}

// specLive is the key of the holds that Kind.SpecLive causes. A read of the owner does not end them.
const specLive = "SpecLive"

// inputsAgree reports whether the plan of Kind.SpecLive deletes and changes the same children as that of Kind.Spec.
func (p *pass[O, C]) inputsAgree(ctx context.Context) bool {
	if p.kind.SpecLive == nil {
		return true
	}
	live, cancel := context.WithTimeoutCause(ctx, PrepareTimeout, errTooLong)
	defer cancel()
	var plan replicas.Plan[C]
	spec, err := p.kind.SpecLive(live, p.fresh)
	if err == nil {
		p.complete(&spec, p.fresh)
		plan, err = p.planAgain(spec)
	}
	switch {
	case err != nil:
		err = p.failure("Kind.SpecLive failed: %w", cmp.Or(context.Cause(live), err))
		if ctx.Err() == nil {
			p.sendEventOnce(OwnerUnread, err.Error())
		}
		p.holdCalls(OwnerUnread, specLive, "", err)
		p.addScaleError(StopsDeletions, err)
		p.addError(err)
		return false
	case reflect.DeepEqual(deletionsIn(p.own.plan.Scale), deletionsIn(plan.Scale)) && reflect.DeepEqual(patchesIn(p.own.plan.Scale), patchesIn(plan.Scale)):
		p.state.holds.end(specLive, OwnerUnread, InputsStale)
		return true
	}
	// The cache has the template of a second ago, or the two functions differ and will never agree. The plans show a
	// person which of them it is.
	p.state.holds.end(specLive, OwnerUnread)
	p.holdCalls(InputsStale, specLive, "", fmt.Errorf("the plan of Spec: %v; the plan of SpecLive: %v", p.own.plan, plan))
	return false
}

// checkOwner reads the owner, unless this pass has done so, and reports whether the owner on the server wants the same
// children as p.Owner.
func (p *pass[O, C]) checkOwner(ctx context.Context, needed bool) bool {
	// The right to get owners is missing. Each event of a child would bring one more read that fails.
	if p.ownerRead || p.ownerErr != nil || needed && p.held(OwnerUnread, "", "", "") {
		return p.ownerRead
	}
	_, _ = p.readOwner(ctx)
	switch {
	case p.ownerErr != nil && needed:
		p.addError(p.unread(ctx, 0, p.ownerErr))
	case p.ownerOld:
		p.waitForOwner()
	}
	return p.ownerRead
}

// mayCreate returns how many of the given number of children the pass may create, 0 <= result <= create.
func (p *pass[O, C]) mayCreate(ctx context.Context, create int) int {
	// A new leader's cache may have the owner of before a scale-down that the former leader has carried out. One read in a
	// term is enough, because a pod too many can be deleted later. But when pods are missing that the Controller did not
	// delete (p.left), the owner may be gone and the garbage collector at work, so each of these passes reads.
	switch {
	case p.ownerOld:
	case p.ownerRead, p.left == 0 && (p.state.ownerTerm == p.inTerm || p.isOfTerm(ctx)), p.checkOwner(ctx, p.left > 0):
		p.state.ownerTerm, p.left = p.inTerm, 0
		return create
	}
	if p.ownerOld {
		return 0
	}
	return max(create-p.left, 0) // the read failed: those that are gone are not replaced, and the others are created
}

// isOfTerm reports whether p.Owner is as new as the term, so that no earlier process can have seen a newer one.
func (p *pass[O, C]) isOfTerm(ctx context.Context) bool {
	versioner, ok := p.client.(Versioner)
	if !ok {
		return false
	}
	began := p.askOwnersVersion(ctx, versioner)
	return resourceversion.Reached(p.Owner.GetResourceVersion(), began)
}

// wantsTheSame reports whether the owner on the server wants the same as p.Owner.
func (p *pass[O, C]) wantsTheSame(fresh O) bool {
	version, generation := fresh.GetResourceVersion(), fresh.GetGeneration()
	switch {
	case version != "" && version == p.Owner.GetResourceVersion():
		return true
	case generation != p.Owner.GetGeneration():
		return false
	case version != "" && (generation == 0 || p.statusCounts.Load()): // a ConfigMap has no generation, so each change may matter
		return false
	}
	// An annotation now keeps web-a. It has not raised the generation, but the plan shows it.
	return p.samePlan(fresh)
}

// samePlan reports whether another version of the owner makes the plan that this pass has made, from the same
// children and with the same facts.
func (p *pass[O, C]) samePlan(other O) bool {
	spec, _, err := p.specOf(other)
	if err != nil {
		return false
	}
	ours, theirs := p.spec, spec
	ours.Owner, theirs.Owner = nil, nil
	if ours.New != nil && theirs.New != nil { // no plan calls them
		ours.New, theirs.New = nil, nil
	}
	if other.GetDeletionTimestamp() == nil && reflect.DeepEqual(ours, theirs) { // saves a plan; functions are never equal
		return true
	}
	plan, err := p.planAgain(spec)
	return err == nil && reflect.DeepEqual(decisions(p.own.plan, p.spec), decisions(plan, spec))
}

// planAgain makes a plan by another Spec, from the same children and with the same facts.
func (p *pass[O, C]) planAgain(spec replicas.Spec[C]) (replicas.Plan[C], error) {
	facts, named := p.own.facts, 0
	facts.Names = func(prefix string) string { // no child gets these names, so they need not be random
		named++
		return prefix + strconv.Itoa(named)
	}
	return replicas.Manage(p.own.children, withFacts(spec, facts))
}

// decisions returns all that a plan does, to compare it with another plan.
func decisions[C Object](plan replicas.Plan[C], spec replicas.Spec[C]) []any {
	groups, names := groupsIn(spec), slices.Clone(plan.Scale.Names)
	for i := range names {
		name := plan.Scale.Group(i)
		switch at := slices.IndexFunc(groups, func(g replicas.Group[C]) bool { return g.Name == name }); {
		case at < 0 || groups[at].Slots == nil:
			names[i] = "in group " + name // its name is random
		case spec.SlotOf != nil:
			names[i] = replicas.SlotIn(names[i])
		}
	}
	return []any{plan.Blocked.Reason, plan.Scale.Create, names, deletionsIn(plan.Scale), patchesIn(plan.Scale), idsIn(plan.Claims.Adopt), idsIn(plan.Claims.Release)}
}

func deletionsIn[C Object](scale replicas.Scale[C]) (options []metav1.DeleteOptions) {
	for _, v := range slices.Concat(scale.Delete, scale.Discard) { // the preconditions name the child
		options = append(options, v.Options)
	}
	return options
}

func idsIn[C Object](children []C) (ids []types.UID) {
	for _, c := range children {
		ids = append(ids, object.ID(c))
	}
	return ids
}
