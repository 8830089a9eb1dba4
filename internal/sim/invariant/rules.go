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

// The rules about the number of replicas. A pass may use any spec that the owner has had since the pass began. A
// controller may have an excuse for a wrong number, such as a creation without an answer, so that it does not know
// whether the pod exists. More and Fewer accept every excuse. Each of the others does not accept one: MoreUnanswered,
// for example, not that of the creation without an answer.
const (
	More           Rule = "more"             // after a creation, there are more replicas than the pass wants
	MoreUnanswered Rule = "more-unanswered"  // like More, but also counts the controller's creations that got no answer
	MoreLanded     Rule = "more-landed"      // like More, but also counts the controller's creations that took effect late
	MoreListed     Rule = "more-listed"      // like More, but also counts replicas in the controller's last live list
	MoreNewProcess Rule = "more-new-process" // like More, but also counts replicas that existed before the process began
	MoreUndecided  Rule = "more-undecided"   // like More, but also counts orphans whose adoption is undecided
	MoreInFlight   Rule = "more-in-flight"   // like More, but also counts the controller's creations that may still take effect
	MoreReadSpec   Rule = "more-read-spec"   // the controller creates a replica, but has already read that the owner wants fewer
	MoreOldProcess Rule = "more-old-process" // the owner wanted fewer replicas before the process began, and the process was able to read this
	MoreOldSpec    Rule = "more-old-spec"    // the owner wanted fewer replicas before the pass began

	Fewer            Rule = "fewer"             // after a deletion, there are fewer replicas than the pass wants
	FewerInFlight    Rule = "fewer-in-flight"   // like Fewer, but does not count pods that an unanswered call has deleted or may still delete
	FewerListed      Rule = "fewer-listed"      // like Fewer, but does not count deleted pods that were missing from the last live list
	FewerSameName    Rule = "fewer-same-name"   // like Fewer, but does not count deleted pods whose names now belong to other replicas
	FewerPassed      Rule = "fewer-passed"      // like Fewer, but does not count deleted pods if the cache is newer than the deletion
	FewerUnversioned Rule = "fewer-unversioned" // like FewerPassed, for a cache that reports no resourceVersion
	FewerNewProcess  Rule = "fewer-new-process" // like Fewer, but does not count pods that were deleted before the process began
	FewerReadSpec    Rule = "fewer-read-spec"   // the controller deletes a replica, but has already read that the owner wants more
	FewerOldSpec     Rule = "fewer-old-spec"    // the pass deletes a ready pod, and fewer pods remain than the lowest number that the owner has wanted since the pass began
	FewerOldUnready  Rule = "fewer-old-unready" // the pass deletes an unready pod, and fewer pods remain than the lowest number that the owner has wanted since the pass began
)

// The other rules.
const (
	Room                 Rule = "room"                  // a pass avoids calls that could lead to too many or too few children
	Anothers             Rule = "anothers"              // a controller changes no objects of other owners
	AnothersListed       Rule = "anothers-listed"       // a controller deletes no pod that stopped matching before the last live list
	Going                Rule = "going"                 // if an owner is being deleted, its passes change no pods except to delete strays
	Leaseless            Rule = "leaseless"             // a controller makes no writes without a lease
	Plan                 Rule = "plan"                  // a plan creates or deletes pods but not both, stays within its limits, and follows the deletion order
	Expecting            Rule = "expecting"             // a controller expects only the effects of calls that were sent
	Intact               Rule = "intact"                // a controller does not modify the objects in its caches
	Asleep               Rule = "asleep"                // a pass is due for each owner that has unfinished work
	AsleepPassed         Rule = "asleep-passed"         // applies instead of Asleep if the controller still counts a deleted pod, although the cache is newer than the deletion
	AsleepUnversioned    Rule = "asleep-unversioned"    // like AsleepPassed, for a cache that reports no resourceVersion
	Unsettled            Rule = "unsettled"             // each owner reaches its final state
	UnsettledUnversioned Rule = "unsettled-unversioned" // like Unsettled, if the rule AsleepUnversioned applies to a controller
	Missing              Rule = "missing"               // creations without an answer do not hold places for long after the last failed call
	Cost                 Rule = "cost"                  // the number of calls for an owner in an hour is limited
	CostGone             Rule = "cost-gone"             // the hourly limit for calls is lower for a deleted owner
	Needless             Rule = "needless"              // a status is written only if it has changed
	Hasty                Rule = "hasty"                 // a refused call is not repeated too soon
	HastyLists           Rule = "hasty-lists"           // a failed list is not repeated too soon
	Restless             Rule = "restless"              // a controller makes no calls if there is no work to do
	RestlessPatch        Rule = "restless-patch"        // a controller patches no pods if there is no work to do
	Leak                 Rule = "leak"                  // a controller forgets deleted owners
	Strays               Rule = "strays"                // a controller deletes the pods that a webhook has detached from their owner
	Ruled                Rule = "ruled"                 // pods that must stay are not deleted, and Prepare allows each creation and deletion
	Status               Rule = "status"                // a status is correct
	SlowStart            Rule = "slow-start"            // a pass stops creating pods when creations are refused
	Futile               Rule = "futile"                // after a NotFound error, the pod is neither deleted nor patched again
	HeldOn               Rule = "held-on"               // a pass is no longer held back when the reason for the hold is gone
	Waits                Rule = "waits"                 // a pass waits for the cache only if the cache lacks something, and not forever
	Undone               Rule = "undone"                // a pass does all its work if nothing stops it
)

// A Known is a rule that the controller is known to break.
type Known struct {
	Rule Rule
	Why  string // how the controller breaks the rule
	Ends string // what would end the violations
}

// KnownToFail lists the rules that the controller is known to break. Their violations are counted, but are no errors. A
// test checks that the controller still breaks each of them.
func KnownToFail() []Known {
	return []Known{
		{HastyLists, "after three failed lists, the next list follows within a second", "a delay of all other lists after a failed list"},
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

// fail counts a violation of a rule in KnownToFail, and keeps the first one of another rule as the Checker's error.
func (k *Checker) fail(r Rule, format string, args ...any) {
	switch {
	case isKnown(r):
		k.known[r]++
	case k.err == nil:
		k.err = violation{r, fmt.Sprintf(format, args...)}
	}
}

// Known returns the number of violations of each rule in KnownToFail.
func (k *Checker) Known() map[Rule]int { return k.known }
