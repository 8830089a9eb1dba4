// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/mergepatch"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/status"
)

// An Outcome contains the results of a pass. Kind.Status computes an owner's status from these results.
type Outcome[C Object] struct {
	// Counts holds the numbers of children after the pass, as counted by the Rules of the Spec. It includes the effects of
	// the pass that the cache does not show yet: children that it created count, and those that it deleted count as
	// terminating or not at all. But if Cache.ChildrenVersion returns "", Counts is from before the pass, too, and counts
	// only the children in Active and Terminating.
	Counts status.Counts
	// Active lists the active children, and Terminating those that are being deleted and are not active. Both are from
	// before the pass created or deleted children, while Counts is from after it. So after a pass that created two
	// children, Counts.Replicas is usually len(Active)+2.
	Active, Terminating []C
	// Updated is the number of children in Active that need not go, and need no change after this pass. These are all of
	// them, unless Spec.Update, Rules.MustGo or Rules.ReadyWithin is set.
	Updated int32
	// Groups contains the numbers of each group, in the order of Spec.Groups, or is nil if the Spec has no groups. Groups
	// that are no longer listed and children of no group are left out, so the sums may be below those of the owner.
	Groups []GroupOutcome
	// Ended lists the children that have ended, because Rules.Failed or Rules.Discard returns true for them, and that were
	// not being deleted before the pass. The pass that replaces such a child also deletes it. But after a deletion that
	// fails, the child is in Ended again, so a status that counts all failures must know the UIDs that it has counted.
	Ended []C
	// Desired is the number of children that the owner wanted when the pass began. Generation is the owner's
	// generation when the pass began.
	Desired    int32
	Generation int64
	// Gates lists what has held the pass back so far, and is empty if nothing has. It is in the order of the reasons, which
	// puts the cause first; see GateReason.
	Gates []Gate
	// ScaleErr is the error of all failed creations and deletions, or nil if none failed.
	ScaleErr error
	// Now is the time at which the pass began. The pass judges all children as of that time.
	Now time.Time

	unscaled Stops // whether creations, deletions or both have failed
}

// A GroupOutcome contains the numbers of one group.
type GroupOutcome struct {
	// Name is the name of the group. Desired is the number of children that it wanted when the pass began. Updated and
	// Counts are what they are in an Outcome.
	Name             string
	Desired, Updated int32
	Counts           status.Counts
}

// Waiting reports whether something else must happen before the Controller can change the number of children. For
// example, the cache does not show earlier calls yet, a claim failed, a deletion met a Conflict, or the owner is being
// deleted.
func (o Outcome[C]) Waiting() bool {
	return slices.ContainsFunc(o.Gates, func(g Gate) bool { return g.waits || g.Reason.row().waits })
}

// HeldBack reports whether the pass skipped creations, deletions or claims that an earlier pass had postponed.
func (o Outcome[C]) HeldBack() bool {
	return slices.ContainsFunc(o.Gates, func(g Gate) bool { return g.Earlier && g.Stops != 0 })
}

// Failure returns the argument for status.SetFailure, which sets the ReplicaFailure condition. Its Active is the number
// of active children. But if only deletions failed although there are not too many, for example because a rule required
// them, Active is one more than Desired, so that the condition's reason is FailedDelete.
func (o Outcome[C]) Failure() status.Failure {
	desired := o.Desired
	f := status.Failure{
		Err: o.ScaleErr, Waiting: o.Waiting(), Active: int32(len(o.Active)), Desired: &desired,
		ObservedGeneration: o.Generation, Now: o.Now,
	}
	if o.unscaled == StopsDeletions && f.Active <= o.Desired && o.Desired < math.MaxInt32 {
		f.Active = o.Desired + 1
	}
	return f
}

// report counts the children and writes the status.
func (p *pass[O, C]) report(ctx context.Context) {
	// Counts come first, because Kind.Status computes the status from them.
	children := p.census()
	p.Counts = p.count(children)
	p.Updated = int32(len(p.Active) - p.own.plan.Scale.Outdated)
	for _, c := range p.Changed {
		if neededChange(p.spec.Update, c).IsZero() {
			p.Updated++
		}
	}
	p.countGroups(children)
	if p.kind.Status != nil {
		p.missReady() // before the status, which can show the gate
		p.writeStatus(ctx, func(owner O) error { return p.kind.Status(owner, p.Outcome) })
	}
	// The status write took five of the 15 seconds until the next pod becomes available. So the delay is computed after
	// it, and is ten (M1, M2).
	if after := p.nextAvailable(children.counted); after > 0 {
		p.requeueAfter(after)
	}
}

