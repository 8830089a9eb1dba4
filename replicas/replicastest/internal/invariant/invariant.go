// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariant checks what must be true of a simulated cluster and its controllers at every
// moment, and what must be true once all faults have ended.
//
//	checker := invariant.New(cluster)
//	checker.Watch(controller) // before its first step
//	... step the world, asking checker.Err() and checker.Awake() ...
//	err := checker.Settled()
//
// The Checker learns from the truth what the controllers did, instead of from their memory. It
// knows which call changed which object, and which changes their watches have shown. The rules have
// no time limit. A rule that holds a minute after a fault holds a day after it.
//
// A pass is judged by what the server wanted when the pass began. Changes during the pass are
// excused, and so are changes that its process could see only later. Each excuse that does not
// count has its own Rule. KnownToFail lists the rules that the controller breaks today.
//
// Never more. Only creations and adoptions add to an owner's replicas, so each creation is judged
// as it takes effect. The replicas that the controller must know of, including the new one, are at
// most as many as its pass was asked for. It must know of those that its view shows correctly, and
// of all that it created or adopted itself. A creation without an answer is known by its name.
// Replicas that the controller cannot know of come on top. These are replicas created by others or
// by another process, even a dead one, replicas that its watches have not shown, and those that
// land late after a process has ended. So at every instant there are at most as many replicas as
// one of the passes under way wanted, plus the unresolved ones of others.
//
// Never fewer. Each deletion is judged as it takes effect. The replicas that are left, and those
// that are gone without the controller's doing or knowledge, are at least as many as its pass was
// asked for. Its own deletions never count as there, answered or not. A deletion that may land
// after its caller stopped waiting is judged when it is sent, and counts from then on.
//
// Never another's. The controller may delete its owner's pods. It may delete a pod that is not
// ready if the pod was its owner's when the view was made. It may also delete a pod that it created
// and a webhook took away. A pod that was not ready is deleted by its UID alone, even if it was
// released at the same moment. A status is written to the owner that it is about, and not to a
// later one of its name.
//
// Never for an owner that is going, and never without a lease. If the pass knows of its owner's
// deletion, it creates, adopts, releases and deletes nothing, except pods that a webhook took away.
// A controller that may no longer write does not write.
//
// Never asleep. A controller that sees all that there is, and waits for nothing, has a pass due as
// long as work is left. See Awake.
//
// Never for nothing. Calls that a pass leaves as expected have begun. An object that the controller
// is shown is no longer expected, because otherwise the controller would wait until the expectation
// expires.
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

