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

// An instant is the number of changes in a cluster so far. Unlike resource versions, it never goes
// back when a backup is restored.
type instant uint64

// A truth is the recorded history of the server's objects.
type truth struct {
	now   instant
	epoch instant // of the last restore
	was   moment  // the moment that the last changed pod had before its change
	pods  map[types.UID]*corev1.Pod
	since map[types.UID]moment // the moment of each pod
	ended map[types.UID]moment // when each deleted pod stopped being an active pod
	specs map[types.NamespacedName][]spec
}

// A moment is when a pod last changed its controller reference, its labels, or whether it is active.
// A view of the pod that is at least as new shows these three correctly.
type moment struct {
	version uint64
	at      instant
}

// A spec is the owner that existed under a name from one instant until the next spec of that name.
// The owner is nil if there was none.
type spec struct {
	from  instant
	owner *appsv1.ReplicaSet
}

func newTruth() truth {
	return truth{pods: map[types.UID]*corev1.Pod{}, since: map[types.UID]moment{}, ended: map[types.UID]moment{}, specs: map[types.NamespacedName][]spec{}}
}

// clone returns a copy of a truth, for a clone of the cluster.
func (t truth) clone() truth {
	clone := truth{t.now, t.epoch, t.was, maps.Clone(t.pods), maps.Clone(t.since), maps.Clone(t.ended), make(map[types.NamespacedName][]spec, len(t.specs))}
	for key, specs := range t.specs {
		clone.specs[key] = slices.Clone(specs)
	}
	return clone
}

// pod records a change of a pod. version is the cluster's latest resourceVersion after the change.
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

// any reports whether f returns true for a spec that an owner has had since an instant. f is not
// called for times when the owner was gone or being deleted.
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

// gone returns when a pod stopped being an active pod or, if the pod still exists, its moment. known
// is false if the Checker has no record of the pod, for example because a restore removed the pod.
func (t *truth) gone(uid types.UID) (m moment, known bool) {
	if m, known = t.ended[uid]; !known {
		m, known = t.since[uid]
	}
	m.at = max(m.at, t.epoch)
	return m, known
}

// restored starts the history again from the current state of the server. Only the earlier specs
// stay, and the restored owners are added as new specs. So an earlier read of an owner says nothing
// about the restored owner.
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

// replicasOf returns, by UID, those of the given pods that are active, belong to the owner, and
// match its selector.
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

// isAdoptable reports whether a pod has no controller and matches the selector of an owner.
func isAdoptable(rs *appsv1.ReplicaSet, p *corev1.Pod) bool {
	sel, err := selector.ForReplicaSet(rs)
	return err == nil && controllerOf(p) == "" && sel.Matches(labels.Set(p.Labels))
}

// A record is what one controller did, and what the controller was shown of the effects.
type record struct {
	began   instant                 // when the process began
	pass    int                     // number of passes so far
	made    map[types.UID]uint64    // pods that the controller created or adopted, with the resourceVersion after that
	strays  map[types.UID]bool      // pods that the controller created and a webhook changed; true if the owner cannot adopt the pod
	messes  map[types.UID]types.UID // strays whose creation was answered, with the owner of the pass
	absent  map[types.UID]instant   // pods that the controller made or has in its view, and that a call did not find
	open    map[string]sight        // by name, pods whose creation was sent and has an unknown result
	landed  map[types.UID]bool      // pods the controller made; true if the call took effect after the controller stopped waiting
	deleted map[types.UID]bool      // pods whose deletion took effect while the controller waited for the answer
	lost    map[types.UID]bool      // pods whose deletion took effect after the controller stopped waiting
	seen    map[types.UID]uint64    // pods that the controller made, with the latest resourceVersion that arrived
	fresh   map[types.UID]bool      // pods for which an event arrived during the current pass
	doubted map[string]types.UID    // by name, pods whose deletion got no answer
	named   map[string]types.UID    // by name, the last pod that the controller created or adopted
	asked   map[string]types.UID    // by name, the owner for which the controller last tried to create the pod
	unsure  map[string]bool         // names of pods; true if the creation got no answer
	listed  map[types.UID]liveList  // by owner, its last live list
	told    map[types.UID]uint64    // pods that a live call showed and no event since, with the server's resourceVersion then
	read    map[types.UID]instant   // by owner, when the owner was last read live
	podRead map[types.UID]instant   // by pod, when the pod was last found by a live call
}

// A liveList is the time, resourceVersion, pass and selector of a live list.
type liveList struct {
	at       instant
	version  uint64
	pass     int
	selector string
}

// hides reports whether a live list is from before the last restore, and yet has a resourceVersion
// at least as new as that of the pod's moment. If such a list lacked the pod, and the controller does
// not notice the restore, the controller takes the pod for deleted.
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

// did records a change that a call of the controller made. The change is late if the controller no
// longer waits for the answer. The controller cannot know of a late deletion.
func (r record) did(call replicastest.Call, late bool, before, after *corev1.Pod) {
	switch {
	case call.Verb == "create", call.Verb == "patch" && controllerOf(before) == "":
		r.made[after.UID] = versionOf(after)
		r.named[after.Name] = after.UID
		r.landed[after.UID] = late
		delete(r.messes, after.UID) // an adopted pod is no longer a stray
	case call.Verb == "delete" && !late:
		r.deleted[before.UID] = true
	case call.Verb == "delete":
		r.lost[before.UID] = true
	}
}

// arrives records that a watch delivered a pod to the controller.
func (r record) arrives(p *corev1.Pod) {
	delete(r.told, p.UID)
	delete(r.open, p.Name)
	if _, is := r.made[p.UID]; is {
		r.seen[p.UID] = max(r.seen[p.UID], versionOf(p))
	}
}
