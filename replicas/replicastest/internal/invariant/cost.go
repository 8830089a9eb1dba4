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

// A bill identifies the calls with one verb that the passes of one owner made in one hour.
type bill struct {
	owner types.NamespacedName
	hour  int64
	verb  string // and kind
}

// budget is how many calls with one verb an owner's passes may make in an hour, under any faults. The
// budget applies only if one process is running. Each number is at most about twice the highest
// number that a story needed. The most expensive situations are:
//
//   - If pods change each second and creations are denied, each pass tries one creation again.
//   - If deletions are refused, each pass tries to delete all victims, reads them and lists them.
//   - If pods change each second, each pass writes the status and tries refused releases again.
//   - If the cache shows an outdated owner, the owner is read every ten seconds. If the watch of pods
//     also hangs, a pass runs every five seconds, and its status write is refused at first.
//   - Lists that fail are tried again every 10 to 15 seconds.
var budget = map[string]int{
	"create Pod": 480, "delete Pod": 2500, "patch Pod": 1000, "get Pod": 1200, "list Pod": 400,
	"get ReplicaSet": 800, "status ReplicaSet": 800, "list ReplicaSet": 8,
}

// storm is how many calls with one verb a deleted owner may cost in an hour.
const storm = 300

// pays counts a call for its owner, and checks the limits for one hour.
func (w *watcher) pays(rs *appsv1.ReplicaSet, call replicastest.Call) {
	k := w.checker
	verb := call.Verb + " " + call.Kind
	k.calls[verb]++
	if len(k.watchers) > 1 {
		return // two controllers with different views overwrite each other's status forever
	}
	b := bill{types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}, k.cluster.Clock.Now().Unix() / 3600, verb}
	k.bills[b]++
	k.most[verb] = max(k.most[verb], k.bills[b])
	if k.bills[b] == storm && !k.truth.any(rs, w.read[rs.UID], func(*appsv1.ReplicaSet) bool { return true }) {
		w.fail(CostGone, "%s: more than %d calls %q in an hour, although the controller has read that the owner is gone", rs.Name, storm, verb)
	}
	if k.bills[b] == budget[verb]+1 {
		w.fail(Cost, "%s: more than %d times %q in an hour", rs.Name, budget[verb], verb)
	}
}

// Calls returns the number of calls so far, by verb and kind.
func (k *Checker) Calls() map[string]int { return maps.Clone(k.calls) }

// Passes returns the number of passes so far.
func (k *Checker) Passes() int { return k.passes }

// Rests returns an error if the controllers have made more calls than since, an earlier result of
// Calls. Use it for a time in which no work was left.
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

// Most returns, by verb and kind, the highest number of calls that the passes of one owner made in
// one hour.
func (k *Checker) Most() map[string]int { return k.most }

// A place is an owner and a namespace in which it creates. If the server is busy in one namespace,
// the owner still creates in the others.
type place struct {
	owner     types.UID
	namespace string
}

// A wait is a time until which the server asked an owner to wait, and the pass that got this answer.
type wait struct {
	until      time.Time
	generation int64
	pass       instant
}

// hasty checks that an owner creates nothing in a place before the wait that the server asked for is
// over. If the owner's generation changes, the wait no longer applies.
func (w *watcher) hasty(rs *appsv1.ReplicaSet, call replicastest.Call, err error) {
	here := place{rs.UID, call.Namespace}
	told, is := w.waits[here]
	if is && told.generation == rs.Generation && w.inside.Now().Before(told.until) && w.passBegan > told.pass && !w.checker.Skewed {
		w.fail(Hasty, "%s creates %s %v before the server's wait is over", rs.Name, call.Name, told.until.Sub(w.inside.Now()))
	}
	delete(w.waits, here)
	if seconds, asks := apierrors.SuggestsClientDelay(err); err != nil && asks && seconds > 0 {
		w.waits[here] = wait{w.inside.Now().Add(time.Duration(seconds) * time.Second), rs.Generation, w.passBegan}
	}
}

// early checks the number of available pods in a status. Only pods that have been ready for
// MinReadySeconds can be available.
func (w *watcher) early(rs, after *appsv1.ReplicaSet) {
	available := map[types.UID]bool{}
	ready := time.Duration(min(rs.Spec.MinReadySeconds, after.Spec.MinReadySeconds)) * time.Second
	count := func(uid types.UID, since *time.Time) {
		if since != nil && (ready == 0 || w.inside.Now().Sub(*since) >= ready) {
			available[uid] = true
		}
	}
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
		available[uid] = true // the pod may have been available when the controller learned of it
	}
	for uid, s := range w.sights {
		available[uid] = available[uid] || s.owner == rs.UID // the cache may show an older version of the pod
	}
	if n := len(available); int(after.Status.AvailableReplicas) > n {
		w.fail(Status, "the status of %s counts %d pods as available, but at most %d can be", rs.Name, after.Status.AvailableReplicas, n)
	}
}

// remembered returns how many owners a controller remembers. The numbers are not exported, so
// remembered uses reflection.
func remembered(c *podController) int {
	reconciler := reflect.ValueOf(c).Elem().FieldByName("controller").Elem().FieldByName("reconciler").Elem().Elem()
	return reconciler.FieldByName("owners").FieldByName("m").Len() + reconciler.FieldByName("measures").Elem().FieldByName("was").Len()
}

// Forgotten returns an error if a controller remembers an owner. Call it after all owners are gone.
func (k *Checker) Forgotten() error {
	for _, w := range k.watchers {
		if n := remembered(w.controller); n > 0 {
			w.fail(Leak, "the controller remembers %d owners, but all owners are gone", n)
		}
	}
	return k.err
}
