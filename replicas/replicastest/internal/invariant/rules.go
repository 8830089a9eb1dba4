// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"errors"
	"fmt"
	"slices"
)

// A Rule is the name of an invariant.
type Rule string

// The rules about the number of replicas. A pass may use any spec that the owner has had since the
// pass began. More and Fewer are broken even if all excuses of the controller count. Each other rule
// here is broken if one more excuse does not count.
const (
	More           Rule = "more"             // a creation makes more replicas than the pass was asked for
	MoreUnanswered Rule = "more-unanswered"  // as More, also counting the controller's creations that got no answer
	MoreLanded     Rule = "more-landed"      // as More, also counting the controller's creations that took effect late
	MoreListed     Rule = "more-listed"      // as More, also counting replicas in the controller's last live list
	MoreNewProcess Rule = "more-new-process" // as More, also counting replicas from before the process began
	MoreUndecided  Rule = "more-undecided"   // as More, also counting orphans whose adoption is undecided
	MoreInFlight   Rule = "more-in-flight"   // as More, also counting the controller's creations that may still take effect
	MoreReadSpec   Rule = "more-read-spec"   // the controller creates although it has read that the owner wants fewer
	MoreOldProcess Rule = "more-old-process" // the owner wanted fewer before the process began, and the process could read that
	MoreOldSpec    Rule = "more-old-spec"    // the owner wanted fewer before the pass began

	Fewer            Rule = "fewer"             // a deletion leaves fewer replicas than the pass was asked for
	FewerInFlight    Rule = "fewer-in-flight"   // as Fewer, without pods that an unanswered deletion has deleted or may still delete
	FewerListed      Rule = "fewer-listed"      // as Fewer, without deleted pods that the controller's last live list lacked
	FewerSameName    Rule = "fewer-same-name"   // as Fewer, without deleted pods whose name another replica has now
	FewerPassed      Rule = "fewer-passed"      // as Fewer, without pods whose deletion is older than the cache
	FewerUnversioned Rule = "fewer-unversioned" // as FewerPassed, if the cache reports no resourceVersion
	FewerNewProcess  Rule = "fewer-new-process" // as Fewer, without pods that were deleted before the process began
	FewerReadSpec    Rule = "fewer-read-spec"   // the controller deletes although it has read that the owner wants more
	FewerOldSpec     Rule = "fewer-old-spec"    // the owner wanted more before the pass began, and a ready pod is deleted
	FewerOldUnready  Rule = "fewer-old-unready" // the owner wanted more before the pass began, and an unready pod is deleted
)

// The other rules.
const (
	Room                 Rule = "room"                  // a pass tries no call for which its plan leaves no room
	Anothers             Rule = "anothers"              // a controller changes no objects of other owners
	AnothersListed       Rule = "anothers-listed"       // a controller deletes no pod that does not match and that its last list lacked
	Going                Rule = "going"                 // a controller does nothing for an owner that is being deleted
	Leaseless            Rule = "leaseless"             // a controller writes nothing without a lease
	Plan                 Rule = "plan"                  // a plan creates or deletes, within its bounds, and deletes in the right order
	Expecting            Rule = "expecting"             // a controller waits only for calls that were sent
	Intact               Rule = "intact"                // objects in a cache are not changed
	Asleep               Rule = "asleep"                // if an owner has work left, a pass for it is due
	AsleepPassed         Rule = "asleep-passed"         // as Asleep, if a pod that the controller counts ended before the time of the cache
	AsleepUnversioned    Rule = "asleep-unversioned"    // as AsleepPassed, if the cache reports no resourceVersion
	Unsettled            Rule = "unsettled"             // each owner reaches its final state
	UnsettledUnversioned Rule = "unsettled-unversioned" // as Unsettled, in the case of AsleepUnversioned
	Cost                 Rule = "cost"                  // an owner costs no more than a fixed number of calls in an hour
	CostGone             Rule = "cost-gone"             // a deleted owner costs no more than a smaller number of calls in an hour
	Needless             Rule = "needless"              // a status is written only if it has changed
	Hasty                Rule = "hasty"                 // a refused call is not repeated too soon
	HastyLists           Rule = "hasty-lists"           // a list that failed is not repeated at once
	Restless             Rule = "restless"              // a controller makes no calls if no work is left
	RestlessPatch        Rule = "restless-patch"        // as Restless, for patches of pods
	Leak                 Rule = "leak"                  // a controller forgets deleted owners
	Strays               Rule = "strays"                // a controller deletes pods that it created and a webhook took from their owner
	Ruled                Rule = "ruled"                 // pods that must stay are not deleted
	Status               Rule = "status"                // a status is correct
	SlowStart            Rule = "slow-start"            // a pass stops creating when creations are refused
	Futile               Rule = "futile"                // a pod that was not found is neither deleted nor patched again
	HeldOn               Rule = "held-on"               // a hold ends when its reason ends
	Waits                Rule = "waits"                 // a pass waits for a cache only if the cache lacks something, and not forever
	Undone               Rule = "undone"                // a pass does all its work if nothing stops it
)

// A Known is a rule that the controller is known to break.
type Known struct {
	Rule Rule
	Why  string // how the controller breaks the rule
	Ends string // what would end the violations
}

// KnownToFail lists the rules that the controller is known to break. Their violations are counted,
// and are not errors. A test checks that the controller still breaks each of them.
func KnownToFail() []Known {
	return []Known{
		{HastyLists, "after three failed lists, the next list follows within a second", "a failed list would have to delay all other lists"},
		{MoreOldSpec, "the controller creates children for the spec in its cache", "nothing, because a later pass deletes the surplus child"},
	}
}

func isKnown(r Rule) bool {
	return slices.ContainsFunc(KnownToFail(), func(k Known) bool { return k.Rule == r })
}

// A violation is an error that names the broken rule.
type violation struct {
	rule Rule
	what string
}

func (v violation) Error() string { return "invariant: " + string(v.rule) + ": " + v.what }

// RuleOf returns the rule that an error names, or "" if it names none.
func RuleOf(err error) Rule {
	var v violation
	errors.As(err, &v)
	return v.rule
}

// fail counts a violation if the rule is known to fail. Otherwise it keeps the first violation as
// the Checker's error.
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