// A census holds the children that the status counts.
type census[C Object] struct {
	counted []C // those that count as replicas
	leaving []C // those that may count as terminating
	deleted []C // those that this or an earlier pass has deleted, and that count as terminating alone
}

// census finds the children for the status.
func (p *pass[O, C]) census() (children census[C]) {
	hasVersion, recalled := p.snapshot.Version != "", p.recalledToActive()
	children.leaving = p.Terminating
	if hasVersion {
		// web-a had no node, so its deletion removed it at once, but the cache shows it as terminating for a moment.
		children.leaving = slices.DeleteFunc(slices.Clone(children.leaving), vanishes)
	}
	stay, come, leave := p.state.ledger.Split(p.Active)
	if !hasVersion { // nothing says what the cache shows already, so the children count as it has them
		children.counted = append(slices.Clip(stay), leave...)
		return children
	}
	if len(recalled) > 0 {
		ids := sets.New(idsIn(recalled)...)
		children.leaving = filter(children.leaving, func(c C) bool { return !ids.Has(object.ID(c)) })
	}
	// Kubernetes counts what the cache shows, so each creation and deletion takes two status writes, and the first one is
	// wrong. Here the children count as the pass leaves them, until the cache shows that (T1).
	children.counted = slices.Concat(stay, come, p.Created, recalled)
	for _, c := range leave {
		switch {
		case !lingers(c):
		case p.staysActive(c):
			children.counted = append(children.counted, c)
		default:
			children.deleted = append(children.deleted, c)
		}
	}
	return children
}

// staysActive reports whether a child still counts as active while it is being deleted.
func (p *pass[O, C]) staysActive(c C) bool {
	if p.spec.Rules.Active == nil { // by the default rule it does not
		return false
	}
	deleted, err := copyOf(c)
	if err != nil {
		return false
	}
	deleted.SetDeletionTimestamp(&metav1.Time{Time: p.Now})
	return p.rules.Active(deleted)
}

func (p *pass[O, C]) count(children census[C]) status.Counts {
	counts := p.tally(append(slices.Clip(children.counted), children.leaving...))
	counts.Terminating += int32(len(children.deleted))
	return counts
}

// tally counts the children by the Kind's rules, and pods as in the status of a ReplicaSet.
func (p *pass[O, C]) tally(children []C) status.Counts {
	counting := func() status.Rules[C] {
		return status.Rules[C]{Active: p.rules.Active, Ready: p.rules.Ready, Available: p.rules.Available, Terminating: p.isTerminating}
	}
	pods, arePods := any(children).([]*corev1.Pod)
	if !arePods {
		return status.Count(children, counting())
	}
	template := p.unselectedLabels()
	if own := p.spec.Rules; own.Active == nil && own.Leaving == nil && own.Ready == nil && own.NoneEnds() { // in the usual case, read the conditions only once
		return status.CountPods(pods, template, p.spec.MinReadySeconds, p.Now)
	}
	rules, _ := any(counting()).(status.Rules[*corev1.Pod])
	labels := object.ListLabels(template)
	rules.FullyLabeled = func(c *corev1.Pod) bool { return labels.In(c.Labels) }
	rules.Available = func(c *corev1.Pod) bool { return status.IsPodAvailable(c, p.spec.MinReadySeconds, p.Now) }
	return status.Count(pods, rules)
}

// unselectedLabels returns the labels of the template that the selector does not require. All children that the plan counts
// matched the selector, so they had the others. One that a later look of the same pass shows without them counts once more.
func (p *pass[O, C]) unselectedLabels() (unselected map[string]string) {
	if p.spec.Template == nil {
		return nil
	}
	for key, value := range p.spec.Template.Labels {
		if required, is := p.spec.Selector.RequiresExactMatch(key); is && required == value {
			continue
		}
		if unselected == nil {
			unselected = map[string]string{}
		}
		unselected[key] = value
	}
	return unselected
}

// countGroups counts the children of each group.
func (p *pass[O, C]) countGroups(children census[C]) {
	if p.spec.GroupOf == nil {
		return
	}
	groups := groupsIn(p.spec)
	p.Groups = make([]GroupOutcome, len(groups))
	for i, g := range groups {
		in := func(list []C) []C { return filter(list, func(c C) bool { return p.groupOf(c) == g.Name }) }
		outcome := GroupOutcome{Name: g.Name, Desired: g.Replicas, Updated: int32(len(in(p.Active)))}
		outcome.Counts = p.count(census[C]{counted: in(children.counted), leaving: in(children.leaving), deleted: in(children.deleted)})
		for _, part := range p.own.plan.Scale.Groups {
			if part.Name == g.Name {
				outcome.Updated -= int32(part.Scale.Outdated)
			}
		}
		for _, c := range in(p.Changed) {
			if neededChange(p.spec.Update, c).IsZero() {
				outcome.Updated++
			}
		}
		p.Groups[i] = outcome
	}
}

