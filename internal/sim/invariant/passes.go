// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

// longestUnseen is how long a controller may wait for a change that its cache does not show: twice the lifetime of an
// expectation, plus one minute.
const longestUnseen = 11 * time.Minute

// A deed records what the current pass has done so far.
type deed struct {
	mustGo          int       // number of children deleted because a rule requires it
	refused, others int       // number of refused creations, and number of other creations
	full            bool      // a full quota refused the last creation
	last            time.Time // time of the last answer to a creation or deletion
	deletions       int
	conflicts       int   // number of deletions that met a Conflict
	updates         int   // number of status writes
	says            int64 // observedGeneration in the written status; 0 if none was written
	stuck           bool  // the first status write met a Conflict, and the owner has not been read since
}

// did is called after each call of the current pass.
func (d *deed) did(call replicastest.Call, err error) {
	switch {
	case call.Verb == "create" && isQuota(err):
		d.refused++
		d.full = true
	case call.Verb == "create" && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)):
		d.refused++
		d.full = false
	case call.Verb == "create":
		d.others++
		d.full = false
	case call.Verb == "delete":
		d.deletions++
		if apierrors.IsConflict(err) {
			d.conflicts++
		}
	case call.Verb == "status":
		d.updates++
		d.stuck = d.updates == 1 && apierrors.IsConflict(err)
	case call.Verb == "get" && call.Kind == "ReplicaSet":
		// The status write may be tried again from this owner.
		d.stuck = false
	case err == nil:
		// A successful read may have found the created pods, so the refused ones no longer count.
		d.others, d.refused, d.full = d.others+d.refused, 0, false
	}
}

// isQuota reports whether a quota refused a creation.
func isQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// judgePass checks a pass that has ended.
func (w *watcher) judgePass(pass podPass) {
	rs, d := pass.Owner, w.deed
	told, waits := w.waits[place{rs.UID, rs.Namespace}]
	_, queued := w.inside.Queued(pass.Name)
	switch {
	case errors.Is(pass.Err, controller.ErrOverLimit):
		w.fail(Room, "%s: %v", rs.Name, pass.Err)
	case d.says != 0 && d.says != pass.Generation:
		w.fail(Status, "the pass of %s used generation %d, but wrote observedGeneration %d", rs.Name, pass.Generation, d.says)
	case d.stuck:
		w.fail(Status, "the status write of %s met a Conflict, but the pass did not read the owner to try again", rs.Name)
	case waits && told.pass == w.passBegan && pass.Err != nil && pass.RequeueAfter <= 0:
		// The rate limiter alone would bring the next pass before the server's delay is over.
		w.fail(Hasty, "%s must wait until %v, but requests no pass for that time", rs.Name, told.until.Format(time.TimeOnly))
	case len(pass.Created) > 0 && len(pass.Active)+len(pass.Created)+gatesOf(pass, controller.AdoptionUndecided) > int(pass.Desired):
		// active + created + undecided <= desired: an orphan whose adoption is undecided may become the owner's.
		w.fail(MoreUndecided, "%s creates %d pods, but has %d, may adopt %d orphans, and wants %d", rs.Name, len(pass.Created), len(pass.Active), gatesOf(pass, controller.AdoptionUndecided), pass.Desired)
	case pass.Err == nil && pass.Observed && pass.RequeueAfter <= 0 && !queued && rs.DeletionTimestamp == nil && !w.checker.Vetoed(rs) && w.opens(rs) != "":
		// The pod may exist and be seen by no event, so a pass must come that reads it.
		w.fail(Asleep, "%s does not read pod %s, whose creation got no answer", rs.Name, w.opens(rs))
	}
	w.judgeHold(pass)
	if d.refused+d.others > 0 {
		delete(w.full, rs.UID)
	}
	missing := int(pass.Desired) - len(pass.Active)
	if d.others > 0 || waits {
		delete(w.quotas, rs.UID)
	}
	w.denied(w.quotas, pass, d.refused+d.others > 0, d.full, missing > 0)
	// Nothing is left to delete.
	if d.deletions == 0 && missing >= 0 {
		maps.DeleteFunc(w.conflicts, func(_ string, c conflict) bool { return c.owner == rs.UID })
	}
	if d.full {
		w.full[rs.UID] = counted(pass)
	}
	w.judgeStale(pass)
	w.judgeUnshown(pass)
	w.judgeReleases(pass)
}

