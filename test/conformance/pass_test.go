// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/kubernetes/pkg/controller"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/slowrank"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	kit "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// The named differences between the passes of the two sides, and the situations that must occur.
const (
	claimFailed   = "C26 W42: a claim that fails holds one place at most, and stops nothing else"
	mayNotAdopt   = "C26: who must not adopt creates and deletes nothing, but writes the status"
	nsGoing       = "S10 W10: the first creation in a namespace that is going away is the last, and nothing is expected"
	deletionsHeld = "W27: deletions wait for as long as the server says, and an event tells so"
	disputed      = "R8 R18 W28: other pods go, as the two orders differ on some"
	otherRanks    = "L3 W33: other pods go, as co-located pods that somebody else controls do not count"
	noCheckAhead  = "M3 W58: pods without a transition time are not waited for"
	expiryAhead   = "W13: the pass is requeued when its expectations expire, a tenth later at most"
	goneCounts    = "T1: a pod that is found to be gone as it is deleted does not count any more"
	goneAhead     = "the pass is requeued if the cache does not show yet what an answer, or a live list, has shown"
	releaseAgain  = "C16: the pass is requeued in a second if the server calls a release invalid"
	claimsTold    = "C26 W42: an event tells of adoptions and releases that fail"
	statusTold    = "U3: an event tells that the status may not be written, as ours patches it and Kubernetes' role has update alone"
	unreadTold    = "an event tells that the owner could not be read before pods are adopted, and it is read again in a second"
	bothErrors    = "U5 W48: an error of the status does not hide that of the pass"
	delayed       = "W27: after an error the pass is requeued when the server, or a hold, says"
	fullMessage   = "T11 W20: the message of a condition says what was being done, and joins all errors"

	readFirst = "the owner is read before pods are deleted, before the first are created, and before some are created in place of others that left"

	creates = "pods are created"
	deletes = "pods are deleted"
	adopts  = "pods are patched"
	nothing = "nothing is called but the status"
	comes   = "the pass is requeued for a pod that becomes available"
)

func TestPass(t *testing.T) {
	t.Parallel()
	board := newSwitchboard()
	t.Run("B1 B3 D6 D7 D8 D9 K1 K2 K3 L1 L2 L4 M1 M7 P10 P11 P13 P14 P15 S9 S10 U5 U6 Y3 Y4 Y6 Y8 Y9 Y10 Y11 Y13 Y14 a whole pass makes the same calls, events, expectations and status", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[scene]{
			cases: 10_000, of: "passes",
			input: (*gen).scene,
			differ: func(c scene, named *tally) string {
				pods, rs := copies(c.Pods), c.RS.DeepCopy()
				difference := board.differ(c, named)
				if !reflect.DeepEqual(pods, c.Pods) || !reflect.DeepEqual(rs, c.RS) {
					return "what the cache holds was changed"
				}
				return difference
			},
			names:   []string{claimFailed, mayNotAdopt, nsGoing, deletionsHeld, disputed, otherRanks, noCheckAhead, fullMessage, invalidAdoption, expiryAhead, goneAhead, releaseAgain, goneCounts, refreshed, kept, claimsTold, unreadTold, noRetry, goneRead, bothErrors, statusTold, lookedUp, delayed, readFirst},
			reaches: []string{creates, deletes, adopts, nothing, comes},
		})
	})
}

func copies(pods []*corev1.Pod) (list []*corev1.Pod) {
	for _, p := range pods {
		list = append(list, p.DeepCopy())
	}
	return list
}