// readyPatience is how old a child gets before a missing rule for ready children is reported.
const readyPatience = time.Minute

// missReady records a gate if the Kind has no rule for ready children.
func (p *pass[O, C]) missReady() {
	if p.rules.Ready != nil || p.rules.Available != nil {
		return
	}
	for _, c := range p.Active {
		created := c.GetCreationTimestamp()
		switch wait := created.Add(readyPatience).Sub(p.Now); {
		case created.IsZero():
		case wait > 0:
			p.requeueAfter(wait)
		default: // the author forgot the rule, so the status says for ever that no child is ready
			p.gate(ReadyUnset, "", 0, nil)
			return
		}
	}
}

// writeStatus writes the status that set computes, with at most two calls.
func (p *pass[O, C]) writeStatus(ctx context.Context, set func(owner O) error) {
	err := p.patchStatus(ctx, p.Owner, set)
	if err != nil && apierrors.IsConflict(err) {
		// Someone has scaled the owner, and the cache does not show that yet. As an error, the status would wait for the rate
		// limiter. So it is written once more, to the owner that the server has (U3).
		var fresh O
		if fresh, err = p.readSame(ctx); err == nil {
			err = p.patchStatus(ctx, fresh, set)
		}
	}
	switch {
	case err == nil:
	case apierrors.IsNotFound(err) && p.Owner.GetDeletionTimestamp() != nil && p.spec.Finalizer != "":
		// Prepare has removed the last finalizer, and the owner with it.
	default:
		p.StatusErr = fmt.Errorf("controller: writing status of %s %q: %w", p.kind.Owner.Kind, object.Name(p.Owner), err)
		p.errs = slices.Insert(p.errs, 0, p.StatusErr) // the error of the status comes first (U5)
	}
}

// readSame reads the owner from the server, and returns an error if it is another one.
func (p *pass[O, C]) readSame(ctx context.Context) (O, error) {
	fresh, err := p.fetchOwner(ctx)
	switch {
	case err != nil:
		return fresh, err
	case fresh.GetUID() != p.Owner.GetUID(): // it was created again under its name, and these are not its numbers
		return fresh, fmt.Errorf("original is gone: got uid %s, wanted %s", fresh.GetUID(), p.Owner.GetUID())
	}
	return fresh, nil
}

// patchStatus computes the status of an owner, and writes it if it has changed.
func (p *pass[O, C]) patchStatus(ctx context.Context, owner O, set func(owner O) error) error {
	updated, err := copyOf(owner) // the cache shares the owner with others
	if err != nil {
		return err
	}
	if err := set(updated); err != nil {
		return err
	}
	// Each write wakes all who watch the owner, so the same status is not written again.
	if p.sameStatus(owner, updated) {
		return nil
	}
	if err := onlyStatus(owner, updated); err != nil { // the patch has the status alone, so the rest would be lost in silence
		p.reportFaultyStatus(err)
		return err
	}
	patch, after, err := p.statusPatch(owner, updated)
	if err != nil || len(patch.Data) == 0 {
		return err
	}
	last := &p.state.sentStatus
	again, delay := reflect.DeepEqual(last.sent, after), last.Hold
	before, _ := p.statusJSON(owner)
	isKept := reflect.DeepEqual(before, last.kept)
	if !isKept {
		// The server drops a field, so the wait has grown to half an hour. Then another client changes the rest, which is
		// worth a write after a minute.
		delay.Wait = min(delay.Wait, statusHoldLast)
	}
	if wait := delay.Remaining(p.Now); again && wait > 0 { // before the call, or each event of a child would bring one
		p.gate(StatusUndone, "", wait, nil)
		return nil
	}
	stored, err := p.sendStatus(ctx, updated, patch)
	if err != nil {
		return err
	}
	p.Status = stored
	p.repeats(isKept && !again)
	now := p.opts.Now()
	again = again && now.Sub(last.Since) <= 2*max(last.Wait, statusHoldLast) // after a longer time the waits begin anew
	if last.sent = after; !again {
		last.Hold = backoff.Hold{Since: now}
	}
	if last.kept, _ = p.statusJSON(stored); !reflect.DeepEqual(last.kept, after) {
		// A server before 1.35 drops terminatingReplicas each time, and one that is at fault drops a status once.
		last.Double(now, statusHoldLast, time.Hour)
	} else if again {
		// A webhook, or a second process, writes another status after each of our writes. Without a wait, the two would wake
		// each other and never come to rest.
		last.Double(now, time.Second, statusHoldLast)
	}
	return nil
}

