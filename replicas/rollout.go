// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/podrank"
)

// InvalidRollout is the RefusedError.Reason if MaxUnavailable or MaxSurge cannot be used.
const InvalidRollout = "InvalidRollout"

// rolls reports whether MaxUnavailable or MaxSurge is set.
func (s *Spec[T]) rolls() bool { return s.MaxUnavailable != nil || s.MaxSurge != nil }

// rollout returns MaxUnavailable and MaxSurge as numbers, with percentages rounded as in Deployments.
func (s *Spec[T]) rollout() (unavailable, surge int, err error) {
	if unavailable, err = s.share("maxUnavailable", s.MaxUnavailable, false); err != nil {
		return 0, 0, err
	}
	if surge, err = s.share("maxSurge", s.MaxSurge, true); err != nil {
		return 0, 0, err
	}
	switch {
	case s.Slots != nil && s.SlotOf == nil && s.MaxSurge != nil && s.MaxSurge.String() != "0" && s.MaxSurge.String() != "0%":
		return 0, 0, s.refuse(InvalidRollout, "maxSurge %v: there is no slot for a child beyond replicas", s.MaxSurge)
	case unavailable+surge == 0 && (isPercent(s.MaxUnavailable) || isPercent(s.MaxSurge)):
		unavailable = 1 // both limits were rounded to 0, which would prevent every replacement
	}
	return unavailable, surge, nil
}

func isPercent(value *intstr.IntOrString) bool { return value != nil && value.Type == intstr.String }

// share converts MaxUnavailable or MaxSurge to a number of children; a percentage is one of Replicas.
func (s *Spec[T]) share(field string, value *intstr.IntOrString, roundUp bool) (int, error) {
	if value == nil {
		return 0, nil
	}
	n := int(value.IntVal)
	if value.Type == intstr.String {
		digits, isPercentage := strings.CutSuffix(value.StrVal, "%")
		share, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || !isPercentage {
			return 0, s.refuse(InvalidRollout, "%s %q is no percentage", field, value.StrVal)
		}
		n = int(share)
	}
	switch {
	case n < 0:
		return 0, s.refuse(InvalidRollout, "%s %v is negative", field, value)
	case !roundUp && value.Type == intstr.String && n > 100:
		return 0, s.refuse(InvalidRollout, "%s %v is more than 100%%", field, value)
	case value.Type == intstr.Int:
		return n, nil
	case roundUp:
		return (n*int(s.Replicas) + 99) / 100, nil
	}
	return n * int(s.Replicas) / 100, nil
}

// available returns a function that reports whether an active child is available.
func (s *Spec[T]) available() (func(T) bool, error) {
	rules := s.Rules.Complete()
	isPod := rulesOfPods[T]() != nil && s.Rules.Ready == nil
	switch {
	case s.Rules.Available != nil:
		return s.Rules.Available, nil
	case isPod:
		return func(child T) bool {
			p, _ := any(child).(*corev1.Pod)
			return pod.IsAvailable(p, s.MinReadySeconds, s.Facts.Now)
		}, nil
	case rules.Ready == nil:
		return nil, s.failure("maxUnavailable or maxSurge is set, and Rules.Ready is nil: no %T is ever available", *new(T))
	case s.MinReadySeconds > 0:
		return nil, s.failure("maxUnavailable or maxSurge is set, minReadySeconds is %v, and Rules.Available is nil", time.Duration(s.MinReadySeconds)*time.Second)
	}
	return rules.Ready, nil
}

// availableBeside returns the function available, narrowed to children that neither leave nor have a change in flight.
func (s *Spec[T]) availableBeside(updating sets.Set[types.UID]) func(T) bool {
	rule, _ := s.available() // this cannot fail, because checkRollout has succeeded
	// The change of one of three had no answer. That child may restart at any time, so it is not available until it has
	// been read, and no second one is changed.
	return func(c T) bool { return !s.Rules.isLeaving(c) && !updating.Has(object.ID(c)) && rule(c) }
}

// checkRollout returns an error if a rollout cannot be limited by MaxUnavailable, MaxSurge and the rules.
func (s *Spec[T]) checkRollout() error {
	if !s.rolls() {
		return nil
	}
	if _, _, err := s.rollout(); err != nil {
		return err
	}
	_, err := s.available()
	return err
}

// rolling holds the fields of a Room that only a rollout uses.
type rolling[T metav1.Object] struct {
	spare   int  // the number of available children that may be deleted
	most    int  // how many of the children that must go may be deleted now
	surplus int  // how many surplus children may be deleted; children that must go are not counted
	again   bool // whether enough fresh children exist; children whose deletion is in flight do not count
	enough  bool // whether enough children are available; children whose deletion is in flight do not count
	extra   int  // the number of children that are deleted without a replacement
}

