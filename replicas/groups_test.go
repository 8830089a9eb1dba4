// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

func groupOf(m guest) string { return m.Labels["group"] }

func inGroup(m guest, group string) guest {
	if m.Labels = map[string]string{"app": "web"}; group != "" {
		m.Labels["group"] = group
	}
	return m
}

// groupsOf wants members of these groups, and none of its own.
func groupsOf(owner metav1.Object, groups ...replicas.Group[guest]) replicas.Spec[guest] {
	spec := guestsOf(owner, 0)
	spec.New, spec.GroupOf, spec.Groups = nil, groupOf, groups
	return spec
}

func group(name string, n int32) replicas.Group[guest] {
	return replicas.Group[guest]{Name: name, Replicas: n, New: func(string) (guest, error) { return inGroup(&corev1.ConfigMap{}, name), nil }}
}

// numbered names children by a counter for each prefix, so that the names in one group do not depend on the others.
func numbered() func(prefix string) string {
	last := map[string]int{}
	return func(prefix string) string {
		last[prefix]++
		return fmt.Sprintf("%sn%d", prefix, last[prefix])
	}
}

// A groupWorld is an owner with groups, its children, and what is known of them.
type groupWorld struct {
	spec replicas.Spec[guest]
	objs []guest
}

// newGroupWorld makes up a world. The names of two groups are prefixes of each other, one group may have slots, and some
// children are in a group that is not listed or in none.
func newGroupWorld(seed uint64) groupWorld {
	random, owner := rand.New(rand.NewPCG(seed, 1)), replicaSet(0)
	var w groupWorld
	for _, name := range []string{"gpu", "gpu-big", "cpu"}[:1+random.IntN(3)] {
		g := group(name, int32(random.IntN(4))) //nolint:gosec // small
		g.Paused = random.IntN(8) == 0
		one := intstr.FromInt32(1)
		switch random.IntN(4) {
		case 0:
			g.MaxUnavailable = &one
		case 1:
			g.Slots = replicas.Ordinals("web-" + name)
		case 2:
			g.MaxUnavailable, g.MaxSurge = &one, &one
		}
		if few := random.IntN(2); random.IntN(4) == 0 {
			g.MaxDeletions = &few
		}
		w.spec.Groups = append(w.spec.Groups, g)
	}
	groups := w.spec.Groups
	w.spec = groupsOf(owner, groups...)
	w.spec.Facts.Names, w.spec.BurstReplicas = numbered(), 1+random.IntN(3)
	w.spec.Update = func(m guest) (c replicas.Change[guest]) {
		if bears("older")(m) {
			c.To = m.DeepCopy()
			delete(c.To.Annotations, "older")
		}
		return c
	}
	if random.IntN(3) == 0 {
		w.spec.Rules.Active = func(guest) bool { return true }
	}
	w.spec.Rules.MustStay, w.spec.Rules.Discard = bears("stays"), bears("ended")
	for i := range random.IntN(9) {
		name := []string{"gpu", "gpu-big", "cpu", "gone", ""}[random.IntN(5)]
		m := inGroup(guestOf(owner, fmt.Sprintf("web-%s-%d", name, i)), name)
		for _, flag := range []string{"leave", "old", "unready", "drained", "older", "stays", "ended"} {
			if random.IntN(5) == 0 && (flag != "ended" || !bears("stays")(m)) {
				m.Annotations[flag] = "yes"
			}
		}
		switch random.IntN(8) {
		case 0:
			w.spec.Facts.DeletionsInFlight = append(w.spec.Facts.DeletionsInFlight, m.UID)
		case 1:
			w.spec.Facts.UpdatesInFlight = append(w.spec.Facts.UpdatesInFlight, m.UID)
		case 2:
			m.OwnerReferences = nil
		case 3:
			m.OwnerReferences = nil
			w.spec.Facts.Undecided = append(w.spec.Facts.Undecided, m)
			continue
		}
		w.objs = append(w.objs, m)
	}
	for i := range random.IntN(4) {
		w.spec.Facts.CreationsInFlight = append(w.spec.Facts.CreationsInFlight, fmt.Sprintf("web-%s-f%d", []string{"gpu", "gpu-big", "cpu", "gone"}[random.IntN(4)], i))
	}
	return w
}