func (p *pass[O, C]) sameStatus(a, b O) bool {
	before, after := p.statusOf(a), p.statusOf(b)
	return reflect.DeepEqual(before, after) || equality.Semantic.DeepEqual(before, after) // reflect.DeepEqual is faster, and returns true in most cases
}

func (p *pass[O, C]) statusOf(owner O) any {
	if p.kind.StatusOf == nil {
		return owner
	}
	return p.kind.StatusOf(owner)
}

// onlyStatus returns an error that says what Kind.Status has changed other than the status.
func onlyStatus(owner, updated any) error {
	if sameBesideStatus(owner, updated) {
		return nil
	}
	var oldFields, newFields map[string]json.RawMessage
	err := joinErrors(recode(owner, &oldFields), recode(updated, &newFields))
	for _, fields := range []map[string]json.RawMessage{oldFields, newFields} {
		maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return strings.EqualFold(name, "status") })
	}
	if err != nil || reflect.DeepEqual(oldFields, newFields) {
		return err
	}
	var before, after map[string]any
	err = joinErrors(recode(oldFields, &before), recode(newFields, &after))
	return joinErrors(err, fmt.Errorf("Kind.Status may change the status alone, and has changed %v", mergepatch.Difference(before, after)))
}

// sameBesideStatus reports whether all fields of two structs but Status are equal, without the JSON that each status
// write of an owner with a large template would pay for. Structs that differ may still have the same JSON.
func sameBesideStatus(owner, updated any) bool {
	before, after := reflect.Indirect(reflect.ValueOf(owner)), reflect.Indirect(reflect.ValueOf(updated))
	if before.Kind() != reflect.Struct {
		return false
	}
	for i := range before.NumField() {
		field := before.Type().Field(i)
		if field.Name != "Status" && field.IsExported() && !reflect.DeepEqual(before.Field(i).Addr().Interface(), after.Field(i).Addr().Interface()) {
			return false
		}
	}
	return true
}

func (p *pass[O, C]) reportFaultyStatus(err error) {
	p.sendEventOnce(StatusFaulty, "Error writing the status: "+err.Error())
	p.gate(StatusFaulty, "", 0, err)
}

// statusPatch returns a patch that sets the new status of an owner, or none if that is the old one, and the new status.
func (p *pass[O, C]) statusPatch(owner, updated O) (patch selector.Patch, after map[string]any, err error) {
	before, err := p.statusJSON(owner)
	after, otherErr := p.statusJSON(updated)
	// Two conditions differ by a millisecond, which the JSON of a metav1.Time leaves out. So there is nothing to send.
	if err = joinErrors(err, otherErr); err != nil || reflect.DeepEqual(before, after) {
		return patch, after, err
	}
	var body struct {
		Metadata struct {
			UID             types.UID `json:"uid,omitempty"`
			ResourceVersion string    `json:"resourceVersion,omitempty"`
		} `json:"metadata"`
		Status map[string]any `json:"status"`
	}
	// Another client may write to the status meanwhile, so the patch carries the version. Of the owner it has the status
	// alone, because the cache may drop the template. But it has all of the status: a new owner has none on the server, and
	// its schema requires replicas, although they are 0 before and after.
	body.Metadata.UID, body.Metadata.ResourceVersion, body.Status = owner.GetUID(), owner.GetResourceVersion(), mergepatch.Between(before, after)
	data, err := json.Marshal(body)
	return selector.Patch{Type: types.MergePatchType, Data: data}, after, err
}

func (p *pass[O, C]) statusJSON(owner O) (map[string]any, error) {
	var source any = owner
	if p.kind.StatusOf != nil {
		source = map[string]any{"status": p.kind.StatusOf(owner)}
	}
	var decoded struct {
		Status map[string]any `json:"status"`
	}
	err := recode(source, &decoded)
	return decoded.Status, err
}

// recode decodes the JSON of one value into another one.
func recode(source, target any) error {
	text, err := json.Marshal(source)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float64 would round a large number
	return decoder.Decode(target)
}

// statusHoldLast is the longest wait before a status is sent again that another client has changed, after a second at
// first. If the server itself did not store the status, it is the shortest wait, which doubles up to an hour.
const statusHoldLast = time.Minute

