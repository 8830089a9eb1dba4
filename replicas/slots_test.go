// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// slotted returns a spec with a worker in each of the first n slots. If no slots are given, the slots are
// ordinals.
func slotted(n int32, slots ...string) replicas.Spec[*worker] {
	spec := workerSpec(n)
	spec.New = func(name string) (*worker, error) {
		return &worker{ObjectMeta: metav1.ObjectMeta{Labels: web, Annotations: map[string]string{"made-as": name}}}, nil
	}
	if spec.Slots = replicas.Ordinals("web"); slots != nil {
		spec.Slots = func(i int) string { return append(slots, "")[i] }
	}
	return spec
}

func inSlots(names ...string) (have []*worker) {
	for i, name := range names {
		have = append(have, newWorker(replicaSet(1), name, i))
	}
	return have
}

// everywhere returns the spec of an owner that is in no namespace.
func everywhere(spec replicas.Spec[*worker]) replicas.Spec[*worker] {
	owner := replicaSet(1)
	owner.Namespace = ""
	spec.Owner = owner
	return spec
}

// If children of two namespaces are in one slot, no child of this slot is deleted or replaced, and only the oldest
// counts. All other slots are filled and emptied as usual.
func TestTwoChildrenInOneSlot(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		want                    int32
		have                    string // "other/web-1" is younger than "web-1"
		mustGo                  []string
		create, remove, doubled []string
		kept                    int
	}{
		"is nothing to others that are filled":                 {want: 3, have: "web-0 web-1 web-2 other/web-1", doubled: []string{"other/web-1"}},
		"does not keep others from being filled":               {want: 3, have: "web-0 web-1 other/web-1", create: []string{"web-2"}, doubled: []string{"other/web-1"}},
		"does not count twice, so who stands in for one stays": {want: 3, have: "web-0 web-1 web-9 other/web-1", create: []string{"web-2"}, doubled: []string{"other/web-1"}, kept: 1},
		"does not keep others from being emptied":              {want: 2, have: "web-0 web-1 web-2 other/web-1", remove: []string{"web-2"}, doubled: []string{"other/web-1"}},
		"is emptied with others when it is not wanted":         {want: 1, have: "web-0 web-1 other/web-1", remove: []string{"other/web-1", "web-1"}},
		"keeps what must go":                                   {want: 3, have: "web-0 web-1 web-2 other/web-1", mustGo: []string{"web-1", "web-2"}, remove: []string{"web-2"}, doubled: []string{"other/web-1"}},
		"keeps three, whatever their order":                    {want: 1, have: "third/web-0 other/web-0 web-0", doubled: []string{"other/web-0", "third/web-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var have []*worker
			for name := range strings.FieldsSeq(tt.have) {
				namespace, slot, other := strings.Cut(name, "/")
				if !other {
					namespace, slot = "default", name
				}
				child := newWorker(replicaSet(1), slot, 1)
				child.Namespace, child.UID = namespace, types.UID("uid-of-"+name)
				child.CreationTimestamp = metav1.NewTime(podtest.Now.Add(time.Duration(len(namespace)) * -time.Second)) // "default" is the oldest
				have = append(have, child)
			}
			for range 2 {
				spec := everywhere(slotted(tt.want))
				spec.Rules.MustGo = func(w *worker) bool { return slices.Contains(tt.mustGo, w.Name) }
				plan, err := replicas.Manage(have, spec)
				require.NoError(t, err)
				assert.ElementsMatch(t, tt.create, plan.Scale.Names)
				short := func(ws []*worker) (names []string) {
					for _, w := range ws {
						names = append(names, strings.TrimPrefix(w.Namespace+"/"+w.Name, "default/"))
					}
					return names
				}
				var removed []*worker
				for _, v := range plan.Scale.Delete {
					removed = append(removed, v.Object)
				}
				assert.ElementsMatch(t, tt.remove, short(removed))
				assert.Equal(t, tt.doubled, short(plan.Scale.Doubled))
				assert.Equal(t, tt.kept, plan.Scale.Kept)
				assert.Zero(t, plan.Scale.MustStay)
				room, err := replicas.RoomOf(have, everywhere(spec))
				require.NoError(t, err)
				assert.Equal(t, plan.Scale.Delete, room.Clamp(plan.Scale).Delete)
				_, err = replicas.Explain(have, spec)
				require.NoError(t, err)
				if len(tt.doubled) > 0 {
					assert.Contains(t, plan.Scale.String(), "in slots of others: "+strings.Join(tt.doubled, ", "))
					text, err := json.Marshal(plan.Scale)
					require.NoError(t, err)
					assert.Contains(t, string(text), `"doubled":[{"namespace":"other"`)
				}
				slices.Reverse(have)
			}
		})
	}
}

func TestOrdinals(t *testing.T) {
	t.Parallel()
	name := replicas.Ordinals("web")
	assert.Equal(t, []string{"web-0", "web-1", "web-10"}, []string{name(0), name(1), name(10)})
}

