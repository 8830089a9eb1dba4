// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"iter"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

// An instant counts the changes of a cluster. Unlike versions, it never goes back.
type instant uint64

// A truth is the state of the server over time.
type truth struct {
	now   instant
	epoch instant // of the last restore
	was   moment  // the moment of the pod that changed last, before that change
	pods  map[types.UID]*corev1.Pod
	since map[types.UID]moment // the moment of each pod
	ended map[types.UID]moment // since when a pod that is gone has been no replica
	specs map[types.NamespacedName][]spec
}

// A moment is when a pod's controller, labels or activity last changed. A view of the pod that is
// at least as new shows them correctly.
type moment struct {
	version uint64
	at      instant
}

// A spec is an owner from one instant until the next spec. The owner is nil if there was none.
type spec struct {
	from  instant
	owner *appsv1.ReplicaSet
}

func newTruth() truth {
	return truth{pods: map[types.UID]*corev1.Pod{}, since: map[types.UID]moment{}, ended: map[types.UID]moment{}, specs: map[types.NamespacedName][]spec{}}
}

// clone copies a truth for a clone of the cluster.
func (t truth) clone() truth {
	clone := truth{t.now, t.epoch, t.was, maps.Clone(t.pods), maps.Clone(t.since), maps.Clone(t.ended), make(map[types.NamespacedName][]spec, len(t.specs))}
	for key, specs := range t.specs {
		clone.specs[key] = slices.Clone(specs)
	}
	return clone
}

// pod records a change of a pod, at that version.
func (t *truth) pod(before, after *corev1.Pod, version uint64) {
	t.now++
	if t.was = (moment{}); before != nil {
		t.was = t.since[before.UID]
	}
	if before != nil && (after == nil || after.UID != before.UID) {
		t.ended[before.UID] = moment{version, t.now}
		if !isActive(before) {
			t.ended[before.UID] = t.since[before.UID]
		}
		delete(t.since, before.UID)
		delete(t.pods, before.UID)
	}
	if after != nil {
		t.pods[after.UID] = after
	}
	if after != nil && (before == nil || before.UID != after.UID || isAnothers(before, after)) {
		t.since[after.UID] = moment{versionOf(after), t.now}
	}
}

// owner records a change of an owner.
func (t *truth) owner(before, after *appsv1.ReplicaSet) {
	t.now++
	is := after
	if is == nil {
		is = before
	}
	key := types.NamespacedName{Namespace: is.Namespace, Name: is.Name}
	if specs := t.specs[key]; len(specs) > 0 && after != nil && isSameSpec(specs[len(specs)-1].owner, after) {
		return
	}
	t.specs[key] = append(t.specs[key], spec{t.now, after})
}

func isSameSpec(a, b *appsv1.ReplicaSet) bool {
	return a != nil && a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && maps.Equal(a.Annotations, b.Annotations)
}

// any reports whether one of the specs that an owner had since an instant satisfies f. An owner
// that is gone, or is being deleted, wants nothing.
func (t *truth) any(rs *appsv1.ReplicaSet, since instant, f func(*appsv1.ReplicaSet) bool) bool {
	specs := t.specs[types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}]
	for _, spec := range slices.Backward(specs) {
		if o := spec.owner; o != nil && o.UID == rs.UID && o.DeletionTimestamp == nil && f(o) {
			return true
		}
		if spec.from <= since {
			return false
		}
	}
	return false
}

// gone returns since when a pod has been no replica, or another owner's, and whether that is known.
// After a restore it is unknown.
func (t *truth) gone(uid types.UID) (m moment, known bool) {
	if m, known = t.ended[uid]; !known {
		m, known = t.since[uid]
	}
	m.at = max(m.at, t.epoch)
	return m, known
}

// restored starts again from the current state. Only the earlier specs stay, because what a
// controller read of an owner before the restore says nothing about the restored owner.
func (t *truth) restored(owners []*appsv1.ReplicaSet, pods []*corev1.Pod) {
	now, specs := t.now+1, t.specs
	*t = newTruth()
	t.now, t.epoch, t.specs = now, now, specs
	for _, p := range pods {
		t.pods[p.UID], t.since[p.UID] = p, moment{versionOf(p), now}
	}
	for key := range specs {
		specs[key] = append(specs[key], spec{from: now})
	}
	for _, rs := range owners {
		key := types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}
		specs[key] = append(specs[key], spec{now, rs})
	}
}

func isAnothers(before, after *corev1.Pod) bool {
	return controllerOf(before) != controllerOf(after) || isActive(before) != isActive(after) ||
		!maps.Equal(before.Labels, after.Labels)
}

func versionOf(o metav1.Object) uint64 {
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return v
}

