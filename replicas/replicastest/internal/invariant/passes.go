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
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

// longestUnseen is how long controllers may wait for what their caches do not show. It is twice the
// time of an expectation, with some seconds to spare.
const longestUnseen = 11 * time.Minute

// A deed is what the pass under way has done so far.
type deed struct {
	mustGo          int       // children that had to go and were deleted
	refused, others int       // creations
	full            bool      // the last creation met a full quota
	last            time.Time // when the last creation or deletion was answered
	deletions       int
	conflicts       int   // of the deletions
	updates         int   // of the status
	says            int64 // the generation of the status, if one was written
	stuck           bool  // the first update met a Conflict, and the owner was not read since
}

// did notes a call of the pass under way.
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
		d.stuck = false
	case err == nil: // a look, which may have found the pods
		d.others, d.refused, d.full = d.others+d.refused, 0, false
	}
}

// isQuota reports whether a quota refused a creation.
func isQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// judgePass judges a pass by its calls and its result.
func (w *watcher) judgePass(pass podPass) {
	rs, d := pass.Owner, w.deed
	told, waits := w.waits[place{rs.UID, rs.Namespace}]
	_, queued := w.inside.Queued(pass.Name)
	switch {
	case errors.Is(pass.Err, controller.ErrNoRoom):
		w.fail(Room, "%s: %v", rs.Name, pass.Err)
	case d.says != 0 && d.says != pass.Generation:
		w.fail(Status, "the status of %s is that of generation %d, and says %d", rs.Name, pass.Generation, d.says)
	case d.stuck:
		w.fail(Status, "the status of %s met a Conflict, and is not tried on the owner as it is", rs.Name)
	case waits && told.pass == w.passBegan && pass.Err != nil && pass.RequeueAfter <= 0:
		w.fail(Hasty, "%s is told to wait until %v, and comes back when it likes", rs.Name, told.until.Format(time.TimeOnly))
	case len(pass.Created) > 0 && len(pass.Active)+len(pass.Created)+len(pass.AdoptionPending)+w.checker.Held(rs) > int(pass.Desired):
		w.fail(MoreUndecided, "%s creates %d: it has %d, may have %d orphans, and wants %d", rs.Name, len(pass.Created), len(pass.Active), len(pass.AdoptionPending), pass.Desired)
	case pass.Err == nil && pass.Observed && pass.RequeueAfter <= 0 && !queued && rs.DeletionTimestamp == nil && !w.checker.Vetoed(rs) && w.opens(rs) != "":
		w.fail(Asleep, "%s has no answer about %s, and does not look for it", rs.Name, w.opens(rs))
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
	if d.deletions == 0 && missing >= 0 { // nothing is left to delete
		maps.DeleteFunc(w.conflicts, func(_ string, c conflict) bool { return c.owner == rs.UID })
	}
	if d.full {
		w.full[rs.UID] = counted(pass)
	}
	w.judgeStale(pass)
	w.judgeUnshown(pass)
	w.judgeReleases(pass)
}

// mayLand is how long a creation may take to land after it was sent.
const mayLand = 5 * time.Minute

// opens returns the name of a pod that an owner has asked for, if it is unknown whether the pod was
// created.
func (w *watcher) opens(rs *appsv1.ReplicaSet) string {
	if w.checker.Skewed { // the controller may believe that the time is over
		return ""
	}
	for name, sent := range w.open {
		if sent.owner == rs.UID && w.checker.cluster.Clock.Now().Sub(sent.at) < mayLand {
			return name
		}
	}
	return ""
}

// A denial counts passes in a row of an owner that were refused something.
type denial struct {
	passes     int
	last       time.Time
	generation int64
}

// wait returns how long an owner waits at least after so many refused passes. It is half of the
// nominal time, because the wait may have begun earlier.
func (d denial) wait(first, last time.Duration) time.Duration {
	wait := first
	for range d.passes - 1 {
		wait = min(2*wait, last)
	}
	return wait / 2
}

// A conflict counts passes in a row in which the deletion of a pod met a Conflict.
type conflict struct {
	denial

	owner types.UID
	pass  int // the last of these passes
}

// conflicted notes how a deletion ended, and reports whether it came too soon.
func (w *watcher) conflicted(rs *appsv1.ReplicaSet, call replicastest.Call, err error) (isHasty bool) {
	now, c := w.checker.cluster.Clock.Now(), w.conflicts[call.Name]
	if c.owner != rs.UID || c.generation != rs.Generation {
		c = conflict{owner: rs.UID, denial: denial{generation: rs.Generation}}
	}
	isHasty = c.passes > 0 && c.pass != w.pass && now.Sub(c.last) < c.wait(deniedFirst, deniedLast)
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

// denied notes whether what a pass tried was refused. The count starts again if it was not, if
// nothing is left to try, and with a new generation.
func (w *watcher) denied(all map[types.UID]denial, pass podPass, tried, refused, isLeft bool) {
	d := all[pass.Owner.UID]
	if d.generation != pass.Generation || tried && !refused || !tried && !isLeft {
		d = denial{generation: pass.Generation}
	}
	if tried && refused {
		d.passes, d.last = d.passes+1, w.deed.last
	}
	all[pass.Owner.UID] = d
}

// A missing pod was not found by a delete. After some minutes the cache counts again.
type missing struct {
	uid        types.UID // "" if it is not known
	at         time.Time
	generation int64
	epoch      instant
}

const (
	missingKept             = 4 * time.Minute
	quotaFirst, quotaLast   = time.Second, time.Minute
	deniedFirst, deniedLast = 50 * time.Millisecond, time.Minute
	listsApart              = time.Second
)

// hurries checks that calls are not tried again at once after a full quota, Conflicts or failed
// lists, even if other things happen. A pod that a delete did not find is not deleted again.
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
	case call.Verb == "create" && rs.Namespace == "": // each namespace has its own slow start, and its own quota
	case call.Verb == "create":
		if d := w.deed; d.refused > d.others+1 {
			w.fail(SlowStart, "%s: %d creations are refused in one pass, and %d are not", rs.Name, d.refused, d.others)
		}
		is = quota.passes > 0 && quota.generation == rs.Generation && since(quota) < quota.wait(quotaFirst, quotaLast) && w.room(rs) <= 0
	case call.Verb == "delete" && !w.strange[rs.UID]:
		is = w.conflicted(rs, call, err)
		w.misses(rs, call, err)
	case call.Verb == "patch":
		if _, shown := w.controller.View.ChildWatch.Get(call.Namespace, call.Name); !shown {
			w.misses(rs, call, err)
		}
	case call.Verb == "list":
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
		w.fail(rule, "%s of %s for %s, and the last ones were refused just now", call.Verb, call.Name, rs.Name)
	}
}

