// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

// A truth is since when each pod has been whose it is: since which version neither
// its controller nor its labels nor whether it is active have changed. A view of a
// pod that is as new as that is right about it.
type truth map[types.UID]uint64

// changed learns of a change.
func (t truth) changed(before, after *corev1.Pod) {
	switch {
	case after == nil:
		delete(t, before.UID)
	case before == nil || before.UID != after.UID || isAnothers(before, after):
		t[after.UID] = versionOf(after)
	}
}

func isAnothers(before, after *corev1.Pod) bool {
	return controllerOf(before) != controllerOf(after) || isActive(before) != isActive(after) ||
		!maps.Equal(before.Labels, after.Labels)
}

func versionOf(p *corev1.Pod) uint64 {
	v, _ := strconv.ParseUint(p.ResourceVersion, 10, 64)
	return v
}

// replicasOf are the pods, of those given, that are an owner's replicas: active, its
// own, and matching.
func replicasOf(rs *appsv1.ReplicaSet, pods []*corev1.Pod) map[types.UID]*corev1.Pod {
	found := map[types.UID]*corev1.Pod{}
	sel, err := selector.ForReplicaSet(rs)
	for _, p := range pods {
		if err == nil && isActive(p) && controllerOf(p) == rs.UID && sel.Matches(labels.Set(p.Labels)) {
			found[p.UID] = p
		}
	}
	return found
}

// A record is what one controller did, and what of it it was shown.
type record struct {
	made    map[types.UID]uint64 // pods that it created or adopted, by that version
	deleted map[types.UID]bool   // pods whose deletion it began, and was there when it did
	seen    map[types.UID]uint64 // the latest version that arrived of those it made
	fresh   map[types.UID]bool   // what arrived in the middle of the pass under way: too late for its list
	doubted map[string]bool      // names of pods that it asked to delete, and was not answered
	named   map[string]bool      // names of pods that it created
}

func newRecord() record {
	return record{made: map[types.UID]uint64{}, deleted: map[types.UID]bool{}, seen: map[types.UID]uint64{}, fresh: map[types.UID]bool{}, doubted: map[string]bool{}, named: map[string]bool{}}
}

func (r record) clone() record {
	return record{maps.Clone(r.made), maps.Clone(r.deleted), maps.Clone(r.seen), maps.Clone(r.fresh), maps.Clone(r.doubted), maps.Clone(r.named)}
}

// did learns of a change that a call of the controller made. Of a deletion that
// takes effect when nobody waits for its answer any more it cannot know.
func (r record) did(call replicastest.Call, before, after *corev1.Pod) {
	switch {
	case call.Verb == "create", call.Verb == "patch" && controllerOf(before) == "":
		r.made[after.UID] = versionOf(after)
		r.named[after.Name] = true
	case call.Verb == "delete" && !call.Late:
		r.deleted[before.UID] = true
	}
}

// arrives learns of what the controller is shown.
func (r record) arrives(p *corev1.Pod) {
	if _, is := r.made[p.UID]; is {
		r.seen[p.UID] = max(r.seen[p.UID], versionOf(p))
	}
}

// known are the replicas of an owner that the controller must know of: those that
// its view is right about, and those that it made itself.
func (w *watcher) known(rs *appsv1.ReplicaSet) int {
	seen := replicasOf(rs, w.controller.View.ChildWatch.In(rs.Namespace))
	n := 0
	for uid := range replicasOf(rs, w.checker.cluster.Children(rs.Namespace)) {
		since := w.checker.truth[uid]
		shown, is := seen[uid]
		if made, own := w.made[uid]; is && !w.fresh[uid] && versionOf(shown) >= since || own && made >= since {
			n++
		}
	}
	return n
}

// phantoms are the replicas of an owner that are gone without the controller's
// doing, or are no replicas any more, and of which it was not told.
func (w *watcher) phantoms(rs *appsv1.ReplicaSet) int {
	there := replicasOf(rs, w.checker.cluster.Children(rs.Namespace))
	shown := replicasOf(rs, w.controller.View.ChildWatch.In(rs.Namespace))
	for uid, version := range w.made {
		if w.seen[uid] < version {
			shown[uid] = nil
		}
	}
	n := 0
	for uid := range shown {
		if _, is := there[uid]; !is && !w.deleted[uid] {
			n++
		}
	}
	return n
}
