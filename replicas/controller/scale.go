// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
)

// limits records a gate for each limit that postpones creations or deletions to later passes.
func (p *pass[O, C]) limits(scale replicas.Scale[C]) {
	p.Scale.Deferred, p.Scale.Kept, p.Scale.MustStay = scale.Deferred, scale.Kept, scale.MustStay
	parts := scale.Groups
	if p.spec.GroupOf == nil {
		parts = []replicas.GroupScale[C]{{Scale: scale}}
	}
	for _, part := range parts {
		scale := part.Scale
		if scale.Deferred > 0 {
			reason, group := BurstLimit, p.group(part.Name)
			rolls := group.MaxUnavailable != nil || group.MaxSurge != nil
			if limit := group.MaxDeletions; limit != nil && len(scale.Delete) >= *limit && (scale.Create == 0 || rolls) {
				reason = MaxDeletions
			}
			p.gate(reason, part.Name, 0, nil)
		}
		if scale.Kept > 0 {
			p.gate(MissingFirst, part.Name, 0, nil)
		}
		if scale.MustStay > 0 {
			p.gate(MustStay, part.Name, 0, nil)
		}
	}
	for _, c := range scale.Doubled {
		// Someone created a second web-0 in another namespace. No pass deletes or replaces either, so a person must.
		p.gate(NameTaken, object.Name(c), 0, nil).Stops = stopsScale
	}
}

// notHeld returns the scale without the calls that a hold delays, and of a cluster-scoped owner the children to create,
// keyed by name.
func (p *pass[O, C]) notHeld(scale replicas.Scale[C]) (replicas.Scale[C], map[string]newborn[C]) {
	if p.ownerOld {
		// The cached owner wants six, and the read before an adoption showed that it wants three. So no call is made.
		p.waitForOwner()
		return replicas.Scale[C]{}, nil
	}
	if len(scale.Delete)+len(scale.Discard) > 0 && p.deletionsHeld() {
		scale.Delete, scale.Discard = nil, nil
	}
	scale.Update = p.updatesNotHeld(scale.Update)
	scale.Delete, scale.Discard = p.notRefused(scale.Delete), p.notRefused(scale.Discard)
	if scale.Create > 0 {
		scale = p.postponeFailing(scale)
	}
	if scale.Create == 0 {
		return scale, nil
	}
	return p.creationsNotHeld(scale)
}

// deletionsHeld reports whether all deletions are on hold. Each reason is asked, so that each has its gate.
func (p *pass[O, C]) deletionsHeld() bool {
	afterFailure := p.held(DeletionFailed, "", "", "")
	return p.held(DeletionRetryAfter, "", "", "") || afterFailure
}

// notRefused returns the deletions that no hold of their children delays.
func (p *pass[O, C]) notRefused(deletions []replicas.Deletion[C]) []replicas.Deletion[C] {
	if len(p.state.holds) == 0 {
		return deletions
	}
	return filter(deletions, func(v replicas.Deletion[C]) bool {
		// The short hold after a Conflict ends when the child changes. Otherwise a scale-down while pods change would take
		// many passes. A mark that a webhook took off waits for longer, or each event of the child would bring the next.
		name := v.Object.GetName()
		return !p.held(Conflict, name, name, v.Object.GetResourceVersion()) && (v.Mark == nil || !p.held(UpdateFailed, name, name, ""))
	})
}

// postponeFailing removes a creation from the scale for each child that ended soon after the last round of its group.
func (p *pass[O, C]) postponeFailing(scale replicas.Scale[C]) replicas.Scale[C] {
	if !p.backOff {
		return scale
	}
	var names []string
	for i := 0; i < scale.Create; { // the creations of a group stand together
		group, first := scale.Group(i), i
		for i < scale.Create && scale.Group(i) == group {
			i++
		}
		names = append(names, scale.Names[first:i-p.failingIn(group, i-first)]...)
	}
	scale.Create, scale.Names = len(names), names
	return scale
}