func TestSlots(t *testing.T) {
	t.Parallel()
	rs := replicaSet(3)
	leaves := newWorker(rs, "web-1", 1, goes)
	orphan := func(name string) *worker {
		return newWorker(rs, name, 1, func(w *worker) { w.OwnerReferences = nil })
	}
	stranger := newWorker(replicaSet(3), "web-1", 1, func(w *worker) { w.OwnerReferences[0].UID = "uid-of-another" })
	elsewhere := newWorker(replicaSet(3), "web-1", 1, func(w *worker) { w.OwnerReferences, w.Namespace = nil, "other" })
	stays := func(names ...string) func(*replicas.Spec[*worker]) {
		return func(s *replicas.Spec[*worker]) {
			s.Rules.MustStay = func(w *worker) bool { return slices.Contains(names, w.Name) }
		}
	}
	one := 1
	zones := []string{"zone-c", "zone-a", "zone-b"}
	for name, tt := range map[string]struct {
		spec                  replicas.Spec[*worker]
		have                  []*worker
		change                func(*replicas.Spec[*worker])
		create, remove, adopt []string
		deferred              int
	}{
		"are filled, the first first":                         {spec: slotted(3), create: []string{"web-0", "web-1", "web-2"}},
		"have no holes":                                       {spec: slotted(3), have: inSlots("web-0", "web-2"), create: []string{"web-1"}},
		"are left alone when all are filled":                  {spec: slotted(3), have: inSlots("web-2", "web-0", "web-1")},
		"are emptied from the highest":                        {spec: slotted(1), have: inSlots("web-9", "web-0", "web-11", "web-2", "web-10"), remove: []string{"web-11", "web-10", "web-9", "web-2"}},
		"are filled while others stand in for them":           {spec: slotted(2), have: inSlots("web-0", "web-2"), create: []string{"web-1"}},
		"are emptied of more than those meanwhile":            {spec: slotted(3), have: inSlots("web-0", "web-2", "web-3", "web-4"), create: []string{"web-1"}, remove: []string{"web-4"}},
		"are emptied of the others then":                      {spec: slotted(3), have: inSlots("web-0", "web-1", "web-2", "web-3"), remove: []string{"web-3"}},
		"keep who stands in for one that is going":            {spec: slotted(2), have: append(inSlots("web-0", "web-2"), leaves)},
		"keep who stands in for one that is going and active": {spec: slotted(2), have: append(inSlots("web-0", "web-2"), leaves), change: func(s *replicas.Spec[*worker]) { s.Rules.Active = func(*worker) bool { return true } }},
		"keep who must go while another is missing":           {spec: slotted(2), have: inSlots("web-0"), change: func(s *replicas.Spec[*worker]) { s.Rules.MustGo = func(*worker) bool { return true } }, create: []string{"web-1"}},
		"are filled by as many as a burst has":                {spec: slotted(3), change: func(s *replicas.Spec[*worker]) { s.BurstReplicas = 2 }, create: []string{"web-0", "web-1"}, deferred: 1},
		"are emptied by as many as the budget has":            {spec: slotted(1), have: inSlots("web-0", "web-1", "web-2"), change: func(s *replicas.Spec[*worker]) { s.MaxDeletions = &one }, remove: []string{"web-2"}, deferred: 1},
		"that are named go from the last":                     {spec: slotted(1, zones...), have: inSlots("zone-a", "zone-b", "zone-c", "b-zone"), remove: []string{"zone-b", "zone-a", "b-zone"}},
		"may be none":                                         {spec: slotted(0), have: append(inSlots("web-1", "web-0"), orphan("web-2")), remove: []string{"web-1", "web-0"}},
		"wait for what has the name and leaves":               {spec: slotted(3), have: append(inSlots("web-0"), leaves), create: []string{"web-2"}},
		"wait for another's child":                            {spec: slotted(2), have: []*worker{stranger}, create: []string{"web-0"}},
		"do not wait for another namespace":                   {spec: slotted(2), have: []*worker{elsewhere}, create: []string{"web-0", "web-1"}},
		"wait for a name that is taken":                       {spec: slotted(2), change: func(s *replicas.Spec[*worker]) { s.Facts.Taken = []string{"web-0"} }, create: []string{"web-1"}},
		"are held by an undecided orphan of their name alone": {spec: slotted(3), change: func(s *replicas.Spec[*worker]) { s.Facts.Undecided = []*worker{orphan("web-1"), orphan("any")} }, create: []string{"web-0", "web-2"}},
		"adopt who is in one":                                 {spec: slotted(2), have: []*worker{orphan("web-1")}, adopt: []string{"web-1"}, create: []string{"web-0"}},
		"do not adopt who is in none":                         {spec: slotted(1), have: []*worker{orphan("web-1"), orphan("any")}, create: []string{"web-0"}},
		"keep who must stay, and no other for it":             {spec: slotted(1), have: inSlots("web-0", "web-1"), change: stays("web-1")},
		"have no holes because of who must stay":              {spec: slotted(1), have: inSlots("web-7"), change: stays("web-7"), create: []string{"web-0"}},
		"one whose child must go is filled again later":       {spec: slotted(2), have: inSlots("web-0", "web-1"), change: func(s *replicas.Spec[*worker]) { s.Rules.MustGo = func(w *worker) bool { return w.Name == "web-0" } }, remove: []string{"web-0"}},
		"that are not wanted go before who must": {spec: slotted(2), have: inSlots("web-0", "web-1", "web-2"), change: func(s *replicas.Spec[*worker]) {
			s.Rules.MustGo = func(w *worker) bool { return w.Name == "web-0" }
		}, remove: []string{"web-2", "web-0"}},
		"wait for who is discarded": {spec: slotted(2), have: []*worker{newWorker(rs, "web-0", 1, over)}, change: func(s *replicas.Spec[*worker]) { s.Rules.Discard = isOver }, create: []string{"web-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := tt.spec
			if tt.change != nil {
				tt.change(&spec)
			}
			spec.Facts.Names = func(string) string { panic("no name is asked for") }
			plan, err := replicas.Manage(tt.have, spec)
			require.NoError(t, err)
			var adopted []string
			for _, w := range plan.Claims.Adopt {
				adopted = append(adopted, w.Name)
			}
			assert.Equal(t, tt.adopt, adopted)
			assert.Equal(t, tt.create, plan.Scale.Names)
			assert.Equal(t, len(tt.create), plan.Scale.Create)
			assert.Equal(t, tt.remove, namesOf(plan.Scale.Delete))
			assert.Equal(t, tt.deferred, plan.Scale.Deferred)
			for i, name := range tt.create {
				child, err := plan.Scale.New(i)
				require.NoError(t, err)
				assert.Equal(t, name, child.Name)
				assert.Equal(t, map[string]string{"made-as": name}, child.Annotations)
			}
			if tt.adopt == nil {
				scale, err := replicas.ScaleTo(plan.Claims.Owned, spec)
				require.NoError(t, err)
				assert.Equal(t, namesOf(plan.Scale.Delete), namesOf(scale.Delete))
			}
		})
	}
}

