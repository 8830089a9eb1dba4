// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/controller"

	"github.com/replicakit/replicakit/expectations"
)

// An operation is one call, or a sleep between calls. Each kind of call uses some of the fields.
type operation struct {
	Do         string
	Key        string
	Adds, Dels int
	Pods       []int
	Sleep      time.Duration
}

func (o operation) String() string {
	return fmt.Sprintf("%s %s adds=%d dels=%d pods=%v %v", o.Do, o.Key, o.Adds, o.Dels, o.Pods, o.Sleep)
}

// A history is a sequence of calls.
type history struct{ Operations []operation }

func newHistory(g *gen, calls ...string) history {
	length := 1 + g.IntN(30)
	h := history{make([]operation, length)}
	for i := range h.Operations {
		h.Operations[i] = operation{
			Do:   pick(g, calls...),
			Key:  pick(g, "a/web", "a/web", "b/web"),
			Adds: g.IntN(5) - 1, Dels: g.IntN(5) - 1,
			Pods:  some(g, 4, func() int { return g.IntN(4) }),
			Sleep: pick(g, time.Second, time.Minute, 4*time.Minute, 5*time.Minute, 5*time.Minute-1, 5*time.Minute+1),
		}
	}
	return h
}

const (
	waits   = "an owner waits"
	expired = "an owner acts though something is outstanding: it expired"
)

func TestExpectations(t *testing.T) {
	t.Parallel()
	keys := []string{"a/web", "b/web"}
	t.Run("E1 E2 E3 E4 E5 E6 E7 E8 E9 E10 E13 E16 counts and satisfaction are the same after every call", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[history]{
			cases: 60_000, of: "sequences of up to 30 calls",
			input: func(g *gen) history {
				return newHistory(g, "set", "expect creations", "expect deletions", "creation observed", "deletion observed", "raise", "lower", "delete", "sleep", "sleep")
			},
			differ: func(c history, reached *tally) string {
				theirs, ours := controller.NewControllerExpectations(), &expectations.ControllerExpectations[string]{}
				for i, o := range c.Operations {
					o.onCounters(theirs, ours)
					for _, key := range keys {
						if d := cmpCounters(key, theirs, ours, reached); d != "" {
							return fmt.Sprintf("after call %d, %v: %s", i, o, d)
						}
					}
				}
				return ""
			},
			reaches: []string{waits, expired},
		})
	})
	t.Run("E17 E18 E19 E20 E21 E23 E24 W14 deletions of pods that keep their names are settled the same after every call", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[history]{
			cases: 60_000, of: "sequences of up to 30 calls",
			input: func(g *gen) history {
				return newHistory(g, "expect creations", "expect pods' deletions", "expect pods' deletions", "creation observed",
					"pod's deletion observed", "pod's deletion observed", "pod's deletion observed", "lower", "delete", "sleep")
			},
			differ:  differOnTracking,
			names:   []string{leftOver},
			reaches: []string{waits, expired},
		})
	})
}

func (o operation) onCounters(theirs *controller.ControllerExpectations, ours *expectations.ControllerExpectations[string]) {
	logger := logr.Discard()
	switch o.Do {
	case "set":
		_ = theirs.SetExpectations(logger, o.Key, o.Adds, o.Dels)
		ours.SetExpectations(o.Key, o.Adds, o.Dels)
	case "expect creations":
		_ = theirs.ExpectCreations(logger, o.Key, o.Adds)
		ours.ExpectCreations(o.Key, o.Adds)
	case "expect deletions":
		_ = theirs.ExpectDeletions(logger, o.Key, o.Dels)
		ours.ExpectDeletions(o.Key, o.Dels)
	case "creation observed":
		theirs.CreationObserved(logger, o.Key)
		ours.CreationObserved(o.Key)
	case "deletion observed":
		theirs.DeletionObserved(logger, o.Key)
		ours.DeletionObserved(o.Key)
	case "raise":
		theirs.RaiseExpectations(logger, o.Key, o.Adds, o.Dels)
		ours.RaiseExpectations(o.Key, o.Adds, o.Dels)
	case "lower":
		theirs.LowerExpectations(logger, o.Key, o.Adds, o.Dels)
		ours.LowerExpectations(o.Key, o.Adds, o.Dels)
	case "delete":
		theirs.DeleteExpectations(logger, o.Key)
		ours.DeleteExpectations(o.Key)
	case "sleep":
		time.Sleep(o.Sleep)
	}
}

