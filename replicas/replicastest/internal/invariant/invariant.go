// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariant checks rules about a simulated cluster and its controllers. Some rules must hold
// at every step. Others must hold after all faults have ended.
//
//	checker := invariant.New(cluster)
//	checker.Watch(controller) // before its first step
//	... step the world, asking checker.Err() and checker.Awake() ...
//	err := checker.Settled()
//
// The Checker observes the server and the watches, and ignores what a controller remembers. So the
// Checker knows which call changed which object, and which changes each watch has delivered. A rule
// has no time limit, so the rule must hold a minute after a fault and also a day after the fault.
//
// A pass is judged by what its owner wanted when the pass began. If a change came during the pass,
// or if the process could not see the change before, the pass is excused. Some excuses do not count,
// and each of these has its own Rule. KnownToFail lists the rules that the controller breaks today.
//
// Never more. Only creations and adoptions add replicas to an owner, so each creation is judged when
// it takes effect. The replicas that the controller must know of, including the new one, may not
// exceed what its pass was asked for. A controller must know of the replicas that its view shows
// correctly, and of those that it created or adopted itself. If a creation got no answer, the
// controller still knows the name of the pod. The controller cannot know of some replicas, and these
// are not counted. For example, another process created the replicas, the watches have not shown them
// yet, or they are created late, after their process has ended. So an owner never has more replicas
// than one of its current passes wanted, plus those that the controller cannot know of.
//
// Never fewer. Each deletion is judged when it takes effect. The remaining replicas must be at least
// as many as the pass was asked for. Replicas that ended without the controller's knowledge count as
// remaining. Replicas that the controller itself has deleted do not count, even if the deletion got
// no answer. A deletion that may take effect after its caller stopped waiting is judged when it is
// sent, and its pod no longer counts from then on.
//
// Never another's. The controller may delete the pods of its owner. The controller may also delete a
// pod that belonged to the owner in the controller's view, if that pod was not ready. A pod that was
// not ready is deleted by its UID alone, so the deletion succeeds even if the pod has just been
// released. The controller may also delete a pod that it created and that a webhook took from the
// owner. A status is written only to the owner that it describes, and never to a later owner with the
// same name.
//
// Never for an owner that is being deleted, and never without a lease. If a pass knows that its
// owner is being deleted, the pass creates, adopts and releases nothing, and deletes only pods that a
// webhook took from the owner. A controller without a lease makes no writes.
//
// Never asleep. If a controller sees the current state and waits for nothing, a pass is due for each
// owner that has work left. See Awake.
//
// Never for nothing. A controller may expect the effect of a call only if the call was sent. When a
// watch has delivered an object, the controller no longer expects that object. Otherwise the
// controller would wait until the expectation expires.
package invariant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

type podController = replicastest.Controller[*appsv1.ReplicaSet, *corev1.Pod]

type podPass = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]

// A Checker watches a cluster and its controllers. The Checker sets the hook Changed of the cluster
// and the hooks Scaling, Passed and Client.Done of each controller. Call Restored each time a backup
// is restored.
type Checker struct {
	// Delay is how long a pass may wait if it can change only a status.
	Delay time.Duration
	// Skewed is true if the clock of a controller was changed. A status may then count pods as
	// available that are not yet so by the cluster's clock.
	Skewed bool
	// BackOff is true if the controllers use Options.BackOffFailed.
	BackOff bool
	// Vetoed reports whether Prepare allows no creation, deletion or discard for an owner.
	Vetoed func(*appsv1.ReplicaSet) bool
	// Held returns how many pods fewer than wanted an owner may have.
	Held func(*appsv1.ReplicaSet) int
	// Leads reports whether a controller holds the lease that it needs for writes.
	Leads func(*podController) bool
	// BurstReplicas is Spec.BurstReplicas of every owner. 0 means the default.
	BurstReplicas int

	cluster  *replicastest.PodCluster
	truth    truth
	watchers []*watcher
	err      error
	known    map[Rule]int
	bills    map[bill]int
	most     map[string]int
	calls    map[string]int
	passes   int
	ruled    bool
	mustGo   func(*corev1.Pod) bool
	mustStay func(*corev1.Pod) bool
}

