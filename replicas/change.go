// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/mergepatch"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/selector"
)

// InvalidChange is the RefusedError.Reason if a Change that Spec.Update returned cannot be made.
const InvalidChange = "InvalidChange"

// A Change is a child as it should be. Spec.Update returns it, and Scale.Update lists the changes to make now.
type Change[T metav1.Object] struct {
	// To is the child as it should be, usually a deep copy with other values. If To is nil or equal to the child,
	// nothing changes. The name, namespace, UID and owner references must be the child's, and the selector must
	// match the labels. To and Object are not modified.
	To T
	// Free means that the child stays available while it is changed. Free changes are made at once, whatever
	// Spec.MaxUnavailable says, and also of children that must stay.
	Free bool
	// OrReplace means that the child must go if the server refuses the change as Invalid, for example because
	// the field is immutable. If OrReplace is false, the child stays as it is, and the change is tried again.
	OrReplace bool
	// Subresource is the subresource to patch, such as "resize" or "status". If it is empty, the child itself is
	// patched. One Change has one subresource, so a child that needs two is changed in two plans.
	Subresource string
	// Object is the child that was judged. A plan sets it.
	Object T
	// Recall is true if the change takes back the mark of Spec.Retire. A plan sets it.
	Recall bool
}

// Patch returns the JSON merge patch that turns Object into To. It contains only what differs, and the UID and
// resourceVersion of Object. So if the child has changed since it was read, the server answers with a Conflict, and of
// all patches that were made from one version at most one takes effect. Without a UID or resourceVersion, as with fake
// clients, that value is omitted. Patch returns an error if the objects are nil or cannot be encoded.
//
// A merge patch replaces whole lists. If ReplacesList returns true and your cache drops fields, read the child from
// the server and make the Change from that object. A Controller does so.
func (c Change[T]) Patch() (selector.Patch, error) {
	diff, err := c.difference()
	if err != nil {
		return selector.Patch{}, err
	}
	meta, ok := diff["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		diff["metadata"] = meta
	}
	delete(meta, "resourceVersion")
	if id := c.Object.GetUID(); id != "" {
		meta["uid"] = id
	}
	if version := c.Object.GetResourceVersion(); version != "" {
		meta["resourceVersion"] = version
	}
	data, err := json.Marshal(diff)
	if err != nil {
		return selector.Patch{}, c.failure(err)
	}
	return selector.Patch{Type: types.MergePatchType, Data: data, Subresource: c.Subresource}, nil
}

// ReplacesList reports whether the patch contains a list.
func (c Change[T]) ReplacesList() bool {
	diff, err := c.difference()
	return err == nil && hasList(diff)
}

func hasList(v any) bool {
	if _, is := v.([]any); is {
		return true
	}
	fields, _ := v.(map[string]any)
	for _, field := range fields {
		if hasList(field) {
			return true
		}
	}
	return false
}

func (c Change[T]) difference() (map[string]any, error) {
	was, err := decoded(c.Object)
	if err != nil {
		return nil, c.failure(err)
	}
	is, err := decoded(c.To)
	if err != nil {
		return nil, c.failure(err)
	}
	return mergepatch.Difference(was, is), nil
}

func (c Change[T]) failure(err error) error {
	return fmt.Errorf("replicas: change of %q: %w", nameOf(c.Object), err)
}

