// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"context"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A share is a number of replicas that one rule counts differently from the rules before it. A rule about creations
// counts its share, and a rule about deletions does not.
type share struct {
	rule Rule
	n    int
}

// creates judges a creation.
func (w *watcher) creates(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	_, ok := replicasOf(rs, slices.Values([]*corev1.Pod{p}))[p.UID]
	switch {
	case !ok && w.checker.cluster.Mutate == nil:
		// There is no webhook, so the controller itself has made a pod that its owner does not select.
		w.strange[rs.UID] = true
		w.fail(Anothers, "created pod %s does not belong to %s", p.Name, rs.Name)
	case ok:
		w.notMore(rs, p.Name)
	default:
		w.strange[rs.UID] = true
		// A webhook has changed the pod. Unless the owner can adopt it, the controller has to delete it.
		w.strays[p.UID] = !isAdoptable(rs, p)
	}
}

// notMore checks that known <= wanted still holds with the new replica, for all that the controller must know of.
func (w *watcher) notMore(rs *appsv1.ReplicaSet, name string) {
	room := func(rs *appsv1.ReplicaSet) int { return max(int(*rs.Spec.Replicas), 0) }
	sum, wanted := 0, room(rs)
	shares := w.mustKnow(rs)
	// A creation that is sent again makes no second pod. Ten creations were sent twice, eight of their pods were
	// deleted, and the names held their places: 2 could not become 8. So the others without an answer do not stand
	// against it.
	isAgain := w.asked[name] == rs.UID
	for _, s := range shares {
		if isAgain && (s.rule == MoreUnanswered || s.rule == MoreLanded || s.rule == MoreInFlight) {
			continue
		}
		// shares[0] + ... + shares[i] <= wanted, for each i. The first share that is too many names the rule.
		if sum += s.n; sum > wanted {
			w.fail(s.rule, "%s creates %s: %d known, wanted %d", rs.Name, name, sum, wanted)
			return
		}
	}
	fits := func(rs *appsv1.ReplicaSet) bool { return w.mustKnow(rs)[0].n <= room(rs) }
	// shares[0] <= wanted must also hold for a spec that the owner has had since each of these instants.
	switch t := &w.checker.truth; {
	case !t.any(rs, w.read[rs.UID], fits):
		// The watch of owners hung when the owner was scaled down, but the controller has read the owner since.
		w.fail(MoreReadSpec, "%s creates %s: %d known, but the controller has read that fewer are wanted", rs.Name, name, shares[0].n)
	case !t.any(rs, w.began, fits) && !w.unread:
		// The first list of a new process was old. It must ask the server before it first creates, unless that read
		// fails.
		w.fail(MoreOldProcess, "%s creates %s: %d known, but fewer were wanted when the process began", rs.Name, name, shares[0].n)
	case !t.any(rs, w.passBegan, fits):
		w.fail(MoreOldSpec, "%s creates %s: %d known, but fewer are wanted", rs.Name, name, shares[0].n)
	}
}

