// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
)

// creations holds the state of the creation step of a pass.
type creations[O, C Object] struct {
	*pass[O, C]
	scale    replicas.Scale[C]
	newborns map[string]newborn[C] // see creationsNotHeld
	each     []*creation[C]
	parts    []*part[C]
	start    ledger.Moment // when the calls began
}

// A creation is one child to create, with the result of its Create call.
type creation[C Object] struct {
	i     int                  // the index in the scale
	slot  bool                 // whether the child has a slot
	named bool                 // whether the name of the child is its slot
	name  types.NamespacedName // zero if no call was made
	made  bool
	child C // as the server returned it
	err   error
}

// A place is where creations succeed or fail together. The namespace of one may be full or gone, and the template of one
// group may be refused, while the others go on.
type place struct{ namespace, group string }

// String returns the name of the place, which is also the key of its holds.
func (p place) String() string {
	if p.group == "" {
		return p.namespace
	}
	return p.namespace + "/" + p.group
}

// A part contains the creations of the pass in one place.
type part[C Object] struct {
	place
	each   []*creation[C]
	result slowstart.Result
}

// A newborn is a child to create for a cluster-scoped owner. Spec.New is called once for it, because each call might
// choose another namespace.
type newborn[C Object] struct {
	namespace string
	child     C
	err       error
}

// creationsNotHeld returns the scale without the creations that a hold delays, and of a cluster-scoped owner the children
// to create, keyed by name.
func (p *pass[O, C]) creationsNotHeld(scale replicas.Scale[C]) (less replicas.Scale[C], newborns map[string]newborn[C]) {
	if p.kind.ClusterScoped {
		newborns = make(map[string]newborn[C], len(scale.Names))
	}
	held, names := map[place]bool{}, []string(nil)
	for i, name := range scale.Names {
		if p.held(CreationInFlight, name, name, "") {
			continue
		}
		at := place{p.Owner.GetNamespace(), scale.Group(i)}
		if p.kind.ClusterScoped {
			var b newborn[C]
			if b.child, b.err = scale.New(i); b.err == nil {
				// The creation of web-bbbbb in namespace a had no answer, and New chooses b today. Sent to b, it could make
				// a second child, so it is sent to a again.
				if namespace, sent := p.state.ledger.SentTo(name); sent {
					b.child.SetNamespace(namespace)
				}
				b.namespace = b.child.GetNamespace()
			}
			at.namespace, newborns[name] = b.namespace, b
		}
		if _, asked := held[at]; !asked {
			held[at] = p.creationsHeld(at)
		}
		if !held[at] {
			names = append(names, name)
		}
	}
	scale.Create, scale.Names = len(names), names
	return scale, newborns
}

// creationsHeld reports whether creations in a place are on hold. Each reason is asked, so that each has its gate.
func (p *pass[O, C]) creationsHeld(at place) (isHeld bool) {
	if len(p.state.holds) == 0 {
		return false
	}
	for _, reason := range []GateReason{NamespaceGoing, QuotaFull, RetryAfter, CreationFailed, ChangedByWebhook} {
		isHeld = p.held(reason, at.String(), at.String(), p.roomInQuota(at.namespace, nil)) || isHeld
	}
	return isHeld
}

// roomInQuota returns how many more of the owner's children there could be in a namespace, as the version of a hold.
func (p *pass[O, C]) roomInQuota(namespace string, created []C) string {
	n := math.MaxInt
	// Terminating ones count: web-c was deleted, but until it is gone, its quota is not free, and a creation would fail.
	for _, c := range slices.Concat(p.Active, p.Terminating, created) {
		if c.GetNamespace() == namespace {
			n--
		}
	}
	return strconv.Itoa(n)
}

// create creates children with slow start, 0 <= created + lost <= scale.Create, because it sends each name of the scale
// once. Later passes create and delete nothing until the cache shows the new children (K1, K2).
func (p *pass[O, C]) create(ctx context.Context, scale replicas.Scale[C], newborns map[string]newborn[C]) *creations[O, C] {
	c := &creations[O, C]{pass: p, scale: scale, newborns: newborns}
	hasSlots := map[string]bool{}
	for _, g := range groupsIn(p.spec) {
		hasSlots[g.Name] = g.Slots != nil
	}
	for i := range scale.Create {
		c.each = append(c.each, &creation[C]{i: i, slot: hasSlots[scale.Group(i)], named: p.view.wanted != nil})
	}
	c.send(ctx)
	c.deleteNewStrays(ctx)
	return c
}

