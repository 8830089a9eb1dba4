// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariant checks rules about a simulated cluster and its controllers. Some rules must hold at every step, and
// the others after all faults have ended.
//
//	checker := invariant.New(cluster)
//	checker.Watch(controller) // before its first step
//	... step the world, and check checker.Err() and checker.Awake(namespace) ...
//	err := checker.Settled(namespace)
//
// The Checker observes the server and the watches, and does not rely on what a controller remembers. So it knows which
// call changed which object, and which changes each watch has delivered. The rules hold a minute after a fault, and a
// day after it.
//
// A pass is judged by the spec that its owner had when the pass began. It is excused if the spec changed during the
// pass, or if the process could not see an earlier change. Where the Checker does not accept an excuse, the
// violation has a Rule of its own. KnownToFail lists the rules that the controller breaks today.
//
// # Never more
//
// After each creation: known <= wanted. Replicas are added only by creations and adoptions, and each creation is
// judged when it takes effect. Known are the replicas, the new one included, of which the controller must know:
// those whose current state is in its view, and those that it created or adopted itself, also if the creation had no
// answer, because it knows the name of the pod. It cannot know of a replica that another process has created and
// that its watches have not shown yet, nor of one whose creation took effect after the process that sent it had
// ended. If several controllers run passes for the owner at the same time, the pass that wants the most counts.
//
// # Never fewer
//
// After each deletion: left >= wanted. Replicas that ended without the controller's knowledge count as left, but
// those that it has deleted itself do not, even if the deletion had no answer. A deletion that may take effect after
// its caller has stopped waiting is judged when the call fails, and from then on the pod is no longer left.
//
// # Never another's
//
// A controller may delete the pods of its owner, a pod that it created or adopted and that left the owner without
// its knowledge, and a stray. A stray is a pod that it created for an owner and that is not the owner's, because a
// webhook changed the pod. A status is written only to the owner that it describes, and never to a later owner of
// the same name.
//
// A pass that knows that its owner is being deleted creates, adopts and releases nothing, and deletes only strays. A
// controller without a lease writes nothing.
//
// # Never asleep
//
// If a controller sees the current state and does not have to wait, a pass is due for each owner that has unfinished
// work. See Awake.
//
// # Never waiting in vain
//
// A controller may expect the effect of a call only if it has sent the call, and only until a watch has delivered
// the object. Otherwise it waits in vain until the expectation expires.
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

// A Checker watches a cluster and its controllers. It sets the hook Changed of the cluster and the hooks Scaling,
// Passed and Client.Done of each controller. Call Restored each time a backup is restored.
type Checker struct {
	// Delay is the maximum delay of a pass that has only a status to write.
	Delay time.Duration
	// Skewed is true if the clock of a controller was changed. A status may then count a pod as available before it is,
	// by the cluster's clock.
	Skewed bool
	// BackOff is true if the controllers use Options.BackOffFailed.
	BackOff bool
	// Vetoed reports whether Prepare forbids every creation, deletion and discard for an owner.
	Vetoed func(*appsv1.ReplicaSet) bool
	// Leads reports whether a controller holds the lease that it needs for writes.
	Leads func(*podController) bool
	// BurstReplicas is the value of Spec.BurstReplicas for every owner. 0 means the default.
	BurstReplicas int
	// ReadyWithin is the value of Rules.ReadyWithin for every owner.
	ReadyWithin time.Duration

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
	ready    map[types.UID]time.Time // when each pod was last ready or created, if ReadyWithin is set
}

// New returns a Checker for a cluster.
func New(cluster *replicastest.PodCluster) *Checker {
	k := &Checker{cluster: cluster, truth: newTruth(), known: map[Rule]int{}, bills: map[bill]int{}, most: map[string]int{}, calls: map[string]int{}}
	k.mustGo, k.mustStay = never, never
	k.Vetoed = func(*appsv1.ReplicaSet) bool { return false }
	k.Leads = func(*podController) bool { return true }
	cluster.Changed = k.changed
	return k
}

func never(*corev1.Pod) bool { return false }

// Rule sets the functions that decide which pods must be deleted and which must stay, as for the controllers.
func (k *Checker) Rule(mustGo, mustStay func(*corev1.Pod) bool) {
	k.ruled, k.mustGo, k.mustStay = true, mustGo, mustStay
}

