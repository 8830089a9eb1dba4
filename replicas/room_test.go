// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// A crowd holds the children and the spec of an owner. The spec also lists the calls in flight. The keys of both maps
// are the UIDs of children.
type crowd struct {
	spec     replicas.Spec[*worker]
	children []*worker
	must     map[types.UID]bool // whether a child must go
	stay     map[types.UID]bool // whether a child must stay
	slots    bool
}

// newCrowd returns a small random crowd.
func newCrowd(seed uint64, slots bool) crowd {
	r := rand.New(rand.NewPCG(seed, 11))
	c := crowd{spec: workerSpec(int32(r.IntN(6))), must: map[types.UID]bool{}, stay: map[types.UID]bool{}, slots: slots}
	rs := replicaSet(c.spec.Replicas)
	few := func(oneIn int) bool { return r.IntN(oneIn) == 0 }
	for i, slot := range r.Perm(7)[:r.IntN(7)] {
		w := newWorker(rs, fmt.Sprint("w-", slot), i)
		c.must[w.UID], c.stay[w.UID] = few(4), few(5)
		if few(3) {
			c.spec.Facts.DeletionsInFlight = append(c.spec.Facts.DeletionsInFlight, w.UID)
		}
		if few(6) {
			w.DeletionTimestamp = &metav1.Time{Time: podtest.Now}
		}
		c.children = append(c.children, w)
	}
	for i := range r.IntN(4) {
		c.spec.Facts.CreationsInFlight = append(c.spec.Facts.CreationsInFlight, fmt.Sprint("web-lost", i))
	}
	if len(c.spec.Facts.CreationsInFlight) > 0 && few(4) {
		c.spec.Facts.Taken = c.spec.Facts.CreationsInFlight[:1]
	}
	c.spec.Facts.Undecided = orphans(max(r.IntN(4)-1, 0))
	c.spec.Rules.Active = func(*worker) bool { return true }
	c.spec.Rules.MustGo = func(w *worker) bool { return c.must[w.UID] }
	c.spec.Rules.MustStay = func(w *worker) bool { return c.stay[w.UID] }
	fresh := 0
	c.spec.Facts.Names = func(prefix string) string { fresh++; return fmt.Sprint(prefix, "new", fresh) }
	if slots {
		c.spec.Slots = replicas.Ordinals("w")
	}
	return c
}

// isOut reports whether a child is outside the wanted slots.
func (c crowd) isOut(w *worker) bool {
	for i := range int(c.spec.Replicas) {
		if c.spec.Slots(i) == w.Name {
			return false
		}
	}
	return true
}

// ends(calls, f) runs f once for each possible outcome of the calls. The argument of f is a map from calls to
// booleans. If a call takes effect in an outcome, the value for this call is true.
func ends[E comparable](calls []E, f func(took map[E]bool)) {
	for way := range 1 << len(calls) {
		took := map[E]bool{}
		for i, call := range calls {
			took[call] = way&(1<<i) != 0
		}
		f(took)
	}
}

// mayCreate reports whether children with the given names may be created.
func (c crowd) mayCreate(names []string) bool {
	if len(names) == 0 {
		return true
	}
	if c.slots {
		return true // each name is a wanted slot, and no child has this name
	}
	// possible returns the largest number of children if creations with these names are sent.
	possible := func(names []string) (most int) {
		ends(c.spec.Facts.CreationsInFlight, func(took map[string]bool) {
			there := len(c.children) + len(c.spec.Facts.Undecided)
			for _, name := range names {
				took[name] = true
			}
			for _, happened := range took {
				there += count(happened)
			}
			most = max(most, there)
		})
		return most
	}
	wanted := int(c.spec.Replicas)
	// If no other creation in flight takes effect, there are at most as many as wanted. If all do, there are at most as
	// many as wanted or as there can be anyway, because a name that is sent again makes no second object.
	return len(c.children)+len(c.spec.Facts.Undecided)+len(names) <= wanted && possible(names) <= max(wanted, possible(nil))
}