// roll narrows a Room to a rollout with R wanted children, U that may be unavailable, and a surge of S. Children that
// must go are old, and all others are fresh.
func (s *Spec[T]) roll(r Room[T], active, staying []T) Room[T] {
	unavailable, surge, _ := s.rollout() // this cannot fail, because checkRollout has succeeded
	roll := &rolling[T]{}
	wanted, old, fresh, mayGo, ready, oldUnready, freshUnready, mayGoUnready := int(s.Replicas), 0, 0, 0, 0, 0, 0, 0
	var again []T // children whose deletion is in flight
	for _, c := range staying {
		must, isAvailable := r.mustGo(c), r.available(c)
		if r.deleting.Has(object.ID(c)) {
			again = append(again, c) // it may be gone, so no limit of deletions counts it
			continue
		}
		may := !must && r.mayGo(c)
		old, fresh, mayGo, ready = old+one(must), fresh+one(!must), mayGo+one(may), ready+one(isAvailable)
		if !isAvailable {
			oldUnready, freshUnready, mayGoUnready = oldUnready+one(must), freshUnready+one(!must), mayGoUnready+one(may)
		}
	}
	//	old ones deleted       <= all - (R - U) - fresh ones that are not available
	//	fresh ones deleted     <= fresh - R
	//	available ones deleted <= available - (R - U)
	// A fresh one that is not available counts among all but does no work yet, so as in a Deployment it is subtracted.
	least := wanted - unavailable
	roll.spare, roll.most = max(ready-least, 0), max(old+fresh-least-freshUnready, 0)
	roll.surplus = min(max(fresh-wanted, 0), mayGo)
	roll.again, roll.enough, roll.extra = fresh >= wanted, ready >= least, max(len(staying)-wanted-surge, 0)
	fromOld := min(oldUnready, roll.most)
	fromOld += min(old-oldUnready, roll.most-fromOld, roll.spare)
	fromNew := min(mayGoUnready, roll.surplus)
	fromNew += min(roll.surplus-fromNew, max(roll.spare-max(fromOld-oldUnready, 0), 0))
	r.Delete = fromOld + fromNew + len(filter(again, func(c T) bool { return roll.mayGoAgain(&r, c) }))
	r.kept = old + roll.surplus - fromOld - fromNew
	r.roll = roll
	if r.occupancy != nil { // occupancyOf has limited the creations
		return r
	}
	if s.Slots != nil {
		// web-1 is missing, web-4 is in no wanted slot, and none may be unavailable. So nothing can go before web-1 is
		// there, and it is created even if there are then more than R.
		if r.places = min(r.places, max(wanted-len(active), one(r.Delete == 0))); r.places < r.Create {
			r.Create = r.places
		}
		return r
	}
	//	created <= min(R - fresh, R + S - all)
	// More than R - fresh would be surplus at the end. A child counts here while its deletion is in flight, because
	// that may have failed, and while it is being deleted and still active.
	r.places = max(min(wanted-(len(active)-r.must), wanted+surge-len(active)), 0)
	r.places -= min(r.places, len(s.Facts.Undecided)+r.returning)
	r.Create = r.places
	//	recalled <= R - those that stay and need not go - undecided - creations in flight
	r.missing = wanted - (len(staying) - r.must) - len(s.Facts.Undecided) - len(r.creating)
	return r
}

// mayGoAgain reports whether the deletion in flight of the child c may be sent again.
func (r *rolling[T]) mayGoAgain(room *Room[T], c T) bool {
	// It had no answer, and others have become unavailable since. If this child is still there, it is needed.
	return (room.mustGo(c) || r.again && room.mayGo(c)) && (r.enough || !room.available(c))
}

// clamp returns the deletions that the room allows.
func (r *rolling[T]) clamp(room *Room[T], victims []Deletion[T]) []Deletion[T] {
	isNil := object.NilOf[T]()
	spare, most, surplus := r.spare, r.most, r.surplus
	return filter(victims, func(v Deletion[T]) bool {
		if isNil(v.Object) {
			return false
		}
		left, must, isAvailable := &surplus, room.mustGo(v.Object), room.available(v.Object)
		if must {
			left = &most
		}
		switch {
		case room.deleting.Has(object.ID(v.Object)):
			return r.mayGoAgain(room, v.Object)
		case *left <= 0 || isAvailable && spare <= 0 || !must && !room.mayGo(v.Object):
			return false
		}
		*left--
		spare -= one(isAvailable)
		return true
	})
}

// checkReplaces returns an error if the limits of a rollout will never allow any replacement.
func (s *Spec[T]) checkReplaces(room Room[T]) error {
	if room.roll == nil || room.must == 0 || room.Create+room.Delete > 0 {
		return nil
	}
	if unavailable, surge, _ := s.rollout(); unavailable+surge == 0 {
		return s.refuse(InvalidRollout, "maxUnavailable and maxSurge are 0, and %d children must be replaced", room.must)
	}
	return nil
}

// rolled chooses up to n children to delete in a rollout.
func (s *Spec[T]) rolled(staying []T, n int, ranking podrank.Options[T], room Room[T]) ([]Deletion[T], error) {
	// Children whose deletion is in flight come first: they count as gone already, so they take nothing from the
	// limits.
	again := func(c T) bool { return room.deleting.Has(object.ID(c)) && room.roll.mayGoAgain(&room, c) }
	first := []podrank.Criterion[T]{podrank.First("in flight", again)}
	// Those that do no work go first, because they cost no availability. With Slots, the slots and Rules.Order decide.
	if s.Slots == nil {
		if ready := s.Rules.Complete().Ready; ready != nil {
			first = append(first, podrank.First("unready", func(c T) bool { return !ready(c) }))
		}
		first = append(first, podrank.First("unavailable", func(c T) bool { return !room.available(c) }))
	}
	var err error
	if ranking.Order, err = s.orderAfter(first...); err != nil {
		return nil, err
	}
	ranking.MustGo = func(c T) bool { return again(c) || room.mustGo(c) }
	victims := s.guarded(podrank.Select(staying, room.must+room.roll.surplus+len(room.deleting), ranking))
	victims = room.roll.clamp(&room, victims)
	for i := min(room.roll.extra, len(victims)); i < len(victims); i++ {
		victims[i].Replaced = room.mustGo(victims[i].Object)
	}
	victims = victims[:min(n, len(victims))]
	return victims, s.mark(victims)
}