// New returns a Checker for a cluster.
func New(cluster *replicastest.PodCluster) *Checker {
	k := &Checker{cluster: cluster, truth: newTruth(), known: map[Rule]int{}, bills: map[bill]int{}, most: map[string]int{}, calls: map[string]int{}}
	k.mustGo, k.mustStay = never, never
	k.Vetoed, k.Held = func(*appsv1.ReplicaSet) bool { return false }, func(*appsv1.ReplicaSet) int { return 0 }
	k.Leads = func(*podController) bool { return true }
	cluster.Changed = k.changed
	return k
}

func never(*corev1.Pod) bool { return false }

// Rule sets which pods must go and which must stay. The controllers must use the same rules.
func (k *Checker) Rule(mustGo, mustStay func(*corev1.Pod) bool) {
	k.ruled, k.mustGo, k.mustStay = true, mustGo, mustStay
}

// Err returns the first violation of a rule that is not in KnownToFail.
func (k *Checker) Err() error { return k.err }

// Watch watches a controller. Call Watch before the controller's first step.
func (k *Checker) Watch(c *podController) {
	w := &watcher{checker: k, controller: c, record: newRecord(), last: map[types.NamespacedName]lastPass{}, waits: map[place]wait{}}
	w.full, w.strange, w.stale = map[types.UID]int{}, map[types.UID]bool{}, map[types.NamespacedName]time.Time{}
	w.unshown, w.waited = map[types.NamespacedName]time.Time{}, map[types.NamespacedName]time.Time{}
	w.versions, w.passing = map[types.NamespacedName]map[string]string{}, map[types.NamespacedName]time.Time{}
	w.chosen, w.victims = map[types.UID]bool{}, map[string]types.UID{}
	w.turned, w.missed = map[types.UID]*corev1.Pod{}, map[string]missing{}
	w.quotas, w.conflicts = map[types.UID]denial{}, map[string]conflict{}
	w.sights, w.born, w.listedAt = map[types.UID]sight{}, map[types.UID]sight{}, map[types.UID]time.Time{}
	w.inside, w.client = inside.Of[*inside.Controller[podPass, *corev1.Pod]](c), inside.Of[*inside.Client[replicastest.Call]](c.Client)
	w.began, w.led = k.truth.now, true
	k.watchers = append(k.watchers, w)
	sync := c.Worker.Sync
	c.Worker.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		k.passes++
		w.pass++
		w.passBegan, w.deed = k.truth.now, deed{}
		clear(w.chosen)
		clear(w.victims)
		return sync(ctx, key)
	}
	w.inside.Scaling = w.scaling
	c.Client.Done = w.done
	c.Passed = w.passed
	w.listen()
}

// Clone returns a Checker for a clone of the cluster and of its only controller. The new Checker
// continues from the present state of k.
func (k *Checker) Clone(cluster *replicastest.PodCluster, c *podController) *Checker {
	clone := New(cluster)
	clone.Watch(c)
	clone.err, clone.truth = k.err, k.truth.clone()
	clone.watchers[0].record = k.watchers[0].clone()
	return clone
}

// Describe reports the facts that affect the Checker's later judgments.
func (k *Checker) Describe(tell func(parts ...any)) {
	for _, w := range k.watchers {
		listed := instant(0)
		for _, l := range w.listed {
			listed = max(listed, l.at)
		}
		there := w.controller.View.ChildWatch.In("")
		for _, p := range slices.Concat(there, k.cluster.Children("")) {
			made, own := w.made[p.UID]
			since := k.truth.since[p.UID]
			gone, _ := k.truth.gone(p.UID)
			_, doubted := w.doubted[p.Name]
			tell("judged", own, doubted, own && made >= since.version, w.seen[p.UID] >= made, w.deleted[p.UID], w.landed[p.UID], w.lost[p.UID], w.named[p.Name] != "", w.unsure[p.Name],
				versionOf(p) >= since.version, w.told[p.UID] > 0, gone.at <= listed)
		}
		lost := 0
		for uid, version := range w.made {
			if _, is := k.truth.pods[uid]; !is && w.seen[uid] < version && !w.deleted[uid] {
				lost++
			}
		}
		tell("lost", lost)
		for _, rs := range k.cluster.Owners("") {
			k.truth.any(rs, w.read[rs.UID], func(rs *appsv1.ReplicaSet) bool {
				tell("may want", *rs.Spec.Replicas)
				return false
			})
		}
	}
}

