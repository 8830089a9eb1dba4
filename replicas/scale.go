// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
)

// A PodScale is a Scale for pods.
type PodScale = Scale[*corev1.Pod]

// A Scale says how to get from the number of children that the owner has to the
// number that is wanted. At most one of Create and Delete is set, unless Spec.MaxUnavailable or
// Spec.MaxSurge is; then create before you delete. Discard may be set with each.
type Scale[T metav1.Object] struct {
	// Create is how many children to create; New makes each of them. Record the
	// expectation BEFORE the first call, and create in slow start.
	Create int
	// Names are the names of the children to create: Names[i] is that of New(i). It
	// is nil if Spec.Slots and Spec.Names are: then the API server chooses the names, and the
	// creations can only be counted.
	Names []string
	// Delete are the children to delete, the first to go first, each with the
	// reason why it goes and another one stays. Record the expectation BEFORE the
	// first call.
	Delete []Deletion[T]
	// Discard are the children to clean up, as Rules.Discard says, in the order of their
	// names. Record the expectation BEFORE the first call. It does not matter whether they
	// are deleted before or after others are created, except that a child of the same name
	// has to wait. Spec.BurstReplicas limits them by themselves; Spec.MaxDeletions does not,
	// as they are no replicas.
	Discard []Deletion[T]
	// Deferred is how many more children have to be created, deleted or discarded than
	// Spec.BurstReplicas and Spec.MaxDeletions allow in this plan. Plan again when
	// what this plan starts has been observed, or when more may be deleted.
	Deferred int
	// Kept is how many children stay, although they have to go by Rules.MustGo or are in no
	// wanted slot, because another child is missing or too few are available. Plan again when that
	// is there, or more are.
	Kept int
	// MustStay is how many children are too many and stay, because Rules.MustStay says so.
	MustStay int

	maker *maker[T] // nil if nothing is created
}

// A Deletion is a child to delete, and the options of the delete call.
type Deletion[T any] struct {
	podrank.Victim[T]
	// Options have preconditions: the UID, so that no other child of the same name is
	// deleted, and the resourceVersion, so that the child is deleted only as it was judged.
	// A child that has changed may have begun to work, or may be another owner's. There is
	// one exception: a pod that is not ready goes by its UID alone if Rules.MustStay is nil and
	// Rules.ReadyWithin is 0.
	// What a child does not have, as with fake clients, is left out.
	Options metav1.DeleteOptions
	// Replaced says that another child comes in its place: it has to go by Rules.MustGo or
	// Rules.ReadyWithin, although there are not too many children. Otherwise it is one of
	// those that are too many.
	Replaced bool
}

// New makes child number i, counted from 0. Each call makes another one, which the
// caller may change. Its namespace, name, generateName and controller reference are
// set; if Names is nil, a name or generateName that Spec.New set is kept. New may
// be called by several goroutines at once if Spec.New may.
//
// It is an error if i is not below Create, or if Spec.New returned an error, nil, a
// child that was created already, a child of another name than Names[i], a child whose labels do not match the selector, a child in another namespace than
// the owner's, a pod in no namespace, or a child that another owner controls. The
// error names the owner and i.
func (s Scale[T]) New(i int) (T, error) {
	if s.maker == nil {
		return *new(T), fmt.Errorf("replicas: new child %d: nothing is to be created", i)
	}
	if i < 0 || i >= s.Create {
		return *new(T), s.maker.failure(i, "only %d are to be created", s.Create)
	}
	return s.maker.child(i, s.Names)
}

// staying returns those of the active children that are not being deleted: all, unless
// Rules.Active says otherwise.
func (s *Spec[T]) staying(active []T) []T {
	if s.Rules.Active == nil || !slices.ContainsFunc(active, isDeleted[T]) {
		return active
	}
	return slices.DeleteFunc(slices.Clone(active), isDeleted[T])
}

func (s *Spec[T]) burst() int {
	if s.BurstReplicas == 0 {
		return DefaultBurstReplicas
	}
	return s.BurstReplicas
}