// mayLand is the maximum time between the sending of a creation and its effect.
const mayLand = 5 * time.Minute

// opens returns the name of a pod whose creation has an unknown result and was sent less than mayLand ago, or "".
func (w *watcher) opens(rs *appsv1.ReplicaSet) string {
	if w.checker.Skewed {
		// By the controller's clock, the time may be over.
		return ""
	}
	for name, sent := range w.open {
		if sent.owner == rs.UID && w.checker.cluster.Clock.Now().Sub(sent.at) < mayLand {
			return name
		}
	}
	return ""
}

// A denial counts the consecutive passes in which the server refused the same kind of call.
type denial struct {
	passes     int
	last       time.Time
	generation int64
}

// wait returns the minimum delay before the next call of a kind that the server refuses.
func (d denial) wait(first, last time.Duration) time.Duration {
	wait := first
	for range d.passes - 1 {
		wait = min(2*wait, last)
	}
	// The back-off may have begun before d.last, so only half of it counts.
	return wait / 2
}

// A conflict counts the consecutive passes in which the deletion of a pod met a Conflict.
type conflict struct {
	denial

	owner types.UID
	pass  int // number of the last pass with a Conflict
}

// conflicted records a deletion, and reports whether it followed a Conflict too soon.
func (w *watcher) conflicted(rs *appsv1.ReplicaSet, call replicastest.Call, err error) (isHasty bool) {
	now, c := w.checker.cluster.Clock.Now(), w.conflicts[call.Name]
	if c.owner != rs.UID || c.generation != rs.Generation {
		c = conflict{owner: rs.UID, denial: denial{generation: rs.Generation}}
	}
	wait := c.wait(deniedFirst, deniedLast)
	// now - last >= wait, unless the wait is so short that a change of the pod ends it. Within one pass, the list that
	// follows a Conflict may choose the same pod again.
	isHasty = wait >= changesCount && c.passes > 0 && c.pass != w.pass && now.Sub(c.last) < wait
	if delete(w.conflicts, call.Name); !apierrors.IsConflict(err) {
		return isHasty
	}
	if c.pass != w.pass {
		c.passes, c.pass = c.passes+1, w.pass
	}
	c.last = now
	w.conflicts[call.Name] = c
	return isHasty
}

// denied updates the number of consecutive refused passes of an owner, for one kind of call. The last three parameters
// say whether the pass tried such a call, whether the server refused the last one, and whether the owner still needs
// some.
func (w *watcher) denied(all map[types.UID]denial, pass podPass, tried, refused, isLeft bool) {
	d := all[pass.Owner.UID]
	if d.generation != pass.Generation || tried && !refused || !tried && !isLeft {
		// Another generation, an answer that is no refusal, or an end of the need: the next refusal is the first.
		d = denial{generation: pass.Generation}
	}
	if tried && refused {
		d.passes, d.last = d.passes+1, w.deed.last
	}
	all[pass.Owner.UID] = d
}

// A notFoundCall is a deletion or patch that did not find its pod.
type notFoundCall struct {
	uid        types.UID // "" if unknown
	at         time.Time
	generation int64
	epoch      instant
}

const (
	missingKept             = 4 * time.Minute
	quotaFirst, quotaLast   = time.Second, time.Minute
	deniedFirst, deniedLast = 50 * time.Millisecond, time.Minute
	changesCount            = 500 * time.Millisecond // a pod that has changed ends a shorter wait after a Conflict
	listsApart              = time.Second
)