// theirCounts returns how many creations and deletions Kubernetes expects for an owner. If Kubernetes has no
// record of the owner, ok is false.
func theirCounts(e interface {
	GetExpectations(key string) (*controller.ControlleeExpectations, bool, error)
}, key string,
) (adds, dels int, ok bool) {
	record, ok, _ := e.GetExpectations(key)
	if !ok {
		return 0, 0, false
	}
	a, d := record.GetExpectations()
	return int(a), int(d), true
}

func cmpCounters(key string, theirs *controller.ControllerExpectations, ours *expectations.ControllerExpectations[string], reached *tally) string {
	adds, dels, ok := theirCounts(theirs, key)
	ourAdds, ourDels, ourOK := ours.GetExpectations(key)
	satisfied, ourState := theirs.SatisfiedExpectations(logr.Discard(), key), state(ours.State(key))
	reachState(reached, ourState)
	if adds != ourAdds || dels != ourDels || ok != ourOK || satisfied != ours.SatisfiedExpectations(key) || satisfied != (ourState != expectations.Waiting) {
		return fmt.Sprintf("%s: Kubernetes: %d, %d, %v, satisfied: %v; ours: %d, %d, %v, %v", key, adds, dels, ok, satisfied, ourAdds, ourDels, ourOK, ourState)
	}
	return ""
}

func state(s expectations.State, _ time.Duration) expectations.State { return s }

func reachState(reached *tally, s expectations.State) {
	switch s {
	case expectations.Waiting:
		reached.reach(waits)
	case expectations.Expired:
		reached.reach(expired)
	}
}

const leftOver = "E23 W14: a token that creations replaced is forgotten; Kubernetes lowers the count of deletions below zero for it"

// differOnTracking compares the stores that track each expected deletion. Kubernetes identifies a pod by its name,
// and our store identifies it by its UID. In this test, the name and the UID of a pod are equal.
func differOnTracking(c history, named *tally) string {
	theirs := controller.NewUIDTrackingControllerExpectations(controller.NewControllerExpectations())
	ours := &expectations.UIDTrackingControllerExpectations[string]{}
	left := leftOvers{tokens: map[string]sets.Set[string]{}, lowered: map[string]int{}}
	for i, o := range c.Operations {
		if !o.onTracking(theirs, ours, left, named) {
			return fmt.Sprintf("call %d, %v: only one of the two expected it", i, o)
		}
		for _, key := range []string{"a/web", "b/web"} {
			adds, dels, _ := theirCounts(theirs, key)
			dels += left.lowered[key]
			satisfied, ourState := theirs.SatisfiedExpectations(logr.Discard(), key), state(ours.State(key))
			reachState(named, ourState)
			if satisfied != ours.SatisfiedExpectations(key) || satisfied != (ourState != expectations.Waiting) {
				return fmt.Sprintf("after call %d, %v: %s: Kubernetes: %d, %d, satisfied: %v; ours: %v", i, o, key, adds, dels, satisfied, ourState)
			}
			if d := cmpPending(key, adds, dels, theirs, ours); d != "" {
				return fmt.Sprintf("after call %d, %v: %s", i, o, d)
			}
		}
	}
	return ""
}