// differ makes one pass on each side for the scene, and compares everything that the passes did. If the sides
// differ on purpose, Kubernetes makes another pass for a changed scene, which is the result of c.agreed. If the
// sides delete different pods for a reason that cmpDisputes accepts, our controller makes another pass, in which
// it deletes the pods that Kubernetes chose. So the test also compares the rest of a pass after an intended
// difference.
func (b *switchboard) differ(c scene, named *tally) string {
	first := b.theirPass(c)
	onlyLooks := func(w *wiring) { w.onlyLooks = first.checks == 0 }
	ours := b.ourPass(c, onlyLooks)
	reachCalls(first, named)
	if d := cmpSets("patches", first.patches, ours.patches) + cmpRelated(c, first, ours) + cmpClaims(c, first, ours, named); d != "" {
		return d
	}
	theirs := first
	if agreed, other := c.agreed(first, ours); other {
		theirs = b.theirPass(agreed)
	}
	if len(theirs.deletes) == len(ours.victims()) && cmpSets("", theirs.deletes, ours.victims()) != "" {
		if d := cmpDisputes(first, theirs, ours, named); d != "" {
			return d
		}
		ours = b.ourPass(c, onlyLooks, deletingFirst(theirs.deletes))
	}
	going := c.Creates == goingNamespace && len(theirs.creates) > c.FailFrom
	if going {
		named.add(nsGoing)
		theirs.err = nil
		theirs.events = withoutReasons(theirs.events, "FailedCreate")
	}
	fails := theirs.err != nil || c.claimsFail(first)
	return cmpSets("deletions", theirs.deletes, ours.victims()) +
		cmpTries(ours) +
		cmpCreates(theirs.creates, ours.creates) +
		ours.checkNames() +
		cmpSets("events", theirs.events, withoutHolds(withoutReasons(ours.events, kit.FailedAdopt, kit.FailedRelease, kit.FailedStatus, kit.FailedOwner), named)) +
		cmpInts("creations expected", max(theirs.adds, 0), max(ours.adds, 0)) +
		cmpInts("deletions expected", max(theirs.dels, 0), max(ours.dels, 0)) +
		cmpStatuses(c, theirs, ours, going, named) +
		cmpStatusWrites(c, first, ours, named) +
		cmpReads(c, first, ours, named) +
		cmpErrors(c, theirs, ours, fails, named) +
		cmpReturns(c, theirs, ours, going, fails, named)
}

// agreed returns a changed copy of the scene c, and whether the copy differs from c. In its pass for the copy,
// Kubernetes must do the same as our controller did in its pass for c. The copy has these changes:
//   - If the adoption or the release of a pod failed in the scene c, the pod has another controller in the copy.
//     If the owner must not adopt pods, every pod that has no controller in c belongs to another controller in the
//     copy. So Kubernetes does not try to claim these pods, and does not end its pass.
//   - If the owner must not adopt pods, spec.replicas is the number of pods that our controller claimed.
//   - If the owner may adopt pods, and our controller claimed fewer pods than spec.replicas, spec.replicas is
//     lowered by the number of undecided adoptions. But spec.replicas is not lowered below the number of claimed
//     pods.
//   - If the namespace is being deleted, creations fail with an internal error.
//   - Status writes succeed.
func (c scene) agreed(theirs, ours outcome) (agreed scene, other bool) {
	agreed = c
	agreed.Pods, agreed.Status = slices.Clone(c.Pods), ""
	if c.Creates == goingNamespace {
		agreed.Creates = "internal"
	}
	if !failedClaims(theirs.err) {
		return agreed, c.Status != "" || c.Creates == goingNamespace
	}
	_, refused := failures(theirs.err)
	for i, p := range c.Pods {
		if refused > 0 && metav1.GetControllerOf(p) == nil || c.claimFails(theirs.patches, p.Name) {
			p = p.DeepCopy()
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Thief", Name: "thief", UID: "thief", Controller: new(true)}}
			agreed.Pods[i] = p
		}
	}
	undecided, _ := c.failedAdoptions(theirs.patches)
	if wanted := int(*c.RS.Spec.Replicas); refused > 0 {
		agreed.RS = wanting(c.RS, len(ours.claimed))
	} else if len(ours.claimed) < wanted {
		agreed.RS = wanting(c.RS, max(wanted-undecided, len(ours.claimed)))
	}
	return agreed, true
}

func wanting(rs *appsv1.ReplicaSet, replicas int) *appsv1.ReplicaSet {
	rs = rs.DeepCopy()
	rs.Spec.Replicas = new(int32(replicas))
	return rs
}

// failedClaims reports whether Kubernetes ended its pass because claims failed.
func failedClaims(err error) bool {
	var claims utilerrors.Aggregate
	return errors.As(err, &claims)
}

// claimFails reports whether the adoption or release of a pod failed. NotFound does not count as a failure.
// Invalid does not count as a failure of a release.
func (c scene) claimFails(patches []string, pod string) bool {
	return slices.ContainsFunc(patches, func(patch string) bool {
		name, body, _ := strings.Cut(patch, ": ")
		err := answer(c.Patches[pod], pod)
		return name == pod && err != nil && !apierrors.IsNotFound(err) && (!isRelease(body) || !apierrors.IsInvalid(err))
	})
}