// hurries checks that a pass does not repeat a failed call too soon, also if an event has started the pass.
func (w *watcher) hurries(rs *appsv1.ReplicaSet, call replicastest.Call, err error) {
	if w.checker.Skewed {
		return
	}
	now, is := w.checker.cluster.Clock.Now(), false
	if call.Verb == "create" || call.Verb == "delete" {
		w.deed.last = now
	}
	since := func(d denial) time.Duration { return now.Sub(d.last) }
	switch quota := w.quotas[rs.UID]; {
	case call.Verb == "create" && rs.Namespace == "":
		// Each namespace has its own slow start and quota, so this is not checked.
	case call.Verb == "create":
		if d := w.deed; d.refused > d.others+1 {
			// refused <= others + 1: slow start doubles only after success, so as many fail at most as have succeeded,
			// and one.
			w.fail(SlowStart, "%s: in one pass, %d creations are refused and %d are not", rs.Name, d.refused, d.others)
		}
		// now - last >= wait, unless the spec has changed or a pod has gone, which makes room in the quota.
		is = quota.passes > 0 && quota.generation == rs.Generation && since(quota) < quota.wait(quotaFirst, quotaLast) && w.room(rs) <= 0
	case call.Verb == "delete" && !w.strange[rs.UID]:
		is = w.conflicted(rs, call, err)
		w.misses(rs, call, err)
	case call.Verb == "patch":
		// While the cache shows the pod, a patch of it may be tried again.
		if _, shown := w.controller.View.ChildWatch.Get(call.Namespace, call.Name); !shown {
			w.misses(rs, call, err)
		}
	case call.Verb == "list":
		// now - last >= listsApart, after three lists in a row have failed.
		is = w.listsFailed > 2 && now.Sub(w.listFailed) < listsApart
		if w.listsFailed++; err == nil {
			w.listsFailed = 0
		}
		w.listFailed = now
	}
	if is {
		rule := Hasty
		if call.Verb == "list" {
			rule = HastyLists
		}
		w.fail(rule, "%s of %s for %s, although the last ones have just been refused", call.Verb, call.Name, rs.Name)
	}
}

// room returns how many pods an owner has lost since its quota was full.
func (w *watcher) room(rs *appsv1.ReplicaSet) (n int) {
	sel, err := selector.ForReplicaSet(rs)
	if err != nil || len(w.fresh) > 0 {
		// The number of pods is uncertain, so the quota may have room.
		return 1
	}
	for _, p := range w.controller.View.ChildWatch.In(rs.Namespace) {
		finished := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if controllerOf(p) == rs.UID && sel.Matches(labels.Set(p.Labels)) && !finished {
			n++
		}
	}
	return w.full[rs.UID] - n
}

// misses checks that no pass deletes or patches a pod again after a NotFound.
func (w *watcher) misses(rs *appsv1.ReplicaSet, call replicastest.Call, err error) {
	k := w.checker
	for _, p := range k.truth.pods {
		if p.Name == call.Name {
			// A pod has this name, so the call was not in vain.
			delete(w.missed, call.Name)
			return
		}
	}
	if !apierrors.IsNotFound(err) {
		return
	}
	if p, shown := w.controller.View.ChildWatch.Get(call.Namespace, call.Name); shown && !w.fresh[p.UID] {
		gone, known := k.truth.gone(p.UID)
		// The last live list has shown that the pod is gone, so the call was in vain from the start.
		if listed := w.listed[rs.UID]; known && gone.at > k.truth.epoch && gone.at <= listed.at && listed.selector == selects(rs) {
			w.fail(Futile, "%s: %s of %s, a pod that its last live list did not show", rs.Name, call.Verb, call.Name)
		}
	}
	now := k.cluster.Clock.Now()
	uid := w.victims[call.Name]
	was, is := w.missed[call.Name]
	// NotFound is about the UID of that pod, and not about a later pod of its name. After missingKept, the controller
	// may trust its cache again.
	if is && was.uid == uid && now.Sub(was.at) < missingKept && was.generation == rs.Generation && was.epoch == k.truth.epoch {
		w.fail(Futile, "%s: %s of %s, which was not found %v ago", rs.Name, call.Verb, call.Name, now.Sub(was.at))
		return
	}
	w.missed[call.Name] = notFoundCall{uid, now, rs.Generation, k.truth.epoch}
}