// mayDelete reports whether the victims may be deleted, because in each outcome of the deletions in flight they are
// surplus, or in each of them they are replaced.
func (c crowd) mayDelete(victims []*worker) bool {
	if len(victims) == 0 {
		return true
	}
	never := slices.ContainsFunc(victims, func(w *worker) bool {
		return w.DeletionTimestamp != nil || c.stay[w.UID]
	})
	surplus, replaced := !never, !never
	for _, w := range victims {
		surplus = surplus && (!c.slots || c.isOut(w))
		replaced = replaced && c.mustGo(w)
	}
	ends(c.spec.Facts.DeletionsInFlight, func(took map[types.UID]bool) {
		// Surplus: as many others as wanted are left. Replaced: as many as wanted exist before, and with slots in
		// wanted slots. Those that are being deleted never count.
		left, filled := 0, 0
		for _, w := range c.children {
			if w.DeletionTimestamp != nil {
				continue
			}
			isGone := took[w.UID]
			// Of those that a deletion in flight removes, one that must go still counts.
			filled += count((!isGone || c.mustGo(w) && !c.stay[w.UID]) && (!c.slots || !c.isOut(w)))
			left += count(!isGone && !slices.Contains(victims, w))
		}
		surplus = surplus && left >= int(c.spec.Replicas)
		replaced = replaced && filled >= int(c.spec.Replicas)
	})
	return surplus || replaced
}

// mustGo reports whether a child must go because of Rules.MustGo, or because it is outside the wanted slots.
func (c crowd) mustGo(w *worker) bool { return c.must[w.UID] || c.slots && c.isOut(w) }

// most returns the size of the largest subset of the list that f accepts.
func most[E any](list []E, f func(some []E) bool) (most int) {
	for way := range 1 << len(list) {
		var some []E
		for i, e := range list {
			if way&(1<<i) != 0 {
				some = append(some, e)
			}
		}
		if len(some) > most && f(some) {
			most = len(some)
		}
	}
	return most
}

// names returns the names that new children may get. With slots, these are the wanted slots that no child has.
// Without slots, these are the names of the creations in flight, and as many new names as children are wanted.
func (c crowd) names() (names []string) {
	if c.slots {
		for i := range int(c.spec.Replicas) {
			name := c.spec.Slots(i)
			if !slices.ContainsFunc(c.children, func(w *worker) bool { return w.Name == name }) {
				names = append(names, name)
			}
		}
		return names
	}
	names = slices.Clone(c.spec.Facts.CreationsInFlight)
	for i := range c.spec.Replicas {
		names = append(names, fmt.Sprint("web-fresh", i))
	}
	return names
}

func (c crowd) check(t *testing.T, r *rand.Rand) {
	t.Helper()
	room, err := replicas.RoomOf(c.children, c.spec)
	require.NoError(t, err)
	assert.Equal(t, most(c.names(), c.mayCreate), room.Create, "creations")
	assert.Equal(t, most(c.children, c.mayDelete), room.Delete, "deletions")

	var asked replicas.Scale[*worker]
	for _, name := range c.names() {
		if r.IntN(2) == 0 {
			asked.Names = append(asked.Names, name)
		}
	}
	asked.Create = len(asked.Names)
	var victims []*worker
	for _, i := range r.Perm(len(c.children)) {
		if w := c.children[i]; w.DeletionTimestamp == nil && r.IntN(3) > 0 {
			victims = append(victims, w)
			asked.Delete = append(asked.Delete, deletionOf(w))
		}
	}
	clamped := room.Clamp(asked)
	assert.Len(t, clamped.Names, clamped.Create)
	assert.True(t, c.mayCreate(clamped.Names), "%q of %q", clamped.Names, asked.Names)
	assert.Equal(t, most(asked.Names, c.mayCreate), clamped.Create, "%q of %q", clamped.Names, asked.Names)
	assert.True(t, c.mayDelete(objectsOf(clamped.Delete)), "%v of %v", clamped, asked)
	assert.Len(t, clamped.Delete, most(victims, c.mayDelete), "%v of %v", clamped, asked)
	unnamed := room.Clamp(replicas.Scale[*worker]{Create: 9})
	assert.Equal(t, most(slices.DeleteFunc(c.names(), func(name string) bool { return slices.Contains(c.spec.Facts.CreationsInFlight, name) }), c.mayCreate), unnamed.Create)

	scale, err := replicas.ScaleTo(c.children, c.spec)
	require.NoError(t, err)
	assert.Len(t, scale.Delete, room.Delete, "a plan uses its room: %v", scale)
	assert.True(t, c.mayDelete(objectsOf(scale.Delete)), "%v", scale)
	if room.Delete == 0 {
		free := slices.DeleteFunc(c.names(), func(name string) bool { return slices.Contains(c.spec.Facts.Taken, name) })
		assert.Equal(t, most(free, c.mayCreate), scale.Create, "%v", scale)
		assert.True(t, c.mayCreate(scale.Names), "%v", scale)
	}
}