// alone returns the world of an owner that has only the children of one group, and no groups.
func (w groupWorld) alone(g replicas.Group[guest]) groupWorld {
	spec := w.spec
	spec.Groups, spec.GroupOf = nil, nil
	spec.BaseName, spec.Replicas, spec.Paused, spec.Slots, spec.New = "web-"+g.Name, g.Replicas, g.Paused, g.Slots, g.New
	spec.MaxUnavailable, spec.MaxSurge, spec.MaxDeletions = g.MaxUnavailable, g.MaxSurge, g.MaxDeletions
	if g.Slots != nil {
		spec.BaseName = ""
	}
	if g.New == nil { // it is not listed
		spec.New, spec.Update, spec.NoAdoption = func(string) (guest, error) { return nil, nil }, nil, true
	}
	spec.Facts.Names = numbered()
	isOf := func(m guest) bool { return groupOf(m) == g.Name }
	spec.Facts.Undecided, spec.Facts.CreationsInFlight = kept(spec.Facts.Undecided, isOf), kept(spec.Facts.CreationsInFlight, func(name string) bool {
		return name[:strings.LastIndex(name, "-")] == "web-"+g.Name
	})
	return groupWorld{spec, kept(w.objs, isOf)}
}

func kept[E any](list []E, keep func(E) bool) []E {
	return slices.DeleteFunc(slices.Clone(list), func(e E) bool { return !keep(e) })
}

// The plan of an owner with groups is what the plans of an owner for each group are together, and the same is true of
// Clamp.
func TestGroupsArePlannedAsIfTheyWereAlone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		w := newGroupWorld(seed)
		plan, err := replicas.Manage(w.objs, w.spec)
		require.NoError(t, err, "seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 2))
		some := less(random, plan.Scale)
		owned := slices.Concat(plan.Claims.Owned, plan.Claims.Adopt)
		room, err := replicas.RoomOf(owned, w.spec)
		require.NoError(t, err, "seed %d", seed)

		var scale, clamped replicas.Scale[guest]
		var adopt, create int
		groups := slices.Clone(w.spec.Groups)
		for _, name := range []string{"cpu", "gone", "gpu", "gpu-big"} { // those that are not listed come last, by name
			if !slices.ContainsFunc(w.spec.Groups, func(g replicas.Group[guest]) bool { return g.Name == name }) {
				groups = append(groups, replicas.Group[guest]{Name: name})
			}
		}
		for _, g := range groups {
			alone := w.alone(g)
			p, err := replicas.Manage(alone.objs, alone.spec)
			require.NoError(t, err, "seed %d, group %s", seed, g.Name)
			r, err := replicas.RoomOf(kept(owned, func(m guest) bool { return groupOf(m) == g.Name }), alone.spec)
			require.NoError(t, err, "seed %d, group %s", seed, g.Name)
			adopt += len(p.Claims.Adopt)
			create += r.Create
			scale = joined(scale, p.Scale)
			part := replicas.Scale[guest]{Names: kept(some.Names, func(name string) bool { return slices.Contains(p.Scale.Names, name) })}
			part.Create = len(part.Names)
			part.Delete = kept(some.Delete, func(v replicas.Deletion[guest]) bool { return groupOf(v.Object) == g.Name })
			part.Update = kept(some.Update, func(c replicas.Change[guest]) bool { return groupOf(c.Object) == g.Name })
			clamped = joined(clamped, r.Clamp(part))
			for i, name := range plan.Scale.Names {
				if slices.Contains(p.Scale.Names, name) {
					require.Equal(t, g.Name, plan.Scale.Group(i), "seed %d", seed)
					child, err := plan.Scale.New(i)
					require.NoError(t, err, "seed %d", seed)
					require.Equal(t, g.Name, groupOf(child), "seed %d", seed)
				}
			}
		}
		require.Len(t, plan.Claims.Adopt, adopt, "seed %d", seed)
		require.Equal(t, create, room.Create, "seed %d", seed)
		require.Equal(t, show(scale), show(plan.Scale), "seed %d", seed)
		require.Equal(t, show(clamped), show(room.Clamp(some)), "seed %d: of %v", seed, some)
	}
}