// If a child is deleted because it is in the highest slot, the reason contains the names of the compared slots.
func TestSlotsExplain(t *testing.T) {
	t.Parallel()
	spec := slotted(1)
	spec.Rules.Order = podrank.Must(podrank.NewOrder(podrank.Oldest[*worker]()))
	order, err := replicas.Explain(inSlots("web-0", "web-9", "web-10"), spec)
	require.NoError(t, err)
	var got []string
	for _, v := range order {
		got = append(got, v.Object.Name+": "+v.Explain())
	}
	assert.Equal(t, []string{"web-10: highest slot web-10 > web-9", "web-9: must go", "web-0: all go"}, got)
	t.Run("of pods in Kubernetes' order", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(2)
		spec := specOf(t, rs)
		spec.Slots = replicas.Ordinals("web")
		spec.Rules.MustGo = func(*corev1.Pod) bool { return true }
		scale, err := replicas.ScaleTo([]*corev1.Pod{podtest.Pod("web-0", owned(rs)), podtest.Pod("web-1", owned(rs), podtest.NotReady), podtest.Pod("web-2", owned(rs))}, spec)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-2", "web-1", "web-0"}, victims(scale))
	})
}

func TestSlotsRefuse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spec replicas.Spec[*worker]
		want string
	}{
		"too few":             {slotted(3, "a", "b"), `slot 2 is "": `},
		"one twice":           {slotted(3, "a", "b", "a"), `slot 2: "a" is the name of another slot too`},
		"one that is no name": {slotted(1, "Zone_1"), `slot 0 is "Zone_1": `},
		"one that is a path":  {slotted(2, "a", "b/c"), `slot 1 is "b/c": `},
		"too many":            {slotted(math.MaxInt32), `replicas 2147483647 is more than the 1000000 slots that are possible`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := replicas.Manage(nil, tt.spec)
			requireRefused(t, err, replicas.InvalidSlots)
			require.ErrorContains(t, err, `replicas: ReplicaSet "default/web": `+tt.want)
			assert.Zero(t, plan)
			_, err = replicas.ScaleTo(nil, tt.spec)
			requireRefused(t, err, replicas.InvalidSlots)
		})
	}
	t.Run("none that is not wanted", func(t *testing.T) {
		t.Parallel()
		_, err := replicas.Manage(nil, slotted(1, "a", "a", "Zone_1"))
		require.NoError(t, err)
	})
	t.Run("two orphans for one, of which one is adopted", func(t *testing.T) {
		t.Parallel()
		spec := everywhere(slotted(1))
		have := inSlots("web-0", "web-0")
		have[1].Namespace, have[1].UID = "other", "uid-of-the-other"
		have[0].OwnerReferences, have[1].OwnerReferences = nil, nil
		plan, err := replicas.Manage(have, spec)
		require.NoError(t, err)
		assert.Equal(t, have[:1], plan.Claims.Adopt)
	})
	t.Run("an order that uses the name", func(t *testing.T) {
		t.Parallel()
		spec := slotted(1)
		spec.Rules.Order = podrank.Must(podrank.NewOrder(podrank.By("highest slot", func(w *worker) string { return w.Name })))
		_, err := replicas.Manage(nil, spec)
		require.EqualError(t, err, `replicas: ReplicaSet "default/web": podrank: criterion "highest slot" is listed twice`)
	})
}

