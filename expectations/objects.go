// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// Creating returns the creations of these objects, by name, as Changes{Creating: Names(objs)}. Nil
// objects are skipped.
func Creating[T metav1.Object](objs ...T) Changes { return Changes{Creating: Names(objs)} }

// Deleting returns the deletions of these objects, by UID, as Changes{Deleting: UIDs(objs)}. Nil
// objects are skipped. An object without a UID, as fake clients make them, is known by
// "namespace/name", so DeletionObserved must be called with that string.
//
// If the cache has not shown the creation of an object that you delete, it may never show it. Then
// lower the creation first:
//
//	exp.Lower(key, expectations.Creating(pod))
//	exp.Add(key, expectations.Deleting(pod))
func Deleting[T metav1.Object](objs ...T) Changes { return Changes{Deleting: UIDs(objs)} }

// IDs returns strings of any type for Changes.Deleting. Use it if something other than a UID
// identifies deletions, such as the node of a pod. DeletionObserved must then be called with the
// same string.
func IDs[S ~string](ids ...S) []types.UID {
	var uids []types.UID
	for _, id := range ids {
		uids = append(uids, types.UID(id))
	}
	return uids
}

// KeyOfController returns the key of the owner that controls the child. The owner must be of the
// given kind, in any version. If no owner of that kind controls the child, or the child is nil, ok
// is false. The namespace of the key is that of the child. If owners are cluster-scoped, clear it.
func KeyOfController(child metav1.Object, kind schema.GroupKind) (key Key, ok bool) {
	if object.IsNil(child) {
		return Key{}, false
	}
	ref := metav1.GetControllerOfNoCopy(child)
	if ref == nil || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() != kind {
		return Key{}, false
	}
	return Key{types.NamespacedName{Namespace: child.GetNamespace(), Name: ref.Name}, ref.UID}, true
}

// Pointers returns pointers to the items of a list, such as PodList.Items, for Sync,
// SyncLive, Names and UIDs. The pointers point into items. The result is nil if there are
// no items.
func Pointers[T any](items []T) []*T {
	var pointers []*T
	for i := range items {
		pointers = append(pointers, &items[i])
	}
	return pointers
}

// ForgetFunc drops the records of all owners for which drop is true, such as those of a namespace
// that is gone. It calls drop once for each owner that has a record, with no lock held. A nil drop
// drops nothing. It costs O(n) in the number of owners.
func (s *Store[K]) ForgetFunc(drop func(K) bool) {
	if drop == nil {
		return
	}
	var keys []K
	for i := range s.shards {
		keys = append(keys, s.shards[i].keys()...)
	}
	for _, key := range keys {
		if drop(key) {
			s.Forget(key)
		}
	}
}

func (sh *shard[K]) keys() (keys []K) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for r := range sh.all() {
		keys = append(keys, r.key)
	}
	return keys
}

// TryAnyway is Try, but an owner whose record has Expired acts too. The changes are then recorded,
// and found is Expired. It does in one step what SatisfiedExpectations and SetExpectations do in
// Kubernetes. If found is Expired, list live before you act.
func (s *Store[K]) TryAnyway(key K, what Changes) (found State, remaining time.Duration) {
	return s.try(key, what, Expired)
}