// deletingFirst makes our controller delete the given pods first.
func deletingFirst(pods []string) func(*wiring) {
	return func(w *wiring) {
		spec := w.kind.Spec
		w.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := spec(rs)
			s.Rules.Order = podrank.Must(podrank.NewOrder(podrank.First("Kubernetes deleted it", func(p *corev1.Pod) bool { return slices.Contains(pods, p.Name) })))
			return s, err
		}
	}
}

// victims returns the pods that the pass tried to delete, each pod once.
func (o outcome) victims() []string {
	return slices.Compact(slices.Sorted(slices.Values(o.deletes)))
}

func withoutReasons(events []string, reasons ...string) []string {
	return slices.DeleteFunc(slices.Clone(events), func(event string) bool { return slices.Contains(reasons, strings.Fields(event)[1]) })
}

// withoutHolds leaves out the DeletionsHeld events, which say that deletions must wait. Kubernetes never reports
// these events.
func withoutHolds(events []string, named *tally) []string {
	return slices.DeleteFunc(slices.Clone(events), func(event string) bool {
		held := strings.Contains(event, " "+kit.DeletionsHeld+" ")
		if held {
			named.add(deletionsHeld)
		}
		return held
	})
}

// tells reports whether our text contains Kubernetes' text. The names of pods may differ, because our controller
// reports only one of several failures that are alike.
func tells(ours, theirs string) bool {
	pod := regexp.MustCompile(`"p\d+"`)
	ours, theirs = pod.ReplaceAllString(ours, "a pod"), pod.ReplaceAllString(theirs, "a pod")
	reason, deletion := strings.CutPrefix(theirs, "unable to delete pods: ")
	_, reasons, _ := strings.Cut(ours, "unable to delete pods: ") // our text lists all reasons after these words
	return strings.Contains(ours, theirs) || deletion && strings.Contains(reasons, "; "+reason)
}

func reachCalls(o outcome, reached *tally) {
	if len(o.creates) > 0 {
		reached.reach(creates)
	}
	if len(o.deletes) > 0 {
		reached.reach(deletes)
	}
	if len(o.patches) > 0 {
		reached.reach(adopts)
	}
	if len(o.creates)+len(o.deletes)+len(o.patches) == 0 {
		reached.reach(nothing)
	}
	if o.again > 0 {
		reached.reach(comes)
	}
}

// cmpClaims compares the failed claims of the two sides. If claims fail, Kubernetes ends its pass. Our controller
// continues its pass. It reports one event if adoptions are undecided, and one event if releases failed. If the
// owner must not adopt pods, our controller reports no event for adoptions.
func cmpClaims(c scene, theirs, ours outcome, named *tally) string {
	undecided, invalid := c.failedAdoptions(theirs.patches)
	failed, refused := failures(theirs.err)
	if !failedClaims(theirs.err) {
		failed, refused = nil, 0
	}
	switch {
	case refused > 0:
		named.add(mayNotAdopt)
	case len(failed) > 0 && invalid == len(failed):
		named.add(invalidAdoption)
	case len(failed) > 0:
		named.add(claimFailed)
	}
	adoptions, releases := min(undecided, 1), min(len(failed)-undecided-invalid, 1)
	unread := 0
	if refused > 0 {
		adoptions, undecided, invalid = 0, 0, 0
		if c.Fresh == "Forbidden" {
			named.add(unreadTold)
			unread = 1
		}
	}
	if adoptions+releases > 0 {
		named.add(claimsTold)
	}
	return cmpInts("events of the owner", unread, len(ours.events)-len(withoutReasons(ours.events, kit.FailedOwner))) +
		cmpInts("set aside", invalid, ours.gates(kit.AdoptionRefused)) +
		cmpInts("undecided", undecided, ours.gates(kit.AdoptionUndecided)) +
		cmpInts("events of adoptions", adoptions, len(ours.events)-len(withoutReasons(ours.events, kit.FailedAdopt))) +
		cmpInts("events of releases", releases, len(ours.events)-len(withoutReasons(ours.events, kit.FailedRelease)))
}

// notGone returns the pods that our controller claimed, except pods whose deletion met NotFound.
func (c scene) notGone(ours outcome) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(ours.claimed), func(p *corev1.Pod) bool {
		return slices.Contains(ours.deletes, p.Name) && apierrors.IsNotFound(answer(c.Deletes[p.Name], p.Name))
	})
}

