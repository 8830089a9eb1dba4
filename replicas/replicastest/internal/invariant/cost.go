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

// A bill identifies the calls of one verb that one owner's passes made in one hour.
type bill struct {
	owner types.NamespacedName
	hour  int64
	verb  string // and kind
}

// budget is how many calls of one verb an owner's passes may make in an hour, under all faults, as
// long as one process is at work. It is at most about twice what stories took. While pods change
// each second and creations are denied, each pass tries one creation again. Patches, lists and the
// calls about owners may be more. While deletions are refused, each pass tries all victims, looks
// for them and lists them. While pods change each second, each pass writes the status, and tries
// the releases that were refused. While the cache shows an old owner, the owner is read every ten
// seconds. If the watch of pods hangs too, there is a pass every five seconds, whose status write
// is refused at first. Lists that fail are tried again every 10 to 15 seconds.
var budget = map[string]int{
	"create Pod": 480, "delete Pod": 2500, "patch Pod": 1000, "get Pod": 1200, "list Pod": 400,
	"get ReplicaSet": 800, "status ReplicaSet": 800, "list ReplicaSet": 8,
}

// storm is how many calls of one verb an owner that is gone may cost in an hour.
const storm = 300

// pays counts a call.
func (w *watcher) pays(rs *appsv1.ReplicaSet, call replicastest.Call) {
	k := w.checker
	verb := call.Verb + " " + call.Kind
	k.calls[verb]++
	if len(k.watchers) > 1 {
		return // two that see different things overwrite each other's status forever
	}
	b := bill{types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}, k.cluster.Clock.Now().Unix() / 3600, verb}
	k.bills[b]++
	k.most[verb] = max(k.most[verb], k.bills[b])
	if k.bills[b] == storm && !k.truth.any(rs, w.read[rs.UID], func(*appsv1.ReplicaSet) bool { return true }) {
		w.fail(CostGone, "%s: more than %d times %q in an hour, and it has read that the owner is gone", rs.Name, storm, verb)
	}
	if k.bills[b] == budget[verb]+1 {
		w.fail(Cost, "%s: more than %d times %q in an hour", rs.Name, budget[verb], verb)
	}
}

// Calls returns the number of calls, by verb and kind.
func (k *Checker) Calls() map[string]int { return maps.Clone(k.calls) }

// Passes returns the number of passes.
func (k *Checker) Passes() int { return k.passes }

// Rests returns an error if there were calls since then, because no work was left.
func (k *Checker) Rests(since map[string]int) error {
	for verb, n := range k.calls {
		rule := Restless
		if verb == "patch Pod" {
			rule = RestlessPatch
		}
		if more := n - since[verb]; more > 0 {
			k.fail(rule, "nothing is to be done, and there are %d calls more to %s", more, verb)
		}
	}
	return k.err
}

// Most returns the highest number of calls of each verb and kind that an owner's passes made in one
// hour.
func (k *Checker) Most() map[string]int { return k.most }

// A place is where an owner creates. A server that is busy in one namespace holds up no other.
type place struct {
	owner     types.UID
	namespace string
}

// A wait is how long the server asked an owner to wait, and in which pass.
type wait struct {
	until      time.Time
	generation int64
	pass       instant
}

// hasty checks that an owner creates nothing in a place before the time that the server asked for,
// unless the owner changes.
func (w *watcher) hasty(rs *appsv1.ReplicaSet, call replicastest.Call, err error) {
	here := place{rs.UID, call.Namespace}
	told, is := w.waits[here]
	if is && told.generation == rs.Generation && w.inside.Now().Before(told.until) && w.passBegan > told.pass && !w.checker.Skewed {
		w.fail(Hasty, "%s creates %s, %v before it may", rs.Name, call.Name, told.until.Sub(w.inside.Now()))
	}
	delete(w.waits, here)
	if seconds, asks := apierrors.SuggestsClientDelay(err); err != nil && asks && seconds > 0 {
		w.waits[here] = wait{w.inside.Now().Add(time.Duration(seconds) * time.Second), rs.Generation, w.passBegan}
	}
}

// early checks that no status counts a pod as available before it has been ready for
// MinReadySeconds.
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
		available[uid] = true // as the pod was when the controller learned of it
	}
	for uid, s := range w.sights {
		available[uid] = available[uid] || s.owner == rs.UID // the cache may show an older version
	}
	if n := len(available); int(after.Status.AvailableReplicas) > n {
		w.fail(Status, "%s says that %d are available, of which at most %d can be", rs.Name, after.Status.AvailableReplicas, n)
	}
}

// remembered returns how many owners a controller remembers. Reflection is the only way in.
func remembered(c *podController) int {
	reconciler := reflect.ValueOf(c).Elem().FieldByName("controller").Elem().FieldByName("reconciler").Elem().Elem()
	return reconciler.FieldByName("owners").FieldByName("m").Len() + reconciler.FieldByName("measures").Elem().FieldByName("was").Len()
}

// Forgotten returns an error if a controller remembers an owner. All owners must be gone.
func (k *Checker) Forgotten() error {
	for _, w := range k.watchers {
		if n := remembered(w.controller); n > 0 {
			w.fail(Leak, "%d owners are remembered, and there is none", n)
		}
	}
	return k.err
}