// TestSlotsAgreeWithTheirTwin computes the expected creations and deletions slot by slot, and compares them with
// the plan.
func TestSlotsAgreeWithTheirTwin(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 11))
		n := int32(r.IntN(7))
		spec, rs := slotted(n), replicaSet(n)
		spec.BurstReplicas = 1 + r.IntN(9)
		var have []*worker
		must, stay, gone := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, i := range r.Perm(14)[:r.IntN(14)] {
			w := newWorker(rs, fmt.Sprintf("web-%d", i), r.IntN(5))
			must[w.Name], stay[w.Name] = r.IntN(6) == 0, r.IntN(6) == 0
			if gone[w.Name] = r.IntN(6) == 0; gone[w.Name] {
				goes(w)
			}
			have = append(have, w)
		}
		spec.Rules.MustGo = func(w *worker) bool { return must[w.Name] }
		spec.Rules.MustStay = func(w *worker) bool { return stay[w.Name] }

		there := map[string]bool{}
		var out, inside, create []string
		missing, staying := 0, 0
		for i := range 14 { // in ascending order of the ordinals
			name := fmt.Sprintf("web-%d", i)
			there[name] = slices.ContainsFunc(have, func(w *worker) bool { return w.Name == name })
			if there[name] && !gone[name] {
				staying++
			} else if i < int(n) {
				missing++
			}
			switch {
			case i < int(n) && !there[name]:
				create = append(create, name)
			case !there[name] || gone[name] || stay[name]:
			case i >= int(n):
				out = append([]string{name}, out...)
			case must[name]:
				inside = append(inside, name)
			}
		}
		plan, err := replicas.Manage(have, spec)
		require.NoError(t, err)
		mustGo := len(out) + len(inside)
		if missing > 0 { // children outside the wanted slots are kept in place of missing children
			out, inside = out[:max(min(staying-int(n), len(out)), 0)], nil
		}
		remove := min(len(out)+len(inside), spec.BurstReplicas)
		require.Len(t, plan.Scale.Delete, remove, "seed %d: %v", seed, plan)
		require.Equal(t, mustGo-len(out)-len(inside), plan.Scale.Kept, "seed %d: %v", seed, plan)
		names := namesOf(plan.Scale.Delete)
		require.Equal(t, append([]string{}, out[:min(len(out), remove)]...), append([]string{}, names[:min(len(out), remove)]...), "seed %d", seed)
		require.Subset(t, inside, names[min(len(out), remove):])
		require.Equal(t, create[:min(len(create), spec.BurstReplicas)], append([]string(nil), plan.Scale.Names...), "seed %d: %v", seed, plan)
		require.Equal(t, len(out)+len(inside)-remove+len(create)-plan.Scale.Create, plan.Scale.Deferred)

		slices.SortFunc(have, func(a, b *worker) int { return cmp.Compare(b.Name, a.Name) })
		again, err := replicas.Manage(have, spec)
		require.NoError(t, err)
		require.Equal(t, plan.Scale.String(), again.Scale.String())
	}
}

// A plan calls Spec.Slots only until it has found the slots that it needs. So a plan for a million slots usually
// calls Spec.Slots only a few times.
func TestSlotsAreNamedAsNeeded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		have            []string
		taken           []string
		calls, deferred int
		remove          []string
	}{
		"the first ones":             {calls: 7, deferred: replicas.MaxSlots - 7},
		"those after what is there":  {have: []string{"web-1", "web-0"}, calls: 9, deferred: replicas.MaxSlots - 9},
		"up to the last that has it": {have: []string{"web-20"}, calls: 21, deferred: replicas.MaxSlots - 8},
		"those after what is taken":  {taken: []string{"web-3"}, calls: 8, deferred: replicas.MaxSlots - 8},
		"all if one is in none":      {have: []string{"any"}, calls: replicas.MaxSlots, deferred: replicas.MaxSlots - 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, calls := slotted(replicas.MaxSlots), 0
			slot := spec.Slots
			spec.Slots = func(i int) string { calls++; return slot(i) }
			spec.Facts.Taken, spec.BurstReplicas = tt.taken, 7
			plan, err := replicas.Manage(inSlots(tt.have...), spec)
			require.NoError(t, err)
			assert.Equal(t, tt.calls, calls)
			assert.Equal(t, tt.deferred, plan.Scale.Deferred)
			assert.Equal(t, tt.remove, namesOf(plan.Scale.Delete))
		})
	}
	t.Run("a name that comes again is refused when it is met", func(t *testing.T) {
		t.Parallel()
		spec := slotted(3, "a", "b", "a")
		spec.BurstReplicas = 2
		plan, err := replicas.Manage(nil, spec)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, plan.Scale.Names)
		_, err = replicas.Manage(inSlots("a", "b"), spec)
		requireRefused(t, err, replicas.InvalidSlots)
	})
}

// lotted wants members whose slots are annotations, such as web-3 of the member web-3-n1.
func lotted(owner metav1.Object, n int) replicas.Spec[guest] {
	spec := guestsOf(owner, n)
	spec.Slots, spec.Facts.Names = replicas.Ordinals("web"), numbered()
	spec.SlotOf = func(m guest) string { return m.Annotations["slot"] }
	spec.New = func(name string) (guest, error) {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"slot": replicas.SlotIn(name)}}}, nil
	}
	return spec
}

func inSlot(owner metav1.Object, name string, flags ...string) guest {
	m := guestOf(owner, name, flags...)
	m.Annotations["slot"] = replicas.SlotIn(name)
	return m
}