// send makes the calls, with a slow start for each place.
func (c *creations[O, C]) send(ctx context.Context) {
	c.parts, c.start = c.inParts(), c.state.ledger.Start()
	call := func(part *part[C]) {
		// A webhook denies all of 500 pods. With slow start that is one call in each pass, and not 500.
		opts := slowstart.Options{MaxParallel: max(c.opts.MaxParallel/len(c.parts), 1)}
		part.result = slowstart.Run(ctx, len(part.each), opts, func(ctx context.Context, i int) error {
			return c.createOne(ctx, part.each[i])
		})
	}
	if len(c.parts) == 1 {
		call(c.parts[0])
		return
	}
	// If the context has ended, each part must still run to say what it has skipped, so only its slow start sees that.
	slowstart.Run(context.WithoutCancel(ctx), len(c.parts), c.allAtOnce(len(c.parts)), func(_ context.Context, n int) error {
		call(c.parts[n])
		return nil
	})
}

func (c *creations[O, C]) inParts() (parts []*part[C]) {
	for _, e := range c.each {
		at := place{c.Owner.GetNamespace(), c.scale.Group(e.i)}
		if c.newborns != nil {
			at.namespace = c.newborns[c.scale.Names[e.i]].namespace
		}
		n := slices.IndexFunc(parts, func(p *part[C]) bool { return p.place == at })
		if n < 0 {
			n, parts = len(parts), append(parts, &part[C]{place: at})
		}
		parts[n].each = append(parts[n].each, e)
	}
	return parts
}

// createOne makes one call. An error that it returns ends the slow start, because the next call would fail too.
func (c *creations[O, C]) createOne(ctx context.Context, e *creation[C]) error {
	child, err := c.childFor(e.i)
	if e.err = err; err != nil {
		if e.slot {
			return nil // other slots may succeed
		}
		return err
	}
	e.name, e.err = nameOf(child), errNoAnswer // the client may panic
	e.child, e.err = c.askCreate(ctx, c.start, child)
	if e.made = e.err == nil; e.made {
		c.sendCreateEvent(e.name.Name) // now, because the other calls may take long
	}
	if e.isSlotTaken() {
		return nil // other slots may succeed
	}
	return e.err
}

// childFor returns the object that the i-th creation sends to the server.
func (c *creations[O, C]) childFor(i int) (C, error) {
	if c.newborns != nil {
		b := c.newborns[c.scale.Names[i]]
		return b.child, b.err
	}
	return c.scale.New(i)
}

// suffix returns a random suffix for a name, in the form that the API server uses for generateName.
func suffix(random func(n int) int) string {
	const letters = 27 // number of different characters in the results of SafeEncodeString
	b := make([]byte, 5)
	for i := range b {
		b[i] = byte(random(letters))
	}
	return rand.SafeEncodeString(string(b))
}

func (c *creations[O, C]) deleteNewStrays(ctx context.Context) {
	for _, e := range c.each {
		if !errors.As(e.err, new(notOursError)) {
			continue
		}
		// The webhook takes the labels from each new pod, and none of them counts. Each pass would leave one more.
		if err := c.dropStray(ctx, e.child, nil); err != nil {
			e.err = notOursError{fmt.Errorf("%w; %w", e.err, err)}
		}
	}
}

// A notOursError reports that a new child came with other labels or owner references and is not the owner's.
type notOursError struct{ error }

func newNotOursError[C Object](c C) error {
	return notOursError{fmt.Errorf("%q does not belong to the owner: the server returned it with the labels %q and %d owner references", c.GetName(), labels.Set(c.GetLabels()), len(c.GetOwnerReferences()))}
}

// takenNames returns the names that another object has, as the server says.
func (c *creations[O, C]) takenNames() (names []types.NamespacedName) {
	if c == nil {
		return nil
	}
	for _, e := range c.each {
		// The last request of an earlier process has just made web-0, and this process does not know it. The answer
		// AlreadyExists settles the name, but the object is the owner's child, so it must be looked for.
		if _, open := c.state.ledger.SentTo(e.name.Name); !open && apierrors.IsAlreadyExists(e.err) {
			names = append(names, e.name)
		}
	}
	return names
}

