// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariant holds a simulated cluster and its controllers to what must be
// true at every moment, and to what must be true once nothing goes wrong any more.
//
//	checker := invariant.New(cluster)
//	checker.Watch(controller) // before its first step
//	... step the world, asking checker.Err() and checker.Awake() ...
//	err := checker.Settled()
//
// It knows what the controllers did from the truth, not from what they remember:
// which call changed what, and which of that their watches have shown them. No
// time is too long: what held a minute after a fault holds a day after it.
//
// Never more. Only creations and adoptions add to an owner's replicas, so each
// creation is judged as it takes effect. The replicas that the controller must know
// of, the new one among them, are at most as many as its pass was asked for. It
// must know of those that its view shows as they are, and of all that it created or
// adopted itself, answered or not: a creation that nobody answered is known by its
// name. What it cannot know of comes on top: what others create, and another
// process, be it a dead one; what its watches have not shown; what lands late after
// a process has ended. So at every instant there are at most as many replicas as
// were wanted of one of the passes under way, and what of others is not resolved.
//
// Never fewer. Of deletions each is judged as it takes effect. The replicas that
// are left, and those that are gone without the controller's doing and without its
// being told, are at least as many as its pass was asked for. Its own deletions
// never count as there, answered or not. A deletion that lands when nobody waits
// for it any more is not judged.
//
// Never another's. What a controller deletes is its owner's, or was when its view
// was made and is not ready, or is what it created and a webhook took away: a pod
// that was not ready is deleted under its UID alone, and if it was released at the
// same moment, it goes all the same. And a status is written to the owner that it is
// about, not to a later one of its name.
//
// Never for one that is going, and never without a lease. For an owner whose deletion
// its pass knows of, nothing is created, adopted, released or deleted, but for what a
// webhook took away. Who may not write any more does not.
//
// Never asleep. Who sees all that there is, and waits for nothing, has a pass before it
// as long as something is to be done: see Awake.
//
// Never for nothing. What a pass leaves to be expected has begun, and what the
// controller is shown is expected no more: else it would wait until that expires.
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

	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A Checker watches a cluster and its controllers. It takes the hooks that it
// needs: Cluster.Changed and Restored, and of a controller Scaling, Passed and
// Client.Done.
type Checker struct {
	cluster  *replicastest.Cluster
	truth    truth
	watchers []*watcher
	err      error
}

// New returns a Checker of a cluster.
func New(cluster *replicastest.Cluster) *Checker {
	k := &Checker{cluster: cluster, truth: truth{}}
	cluster.Changed, cluster.Restored = k.changed, k.restored
	return k
}

// Err returns the first violation.
func (k *Checker) Err() error { return k.err }

func (k *Checker) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf("invariant: "+format, args...)
	}
}

// Watch watches a controller from its start on.
func (k *Checker) Watch(c *replicastest.Controller) {
	w := &watcher{checker: k, controller: c, record: newRecord(), last: map[types.NamespacedName]lastPass{}}
	k.watchers = append(k.watchers, w)
	c.Scaling = w.scaling
	c.Client.Done = w.done
	c.Passed = w.passed
	w.listen()
}

// Clone returns a Checker that goes on from here on a clone of the cluster and of
// the one controller that runs on it.
func (k *Checker) Clone(cluster *replicastest.Cluster, c *replicastest.Controller) *Checker {
	clone := New(cluster)
	clone.Watch(c)
	clone.err, clone.truth = k.err, maps.Clone(k.truth)
	clone.watchers[0].record = k.watchers[0].clone()
	return clone
}

// Describe tells what the Checker will judge by.
func (k *Checker) Describe(tell func(parts ...any)) {
	for _, w := range k.watchers {
		there := w.controller.View.ChildWatch.In(metav1.NamespaceDefault)
		for _, p := range slices.Concat(there, k.cluster.Children(metav1.NamespaceDefault)) {
			made, own := w.made[p.UID]
			tell("judged", own, w.doubted[p.Name], own && made >= k.truth[p.UID], w.seen[p.UID] >= made, w.deleted[p.UID], w.named[p.Name], versionOf(p) >= k.truth[p.UID])
		}
		lost := 0
		for uid, version := range w.made {
			if _, is := k.truth[uid]; !is && w.seen[uid] < version && !w.deleted[uid] {
				lost++
			}
		}
		tell("lost", lost)
	}
}

// Drop stops watching a controller that has ended.
func (k *Checker) Drop(c *replicastest.Controller) {
	k.watchers = slices.DeleteFunc(k.watchers, func(w *watcher) bool { return w.controller == c })
}

// changed judges a change by the call that makes it.
func (k *Checker) changed(before, after metav1.Object) {
	if rs, ok := after.(*appsv1.ReplicaSet); ok {
		k.wrote(rs)
	}
	old, was := before.(*corev1.Pod)
	now, is := after.(*corev1.Pod)
	if !was && !is {
		return
	}
	k.truth.changed(old, now)
	for _, w := range k.watchers {
		if call, ok := w.controller.Client.Calling(); ok {
			w.did(call, old, now)
			if !call.Late {
				w.permitted(call)
				w.judge(call, old, now)
			}
		}
	}
}

// wrote: a controller writes the status of the owner that it made the pass for, and
// not that of another one of the same name.
func (k *Checker) wrote(rs *appsv1.ReplicaSet) {
	for _, w := range k.watchers {
		call, ok := w.controller.Client.Calling()
		if !ok || call.Verb != "update" || call.Late {
			continue
		}
		w.permitted(call)
		if passing := w.controller.Passing(); passing == nil || passing.UID != rs.UID {
			w.fail("the status of %s is written for another one of that name", rs.Name)
		}
	}
}

