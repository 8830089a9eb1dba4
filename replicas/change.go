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

// A Change describes a child as it should be. Spec.Update returns one for each child, and Scale.Update contains those
// to make now. The zero Change changes nothing.
type Change[T metav1.Object] struct {
	// To is the child as it should be, usually a deep copy with some other values. If To is nil or equal to the child,
	// nothing changes. The name, namespace, UID and owner references must be those of the child, and the labels must
	// match Spec.Selector. No function modifies To.
	To T
	// Free means that the child stays available while it is changed, for example because only a label changes. A Free
	// change is made at once, even if Spec.MaxUnavailable allows no change, and even if the child must stay.
	Free bool
	// OrReplace means that the child must go if the server refuses the change as Invalid, for example because the
	// field is immutable. If OrReplace is false, the child stays as it is, and the change is tried again later. A plan
	// only passes this on to its caller, and a Controller does what it says.
	OrReplace bool
	// Subresource is the subresource to patch, such as "resize" or "status". If it is empty, the child itself is
	// patched. A Change has only one subresource, so a child that needs two is changed by two plans.
	Subresource string
	// Object is the child that Spec.Update was called with. A plan sets this field.
	Object T
	// Recall is true if the change takes back the mark of Spec.Retire. A plan sets it.
	Recall bool
}

// Patch returns the JSON merge patch that turns Object into To. It contains the fields that differ, with null for those
// that To lacks, and the UID and resourceVersion of Object. If the child has changed since it was read, the server
// therefore answers with a Conflict, and of all patches made from one version at most one takes effect. Without a UID
// or resourceVersion, as with fake clients, that value is omitted. Patch returns an error if Object or To is nil or
// cannot be encoded. Each call encodes both.
//
// A merge patch can only replace whole lists. So if ReplacesList returns true, and your cache drops fields inside of
// lists to save memory, the patch would erase these fields. In this case, read the child from the server, and make the
// Change from what you have read. A Controller does so.
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

// ReplacesList reports whether the patch contains a list. If Patch returns an error, the result is false.
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
	was, err := decoded("Object", c.Object)
	if err != nil {
		return nil, c.failure(err)
	}
	is, err := decoded("To", c.To)
	if err != nil {
		return nil, c.failure(err)
	}
	return mergepatch.Difference(was, is), nil
}

func (c Change[T]) failure(err error) error {
	return fmt.Errorf("replicas: change of %q: %w", nameOf(c.Object), err)
}