// room returns how many fewer pods an owner has than when the quota was full.
func (w *watcher) room(rs *appsv1.ReplicaSet) (n int) {
	sel, err := selector.ForReplicaSet(rs)
	if err != nil || len(w.fresh) > 0 {
		return 1 // the room is not known
	}
	for _, p := range w.controller.View.ChildWatch.In(rs.Namespace) {
		finished := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if controllerOf(p) == rs.UID && sel.Matches(labels.Set(p.Labels)) && !finished {
			n++
		}
	}
	return w.full[rs.UID] - n
}

// misses checks that a pod that was not found is not deleted or patched again. A NotFound has no
// version, so it says nothing about another pod of that name that the cache shows later.
func (w *watcher) misses(rs *appsv1.ReplicaSet, call replicastest.Call, err error) {
	k := w.checker
	for _, p := range k.truth.pods {
		if p.Name == call.Name {
			delete(w.missed, call.Name)
			return
		}
	}
	if !apierrors.IsNotFound(err) {
		return
	}
	if p, shown := w.controller.View.ChildWatch.Get(call.Namespace, call.Name); shown && !w.fresh[p.UID] {
		gone, known := k.truth.gone(p.UID)
		if listed := w.listed[rs.UID]; known && gone.at > k.truth.epoch && gone.at <= listed.at && listed.selector == selects(rs) {
			w.fail(Futile, "%s: %s of %s, which its last live list did not show", rs.Name, call.Verb, call.Name)
		}
	}
	now := k.cluster.Clock.Now()
	uid := w.victims[call.Name]
	was, is := w.missed[call.Name]
	if is && was.uid == uid && now.Sub(was.at) < missingKept && was.generation == rs.Generation && was.epoch == k.truth.epoch {
		w.fail(Futile, "%s: %s of %s, which was not there %v ago", rs.Name, call.Verb, call.Name, now.Sub(was.at))
		return
	}
	w.missed[call.Name] = missing{uid, now, rs.Generation, k.truth.epoch}
}

