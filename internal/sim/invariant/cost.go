// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"maps"
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A bill is what calls are counted by: the owner, the hour and the kind of call.
type bill struct {
	owner types.NamespacedName
	hour  int64
	verb  string // verb and kind, such as "create Pod"
}

// budget is the maximum number of calls that the passes of one owner may make in an hour, by verb and kind. The limits
// hold under any faults if a single process runs. Each is at most about twice the highest number seen in a story. The
// most expensive situations are:
//
//   - Pods change each second and creations are denied, so each pass retries one creation.
//   - Deletions are refused, so each pass tries to delete all victims, reads them and lists them.
//   - Pods change each second, so each pass writes the status and retries refused releases.
//   - The cache shows an outdated owner, which is read every ten seconds. If the watch of pods also hangs, a pass runs
//     every five seconds, and its status write is refused at first.
//   - Lists fail, and are retried every 10 to 15 seconds.
var budget = map[string]int{
	"create Pod": 480, "delete Pod": 2500, "patch Pod": 1000, "get Pod": 1200, "list Pod": 400,
	"get ReplicaSet": 800, "status ReplicaSet": 800, "list ReplicaSet": 8,
}

// storm is the hourly limit for each kind of call of a deleted owner.
const storm = 300

// pays counts a call of an owner in this hour, and checks the limits.
func (w *watcher) pays(rs *appsv1.ReplicaSet, call replicastest.Call) {
	k := w.checker
	verb := call.Verb + " " + call.Kind
	k.calls[verb]++
	if len(k.watchers) > 1 {
		// Two controllers with different views overwrite each other's status for ever, so no limit applies.
		return
	}
	b := bill{types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}, k.cluster.Clock.Now().Unix() / 3600, verb}
	k.bills[b]++
	k.most[verb] = max(k.most[verb], k.bills[b])
	// The garbage collector deletes each pod that is created for an owner that is gone, and so calls follow without
	// end.
	if k.bills[b] == storm && !k.truth.any(rs, w.read[rs.UID], func(*appsv1.ReplicaSet) bool { return true }) {
		w.fail(CostGone, "%s: %d %q calls in an hour, although the controller has read that the owner is gone", rs.Name, storm, verb)
	}
	if k.bills[b] == budget[verb]+1 {
		w.fail(Cost, "%s: more than %d %q calls in an hour", rs.Name, budget[verb], verb)
	}
}

// Calls returns the number of calls so far, by verb and kind.
func (k *Checker) Calls() map[string]int { return maps.Clone(k.calls) }

// Passes returns the number of passes so far.
func (k *Checker) Passes() int { return k.passes }

// Rests returns an error if any calls were made since Calls returned the given counts, in a time without work.
func (k *Checker) Rests(since map[string]int) error {
	for verb, n := range k.calls {
		rule := Restless
		if verb == "patch Pod" {
			rule = RestlessPatch
		}
		if more := n - since[verb]; more > 0 {
			k.fail(rule, "no work is left, but %d more calls to %s were made", more, verb)
		}
	}
	return k.err
}

// Most returns the highest number of calls of one owner in one hour, by verb and kind.
func (k *Checker) Most() map[string]int { return k.most }

// A place is an owner and a namespace for its pods. A delay of creations in one namespace does not hold for the others.
type place struct {
	owner     types.UID
	namespace string
}

// A wait is a delay that the server requested before further creations, with the pass that was asked to wait and the
// owner's generation at that time.
type wait struct {
	until      time.Time
	generation int64
	pass       instant
}

// hasty checks that a controller observes the delay that the server requested for creations.
func (w *watcher) hasty(rs *appsv1.ReplicaSet, call replicastest.Call, err error) {
	here := place{rs.UID, call.Namespace}
	told, is := w.waits[here]
	// now >= until, for a pass that began after the request. Calls of the same pass were on their way, and another
	// generation ends the delay.
	if is && told.generation == rs.Generation && w.inside.Now().Before(told.until) && w.passBegan > told.pass && !w.checker.Skewed {
		w.fail(Hasty, "%s creates %s %v before the server's delay is over", rs.Name, call.Name, told.until.Sub(w.inside.Now()))
	}
	delete(w.waits, here)
	if seconds, asks := apierrors.SuggestsClientDelay(err); err != nil && asks && seconds > 0 {
		w.waits[here] = wait{w.inside.Now().Add(time.Duration(seconds) * time.Second), rs.Generation, w.passBegan}
	}
}

// early checks that a status does not count more pods as available than have been ready for MinReadySeconds.
func (w *watcher) early(rs, after *appsv1.ReplicaSet) {
	available := map[types.UID]bool{}
	ready := time.Duration(min(rs.Spec.MinReadySeconds, after.Spec.MinReadySeconds)) * time.Second
	count := func(uid types.UID, since *time.Time) {
		if since != nil && (ready == 0 || w.inside.Now().Sub(*since) >= ready) {
			available[uid] = true
		}
	}
	// The pods of the view, of the server, and of the view when the pass began: any of them may be the one that was
	// counted.
	for _, p := range w.controller.View.ChildWatch.In(rs.Namespace) {
		count(p.UID, readySince(p))
	}
	for uid, p := range w.checker.truth.pods {
		count(uid, readySince(p))
	}
	for uid, p := range w.turned {
		count(uid, readySince(p))
	}
	for uid := range w.unseen() {
		// The controller may have seen it while it was available.
		available[uid] = true
	}
	for uid, s := range w.sights {
		// The cache may show an older version of the pod than the live call did.
		available[uid] = available[uid] || s.owner == rs.UID
	}
	if n := len(available); int(after.Status.AvailableReplicas) > n {
		w.fail(Status, "the status of %s counts %d pods as available, but at most %d can be", rs.Name, after.Status.AvailableReplicas, n)
	}
}

// remembered counts the entries that a controller keeps for its owners, which are visible to reflection only.
func remembered(c *podController) int {
	owners := reflect.ValueOf(c).Elem().FieldByName("controller").Elem().FieldByName("reconciler").Elem().Elem().FieldByName("owners")
	return owners.FieldByName("m").Len() + owners.FieldByName("standing").Len()
}

// Forgotten returns an error if a controller still remembers an owner after all owners have been deleted.
func (k *Checker) Forgotten() error {
	for _, w := range k.watchers {
		if n := remembered(w.controller); n > 0 {
			w.fail(Leak, "the controller remembers %d owners, but all owners are gone", n)
		}
	}
	return k.err
}