// noteReady records when a pod was last ready.
func (k *Checker) noteReady(before, after *corev1.Pod) {
	if k.ReadyWithin == 0 || after == nil || before != nil && !isReady(before) && !isReady(after) {
		return
	}
	if k.ready == nil {
		k.ready = map[types.UID]time.Time{}
	}
	k.ready[after.UID] = k.cluster.Clock.Now()
}

// isLate reports whether a pod has been unready for ReadyWithin, so that a controller may delete it.
func (k *Checker) isLate(p *corev1.Pod) bool {
	// By a clock that was changed, any time may be long enough.
	return k.ReadyWithin > 0 && !isReady(p) && (k.Skewed || k.cluster.Clock.Now().Sub(k.ready[p.UID]) >= k.ReadyWithin)
}

// Err returns the first violation of a rule that is not in KnownToFail.
func (k *Checker) Err() error { return k.err }

// Watch starts to check a controller. Call Watch before the controller's first step.
func (k *Checker) Watch(c *podController) {
	w := &watcher{checker: k, controller: c, record: newRecord(), last: map[types.NamespacedName]lastPass{}, waits: map[place]wait{}}
	w.full, w.strange, w.stale = map[types.UID]int{}, map[types.UID]bool{}, map[types.NamespacedName]time.Time{}
	w.unshown, w.waited = map[types.NamespacedName]time.Time{}, map[types.NamespacedName]time.Time{}
	w.passing = map[types.NamespacedName]time.Time{}
	w.chosen, w.victims = map[types.UID]bool{}, map[string]types.UID{}
	w.turned, w.missed = map[types.UID]*corev1.Pod{}, map[string]notFoundCall{}
	w.quotas, w.conflicts = map[types.UID]denial{}, map[string]conflict{}
	w.sights, w.born, w.listedAt = map[types.UID]sight{}, map[types.UID]sight{}, map[types.UID]time.Time{}
	w.missing, w.failedAt = map[types.NamespacedName]time.Time{}, map[types.UID]time.Time{}
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

// Clone returns a Checker for a clone of the cluster and of its only controller, with the current state of k.
func (k *Checker) Clone(cluster *replicastest.PodCluster, c *podController) *Checker {
	clone := New(cluster)
	clone.Watch(c)
	clone.err, clone.truth = k.err, k.truth.clone()
	clone.watchers[0].record = k.watchers[0].clone()
	return clone
}

// Describe calls the function tell for each fact that affects later judgments of the Checker.
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

// Drop stops watching a controller that has ended, after a last look at the objects in its caches.
func (k *Checker) Drop(c *podController) {
	k.watchers = slices.DeleteFunc(k.watchers, func(w *watcher) bool {
		if w.controller == c {
			w.intact()
		}
		return w.controller == c
	})
}

// intact checks that the objects in the caches are as they arrived.
func (w *watcher) intact() {
	if err := w.controller.View.Intact(); err != nil {
		w.fail(Intact, "%v", err)
	}
}

// changed is called after each change of an object. It records the change, and judges the call that made it.
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
	k.noteReady(old, now)
	k.truth.pod(old, now, inside.Of[inside.Cluster](k.cluster).Version())
	for _, w := range k.watchers {
		if is {
			// The name belongs to a pod again, so a NotFound of before says nothing about it.
			delete(w.missed, now.Name)
			if isOthers(now, w.messes[now.UID]) {
				delete(w.messes, now.UID)
			}
		}
		if call, late, ok := w.client.Calling(); ok {
			// The pass that sent a late call may be over. A late deletion was judged when its call failed, and from
			// then on notMore counts a late creation.
			w.did(call, late, old, now)
			if !late {
				w.permitted(call)
				w.judge(call, old, now)
			}
		}
	}
}

