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

// A share is a group of n replicas that belongs to one rule. A rule about creations counts the
// replicas in its own share. A rule about deletions does not count the replicas in its own share.
type share struct {
	rule Rule
	n    int
}

// creates judges a creation. If no webhook changed the pod, it must belong to the owner of the pass
// and match the owner's selector. The creation must not give the owner too many pods.
func (w *watcher) creates(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	_, ok := replicasOf(rs, slices.Values([]*corev1.Pod{p}))[p.UID]
	switch {
	case !ok && w.checker.cluster.Mutate == nil:
		w.strange[rs.UID] = true
		w.fail(Anothers, "created pod %s does not belong to %s", p.Name, rs.Name)
	case ok:
		w.notMore(rs, p.Name)
	default:
		w.strange[rs.UID] = true
		w.strays[p.UID] = !isAdoptable(rs, p)
	}
}

// notMore checks that a creation does not give the owner more replicas than it wants. It counts the
// replicas that the controller must know of, including the new one. A creation may be sent again
// under its name even if others without an answer are too many, so notMore does not count those
// others if the name was sent before.
func (w *watcher) notMore(rs *appsv1.ReplicaSet, name string) {
	room := func(rs *appsv1.ReplicaSet) int { return max(int(*rs.Spec.Replicas), 0) }
	sum, wanted := 0, room(rs)
	shares := w.mustKnow(rs)
	isAgain := w.asked[name] == rs.UID
	for _, s := range shares {
		if isAgain && (s.rule == MoreUnanswered || s.rule == MoreLanded || s.rule == MoreInFlight) {
			continue
		}
		if sum += s.n; sum > wanted {
			w.fail(s.rule, "%s creates %s: %d known, wanted %d", rs.Name, name, sum, wanted)
			return
		}
	}
	fits := func(rs *appsv1.ReplicaSet) bool { return w.mustKnow(rs)[0].n <= room(rs) }
	switch t := &w.checker.truth; {
	case !t.any(rs, w.read[rs.UID], fits):
		w.fail(MoreReadSpec, "%s creates %s: %d known, but the controller has read that fewer are wanted", rs.Name, name, shares[0].n)
	case !t.any(rs, w.began, fits) && !w.unread:
		w.fail(MoreOldProcess, "%s creates %s: %d known, but fewer were wanted when the process began", rs.Name, name, shares[0].n)
	case !t.any(rs, w.passBegan, fits):
		w.fail(MoreOldSpec, "%s creates %s: %d known, but fewer are wanted", rs.Name, name, shares[0].n)
	}
}