// failingIn returns how many of the creations in a group must wait, 0 <= held <= create.
func (p *pass[O, C]) failingIn(group string, create int) (held int) {
	// A node cannot admit the pods, so each one fails as soon as it is created, and would be replaced as fast as calls go
	// (kubernetes#72593). But other missing pods do not wait.
	left, round := p.state.rounds.count(group, func(first time.Time) (living int) {
		for _, c := range p.view.children {
			if c.GetDeletionTimestamp() == nil && !c.GetCreationTimestamp().Time.Before(first) && p.controls(c) && p.snapshot.Rules.MayCount(c) &&
				p.groupOf(c) == group && (p.rules.Active(c) || p.hasEndedWell(c)) {
				living++
			}
		}
		return living
	}, p.Now)
	if left == 0 {
		return 0
	}
	held = min(round.endedSoon, create)
	why := fmt.Sprintf("Holding %d creations for %v: %d of %d %s%s ended soon after they were created", held, left.Round(time.Second), round.endedSoon, round.size, p.childResource.Resource, inGroup(group))
	if len(p.Released) > 0 { // the labels of new pods were changed, so they were released, and count as ended
		c := p.Released[0]
		why += fmt.Sprintf("; %s was released, because its labels %q do not match", c.GetName(), labels.Set(c.GetLabels()))
	}
	p.sendEventOnce(LastRoundEnded, why)
	g := p.gate(LastRoundEnded, group, left, nil)
	g.Earlier, g.waits = true, held == create
	return held
}

func (p *pass[O, C]) hasEndedWell(c C) bool {
	rules := &p.spec.Rules
	return rules.Ended(c) && (rules.Failed == nil || !rules.Failed(c))
}

func inGroup(group string) string {
	if group == "" {
		return ""
	}
	return " of group " + group
}

// callPrepare shows Kind.Prepare the plan, and returns what Prepare has left of allowed, the part that no hold delays.
func (p *pass[O, C]) callPrepare(ctx context.Context, planned, allowed replicas.Scale[C]) (replicas.Scale[C], error) {
	if p.kind.Prepare == nil {
		return allowed, nil
	}
	if p.view.state == stale {
		// The cache of a new process may be old, and only a plan that does something waits for it. So this one is empty,
		// but that means nothing yet, and Prepare could call off a drain because of it.
		p.requeueAfter(unsureRequeueAfter)
		return allowed, nil
	}
	step := Step[C]{
		Now: p.Now, Create: slices.Clone(planned.Names), Delete: slices.Clone(planned.Delete), Discard: slices.Clone(planned.Discard),
		Update: slices.Clone(planned.Update),
		Active: slices.Clone(p.notDoubted(planned)), Terminating: slices.Clone(p.Terminating),
		InFlight: len(p.state.ledger.Open()) + len(p.state.ledger.UnansweredCalls()),
		Later:    p.Scale.Kept + p.Scale.Deferred,
		planned:  planned,
	}
	err := p.prepare(ctx, &step)
	if err == nil {
		err = step.check(planned)
	}
	if err != nil {
		g := p.gate(HeldByPrepare, "", max(step.RequeueAfter, 0), p.failure("Prepare: %w", err))
		g.Stops, g.waits = leftOut(allowed, replicas.Scale[C]{}), true
		p.refuse(err)
		return replicas.Scale[C]{}, p.failure("Prepare: %w", withStack(err))
	}
	cut := step.allowedOf(allowed)
	if stops := leftOut(allowed, cut); stops != 0 {
		p.gate(HeldByPrepare, "", step.RequeueAfter, nil).Stops = stops
	} else if step.RequeueAfter > 0 {
		p.requeueAfter(step.RequeueAfter)
	}
	return cut, nil
}