func TestSlotOf(t *testing.T) {
	t.Parallel()
	owner := replicaSet(3)
	scale := func(t *testing.T, spec replicas.Spec[guest], members ...guest) string {
		t.Helper()
		s, err := replicas.ScaleTo(members, spec)
		require.NoError(t, err)
		return strings.Join(append([]string{s.String()}, s.Names...), " ")
	}
	one, zero := intstr.FromInt32(1), intstr.FromInt32(0)

	t.Run("an empty slot is filled, and a second child of a slot goes first", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, "create 1; delete 1: default/web-0-a (asked to leave: UID uid-web-0-a < uid-web-0-b); 1 kept while others are missing or unavailable web-1-n1",
			scale(t, lotted(owner, 2), inSlot(owner, "web-0-a"), inSlot(owner, "web-0-b"), inSlot(owner, "web-0-c")))
		assert.Equal(t, "create 1; delete 1: default/web-7-a (asked to leave: highest slot web-7 > web-0); 1 kept while others are missing or unavailable web-1-n1",
			scale(t, lotted(owner, 3), inSlot(owner, "web-0-a"), inSlot(owner, "web-0-b"), inSlot(owner, "web-2-a"), inSlot(owner, "web-7-a")))
	})
	t.Run("surge: the new child of a slot comes before the old one goes", func(t *testing.T) {
		t.Parallel()
		spec := lotted(owner, 2)
		spec.MaxUnavailable, spec.MaxSurge = &zero, &one
		old0, old1 := inSlot(owner, "web-0-a", "old"), inSlot(owner, "web-1-a", "old")
		assert.Equal(t, "create 1; 2 kept while others are missing or unavailable web-0-n1", scale(t, spec, old0, old1))
		assert.Equal(t, "nothing to do; 2 kept while others are missing or unavailable", scale(t, spec, old0, old1, inSlot(owner, "web-0-n1", "unready")))
		assert.Contains(t, scale(t, spec, old0, old1, inSlot(owner, "web-0-n1")), "delete 1: default/web-0-a")
	})
	t.Run("a creation without an answer fills only its own slot, and is sent again", func(t *testing.T) {
		t.Parallel()
		spec := lotted(owner, 3)
		spec.Facts.CreationsInFlight = []string{"web-7-x", "web-1-x"}
		assert.Equal(t, "create 2 web-1-x web-2-n1", scale(t, spec, inSlot(owner, "web-0-a")))
	})
	t.Run("a marked child is replaced at once, or taken back", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, "create 1 web-1-n1", scale(t, lotted(owner, 2), inSlot(owner, "web-0-a"), inSlot(owner, "web-1-a", "leave", "drained")))
		assert.Equal(t, "change 1: default/web-1-a (recalled)", scale(t, lotted(owner, 2), inSlot(owner, "web-0-a"), inSlot(owner, "web-1-a", "leave")))
	})
	t.Run("a child that must stay keeps its slot, and takes no other", func(t *testing.T) {
		t.Parallel()
		spec := lotted(owner, 1)
		spec.Rules.MustStay = bears("stay")
		assert.Equal(t, "nothing to do; 1 kept by MustStay", scale(t, spec, inSlot(owner, "web-0-a", "stay"), inSlot(owner, "web-0-b", "stay")))
		assert.Contains(t, scale(t, spec, inSlot(owner, "web-0-a", "stay"), inSlot(owner, "web-0-b")), "delete 1: default/web-0-b")
		spec.MaxUnavailable, spec.MaxSurge = &one, &one
		assert.Equal(t, "nothing to do; 1 kept by MustStay", scale(t, spec, inSlot(owner, "web-0-a", "stay", "old")))
		spec.MaxSurge = nil
		assert.Equal(t, "create 1 web-0-n1", scale(t, spec, inSlot(owner, "web-7-a", "stay")))
	})
	t.Run("a recall without an answer holds its slot, and a place", func(t *testing.T) {
		t.Parallel()
		spec := lotted(owner, 2)
		spec.Facts.UpdatesInFlight = []types.UID{"uid-web-1-a"}
		left := inSlot(owner, "web-1-a", "leave", "drained")
		assert.Equal(t, "nothing to do", scale(t, spec, inSlot(owner, "web-0-a"), left, inSlot(owner, "web-1-b", "leave")))
		spec.MaxUnavailable = &one
		assert.NotContains(t, scale(t, spec, inSlot(owner, "web-0-a", "old"), left), "create", "web-1-a may be the second of two")
	})
	t.Run("an orphan that is undecided holds its slot, and a place", func(t *testing.T) {
		t.Parallel()
		spec := lotted(owner, 2)
		spec.MaxUnavailable, spec.Facts.Undecided = &one, []guest{inSlot(owner, "web-1-a")}
		second := inSlot(owner, "web-1-b")
		second.OwnerReferences = nil
		plan, err := replicas.Manage([]guest{inSlot(owner, "web-0-a"), second}, spec)
		require.NoError(t, err)
		assert.Empty(t, plan.Claims.Adopt)
		assert.NotContains(t, scale(t, spec, inSlot(owner, "web-0-a", "old")), "create")
	})
	t.Run("without limits, none is taken back beside one that is replaced", func(t *testing.T) {
		t.Parallel()
		spec, none := lotted(owner, 1), 0
		spec.Rules.Active, spec.MaxDeletions = func(guest) bool { return true }, &none
		assert.Equal(t, "nothing to do; 1 more later", scale(t, spec, inSlot(owner, "web-0-a", "old"), inSlot(owner, "web-0-b", "leave")))
	})
	t.Run("what cannot be used is refused", func(t *testing.T) {
		t.Parallel()
		for why, change := range map[string]func(*replicas.Spec[guest]){
			"SlotOf is set, and Slots is nil": func(s *replicas.Spec[guest]) { s.Slots = nil },
			"facts.names is nil":              func(s *replicas.Spec[guest]) { s.Facts.Names = nil },
			"longer than 57 characters":       func(s *replicas.Spec[guest]) { s.Slots = replicas.Ordinals(strings.Repeat("a", 56)) },
			`Names returned "web-0-a-b"`:      func(s *replicas.Spec[guest]) { s.Facts.Names = func(prefix string) string { return prefix + "a-b" } },
			`it would move to slot ""`: func(s *replicas.Spec[guest]) {
				s.Update = func(m guest) replicas.Change[guest] {
					changed := m.DeepCopy()
					changed.Annotations = nil
					return replicas.Change[guest]{To: changed}
				}
			},
		} {
			spec := lotted(owner, 2)
			change(&spec)
			_, err := replicas.ScaleTo([]guest{inSlot(owner, "web-1-a")}, spec)
			require.ErrorContains(t, err, why)
		}
		spec := lotted(owner, 1)
		spec.New = func(string) (guest, error) {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}, nil
		}
		s, err := replicas.ScaleTo([]guest{}, spec)
		require.NoError(t, err)
		_, err = s.New(0)
		require.ErrorContains(t, err, `SlotOf returns "" for it, and its slot is "web-0"`)
	})
}