// cmpPending compares the outstanding creations and deletions of an owner. Our store must list the owner if at
// least one creation or deletion is outstanding. Otherwise our store must not list the owner.
func cmpPending(key string, adds, dels int, theirs *controller.UIDTrackingControllerExpectations, ours *expectations.UIDTrackingControllerExpectations[string]) string {
	pending, outstanding := maps.Collect(ours.All())[key]
	if outstanding != (adds > 0 || dels > 0) {
		return fmt.Sprintf("%s: Kubernetes: %d, %d; ours: %v", key, adds, dels, pending)
	}
	if !outstanding {
		return ""
	}
	var tokens []string
	if dels > 0 { // if Kubernetes expects no deletions, it may still keep old tokens
		tokens = theirs.GetUIDs(key).List()
	}
	var uids []string
	for _, uid := range pending.Deleting {
		uids = append(uids, string(uid))
	}
	ourAdds, ourDels := pending.Total()
	if adds != ourAdds || dels != ourDels || dels > 0 && !slices.Equal(tokens, uids) {
		return fmt.Sprintf("%s: Kubernetes: %d, %d, %v; ours: %v", key, adds, dels, tokens, pending)
	}
	return ""
}

// leftOvers contains the tokens that Kubernetes keeps although it no longer expects deletions, by owner. A token
// identifies a pod that is expected to be deleted. If an owner first expects deletions and then expects creations
// instead, Kubernetes keeps the tokens of the deletions as old tokens. If the deletion of a pod with an old token
// is observed, Kubernetes lowers the owner's count of expected deletions. The field lowered is the number of these
// decreases, by owner. When the expectations of an owner are set or deleted, the number of this owner becomes 0.
type leftOvers struct {
	tokens  map[string]sets.Set[string]
	lowered map[string]int
}

// onTracking makes the call on both sides, and reports whether the results agree. If one side expected a deletion
// that is observed, the other side must have expected this deletion, too. If leftOvers contains the token of the
// pod, onTracking checks only that our store did not expect the deletion.
func (o operation) onTracking(theirs *controller.UIDTrackingControllerExpectations, ours *expectations.UIDTrackingControllerExpectations[string], left leftOvers, named *tally) bool {
	logger := logr.Discard()
	switch o.Do {
	case "expect creations":
		_ = theirs.ExpectCreations(logger, o.Key, o.Adds)
		ours.ExpectCreations(o.Key, o.Adds)
		left.tokens[o.Key], left.lowered[o.Key] = sets.New(theirs.GetUIDs(o.Key).List()...), 0
	case "expect pods' deletions":
		_ = theirs.ExpectDeletions(logger, o.Key, tokens[string](o.Pods))
		ours.ExpectDeletions(o.Key, tokens[types.UID](o.Pods))
		left.tokens[o.Key], left.lowered[o.Key] = nil, 0
	case "creation observed":
		theirs.CreationObserved(logger, o.Key)
		ours.CreationObserved(o.Key)
	case "pod's deletion observed":
		token := strconv.Itoa(max(o.Adds, 0))
		had := theirs.GetUIDs(o.Key).Has(token)
		theirs.DeletionObserved(logger, o.Key, token)
		settled := ours.DeletionObserved(o.Key, types.UID(token))
		if !left.tokens[o.Key].Has(token) {
			return had == settled
		}
		if had {
			named.add(leftOver)
			left.lowered[o.Key]++
		}
		return !settled
	case "lower":
		adds, dels := max(o.Adds, 0), max(o.Dels, 0) // a negative number would raise a count
		theirs.LowerExpectations(logger, o.Key, adds, dels)
		ours.LowerExpectations(o.Key, adds, dels)
	case "delete":
		theirs.DeleteExpectations(logger, o.Key)
		ours.DeleteExpectations(o.Key)
		left.tokens[o.Key], left.lowered[o.Key] = nil, 0
	case "sleep":
		time.Sleep(o.Sleep)
	}
	return true
}

func tokens[T ~string](pods []int) []T {
	var list []T
	for _, p := range pods {
		list = append(list, T(strconv.Itoa(p)))
	}
	return list
}