// unsureRequeueAfter is the delay before Prepare is called if the view may be old. By then a bookmark has usually shown
// how new the cache is. Without one, the next pass lists the children live.
const unsureRequeueAfter = 2 * time.Minute

// notDoubted returns the active children that no earlier deletion may still take, except those in scale.
func (p *pass[O, C]) notDoubted(scale replicas.Scale[C]) []C {
	if len(p.facts.DeletionsInFlight) == 0 {
		return p.Active
	}
	// The deletion of web-a timed out, and now web-a must stay. It may still go, so Prepare must not count on it.
	doubted := sets.New(p.facts.DeletionsInFlight...).Difference(idsOf(scale.Delete))
	return slices.DeleteFunc(slices.Clone(p.Active), func(c C) bool { return doubted.Has(object.ID(c)) })
}

var errTooLong = fmt.Errorf("it took more than %v", PrepareTimeout)

// prepare calls Kind.Prepare, and returns an error if Prepare panics.
func (p *pass[O, C]) prepare(ctx context.Context, step *Step[C]) error {
	ctx, cancel := context.WithTimeoutCause(ctx, PrepareTimeout, errTooLong)
	defer cancel()
	err := slowstart.Run(ctx, 1, slowstart.Options{MaxParallel: 1, RecoverPanics: true}, func(ctx context.Context, _ int) error {
		return p.kind.Prepare(ctx, p.Owner, step)
	}).Err
	if panicked := (*slowstart.Panic)(nil); errors.As(err, &panicked) {
		p.sendPanicEvent(panicked.Value)
	}
	return err
}

// withStack adds the stack trace to the error of a panic, for the log.
func withStack(err error) error {
	if panicked := (*slowstart.Panic)(nil); errors.As(err, &panicked) {
		return fmt.Errorf("%w\n\n%s", err, panicked.Stack)
	}
	return err
}

// check returns an error if Prepare has added a call to the step, or has set a negative delay.
func (s *Step[C]) check(planned replicas.Scale[C]) error {
	var why string
	switch names := sets.New(planned.Names...); {
	case s.RequeueAfter < 0:
		why = fmt.Sprintf("step.RequeueAfter: %v is negative", s.RequeueAfter)
	case !areLess(s.Delete, planned.Delete):
		why = "step.Delete: a child was added, or is listed twice"
	case !areLess(s.Discard, planned.Discard):
		why = "step.Discard: a child was added, or is listed twice"
	case !areLess(changed(s.Update), changed(planned.Update)):
		why = "step.Update: a child was added, or is listed twice"
	case len(s.Create) > len(names.Intersection(sets.New(s.Create...))):
		why = "step.Create: a name was added, or is listed twice"
	default:
		return nil
	}
	return &replicas.RefusedError{Reason: InvalidStep, Err: errors.New(why)}
}

// areLess reports whether all deletions in the first list were planned, and none is listed twice.
func areLess[C Object](deletions, planned []replicas.Deletion[C]) bool {
	isNil, left := object.NilOf[C](), idsOf(planned)
	for _, v := range deletions {
		if isNil(v.Object) || !left.Has(object.ID(v.Object)) {
			return false
		}
		left.Delete(object.ID(v.Object))
	}
	return true
}

// changed returns the children of changes, in the form of deletions.
func changed[C Object](changes []replicas.Change[C]) (children []replicas.Deletion[C]) {
	for _, c := range changes {
		children = append(children, replicas.Deletion[C]{Victim: podrank.Victim[C]{Object: c.Object}})
	}
	return children
}

func idsOf[C Object](deletions []replicas.Deletion[C]) sets.Set[types.UID] {
	ids := sets.New[types.UID]()
	for _, v := range deletions {
		ids.Insert(object.ID(v.Object))
	}
	return ids
}

