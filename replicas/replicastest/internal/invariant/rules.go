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

// The rules about numbers. What a pass is judged by is what the server wanted when it
// began, or later. More and Fewer excuse everything that the controller's view does not
// show; the others say which excuse does not count.
const (
	More           Rule = "more"             // a creation makes more than the pass was asked for
	MoreUnanswered Rule = "more-unanswered"  // though of one that it created itself nobody had told it
	MoreLanded     Rule = "more-landed"      // nor of one whose creation landed when nobody waited for it
	MoreListed     Rule = "more-listed"      // though its last live list showed it
	MoreNewProcess Rule = "more-new-process" // though all was there before the process began
	MoreUndecided  Rule = "more-undecided"   // though the server has not decided about the adoption of an orphan
	MoreInFlight   Rule = "more-in-flight"   // a creation of its own may still land
	MoreReadSpec   Rule = "more-read-spec"   // it has itself read that the owner wants fewer
	MoreOldProcess Rule = "more-old-process" // the owner wanted fewer before the process began, and could be read
	MoreOldSpec    Rule = "more-old-spec"    // the owner wanted fewer before the pass began

	Fewer            Rule = "fewer"             // a deletion leaves fewer than the pass was asked for
	FewerInFlight    Rule = "fewer-in-flight"   // a deletion of its own may still land, or has landed unseen
	FewerListed      Rule = "fewer-listed"      // its last live list did not show what it takes to be there
	FewerSameName    Rule = "fewer-same-name"   // what it takes to be there has the name of one that is
	FewerPassed      Rule = "fewer-passed"      // what it takes to be there is gone, and its cache has come past that
	FewerUnversioned Rule = "fewer-unversioned" // the same, and nobody tells it how far its cache has come
	FewerNewProcess  Rule = "fewer-new-process" // what it takes to be there was gone before the process began
	FewerReadSpec    Rule = "fewer-read-spec"   // it has itself read that the owner wants more
	FewerOldSpec     Rule = "fewer-old-spec"    // the owner wanted more before the pass began; a ready pod goes
	FewerOldUnready  Rule = "fewer-old-unready" // the same, and a pod goes that is not ready
)

// The other rules.
const (
	Room                 Rule = "room"                  // no call is beyond what there is room for
	Anothers             Rule = "anothers"              // what is another's is left alone
	AnothersListed       Rule = "anothers-listed"       // and what its last live list did not show
	Going                Rule = "going"                 // nothing is done for an owner that is being deleted
	Leaseless            Rule = "leaseless"             // nothing is written without a lease
	Plan                 Rule = "plan"                  // a plan creates or deletes, within its bounds, and takes those that go first
	Expecting            Rule = "expecting"             // what is waited for has begun
	Intact               Rule = "intact"                // caches stay as they arrived
	Asleep               Rule = "asleep"                // an owner that has something to do has a pass before it
	AsleepPassed         Rule = "asleep-passed"         // though its cache has come past the end of what it takes to be there
	AsleepUnversioned    Rule = "asleep-unversioned"    // the same, and nobody tells it how far its cache has come
	Unsettled            Rule = "unsettled"             // in the end everything is as it should be
	UnsettledUnversioned Rule = "unsettled-unversioned" // though its cache has come past what it takes to be there, and nobody tells it
	Cost                 Rule = "cost"                  // what an owner costs in an hour is bounded
	CostGone             Rule = "cost-gone"             // that of an owner that is gone even more
	Needless             Rule = "needless"              // no status is written that is there already
	Hasty                Rule = "hasty"                 // who is told to come back later does
	HastyLists           Rule = "hasty-lists"           // lists that fail are not tried again at once
	Restless             Rule = "restless"              // nothing is called when nothing is to be done
	RestlessPatch        Rule = "restless-patch"        // and nothing is patched
	Leak                 Rule = "leak"                  // what is gone is forgotten
	Strays               Rule = "strays"                // what a webhook made nobody's is deleted again
	Ruled                Rule = "ruled"                 // what must stay stays
	Status               Rule = "status"                // a status is the truth
	SlowStart            Rule = "slow-start"            // a pass does not go on creating what is refused
	Futile               Rule = "futile"                // what was not there is neither deleted nor patched again
	HeldOn               Rule = "held-on"               // a hold ends with its reason
	Waits                Rule = "waits"                 // a cache is waited for only if it lacks something, and not for ever
	Undone               Rule = "undone"                // a pass that nothing stops does all that is to be done
)

// A Known is a rule that today's controller is known to break.
type Known struct {
	Rule Rule
	Why  string // what the controller does
	Ends string // what ends it
}

// KnownToFail lists what today's controller breaks. Each is counted and not an error. A
// test shows that it is broken still.
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

// Known returns how often each rule was violated that is known to fail.
func (k *Checker) Known() map[Rule]int { return k.known }