// judgeHold checks that a change of the owner ends a hold, and that room ends the hold of a full
// quota. A hold that waits for pods that end as soon as they are created goes on.
func (w *watcher) judgeHold(pass podPass) {
	rs := pass.Owner
	last, is := w.last[pass.Name]
	if !pass.HeldBack() || pass.OwnerWasStale || w.checker.BackOff || !is {
		return
	}
	if live, err := w.checker.cluster.GetOwner(context.Background(), rs.Namespace, rs.Name); err != nil || live.UID != rs.UID || live.Generation != pass.Generation {
		return // the pass may be held because its owner is known to have changed
	}
	switch {
	case last.uid != rs.UID:
		w.fail(HeldOn, "%s is held by what held another one of that name", rs.Name)
	case last.generation != pass.Generation:
		w.fail(HeldOn, "%s is held by what held an earlier generation", rs.Name)
	}
	if rs.Namespace == "" { // each namespace of its children has its own quota
		return
	}
	if full, is := w.full[rs.UID]; is && len(pass.Active) < int(pass.Desired) && !w.strange[rs.UID] && counted(pass) < full {
		w.fail(HeldOn, "%s is held by a quota that was full at %d, and has %d", rs.Name, full, counted(pass))
	}
}

// counted returns how many pods of a pass a quota counts.
func counted(pass podPass) int {
	return len(pass.Active) + len(pass.Terminating) + len(pass.Created)
}

// judgeStale checks that a pass waits for the cache only if the cache lacks something, and not
// forever.
func (w *watcher) judgeStale(pass podPass) {
	now, view := w.checker.cluster.Clock.Now(), w.controller.View
	if pass.Stale == (expectations.Stale{}) {
		delete(w.stale, pass.Name)
		w.versions[pass.Name] = map[string]string{"pods": view.ChildrenVersion(), "replicasets": view.OwnersVersion()}
		return
	}
	w.waited[pass.Name] = now
	since, is := w.stale[pass.Name]
	if !is {
		since = now
		w.stale[pass.Name] = now
	}
	switch {
	case now.Sub(since) > longestUnseen && !w.checker.Skewed:
		w.fail(Waits, "%s waits since %v for %v", pass.Name.Name, now.Sub(since), pass.Stale)
	case resourceversion.Older(pass.Stale.Read, w.versions[pass.Name][pass.Stale.Resource.Resource]):
		w.fail(Waits, "%s waits for %v, and its cache has gone back", pass.Name.Name, pass.Stale)
	}
}

// judgeUnshown checks that a pass does not wait forever for the cache to show a newer owner,
// because a read shows it too.
func (w *watcher) judgeUnshown(pass podPass) {
	now, rs := w.checker.cluster.Clock.Now(), pass.Owner
	live, err := w.checker.cluster.GetOwner(context.Background(), rs.Namespace, rs.Name)
	if !pass.OwnerWasStale || pass.Observed || pass.Err != nil || err != nil || live.UID != rs.UID || w.checker.Skewed {
		delete(w.unshown, pass.Name)
		return
	}
	since, is := w.unshown[pass.Name]
	if !is {
		since = now
		w.unshown[pass.Name] = now
	}
	if now.Sub(since) > longestUnseen {
		w.fail(Waits, "%s waits since %v for its cache to show a newer owner", pass.Name.Name, now.Sub(since))
	}
}

// judgeReleases checks that an undisturbed pass has released what no longer matches in its cache.
func (w *watcher) judgeReleases(pass podPass) {
	if !pass.Observed || pass.Err != nil || pass.Waiting() || pass.Generation != pass.Owner.Generation || pass.Owner.DeletionTimestamp != nil {
		return
	}
	if inside.Of[inside.Stream](w.controller.View.ChildWatch).Hung() && w.listed[pass.Owner.UID].pass != w.pass {
		return // an earlier list may have shown that a pod is gone
	}
	for _, p := range w.controller.View.ChildWatch.In(pass.Owner.Namespace) {
		is, there := w.checker.truth.pods[p.UID]
		isNewest := there && versionOf(p) >= w.checker.truth.since[p.UID].version
		if isNewest && !w.fresh[p.UID] && !w.cameBack(p.UID) && isLeft(pass.Owner, p) && isLeft(pass.Owner, is) && !slices.ContainsFunc(pass.Released, func(r *corev1.Pod) bool { return r.UID == p.UID }) && !notReleased(pass).Has(p.Name) {
			w.fail(Undone, "%s has not released %s", pass.Name.Name, p.Name)
		}
	}
}

// notReleased returns the names of the pods whose release failed, now or a moment ago.
func notReleased(pass podPass) sets.Set[string] {
	names := sets.New[string]()
	for _, g := range pass.Gates {
		if g.Reason == controller.ReleaseFailed {
			names.Insert(g.Object)
		}
	}
	return names
}