// conclude decides what became of the creations without an answer, and reports the errors.
func (c *creations[O, C]) conclude(found findings[C]) {
	if c == nil {
		return
	}
	for _, e := range c.each {
		if f := found[e.name]; f.there && e.err != nil && !errors.As(e.err, new(notOursError)) {
			c.countFound(e, f)
		}
		if !e.made {
			c.sendCreateFailedEvent(e.err)
			continue
		}
		c.Created = append(c.Created, e.child)
		if !c.controls(e.child) {
			c.requeueAfter(1) // a webhook took the owner reference but not the labels, and the next pass adopts the child
		}
	}
	c.noteRound()
	for _, part := range c.parts {
		c.concludePart(part)
	}
	c.holdNames()
}

// countFound decides about an object that exists although its creation failed.
func (c *creations[O, C]) countFound(e *creation[C], f finding[C]) {
	switch found := f.child; {
	case !c.controls(found) && !c.isOurs(found) || !c.rules.Active(found): // it has the name, but is no replica
	case !c.isOurs(found):
		e.err = c.letGo(f.start, found)
	default: // the answer was lost, and the cache does not show the child yet
		c.sendCreateEvent(found.GetName())
		e.made, e.child, e.err = true, found, nil
	}
}

// letGo leaves a found child that does not match the selector to the next pass, which releases it.
func (p *pass[O, C]) letGo(start ledger.Moment, c C) error {
	// The creation had no answer, and the child has other labels. The answer would have shown whether a webhook changed
	// them. But a user may have done it since, to look into the pod, so the child is not deleted like a stray.
	p.observe(start, c)
	return notOursError{fmt.Errorf("%q exists, but its labels %q do not match: it is left alone", c.GetName(), labels.Set(c.GetLabels()))}
}

func (p *pass[O, C]) sendCreateEvent(name string) {
	p.event(corev1.EventTypeNormal, SuccessfulCreate, "Created "+p.childNoun()+": "+name)
}

func (p *pass[O, C]) sendCreateFailedEvent(err error) {
	// A refusal by Spec.New has one event of its own. A namespace that is being deleted takes its owners with it, so that
	// it accepts no pods needs no event.
	if _, refused := asRefused(err); err != nil && !refused && !namespaceIsGoing(err) {
		p.event(corev1.EventTypeWarning, FailedCreate, "Error creating: "+err.Error())
	}
}

// concludePart counts the failures in one place, and decides whether further creations there are held.
func (c *creations[O, C]) concludePart(part *part[C]) {
	var errs []error
	key, run := part.String(), part.result
	for _, f := range run.Failed {
		e := part.each[f.Index]
		if e.made { // its answer was lost
			continue
		}
		if e.err != nil { // err is nil if Spec.New called runtime.Goexit
			f.Err = e.err
		}
		errs = append(errs, f.Err)
		c.refuse(f.Err)
	}
	c.Failed += len(errs)
	c.Skipped += run.Skipped
	if len(errs) < len(part.each)-run.Skipped { // one has succeeded, so the next failure is a new one with a short hold
		c.state.holds.end(key, NamespaceGoing, QuotaFull, RetryAfter, CreationFailed)
	}
	if len(run.Failed) > 0 { // otherwise, run.Err says why nothing was called
		run.Err = joined.Errors(errs)
	}
	if run.Err == nil {
		c.state.holds.end(key, ChangedByWebhook)
		if run.Skipped > 0 {
			// The first of 20 creations had no answer, so slow start has stopped, but its child is there. Nothing has failed,
			// so the next pass goes on at once with the other 19, and not after the delay of the rate limiter.
			c.gate(CreationInFlight, "", 1, nil)
		}
		return
	}
	if c.namespaceEnds(key, errs) {
		return
	}
	c.holdAfter(part.place, errs)
	err := joined.Summary(run.Err, errs)
	c.addScaleError(StopsCreations, err)
	c.addError(c.failure("creating %s: %w", c.childResource.Resource, err))
}

// namespaceEnds holds creations if the namespace is being deleted or gone, and reports whether all failures come from
// that. Then they are no error of the pass, because such a namespace accepts no child again.
func (p *pass[O, C]) namespaceEnds(key string, errs []error) bool {
	i := slices.IndexFunc(errs, namespaceIsGoing)
	if i < 0 {
		return false
	}
	p.holdCalls(NamespaceGoing, key, key, errs[i])
	return !slices.ContainsFunc(errs, func(err error) bool { return err != nil && !namespaceIsGoing(err) })
}