func deletionOf(w *worker) replicas.Deletion[*worker] {
	return replicas.Deletion[*worker]{Victim: podrank.Victim[*worker]{Object: w}}
}

func objectsOf(deletions []replicas.Deletion[*worker]) (workers []*worker) {
	for _, d := range deletions {
		workers = append(workers, d.Object)
	}
	return workers
}

func count(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

func TestRoomAgreesWithItsTwin(t *testing.T) {
	t.Parallel()
	for _, slots := range []bool{false, true} {
		for seed := range uint64(2000) {
			newCrowd(seed, slots).check(t, rand.New(rand.NewPCG(seed, 12)))
			if t.Failed() {
				t.Fatalf("slots %t, seed %d: %+v", slots, seed, newCrowd(seed, slots))
			}
		}
	}
}

// Eight creations had no answer, and two of the ten children that were once wanted are left. However many names are
// open, those that are needed may be sent again, and no other.
func TestOpenNamesMayAlwaysBeSentAgain(t *testing.T) {
	t.Parallel()
	open := []string{"web-a", "web-b", "web-c", "web-d", "web-e", "web-f", "web-g", "web-h"}
	for _, tt := range []struct {
		name    string
		wanted  int32
		change  func(*replicas.Spec[*worker])
		created []string
	}{
		{"eight are wanted: six names are sent again", 8, nil, open[:6]},
		{"three are wanted: one name is sent again", 3, nil, open[:1]},
		{"two are wanted: none is sent", 2, nil, nil},
		{"one is wanted: none is sent", 1, nil, nil},
		{"all names and two new ones are sent if twelve are wanted", 12, nil, append(slices.Clone(open), "web-new1", "web-new2")},
		{"a pending adoption holds a place", 8, func(s *replicas.Spec[*worker]) { s.Facts.Undecided = orphans(2) }, open[:4]},
		{"a name that another object has is left out, and no new name takes its place", 10, func(s *replicas.Spec[*worker]) { s.Facts.Taken = open[2:] }, open[:2]},
		{"a rollout sends them, too", 8, func(s *replicas.Spec[*worker]) {
			s.MaxUnavailable = &intstr.IntOrString{IntVal: 1}
			s.Rules.Ready = func(*worker) bool { return true }
			s.Rules.MustGo = func(w *worker) bool { return w.Name == "w-0" }
		}, open[:6]},
		{"without names of its own, the owner creates none, because the server would choose new ones", 8, func(s *replicas.Spec[*worker]) { s.Facts.Names = nil }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(tt.wanted)
			spec.Facts.CreationsInFlight = open
			fresh := 0
			spec.Facts.Names = func(prefix string) string { fresh++; return fmt.Sprint(prefix, "new", fresh) }
			if tt.change != nil {
				tt.change(&spec)
			}
			rs := replicaSet(tt.wanted)
			children := []*worker{newWorker(rs, "w-0", 0), newWorker(rs, "w-1", 1)}
			scale, err := replicas.ScaleTo(children, spec)
			require.NoError(t, err)
			assert.Equal(t, tt.created, scale.Names)
			assert.Equal(t, len(tt.created), scale.Create)
			room, err := replicas.RoomOf(children, spec)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, room.Create, scale.Create)
		})
	}
}

func FuzzRoom(f *testing.F) {
	f.Add(uint64(1), false)
	f.Add(uint64(2), true)
	f.Fuzz(func(t *testing.T, seed uint64, slots bool) {
		newCrowd(seed, slots).check(t, rand.New(rand.NewPCG(seed, 13)))
	})
}