// decoded returns the JSON fields of an object, which is the field with this name of a Change.
func decoded(field string, obj metav1.Object) (fields map[string]any, err error) {
	if object.IsNil(obj) {
		return nil, fmt.Errorf("%s is nil", field)
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a float64 has too few digits for an int64
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return fields, nil
}

// drift returns the changes that the active children need, in the order of the children. It also counts the children
// that must go or need a change.
func (s *Spec[T]) drift(active []T) (changes []Change[T], outdated int, err error) {
	if s.Rules.MustGo == nil && s.Update == nil {
		return nil, 0, nil
	}
	for _, c := range active {
		mustGo := s.Rules.MustGo != nil && s.Rules.MustGo(c)
		if mustGo || s.Update == nil {
			outdated += one(mustGo)
			continue
		}
		change, needed, err := s.needed(c, s.Update(c))
		if err == nil && needed {
			err = s.checkBudget(change)
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
	change.Object = child
	switch {
	case object.IsNil(change.To):
		return change, false, nil
	case isSamePointer(change.To, child):
		return change, false, s.refuseChange(child, "To is the child itself, and must be a changed copy")
	case change.IsZero():
		return change, false, nil
	}
	return change, true, s.checkChange(change)
}

// isSamePointer does not compare structs with ==, because those with a map cannot be compared.
func isSamePointer[T metav1.Object](a, b T) bool {
	return reflect.ValueOf(a).Kind() == reflect.Pointer && any(a) == any(b)
}

// IsZero reports whether nothing changes: To is nil, or is a copy of Object. Spec.Update may return either.
func (c Change[T]) IsZero() (same bool) {
	if object.IsNil(c.To) || reflect.DeepEqual(c.To, c.Object) { // faster, and an author may return a copy of each child
		return true
	}
	defer func() {
		if recover() != nil {
			// Semantic.DeepEqual panics at unexported fields, which the protobuf messages in Istio's objects have.
			diff, err := c.difference()
			same = err == nil && len(diff) == 0
		}
	}()
	return equality.Semantic.DeepEqual(c.To, c.Object)
}

func (s *Spec[T]) refuseChange(child T, format string, args ...any) error {
	return s.refuse(InvalidChange, "change of %q: %w", object.Name(child), fmt.Errorf(format, args...))
}

// checkChange returns an error if a child must not be changed in this way.
func (s *Spec[T]) checkChange(change Change[T]) error {
	to, child := change.To, change.Object
	switch {
	case to.GetName() != child.GetName():
		return s.refuseChange(child, "metadata.name would become %q", to.GetName())
	case to.GetNamespace() != child.GetNamespace():
		return s.refuseChange(child, "metadata.namespace would become %q", to.GetNamespace())
	case to.GetUID() != child.GetUID():
		return s.refuseChange(child, "metadata.uid would become %q", to.GetUID())
	case !equality.Semantic.DeepEqual(to.GetOwnerReferences(), child.GetOwnerReferences()):
		return s.refuseChange(child, "metadata.ownerReferences would change")
	case !object.IsNil(s.Selector) && !s.Selector.Matches(labels.Set(to.GetLabels())):
		return s.refuseChange(child, "metadata.labels %q would not match the selector %q", labels.Set(to.GetLabels()), s.Selector)
	case s.GroupOf != nil && s.GroupOf(to) != s.GroupOf(child): // it would be missing here and surplus there
		return s.refuseChange(child, "it would move to group %q", s.GroupOf(to))
	case s.SlotOf != nil && s.SlotOf(to) != s.SlotOf(child):
		return s.refuseChange(child, "it would move to slot %q", s.SlotOf(to))
	case strings.ContainsAny(change.Subresource, "/.%?#"): // it becomes a part of the path of a request
		return s.refuseChange(child, "subresource %q is no name", change.Subresource)
	}
	return nil
}

// checkBudget returns an error if the limits of a rollout can never allow a change.
func (s *Spec[T]) checkBudget(change Change[T]) error {
	child := change.Object
	switch {
	case change.Free || !s.rolls():
	case s.mayChange() == 0:
		return s.refuseChange(child, "it makes the child unavailable, and maxUnavailable is 0")
	case rulesOfPods[T]() != nil && s.Rules.Ready == nil && s.Rules.Available == nil:
		// The kubelet has not seen the new image yet, so the pod's Ready condition is still True, and pod after pod
		// would be changed.
		return s.refuseChange(child, "Rules.Ready is nil, and a pod's Ready condition does not show whether the pod runs its newest spec")
	}
	return nil
}

// mayChange returns how many children may be unavailable because of changes. Surge makes no room for a change in place,
// so unlike in a replacement, a percentage is never rounded to 0.
func (s *Spec[T]) mayChange() int {
	unavailable, _ := s.share("maxUnavailable", s.MaxUnavailable, false) // this cannot fail, because checkRollout has succeeded
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
	if len(marked) == 0 || room.missing <= 0 {
		return nil, nil
	}
	ranking := s.ranking(marked)
	ranking.MustGo, ranking.MustStay = nil, nil
	if ranking.Order, err = s.orderAfter(podrank.First("not in flight", func(c T) bool { return !room.recalling.Has(object.ID(c)) })); err != nil {
		return nil, err
	}
	victims := podrank.Select(marked, len(marked), ranking)
	for i := len(victims) - 1; i >= 0 && (len(recalls) < s.burst() || room.lots != nil); i-- {
		c := victims[i].Object
		if room.lots == nil && (room.mustGo(c) || s.Slots != nil && room.isOut(c)) {
			continue // a child that must go would be marked again by the next plan
		}
		change, needed, err := s.needed(c, s.Retire(c, false))
		if err != nil {
			return nil, err
		}
		if change.Recall = true; needed {
			recalls = append(recalls, change)
		}
	}
	recalls, _ = room.clampRecalls(recalls)
	return recalls[:min(len(recalls), s.burst())], nil
}

// clampRecalls returns the recalls that the room allows, and how many places they take.
func (r *Room[T]) clampRecalls(changes []Change[T]) (recalls []Change[T], places int) {
	if r.lots != nil {
		return r.lots.clampRecalls(r, changes)
	}
	again, left := r.missing, r.missing-len(r.recalling)
	recalls = filter(changes, func(c Change[T]) bool {
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
	})
	return recalls, places
}

// isActive reports whether a marked child counts as a replica.
func (r *Room[T]) isActive(c T) bool { return r.rules.Active != nil && r.rules.Active(c) }

// changesNow chooses the changes to make now. The children in victims are not changed.
func (s *Spec[T]) changesNow(owned []T, changes []Change[T], victims []Deletion[T], room Room[T]) (now []Change[T], kept, deferred int, err error) {
	byID, children := map[types.UID][]Change[T]{}, []T(nil) // two children may have no UID and the same name
	for _, c := range room.changeable(changes, victims) {
		id := object.ID(c.Object)
		byID[id] = append(byID[id], c)
		children = append(children, c.Object)
	}
	first := []podrank.Criterion[T]{podrank.First("in flight", func(c T) bool { return room.updating.Has(object.ID(c)) })}
	if room.available != nil {
		first = append(first, podrank.First("unavailable", func(c T) bool { return !room.staysAvailable(c) }))
	}
	ranking := s.ranking(s.staying(owned))
	ranking.MustGo, ranking.MustStay = nil, nil // Free changes are made of children that must stay, too
	if ranking.Order, err = s.orderAfter(first...); err != nil {
		return nil, 0, 0, err
	}
	left := room.changesBeside(victims)
	for _, v := range podrank.Select(children, len(children), ranking) {
		id := object.ID(v.Object)
		c := byID[id][0]
		byID[id] = byID[id][1:]
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

// changeable returns the changes of children that may be changed, if no limit is reached.
func (r *Room[T]) changeable(changes []Change[T], victims []Deletion[T]) []Change[T] {
	if !r.updates {
		return nil
	}
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

// limitChanges limits the changes by the number of children that are available for certain.
func (s *Spec[T]) limitChanges(r *Room[T], staying []T) {
	available := 0
	for _, c := range staying {
		available += one(r.staysAvailable(c))
	}
	r.Update = min(max(available-(int(s.Replicas)-s.mayChange()), 0), available)
}

// staysAvailable reports whether a child is available, and stays so even if all calls in flight take effect.
func (r *Room[T]) staysAvailable(c T) bool {
	return r.available(c) && !r.deleting.Has(object.ID(c))
}

// takesAway reports whether one of the changes makes its child unavailable.
func (r *Room[T]) takesAway(changes []Change[T]) bool {
	for _, c := range changes {
		if !c.Free && !r.mustStay(c.Object) {
			return true
		}
	}
	return false
}

// isFree reports whether a change takes no available child away.
func (r *Room[T]) isFree(c Change[T]) bool {
	return c.Free || r.available != nil && !r.staysAvailable(c.Object)
}

// changesBeside returns how many available children may be changed if these victims are deleted:
//
//	change <= available - (wanted - MaxUnavailable) - delete
func (r *Room[T]) changesBeside(victims []Deletion[T]) int {
	left := r.Update
	if r.available == nil {
		return left
	}
	for _, v := range victims {
		left -= one(r.staysAvailable(v.Object))
	}
	return left
}

// clampChanges returns the changes that the room allows together with these deletions.
func (r *Room[T]) clampChanges(changes []Change[T], victims []Deletion[T]) []Change[T] {
	left := r.changesBeside(victims)
	return filter(r.changeable(changes, victims), func(c Change[T]) bool { return r.isFree(c) || take(&left) })
}