// mustKnow counts the replicas that the controller must know of, one share for each excuse that a rule does not accept.
func (w *watcher) mustKnow(rs *appsv1.ReplicaSet) []share {
	seen := replicasOf(rs, slices.Values(w.controller.View.ChildWatch.In(rs.Namespace)))
	t, listed := &w.checker.truth, w.listed[rs.UID]
	shares := []share{{rule: More}, {rule: MoreUnanswered}, {rule: MoreLanded}, {rule: MoreListed}, {rule: MoreNewProcess}, {rule: MoreInFlight}}
	there := map[types.NamespacedName]bool{}
	for uid, p := range replicasOf(rs, maps.Values(t.pods)) {
		since := t.since[uid]
		if w.cameBack(uid) {
			continue
		}
		shown, is := seen[uid]
		// See hides: a list from before a restore may make a restored pod look deleted.
		is = is && (w.told[uid] > 0 || !listed.hides(t, uid))
		made, own := w.made[uid]
		own = own && made >= since.version
		switch {
		case is && !w.fresh[uid] && versionOf(shown) >= since.version, own && !w.unsure[p.Name] && !w.landed[uid]:
			// The view shows the pod as it is, or the answer to its creation or adoption did. An event in the middle of
			// the pass came too late for its plan.
			shares[0].n++
		case own && w.unsure[p.Name]:
			// The creation had no answer, but the controller knows its name and can read the pod.
			shares[1].n++
		case own:
			// The creation took effect after the controller had stopped waiting.
			shares[2].n++
		case since.at <= listed.at && listed.selector == selects(rs):
			// The last live list showed it, if it was made for this selector.
			shares[3].n++
		case since.at <= w.began:
			// It was there before the process, whose first list may have been old.
			shares[4].n++
		}
	}
	// A creation in flight makes no pod while another one has its name.
	for _, p := range t.pods {
		there[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = true
	}
	for _, call := range w.client.InFlight() {
		if call.Verb == "create" && w.asked[call.Name] == rs.UID && !there[call.NamespacedName] {
			there[call.NamespacedName] = true
			shares[5].n++
		}
	}
	return shares
}

// cameBack reports whether a restore brought back a pod that an earlier call did not find.
func (w *watcher) cameBack(uid types.UID) bool {
	// The view may show the pod as it was before the call, so the controller need not believe the view.
	at, is := w.absent[uid]
	return is && at < w.checker.truth.epoch
}

// deletes judges a deletion.
func (w *watcher) deletes(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	since, listed := w.checker.truth.was.at, w.listed[rs.UID]
	_, own := w.made[p.UID]
	if controllerOf(p) != rs.UID && (!own || !w.mayNotKnow(rs, p)) {
		w.fail(Anothers, "pod %s is deleted and belongs to %q, not %q", p.Name, controllerOf(p), rs.UID)
	}
	// Both must say so: the pod that the controller saw, and the pod on the server.
	if shown, ok := w.controller.View.ChildWatch.Get(p.Namespace, p.Name); ok && shown.UID == p.UID && w.checker.mustStay(shown) && w.checker.mustStay(p) && !w.fresh[p.UID] {
		w.fail(Ruled, "%s deletes %s, which must stay", rs.Name, p.Name)
	}
	_, ok := replicasOf(rs, slices.Values([]*corev1.Pod{p}))[p.UID]
	switch {
	case ok && (w.checker.mustGo(p) || w.checker.isLate(p)):
		// A pod that must go is deleted even if fewer are left then, but only if none was missing when the pass began
		// to delete. So it counts as left.
		w.deed.mustGo++
		w.notFewer(rs, p, w.deed.mustGo)
	case ok:
		w.notFewer(rs, p, w.deed.mustGo)
	case !ok && isActive(p) && controllerOf(p) == rs.UID && !w.strays[p.UID] && since <= listed.at && listed.selector == selects(rs):
		// Its label changed while the watch hung, and a live list did not show it. When the watch goes on, the pod must
		// be released, because its user has taken it away.
		w.fail(AnothersListed, "%s deletes %s, which does not match and was not in the last live list", rs.Name, p.Name)
	}
}

// mayNotKnow reports whether the controller, which made or adopted a pod, might still believe that it is the owner's.
func (w *watcher) mayNotKnow(rs *appsv1.ReplicaSet, p *corev1.Pod) bool {
	if w.strays[p.UID] {
		// The controller has to delete what a webhook has taken from the owner, until another owner has it.
		return controllerOf(p) == ""
	}
	since, listed := w.checker.truth.was.at, w.listed[rs.UID].at
	if listed >= w.passBegan && since <= listed {
		// This pass has listed the pods after the pod had left.
		return false
	}
	shown, is := w.controller.View.ChildWatch.Get(p.Namespace, p.Name)
	if !is || shown.UID != p.UID || since > w.passBegan {
		// The view does not show the pod, or the pod left during this pass.
		return true
	}
	// The controller trusts its own change of the pod until its cache or a live read shows a newer state.
	return versionOf(shown) < w.made[p.UID] && since > max(listed, w.podRead[p.UID])
}

// notFewer checks that a deletion leaves as many replicas as wanted. The parameter mustGo is the number of pods that
// this pass has deleted because a rule requires it, which count as left.
func (w *watcher) notFewer(rs *appsv1.ReplicaSet, p *corev1.Pod, mustGo int) {
	left, shares := w.remaining(rs)
	left += mustGo
	sum, wanted := left, int(*rs.Spec.Replicas)
	for _, s := range shares {
		sum += s.n
	}
	phantoms := sum - left
	for i := len(shares); i >= 0; i-- {
		rule := Fewer
		if i < len(shares) {
			rule = shares[i].rule
			sum -= shares[i].n
		}
		// left + shares[0] + ... + shares[i-1] >= wanted, for each i. Each rule counts one share less than the rule
		// before it, and the rule Fewer counts them all.
		if sum < wanted {
			w.fail(rule, "%s deletes %s: %d left, %d gone that it cannot know of, wanted %d", rs.Name, p.Name, left, phantoms, wanted)
			return
		}
	}
	fits := func(rs *appsv1.ReplicaSet) bool {
		left, shares := w.remaining(rs)
		left += mustGo
		for _, s := range shares {
			left += s.n
		}
		return left >= int(*rs.Spec.Replicas)
	}
	rule := FewerOldUnready
	if isReady(p) {
		rule = FewerOldSpec
	}
	// The same must hold for a spec that the owner has had since each of these instants.
	switch t := &w.checker.truth; {
	case !t.any(rs, w.read[rs.UID], fits):
		// The watch of owners hung when the owner was scaled up, but a read before an adoption has shown the new
		// number.
		w.fail(FewerReadSpec, "%s deletes %s: %d left, but the controller has read that more are wanted", rs.Name, p.Name, left)
	case !t.any(rs, w.passBegan, fits):
		// The owner was scaled down, and up again before the cache showed the first change.
		w.fail(rule, "%s deletes %s: %d left, but more are wanted", rs.Name, p.Name, left)
	}
}

// remaining counts the replicas that are left as far as the controller can know. The shares are further replicas, which
// exist no longer or may end at any time, and which only some rules count.
func (w *watcher) remaining(rs *appsv1.ReplicaSet) (n int, excused []share) {
	t, listed := &w.checker.truth, w.listed[rs.UID]
	passed := w.unversioned(FewerPassed, FewerUnversioned)
	shares := []share{{}, {rule: FewerNewProcess}, {rule: passed}, {rule: FewerSameName}, {rule: FewerListed}, {rule: FewerInFlight}}
	ends := map[types.UID]bool{}
	// A deletion had no answer. It may take effect later, when others have been deleted.
	for _, call := range w.client.InFlight() {
		if p := t.pods[w.doubted[call.Name]]; mayEnd(call, p) {
			ends[p.UID] = true
		}
	}
	there, names := replicasOf(rs, maps.Values(t.pods)), map[string]bool{}
	for uid, p := range there {
		names[p.Name] = true
		if ends[uid] {
			shares[5].n++
		} else {
			n++
		}
	}
	shown := replicasOf(rs, slices.Values(w.controller.View.ChildWatch.In(rs.Namespace)))
	// An event of this pass has changed the pod, but the plan was made for the pod of before.
	maps.Copy(shown, replicasOf(rs, maps.Values(w.turned)))
	// A call has shown these pods, and no event since.
	for uid := range w.unseen() {
		shown[uid] = nil
	}
	for uid := range w.made {
		if _, is := shown[uid]; w.fresh[uid] && !is {
			// The events of a pod that the controller made came too late for this pass.
			shown[uid] = nil
		}
	}
	for uid, p := range shown {
		if _, is := there[uid]; is || w.deleted[uid] {
			continue
		}
		switch gone, _ := t.gone(uid); {
		case w.lost[uid]:
			// Its deletion had no answer and has taken effect, which the controller must reckon with.
			shares[5].n++
		case gone.at <= listed.at && listed.selector == selects(rs):
			// Three pods ended while the watch hung, and the last live list lacked all of them.
			shares[4].n++
		case p != nil && names[p.Name]:
			// Another replica has its name, so this one cannot exist.
			shares[3].n++
		case p == nil && w.fresh[uid] && gone.at > w.passBegan:
			n++
		case p == nil && w.passedBy(uid):
			// The cache is newer than the end of this pod, and does not show the pod.
			shares[2].n++
		case gone.at <= w.began:
			// The first list of the process was old, and showed a pod that was gone.
			shares[1].n++
		default:
			// Nothing has shown the controller that this one is gone.
			n++
		}
	}
	return n, shares[1:]
}

// mayEnd reports whether a call in flight can still delete a pod.
func mayEnd(call replicastest.Call, p *corev1.Pod) bool {
	// With a resourceVersion, the call can delete only that version of the pod.
	return call.Verb == "delete" && p != nil && (call.ResourceVersion == "" || call.ResourceVersion == p.ResourceVersion)
}

// unseen returns the pods that only the controller's own calls have shown, and no event since.
func (w *watcher) unseen() map[types.UID]bool {
	unseen := map[types.UID]bool{}
	for uid, version := range w.made {
		if w.seen[uid] < version {
			unseen[uid] = true
		}
	}
	for uid := range w.told {
		unseen[uid] = true
	}
	return unseen
}

// passedBy reports whether the cache is newer than the moment at which a pod stopped being active.
func (w *watcher) passedBy(uid types.UID) bool {
	gone, known := w.checker.truth.gone(uid)
	watch := w.controller.View.ChildWatch
	if version := inside.Of[inside.Stream](watch).Version(); version != "" {
		at, err := strconv.ParseUint(version, 10, 64)
		return known && err == nil && at >= gone.version
	}
	// A cache without a version is new if it is synced and nothing is on its way. It has no version if its first list
	// was empty.
	return known && inside.Of[inside.View](w.controller.View).Synced() && !inside.Of[inside.Stream](watch).Hung() && inside.Of[inside.Stream](watch).Pending() == 0
}

// unversioned returns the rule for a pod that is gone while the cache is newer than its end.
func (w *watcher) unversioned(known, unknown Rule) Rule {
	if w.controller.RememberWrites && w.controller.View.ChildrenVersion() != "" {
		// The controller can compare the versions, and must notice.
		return known
	}
	return unknown
}

func selects(rs *appsv1.ReplicaSet) string { return rs.Spec.Selector.String() }

// sent judges a deletion that had no answer and may still take effect.
func (w *watcher) sent(call replicastest.Call) {
	rs := w.owner()
	p, is := w.checker.truth.pods[w.doubted[call.Name]]
	if rs == nil || !is || !slices.ContainsFunc(w.client.InFlight(), func(late replicastest.Call) bool {
		return late.NamespacedName == call.NamespacedName && mayEnd(late, p)
	}) {
		return
	}
	// The pod is as good as gone for the controller, so the deletion must be right now, and not only when it takes
	// effect.
	if _, ok := replicasOf(rs, slices.Values([]*corev1.Pod{p}))[p.UID]; ok && !w.checker.mustGo(p) && !w.checker.isLate(p) {
		w.notFewer(rs, p, w.deed.mustGo)
	}
}

// done is called after each call. It records the result, and checks the rules about calls.
func (w *watcher) done(call replicastest.Call, err error) {
	w.led = w.checker.Leads(w.controller)
	rs := w.owner()
	if rs == nil {
		return
	}
	w.pays(rs, call)
	w.deed.did(call, err)
	w.hurries(rs, call, err)
	if call.Verb == "status" {
		// A restored server counts its resourceVersions again, so a status that is written may look unchanged.
		if err == nil && !w.wroteNow && w.checker.truth.epoch == 0 {
			w.fail(Needless, "the status of %s is written, but has not changed", rs.Name)
		}
		w.wroteNow = false
	}
	if err != nil {
		w.failedAt[rs.UID] = w.checker.cluster.Clock.Now()
	}
	now := w.checker.truth.now
	if call.Kind != "ReplicaSet" && apierrors.IsNotFound(err) {
		// The pod that the controller made under this name is gone, and so is the one that the cache shows.
		w.absent[w.named[call.Name]] = now
		if p, shown := w.controller.View.ChildWatch.Get(call.Namespace, call.Name); shown {
			w.absent[p.UID] = now
		}
	}
	switch {
	case call.Limit > 0: // the controller uses a limited list only to learn the server's resourceVersion
	case call.Verb == "create":
		w.hasty(rs, call, err)
		if asked := w.asked[call.Name]; asked != "" && asked != rs.UID {
			w.fail(Anothers, "%s creates %s, a name that another owner has used", rs.Name, call.Name)
		}
		w.asked[call.Name] = rs.UID
		w.unsure[call.Name] = err != nil
		w.opened(rs, call, err)
	case call.Verb == "delete" && !call.DryRun:
		w.deleteSent(call, err)
	case call.Verb == "list" && err != nil:
		// The controller has tried, and may wait as long for the next list as after this one.
		w.listedAt[rs.UID] = w.checker.cluster.Clock.Now()
	case call.Verb == "list":
		w.listed[rs.UID] = liveList{now, inside.Of[inside.Cluster](w.checker.cluster).Version(), w.pass, selects(rs)}
		// The list may already show the delayed pods, so the requested delays no longer apply.
		maps.DeleteFunc(w.waits, func(p place, _ wait) bool { return p.owner == rs.UID })
		w.lists(rs)
		for uid, p := range replicasOf(rs, maps.Values(w.checker.truth.pods)) {
			w.sees(rs, uid)
			delete(w.open, p.Name)
		}
	case call.Kind != "ReplicaSet" && err == nil:
		w.unsure[call.Name] = false // the call found the pod
		delete(w.open, call.Name)
		delete(w.waits, place{rs.UID, call.Namespace})
		w.found(rs, call.Name)
	case call.Verb == "get" && call.Kind == "ReplicaSet" && err != nil && !apierrors.IsNotFound(err):
		w.unread = true
	case call.Kind == "ReplicaSet" && (err == nil || apierrors.IsNotFound(err)):
		w.read[rs.UID] = now
		live, gone := w.checker.cluster.GetOwner(context.Background(), call.Namespace, call.Name)
		if err == nil && gone == nil && live.DeletionTimestamp == nil && call.Verb == "get" {
			// An adoption needs a read of its own. The answer to a status write is none.
			w.looked = live.UID
		}
	}
}

// opened records what became of a creation.
func (w *watcher) opened(rs *appsv1.ReplicaSet, call replicastest.Call, err error) {
	now, p := w.checker.cluster.Clock.Now(), w.podNamed(call.Name)
	isFinal := apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	delete(w.open, call.Name)
	switch {
	case err != nil && !isFinal:
		w.open[call.Name] = sight{owner: rs.UID, at: now}
	case err != nil || p == nil:
	case w.strays[p.UID] && !isOthers(p, rs.UID):
		// The answer has shown the controller what a webhook made of its pod, so it has to delete the pod.
		w.messes[p.UID] = rs.UID
	default:
		w.born[p.UID] = sight{owner: rs.UID, at: now}
	}
}

// podNamed returns the pod with this name, or nil.
func (w *watcher) podNamed(name string) *corev1.Pod {
	for _, p := range w.checker.truth.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// found is called when a call has found a pod.
func (w *watcher) found(rs *appsv1.ReplicaSet, name string) {
	for uid, p := range w.checker.truth.pods {
		if p.Name != name {
			continue
		}
		// The creation may have taken effect late, but from now on the controller knows of the pod.
		delete(w.landed, uid)
		w.told[uid], w.podRead[uid] = inside.Of[inside.Cluster](w.checker.cluster).Version(), w.checker.truth.now
		if isActive(p) && controllerOf(p) == rs.UID {
			w.sees(rs, uid)
		}
	}
}

// Doubts returns the number of existing pods whose deletion was sent but got no answer.
func (k *Checker) Doubts() (n int) {
	for _, w := range k.watchers {
		for _, uid := range w.doubted {
			if _, is := k.truth.pods[uid]; is {
				n++
			}
		}
	}
	return n
}

// deleteSent records a deletion, and judges one without an answer.
func (w *watcher) deleteSent(call replicastest.Call, err error) {
	delete(w.doubted, call.Name)
	if err == nil {
		return
	}
	w.doubted[call.Name] = ""
	for uid, p := range w.checker.truth.pods {
		if p.Name == call.Name && p.Namespace == call.Namespace {
			w.doubted[call.Name] = uid
		}
	}
	w.sent(call)
}