// Drop stops watching a controller that has ended. Before that, Drop checks that no object in the
// controller's caches was changed.
func (k *Checker) Drop(c *podController) {
	k.watchers = slices.DeleteFunc(k.watchers, func(w *watcher) bool {
		if w.controller == c {
			w.intact()
		}
		return w.controller == c
	})
}

// intact checks that the objects in the caches are the same as when they arrived.
func (w *watcher) intact() {
	if err := w.controller.View.Intact(); err != nil {
		w.fail(Intact, "%v", err)
	}
}

// changed records a change of an object. If a controller's call makes the change, changed also
// judges the call.
func (k *Checker) changed(before, after metav1.Object) {
	wasOwner, _ := before.(*appsv1.ReplicaSet)
	isOwner, _ := after.(*appsv1.ReplicaSet)
	if wasOwner != nil || isOwner != nil {
		k.truth.owner(wasOwner, isOwner)
		k.wrote(isOwner)
		return
	}
	old, was := before.(*corev1.Pod)
	now, is := after.(*corev1.Pod)
	if !was && !is {
		return
	}
	k.truth.pod(old, now, inside.Of[inside.Cluster](k.cluster).Version())
	for _, w := range k.watchers {
		if is {
			delete(w.missed, now.Name)
			if isOthers(now, w.messes[now.UID]) {
				delete(w.messes, now.UID)
			}
		}
		if call, late, ok := w.client.Calling(); ok {
			w.did(call, late, old, now)
			if !late {
				w.permitted(call)
				w.judge(call, old, now)
			}
		}
	}
}

// wrote checks that a controller writes the status of its pass's owner, and not of another owner
// with the same name.
func (k *Checker) wrote(rs *appsv1.ReplicaSet) {
	if rs == nil {
		return
	}
	for _, w := range k.watchers {
		call, late, ok := w.client.Calling()
		if !ok || call.Verb != "status" || late {
			continue
		}
		w.permitted(call)
		w.wroteNow = true
		if passing := w.owner(); passing == nil || passing.UID != rs.UID {
			w.fail(Anothers, "the status of %s is written for another one of that name", rs.Name)
		} else {
			w.early(passing, rs)
			w.deed.says = rs.Status.ObservedGeneration
		}
	}
}

// isLive reports whether a pod exists and is not being deleted.
func (k *Checker) isLive(uid types.UID) bool {
	p, is := k.truth.pods[uid]
	return is && p.DeletionTimestamp == nil
}

// Restored must be called each time a backup is restored. The Checker then starts again from the
// current state of the server. Controllers are not blamed if pods that they deleted exist again.
func (k *Checker) Restored() {
	k.truth.restored(k.cluster.Owners(""), k.cluster.Children(""))
	for _, w := range k.watchers {
		for uid := range k.truth.pods {
			delete(w.deleted, uid)
			delete(w.lost, uid)
		}
		maps.DeleteFunc(w.sights, func(uid types.UID, _ sight) bool { return k.truth.pods[uid] == nil })
	}
}

// A watcher records what one controller does and what it is shown.
type watcher struct {
	checker    *Checker
	controller *podController
	inside     *inside.Controller[podPass, *corev1.Pod]
	client     *inside.Client[replicastest.Call]
	record
	looked      types.UID // the owner that the current pass has read live
	unread      bool      // the current pass could not read its owner
	passBegan   instant
	chosen      map[types.UID]bool   // pods that the current pass has already chosen to delete
	victims     map[string]types.UID // by name, the pods that the current pass plans to delete or discard
	wroteNow    bool                 // the current status write has changed something
	waits       map[place]wait
	last        map[types.NamespacedName]lastPass
	deed        deed
	turned      map[types.UID]*corev1.Pod                  // pods that events have changed in the current pass, as they were before
	missed      map[string]missing                         // by name, pods that a delete or a patch did not find
	listFailed  time.Time                                  // when the last list was answered
	listsFailed int                                        // how many lists in a row have failed
	quotas      map[types.UID]denial                       // by owner, its passes whose creations a full quota refused
	conflicts   map[string]conflict                        // by name, pods whose deletion met a Conflict
	full        map[types.UID]int                          // by owner, how many pods it had when the quota was full
	strange     map[types.UID]bool                         // owners for which a webhook has changed a created pod
	stale       map[types.NamespacedName]time.Time         // by owner, when its passes began to wait for the cache
	waited      map[types.NamespacedName]time.Time         // by owner, when its passes last waited for the cache
	unshown     map[types.NamespacedName]time.Time         // by owner, when its passes began to wait until the cache shows the latest owner
	versions    map[types.NamespacedName]map[string]string // by owner, the versions of the caches in its last pass that did not wait
	passing     map[types.NamespacedName]time.Time         // by owner, when the controller could first notice that a pod is gone
	sights      map[types.UID]sight                        // pods that a live list or another call has shown as replicas
	born        map[types.UID]sight                        // pods that the answer to a creation has shown
	listedAt    map[types.UID]time.Time                    // by owner, the time of its last live list
	led         bool                                       // whether the controller had its lease after its previous call or step
}

