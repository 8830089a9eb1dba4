// Package invariant holds a simulated cluster and its controllers to what must be
// true at every moment, and to what must be true once nothing goes wrong any more.
//
//	checker := invariant.New(cluster)
//	checker.Watch(controller) // before its first step
//	... step the world, asking checker.Err() ...
//	err := checker.Settled()
//
// It knows what the controllers did from the truth, not from what they remember:
// which call changed what, whether it was answered, which of that their watches
// have shown them.
//
// What cannot hold, and is allowed for. Creations are counted, not named: a pod
// whose create call was answered with an error, or that another process made,
// arrives like one of the controller's own, and lets it act one creation too
// early. So the number of pods is bounded by what was wanted plus what was in
// flight unanswered. A pod that was not ready is deleted under its UID alone: if
// it was released at the same moment, it goes all the same. An expectation that
// expired no longer holds anything back.
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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// A Checker watches a cluster and its controllers. It takes the hooks that it
// needs: Cluster.Changed, Reconciler.BeforeScale and Client.Done.
type Checker struct {
	cluster  *sim.Cluster
	watchers []*watcher
	err      error
}

// New returns a Checker of a cluster.
func New(cluster *sim.Cluster) *Checker {
	k := &Checker{cluster: cluster}
	cluster.Changed = k.changed
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
func (k *Checker) Watch(c *sim.Controller) {
	w := &watcher{checker: k, controller: c, owners: map[types.UID]*owner{}}
	k.watchers = append(k.watchers, w)
	c.Reconciler.BeforeScale = w.beforeScale
	c.Client.Done = w.done
	c.Passed = w.passed
	w.listen()
}

// Clone returns a Checker that goes on from here on a clone of the cluster and of
// the one controller that runs on it.
func (k *Checker) Clone(cluster *sim.Cluster, c *sim.Controller) *Checker {
	clone := New(cluster)
	clone.Watch(c)
	clone.err = k.err
	for uid, o := range k.watchers[0].owners {
		other := *o
		other.created, other.deleted = maps.Clone(o.created), maps.Clone(o.deleted)
		clone.watchers[0].owners[uid] = &other
	}
	return clone
}

// Describe adds to a State what the Checker will judge by.
func (k *Checker) Describe(s *sim.State) {
	for _, w := range k.watchers {
		uids := slices.Sorted(maps.Keys(w.owners))
		for _, uid := range uids {
			w.describe(s, w.owners[uid])
		}
	}
}

// describe leaves out what can no longer matter.
func (w *watcher) describe(s *sim.State, o *owner) {
	if len(o.created) > 0 {
		s.Text("created", o.foreign)
		for _, uid := range slices.Sorted(maps.Keys(o.created)) {
			s.UID(uid)
		}
	}
	for _, p := range w.controller.View.Pods.In(metav1.NamespaceDefault) {
		if o.deleted[p.UID] && isActive(p) {
			s.Text("deleted")
			s.UID(p.UID)
		}
	}
}

// Drop stops watching a controller that has ended.
func (k *Checker) Drop(c *sim.Controller) {
	k.watchers = slices.DeleteFunc(k.watchers, func(w *watcher) bool { return w.controller == c })
}

// changed judges a change by the call that makes it.
func (k *Checker) changed(before, after metav1.Object) {
	for _, w := range k.watchers {
		call, ok := w.controller.Client.Calling()
		if !ok {
			continue
		}
		old, _ := before.(*corev1.Pod)
		now, _ := after.(*corev1.Pod)
		switch {
		case call.Verb == "create":
			w.created(now)
		case call.Verb == "delete":
			w.deletes(old)
		case call.Verb == "patch" && controllerOf(old) == "":
			w.adopted(now)
		}
	}
}

// A watcher is what the truth says about one controller.
type watcher struct {
	checker    *Checker
	controller *sim.Controller
	owners     map[types.UID]*owner
	effect     types.UID     // of the pod that the call under way made
	looked     types.UID     // the owner that the pass under way has read live
	victims    []*corev1.Pod // of the pass under way
	acted      bool          // it created or deleted
}

// An owner is what a controller did for one since it last recorded what it
// expects.
type owner struct {
	since   time.Time          // by the controller's clock
	created map[types.UID]bool // answered, and not yet seen alive
	deleted map[types.UID]bool // answered
	foreign int                // pods that arrived without being created since
}

func (w *watcher) owner(uid types.UID) *owner {
	if w.owners[uid] == nil {
		w.owners[uid] = &owner{created: map[types.UID]bool{}, deleted: map[types.UID]bool{}}
	}
	return w.owners[uid]
}

func (w *watcher) fail(format string, args ...any) {
	w.checker.fail("%s: %s", w.controller.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// created: what is created belongs to the owner of the pass, and matches it.
func (w *watcher) created(p *corev1.Pod) {
	rs := w.controller.Passing()
	sel, err := selector.ForReplicaSet(rs)
	if controllerOf(p) != rs.UID || err != nil || !sel.Matches(labels.Set(p.Labels)) {
		w.fail("created pod %s is not one of %s", p.Name, rs.Name)
	}
	w.effect = p.UID
}

// deletes: only victims of this very pass are deleted, and only pods that are the
// owner's.
func (w *watcher) deletes(p *corev1.Pod) {
	rs := w.controller.Passing()
	i := slices.IndexFunc(w.victims, func(v *corev1.Pod) bool { return v.UID == p.UID })
	switch {
	case i < 0:
		w.fail("pod %s (%s) of %q is deleted and was never chosen", p.Name, p.UID, controllerOf(p))
	case controllerOf(p) != rs.UID && isReady(w.victims[i]):
		w.fail("ready pod %s is deleted and belongs to %q, not %q", p.Name, controllerOf(p), rs.UID)
	}
}

// adopted: nobody adopts without having looked whether the owner is still there.
func (w *watcher) adopted(p *corev1.Pod) {
	rs := w.controller.Passing()
	if controllerOf(p) != rs.UID {
		w.fail("pod %s is adopted for %q in a pass for %q", p.Name, controllerOf(p), rs.UID)
	}
	if w.looked != rs.UID {
		w.fail("pod %s is adopted without a live look at %s", p.Name, rs.Name)
	}
}

// done learns which calls were answered.
func (w *watcher) done(call sim.Call, err error) {
	effect := w.effect
	w.effect = ""
	rs := w.controller.Passing()
	switch {
	case err != nil || rs == nil:
	case call.Verb == "get" && call.Kind == "ReplicaSet":
		live, err := w.checker.cluster.GetReplicaSet(context.Background(), call.Namespace, call.Name)
		if err == nil && live.DeletionTimestamp == nil {
			w.looked = live.UID
		}
	case call.Verb == "create" && effect != "":
		w.owner(rs.UID).created[effect] = true
	case call.Verb == "delete":
		for _, v := range w.victims {
			if v.Name == call.Name { // it may have been on its way out already
				w.owner(rs.UID).deleted[v.UID] = true
			}
		}
	}
}

func (w *watcher) expects(rs *appsv1.ReplicaSet) {
	for key, p := range w.controller.Reconciler.Expectations.All() {
		if key.UID != rs.UID {
			continue
		}
		creations, _ := p.Total()
		if unseen := len(w.owner(rs.UID).created); creations > unseen {
			w.fail("%s expects %d pods, and %d of those it created are not seen", rs.Name, creations, unseen)
		}
		for _, uid := range p.Deleting {
			if !w.owner(rs.UID).deleted[uid] {
				w.fail("%s expects the end of %s, which it did not delete", rs.Name, uid)
			}
		}
	}
}

// passed: what is expected in the end is what was done. Then it forgets the pass.
func (w *watcher) passed(rs *appsv1.ReplicaSet, _ replicas.Result, _ error) {
	if w.acted {
		w.expects(rs)
	}
	w.looked, w.victims, w.acted = "", nil, false
	if err := w.controller.View.Intact(); err != nil {
		w.fail("%v", err)
	}
}
