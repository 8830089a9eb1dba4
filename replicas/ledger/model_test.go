// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/ledger"
)

var full = flag.Bool("full", false, "the large models instead of the small ones: minutes")

// A model describes how a world begins, and how often each kind of disturbance may happen in it.
type model struct {
	want, orphans int
	// If tells is true, the cache reports its version. If ready is true, deletions have a resourceVersion
	// precondition.
	tells, ready bool

	faults    int // calls that fail, get no answer or a wrong one, or take effect late
	users     int // deletions and changes of children by users
	scales    int
	jumps     int // jumps of the clock by more than Patience or MaxRequestAge
	crossings int // actions of others during a call, such as events, late requests and changes by users
	restarts  int // starts of a new process with an empty Ledger
	backs     int // how often the cache goes back to an older state
}

func (m model) begin() *world {
	w := &world{
		model: m, now: began,
		kids: map[types.UID]kid{}, cache: map[types.UID]kid{}, known: &ledger.Ledger[kid]{Patience: patience}, looked: true,
		last: 1, read: 1, adopts: m.orphans > 0,
		unseen: map[types.UID]bool{}, lied: map[types.UID]bool{}, gone: map[types.UID]int{}, killed: map[types.UID]bool{},
	}
	for i := range m.orphans {
		w.add(fmt.Sprintf("o%02d", i), "")
	}
	return w
}

// healed makes 12 passes without faults in a copy of the world. It returns an error if the number of children is
// then not the wanted number, or if the last pass still makes a call. It also returns the errors of the passes and of
// isForgotten.
func (w *world) healed() error {
	w = w.clone()
	w.faults, w.users, w.scales, w.jumps, w.crossings, w.restarts, w.backs = 0, 0, 0, 0, 0, 0, 0
	w.choose = func(int) int { return 0 }
	for i := range 12 {
		for len(w.late) > 0 {
			w.land()
		}
		if w.broken {
			w.relist()
		}
		for len(w.events) > 0 {
			w.deliver()
		}
		w.did = ""
		if w.aPass(); w.err != nil {
			return w.err
		}
		w.now = w.now.Add(20 * time.Second)
		if i == 5 {
			w.now = w.now.Add(ledger.MaxRequestAge)
		}
	}
	if n := w.mustKnow(nil); n != w.want || w.did != "" {
		return fmt.Errorf("in the end there are %d children, wanted are %d; the last pass did%s; %s", n, w.want, w.did, w.known.Knows(w.now))
	}
	return w.isForgotten()
}

// isForgotten returns an error if the ledger contains anything except unanswered deletions of existing children.
// If the cache does not report its version, the ledger may need a live list to drop its facts. If w.tells is
// false, isForgotten therefore first makes a live list, and accepts that the ledger still contains this list.
func (w *world) isForgotten() error {
	if !w.tells {
		l := loop{world: w}
		l.look()
		l.list()
		(&loop{world: w}).look() // reads the cache after the list
	}
	for id := range w.known.UnansweredCalls() {
		if _, there := w.kids[id]; !there {
			return fmt.Errorf("in the end %s is doubted, and does not exist", id)
		}
		w.known.CallAnswered(id)
	}
	if holds := w.known.Holds(); holds != "nothing" && (w.tells || holds != "a list") {
		return fmt.Errorf("in the end the ledger holds %s: %s", holds, w.known.Knows(w.now))
	}
	return nil
}

// A report is the result of exploring a model.
type report struct {
	states, edges, deepest int
	path                   []string
	err                    error
}

// explore visits each reachable state of a model once, and calls healed in each new state. It stops at the first
// error.
func explore(m model) (r report) {
	seed := maphash.MakeSeed()
	type node struct {
		w    *world
		from *node
		did  string
		deep int
	}
	first := &node{w: m.begin()}
	seen := map[uint64]bool{maphash.String(seed, first.w.describe()): true}
	for stack := []*node{first}; len(stack) > 0; {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		r.states, r.deepest = r.states+1, max(r.deepest, n.deep)
		for _, a := range n.w.actions() {
			for script, isFirst := []int(nil), true; isFirst || script != nil; isFirst = false {
				w := n.w.clone()
				w.did = ""
				var taken, of []int
				w.choose = func(k int) int {
					i, is := len(taken), 0
					if i < len(script) {
						is = script[i]
					}
					taken, of = append(taken, is), append(of, k)
					return is
				}
				a.do(w)
				w.choose = nil
				r.edges++
				script = next(taken, of)
				is := maphash.String(seed, w.describe())
				isNew := !seen[is]
				seen[is] = true
				if w.err == nil && isNew {
					w.err = w.healed()
				}
				to := &node{w, n, a.name + w.did, n.deep + 1}
				if w.err != nil {
					r.err = w.err
					for ; to.from != nil; to = to.from {
						r.path = append(r.path, to.did)
					}
					slices.Reverse(r.path)
					return r
				}
				if isNew {
					stack = append(stack, to)
				}
			}
		}
		if n.w = nil; len(stack) == 0 {
			break
		}
	}
	return r
}

// next returns the choices for the next run, and counts like an odometer. If all combinations were tried, the
// result is nil.
func next(taken, of []int) []int {
	for i, t := range slices.Backward(taken) {
		if t+1 < of[i] {
			return append(slices.Clone(taken[:i]), t+1)
		}
	}
	return nil
}