// wrote checks that a status was written to the owner of the pass.
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
		// Another owner may have its name now.
		if passing := w.owner(); passing == nil || passing.UID != rs.UID {
			w.fail(Anothers, "the status of %s is written for another object of the same name", rs.Name)
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

// Restored must be called each time a backup is restored. The Checker then starts again from the state of the server.
func (k *Checker) Restored() {
	k.truth.restored(k.cluster.Owners(""), k.cluster.Children(""))
	for _, w := range k.watchers {
		// A controller is not to blame for deleted pods that exist again.
		for uid := range k.truth.pods {
			delete(w.deleted, uid)
			delete(w.lost, uid)
		}
		maps.DeleteFunc(w.sights, func(uid types.UID, _ sight) bool { return k.truth.pods[uid] == nil })
	}
}

// A watcher records the calls of one controller, and the objects that it is shown.
type watcher struct {
	checker    *Checker
	controller *podController
	inside     *inside.Controller[podPass, *corev1.Pod]
	client     *inside.Client[replicastest.Call]
	record
	looked      types.UID // the owner that the current pass has read live
	unread      bool      // the current pass could not read its owner
	passBegan   instant
	chosen      map[types.UID]bool   // pods that the current pass has already chosen for deletion
	victims     map[string]types.UID // pods that the current pass plans to delete or discard, keyed by name
	wroteNow    bool                 // the current status write has changed something
	waits       map[place]wait
	last        map[types.NamespacedName]lastPass
	deed        deed
	turned      map[types.UID]*corev1.Pod          // pods for which an event arrived during the current pass, each in its state at the start of the pass
	missed      map[string]notFoundCall            // pods that a delete or patch call did not find, keyed by name
	listFailed  time.Time                          // time at which the last list call ended, whether or not it failed
	listsFailed int                                // number of consecutive failed lists
	quotas      map[types.UID]denial               // for each owner, the consecutive passes in which a full quota refused a creation
	conflicts   map[string]conflict                // pods whose deletion met a Conflict, keyed by name
	full        map[types.UID]int                  // for each owner, the number of its pods when the quota was full
	strange     map[types.UID]bool                 // owners for which a webhook has changed a created pod
	stale       map[types.NamespacedName]time.Time // for each owner, when its passes began to wait for the cache
	waited      map[types.NamespacedName]time.Time // for each owner, when a pass last waited for the cache
	unshown     map[types.NamespacedName]time.Time // for each owner, when its passes began to wait for a newer version in the cache
	passing     map[types.NamespacedName]time.Time // for each owner, when the controller could first notice that a pod is gone
	sights      map[types.UID]sight                // pods that a live list or another call has shown as replicas
	born        map[types.UID]sight                // pods that the answer to a creation has shown
	listedAt    map[types.UID]time.Time            // for each owner, the time of its last live list
	missing     map[types.NamespacedName]time.Time // for each owner, when only creations without an answer began to hold places
	failedAt    map[types.UID]time.Time            // for each owner, the time of its last failed call
	led         bool                               // the controller held its lease after its previous call or step
}

func (w *watcher) fail(r Rule, format string, args ...any) {
	w.checker.fail(r, "%s: %s", w.inside.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// owner returns the owner of the current pass, or nil.
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
		// The garbage collector decides about the pods of an owner that goes. Only strays are left to the controller.
		w.fail(Going, "%s %s for %s, which is being deleted", call.Verb, call.Name, rs.Name)
	case w.checker.Vetoed(rs) && call.Verb != "patch" && !w.isStray(rs, call, old):
		w.fail(Ruled, "%s %s for %s, although Prepare does not allow this call", call.Verb, call.Name, rs.Name)
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

// isStray reports whether a call deletes a pod that the controller made or adopted, and that is no longer the owner's,
// as when a webhook has changed its labels.
func (w *watcher) isStray(rs *appsv1.ReplicaSet, call replicastest.Call, p *corev1.Pod) bool {
	if call.Verb != "delete" {
		return false
	}
	_, made := w.made[p.UID]
	_, ours := replicasOf(rs, slices.Values([]*corev1.Pod{p}))[p.UID]
	return made && !ours
}

// permitted checks that a controller writes nothing after its lease has ended.
func (w *watcher) permitted(call replicastest.Call) {
	// A call that was in flight when the lease ended may still take effect, so the lease must have been lost before.
	if !w.led && !w.checker.Leads(w.controller) {
		w.fail(Leaseless, "%s %s without a lease", call.Verb, call.Name)
	}
}

// adopts judges an adoption.
func (w *watcher) adopts(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	if controllerOf(p) != rs.UID {
		w.fail(Anothers, "pod %s is adopted for %q in a pass for %q", p.Name, controllerOf(p), rs.UID)
	}
	// The owner may be going with the policy Orphan, and the cache not show it yet. Without a read, the pods that the
	// garbage collector has just orphaned would be adopted again.
	if w.looked != rs.UID {
		w.fail(Anothers, "pod %s is adopted without a live read of %s", p.Name, rs.Name)
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