// decoded returns the JSON fields of an object. Numbers keep their digits, because a float64 has too few for an int64.
func decoded(obj metav1.Object) (fields map[string]any, err error) {
	if object.IsNil(obj) {
		return nil, fmt.Errorf("there is no object")
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return fields, decoder.Decode(&fields)
}

// drift returns the changes that the active children need, in the order of the children. The result outdated counts
// the children that must go or need a change.
func (s *Spec[T]) drift(active []T) (changes []Change[T], outdated int, err error) {
	if s.Rules.MustGo == nil && s.Update == nil {
		return nil, 0, nil
	}
	for _, c := range active {
		if s.Rules.MustGo != nil && s.Rules.MustGo(c) {
			outdated++
			continue
		}
		if s.Update == nil {
			continue
		}
		change, needed, err := s.needed(c, s.Update(c))
		if err == nil && needed {
			err = s.checkBudget(c, change)
		}
		switch {
		case err != nil:
			return nil, 0, err
		case needed:
			outdated++
			changes = append(changes, change)
		}
	}
	return changes, outdated, nil
}

// needed completes a change of a child, and reports whether it changes anything. It returns an error if the child must
// not be changed in this way.
func (s *Spec[T]) needed(child T, change Change[T]) (Change[T], bool, error) {
	switch {
	case object.IsNil(change.To):
		return change, false, nil
	case any(change.To) == any(child):
		return change, false, s.refuseChange(child, "To is the child itself, and must be a changed copy")
	case reflect.DeepEqual(change.To, child): // an author may return a copy of each child
		return change, false, nil
	}
	change.Object = child
	return change, true, s.checkChange(child, change)
}

func (s *Spec[T]) refuseChange(child T, format string, args ...any) error {
	return refuse(s.Owner, s.Kind, InvalidChange, "change of %q: %w", object.Name(child), fmt.Errorf(format, args...))
}

// checkChange returns an error if a child must not be changed in this way.
func (s *Spec[T]) checkChange(child T, change Change[T]) error {
	to := change.To
	switch {
	case to.GetName() != child.GetName() || to.GetNamespace() != child.GetNamespace():
		return s.refuseChange(child, "metadata.name would become %q", object.Name(to))
	case to.GetUID() != child.GetUID():
		return s.refuseChange(child, "metadata.uid would become %q", to.GetUID())
	case !equality.Semantic.DeepEqual(to.GetOwnerReferences(), child.GetOwnerReferences()):
		return s.refuseChange(child, "metadata.ownerReferences differ")
	case !object.IsNil(s.Selector) && !s.Selector.Matches(labels.Set(to.GetLabels())):
		return s.refuseChange(child, "the selector %q does not match the labels %q", s.Selector, labels.Set(to.GetLabels()))
	case strings.ContainsRune(change.Subresource, '/'):
		return s.refuseChange(child, "subresource %q", change.Subresource)
	}
	return nil
}

// checkBudget returns an error if the limits of a rollout can never allow a change.
func (s *Spec[T]) checkBudget(child T, change Change[T]) error {
	switch {
	case change.Free || !s.rolls():
	case s.mayChange() == 0:
		return s.refuseChange(child, "it makes the child unavailable, and maxUnavailable is 0")
	case rulesOfPods[T]() != nil && s.Rules.Ready == nil && s.Rules.Available == nil:
		// The kubelet has not seen the new image yet, so the pod's Ready condition is still True, and pod after pod
		// would be changed.
		return s.refuseChange(child, "Rules.Ready is nil, and a pod's Ready condition does not tell whether the pod runs its newest spec")
	}
	return nil
}

// mayChange returns how many children may be unavailable because of changes. Surge makes no room for a change in place,
// so unlike in a replacement, a percentage is never rounded to 0.
func (s *Spec[T]) mayChange() int {
	unavailable, _, _ := s.rollout() // checkRollout has succeeded
	if unavailable == 0 && isPercent(s.MaxUnavailable) {
		return 1
	}
	return unavailable
}

// mark gives each victim the change that asks it to leave.
func (s *Spec[T]) mark(victims []Deletion[T]) error {
	if s.Retire == nil {
		return nil
	}
	for i := range victims {
		child := victims[i].Object
		change := s.Retire(child, true)
		mark, needed, err := s.needed(child, change)
		switch {
		case err != nil:
			return err
		case needed:
			victims[i].Mark = &mark
		case !object.IsNil(change.To):
			// It bears the mark, so the author drains it, and a delete call would not wait for that.
			return s.refuseChange(child, "Retire has nothing to change, and Rules.Leaving does not report the child")
		}
	}
	return nil
}

// marked selects the children that bear a mark which may be taken back. The function ours reports whether a child
// belongs to the owner.
func (s *Spec[T]) marked(objs []T, ours func(T) bool) (marked []T) {
	if s.Retire == nil || s.isEnding() {
		return nil
	}
	owner := object.OwnerOf(s.Owner, s.Kind.GroupKind())
	return filter(objs, func(c T) bool {
		return !isDeleted(c) && s.Rules.isLeaving(c) && owner.Reaches(c) && ours(c) && !s.Rules.Ended(c)
	})
}

// recalls chooses the marked children to take back, and takes their places from the room. Those whose recall is in
// flight come first, and then those that would have been deleted last.
func (s *Spec[T]) recalls(marked []T, room *Room[T]) (recalls []Change[T], err error) {
	byID, children := map[types.UID]Change[T]{}, []T(nil)
	if len(marked) == 0 || room.missing <= 0 {
		return nil, nil
	}
	for _, c := range marked {
		if room.mustGo(c) || s.Slots != nil && room.isOut(c) {
			continue // a child that must go would be marked again by the next plan
		}
		change, needed, err := s.needed(c, s.Retire(c, false))
		if err != nil {
			return nil, err
		}
		if needed {
			change.Recall = true
			byID[object.ID(c)] = change
			children = append(children, c)
		}
	}
	ranking := s.ranking(children)
	ranking.MustGo, ranking.MustStay = nil, nil
	if ranking.Order, err = s.orderAfter(podrank.First("not in flight", func(c T) bool { return !room.recalling.Has(object.ID(c)) })); err != nil {
		return nil, err
	}
	victims := podrank.Select(children, len(children), ranking)
	for i := len(victims) - 1; i >= 0 && len(recalls) < s.burst(); i-- {
		recalls = append(recalls, byID[object.ID(victims[i].Object)])
	}
	recalls, _ = room.clampRecalls(recalls)
	return recalls, nil
}

// clampRecalls returns the recalls that the room allows, and how many places they take.
func (r *Room[T]) clampRecalls(changes []Change[T]) (recalls []Change[T], places int) {
	again, left := r.missing, r.missing-len(r.recalling)
	return filter(changes, func(c Change[T]) bool {
		switch inFlight, active := r.recalling.Has(object.ID(c.Object)), r.isActive(c.Object); {
		case !c.Recall || r.mustGo(c.Object):
			return false
		case inFlight:
			return take(&again)
		case !active && places >= r.places && r.held == nil || !take(&left):
			return false
		case !active && r.held == nil: // with slots, it stands in its own
			places++
		}
		return true
	}), places
}

// isActive reports whether a marked child counts as a replica.
func (r *Room[T]) isActive(c T) bool { return r.rules.Active != nil && r.rules.Active(c) }

// changesNow chooses the changes to make now. Those whose call is in flight come first, then those of unavailable
// children, and then the order of deletion decides. The children in victims are not changed.
func (s *Spec[T]) changesNow(changes []Change[T], victims []Deletion[T], room *Room[T]) (now []Change[T], kept, deferred int, err error) {
	if len(changes) == 0 {
		return nil, 0, 0, nil
	}
	byID, children := map[types.UID]Change[T]{}, []T(nil)
	for _, c := range room.changeable(changes, victims) {
		byID[object.ID(c.Object)] = c
		children = append(children, c.Object)
	}
	ranking := s.ranking(children)
	ranking.MustGo, ranking.MustStay = nil, nil // Free changes are made of children that must stay, too
	if ranking.Order, err = s.orderAfter(
		podrank.First("in flight", func(c T) bool { return room.updating.Has(object.ID(c)) }),
		podrank.First("unavailable", func(c T) bool { return room.roll != nil && !room.roll.available(c) }),
	); err != nil {
		return nil, 0, 0, err
	}
	left := room.changesBeside(victims)
	for _, v := range podrank.Select(children, len(children), ranking) {
		c := byID[object.ID(v.Object)]
		switch {
		case len(now) == s.burst():
			deferred++
		case room.isFree(c) || take(&left):
			now = append(now, c)
		default:
			kept++
		}
	}
	return now, kept, deferred, nil
}

// changeable returns the changes of children that may be changed, whatever the limits.
func (r *Room[T]) changeable(changes []Change[T], victims []Deletion[T]) []Change[T] {
	gone, isNil := sets.New[types.UID](), object.NilOf[T]()
	for _, v := range victims {
		gone.Insert(object.ID(v.Object))
	}
	return filter(changes, func(c Change[T]) bool {
		if c.Recall || isNil(c.Object) || isNil(c.To) || r.mustGo(c.Object) || !c.Free && r.mustStay(c.Object) {
			return false
		}
		id := object.ID(c.Object)
		return !gone.Has(id) && !r.deleting.Has(id) // a deletion in flight may still take effect
	})
}

// isFree reports whether a change takes no available child away.
func (r *Room[T]) isFree(c Change[T]) bool {
	return c.Free || r.roll != nil && !r.roll.available(c.Object)
}

// changesBeside returns how many available children may be changed if these victims are deleted.
func (r *Room[T]) changesBeside(victims []Deletion[T]) int {
	left := r.Update
	if r.roll == nil {
		return left
	}
	for _, v := range victims {
		left -= one(r.roll.available(v.Object))
	}
	return left
}

// clampChanges returns the changes that the room allows beside these deletions.
func (r *Room[T]) clampChanges(changes []Change[T], victims []Deletion[T]) []Change[T] {
	left := r.changesBeside(victims)
	return filter(r.changeable(changes, victims), func(c Change[T]) bool { return r.isFree(c) || take(&left) })
}