// failedAdoptions counts the failed adoptions. An adoption is invalid if the server refused it permanently. The
// other failed adoptions are undecided, because they may still succeed.
func (c scene) failedAdoptions(patches []string) (undecided, invalid int) {
	for _, patch := range patches {
		pod, body, _ := strings.Cut(patch, ": ")
		err := answer(c.Patches[pod], pod)
		switch {
		case isRelease(body) || err == nil || apierrors.IsNotFound(err):
		case apierrors.IsInvalid(err):
			invalid++
		default:
			undecided++
		}
	}
	return undecided, invalid
}

func (c scene) releaseIsInvalid(patches []string) bool {
	return slices.ContainsFunc(patches, func(patch string) bool {
		pod, body, _ := strings.Cut(patch, ": ")
		return isRelease(body) && apierrors.IsInvalid(answer(c.Patches[pod], pod))
	})
}

// isAhead reports whether our pass learned something about pods that the cache does not show. An answer can show
// that a pod is gone, adopted or released. A live list can show that a pod is gone.
func (c scene) isAhead(ours outcome) bool {
	return ours.missing > 0 || slices.ContainsFunc(ours.deletes, func(pod string) bool {
		return apierrors.IsNotFound(answer(c.Deletes[pod], pod))
	}) || slices.ContainsFunc(ours.patches, func(patch string) bool {
		pod, _, _ := strings.Cut(patch, ": ")
		err := answer(c.Patches[pod], pod)
		return err == nil || apierrors.IsNotFound(err)
	})
}

func isRelease(body string) bool { return strings.Contains(body, `"$patch":"delete"`) }

// goingNamespace is the answer to creations in a namespace that is being deleted.
const goingNamespace = "terminating namespace"

// cmpRelated compares the pods that count for co-location. Our controller must count all pods that the ReplicaSet
// or a sibling controls, with any labels. It must also count the orphans that Kubernetes counts. It must count no
// other pods.
func cmpRelated(c scene, theirs, ours outcome) string {
	switch {
	case len(controller.FilterActivePods(logr.Discard(), indexed(c.RS, c.Pods))) <= int(*c.RS.Spec.Replicas), metav1.GetControllerOf(c.RS) == nil:
		return cmpInts("related pods", 0, len(ours.related)) // no pod is surplus, or the ReplicaSet has no siblings
	case len(ours.deletes) == 0:
		return ""
	}
	var want []*corev1.Pod
	for _, p := range c.Pods {
		ref := metav1.GetControllerOf(p)
		controls := func(rs *appsv1.ReplicaSet) bool {
			return ref != nil && ref.UID == rs.UID && p.Namespace == rs.Namespace
		}
		if slices.ContainsFunc(c.Siblings, controls) || controls(c.RS) || ref == nil && slices.Contains(theirs.related, p) {
			want = append(want, p)
		}
	}
	return cmpSets("related pods", names(want), names(ours.related))
}

// cmpDisputes checks a pass in which the two sides delete different pods. Our controller must delete the first
// pods of our order. There must also be a reason for the difference. Either the two sides calculate different
// co-location ranks, or the two orders differ on two pods.
func cmpDisputes(first, theirs, ours outcome, named *tally) string {
	var related []*corev1.Pod
	if ours.related != nil {
		related = slices.Clone(ours.claimed)
		for _, p := range ours.related {
			if !slices.Contains(uids(related), p.UID) {
				related = append(related, p)
			}
		}
	}
	order := slowrank.Sort(slowrank.Ranked(ours.claimed, related), start)
	for i := range ours.victims() {
		if !slices.Contains(ours.deletes, order[i].Name) {
			return fmt.Sprintf("deletions: %q goes before %v", order[i].Name, ours.deletes)
		}
	}
	theirRanks, ourRanks := upstream.PodsWithRanks(ours.claimed, first.related).Rank, podrank.ColocationRanks(ours.claimed, related)
	if !slices.Equal(theirRanks, ourRanks) {
		named.add(otherRanks)
		return ""
	}
	for i, p := range ours.claimed {
		for j, q := range ours.claimed {
			theirs, ours := orders(slowrank.Pod{Pod: p, Rank: ourRanks[i]}, slowrank.Pod{Pod: q, Rank: ourRanks[j]}, start)
			if i != j && theirs != ours {
				named.add(disputed)
				return ""
			}
		}
	}
	return cmpSets("deletions", theirs.deletes, ours.victims())
}

