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

// InvalidChange is the RefusedError.Reason if a Change that Spec.Update or Spec.Retire returned cannot be made.
const InvalidChange = "InvalidChange"

// A Change describes a child as it should be. Spec.Update returns one for each child, and Scale.Update contains those
// to make now. The zero Change changes nothing.
type Change[T metav1.Object] struct {
	// To is the child as it should be, usually a deep copy with some other values. Nothing changes if To is nil or
	// equal to the child. The name, namespace, UID, owner references, group and slot must be those of the child, and
	// the labels must match Spec.Selector. No function modifies To.
	To T
	// Free means that the child stays available while it is changed, for example because only a label changes. Neither
	// Spec.MaxUnavailable nor Rules.MustStay holds such a change back.
	Free bool
	// OrReplace means that the child must go if the server refuses the change as Invalid, for example because the field
	// is immutable. Otherwise the child stays as it is, and the change is tried again later. A plan only passes this on
	// to its caller, and a Controller does what it says.
	OrReplace bool
	// Subresource is the subresource to patch, such as "resize" or "status", or "" to patch the child itself. A Change
	// has only one, so a child that needs two is changed by two plans.
	Subresource string
	// Object is the child that Spec.Update was called with. A plan sets this field.
	Object T
	// Recall means that the change takes back the mark of Spec.Retire. A plan sets this field.
	Recall bool
}

// Patch returns the JSON merge patch that turns Object into To. It contains the fields that differ, with null for those
// that To lacks, and the UID and resourceVersion of Object. So of all patches made from one version at most one takes
// effect, and the server answers the others with a Conflict. An Object without a UID or resourceVersion, as with fake
// clients, gives a patch without it. Patch returns an error if Object or To is nil or cannot be encoded. Each call
// encodes both.
//
// A merge patch can only replace whole lists, so fields inside of lists that your cache drops to save memory would be
// erased. If your cache does that and ReplacesList returns true, read the child from the server, and make the Change
// from what you have read. A Controller does so.
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
	// The change to image 2 had no answer, and the owner wants 3 now. Both patches were made from v10, so whichever
	// arrives second meets a Conflict, and image 2 cannot land on a child that runs 3.
	if version := c.Object.GetResourceVersion(); version != "" {
		meta["resourceVersion"] = version
	}
	data, err := json.Marshal(diff)
	if err != nil {
		return selector.Patch{}, c.failure(err)
	}
	return selector.Patch{Type: types.MergePatchType, Data: data, Subresource: c.Subresource}, nil
}

// ReplacesList reports whether the patch contains a list. It returns false if Patch returns an error.
func (c Change[T]) ReplacesList() bool {
	diff, err := c.difference()
	return err == nil && hasList(diff)
}