func (w *watcher) fail(r Rule, format string, args ...any) {
	w.checker.fail(r, "%s: %s", w.inside.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// owner returns the owner of the current pass, or nil if there is none.
func (w *watcher) owner() *appsv1.ReplicaSet {
	if pass := w.inside.Passing; pass != nil {
		return pass.Owner
	}
	return nil
}

func (w *watcher) judge(call replicastest.Call, old, now *corev1.Pod) {
	rs := w.owner()
	switch {
	case rs == nil:
		w.fail(Going, "%s %s outside of a pass", call.Verb, call.Name)
	case rs.DeletionTimestamp != nil && !w.isStray(rs, call, old):
		w.fail(Going, "%s %s for %s, which is being deleted", call.Verb, call.Name, rs.Name)
	case w.checker.Vetoed(rs) && call.Verb != "patch" && !w.isStray(rs, call, old):
		w.fail(Ruled, "%s %s for %s, for which nothing may be done", call.Verb, call.Name, rs.Name)
	case call.Verb == "create":
		w.creates(rs, now)
	case call.Verb == "delete":
		w.deletes(rs, old)
	case call.Verb == "patch" && controllerOf(old) == "":
		w.adopts(rs, now)
	case call.Verb == "patch" && controllerOf(old) == rs.UID && controllerOf(now) != rs.UID:
		w.releases(rs, old)
	}
}

// isStray reports whether a call deletes a pod that the controller made and that the owner no longer
// has, for example because a webhook changed its labels.
func (w *watcher) isStray(rs *appsv1.ReplicaSet, call replicastest.Call, p *corev1.Pod) bool {
	if call.Verb != "delete" {
		return false
	}
	_, made := w.made[p.UID]
	_, ours := replicasOf(rs, slices.Values([]*corev1.Pod{p}))[p.UID]
	return made && !ours
}

// permitted checks that a controller writes nothing after its lease has ended. A call that was in
// flight when the lease ended may still take effect.
func (w *watcher) permitted(call replicastest.Call) {
	if !w.led && !w.checker.Leads(w.controller) {
		w.fail(Leaseless, "%s %s without a lease", call.Verb, call.Name)
	}
}

// wasOurs reports whether the controller last saw a pod as the owner's and as not ready. The
// controller may have seen the pod in its view, or in a live read if no later event for the pod has
// arrived.
func (w *watcher) wasOurs(rs *appsv1.ReplicaSet, p *corev1.Pod) bool {
	if s := w.sights[p.UID]; w.told[p.UID] > 0 && s.owner == rs.UID && !s.ready {
		return true
	}
	shown, ok := w.controller.View.ChildWatch.Get(p.Namespace, p.Name)
	if was := w.turned[p.UID]; was != nil {
		shown, ok = was, true
	}
	return ok && shown.UID == p.UID && controllerOf(shown) == rs.UID && !isReady(shown)
}

// adopts checks that a controller adopts a pod only after it has read the owner live.
func (w *watcher) adopts(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	if controllerOf(p) != rs.UID {
		w.fail(Anothers, "pod %s is adopted for %q in a pass for %q", p.Name, controllerOf(p), rs.UID)
	}
	if w.looked != rs.UID {
		w.fail(Anothers, "pod %s is adopted without a live look at %s", p.Name, rs.Name)
	}
}

// passed judges a pass that has ended, and clears what the watcher keeps only during a pass.
func (w *watcher) passed(pass podPass) {
	w.judgePass(pass)
	w.note(pass)
	w.started(pass)
	w.looked, w.unread = "", false
	clear(w.fresh)
	clear(w.turned)
}
