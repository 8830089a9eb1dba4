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

// A Scale says which children to create, change and delete, so that the owner has the desired number of children, and
// each of them is as it should be. With Spec.Groups, each list contains the children of one group after those of
// another. Only a plan with Spec.Slots, Spec.Groups, Spec.MaxUnavailable or Spec.MaxSurge can contain both creations
// and deletions. Then create before you delete, and delete even if the creations fail. Update and Discard may be set
// together with Create or Delete.
type Scale[T metav1.Object] struct {
	// Create is the number of children to create. Call New to build each of them. Record the expectation BEFORE the
	// first create call, and use slow start for these calls.
	Create int
	// Names contains the names of the children to create: Names[i] is the name of the child that New(i) returns. But if
	// both Spec.Slots and Facts.Names are nil, Names is nil, and the API server chooses the names. Expectations can
	// then only count the creations.
	Names []string
	// Delete contains the children to delete, in this order. Each entry says why its child is deleted instead of
	// another child. Record the expectation BEFORE the first delete call.
	Delete []Deletion[T]
	// Discard contains the children to clean up, for which Rules.Discard or Rules.Failed returns true, sorted by name.
	// Record the expectation BEFORE the first delete call. They may be deleted before or after new children are
	// created, but a new child with the name of a discarded one can only be created when that one is gone.
	// Spec.BurstReplicas limits Discard separately from Create. Spec.MaxDeletions does not limit it, because discarded
	// children are not replicas.
	Discard []Deletion[T]
	// Update contains the children to change in place, in the order in which to change them. The recalls come first,
	// which take back the mark of Spec.Retire, and then those with a change in flight. With MaxUnavailable or MaxSurge,
	// other unavailable children follow. All others are in the order of deletion. Read the owner from the server first,
	// because an old template would undo a newer one, and change the children before you create or delete others. No
	// child is both in Update and in Delete.
	Update []Change[T]
	// Outdated is the number of active children that are not up to date: they need a change, or must go because of
	// Rules.MustGo or Rules.ReadyWithin. Neither limits nor MustStay make this number smaller, and it is set even if
	// the plan is blocked.
	Outdated int
	// Deferred is the number of creations, deletions, discards and changes that wait for a later plan because of
	// Spec.BurstReplicas or Spec.MaxDeletions. Make a new plan when the effects of this one have been observed, or when
	// Spec.MaxDeletions allows more deletions.
	Deferred int
	// Kept is the number of children that must go or need a change, and are kept as they are while another child is
	// missing or too few are available. A child must go because of Rules.MustGo or Rules.ReadyWithin, or because it is
	// outside the wanted slots, but one that must stay does not count. Make a new plan when no child is missing any
	// longer, or when more children are available.
	Kept int
	// MustStay is the number of children that are surplus, must go or be discarded, or need a change that is not Free,
	// and are kept as they are because of Rules.MustStay. If some are surplus and others outdated, it may be too low, but
	// it is 0 only if there are none.
	MustStay int
	// Doubled contains children that share a wanted slot with an older child of the owner, sorted by name and
	// namespace. If the owner is in no namespace and its children are in several, anyone who may create such objects
	// can make one. Children in Doubled do not count, and no child of such a slot is deleted or replaced, or changed
	// unless the change is Free. The other slots are not affected.
	Doubled []T
	// Groups contains the parts of this plan in the order of Spec.Groups, followed by those of groups that are no longer
	// listed, sorted by name. Without Spec.GroupOf it is nil. Calls that are removed from the Scale stay in Groups.
	Groups []GroupScale[T]

	maker *maker[T] // nil if nothing is created
}

// A Deletion is a child to delete, with the options of the delete call.
type Deletion[T metav1.Object] struct {
	podrank.Victim[T]
	// Options are Spec.DeleteOptions with the preconditions of the delete call. The UID keeps another child with the
	// same name from being deleted, and the resourceVersion one that has changed since the plan was made, for example
	// because it has become ready or belongs to another owner now. The server then answers with a Conflict, so make
	// another plan from a newer list. If the child has no UID or no resourceVersion, as with fake clients, that
	// precondition is omitted.
	//
	// Differs from Kubernetes: its controllers delete pods by name, without preconditions.
	Options metav1.DeleteOptions
	// Mark is the change that asks the child to leave, if Spec.Retire returned one. Send its patch in place of the delete
	// call. If Mark is nil, delete the child.
	Mark *Change[T]
	// Replaced means that another child takes the place of this one, which must go because of Rules.MustGo or
	// Rules.ReadyWithin. A child in Scale.Delete that is not replaced is surplus.
	Replaced bool
}