// A slotWorld is an owner whose members have slots, with calls in flight.
type slotWorld struct {
	spec    replicas.Spec[guest]
	members []guest
	limited bool
	u, s    int
	keeps   bool
	seed    uint64
	round   int
}

func (w slotWorld) must(t *testing.T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf("seed %d, round %d: %s", w.seed, w.round, fmt.Sprintf(format, args...))
	}
}

func newSlotWorld(seed uint64) slotWorld {
	random, owner := rand.New(rand.NewPCG(seed, 1)), replicaSet(3)
	w := slotWorld{spec: lotted(owner, random.IntN(5))}
	w.spec.Rules.MustStay = bears("stay")
	if w.keeps = random.IntN(2) == 0; w.keeps {
		w.spec.Rules.Active = func(guest) bool { return true }
	}
	if w.limited = random.IntN(2) == 0; w.limited {
		w.u, w.s = random.IntN(3), random.IntN(3)
		if w.u+w.s == 0 {
			w.u = 1
		}
		u, s := intstr.FromInt(w.u), intstr.FromInt(w.s)
		w.spec.MaxUnavailable, w.spec.MaxSurge = &u, &s
	}
	w.spec.BurstReplicas = 1 + random.IntN(4)
	for i := range random.IntN(8) {
		m := inSlot(owner, fmt.Sprintf("web-%d-a%d", random.IntN(6), i))
		for _, flag := range []string{"leave", "old", "unready", "drained", "stay"} {
			if random.IntN(4) == 0 {
				m.Annotations[flag] = "yes"
			}
		}
		switch {
		case random.IntN(4) > 0:
		case bears("leave")(m):
			w.spec.Facts.UpdatesInFlight = append(w.spec.Facts.UpdatesInFlight, m.UID)
		default:
			w.spec.Facts.DeletionsInFlight = append(w.spec.Facts.DeletionsInFlight, m.UID)
		}
		w.members = append(w.members, m)
	}
	for i := range max(random.IntN(6)-3, 0) {
		w.spec.Facts.Undecided = append(w.spec.Facts.Undecided, inSlot(owner, fmt.Sprintf("web-%d-o%d", random.IntN(4), i)))
	}
	for i := range random.IntN(3) {
		w.spec.Facts.CreationsInFlight = append(w.spec.Facts.CreationsInFlight, fmt.Sprintf("web-%d-f%d", random.IntN(6), i))
	}
	return w
}

func (w slotWorld) isWanted(slot string) bool {
	for i := range int(w.spec.Replicas) {
		if w.spec.Slots(i) == slot {
			return true
		}
	}
	return false
}

// isOld reports whether a child must go, and does.
func isOld(m guest) bool { return bears("old")(m) && !bears("stay")(m) }

// isStuck reports whether a child must stay beside the one of its slot, or beside all wanted slots.
func (w slotWorld) isStuck(m guest) bool {
	slot := w.spec.SlotOf(m)
	return bears("stay")(m) && !bears("leave")(m) && (!w.isWanted(slot) || slices.ContainsFunc(w.members, func(o guest) bool {
		return o.UID != m.UID && w.spec.SlotOf(o) == slot && !bears("leave")(o) && bears("stay")(o) && o.UID < m.UID
	}))
}

func (w slotWorld) hasUndecided(slot string) bool {
	return slices.ContainsFunc(w.spec.Facts.Undecided, func(m guest) bool { return w.spec.SlotOf(m) == slot })
}