// mustKnow counts the replicas that the controller must know of, and returns one share for each rule.
// A controller must know of a replica in each of these cases:
//
//   - The controller's view shows the replica correctly.
//   - The controller created or adopted the replica.
//   - The last live list showed the replica.
//   - The replica already existed when the controller's process began.
//   - A creation in flight may still create the replica.
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
		is = is && (w.told[uid] > 0 || !listed.hides(t, uid))
		made, own := w.made[uid]
		own = own && made >= since.version
		switch {
		case is && !w.fresh[uid] && versionOf(shown) >= since.version, own && !w.unsure[p.Name] && !w.landed[uid]:
			shares[0].n++
		case own && w.unsure[p.Name]:
			shares[1].n++
		case own:
			shares[2].n++
		case since.at <= listed.at && listed.selector == selects(rs):
			shares[3].n++
		case since.at <= w.began:
			shares[4].n++
		}
	}
	for _, p := range t.pods { // no second pod can be created under the name of an existing one
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

// cameBack reports whether a restore brought back a pod that an earlier call did not find. The
// controller's view may show this pod in a state from before the call. Therefore, the controller is
// not required to count the pod.
func (w *watcher) cameBack(uid types.UID) bool {
	at, is := w.absent[uid]
	return is && at < w.checker.truth.epoch
}

// deletes judges a deletion. The deleted pod must belong to the owner, and enough pods must remain.
func (w *watcher) deletes(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	since, listed := w.checker.truth.was.at, w.listed[rs.UID]
	_, own := w.made[p.UID]
	if controllerOf(p) != rs.UID && (!own || !w.mayNotKnow(rs, p)) {
		w.fail(Anothers, "pod %s is deleted and belongs to %q, not %q", p.Name, controllerOf(p), rs.UID)
	}
	if shown, ok := w.controller.View.ChildWatch.Get(p.Namespace, p.Name); ok && shown.UID == p.UID && w.checker.mustStay(shown) && w.checker.mustStay(p) && !w.fresh[p.UID] {
		w.fail(Ruled, "%s deletes %s, which must stay", rs.Name, p.Name)
	}
	_, ok := replicasOf(rs, slices.Values([]*corev1.Pod{p}))[p.UID]
	switch {
	case ok && (w.checker.mustGo(p) || w.checker.isLate(p)): // the deletion is allowed if no pod was missing when the pass began to delete
		w.deed.mustGo++
		w.notFewer(rs, p, w.deed.mustGo)
	case ok:
		w.notFewer(rs, p, w.deed.mustGo)
	case !ok && isActive(p) && controllerOf(p) == rs.UID && !w.strays[p.UID] && since <= listed.at && listed.selector == selects(rs):
		w.fail(AnothersListed, "%s deletes %s, which does not match and was not in the last live list", rs.Name, p.Name)
	}
}

// mayNotKnow reports whether the controller might still believe that a pod belongs to the owner.
// The controller must have created or adopted the pod. A controller may delete strays that have no
// owner, so mayNotKnow returns true for these pods.
func (w *watcher) mayNotKnow(rs *appsv1.ReplicaSet, p *corev1.Pod) bool {
	if w.strays[p.UID] {
		return controllerOf(p) == ""
	}
	since, listed := w.checker.truth.was.at, w.listed[rs.UID].at
	if listed >= w.passBegan && since <= listed {
		return false
	}
	shown, is := w.controller.View.ChildWatch.Get(p.Namespace, p.Name)
	if !is || shown.UID != p.UID || since > w.passBegan {
		return true
	}
	// The controller trusts its own change of the pod until its cache or a live read shows a newer
	// state of the pod.
	return versionOf(shown) < w.made[p.UID] && since > max(listed, w.podRead[p.UID])
}

// notFewer checks that enough replicas remain after a deletion. Pods that no longer exist count as
// remaining if the controller cannot know that they are gone. The parameter mustGo is the number of
// pods that this pass has deleted because a rule requires it. notFewer adds this number to the
// number of remaining replicas.
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
	switch t := &w.checker.truth; {
	case !t.any(rs, w.read[rs.UID], fits):
		w.fail(FewerReadSpec, "%s deletes %s: %d left, but the controller has read that more are wanted", rs.Name, p.Name, left)
	case !t.any(rs, w.passBegan, fits):
		w.fail(rule, "%s deletes %s: %d left, but more are wanted", rs.Name, p.Name, left)
	}
}

// remaining computes how many replicas remain as far as the controller can know. The first result
// includes replicas that exist, except those that a call in flight may delete. It also includes
// replicas that are gone without the controller's knowledge. The second result contains all further
// replicas that the rule Fewer counts as remaining. These replicas are divided into shares. The
// rule of a share counts neither the replicas in this share nor those in later shares.
func (w *watcher) remaining(rs *appsv1.ReplicaSet) (n int, excused []share) {
	t, listed := &w.checker.truth, w.listed[rs.UID]
	passed := w.unversioned(FewerPassed, FewerUnversioned)
	shares := []share{{}, {rule: FewerNewProcess}, {rule: passed}, {rule: FewerSameName}, {rule: FewerListed}, {rule: FewerInFlight}}
	ends := map[types.UID]bool{}
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
	maps.Copy(shown, replicasOf(rs, maps.Values(w.turned)))
	for uid := range w.unseen() {
		shown[uid] = nil
	}
	for uid := range w.made {
		if _, is := shown[uid]; w.fresh[uid] && !is {
			shown[uid] = nil // the controller created or adopted the pod, and the pod's events came too late for this pass
		}
	}
	for uid, p := range shown {
		if _, is := there[uid]; is || w.deleted[uid] {
			continue
		}
		switch gone, _ := t.gone(uid); {
		case w.lost[uid]:
			shares[5].n++
		case gone.at <= listed.at && listed.selector == selects(rs):
			shares[4].n++
		case p != nil && names[p.Name]:
			shares[3].n++
		case p == nil && w.fresh[uid] && gone.at > w.passBegan:
			n++
		case p == nil && w.passedBy(uid):
			shares[2].n++
		case gone.at <= w.began:
			shares[1].n++
		default:
			n++
		}
	}
	return n, shares[1:]
}