// allowedOf returns the calls in scale that Prepare has not removed from the step.
func (s *Step[C]) allowedOf(scale replicas.Scale[C]) replicas.Scale[C] {
	left := sets.New(s.Create...)
	scale.Names = filter(scale.Names, left.Has)
	scale.Create = len(scale.Names)
	scale.Delete, scale.Discard = keep(scale.Delete, s.Delete), keep(scale.Discard, s.Discard)
	stays := idsOf(changed(s.Update))
	scale.Update = filter(scale.Update, func(c replicas.Change[C]) bool { return stays.Has(object.ID(c.Object)) })
	return scale
}

func keep[C Object](planned, less []replicas.Deletion[C]) []replicas.Deletion[C] {
	wanted := idsOf(less)
	return slices.DeleteFunc(slices.Clone(planned), func(v replicas.Deletion[C]) bool { return !wanted.Has(object.ID(v.Object)) })
}

// leftOut returns the kinds of calls that were removed from a scale to make less of it.
func leftOut[C Object](scale, less replicas.Scale[C]) (stops Stops) {
	if less.Create < scale.Create {
		stops = StopsCreations
	}
	if len(less.Delete) < len(scale.Delete) || len(less.Discard) < len(scale.Discard) {
		stops |= StopsDeletions
	}
	if len(less.Update) < len(scale.Update) {
		stops |= StopsUpdates
	}
	return stops
}

// clampToRoom returns the scale without the calls after which there could be too many or too few children.
func (p *pass[O, C]) clampToRoom(ctx context.Context, scale replicas.Scale[C]) replicas.Scale[C] {
	if scale.IsZero() {
		return scale
	}
	// The creation of web-bbbbb had no answer, and a stranger had the name, so the request could not take effect and held
	// no place. If the stranger is gone, or cannot be read, the pod may still come, and a new one would be one too many.
	facts := p.facts
	if taken := filter(p.state.ledger.Open(), ledger.Name.IsTaken); scale.Create > 0 && len(taken) > 0 {
		found := p.lookFor(ctx, taken, nil)
		for _, n := range taken {
			f := found[n.NamespacedName]
			if holder, _ := p.snapshot.Rules.Holder(f.child); !f.there || holder == ledger.Replica {
				facts.CreationsInFlight = append(facts.CreationsInFlight, n.Name)
			}
		}
	}
	room, err := replicas.RoomOf(slices.Concat(p.Active, p.Terminating), withFacts(p.spec, facts))
	if err != nil {
		p.addError(err)
		return replicas.Scale[C]{}
	}
	// created <= wanted - active - undecided adoptions - other creations in flight, and
	// deleted <= staying - wanted - other deletions in flight. No later step makes more calls than that.
	scale = room.Clamp(scale)
	p.calls.setRoom(len(scale.Update), scale.Create, len(scale.Delete))
	return scale
}

// reportScaling reports to this library's own tests what the pass is about to create and delete.
func (p *pass[O, C]) reportScaling(ctx context.Context, scale replicas.Scale[C]) {
	inside.Scaling(ctx, p.Owner, p.notDoubted(scale), scale)
}

// noteRound adds the created children to the rounds of their groups.
func (p *pass[O, C]) noteRound() {
	if !p.backOff {
		return
	}
	made, first := map[string]int{}, map[string]time.Time{}
	for _, c := range p.Created {
		group, at := p.groupOf(c), c.GetCreationTimestamp().Time
		if made[group]++; made[group] == 1 || at.Before(first[group]) {
			first[group] = at
		}
	}
	for group, n := range made {
		p.state.rounds.created(group, n, first[group], p.opts.Now())
	}
}

// noteDeleted takes a deleted child that was surplus, or had done its work, out of its round.
func (p *pass[O, C]) noteDeleted(v replicas.Deletion[C]) {
	// But a child that must go counts as ended soon. Otherwise, if that is so for each new one, they would be replaced as
	// fast as calls go.
	if !v.Replaced && (p.rules.Active(v.Object) || p.hasEndedWell(v.Object)) {
		p.state.rounds.drop(v.Object)
	}
}
