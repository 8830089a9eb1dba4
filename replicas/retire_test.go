// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

type guest = *corev1.ConfigMap

func guestOf(owner metav1.Object, name string, flags ...string) guest {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: podtest.Namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
	}}
	for _, flag := range flags {
		m.Annotations[flag] = "yes"
	}
	return m
}

func bears(flag string) func(guest) bool {
	return func(m guest) bool { return m.Annotations[flag] != "" }
}

// guestsOf wants n members that are asked to leave by the annotation "leave".
func guestsOf(owner metav1.Object, n int) replicas.Spec[guest] {
	calls := 0
	return replicas.Spec[guest]{
		Owner: owner, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Replicas: int32(n), Selector: labels.SelectorFromSet(labels.Set{"app": "web"}), //nolint:gosec // small
		New: func(string) (guest, error) { return guestOf(owner, ""), nil },
		Retire: func(m guest, leaves bool) (c replicas.Change[guest]) {
			if !leaves && bears("drained")(m) {
				return c // it cannot be taken back
			}
			c.To = m.DeepCopy()
			if delete(c.To.Annotations, "leave"); leaves {
				c.To.Annotations["leave"] = "yes"
			}
			return c
		},
		Rules: replicas.Rules[guest]{Leaving: bears("leave"), MustGo: bears("old"), Ready: func(m guest) bool { return !bears("unready")(m) }},
		Facts: replicas.Facts[guest]{Now: podtest.Now, Names: func(prefix string) string { calls++; return fmt.Sprintf("%sn%d", prefix, calls) }},
	}
}