// holdAfter holds creations that would probably fail again at once.
func (p *pass[O, C]) holdAfter(at place, errs []error) {
	key := at.String()
	if i := slices.IndexFunc(errs, quotaIsFull); i >= 0 {
		// No event of the owner says when the quota has room, unless one of its children goes. Two that this pass created
		// before the quota was full are not in the view yet, but the end of one of them must end the hold.
		p.holdCalls(QuotaFull, key, key, errs[i]).version = p.roomInQuota(at.namespace, p.Created)
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return errors.As(err, new(notOursError)) }); i >= 0 { // or each pass would create a child and delete it
		p.holdCalls(ChangedByWebhook, key, key, errs[i])
	}
	if i := slices.IndexFunc(errs, apierrors.IsInternalError); i >= 0 {
		p.holdCalls(CreationFailed, key, key, errs[i])
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return serverDelay([]error{err}) > 0 }); i >= 0 {
		p.holdFor(RetryAfter, key, serverDelay(errs), errs[i])
	}
}

// holdNames holds the creations whose names are taken or had no answer again, and reports what failed for single slots.
func (c *creations[O, C]) holdNames() {
	var taken, unmade []error
	for _, e := range c.each {
		switch {
		case e.made:
			c.state.holds.end(e.name.Name, NameTaken, CreationInFlight)
		case e.isSlotTaken():
			// Another owner's pod has the name web-1, and its end may wake no pass. Meanwhile other slots are filled.
			c.holdCalls(NameTaken, e.name.Name, e.name.Name, e.err)
			taken = append(taken, e.err)
		case c.isLost(e):
			// A webhook timed out, and the events of the other children sent the creation again four times a second.
			if key := (holdKey{CreationInFlight, e.name.Name}); c.state.holds[key] == nil {
				c.state.holds.getOrAdd(key.Reason, key.Key) // of no length, so that it is sent again at once
				continue
			}
			c.holdCalls(CreationInFlight, e.name.Name, e.name.Name, nil)
		case e.err != nil && e.name.Name == "" && e.slot: // Spec.New failed, and slow start went on with other slots
			c.refuse(e.err)
			unmade = append(unmade, e.err)
		}
	}
	if len(unmade) > 0 {
		c.addError(c.failure("creating %s: %w", c.childResource.Resource, joined.Errors(unmade)))
	}
	if len(taken)+len(unmade) == 0 {
		return
	}
	c.Failed += len(taken) + len(unmade)
	c.addScaleError(StopsCreations, joined.Errors(slices.Concat(taken, unmade)))
	if len(taken) > 0 && c.scale.Deferred > 0 {
		// With BurstReplicas 1 the plan names one slot at a time. The next pass must come while web-1 is held, or it would
		// try web-1 each time the hold is over, and web-2 never.
		c.requeueAfter(1)
	}
}

// isSlotTaken reports whether another object has the name of the slot.
func (e *creation[C]) isSlotTaken() bool {
	return e.slot && e.named && apierrors.IsAlreadyExists(e.err)
}

// isLost reports whether this or an earlier request may have created the child, although the creation failed.
func (c *creations[O, C]) isLost(e *creation[C]) bool {
	if e.err == nil || e.name.Name == "" || errors.As(e.err, new(notOursError)) {
		return false
	}
	_, open := c.state.ledger.SentTo(e.name.Name)
	return open || apierrors.IsAlreadyExists(e.err)
}

// holdCalls begins a hold after a failure, or lengthens it. Usually, its key is the name of the object.
func (p *pass[O, C]) holdCalls(reason GateReason, key, object string, why error) *hold {
	h := p.state.holds.getOrAdd(reason, key)
	reason.grow(&h.Hold, p.opts.Now())
	h.Wait, h.why = max(h.Wait, serverDelay([]error{why})), why
	p.gate(reason, object, h.Wait, why)
	return h
}

// holdFor holds calls for as long as the server asked.
func (p *pass[O, C]) holdFor(reason GateReason, key string, d time.Duration, why error) {
	*p.state.holds.getOrAdd(reason, key) = hold{Hold: backoff.Hold{Since: p.opts.Now(), Wait: d}, why: why}
	p.gate(reason, key, d, why)
}