// cmpTries checks the deletions of our controller. Each deletion must have a UID precondition, and each pod is
// deleted at most once.
func cmpTries(ours outcome) string {
	tries := map[string]int{}
	for i, pod := range ours.deletes {
		tries[pod]++
		switch only := ours.preconditions[i]; {
		case only == nil || only.UID == nil:
			return fmt.Sprintf("tries: %s is deleted without its UID\n", pod)
		case tries[pod] > 1:
			return fmt.Sprintf("tries: %s is deleted %d times\n", pod, tries[pod])
		}
	}
	return ""
}

func cmpCreates(theirs, ours []*corev1.Pod) string {
	if equality.Semantic.DeepEqual(theirs, ours) {
		return ""
	}
	return fmt.Sprintf("creations: Kubernetes: %s, ours: %s\n", dump(theirs), dump(ours))
}

// checkNames describes an error in the names that our controller gives, or returns "" if there is none. Each name
// must be one that the API server could make, and no name may occur twice (W8, W11).
func (o outcome) checkNames() string {
	if len(o.names) != len(o.creates) {
		return fmt.Sprintf("names: %d of %d creations", len(o.names), len(o.creates))
	}
	for i, name := range o.names {
		if !isName(name, o.creates[i].GenerateName) || slices.Contains(o.names[:i], name) {
			return fmt.Sprintf("names: %q of %q", name, o.names)
		}
	}
	return ""
}

// cmpStatuses compares the statuses that the two sides wrote, and whether they wrote any.
func cmpStatuses(c scene, theirs, ours outcome, going bool, named *tally) string {
	want := c.RS.DeepCopy()
	if len(theirs.statuses) > 0 {
		want.Status = theirs.statuses[0].Status
	}
	if going { // for our controller, a namespace that is being deleted is no error
		want.Status.Conditions = c.RS.Status.Conditions
	}
	gone := withoutGone(c, ours, want, named)
	r := report{RS: c.RS, Waiting: ours.pass.Waiting()}
	if ours.pass.ScaleErr != nil {
		r.ManageErr = ours.pass.ScaleErr.Error()
	}
	want.Status.Conditions = r.expected(withMessage(want.Status.Conditions, theirs.err, r.ManageErr, named), len(ours.claimed), named)
	same := equality.Semantic.DeepEqual(c.RS.Status.Conditions, want.Status.Conditions)
	if len(theirs.statuses) == 0 && same && !gone {
		return cmpInts("status writes", 0, len(ours.statuses))
	}
	unchanged := want.DeepCopy()
	unchanged.Status.Conditions = c.RS.Status.Conditions
	if same && equality.Semantic.DeepEqual(unchanged, c.RS) {
		return cmpInts("status writes", 0, len(ours.statuses))
	}
	if len(ours.statuses) == 0 || !equality.Semantic.DeepEqual(want, ours.statuses[0]) {
		return fmt.Sprintf("status: Kubernetes: %s\nours: %s\n", dump(want), dump(ours.statuses))
	}
	if again := ours.statuses[1:]; len(again) > 0 && !equality.Semantic.DeepEqual(want.Status, again[0].Status) {
		return fmt.Sprintf("status, the second time: Kubernetes: %s\nours: %s\n", dump(want.Status), dump(again))
	}
	return ""
}

// statusFails reports whether the last status write of a pass failed.
func (c scene) statusFails(o outcome) bool {
	switch {
	case len(o.statuses) == 0 || c.Status == "":
		return false
	case c.Status == "stale":
		return len(o.statuses) == 1
	}
	return true
}