func TestRetire(t *testing.T) {
	t.Parallel()
	owner := replicaSet(3)
	scale := func(t *testing.T, spec replicas.Spec[guest], members ...guest) replicas.Scale[guest] {
		t.Helper()
		s, err := replicas.ScaleTo(members, spec)
		require.NoError(t, err)
		return s
	}
	a, b, c := guestOf(owner, "web-a"), guestOf(owner, "web-b"), guestOf(owner, "web-c")
	leaving := guestOf(owner, "web-c", "leave")

	t.Run("a victim is marked in place of the delete call", func(t *testing.T) {
		t.Parallel()
		s := scale(t, guestsOf(owner, 2), a, b, c)
		require.Len(t, s.Delete, 1)
		require.NotNil(t, s.Delete[0].Mark)
		patch, err := s.Delete[0].Mark.Patch()
		require.NoError(t, err)
		assert.JSONEq(t, `{"metadata":{"annotations":{"leave":"yes"},"uid":"`+string(s.Delete[0].Object.UID)+`","resourceVersion":"1"}}`, string(patch.Data))
		assert.Contains(t, s.String(), "asked to leave")
	})
	t.Run("one that is recalled is not created", func(t *testing.T) {
		t.Parallel()
		s := scale(t, guestsOf(owner, 3), a, b, leaving)
		assert.Zero(t, s.Create)
		require.Len(t, s.Update, 1)
		assert.True(t, s.Update[0].Recall)
		assert.Equal(t, "change 1: default/web-c (recalled)", s.String())
	})
	t.Run("one that has drained is not taken back", func(t *testing.T) {
		t.Parallel()
		s := scale(t, guestsOf(owner, 3), a, b, guestOf(owner, "web-c", "leave", "drained"))
		assert.Equal(t, 1, s.Create)
		assert.Empty(t, s.Update)
	})
	t.Run("nor one that must go", func(t *testing.T) {
		t.Parallel()
		s := scale(t, guestsOf(owner, 3), a, b, guestOf(owner, "web-c", "leave", "old"))
		assert.Equal(t, 1, s.Create)
		assert.Empty(t, s.Update)
	})
	t.Run("wanted 3, active 3, one of them leaving and counted as active: one recall, no creation", func(t *testing.T) {
		t.Parallel()
		spec := guestsOf(owner, 3)
		spec.Rules.Active = func(guest) bool { return true }
		s := scale(t, spec, a, b, leaving)
		assert.Zero(t, s.Create)
		assert.Len(t, s.Update, 1)
	})
	t.Run("wanted 3, staying 2, one leaving and active, one creation unanswered: no recall", func(t *testing.T) {
		t.Parallel()
		spec := guestsOf(owner, 3)
		spec.Rules.Active = func(guest) bool { return true }
		spec.Facts.CreationsInFlight = []string{"web-x"}
		s := scale(t, spec, a, b, leaving)
		assert.Zero(t, s.Create)
		assert.Empty(t, s.Update)
	})
	t.Run("a mark without an answer counts as a deletion", func(t *testing.T) {
		t.Parallel()
		spec := guestsOf(owner, 2)
		spec.Facts.DeletionsInFlight = []types.UID{"uid-web-a"}
		s := scale(t, spec, a, b, c)
		require.Len(t, s.Delete, 1)
		assert.Equal(t, "web-a", s.Delete[0].Object.Name)
	})
	t.Run("with slots, a leaving guest keeps its own", func(t *testing.T) {
		t.Parallel()
		spec := guestsOf(owner, 2)
		spec.Slots = replicas.Ordinals("web")
		s := scale(t, spec, guestOf(owner, "web-0"), guestOf(owner, "web-1", "leave", "drained"))
		assert.Zero(t, s.Create)
		s = scale(t, spec, guestOf(owner, "web-0"), guestOf(owner, "web-1", "leave"))
		assert.Zero(t, s.Create)
		assert.Len(t, s.Update, 1)
		s = scale(t, spec, guestOf(owner, "web-0"), guestOf(owner, "web-7", "leave"))
		assert.Equal(t, []string{"web-1"}, s.Names)
		assert.Empty(t, s.Update, "no slot of this name is wanted")
	})
	t.Run("a deleted owner's children drain, too", func(t *testing.T) {
		t.Parallel()
		spec := guestsOf(owner, 2)
		gone := replicaSet(3)
		gone.DeletionTimestamp, gone.Finalizers = &metav1.Time{Time: podtest.Now}, []string{"example.com/drain"}
		spec.Owner, spec.Finalizer = gone, "example.com/drain"
		s := scale(t, spec, a, b, leaving)
		require.Len(t, s.Delete, 2)
		assert.NotNil(t, s.Delete[0].Mark)
		assert.Empty(t, s.Update)
	})
	t.Run("what cannot be used is refused", func(t *testing.T) {
		t.Parallel()
		for why, change := range map[string]func(*replicas.Spec[guest]){
			"Rules.Leaving is nil": func(s *replicas.Spec[guest]) { s.Rules.Leaving = nil },
			`change of "default/web-a": metadata.name would become "other"`: func(s *replicas.Spec[guest]) {
				s.Retire = func(m guest, _ bool) replicas.Change[guest] {
					changed := m.DeepCopy()
					changed.Name = "other"
					return replicas.Change[guest]{To: changed}
				}
			},
			"Retire has nothing to change, and Rules.Leaving does not report the child": func(s *replicas.Spec[guest]) {
				s.Retire = func(m guest, _ bool) replicas.Change[guest] { return replicas.Change[guest]{To: m.DeepCopy()} }
			},
		} {
			spec := guestsOf(owner, 0)
			change(&spec)
			_, err := replicas.Manage([]guest{a}, spec)
			var refused *replicas.RefusedError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, replicas.InvalidChange, refused.Reason)
			assert.ErrorContains(t, err, why)
		}
	})
}

// A marked child of another owner, and one that no longer matches, are not taken back, although a child is missing.
func TestOnlyTheOwnersMarksAreTakenBack(t *testing.T) {
	t.Parallel()
	owner, other := replicaSet(2), replicaSet(2)
	other.UID = "uid-other"
	relabeled := guestOf(owner, "web-c", "leave")
	relabeled.Labels = nil
	ours := guestOf(owner, "web-d", "leave")
	foreign := []guest{guestOf(owner, "web-a"), guestOf(other, "web-b", "leave"), relabeled}
	plan, err := replicas.Manage(foreign, guestsOf(owner, 2))
	require.NoError(t, err)
	assert.Empty(t, plan.Scale.Update)
	assert.Equal(t, 1, plan.Scale.Create)
	plan, err = replicas.Manage(append(foreign, ours), guestsOf(owner, 2))
	require.NoError(t, err)
	require.Len(t, plan.Scale.Update, 1)
	assert.Same(t, ours, plan.Scale.Update[0].Object)
	assert.Zero(t, plan.Scale.Create)
}

