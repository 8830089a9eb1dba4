// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
)

// A PodScale is a Scale for pods.
type PodScale = Scale[*corev1.Pod]

// A Scale says which children to create, change and delete, so that the owner has the desired number
// of children, and each of them is as it should be. With Spec.Groups, each list contains the children
// of one group after those of another. Only a plan with Spec.Slots, Spec.Groups, Spec.MaxUnavailable or Spec.MaxSurge can contain both creations and deletions. If a plan contains both, create before
// you delete, and delete even if the creations fail. Update and Discard may be set together with
// Create or Delete.
type Scale[T metav1.Object] struct {
	// Create is the number of children to create. Call New to build each child. Record the
	// expectation BEFORE the first create call, and use slow start for these calls.
	Create int
	// Names contains the names of the children to create. Names[i] is the name of the child that
	// New(i) returns. If both Spec.Slots and Facts.Names are nil, Names is also nil. In this case,
	// the API server chooses the names, so expectations can only count the creations.
	Names []string
	// Delete contains the children in the order of their deletion. Each entry says why its child is
	// deleted instead of another child. Record the expectation BEFORE the first delete call.
	Delete []Deletion[T]
	// Discard contains the children to clean up, sorted by name. For each of these children,
	// Rules.Discard or Rules.Failed returns true. Record the expectation BEFORE the first delete
	// call. Discarded children may be deleted before or after new children are created. But if a
	// new child has the same name as a discarded child, create the new child after the discarded
	// child is gone. Spec.BurstReplicas limits Discard separately from Create.
	// Spec.MaxDeletions does not limit Discard, because discarded children are not replicas.
	Discard []Deletion[T]
	// Update contains the children to change in place, in the order in which to change them. The recalls come first,
	// which take back the mark of Spec.Retire, and then those with a change in flight. If MaxUnavailable or MaxSurge is
	// set, other unavailable children follow. All others are in the order of deletion. Read the owner from the server
	// first, because an old template would undo a newer one. Change the children before you create or delete others. No
	// child is both in Update and in Delete.
	Update []Change[T]
	// Outdated is the number of active children that need a change, or must go because of Rules.MustGo or
	// Rules.ReadyWithin. Neither limits nor MustStay make this number smaller, and it is also set if the plan is blocked.
	// All other active children are up to date.
	Outdated int
	// Deferred is the number of creations, deletions, discards and changes that must wait for a later plan
	// because of Spec.BurstReplicas or Spec.MaxDeletions. Make a new plan when the effects of this
	// plan have been observed, or when Spec.MaxDeletions allows more deletions.
	Deferred int
	// Kept is the number of children that must go or need a change, and are neither deleted nor changed
	// yet. They are kept while another child is missing or too few children are available. A child must
	// go because of Rules.MustGo or Rules.ReadyWithin, or because it is outside the wanted slots. A child
	// that must stay does not count. Make a new plan when no child is missing any longer, or when more
	// children are available.
	Kept int
	// MustStay is the number of surplus children that are kept because of Rules.MustStay.
	MustStay int
	// Doubled contains children that share a wanted slot with an older child of the owner, sorted by
	// name and namespace. This is possible if the owner is in no namespace, and its children are in
	// several. Anyone who may create such objects can make a second one. Children in Doubled do not
	// count, and no child of such a slot is deleted or replaced. Such a child gets only Free changes.
	// The other slots are not affected.
	Doubled []T
	// Groups contains the parts of this plan in the order of Spec.Groups, followed by those of groups that are no longer
	// listed, sorted by name. Without Spec.GroupOf it is nil. Calls that are removed from the Scale stay in Groups.
	Groups []GroupScale[T]

	maker *maker[T] // nil if nothing is created
}