// small returns the models that TestModel explores without the flag -full. Each model is explored twice, with a
// cache that reports its version and with a cache that does not.
func small() map[string]model {
	return map[string]model{
		"1 child, 1 fault, 1 user, 1 crossing":     {want: 1, faults: 1, users: 1, crossings: 1},
		"1 child, 1 fault, 1 scale":                {want: 1, faults: 1, scales: 1},
		"1 child, 1 fault, 1 jump":                 {want: 1, faults: 1, jumps: 1},
		"1 child, 1 scale, 2 terms":                {want: 1, scales: 1, restarts: 1},
		"1 child, 1 orphan, 1 fault":               {want: 1, orphans: 1, faults: 1},
		"1 ready child, 1 fault, 1 user":           {want: 1, ready: true, faults: 1, users: 1},
		"1 child, 1 fault, 1 cache that goes back": {want: 1, faults: 1, backs: 1},
		"2 children, 2 faults":                     {want: 2, faults: 2},
	}
}

// large returns the models that TestModel explores with the flag -full. The command "make explore" sets this flag,
// and the models take minutes.
func large() map[string]model {
	return map[string]model{
		"1 child, 2 faults, 1 user":                                 {want: 1, faults: 2, users: 1},
		"1 child, 2 orphans, 1 fault":                               {want: 1, orphans: 2, faults: 1},
		"1 child, 1 fault, 1 scale, 1 jump":                         {want: 1, faults: 1, scales: 1, jumps: 1},
		"1 child, 1 fault, 1 scale, 1 jump, 1 crossing":             {want: 1, faults: 1, scales: 1, jumps: 1, crossings: 1},
		"2 children, 1 fault, 1 jump, 1 scale":                      {want: 2, faults: 1, jumps: 1, scales: 1},
		"2 children, 1 user, 1 scale, 1 crossing":                   {want: 2, users: 1, scales: 1, crossings: 1},
		"2 children, 1 orphan, 1 user, 1 crossing":                  {want: 2, orphans: 1, users: 1, crossings: 1},
		"2 children, 1 fault, 1 scale, 2 terms":                     {want: 2, faults: 1, scales: 1, restarts: 1},
		"2 ready children, 1 fault, 1 user":                         {want: 2, ready: true, faults: 1, users: 1},
		"1 child, 1 user, 1 scale, 1 cache that goes back":          {want: 1, users: 1, scales: 1, backs: 1},
		"1 child, 3 faults, 1 user":                                 {want: 1, faults: 3, users: 1},
		"1 child, 2 faults, 1 user, 1 scale":                        {want: 1, faults: 2, users: 1, scales: 1},
		"1 child, 2 faults, 1 scale, 2 jumps":                       {want: 1, faults: 2, scales: 1, jumps: 2},
		"1 child, 2 orphans, 1 fault, 1 user":                       {want: 1, orphans: 2, faults: 1, users: 1},
		"1 child, 1 fault, 1 user, 1 crossing, 1 scale":             {want: 1, faults: 1, users: 1, crossings: 1, scales: 1},
		"1 child, 1 fault, 1 user, 1 scale, 2 terms":                {want: 1, faults: 1, users: 1, scales: 1, restarts: 1},
		"1 child, 1 fault, 1 user, 1 scale, 1 cache that goes back": {want: 1, faults: 1, users: 1, scales: 1, backs: 1},
		"2 children, 2 users":                                       {want: 2, users: 2},
		"2 children, 2 scales, 2 crossings":                         {want: 2, scales: 2, crossings: 2},
		"2 children, 1 fault, 1 user, 1 scale":                      {want: 2, faults: 1, users: 1, scales: 1},
		"2 children, 2 faults, 1 scale, 1 jump":                     {want: 2, faults: 2, scales: 1, jumps: 1},
		"2 ready children, 1 fault, 1 user, 1 scale":                {want: 2, ready: true, faults: 1, users: 1, scales: 1},
		"2 ready children, 1 user, 1 scale, 1 crossing":             {want: 2, ready: true, users: 1, scales: 1, crossings: 1},
		"2 children, 1 orphan, 1 fault, 1 scale":                    {want: 2, orphans: 1, faults: 1, scales: 1},
		"2 children, 2 scales, 2 terms, 1 jump":                     {want: 2, scales: 2, restarts: 1, jumps: 1},
		"2 children, 1 user, 1 scale, 1 cache that goes back":       {want: 2, users: 1, scales: 1, backs: 1},
		"3 children, 1 fault, 1 scale":                              {want: 3, faults: 1, scales: 1},
		"3 children, 1 fault, 1 user":                               {want: 3, faults: 1, users: 1},
	}
}

// In every reachable state, a creation leads to at most the wanted number of children, and a deletion leaves at
// least the wanted number. The test accepts a wrong number if its cause is a change that the controller cannot
// know yet. When all faults have ended, the number of children becomes the wanted number.
func TestModel(t *testing.T) {
	t.Parallel()
	all := small()
	if *full {
		all = large()
	}
	var mu sync.Mutex
	var sum report
	t.Cleanup(func() {
		t.Logf("figures: %d models, %d states, %d ways between them, at most %d deep", 2*len(all), sum.states, sum.edges, sum.deepest)
	})
	for name, m := range all {
		for _, tells := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, version known %t", name, tells), func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				m := m
				m.tells = tells
				r := explore(m)
				require.NoError(t, r.err, "after %d states; the way there:\n%s", r.states, strings.Join(r.path, "\n"))
				mu.Lock()
				defer mu.Unlock()
				sum.states, sum.edges, sum.deepest = sum.states+r.states, sum.edges+r.edges, max(sum.deepest, r.deepest)
				t.Logf("%d states, %d edges, %d deep, %v", r.states, r.edges, r.deepest, time.Since(start).Round(time.Millisecond))
			})
		}
	}
}