// Whatever becomes of the calls in flight, a plan with marks and recalls makes neither too many members nor too few.
func TestRetireInRandomWorlds(t *testing.T) {
	t.Parallel()
	owner := replicaSet(3)
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		wanted := random.IntN(5)
		spec := guestsOf(owner, wanted)
		keeps := random.IntN(2) == 0
		if keeps {
			spec.Rules.Active = func(guest) bool { return true }
		}
		limit := -1
		if random.IntN(3) == 0 {
			limit = 1 + random.IntN(2)
			value := intstr.FromInt(limit)
			spec.MaxUnavailable = &value
		}
		var members []guest
		deletions, recallsInFlight := sets.New[types.UID](), sets.New[types.UID]()
		for i := range random.IntN(6) {
			m := guestOf(owner, fmt.Sprintf("web-%d", i))
			for _, flag := range []string{"leave", "old", "unready", "drained"} {
				if random.IntN(4) == 0 {
					m.Annotations[flag] = "yes"
				}
			}
			switch {
			case random.IntN(4) > 0:
			case bears("leave")(m):
				recallsInFlight.Insert(m.UID)
			default:
				deletions.Insert(m.UID)
			}
			members = append(members, m)
		}
		for i := range random.IntN(3) {
			spec.Facts.CreationsInFlight = append(spec.Facts.CreationsInFlight, fmt.Sprintf("web-f%d", i))
		}
		spec.Facts.DeletionsInFlight, spec.Facts.UpdatesInFlight = sets.List(deletions), sets.List(recallsInFlight)
		plan, err := replicas.ScaleTo(members, spec)
		require.NoError(t, err, "seed %d", seed)
		room, err := replicas.RoomOf(members, spec)
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, plan.String(), room.Clamp(plan).String(), "seed %d: the room of the same children allows the plan", seed)

		staying, active, fresh := 0, 0, 0
		for _, m := range members {
			leaves := bears("leave")(m)
			if !leaves {
				staying++
			}
			if keeps || !leaves {
				active++
			}
			if !leaves && !bears("old")(m) {
				fresh++
			}
		}
		created, recalled, recalledInactive, again := 0, 0, 0, 0
		for _, name := range plan.Names {
			if !sets.New(spec.Facts.CreationsInFlight...).Has(name) {
				created++
			}
		}
		for _, c := range plan.Update {
			require.True(t, c.Recall, "seed %d", seed)
			require.False(t, bears("old")(c.Object), "seed %d: it would be marked again", seed)
			switch {
			case recallsInFlight.Has(c.Object.UID):
				again++
			default:
				recalled++
				if !keeps {
					recalledInactive++
				}
			}
		}
		creationsOpen, recallsOpen := len(spec.Facts.CreationsInFlight), recallsInFlight.Len()
		most := wanted - staying
		if limit >= 0 && staying != fresh { // a rollout replaces old ones, and stops at the limit of surge
			most = wanted - fresh
		}
		require.LessOrEqual(t, created+recalled, max(0, most-creationsOpen-recallsOpen), "seed %d: %v of %d wanted, %d staying, %d fresh, in flight %v and %v, limit %d, keeps %v", seed, plan, wanted, staying, fresh, spec.Facts.CreationsInFlight, recallsInFlight.UnsortedList(), limit, keeps)
		for _, v := range plan.Delete {
			require.NotNil(t, v.Mark, "seed %d", seed)
			require.False(t, bears("leave")(v.Object), "seed %d: it is on its way out", seed)
		}
		if created+recalled == 0 && creationsOpen+recallsOpen+again == 0 && limit < 0 && wanted > staying {
			require.NotZero(t, plan.Create+len(plan.Update)+active-staying, "seed %d: something is missing, and nothing is done: %v", seed, plan)
		}
	}
}