// A Deletion is a child to delete, with the options of the delete call.
type Deletion[T metav1.Object] struct {
	podrank.Victim[T]
	// Options are Spec.DeleteOptions with the preconditions of the delete call. The UID precondition prevents the
	// deletion of another child with the same name. The resourceVersion precondition prevents the
	// deletion of a child that has changed since the plan was made. For example, the child may have
	// become ready, or may belong to another owner now. In this case the server answers with a
	// Conflict, so make another plan from a newer list. If the child has no UID or no
	// resourceVersion, as with fake clients, the corresponding precondition is omitted.
	//
	// Differs from Kubernetes: its controllers delete pods by name, without preconditions.
	Options metav1.DeleteOptions
	// Mark is the change that asks the child to leave, if Spec.Retire returned one. Send its patch in place of the delete
	// call. If Mark is nil, delete the child.
	Mark *Change[T]
	// Replaced is true if another child replaces this child. In this case, the child is not
	// surplus, but must go because of Rules.MustGo or Rules.ReadyWithin. If Replaced is false for a
	// child in Scale.Delete, the child is surplus.
	Replaced bool
}

// New builds the child with the index i, counted from 0. Each call returns a new object, which the
// caller may modify, except what the objects of Spec.New share. New sets the namespace, name,
// generateName and controller reference of the child. If Names is nil, New keeps a name or
// generateName that Spec.New has set. New is safe for concurrent use if Spec.New is safe for
// concurrent use.
//
// If New returns an error, the error contains the index i. If the plan creates children, the error
// also names the owner. A Scale from ScaleTo with a Selector, Template or New that cannot be used
// returns the error of Manage, without an index. New returns an error if i is not between 0 and
// Create-1. New also returns an error in these cases:
//
//   - Spec.New returned an error or nil.
//   - Spec.New returned a child that was created already.
//   - Spec.New returned a child with another name than Names[i].
//   - Spec.New returned a child whose labels do not match the selector.
//   - Spec.New returned a child in another namespace than the owner's, or a pod in no namespace.
//   - Spec.New returned a child that another owner controls.
//   - Spec.New returned a child of another group or slot.
func (s Scale[T]) New(i int) (T, error) {
	if s.maker == nil {
		return *new(T), fmt.Errorf("replicas: new child %d: the plan creates nothing", i)
	}
	if i < 0 || i >= s.Create {
		return *new(T), s.maker.failure(i, "the plan creates only %d", s.Create)
	}
	return s.maker.of(nameAt(s.Names, i)).child(i, s.Names)
}

// staying selects the active children that are not leaving. If Rules.Active is nil, no active
// child is leaving, so the result is the whole list.
func (s *Spec[T]) staying(active []T) []T {
	if s.Rules.Active == nil || !slices.ContainsFunc(active, s.Rules.isLeaving) {
		return active
	}
	return slices.DeleteFunc(slices.Clone(active), s.Rules.isLeaving)
}

func (s *Spec[T]) burst() int {
	if s.BurstReplicas == 0 {
		return DefaultBurstReplicas
	}
	return s.BurstReplicas
}

