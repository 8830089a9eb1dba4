// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"errors"
	"fmt"
	"slices"
)

// A Rule is the name of something that must be true.
type Rule string

// The rules about numbers. A pass is judged by what the server wanted when the pass began, or
// later. More and Fewer excuse everything that the controller's view does not show. The other rules
// say which excuse does not count.
const (
	More           Rule = "more"             // a creation makes more replicas than the pass was asked for
	MoreUnanswered Rule = "more-unanswered"  // the same, counting its own creations without an answer
	MoreLanded     Rule = "more-landed"      // the same, counting its own creations that landed late
	MoreListed     Rule = "more-listed"      // the same, counting replicas that its last live list showed
	MoreNewProcess Rule = "more-new-process" // the same, counting replicas from before the process began
	MoreUndecided  Rule = "more-undecided"   // the same, counting orphans whose adoption is undecided
	MoreInFlight   Rule = "more-in-flight"   // the same, counting its own creations that may still land
	MoreReadSpec   Rule = "more-read-spec"   // the controller has read that the owner wants fewer
	MoreOldProcess Rule = "more-old-process" // the owner wanted fewer before the process began, and could be read
	MoreOldSpec    Rule = "more-old-spec"    // the owner wanted fewer before the pass began

	Fewer            Rule = "fewer"             // a deletion leaves fewer replicas than the pass was asked for
	FewerInFlight    Rule = "fewer-in-flight"   // a deletion of its own may still land, or has landed unseen
	FewerListed      Rule = "fewer-listed"      // its last live list did not show a pod that it takes to be there
	FewerSameName    Rule = "fewer-same-name"   // a pod that it takes to be there has the name of one that is
	FewerPassed      Rule = "fewer-passed"      // a pod that it takes to be there is gone, and its cache is past that
	FewerUnversioned Rule = "fewer-unversioned" // the same, and its cache reports no version
	FewerNewProcess  Rule = "fewer-new-process" // a pod that it takes to be there was gone before the process began
	FewerReadSpec    Rule = "fewer-read-spec"   // the controller has read that the owner wants more
	FewerOldSpec     Rule = "fewer-old-spec"    // the owner wanted more before the pass began; a ready pod goes
	FewerOldUnready  Rule = "fewer-old-unready" // the same, and a pod that is not ready goes
)

// The other rules.
const (
	Room                 Rule = "room"                  // no call exceeds the room for it
	Anothers             Rule = "anothers"              // objects of other owners are left alone
	AnothersListed       Rule = "anothers-listed"       // and so are pods that its last live list did not show
	Going                Rule = "going"                 // nothing is done for an owner that is being deleted
	Leaseless            Rule = "leaseless"             // nothing is written without a lease
	Plan                 Rule = "plan"                  // a plan creates or deletes, within its bounds, and deletes in the right order
	Expecting            Rule = "expecting"             // calls that are waited for have begun
	Intact               Rule = "intact"                // caches stay as they arrived
	Asleep               Rule = "asleep"                // if an owner has work left, a pass for it is due
	AsleepPassed         Rule = "asleep-passed"         // the same, if its cache is past the end of a pod that it takes to be there
	AsleepUnversioned    Rule = "asleep-unversioned"    // the same, and its cache reports no version
	Unsettled            Rule = "unsettled"             // the final state is reached
	UnsettledUnversioned Rule = "unsettled-unversioned" // the same, if its cache is past a pod that it takes to be there and reports no version
	Cost                 Rule = "cost"                  // the calls of an owner in an hour are bounded
	CostGone             Rule = "cost-gone"             // those of an owner that is gone even more
	Needless             Rule = "needless"              // a status that is there already is not written
	Hasty                Rule = "hasty"                 // a refused call is not repeated too soon
	HastyLists           Rule = "hasty-lists"           // lists that fail are not tried again at once
	Restless             Rule = "restless"              // nothing is called when no work is left
	RestlessPatch        Rule = "restless-patch"        // and nothing is patched
	Leak                 Rule = "leak"                  // owners that are gone are forgotten
	Strays               Rule = "strays"                // created pods that a webhook took away are deleted
	Ruled                Rule = "ruled"                 // pods that must stay are not deleted
	Status               Rule = "status"                // a status is the truth
	SlowStart            Rule = "slow-start"            // a pass stops creating when creations are refused
	Futile               Rule = "futile"                // a pod that was not found is neither deleted nor patched again
	HeldOn               Rule = "held-on"               // a hold ends with its reason
	Waits                Rule = "waits"                 // a pass waits for a cache only if it lacks something, and not forever
	Undone               Rule = "undone"                // a pass that nothing stops does all its work
)

// A Known is a rule that today's controller is known to break.
type Known struct {
	Rule Rule
	Why  string // what the controller does
	Ends string // what ends it
}

// KnownToFail lists the rules that today's controller breaks. Each violation is counted instead of
// being an error. A test shows that the controller still breaks them.
func KnownToFail() []Known {
	return []Known{
		{HastyLists, "four lists in a row fail within a second", "a list that failed holds all others back, whatever they are for"},
		{MoreOldSpec, "children are created by the spec that the cache shows", "nothing: one too many for a moment is healed"},
	}
}

func isKnown(r Rule) bool {
	return slices.ContainsFunc(KnownToFail(), func(k Known) bool { return k.Rule == r })
}

// A violation is an error that names its rule.
type violation struct {
	rule Rule
	what string
}

func (v violation) Error() string { return "invariant: " + string(v.rule) + ": " + v.what }

// RuleOf returns the rule that an error is about, "" if it is about none.
func RuleOf(err error) Rule {
	var v violation
	errors.As(err, &v)
	return v.rule
}

// fail notes a violation.
func (k *Checker) fail(r Rule, format string, args ...any) {
	switch {
	case isKnown(r):
		k.known[r]++
	case k.err == nil:
		k.err = violation{r, fmt.Sprintf(format, args...)}
	}
}

// Known returns how often each rule that is known to fail was violated.
func (k *Checker) Known() map[Rule]int { return k.known }