func TestRoomRefuses(t *testing.T) {
	t.Parallel()
	var none *worker
	for name, tt := range map[string]struct {
		owned  []*worker
		change func(*replicas.Spec[*worker])
		want   string
	}{
		"a number": {nil, func(s *replicas.Spec[*worker]) { s.Replicas = -1 }, "replicas -1 is negative"},
		"nil":      {[]*worker{none}, func(*replicas.Spec[*worker]) {}, "objs[0] is nil"},
		"a name":   {nil, func(s *replicas.Spec[*worker]) { s.Slots = func(int) string { return "" } }, `slot 0 is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(1)
			tt.change(&spec)
			room, err := replicas.RoomOf(tt.owned, spec)
			require.ErrorContains(t, err, tt.want)
			assert.Zero(t, room.Create+room.Delete)
			clamped := room.Clamp(replicas.Scale[*worker]{Create: 1, Names: []string{"a"}, Delete: []replicas.Deletion[*worker]{deletionOf(newWorker(replicaSet(1), "w-0", 1))}})
			assert.Zero(t, clamped.Create)
			assert.Empty(t, clamped.Delete)
		})
	}
}

// The formulas in docs/guarantee.md agree with the methods mayCreate and mayDelete. TestRoomAgreesWithItsTwin compares
// a Room with mayCreate and mayDelete.
func TestTheGuaranteeIsTheRoom(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guarantee.md")
	require.NoError(t, err)
	formula := func(begins string) func(numbers map[string]int) bool {
		for line := range strings.Lines(string(page)) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), begins); ok {
				return parsed(t, text)
			}
		}
		t.Fatalf("no formula begins with %q", begins)
		return nil
	}
	create, again, remove, replace := formula("creating:"), formula("sending again:"), formula("deleting:"), formula("replacing:")
	for seed := range uint64(1000) {
		c := newCrowd(seed, false)
		staying := slices.DeleteFunc(slices.Clone(c.children), func(w *worker) bool { return w.DeletionTimestamp != nil })
		numbers := map[string]int{
			"wanted": int(c.spec.Replicas), "active": len(c.children), "staying": len(staying), "undecided adoptions": len(c.spec.Facts.Undecided),
		}
		most(c.names(), func(names []string) bool {
			numbers["created"], numbers["sent again"], numbers["other creations in flight"] = len(names), 0, 0
			for _, name := range c.spec.Facts.CreationsInFlight {
				isSent := slices.Contains(names, name)
				numbers["sent again"] += count(isSent)
				numbers["other creations in flight"] += count(!isSent)
			}
			onlyAgain := numbers["sent again"] == len(names)
			require.Equal(t, c.mayCreate(names), len(names) == 0 || create(numbers) || onlyAgain && again(numbers), "seed %d: %q: %v", seed, names, numbers)
			return true
		})
		most(staying, func(victims []*worker) bool {
			numbers["deleted"], numbers["other deletions in flight"], numbers["deletions in flight of those that need not go"] = len(victims), 0, 0
			mustGo, mustStay := true, false
			for _, w := range victims {
				mustGo, mustStay = mustGo && c.must[w.UID], mustStay || c.stay[w.UID]
			}
			for _, w := range staying {
				if slices.Contains(c.spec.Facts.DeletionsInFlight, w.UID) {
					numbers["other deletions in flight"] += count(!slices.Contains(victims, w))
					numbers["deletions in flight of those that need not go"] += count(!c.must[w.UID] || c.stay[w.UID])
				}
			}
			require.Equal(t, c.mayDelete(victims), !mustStay && (remove(numbers) || mustGo && replace(numbers)), "seed %d: %v", seed, numbers)
			return true
		})
	}
}

// parsed reads a formula such as "a ≤ b − c".
func parsed(t *testing.T, text string) func(numbers map[string]int) bool {
	t.Helper()
	left, right, ok := strings.Cut(text, "≤")
	require.True(t, ok, "%q", text)
	terms := strings.Split(right, "−")
	return func(numbers map[string]int) bool {
		value := func(name string) int {
			n, ok := numbers[strings.TrimSpace(name)]
			require.True(t, ok, "%q is no number", name)
			return n
		}
		most := value(terms[0])
		for _, term := range terms[1:] {
			most -= value(term)
		}
		return value(left) <= most
	}
}
