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

// Creating returns the creations of these objects by name, which is Changes{Creating: Names(objs)}.
// Nil objects are skipped.
func Creating[T metav1.Object](objs ...T) Changes { return Changes{Creating: Names(objs)} }

// Deleting returns the deletions of these objects by UID, which is Changes{Deleting: UIDs(objs)}.
// Nil objects are skipped. If an object has no UID, as with fake clients, "namespace/name"
// identifies the object, and DeletionObserved must be called with that string.
//
// If you delete an object before the cache has shown it, the cache may never show it. In this case,
// lower the creation first:
//
//	exp.Lower(key, expectations.Creating(pod))
//	exp.Add(key, expectations.Deleting(pod))
func Deleting[T metav1.Object](objs ...T) Changes { return Changes{Deleting: UIDs(objs)} }

// IDs converts strings of any type for Changes.Deleting. Use IDs if another string than the UID
// identifies a deletion, such as the name of the pod's node. DeletionObserved must then be called
// with the same string.
func IDs[S ~string](ids ...S) []types.UID {
	var uids []types.UID
	for _, id := range ids {
		uids = append(uids, types.UID(id))
	}
	return uids
}

// KeyOfController returns the key of the owner that controls the child. The owner must be of the
// given kind, in any API version. If no owner of that kind controls the child, or if the child is
// nil, ok is false. The namespace of the key is the child's namespace. If the owners are
// cluster-scoped, clear the namespace of the key.
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

// Pointers returns pointers to the items of a list, such as PodList.Items. Sync, SyncLive, Names
// and UIDs take such pointers. The pointers refer to the items themselves, not to copies. If there
// are no items, the result is nil.
func Pointers[T any](items []T) []*T {
	var pointers []*T
	for i := range items {
		pointers = append(pointers, &items[i])
	}
	return pointers
}

// ForgetFunc drops the records of all owners for which drop returns true, such as the owners in a
// namespace that no longer exists. ForgetFunc calls drop once for each owner that has a record,
// while no lock is held. If drop is nil, ForgetFunc does nothing. ForgetFunc takes O(n) time in the
// number of owners.
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

// TryAnyway is like Try, but also records the changes if the owner's state is Expired. TryAnyway
// then returns Expired, and you must list from the API server before you act. TryAnyway does in one
// step what SatisfiedExpectations and SetExpectations do in Kubernetes.
func (s *Store[K]) TryAnyway(key K, what Changes) (found State, remaining time.Duration) {
	return s.try(key, what, Expired)
}