// mayEnd reports whether a call in flight can still delete a pod. If the call contains a
// resourceVersion, it can delete only that version of the pod.
func mayEnd(call replicastest.Call, p *corev1.Pod) bool {
	return call.Verb == "delete" && p != nil && (call.ResourceVersion == "" || call.ResourceVersion == p.ResourceVersion)
}

// unseen finds pods that the controller's own calls have shown, but that its watch has not shown
// since.
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

// passedBy reports whether the cache is newer than the moment when a pod stopped being active. If
// the watch has no resourceVersion, the cache must be synced and no event may be pending.
func (w *watcher) passedBy(uid types.UID) bool {
	gone, known := w.checker.truth.gone(uid)
	watch := w.controller.View.ChildWatch
	if version := inside.Of[inside.Stream](watch).Version(); version != "" {
		at, err := strconv.ParseUint(version, 10, 64)
		return known && err == nil && at >= gone.version
	}
	return known && inside.Of[inside.View](w.controller.View).Synced() && !inside.Of[inside.Stream](watch).Hung() && inside.Of[inside.Stream](watch).Pending() == 0 // a synced watch has no resourceVersion if its first list was empty
}

// unversioned returns one of the two given rules. Both rules apply if the cache is newer than the
// moment when a pod stopped being active. If the controller's cache reports a resourceVersion, the
// first rule applies, because the controller must notice that the pod is gone. If the cache reports
// no resourceVersion, the second rule applies.
func (w *watcher) unversioned(known, unknown Rule) Rule {
	if w.controller.RememberWrites && w.controller.View.ChildrenVersion() != "" {
		return known
	}
	return unknown
}

func selects(rs *appsv1.ReplicaSet) string { return rs.Spec.Selector.String() }

// sent judges a deletion that got no answer and may still take effect.
func (w *watcher) sent(call replicastest.Call) {
	rs := w.owner()
	p, is := w.checker.truth.pods[w.doubted[call.Name]]
	if rs == nil || !is || !slices.ContainsFunc(w.client.InFlight(), func(late replicastest.Call) bool {
		return late.NamespacedName == call.NamespacedName && mayEnd(late, p)
	}) {
		return
	}
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
		if err == nil && !w.wroteNow && w.checker.truth.epoch == 0 { // a restored server reuses resourceVersions
			w.fail(Needless, "the status of %s is written, but has not changed", rs.Name)
		}
		w.wroteNow = false
	}
	if err != nil {
		w.failedAt[rs.UID] = w.checker.cluster.Clock.Now()
	}
	now := w.checker.truth.now
	if call.Kind != "ReplicaSet" && apierrors.IsNotFound(err) {
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
			w.looked = live.UID
		}
	}
}

// opened records whether a creation produced a pod, was refused, or has an unknown result.
func (w *watcher) opened(rs *appsv1.ReplicaSet, call replicastest.Call, err error) {
	now, p := w.checker.cluster.Clock.Now(), w.podNamed(call.Name)
	isFinal := apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	delete(w.open, call.Name)
	switch {
	case err != nil && !isFinal:
		w.open[call.Name] = sight{owner: rs.UID, at: now}
	case err != nil || p == nil:
	case w.strays[p.UID] && !isOthers(p, rs.UID):
		w.messes[p.UID] = rs.UID
	default:
		w.born[p.UID] = sight{owner: rs.UID, at: now}
	}
}

// podNamed returns the pod with this name, or nil if there is none.
func (w *watcher) podNamed(name string) *corev1.Pod {
	for _, p := range w.checker.truth.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// found is called when a call has found a pod. If the pod's creation took effect late, the
// controller knows of the pod from now on.
func (w *watcher) found(rs *appsv1.ReplicaSet, name string) {
	for uid, p := range w.checker.truth.pods {
		if p.Name != name {
			continue
		}
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

// deleteSent records whether a deletion succeeded. If the deletion failed and may still take effect,
// deleteSent also judges the deletion.
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