// less removes some of the calls of a Scale.
func less(random *rand.Rand, scale replicas.Scale[guest]) replicas.Scale[guest] {
	scale.Names = kept(scale.Names, func(string) bool { return random.IntN(3) > 0 })
	scale.Create, scale.Discard = len(scale.Names), nil
	scale.Deferred, scale.Kept, scale.MustStay, scale.Outdated = 0, 0, 0, 0
	scale.Delete = kept(scale.Delete, func(replicas.Deletion[guest]) bool { return random.IntN(3) > 0 })
	scale.Update = kept(scale.Update, func(replicas.Change[guest]) bool { return random.IntN(3) > 0 })
	return scale
}

func joined(a, b replicas.Scale[guest]) replicas.Scale[guest] {
	a.Create, a.Names = a.Create+b.Create, append(a.Names, b.Names...)
	a.Delete, a.Discard, a.Update = append(a.Delete, b.Delete...), append(a.Discard, b.Discard...), append(a.Update, b.Update...)
	a.Deferred, a.Kept, a.MustStay, a.Outdated = a.Deferred+b.Deferred, a.Kept+b.Kept, a.MustStay+b.MustStay, a.Outdated+b.Outdated
	return a
}

// show describes a Scale, with the numbers that String leaves out.
func show(s replicas.Scale[guest]) string { return fmt.Sprintln(s, s.Names, s.Outdated) }

// One group is the same as no group, whatever the rest of the spec says.
func TestGroupsOfOne(t *testing.T) {
	t.Parallel()
	owner := replicaSet(3)
	a, b := inGroup(guestOf(owner, "web-all-a"), "all"), inGroup(guestOf(owner, "web-all-b", "old"), "all")
	with := groupsOf(owner, group("all", 3))
	without := guestsOf(owner, 3)
	without.BaseName, without.New = "web-all", with.Groups[0].New
	one, err := replicas.Manage([]guest{a, b}, with)
	require.NoError(t, err)
	none, err := replicas.Manage([]guest{a, b}, without)
	require.NoError(t, err)
	assert.Equal(t, show(none.Scale), show(one.Scale))
	assert.Equal(t, []string{"web-all-n1"}, one.Scale.Names)
	assert.Equal(t, "all", one.Scale.Group(0))
	assert.Empty(t, one.Scale.Group(1))
	assert.Empty(t, none.Scale.Group(0))
}