// check checks a plan against what is true of each slot.
func (w slotWorld) check(t *testing.T, plan replicas.Scale[guest]) {
	t.Helper()
	inFlight := func(slot string) bool {
		return slices.ContainsFunc(w.spec.Facts.CreationsInFlight, func(name string) bool { return replicas.SlotIn(name) == slot })
	}
	filled := map[string]bool{}
	all, fresh, available := len(w.spec.Facts.Undecided), 0, 0
	for _, m := range w.members {
		leaves := bears("leave")(m)
		recalled := slices.Contains(w.spec.Facts.UpdatesInFlight, m.UID)
		if w.keeps || !leaves || recalled {
			all++
		}
		if w.isStuck(m) {
			all--
		}
		if !leaves && !bears("unready")(m) && !slices.Contains(w.spec.Facts.DeletionsInFlight, m.UID) {
			available++
		}
	}
	for i := range int(w.spec.Replicas) {
		slot := w.spec.Slots(i)
		isUp := func(m guest) bool {
			return w.spec.SlotOf(m) == slot && !isOld(m) && (w.keeps || !bears("leave")(m))
		}
		if slices.ContainsFunc(w.members, isUp) {
			fresh++
		}
	}
	created := 0
	for _, c := range plan.Update {
		slot := w.spec.SlotOf(c.Object)
		again := slices.Contains(w.spec.Facts.UpdatesInFlight, c.Object.UID)
		w.must(t, again || !slices.ContainsFunc(w.members, func(m guest) bool {
			return w.spec.SlotOf(m) == slot && slices.Contains(w.spec.Facts.UpdatesInFlight, m.UID)
		}), "%s may come back beside another one", c.Object.Name)
		if !w.keeps && !again {
			created++
		}
		w.must(t, c.Recall && w.isWanted(slot) && !filled[slot] && !inFlight(slot), "recall of %s", c.Object.Name)
		w.must(t, !slices.ContainsFunc(w.members, func(m guest) bool {
			return w.spec.SlotOf(m) == slot && (!w.limited || !isOld(m)) && !bears("leave")(m)
		}), "%s has a child that stays", slot)
		w.must(t, !w.hasUndecided(slot), "%s has an orphan", slot)
		filled[slot] = true
	}
	for _, name := range plan.Names {
		slot, again := replicas.SlotIn(name), slices.Contains(w.spec.Facts.CreationsInFlight, name)
		w.must(t, !w.hasUndecided(slot), "%s has an orphan", slot)
		w.must(t, w.isWanted(slot) && !filled[slot] && (again || !inFlight(slot)), "creation of %s", name)
		w.must(t, !slices.ContainsFunc(w.members, func(m guest) bool {
			counts := w.keeps || !bears("leave")(m)
			comesBack := slices.Contains(w.spec.Facts.UpdatesInFlight, m.UID)
			return w.spec.SlotOf(m) == slot && (counts && (!w.limited || !isOld(m)) || comesBack)
		}), "%s is not vacant for %s", slot, name)
		filled[slot] = true
		created++
	}
	if w.limited && created > 0 {
		w.must(t, created <= int(w.spec.Replicas)-fresh && created <= int(w.spec.Replicas)+w.s-all, "more than surge allows")
	}
	gone := 0
	for _, v := range plan.Delete {
		slot := w.spec.SlotOf(v.Object)
		w.must(t, !bears("stay")(v.Object), "%s must stay", v.Object.Name)
		if !bears("unready")(v.Object) && !slices.Contains(w.spec.Facts.DeletionsInFlight, v.Object.UID) {
			gone++
		}
		if bears("old")(v.Object) || !w.isWanted(slot) || slices.Contains(w.spec.Facts.DeletionsInFlight, v.Object.UID) {
			continue
		}
		w.must(t, slices.ContainsFunc(w.members, func(m guest) bool {
			return m.UID != v.Object.UID && w.spec.SlotOf(m) == slot && !isOld(m) && !bears("leave")(m) &&
				!slices.ContainsFunc(plan.Delete, func(o replicas.Deletion[guest]) bool { return o.Object.UID == m.UID })
		}), "%s has no other child than %s", slot, v.Object.Name)
	}
	if w.limited && gone > 0 {
		w.must(t, gone <= available-(int(w.spec.Replicas)-w.u), "fewer available than the limit allows")
	}
}