// judgeHold checks that a pass is no longer held back after the reason for the hold is gone.
func (w *watcher) judgeHold(pass podPass) {
	rs := pass.Owner
	last, is := w.last[pass.Name]
	// With BackOff, a hold for failing pods may go on after the owner has changed.
	if !pass.HeldBack() || isOwnerOld(pass) || w.checker.BackOff || !is {
		return
	}
	if cached, shown := w.controller.View.OwnerWatch.Get(rs.Namespace, rs.Name); shown && cached.ResourceVersion != rs.ResourceVersion {
		// The pass went on with the owner from the server, and passes with the cached one came between.
		return
	}
	if live, err := w.checker.cluster.GetOwner(context.Background(), rs.Namespace, rs.Name); err != nil || live.UID != rs.UID || live.Generation != pass.Generation {
		// The pass may be held back because the controller knows that the owner has changed.
		return
	}
	switch {
	case last.uid != rs.UID:
		w.fail(HeldOn, "%s is held back for the reason of another owner with the same name", rs.Name)
	case last.generation != pass.Generation:
		w.fail(HeldOn, "%s is held back for the reason of an earlier generation", rs.Name)
	}
	// The children are in several namespaces, each with a quota of its own.
	if rs.Namespace == "" {
		return
	}
	byQuota := slices.ContainsFunc(pass.Gates, func(g controller.Gate) bool { return g.Reason == controller.QuotaFull && g.Earlier })
	if full, is := w.full[rs.UID]; is && byQuota && len(pass.Active) < int(pass.Desired) && !w.strange[rs.UID] && counted(pass) < full {
		// A quota that was full at so many pods has room when there are fewer.
		w.fail(HeldOn, "%s is held back by a quota that was full at %d pods, but now has only %d pods", rs.Name, full, counted(pass))
	}
}

// counted returns the number of the owner's pods that use the quota after a pass.
func counted(pass podPass) int {
	return len(pass.Active) + len(pass.Terminating) + len(pass.Created)
}

// judgeStale checks that a pass waits for its own write only while the cache lacks it, and not for ever.
func (w *watcher) judgeStale(pass podPass) {
	now, rs := w.checker.cluster.Clock.Now(), pass.Owner
	if gatesOf(pass, controller.OwnWriteNotSeen) == 0 {
		delete(w.stale, pass.Name)
		return
	}
	w.waited[pass.Name] = now
	since, is := w.stale[pass.Name]
	if !is {
		since = now
		w.stale[pass.Name] = now
	}
	live, err := w.checker.cluster.GetOwner(context.Background(), rs.Namespace, rs.Name)
	switch {
	case now.Sub(since) > longestUnseen && !w.checker.Skewed:
		// now - since <= longestUnseen: what the pass waits for has expired by then.
		w.fail(Waits, "%s has been waiting for %v, because its cache is stale", pass.Name.Name, now.Sub(since))
	case err == nil && live.UID == rs.UID && live.ResourceVersion == rs.ResourceVersion && w.checker.truth.epoch == 0:
		// The cache has the newest owner, so no write of it can be missing. After a restore, versions prove nothing.
		w.fail(Waits, "%s waits for its own write, although its cache has version %s, the newest", pass.Name.Name, rs.ResourceVersion)
	}
}

// gatesOf returns the number of gates of a pass with one reason.
func gatesOf(pass podPass, reason controller.GateReason) (n int) {
	for _, g := range pass.Gates {
		if g.Reason == reason {
			n++
		}
	}
	return n
}

// isOwnerOld reports whether a pass ended early because calls had shown that the cached owner is old or gone.
func isOwnerOld(pass podPass) bool {
	return gatesOf(pass, controller.OwnerStale)+gatesOf(pass, controller.OwnerGone) > 0
}

// judgeUnshown checks that passes do not wait for ever for a newer owner in the cache. After a while, they must use the
// server's.
func (w *watcher) judgeUnshown(pass podPass) {
	now, rs := w.checker.cluster.Clock.Now(), pass.Owner
	live, err := w.checker.cluster.GetOwner(context.Background(), rs.Namespace, rs.Name)
	if !isOwnerOld(pass) || pass.Observed || pass.Err != nil || err != nil || live.UID != rs.UID || w.checker.Skewed {
		delete(w.unshown, pass.Name)
		return
	}
	since, is := w.unshown[pass.Name]
	if !is {
		since = now
		w.unshown[pass.Name] = now
	}
	if now.Sub(since) > longestUnseen {
		w.fail(Waits, "%s has been waiting for %v until its cache shows a newer version of the owner", pass.Name.Name, now.Sub(since))
	}
}