// isLeft reports whether a pod is an owner's and does not match its selector.
func isLeft(rs *appsv1.ReplicaSet, p *corev1.Pod) bool {
	sel, err := selector.ForReplicaSet(rs)
	return err == nil && isActive(p) && controllerOf(p) == rs.UID && !sel.Matches(labels.Set(p.Labels))
}

// releases checks that no pod is released that a live list of the same pass has shown to match.
func (w *watcher) releases(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	listed := w.listed[rs.UID]
	leaves := func(rs *appsv1.ReplicaSet) bool { return isLeft(rs, p) } // the pass may use an owner that it has read
	if isLeft(rs, p) || w.checker.truth.any(rs, w.read[rs.UID], leaves) || !isActive(p) || listed.pass != w.pass || listed.selector != selects(rs) || w.checker.truth.was.at > listed.at {
		return
	}
	w.fail(Anothers, "%s releases %s, which matches, as its live list showed", rs.Name, p.Name)
}

// ends checks that nothing is expected of an owner once it has left the cache.
func (w *watcher) ends(old, obj any) {
	if t, ok := old.(replicastest.Tombstone); ok {
		old = t.Obj
	}
	was, ok := old.(*appsv1.ReplicaSet)
	if !ok || was.UID == uidOf(obj) || w.inside.Passing != nil {
		return
	}
	if w.ledgers().Ledgers()[expectations.KeyOf(was)] != nil {
		w.fail(Leak, "%s (%s) is remembered, and is gone", was.Name, was.UID)
	}
}

// A sight is when, and for which owner, a list or a look showed a pod to a controller.
type sight struct {
	owner types.UID
	at    time.Time
	ready bool // the pod was ready then
}

// sees notes a pod that a list or a look shows.
func (w *watcher) sees(rs *appsv1.ReplicaSet, uid types.UID) {
	w.told[uid] = inside.Of[inside.Cluster](w.checker.cluster).Version()
	w.sights[uid] = sight{rs.UID, w.checker.cluster.Clock.Now(), isReady(w.checker.truth.pods[uid])}
}

// lists begins a list, which replaces what was known before.
func (w *watcher) lists(rs *appsv1.ReplicaSet) {
	w.listedAt[rs.UID] = w.checker.cluster.Clock.Now()
	for uid, s := range w.sights {
		if s.owner == rs.UID {
			delete(w.sights, uid)
		}
	}
}

// blind judges an owner whose watch of pods hangs. If the controller knows that the cache lacks a
// pod, it must look again. It must list live if the number of pods in the cache is wrong.
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
	if !queued || due.Sub(now) > longestUnseen {
		w.fail(Asleep, "%s goes by what its cache does not show, and does not look again", rs.Name)
	}
	sinceList, wanted := now.Sub(w.listedAt[rs.UID]), int(*rs.Spec.Replicas)
	isRight := func(pods []*corev1.Pod) bool { return len(replicasOf(rs, slices.Values(pods))) == wanted }
	if now.Sub(since) > longestUnseen && sinceList > longestUnseen && !isRight(view.ChildWatch.In(rs.Namespace)) && !isRight(w.checker.cluster.Children(rs.Namespace)) {
		w.fail(Asleep, "%s knows since %v that its cache lacks a pod, and has not listed for %v", rs.Name, now.Sub(since), sinceList)
	}
}

// chance checks a number of pods that is right although the cache lacks a pod that the owner
// created. The controller may trust the number only as long as it waits for the pod.
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
			since = waited // until then it did not use the number
		}
		if s.owner != rs.UID || w.seen[uid] >= w.made[uid] || w.passedBy(uid) || now.Sub(since) <= longestUnseen || !s.at.After(listed) {
			continue
		}
		if n := len(replicasOf(rs, slices.Values(w.checker.cluster.Children(rs.Namespace)))); n != int(*rs.Spec.Replicas) {
			w.fail(Asleep, "%s waits since %v for a pod that it created, has %d by now, wants %d, and does not look", rs.Name, now.Sub(s.at), n, *rs.Spec.Replicas)
		}
	}
}

// lacks returns since when the controller knows of a pod that its cache lacks, zero if there is
// none. A pod that a call did not find counts as gone.
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
			continue
		}
		if s.owner == rs.UID && w.told[uid] > 0 && !w.deleted[uid] && !w.lost[uid] && !shown[uid] && !w.passedBy(uid) && (since.IsZero() || s.at.Before(since)) {
			since = s.at
		}
	}
	return since
}