// scale decides how many children to create and which children to change and delete. If nothing may
// be created, changed or deleted, scale returns the reason as a Blocked. No new child gets the name of an object in objs.
//
// An active child that is being deleted is not replaced before it is gone.
func (s *part[T]) scale(objs []T) (Scale[T], Blocked, error) {
	changes, outdated, err := s.drift(s.owned)
	if err != nil {
		return Scale[T]{}, Blocked{}, err
	}
	if blocked := s.blocked(); blocked.Reason != "" {
		return Scale[T]{Outdated: outdated}, blocked, nil
	}
	s.Facts.Related = onceOnly(s.Facts.Related, len(changes) > 0 || s.SlotOf != nil) // keepers of slots, deletions and changes have one order
	owned, doubled, err := s.fitSlots(s.owned, s.marked, &s.wanted)
	if err != nil {
		return Scale[T]{}, Blocked{}, err
	}
	room, burst := s.room(owned, s.marked, s.wanted, changes), s.burst()
	if err := s.checkReplaces(room); err != nil {
		return Scale[T]{}, Blocked{}, err
	}
	recalls, err := s.recalls(s.marked, &room)
	if err != nil {
		return Scale[T]{}, Blocked{}, err
	}
	_, taken := room.clampRecalls(recalls)
	places, toFill := max(room.Create-taken, 0), s.wanted.toFill(recalls)
	limit := burst
	if s.MaxDeletions != nil {
		limit = *s.MaxDeletions
	}
	create, remove, discard := 0, min(room.Delete, limit), min(len(s.ended), burst)
	scale := Scale[T]{Outdated: outdated, Deferred: room.Delete - remove + len(s.ended) - discard, Kept: room.kept, MustStay: room.stuck, Doubled: doubled}
	// A number that is too high is not missing any child. But slot web-1 may be empty while web-4 is surplus. The
	// creation must not wait for the deletion, which a webhook may refuse, nor the deletion for a full quota.
	if remove == 0 || room.roll != nil || s.Slots != nil {
		create = min(places, burst)
		scale.Deferred += places - create
	}
	if s.Facts.Pending == expectations.Expired && (create+remove+discard+len(changes)+len(recalls) > 0 || int(s.Replicas)-len(owned) != len(s.Facts.Undecided)) {
		return Scale[T]{Outdated: outdated}, Blocked{Reason: ViewIsStale}, nil
	}
	if remove > 0 {
		if scale.Delete, err = s.deletions(owned, remove, room); err != nil {
			return Scale[T]{}, Blocked{}, err
		}
	}
	scale.Discard = s.discards(s.ended[:discard])
	if scale.Create = create; create > 0 {
		if scale.Names, err = s.names(create, toFill, objs, s.wanted.lots); err != nil {
			return Scale[T]{}, Blocked{}, err
		}
		scale.maker = s.maker()
	}
	if len(changes) > 0 {
		now, kept, deferred, err := s.changesNow(owned, changes, scale.Delete, room)
		if err != nil {
			return Scale[T]{}, Blocked{}, err
		}
		scale.Update, scale.Kept, scale.Deferred = now, scale.Kept+kept, scale.Deferred+deferred
	}
	scale.Update = join(recalls, scale.Update)
	if len(s.Facts.CreationsInFlight)+len(s.Facts.DeletionsInFlight)+len(room.recalling) > 0 { // if no call is in flight, the scale is already within the limits
		scale = room.Clamp(scale)
	}
	return scale, Blocked{}, nil
}

// deletions chooses n children to delete. Children whose deletion is in flight come first.
func (s *Spec[T]) deletions(owned []T, n int, room Room[T]) ([]Deletion[T], error) {
	staying := s.staying(owned)
	ranking := s.ranking(staying)
	if room.roll != nil {
		return s.rolled(staying, n, ranking, room)
	}
	if len(room.deleting) > 0 {
		may := room.mayGo
		if room.replaces && room.Delete == room.must {
			may = room.mustGo
		}
		again := func(c T) bool { return room.deleting.Has(object.ID(c)) && may(c) }
		ranking.MustGo = func(c T) bool { return again(c) || room.mustGo(c) }
		var err error
		if ranking.Order, err = s.orderAfter(podrank.First("in flight", again)); err != nil {
			return nil, err
		}
	}
	victims := s.guarded(podrank.Select(staying, n, ranking))
	for i := max(room.surplus, 0); i < len(victims); i++ {
		victims[i].Replaced = true
	}
	return victims, s.mark(victims)
}

// discarded is the criterion in the Deletion of a child that has ended.
const discarded = "discarded"

func (s *Spec[T]) discards(ended []T) []Deletion[T] {
	victims := make([]podrank.Victim[T], len(ended))
	for i, child := range ended {
		victims[i] = podrank.Victim[T]{Object: child, Criterion: discarded}
	}
	return s.guarded(victims)
}

// ranking returns the options for ranking the owned children.
func (s *Spec[T]) ranking(owned []T) podrank.Options[T] {
	rules := s.Rules.Complete()
	return podrank.Options[T]{
		Now: s.Facts.Now, Related: s.related(owned), Order: rules.Order, MustGo: rules.MustGo, MustStay: rules.MustStay,
	}
}