// cmpStatusWrites checks how often our controller writes the status. Kubernetes repeats a write after every error,
// even if another ReplicaSet has the name now. Our controller repeats a write only after a Conflict, and only if
// the ReplicaSet is still the same.
func cmpStatusWrites(c scene, first, ours outcome, named *tally) string {
	told := len(ours.events) - len(withoutReasons(ours.events, kit.FailedStatus))
	if c.Status == "" || len(ours.statuses) == 0 {
		return cmpInts("status writes", min(len(ours.statuses), 1), len(ours.statuses)) + cmpInts("events of the status", 0, told)
	}
	forbidden := 0
	if c.Status == "Forbidden" {
		named.add(statusTold)
		forbidden = 1
	}
	want := 1
	switch {
	case c.Status != "stale" && c.Status != "Conflict":
		named.add(noRetry)
	case c.Fresh == "another owner":
		named.add(goneRead)
	case c.Fresh == "the owner" || c.Fresh == "an owner being deleted" || c.Fresh == "":
		want = 2
	}
	if want == 2 && len(first.statuses) > 0 {
		want = len(first.statuses)
	}
	return cmpInts("status writes", want, len(ours.statuses)) + cmpInts("events of the status", forbidden, told)
}

// cmpReads compares the reads of the two sides. Both sides read the owner before adoptions, and after a status
// write that met a Conflict. Our controller makes these additional reads:
//   - It reads the owner after a status write that met NotFound.
//   - If our controller has not read the owner before adoptions, it reads the owner before deletions and before the
//     first creations.
//   - If our controller has not read the owner before adoptions, and then creates pods, it lists owners once. From
//     this list, it learns the server's current resourceVersion of owners.
//   - After a failed creation or deletion, it may read pods.
func cmpReads(c scene, first, ours outcome, named *tally) string {
	afterConflict := 0
	if len(ours.statuses) > 0 && (c.Status == "stale" || c.Status == "Conflict" || c.Status == "NotFound") {
		afterConflict = 1
	}
	failed := c.Creates != "" && len(ours.creates) > c.FailFrom ||
		slices.ContainsFunc(ours.deletes, func(pod string) bool { return c.Deletes[pod] != "" })
	reads := ours.calls["get pods"] + ours.calls["list pods"]
	if reads > 0 && failed {
		named.add(lookedUp)
		reads = 0
	}
	looks, questions := 0, 0
	if len(ours.deletes)+len(ours.creates) > 0 && ours.checks == 0 {
		named.add(readFirst)
		looks, questions = 1, min(len(ours.creates), 1)
	}
	return cmpInts("reads of the owner before claims", first.checks, ours.checks) +
		cmpInts("reads of the owner before changes", looks, ours.looks) +
		cmpInts("reads of the owner after a Conflict", afterConflict, ours.calls["get replicasets"]-ours.checks-ours.looks) +
		cmpInts("reads of pods", 0, reads) +
		cmpInts("questions for the version of owners", questions, ours.calls["list replicasets"])
}

// cmpErrors compares the errors of the two passes. If passFails is true or our status write fails, our pass must
// fail. Otherwise our pass must succeed. The caller sets passFails to true if theirs.err is not nil, or if
// c.claimsFail returned true for Kubernetes' first pass. If theirs.err is not nil, our error must contain its text.
func cmpErrors(c scene, theirs, ours outcome, passFails bool, named *tally) string {
	if passFails && c.statusFails(ours) {
		named.add(bothErrors)
	}
	fails := passFails || c.statusFails(ours)
	if fails != (ours.err != nil) || fails != (ours.returned != nil) || theirs.err != nil && !tells(ours.err.Error(), theirs.err.Error()) {
		return fmt.Sprintf("error: fails: %t, Kubernetes: %v, ours: %v, returned %v\n", fails, theirs.err, ours.err, ours.returned)
	}
	return ""
}

// claimsFail reports whether Kubernetes' claims failed in a way that is an error for our controller. An Invalid
// adoption is no error for our controller.
func (c scene) claimsFail(o outcome) bool {
	failed, refused := failures(o.err)
	_, invalid := c.failedAdoptions(o.patches)
	return failedClaims(o.err) && (refused > 0 || len(failed) > invalid)
}

// withoutGone reports whether a deletion in our pass met NotFound. If so, it recalculates the counts in want.Status
// without the pods that were not found.
func withoutGone(c scene, ours outcome, want *appsv1.ReplicaSet, named *tally) bool {
	left := c.notGone(ours)
	if len(left) == len(ours.claimed) {
		return false
	}
	named.add(goneCounts)
	counts := upstream.CalculateStatus(want, left, nil, nil, features(false), time.Now())
	want.Status.Replicas, want.Status.FullyLabeledReplicas = counts.Replicas, counts.FullyLabeledReplicas
	want.Status.ReadyReplicas, want.Status.AvailableReplicas = counts.ReadyReplicas, counts.AvailableReplicas
	return true
}