// carryOut makes the calls of a plan, and all calls in flight take effect or fail for good.
func (w *slotWorld) carryOut(t *testing.T, plan replicas.Scale[guest], random *rand.Rand, round int) {
	t.Helper()
	var left []guest
	for _, m := range w.members {
		isVictim := slices.ContainsFunc(plan.Delete, func(v replicas.Deletion[guest]) bool { return v.Object.UID == m.UID })
		if isVictim || bears("leave")(m) && bears("drained")(m) || slices.Contains(w.spec.Facts.DeletionsInFlight, m.UID) && random.IntN(2) == 0 {
			continue
		}
		m = m.DeepCopy()
		for _, c := range plan.Update {
			if c.Object.UID == m.UID {
				delete(m.Annotations, "leave")
			}
		}
		if bears("leave")(m) {
			m.Annotations["drained"] = "yes"
		}
		delete(m.Annotations, "unready")
		if random.IntN(4) == 0 {
			delete(m.Annotations, "stay")
		}
		left = append(left, m)
	}
	for _, name := range slices.Concat(plan.Names, w.spec.Facts.CreationsInFlight) {
		exists := slices.ContainsFunc(left, func(m guest) bool { return m.Name == name })
		if isLost := !slices.Contains(plan.Names, name); exists || isLost && random.IntN(2) == 0 {
			continue
		}
		m := inSlot(w.spec.Owner, name, "unready")
		m.UID = types.UID(fmt.Sprint(name, round))
		left = append(left, m)
	}
	w.members = left
	for _, m := range w.spec.Facts.Undecided {
		if random.IntN(2) == 0 {
			w.members = append(w.members, m)
		}
	}
	w.spec.Facts.Undecided = nil
	w.spec.Facts.CreationsInFlight, w.spec.Facts.DeletionsInFlight, w.spec.Facts.UpdatesInFlight = nil, nil, nil
}

// Whatever is in flight, no plan gives a slot a second keeper, none takes the last one, and carried out one after the other,
// the plans end with one child in each wanted slot.
func TestSlotOfInRandomWorlds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		w, random := newSlotWorld(seed), rand.New(rand.NewPCG(seed, 2))
		for round := 0; ; round++ {
			require.Less(t, round, 60, "seed %d: no end", seed)
			plan, err := replicas.ScaleTo(w.members, w.spec)
			require.NoError(t, err, "seed %d", seed)
			room, err := replicas.RoomOf(w.members, w.spec)
			require.NoError(t, err, "seed %d", seed)
			require.Equal(t, show(plan), show(room.Clamp(plan)), "seed %d, round %d", seed, round)
			w.seed, w.round = seed, round
			w.check(t, plan)
			less := plan // the caller leaves some of it out
			less.Update = kept(less.Update, func(replicas.Change[guest]) bool { return random.IntN(3) > 0 })
			less.Names = kept(less.Names, func(string) bool { return random.IntN(3) > 0 })
			less.Delete = kept(less.Delete, func(replicas.Deletion[guest]) bool { return random.IntN(3) > 0 })
			w.check(t, room.Clamp(less))
			isQuiet := !slices.ContainsFunc(w.members, func(m guest) bool { return bears("unready")(m) || bears("leave")(m) || bears("stay")(m) })
			if plan.IsZero() && isQuiet && len(w.spec.Facts.CreationsInFlight)+len(w.spec.Facts.DeletionsInFlight)+len(w.spec.Facts.Undecided) == 0 {
				break
			}
			w.carryOut(t, plan, random, round)
		}
		require.Len(t, w.members, int(w.spec.Replicas), "seed %d", seed)
		for i := range w.members {
			require.True(t, slices.ContainsFunc(w.members, func(m guest) bool { return w.spec.SlotOf(m) == w.spec.Slots(i) }), "seed %d", seed)
		}
	}
}

// SlotOf that returns what is in front of a name plans what slots by name plan, if no slot has two children, no limit lets
// them overlap, and a child that leaves keeps its slot.
func TestSlotOfAgreesWithSlotsByName(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		w := newSlotWorld(seed)
		if !w.keeps || w.limited {
			continue
		}
		w.spec.BurstReplicas = 0
		byName, taken := w.spec, map[string]bool{}
		byName.SlotOf, byName.Facts.CreationsInFlight, byName.Facts.Undecided = nil, nil, nil
		var members, bySlot []guest
		for _, m := range w.members {
			slot := w.spec.SlotOf(m)
			if taken[slot] {
				continue
			}
			taken[slot] = true
			members = append(members, m)
			m = m.DeepCopy()
			m.Name = slot
			bySlot = append(bySlot, m)
		}
		w.spec.Facts.Undecided = kept(w.spec.Facts.Undecided, func(m guest) bool { return !taken[w.spec.SlotOf(m)] })
		for _, m := range w.spec.Facts.Undecided {
			m = m.DeepCopy()
			m.Name = w.spec.SlotOf(m)
			byName.Facts.Undecided = append(byName.Facts.Undecided, m)
		}
		w.spec.Facts.CreationsInFlight = kept(w.spec.Facts.CreationsInFlight, func(name string) bool { return !taken[replicas.SlotIn(name)] })
		got, err := replicas.ScaleTo(members, w.spec)
		require.NoError(t, err, "seed %d", seed)
		want, err := replicas.ScaleTo(bySlot, byName)
		require.NoError(t, err, "seed %d", seed)
		var slots []string
		for _, name := range got.Names {
			slots = append(slots, replicas.SlotIn(name))
		}
		require.ElementsMatch(t, want.Names, slots, "seed %d", seed)
		ids := func(s replicas.Scale[guest]) (ids []types.UID) {
			for _, v := range s.Delete {
				ids = append(ids, v.Object.UID)
			}
			for _, c := range s.Update {
				if !slices.Contains(w.spec.Facts.CreationsInFlight, c.Object.Name) {
					ids = append(ids, "recall of "+c.Object.UID)
				}
			}
			return ids
		}
		require.Equal(t, ids(want), ids(got), "seed %d", seed)
	}
}