// judgeReleases checks that a pass has released each cached pod that no longer matches, unless something stopped it.
func (w *watcher) judgeReleases(pass podPass) {
	if !pass.Observed || pass.Err != nil || pass.Waiting() || pass.Generation != pass.Owner.Generation || pass.Owner.DeletionTimestamp != nil {
		return
	}
	if inside.Of[inside.Stream](w.controller.View.ChildWatch).Hung() && w.listed[pass.Owner.UID].pass != w.pass {
		// An earlier live list may have shown that a pod in the cache is gone.
		return
	}
	for _, p := range w.controller.View.ChildWatch.In(pass.Owner.Namespace) {
		is, there := w.checker.truth.pods[p.UID]
		isNewest := there && versionOf(p) >= w.checker.truth.since[p.UID].version
		if isNewest && !w.fresh[p.UID] && !w.cameBack(p.UID) && isLeft(pass.Owner, p) && isLeft(pass.Owner, is) && !slices.ContainsFunc(pass.Released, func(r *corev1.Pod) bool { return r.UID == p.UID }) && !notReleased(pass).Has(p.Name) {
			w.fail(Undone, "%s has not released %s", pass.Name.Name, p.Name)
		}
	}
}

// notReleased returns the names of the pods whose release has failed in this pass or a recent one.
func notReleased(pass podPass) sets.Set[string] {
	names := sets.New[string]()
	for _, g := range pass.Gates {
		if g.Reason == controller.ReleaseFailed {
			names.Insert(g.Object)
		}
	}
	return names
}

// isLeft reports whether an active pod is the owner's but does not match its selector.
func isLeft(rs *appsv1.ReplicaSet, p *corev1.Pod) bool {
	sel, err := selector.ForReplicaSet(rs)
	return err == nil && isActive(p) && controllerOf(p) == rs.UID && !sel.Matches(labels.Set(p.Labels))
}

// releases checks that a pass does not release a pod that matched in its own live list.
func (w *watcher) releases(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	listed := w.listed[rs.UID]
	// The pass may use a spec from a live read of the owner.
	leaves := func(rs *appsv1.ReplicaSet) bool { return isLeft(rs, p) }
	if isLeft(rs, p) || w.checker.truth.any(rs, w.read[rs.UID], leaves) || !isActive(p) || listed.pass != w.pass || listed.selector != selects(rs) || w.checker.truth.was.at > listed.at {
		return
	}
	w.fail(Anothers, "%s releases %s, which matched in the live list of the same pass", rs.Name, p.Name)
}

// ends is called when an owner has left the cache, and checks that the controller has forgotten it.
func (w *watcher) ends(old, obj any) {
	if t, ok := old.(replicastest.Tombstone); ok {
		old = t.Obj
	}
	was, ok := old.(*appsv1.ReplicaSet)
	if !ok || was.UID == uidOf(obj) || w.inside.Passing != nil {
		return
	}
	if w.ledgers().Ledgers()[expectations.KeyOf(was)] != nil {
		w.fail(Leak, "%s (%s) is gone, but the controller still remembers it", was.Name, was.UID)
	}
}

// A sight is a live call's look at a pod.
type sight struct {
	owner types.UID
	at    time.Time
	ready bool // the pod was ready at that time
}

// sees records that a live call has shown a pod.
func (w *watcher) sees(rs *appsv1.ReplicaSet, uid types.UID) {
	w.told[uid] = inside.Of[inside.Cluster](w.checker.cluster).Version()
	w.sights[uid] = sight{rs.UID, w.checker.cluster.Clock.Now(), isReady(w.checker.truth.pods[uid])}
}

// lists records a live list of an owner's pods, which takes the place of earlier sights.
func (w *watcher) lists(rs *appsv1.ReplicaSet) {
	w.listedAt[rs.UID] = w.checker.cluster.Clock.Now()
	for uid, s := range w.sights {
		if s.owner == rs.UID {
			delete(w.sights, uid)
		}
	}
}