// isLive reports whether there is such a pod, and it is not being deleted.
func (k *Checker) isLive(uid types.UID) bool {
	return slices.ContainsFunc(k.cluster.Children(metav1.NamespaceDefault), func(p *corev1.Pod) bool {
		return p.UID == uid && p.DeletionTimestamp == nil
	})
}

// restored: what is there now is a new truth. Nobody is to blame for what was
// deleted and is back.
func (k *Checker) restored() {
	k.truth = truth{}
	for _, p := range k.cluster.Children(metav1.NamespaceDefault) {
		k.truth[p.UID] = versionOf(p)
		for _, w := range k.watchers {
			delete(w.deleted, p.UID)
		}
	}
}

// A watcher is what the truth says about one controller.
type watcher struct {
	checker    *Checker
	controller *replicastest.Controller
	record
	looked types.UID // the owner that the pass under way has read live
	last   map[types.NamespacedName]lastPass
	permit func(replicastest.Call) error // as it was before the call under way; nil: writes are permitted
}

func (w *watcher) fail(format string, args ...any) {
	w.checker.fail("%s: %s", w.controller.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (w *watcher) judge(call replicastest.Call, old, now *corev1.Pod) {
	rs := w.controller.Passing()
	switch {
	case rs == nil:
		w.fail("%s %s outside of a pass", call.Verb, call.Name)
	case rs.DeletionTimestamp != nil && !w.isStray(rs, call, old):
		w.fail("%s %s for %s, which is being deleted", call.Verb, call.Name, rs.Name)
	case call.Verb == "create":
		w.creates(rs, now)
	case call.Verb == "delete":
		w.deletes(rs, old)
	case call.Verb == "patch" && controllerOf(old) == "":
		w.adopts(rs, now)
	}
}

// isStray reports whether a call deletes what was created for an owner, and a webhook
// made nobody's.
func (w *watcher) isStray(rs *appsv1.ReplicaSet, call replicastest.Call, p *corev1.Pod) bool {
	if call.Verb != "delete" {
		return false
	}
	_, made := w.made[p.UID]
	_, ours := replicasOf(rs, []*corev1.Pod{p})[p.UID]
	return made && !ours
}

// permitted: who may not write, as its lease has ended, does not, whatever the call. One
// that was under way when the lease ended may take effect.
func (w *watcher) permitted(call replicastest.Call) {
	if now := w.controller.Client.Permit; w.permit != nil && now != nil && w.permit(call) != nil && now(call) != nil {
		w.fail("%s %s without a lease", call.Verb, call.Name)
	}
}

// creates: what is created belongs to the owner of the pass and matches it, unless
// a webhook has other ideas, and is not one too many.
func (w *watcher) creates(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	_, ok := replicasOf(rs, []*corev1.Pod{p})[p.UID]
	switch known := w.known(rs); {
	case !ok && w.checker.cluster.Mutate == nil:
		w.fail("created pod %s is not one of %s", p.Name, rs.Name)
	case ok && known > int(*rs.Spec.Replicas):
		w.fail("%s creates %s: %d known, wanted %d", rs.Name, p.Name, known, *rs.Spec.Replicas)
	}
}

// deletes: only pods that are the owner's are deleted, and not one too many.
func (w *watcher) deletes(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	if _, own := w.made[p.UID]; controllerOf(p) != rs.UID && !own && !w.wasOurs(rs, p) {
		w.fail("pod %s is deleted and belongs to %q, not %q", p.Name, controllerOf(p), rs.UID)
	}
	if _, ok := replicasOf(rs, []*corev1.Pod{p})[p.UID]; !ok {
		return
	}
	left := len(replicasOf(rs, w.checker.cluster.Children(rs.Namespace)))
	if phantoms := w.phantoms(rs); left+phantoms < int(*rs.Spec.Replicas) {
		w.fail("%s deletes %s: %d left and %d that it cannot know to be gone, wanted %d",
			rs.Name, p.Name, left, phantoms, *rs.Spec.Replicas)
	}
}

// wasOurs reports whether the view shows a pod as the owner's, and not ready.
func (w *watcher) wasOurs(rs *appsv1.ReplicaSet, p *corev1.Pod) bool {
	shown, ok := w.controller.View.ChildWatch.Get(p.Namespace, p.Name)
	return ok && shown.UID == p.UID && controllerOf(shown) == rs.UID && !isReady(shown)
}

// adopts: nobody adopts without having looked whether the owner is still there.
func (w *watcher) adopts(rs *appsv1.ReplicaSet, p *corev1.Pod) {
	if controllerOf(p) != rs.UID {
		w.fail("pod %s is adopted for %q in a pass for %q", p.Name, controllerOf(p), rs.UID)
	}
	if w.looked != rs.UID {
		w.fail("pod %s is adopted without a live look at %s", p.Name, rs.Name)
	}
}

// done learns which owners were read live, and which deletions were answered.
func (w *watcher) done(call replicastest.Call, err error) {
	w.permit = w.controller.Client.Permit
	if call.Verb == "delete" {
		w.doubted[call.Name] = err != nil
	}
	if err != nil || call.Verb != "get" || call.Kind != "ReplicaSet" {
		return
	}
	live, err := w.checker.cluster.GetOwner(context.Background(), call.Namespace, call.Name)
	if err == nil && live.DeletionTimestamp == nil {
		w.looked = live.UID
	}
}

// passed forgets the pass, which has left the caches as they were.
func (w *watcher) passed(pass replicastest.Pass) {
	w.note(pass)
	w.started(pass)
	w.looked = ""
	clear(w.fresh)
	if err := w.controller.View.Intact(); err != nil {
		w.fail("%v", err)
	}
}