// replicasOf returns those of the given pods that are active, owned by the owner, and selected by
// it.
func replicasOf(rs *appsv1.ReplicaSet, pods iter.Seq[*corev1.Pod]) map[types.UID]*corev1.Pod {
	found := map[types.UID]*corev1.Pod{}
	sel, err := selector.ForReplicaSet(rs)
	for p := range pods {
		if err == nil && isActive(p) && controllerOf(p) == rs.UID && sel.Matches(labels.Set(p.Labels)) {
			found[p.UID] = p
		}
	}
	return found
}

// isAdoptable reports whether a pod is an orphan that an owner selects.
func isAdoptable(rs *appsv1.ReplicaSet, p *corev1.Pod) bool {
	sel, err := selector.ForReplicaSet(rs)
	return err == nil && controllerOf(p) == "" && sel.Matches(labels.Set(p.Labels))
}

// A record is what one controller did, and which of it the controller was shown.
type record struct {
	began   instant                 // of the process
	pass    int                     // number of passes
	made    map[types.UID]uint64    // pods that it created or adopted, with that version
	strays  map[types.UID]bool      // pods that it created, and that its owner cannot adopt because of a webhook
	messes  map[types.UID]types.UID // strays whose creation was answered, and their owners
	absent  map[types.UID]instant   // pods that it made or that its view shows, and that a call did not find
	open    map[string]sight        // by name, pods that it asked to create, with an unknown result
	landed  map[types.UID]bool      // pods whose creation took effect after it stopped waiting
	deleted map[types.UID]bool      // pods whose deletion took effect while it waited
	lost    map[types.UID]bool      // pods whose deletion took effect after it stopped waiting
	seen    map[types.UID]uint64    // the latest version that arrived of each pod that it made
	fresh   map[types.UID]bool      // pods that arrived in the middle of the pass under way, too late for its list
	doubted map[string]types.UID    // by name, pods whose deletion got no answer
	named   map[string]types.UID    // by name, the last pod that it created
	asked   map[string]types.UID    // by name, the owners of pods that it asked to create
	unsure  map[string]bool         // names of pods whose creation got no answer
	listed  map[types.UID]liveList  // by owner, its last live list
	told    map[types.UID]uint64    // pods that a live list, or a look, showed as replicas, and the server's version then
	read    map[types.UID]instant   // by owner, when it was last read live
	podRead map[types.UID]instant   // by pod, when it was last read live
}

// A liveList is the time, version, pass and selector of a live list.
type liveList struct {
	at       instant
	version  uint64
	pass     int
	selector string
}

// hides reports whether a list from before a restore lacked a pod that, by its version, is no newer
// than the list. If there was no sign of the restore, the pod counts as gone.
func (l liveList) hides(t *truth, uid types.UID) bool {
	return l.at < t.epoch && t.since[uid].version <= l.version
}

func newRecord() record {
	return record{
		made: map[types.UID]uint64{}, strays: map[types.UID]bool{}, messes: map[types.UID]types.UID{}, absent: map[types.UID]instant{}, open: map[string]sight{}, landed: map[types.UID]bool{}, deleted: map[types.UID]bool{}, lost: map[types.UID]bool{},
		seen: map[types.UID]uint64{}, fresh: map[types.UID]bool{}, doubted: map[string]types.UID{}, named: map[string]types.UID{},
		asked: map[string]types.UID{}, unsure: map[string]bool{}, listed: map[types.UID]liveList{}, told: map[types.UID]uint64{}, read: map[types.UID]instant{}, podRead: map[types.UID]instant{},
	}
}

func (r record) clone() record {
	return record{
		r.began, r.pass, maps.Clone(r.made), maps.Clone(r.strays), maps.Clone(r.messes), maps.Clone(r.absent), maps.Clone(r.open), maps.Clone(r.landed), maps.Clone(r.deleted), maps.Clone(r.lost), maps.Clone(r.seen), maps.Clone(r.fresh),
		maps.Clone(r.doubted), maps.Clone(r.named), maps.Clone(r.asked), maps.Clone(r.unsure), maps.Clone(r.listed), maps.Clone(r.told), maps.Clone(r.read), maps.Clone(r.podRead),
	}
}

// did records a change that a call of the controller made. The controller cannot know of a deletion
// that takes effect after it stopped waiting for the answer.
func (r record) did(call replicastest.Call, late bool, before, after *corev1.Pod) {
	switch {
	case call.Verb == "create", call.Verb == "patch" && controllerOf(before) == "":
		r.made[after.UID] = versionOf(after)
		r.named[after.Name] = after.UID
		r.landed[after.UID] = late
		delete(r.messes, after.UID) // it is adopted, so no stray
	case call.Verb == "delete" && !late:
		r.deleted[before.UID] = true
	case call.Verb == "delete":
		r.lost[before.UID] = true
	}
}

// arrives records a pod that the controller is shown.
func (r record) arrives(p *corev1.Pod) {
	delete(r.told, p.UID)
	delete(r.open, p.Name)
	if _, is := r.made[p.UID]; is {
		r.seen[p.UID] = max(r.seen[p.UID], versionOf(p))
	}
}