// A Checker watches a cluster and its controllers. It sets the hooks Changed of the cluster, and
// Scaling, Passed and Client.Done of each controller. Call Restored after each Restore.
type Checker struct {
	// Delay is how long passes that can change only a status may wait.
	Delay time.Duration
	// Skewed says that a controller's clock was moved, so that pods may be younger than
	// a status says.
	Skewed bool
	// BackOff says that controllers have the option BackOffFailed.
	BackOff bool
	// Vetoed reports for which owners Prepare lets nothing be done.
	Vetoed func(*appsv1.ReplicaSet) bool
	// Held returns how many places owners keep free.
	Held func(*appsv1.ReplicaSet) int
	// Leads reports whether a controller holds the lease that it needs to write.
	Leads func(*podController) bool
	// BurstReplicas is the value of every Spec; 0 is the default.
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

// New returns a Checker of a cluster.
func New(cluster *replicastest.PodCluster) *Checker {
	k := &Checker{cluster: cluster, truth: newTruth(), known: map[Rule]int{}, bills: map[bill]int{}, most: map[string]int{}, calls: map[string]int{}}
	k.mustGo, k.mustStay = never, never
	k.Vetoed, k.Held = func(*appsv1.ReplicaSet) bool { return false }, func(*appsv1.ReplicaSet) int { return 0 }
	k.Leads = func(*podController) bool { return true }
	cluster.Changed = k.changed
	return k
}

func never(*corev1.Pod) bool { return false }

// Rule sets which pods must go, and which must stay. The controllers know this too.
func (k *Checker) Rule(mustGo, mustStay func(*corev1.Pod) bool) {
	k.ruled, k.mustGo, k.mustStay = true, mustGo, mustStay
}

// Err returns the first violation of a rule that is not known to fail.
func (k *Checker) Err() error { return k.err }

// Watch watches a controller from its start on.
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

// Clone returns a Checker that goes on from here on a clone of the cluster and its one controller.
func (k *Checker) Clone(cluster *replicastest.PodCluster, c *podController) *Checker {
	clone := New(cluster)
	clone.Watch(c)
	clone.err, clone.truth = k.err, k.truth.clone()
	clone.watchers[0].record = k.watchers[0].clone()
	return clone
}

// Describe reports the facts that the Checker will judge by.
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

// Drop stops watching a controller that has ended. It checks that the controller has left its
// caches as they arrived.
func (k *Checker) Drop(c *podController) {
	k.watchers = slices.DeleteFunc(k.watchers, func(w *watcher) bool {
		if w.controller == c {
			w.intact()
		}
		return w.controller == c
	})
}

// intact compares the caches with what arrived.
func (w *watcher) intact() {
	if err := w.controller.View.Intact(); err != nil {
		w.fail(Intact, "%v", err)
	}
}

// changed judges a change by the call that makes it.
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

// wrote checks that a controller writes the status of the owner of its pass, and not of another one
// of the same name.
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

// Restored must be called after each Restore, because the state is then a new truth. No controller
// is to blame for deleted pods that are there again.
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

// A watcher keeps the truth about one controller.
type watcher struct {
	checker    *Checker
	controller *podController
	inside     *inside.Controller[podPass, *corev1.Pod]
	client     *inside.Client[replicastest.Call]
	record
	looked      types.UID // the owner that the pass under way has read live
	unread      bool      // the pass under way could not read its owner
	passBegan   instant
	chosen      map[types.UID]bool   // pods that the pass has chosen to delete
	victims     map[string]types.UID // by name, the pods that the pass is about to delete
	wroteNow    bool                 // the status write under way has changed something
	waits       map[place]wait
	last        map[types.NamespacedName]lastPass
	deed        deed
	turned      map[types.UID]*corev1.Pod // pods as the cache had them before events of the pass under way
	missed      map[string]missing        // by name, pods that a delete did not find
	listFailed  time.Time
	listsFailed int                                        // in a row
	quotas      map[types.UID]denial                       // by owner, how its quota refused creations
	conflicts   map[string]conflict                        // by the name of the pod
	full        map[types.UID]int                          // by owner, how many pods there were when the quota was full
	strange     map[types.UID]bool                         // owners for which a webhook changed a created pod
	stale       map[types.NamespacedName]time.Time         // since when an owner waits for its cache
	waited      map[types.NamespacedName]time.Time         // when an owner last waited for its cache
	unshown     map[types.NamespacedName]time.Time         // since when an owner waits for a newer version of itself
	versions    map[types.NamespacedName]map[string]string // by owner, of the caches in its last pass that did not wait
	passing     map[types.NamespacedName]time.Time         // since when an owner can find that its cache is past a pod
	sights      map[types.UID]sight                        // pods that a list, or a look, has shown
	born        map[types.UID]sight                        // pods that the answer to a creation has shown
	listedAt    map[types.UID]time.Time                    // by owner, its last live list
	led         bool                                       // the controller might write before the call under way
}

func (w *watcher) fail(r Rule, format string, args ...any) {
	w.checker.fail(r, "%s: %s", w.inside.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// owner returns the owner of the pass under way, nil if there is none.
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

// isStray reports whether a call deletes a pod that was created for an owner and that a webhook
// took away.
func (w *watcher) isStray(rs *appsv1.ReplicaSet, call replicastest.Call, p *corev1.Pod) bool {
	if call.Verb != "delete" {
		return false
	}
	_, made := w.made[p.UID]
	_, ours := replicasOf(rs, slices.Values([]*corev1.Pod{p}))[p.UID]
	return made && !ours
}

// permitted checks that a controller writes nothing after its lease has ended. A call that was
// under way when the lease ended may take effect.
func (w *watcher) permitted(call replicastest.Call) {
	if !w.led && !w.checker.Leads(w.controller) {
		w.fail(Leaseless, "%s %s without a lease", call.Verb, call.Name)
	}
}

// wasOurs reports whether the view shows a pod as the owner's and not ready, or a list or a look
// did so and the view has nothing newer.
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

// adopts checks that a controller adopts only after it has read whether the owner is still there.
func (w *watcher) adopts(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	if controllerOf(p) != rs.UID {
		w.fail(Anothers, "pod %s is adopted for %q in a pass for %q", p.Name, controllerOf(p), rs.UID)
	}
	if w.looked != rs.UID {
		w.fail(Anothers, "pod %s is adopted without a live look at %s", p.Name, rs.Name)
	}
}

// passed judges a pass that has ended, and forgets it.
func (w *watcher) passed(pass podPass) {
	w.judgePass(pass)
	w.note(pass)
	w.started(pass)
	w.looked, w.unread = "", false
	clear(w.fresh)
	clear(w.turned)
}