func hasList(v any) bool {
	if _, isList := v.([]any); isList {
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
	before, err := decoded("Object", c.Object)
	if err != nil {
		return nil, c.failure(err)
	}
	after, err := decoded("To", c.To)
	if err != nil {
		return nil, c.failure(err)
	}
	return mergepatch.Difference(before, after), nil
}

func (c Change[T]) failure(err error) error {
	return fmt.Errorf("replicas: change of %q: %w", nameOf(c.Object), err)
}

// decoded returns the JSON fields of Object or To.
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

// drift returns the changes that the active children need, in their order, and counts those that are not up to date.
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

// needed completes a change, and reports whether it changes anything.
func (s *Spec[T]) needed(child T, change Change[T]) (Change[T], bool, error) {
	change.Object = child
	switch {
	case object.IsNil(change.To):
		return change, false, nil
	case isSamePointer(change.To, child):
		// The author has written into the child in the cache. No difference is left that a patch could contain.
		return change, false, s.refuseChange(child, "To is the child itself, and must be a changed copy")
	case change.IsZero():
		return change, false, nil
	}
	return change, true, s.checkChange(change)
}

// isSamePointer reports whether both are one pointer.
func isSamePointer[T metav1.Object](a, b T) bool {
	// The kind comes first, because == panics on structs that contain a map.
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
	desired, child := change.To, change.Object
	switch {
	case desired.GetName() != child.GetName():
		return s.refuseChange(child, "metadata.name would become %q", desired.GetName())
	case desired.GetNamespace() != child.GetNamespace():
		return s.refuseChange(child, "metadata.namespace would become %q", desired.GetNamespace())
	case desired.GetUID() != child.GetUID():
		return s.refuseChange(child, "metadata.uid would become %q", desired.GetUID())
	case !equality.Semantic.DeepEqual(desired.GetOwnerReferences(), child.GetOwnerReferences()):
		return s.refuseChange(child, "metadata.ownerReferences would change")
	case !object.IsNil(s.Selector) && !s.Selector.Matches(labels.Set(desired.GetLabels())): // it would be released, and another one created
		return s.refuseChange(child, "metadata.labels %q would not match the selector %q", labels.Set(desired.GetLabels()), s.Selector)
	case s.GroupOf != nil && s.GroupOf(desired) != s.GroupOf(child): // it would be missing here and surplus there
		return s.refuseChange(child, "it would move to group %q", s.GroupOf(desired))
	case s.SlotOf != nil && s.SlotOf(desired) != s.SlotOf(child):
		return s.refuseChange(child, "it would move to slot %q", s.SlotOf(desired))
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

// mayChange returns how many children may be unavailable because of changes.
func (s *Spec[T]) mayChange() int {
	unavailable, _ := s.share("maxUnavailable", s.MaxUnavailable, false) // this cannot fail, because checkRollout has succeeded
	if unavailable == 0 && isPercent(s.MaxUnavailable) {
		// 25% of 3 is rounded down to 0. Surge makes no room for a change in place, so none would ever be made.
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

// marked selects the children whose mark may be taken back; ours reports whether a child is the owner's.
func (s *Spec[T]) marked(objs []T, ours func(T) bool) (marked []T) {
	if s.Retire == nil || s.isEnding() {
		return nil
	}
	owner := object.OwnerOf(s.Owner, s.Kind.GroupKind())
	return filter(objs, func(c T) bool {
		// A deletionTimestamp cannot be taken back, and a child that has drained is discarded.
		return !isDeleted(c) && s.Rules.isLeaving(c) && owner.Reaches(c) && ours(c) && !s.Rules.Ended(c)
	})
}

// recalls chooses the marked children to take back.
func (s *Spec[T]) recalls(marked []T, room *Room[T]) (recalls []Change[T], err error) {
	if len(marked) == 0 || room.missing <= 0 {
		return nil, nil
	}
	ranking := s.ranking(marked)
	ranking.MustGo, ranking.MustStay = nil, nil
	inFlight := room.recalling // if the function below captured room, each plan would allocate it
	if ranking.Order, err = s.orderAfter(podrank.First("not in flight", func(c T) bool { return !inFlight.Has(object.ID(c)) })); err != nil {
		return nil, err
	}
	// From the end: first those whose recall had no answer, then those that would be deleted last.
	victims := podrank.Select(marked, len(marked), ranking)
	for i := len(victims) - 1; i >= 0 && (len(recalls) < s.burst() || room.occupancy != nil); i-- {
		c := victims[i].Object
		if room.occupancy == nil && (room.mustGo(c) || s.Slots != nil && room.isOut(c)) {
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
	if r.occupancy != nil {
		return r.occupancy.clampRecalls(r, changes)
	}
	//	recalled again <= wanted - staying - undecided - creations in flight
	//	recalled anew  <= wanted - staying - undecided - creations and recalls in flight
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

// changesNow chooses the changes to make now, if these victims are deleted.
func (s *Spec[T]) changesNow(owned []T, changes []Change[T], victims []Deletion[T], room Room[T]) (now []Change[T], kept, deferred int, err error) {
	byID, children := map[types.UID][]Change[T]{}, []T(nil) // two children may have no UID and the same name
	for _, c := range room.changeable(changes, victims) {
		id := object.ID(c.Object)
		byID[id] = append(byID[id], c)
		children = append(children, c.Object)
	}
	// A change without an answer comes first: its child is unavailable already, so no other is taken away.
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

// changeable returns the changes that may be made as far as no limit is reached.
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

// limitChanges sets how many available children may be changed if none of them is deleted.
func (s *Spec[T]) limitChanges(r *Room[T], staying []T) {
	available := 0
	for _, c := range staying {
		available += one(r.staysAvailable(c))
	}
	//	changed <= available - (wanted - MaxUnavailable)
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

// changesBeside returns how many available children may be changed if these victims are deleted.
func (r *Room[T]) changesBeside(victims []Deletion[T]) int {
	left := r.Update
	if r.available == nil {
		return left
	}
	//	changed <= available - (wanted - MaxUnavailable) - deleted
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