func TestGroups(t *testing.T) {
	t.Parallel()
	owner := replicaSet(0)
	plan := func(t *testing.T, spec replicas.Spec[guest], members ...guest) replicas.Plan[guest] {
		t.Helper()
		p, err := replicas.Manage(members, spec)
		require.NoError(t, err)
		return p
	}
	head, worker, stray := inGroup(guestOf(owner, "web-head-a"), "head"), inGroup(guestOf(owner, "web-worker-a"), "worker"), inGroup(guestOf(owner, "web-x"), "")

	t.Run("a group that is no longer listed wants none, and its orphans are not adopted", func(t *testing.T) {
		t.Parallel()
		orphan := inGroup(guestOf(owner, "web-worker-o"), "worker")
		orphan.OwnerReferences = nil
		p := plan(t, groupsOf(owner, group("head", 1)), head, worker, orphan)
		require.Len(t, p.Scale.Delete, 1)
		assert.Equal(t, "web-worker-a", p.Scale.Delete[0].Object.Name)
		assert.Empty(t, p.Claims.Adopt)
		spec := groupsOf(owner, group("head", 1))
		spec.Update = func(guest) replicas.Change[guest] { panic("the template of the group is gone with it") }
		plan(t, spec, worker)
	})
	t.Run("an empty list of groups wants none", func(t *testing.T) {
		t.Parallel()
		p := plan(t, groupsOf(owner), head, worker, stray)
		assert.Len(t, p.Scale.Delete, 2)
	})
	t.Run("a child of no group stays until the owner is drained", func(t *testing.T) {
		t.Parallel()
		assert.True(t, plan(t, groupsOf(owner, group("head", 1)), head, stray).IsZero())
		gone := replicaSet(0)
		gone.DeletionTimestamp, gone.Finalizers = &metav1.Time{Time: podtest.Now}, []string{"example.com/drain"}
		few := 0
		spec := groupsOf(gone, group("head", 1), replicas.Group[guest]{Name: "worker", Paused: true, BaseName: "A B"}, replicas.Group[guest]{Name: "kept", MaxDeletions: &few})
		spec.Finalizer = "example.com/drain"
		kept := inGroup(guestOf(owner, "web-kept-a"), "kept")
		p := plan(t, spec, head, worker, stray, kept)
		assert.Len(t, p.Scale.Delete, 3, "the group that is paused is drained too, and MaxDeletions holds")
		assert.Equal(t, int32(0), spec.Wanted())
	})
	t.Run("an owner whose groups are refused is drained", func(t *testing.T) {
		t.Parallel()
		gone := replicaSet(0)
		gone.DeletionTimestamp, gone.Finalizers = &metav1.Time{Time: podtest.Now}, []string{"example.com/drain"}
		spec := groupsOf(gone, group("A B", 1), group("head", 1), group("head", 2), group("", 1), replicas.Group[guest]{Name: "worker", Slots: replicas.Ordinals("web-head")})
		spec.Finalizer = "example.com/drain"
		p := plan(t, spec, head, worker, stray, inGroup(guestOf(owner, "web-a"), "A B"))
		assert.Len(t, p.Scale.Delete, 4)
	})
	t.Run("a blocked owner without groups says so", func(t *testing.T) {
		t.Parallel()
		spec := groupsOf(owner)
		spec.Paused = true
		assert.Equal(t, replicas.Paused, plan(t, spec, stray).Blocked.Reason)
		spec.Owner = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web", UID: owner.UID, DeletionTimestamp: &metav1.Time{Time: podtest.Now}}}
		assert.Equal(t, replicas.OwnerDeleted, plan(t, spec).Blocked.Reason)
	})
	t.Run("a paused group waits alone", func(t *testing.T) {
		t.Parallel()
		spec := groupsOf(owner, group("head", 2), group("worker", 3))
		spec.Groups[0].Paused = true
		p := plan(t, spec, head, worker)
		assert.Equal(t, []string{"web-worker-n1", "web-worker-n2"}, p.Scale.Names)
		assert.Empty(t, p.Blocked)
		assert.Equal(t, int32(5), spec.Wanted())
		spec.Paused = true
		assert.Equal(t, replicas.Paused, plan(t, spec, head, worker).Blocked.Reason)
	})
	t.Run("a long owner's name is shortened", func(t *testing.T) {
		t.Parallel()
		long := replicaSet(0)
		long.Name = strings.Repeat("a", 48) + "." + strings.Repeat("b", 20)
		spec := groupsOf(long, group("workers", 1))
		p := plan(t, spec)
		assert.Equal(t, []string{strings.Repeat("a", 48) + "-workers-n1"}, p.Scale.Names)
	})
	t.Run("a child of another group is not made", func(t *testing.T) {
		t.Parallel()
		spec := groupsOf(owner, group("head", 1))
		spec.Groups[0].New = func(string) (guest, error) { return inGroup(&corev1.ConfigMap{}, "worker"), nil }
		_, err := plan(t, spec).Scale.New(0)
		assert.ErrorContains(t, err, `GroupOf returns "worker" for it, and it must be of group "head"`)
	})
	t.Run("a stale view of one group blocks all", func(t *testing.T) {
		t.Parallel()
		spec := groupsOf(owner, group("head", 1), group("worker", 2))
		spec.Facts.Pending = 2 // expired
		p := plan(t, spec, head, worker)
		assert.Equal(t, replicas.ViewIsStale, p.Blocked.Reason)
		assert.True(t, p.Scale.IsZero())
	})
	t.Run("the order of each group", func(t *testing.T) {
		t.Parallel()
		order, err := replicas.Explain([]guest{worker, inGroup(guestOf(owner, "web-head-b", "old"), "head"), head}, groupsOf(owner, group("head", 1), group("worker", 2)))
		require.NoError(t, err)
		require.Len(t, order, 3)
		assert.Equal(t, "web-head-b", order[0].Object.Name)
		assert.Equal(t, "web-worker-a", order[2].Object.Name)
	})
}

