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

// An instant is a point in time: the number of changes in the cluster so far. Unlike a resourceVersion, it never goes
// back when a backup is restored.
type instant uint64

// A truth is the recorded history of the server's objects.
type truth struct {
	now   instant
	epoch instant // the instant of the last restore
	was   moment  // the value in the map since for the pod that changed last, before that change; zero for a new pod
	pods  map[types.UID]*corev1.Pod
	since map[types.UID]moment // when the last relevant change of each existing pod was made
	ended map[types.UID]moment // when each deleted pod stopped being active
	specs map[types.NamespacedName][]spec
}

// A moment is the time of the last relevant change of a pod: of its controller, its labels, or whether it is active. A
// view of the pod that is at least as new shows all three correctly.
type moment struct {
	version uint64
	at      instant
}

// A spec is the owner that a name belonged to, or nil, from an instant until the next spec of the name.
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

// pod adds a change of a pod to the history. The version is the cluster's latest resourceVersion.
func (t *truth) pod(before, after *corev1.Pod, version uint64) {
	t.now++
	if t.was = (moment{}); before != nil {
		t.was = t.since[before.UID]
	}
	if before != nil && (after == nil || after.UID != before.UID) {
		t.ended[before.UID] = moment{version, t.now}
		if !isActive(before) {
			// It ended as a replica before it was removed: it was terminating, or had failed.
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

// owner adds a change of an owner to the history.
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

// any reports whether f accepts a spec that the owner has had since an instant. It skips times at which the owner did
// not exist or was being deleted.
func (t *truth) any(rs *appsv1.ReplicaSet, since instant, f func(*appsv1.ReplicaSet) bool) bool {
	specs := t.specs[types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}]
	for _, spec := range slices.Backward(specs) {
		if o := spec.owner; o != nil && o.UID == rs.UID && o.DeletionTimestamp == nil && f(o) {
			return true
		}
		if spec.from <= since {
			// This spec held at the instant, and earlier ones did not.
			return false
		}
	}
	return false
}

// gone returns the moment at which a pod stopped being active, or for one that exists that of its last relevant change.
// A pod from before a restore may be unknown.
func (t *truth) gone(uid types.UID) (m moment, known bool) {
	if m, known = t.ended[uid]; !known {
		m, known = t.since[uid]
	}
	m.at = max(m.at, t.epoch)
	return m, known
}

// restored begins a new history with the state of the server.
func (t *truth) restored(owners []*appsv1.ReplicaSet, pods []*corev1.Pod) {
	now, specs := t.now+1, t.specs
	*t = newTruth()
	t.now, t.epoch, t.specs = now, now, specs
	for _, p := range pods {
		t.pods[p.UID], t.since[p.UID] = p, moment{versionOf(p), now}
	}
	// The restored owners are new specs, so that all reads from before the restore are older than they are.
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

// replicasOf returns the pods that are active, belong to the owner and match its selector, by UID.
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

// isAdoptable reports whether a pod has no controller and matches the owner's selector.
func isAdoptable(rs *appsv1.ReplicaSet, p *corev1.Pod) bool {
	sel, err := selector.ForReplicaSet(rs)
	return err == nil && controllerOf(p) == "" && sel.Matches(labels.Set(p.Labels))
}

// A record holds what one controller has done, and what it has seen of that.
type record struct {
	began   instant                 // when the process began
	pass    int                     // number of passes so far
	made    map[types.UID]uint64    // pods that the controller created or adopted, with the resourceVersion after that call
	strays  map[types.UID]bool      // created pods that a webhook changed; true if the owner cannot adopt the pod
	messes  map[types.UID]types.UID // strays from creations that succeeded, with the owner whose pass created the stray
	absent  map[types.UID]instant   // pods that a call did not find, with the instant of this call
	open    map[string]sight        // pods whose creation has an unknown result, keyed by name
	landed  map[types.UID]bool      // created or adopted pods; true if the call took effect after the controller stopped waiting
	deleted map[types.UID]bool      // pods whose deletion took effect while the controller waited for the answer
	lost    map[types.UID]bool      // pods whose deletion took effect after the controller stopped waiting
	seen    map[types.UID]uint64    // created or adopted pods, with the latest resourceVersion that an event showed
	fresh   map[types.UID]bool      // pods for which an event arrived during the current pass
	doubted map[string]types.UID    // pods whose deletion got no answer, keyed by name
	named   map[string]types.UID    // the last pod that the controller created or adopted under each name
	asked   map[string]types.UID    // for each pod name, the owner for which the controller last tried to create the pod
	unsure  map[string]bool         // for each pod name, whether the last creation failed and no call has found the pod since
	listed  map[types.UID]liveList  // the last live list of each owner, keyed by owner
	told    map[types.UID]uint64    // pods that a live call has shown and no event has shown since, with the server's resourceVersion at the time of the call
	read    map[types.UID]instant   // for each owner, when it was last read live
	podRead map[types.UID]instant   // for each pod, when a live call last found it
}

// A liveList is the last live list of an owner.
type liveList struct {
	at       instant
	version  uint64
	pass     int
	selector string
}

// hides reports whether a live list can make the controller take a restored pod for deleted.
func (l liveList) hides(t *truth, uid types.UID) bool {
	// The list is from before the restore and lacked the pod, but its version is not lower than that of the pod's last
	// change. If nothing reveals the restore, the list looks newer.
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

// did records a change that was made by one of the controller's calls.
func (r record) did(call replicastest.Call, late bool, before, after *corev1.Pod) {
	switch {
	case call.Verb == "create", call.Verb == "patch" && controllerOf(before) == "":
		r.made[after.UID] = versionOf(after)
		r.named[after.Name] = after.UID
		r.landed[after.UID] = late
		// An adopted pod is no longer a stray.
		delete(r.messes, after.UID)
	case call.Verb == "delete" && !late:
		r.deleted[before.UID] = true
	case call.Verb == "delete":
		// The controller was no longer waiting for the answer, so it cannot know.
		r.lost[before.UID] = true
	}
}

// arrives is called when a watch has delivered a pod.
func (r record) arrives(p *corev1.Pod) {
	delete(r.told, p.UID)
	delete(r.open, p.Name)
	if _, is := r.made[p.UID]; is {
		r.seen[p.UID] = max(r.seen[p.UID], versionOf(p))
	}
}