// scale says how to get from owned, each of which is active and listed once, to
// what is wanted, and why nothing is created or deleted if so. Those that have ended are
// discarded. The names of objs are taken.
//
// Except in a rollout, nothing is created while something is deleted. What is being deleted is not
// missing yet.
func (s *Spec[T]) scale(owned, ended, objs []T, wanted slots) (Scale[T], Blocked, error) {
	none := Scale[T]{}
	if blocked := s.blocked(); blocked.Reason != "" {
		return none, blocked, nil
	}
	if err := s.fitSlots(owned, wanted); err != nil {
		return none, Blocked{}, err
	}
	room, burst := s.room(owned, wanted), s.burst()
	if err := s.checkReplaces(room); err != nil {
		return none, Blocked{}, err
	}
	limit := burst
	if s.MaxDeletions != nil {
		limit = min(limit, *s.MaxDeletions)
	}
	create, remove, discard := 0, min(room.Delete, limit), min(len(ended), burst)
	scale := Scale[T]{Deferred: room.Delete - remove + len(ended) - discard, Kept: room.kept, MustStay: room.stuck}
	if remove == 0 || room.roll != nil {
		create = min(room.Create, burst)
		scale.Deferred += room.Create - create
	}
	if s.Pending == expectations.Expired && (create+remove+discard > 0 || int(s.Replicas)-len(owned) != s.PendingAdoptions) {
		return none, Blocked{Reason: ViewIsStale}, nil
	}
	var err error
	if remove > 0 {
		if scale.Delete, err = s.deletions(owned, remove, room); err != nil {
			return none, Blocked{}, err
		}
	}
	scale.Discard = s.discards(ended[:discard])
	if create > 0 {
		if err := s.checkCreate(); err != nil {
			return none, Blocked{}, err
		}
		if scale.Names, err = s.names(create, wanted.free, objs); err != nil {
			return none, Blocked{}, err
		}
		scale.Create = create
		scale.maker = &maker[T]{owner: s.Owner, base: s.base(), kind: s.Kind, selector: s.Selector, template: s.Template, make: s.New}
	}
	if len(s.CreationsInFlight)+len(s.DeletionsInFlight) > 0 { // else all of it fits
		scale = room.Clamp(scale)
	}
	return scale, Blocked{}, nil
}

// deletions chooses n of the children, those whose deletion is in flight first.
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
	return victims, nil
}

// discarded is the criterion of children that are deleted because they have ended.
const discarded = "discarded"

func (s *Spec[T]) discards(ended []T) []Deletion[T] {
	victims := make([]podrank.Victim[T], len(ended))
	for i, child := range ended {
		victims[i] = podrank.Victim[T]{Object: child, Criterion: discarded}
	}
	return s.guarded(victims)
}

// guarded returns the deletions of the victims.
func (s *Spec[T]) guarded(victims []podrank.Victim[T]) []Deletion[T] {
	if len(victims) == 0 {
		return nil
	}
	rules := s.Rules.Complete()
	byUID := rulesOfPods[T]() != nil && rules.MustStay == nil && rules.ReadyWithin == 0
	deletions, guards := make([]Deletion[T], len(victims)), make([]guard, len(victims))
	for i, v := range victims {
		deletions[i].Victim = v
		asJudged := !byUID || v.Criterion == discarded || rules.Ready(v.Object)
		deletions[i].Options.Preconditions = guards[i].of(v.Object, asJudged)
	}
	return deletions
}

// ranking returns what the owned children are ranked by.
func (s *Spec[T]) ranking(owned []T) podrank.Options[T] {
	rules := s.Rules.Complete()
	return podrank.Options[T]{
		Now: s.Now, Related: s.related(owned), Order: rules.Order, MustGo: rules.MustGo, MustStay: rules.MustStay,
	}
}

// A guard is what the preconditions of a deletion point to.
type guard struct {
	metav1.Preconditions
	uid     types.UID
	version string
}

// of returns the preconditions that keep a delete from meeting another child of
// that name and, if it goes only as it was judged, one that has changed.
func (g *guard) of(child metav1.Object, asJudged bool) *metav1.Preconditions {
	if g.uid = child.GetUID(); g.uid != "" {
		g.UID = &g.uid
	}
	if g.version = child.GetResourceVersion(); asJudged && g.version != "" {
		g.ResourceVersion = &g.version
	}
	if g.Preconditions == (metav1.Preconditions{}) {
		return nil
	}
	return &g.Preconditions
}