// sendStatus sends a status patch, and records the version of the owner that the server returns.
func (p *pass[O, C]) sendStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	written, err := p.askStatus(ctx, owner, patch)
	if err == nil && object.IsNil(written) {
		err = errNoObject
	}
	if apierrors.IsNotFound(err) && !p.held(OwnerUnread, "", "", "") {
		// The owner is gone, or its CustomResourceDefinition has no sub-resource status. A read says which of the two.
		if fresh, readErr := p.fetchOwner(ctx); readErr == nil && fresh.GetUID() == owner.GetUID() {
			err = fmt.Errorf("%w: the owner exists, so the kind %s has no sub-resource status: its CustomResourceDefinition needs subresources: {status: {}}", err, p.kind.Owner.Kind)
		}
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w (the right to patch %s/status in the group %q is needed)", err, p.ownerResource.Resource, p.kind.Owner.Group)
		p.sendEventOnce(StatusForbidden, "Error writing the status: "+err.Error())
		p.gate(StatusForbidden, "", StatusForbidden.row().shortest, err)
	}
	if err != nil || written.GetUID() != owner.GetUID() { // the answer says nothing about the owner
		return written, err
	}
	if owner.GetResourceVersion() != "" && owner.GetGeneration() != written.GetGeneration() {
		p.statusCounts.Store(true) // no other write can have changed the generation, because the patch has a resourceVersion
	}
	// The event of this write need not wake a pass. But after a Conflict the status was written to a newer owner, which may
	// want something else.
	p.state.wrote.end(written.GetResourceVersion(), !p.samePlan(written))
	p.observeOwner(written) // so that the next pass waits until the cache shows it (X9)
	return written, nil
}

// outcomes is the seed of the hashes of outcomes, which are compared within one process.
var outcomes = maphash.MakeSeed()

// repeats counts the status writes in a row that neither another client nor another outcome has caused.
func (p *pass[O, C]) repeats(isOwn bool) {
	var hash maphash.Hash
	hash.SetSeed(outcomes)
	_, _ = fmt.Fprint(&hash, p.Generation, p.Desired, p.Counts, p.Updated, p.Groups, p.Gates, p.ScaleErr)
	for _, c := range slices.Concat(p.Active, p.Terminating, p.Ended) {
		_, _ = hash.WriteString(string(object.ID(c)))
		_, _ = hash.WriteString(c.GetResourceVersion())
	}
	last, outcome := &p.state.sentStatus, hash.Sum64()
	if last.repeated++; !isOwn || last.outcome != outcome || p.Generation == 0 { // without a generation, the spec may have changed
		last.repeated = 0
	}
	// A condition had the time of the pass, so each pass of 2,000 owners wrote a status that said nothing new.
	if last.outcome = outcome; last.repeated >= 3 {
		p.reportFaultyStatus(errors.New("Kind.Status has set another status four times in a row for the same outcome: for example, it must not put the time of the pass into it"))
	}
}

// nextAvailable returns the time until the next child becomes available, or has been unready for Rules.ReadyWithin. It
// returns 0 if no child will.
func (p *pass[O, C]) nextAvailable(counted []C) (after time.Duration) {
	if pods, ok := any(counted).([]*corev1.Pod); ok {
		after = p.nextPodAvailable(pods)
	}
	if !p.remembers {
		p.state.ready.keep(nil)
		return after
	}
	now, rules, minReady := p.opts.Now(), p.rules, time.Duration(p.spec.MinReadySeconds)*time.Second
	wait := func(from time.Time, d time.Duration) {
		if at := from.Add(d); d > 0 && at.After(p.Now) { // compared with p.Now, because the children were judged as of p.Now
			after = earliest(after, max(at.Sub(now), 1))
		}
	}
	ids := make(sets.Set[types.UID], len(counted))
	for _, c := range counted {
		ids.Insert(object.ID(c))
		if rules.Ready(c) {
			wait(p.readySince(c), minReady)
		} else {
			wait(rules.NotReadySince(c), rules.ReadyWithin)
		}
	}
	p.state.ready.keep(ids)
	return after
}

// nextPodAvailable returns the time until the next pod becomes available, or 0.
func (p *pass[O, C]) nextPodAvailable(pods []*corev1.Pod) (after time.Duration) {
	if p.Counts.Ready == p.Counts.Available {
		return 0
	}
	for _, c := range pods { // as of p.Now, like the counts, so that no pod becomes available in between
		after = earliest(after, pod.AvailableIn(c, p.spec.MinReadySeconds, p.Now))
	}
	if after == 0 {
		return 0
	}
	return max(after-p.opts.Now().Sub(p.Now), 1) // less the time that the pass took (M2)
}