func TestRefusedGroups(t *testing.T) {
	t.Parallel()
	owner, one := replicaSet(0), intstr.FromInt32(1)
	long := strings.Repeat("a", 60)
	for why, change := range map[string]func(*replicas.Spec[guest]){
		"groups are set, and GroupOf is nil":                                           func(s *replicas.Spec[guest]) { s.GroupOf = nil },
		"groups[1] has no name":                                                        func(s *replicas.Spec[guest]) { s.Groups[1].Name = "" },
		`group "a": another group has the same name`:                                   func(s *replicas.Spec[guest]) { s.Groups[1].Name = "a" },
		`group "b": base name "web-a" is the one of group "a" too`:                     func(s *replicas.Spec[guest]) { s.Groups[1].BaseName = "web-a" },
		`group "b": base name "B_": a lowercase RFC 1123 subdomain`:                    func(s *replicas.Spec[guest]) { s.Groups[1].BaseName = "B_" },
		`group "b": base name "` + long + `" has 60 characters, which is more than 57`: func(s *replicas.Spec[guest]) { s.Groups[1].BaseName = long },
		`group "` + long + `": base name "-` + long:                                    func(s *replicas.Spec[guest]) { s.Groups[1].Name = long },
		`group "b": New is nil`:                                                        func(s *replicas.Spec[guest]) { s.Groups[1].New = nil },
		"replicas is set beside GroupOf":                                               func(s *replicas.Spec[guest]) { s.Replicas = 1 },
		"baseName is set beside GroupOf":                                               func(s *replicas.Spec[guest]) { s.BaseName = "web" },
		"slots is set beside GroupOf":                                                  func(s *replicas.Spec[guest]) { s.Slots = replicas.Ordinals("web") },
		"template is set beside GroupOf":                                               func(s *replicas.Spec[guest]) { s.Template = &replicaSet(1).Spec.Template },
		"new is set beside GroupOf":                                                    func(s *replicas.Spec[guest]) { s.New = s.Groups[0].New },
		"maxUnavailable is set beside GroupOf":                                         func(s *replicas.Spec[guest]) { s.MaxUnavailable = &one },
		"maxSurge is set beside GroupOf":                                               func(s *replicas.Spec[guest]) { s.MaxSurge = &one },
		"maxDeletions is set beside GroupOf":                                           func(s *replicas.Spec[guest]) { s.MaxDeletions = new(int) },
		`group "b": slot "x-0" is one of group "a" too`: func(s *replicas.Spec[guest]) {
			s.Groups[0].Slots, s.Groups[1].Slots = replicas.Ordinals("x"), replicas.Ordinals("x")
		},
		`group "a": slot "web-b-0" begins with the base name of group "b"`: func(s *replicas.Spec[guest]) { s.Groups[0].Slots = replicas.Ordinals("web-b") },
	} {
		spec := groupsOf(owner, group("a", 1), group("b", 1))
		change(&spec)
		_, err := replicas.Manage(nil, spec)
		var refused *replicas.RefusedError
		require.ErrorAs(t, err, &refused, why)
		assert.Equal(t, replicas.InvalidGroups, refused.Reason)
		require.ErrorContains(t, err, `replicas: ReplicaSet "default/web": `+why)
	}
	for why, change := range map[string]func(*replicas.Spec[guest]){
		`group "b": replicas -1 is negative`:      func(s *replicas.Spec[guest]) { s.Groups[1].Replicas = -1 },
		`group "b": maxSurge 1: there is no slot`: func(s *replicas.Spec[guest]) { s.Groups[1].Slots, s.Groups[1].MaxSurge = replicas.Ordinals("x"), &one },
		`group "a": facts.names is nil`:           func(s *replicas.Spec[guest]) { s.Facts.Names = nil },
		`group "a": Names returned "web-a-1-2"`:   func(s *replicas.Spec[guest]) { s.Facts.Names = func(prefix string) string { return prefix + "1-2" } },
		`it would move to group "b"`: func(s *replicas.Spec[guest]) {
			s.Update = func(m guest) replicas.Change[guest] { return replicas.Change[guest]{To: inGroup(m.DeepCopy(), "b")} }
		},
	} {
		spec := groupsOf(owner, group("a", 2), group("b", 1))
		change(&spec)
		_, err := replicas.Manage([]guest{inGroup(guestOf(owner, "web-a-1"), "a")}, spec)
		require.ErrorContains(t, err, why)
	}
	room, err := replicas.RoomOf([]guest{}, groupsOf(owner, group("a", 1)))
	require.NoError(t, err)
	none := room.Clamp(replicas.Scale[guest]{Create: 2, Names: []string{"web-a-1", "web-a-2"}, Delete: make([]replicas.Deletion[guest], 1), Update: make([]replicas.Change[guest], 1)})
	assert.True(t, none.IsZero(), "no plan has chosen these")
	assert.Equal(t, types.UID(""), types.UID(none.Group(0)))
}