// New builds the child with the index i, counted from 0. Each call returns a new object, which the caller may modify,
// except what the objects of Spec.New share. New sets the namespace, name, generateName and controller reference of the
// child, but if Names is nil, it keeps a name or generateName that Spec.New has set. New is safe for concurrent use if
// Spec.New is.
//
// An error contains the index i, and also names the owner if the plan creates children. But a Scale from ScaleTo whose
// Selector, Template or New cannot be used returns the error of Manage, without an index. New returns an error if i is
// not between 0 and Create-1, or if Spec.New returned
//
//   - an error or nil,
//   - a child that was created already,
//   - a child with another name than Names[i],
//   - a child whose labels do not match the selector,
//   - a child in another namespace than the owner's, or a pod in no namespace,
//   - a child that another owner controls, or
//   - a child of another group or slot.
func (s Scale[T]) New(i int) (T, error) {
	if s.maker == nil {
		return *new(T), fmt.Errorf("replicas: new child %d: the plan creates nothing", i)
	}
	if i < 0 || i >= s.Create {
		return *new(T), s.maker.failure(i, "the plan creates only %d", s.Create)
	}
	return s.maker.forName(nameAt(s.Names, i)).child(i, s.Names)
}

// staying selects the active children that are not leaving, which without Rules.Active are all of them.
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

// scale decides which children to create, change and delete, or says why none may be.
func (s *part[T]) scale(objs []T) (Scale[T], Blocked, error) {
	changes, outdated, err := s.drift(s.owned)
	if err != nil {
		return Scale[T]{}, Blocked{}, err
	}
	if blocked := s.blocked(); blocked.Reason != "" {
		return Scale[T]{Outdated: outdated}, blocked, nil
	}
	ended, mustStay := s.held(changes)
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
	create, remove, discard := 0, min(room.Delete, limit), min(len(ended), burst)
	scale := Scale[T]{Outdated: outdated, Kept: room.kept, Doubled: doubled}
	scale.Deferred = room.Delete - remove + len(ended) - discard
	scale.MustStay = max(room.stuck, mustStay) + len(s.ended) - len(ended)
	// A number that is too high is not missing any child. But slot web-1 may be empty while web-4 is surplus. The
	// creation must not wait for the deletion, which a webhook may refuse, nor the deletion for a full quota.
	if remove == 0 || room.roll != nil || s.Slots != nil {
		create = min(places, burst)
		scale.Deferred += places - create
	}
	// The event of a creation was lost, and the expectation has expired: a plan from this list would create the pod a
	// second time. Only a list of the right number that needs nothing may be right.
	if s.Facts.Pending == expectations.Expired && (create+remove+discard+len(changes)+len(recalls) > 0 || int(s.Replicas)-len(owned) != len(s.Facts.Undecided)) {
		return Scale[T]{Outdated: outdated}, Blocked{Reason: ViewIsStale}, nil
	}
	if remove > 0 {
		if scale.Delete, err = s.deletions(owned, remove, room); err != nil {
			return Scale[T]{}, Blocked{}, err
		}
	}
	scale.Discard = s.discards(ended[:discard])
	if scale.Create = create; create > 0 {
		if scale.Names, err = s.names(create, toFill, objs, s.wanted.occupancy); err != nil {
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
	if len(s.Facts.CreationsInFlight)+len(s.Facts.DeletionsInFlight)+len(room.recalling) > 0 {
		scale = room.Clamp(scale) // without calls in flight, the scale is within the limits already
	}
	return scale, Blocked{}, nil
}

// held returns the children to discard now, and how many active ones must stay as they are, although they must go or
// need a change. It is called before fitSlots, which adds children that share a slot to MustStay, and the author keeps none
// of these.
func (s *part[T]) held(changes []Change[T]) (ended []T, n int) {
	if s.Rules.MustStay == nil { // the usual case, in which no pass walks over its children for this
		return s.ended, 0
	}
	for _, c := range s.staying(s.owned) {
		n += one(s.Rules.MustGo != nil && s.Rules.MustGo(c) && s.Rules.mustStay(c))
	}
	for _, c := range changes {
		n += one(!c.Free && s.Rules.mustStay(c.Object) && !s.Rules.isLeaving(c.Object))
	}
	return filter(s.ended, func(c T) bool { return !s.Rules.mustStay(c) }), n
}

// deletions chooses n children to delete.
func (s *Spec[T]) deletions(owned []T, n int, room Room[T]) ([]Deletion[T], error) {
	staying := s.staying(owned)
	ranking := s.ranking(staying)
	if room.roll != nil {
		return s.rolled(staying, n, ranking, room)
	}
	// The deletion of web-2 had no answer, so web-2 may be gone. It is the first to be deleted again: another one in
	// its place would be one too many.
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