// withMessage replaces Kubernetes' error message in the conditions with our message, if our message contains it.
func withMessage(conditions []appsv1.ReplicaSetCondition, theirs error, ours string, named *tally) []appsv1.ReplicaSetCondition {
	conditions = slices.Clone(conditions)
	for i := range conditions {
		if theirs != nil && conditions[i].Message == theirs.Error() && tells(ours, theirs.Error()) {
			named.add(fullMessage)
			conditions[i].Message = ours
		}
	}
	return conditions
}

// cmpReturns compares the delays until the next pass.
func cmpReturns(c scene, theirs, ours outcome, going, passFails bool, named *tally) string {
	const timeout = expectations.DefaultTimeout
	if ours.err != nil {
		want := c.delay(ours, passFails)
		if want > 0 {
			named.add(delayed)
		}
		return cmpInts("requeue after an error", int(want), int(ours.again))
	}
	want := theirs.again
	switch next := c.nextAvailable(ours); {
	case going: // Kubernetes requests no delay after its failed creation
		want = next
	case want == 0:
	case len(c.notGone(ours)) < len(ours.claimed):
		named.add(goneCounts)
		want = next
	case next == 0:
		named.add(noCheckAhead)
		want = next
	}
	if c.releaseIsInvalid(ours.patches) {
		named.add(releaseAgain)
		want = earliest(want, time.Second)
	}
	if going || ours.gates(kit.AdoptionRefused) > 0 {
		want = earliest(want, time.Minute)
	}
	const nextLook = 5 * time.Second
	if c.isAhead(ours) {
		named.add(goneAhead)
		want = earliest(want, nextLook)
	}
	switch {
	case want > 0 && want <= timeout:
	case ours.adds > 0 || ours.dels > 0:
		named.add(expiryAhead)
		if timeout < ours.again && ours.again <= timeout+timeout/10+1 {
			return ""
		}
	}
	return cmpInts("requeue after", int(want), int(ours.again))
}

// earliest returns the shorter of two delays. The value 0 means that there is no delay.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// nextAvailable returns the time until the next of our pods becomes available, or 0 if there is none.
func (c scene) nextAvailable(ours outcome) time.Duration {
	now := time.Now()
	next := controller.FindMinNextPodAvailabilityCheck(c.notGone(ours), c.RS.Spec.MinReadySeconds, now, clocktesting.NewFakePassiveClock(now))
	if next == nil {
		return 0
	}
	return *next
}

// delay returns how long our controller must wait after a failed pass, because of the server's Retry-After or of a
// hold. If neither applies, delay returns 0, and the rate limiter chooses the wait.
func (c scene) delay(ours outcome, passFails bool) (wait time.Duration) {
	says := func(err error) time.Duration {
		seconds, _ := apierrors.SuggestsClientDelay(err)
		return time.Duration(seconds) * time.Second
	}
	for _, patch := range ours.patches {
		pod, body, _ := strings.Cut(patch, ": ")
		err := answer(c.Patches[pod], pod)
		if !c.claimFails(ours.patches, pod) || !isRelease(body) && apierrors.IsInvalid(err) {
			continue
		}
		wait = max(wait, says(err))
		if !isRelease(body) {
			wait = max(wait, 50*time.Millisecond)
		}
	}
	if slices.ContainsFunc(ours.pass.Gates, func(g kit.Gate) bool { return g.Reason == kit.OwnerUnread }) {
		wait = max(wait, time.Second)
	}
	if len(ours.creates) > c.FailFrom && c.Creates != "" {
		wait = max(wait, says(answer(c.Creates, "")))
		switch c.Creates {
		case "quota", "internal":
			wait = max(wait, time.Second)
		case goingNamespace:
			wait = max(wait, time.Minute)
		}
	}
	for _, pod := range ours.deletes {
		wait = max(wait, says(answer(c.Deletes[pod], pod)))
		if c.Deletes[pod] == "internal" {
			wait = max(wait, time.Second)
		}
	}
	if c.statusFails(ours) {
		if !passFails {
			wait = 0
		}
		if apierrors.IsForbidden(answer(c.Status, "")) {
			wait = max(wait, 10*time.Second)
		}
		wait = max(wait, says(answer(c.Status, "")))
	}
	if wait > 0 {
		wait = earliest(wait, c.nextAvailable(ours))
	}
	return wait
}