// blind checks an owner while the watch of pods hangs and the controller knows that its cache lacks a pod.
func (w *watcher) blind(rs *appsv1.ReplicaSet) {
	view, now := w.controller.View, w.checker.cluster.Clock.Now()
	key := types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}
	since := w.lacks(rs)
	if since.IsZero() || w.checker.Skewed || w.listed[rs.UID].selector != selects(rs) || rs.DeletionTimestamp != nil || w.last[key].failed {
		return
	}
	if _, stale := w.stale[key]; stale || inside.Of[inside.Stream](view.OwnerWatch).Hung() || inside.Of[inside.Stream](view.OwnerWatch).Broken() || inside.Of[inside.Stream](view.OwnerWatch).Pending() > 0 {
		return
	}
	due, queued := w.inside.Queued(key)
	if queued && !due.After(now) {
		return
	}
	// due - now <= longestUnseen: no event will come, so a pass must look again.
	if !queued || due.Sub(now) > longestUnseen {
		w.fail(Asleep, "%s relies on what its cache does not show, and does not look again", rs.Name)
	}
	sinceList, wanted := now.Sub(w.listedAt[rs.UID]), int(*rs.Spec.Replicas)
	isRight := func(pods []*corev1.Pod) bool { return len(replicasOf(rs, slices.Values(pods))) == wanted }
	// now - listed <= longestUnseen, while the number of pods is wrong on the server and in the cache.
	if now.Sub(since) > longestUnseen && sinceList > longestUnseen && !isRight(view.ChildWatch.In(rs.Namespace)) && !isRight(w.checker.cluster.Children(rs.Namespace)) {
		w.fail(Asleep, "%s has known for %v that its cache lacks a pod, but has not listed its pods for %v", rs.Name, now.Sub(since), sinceList)
	}
}

// chance checks an owner while the watch of pods hangs and the cache lacks a pod that the controller created.
func (w *watcher) chance(rs *appsv1.ReplicaSet) {
	view, now, listed := w.controller.View, w.checker.cluster.Clock.Now(), w.listedAt[rs.UID]
	key := types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}
	if _, stale := w.stale[key]; stale || w.checker.Skewed || w.checker.Vetoed(rs) || rs.DeletionTimestamp != nil || w.last[key].failed {
		return
	}
	if last := w.last[key]; last.uid != rs.UID || last.refused == rs.Generation || inside.Of[inside.Stream](view.OwnerWatch).Hung() || inside.Of[inside.Stream](view.OwnerWatch).Broken() || inside.Of[inside.Stream](view.OwnerWatch).Pending() > 0 {
		return
	}
	for uid, s := range w.born {
		since := s.at
		if waited := w.waited[key]; waited.After(since) {
			// Until then, the controller waited for the cache.
			since = waited
		}
		if s.owner != rs.UID || w.seen[uid] >= w.made[uid] || w.passedBy(uid) || now.Sub(since) <= longestUnseen || !s.at.After(listed) {
			continue
		}
		// now - since <= longestUnseen. The pod may be gone again, and only a live list would show this.
		if n := len(replicasOf(rs, slices.Values(w.checker.cluster.Children(rs.Namespace)))); n != int(*rs.Spec.Replicas) {
			w.fail(Asleep, "%s has been waiting for %v for a pod that it created, has %d pods, wants %d, and does not list its pods", rs.Name, now.Sub(s.at), n, *rs.Spec.Replicas)
		}
	}
}

// lacks returns when the controller first learned of a pod that its cache does not contain, or the zero time.
func (w *watcher) lacks(rs *appsv1.ReplicaSet) (since time.Time) {
	if len(w.sights) == 0 {
		return since
	}
	shown := map[types.UID]bool{}
	for _, p := range w.controller.View.ChildWatch.In(rs.Namespace) {
		shown[p.UID] = true
	}
	for uid, s := range w.sights {
		if _, absent := w.absent[uid]; absent && !w.cameBack(uid) {
			// A later call did not find the pod, so the controller knows that it is gone.
			continue
		}
		if s.owner == rs.UID && w.told[uid] > 0 && !w.deleted[uid] && !w.lost[uid] && !shown[uid] && !w.passedBy(uid) && (since.IsZero() || s.at.Before(since)) {
			since = s.at
		}
	}
	return since
}
