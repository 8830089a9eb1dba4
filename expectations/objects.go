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

// Creating returns Changes{Creating: Names(objs)}, which identifies the creations of these objects
// by name. Nil objects are skipped.
func Creating[T metav1.Object](objs ...T) Changes { return Changes{Creating: Names(objs)} }

// Deleting returns Changes{Deleting: UIDs(objs)}, which identifies the deletions of these objects
// by UID. Nil objects are skipped. An object without a UID, for example from a fake client, is
// identified by "namespace/name". For an object without a UID, pass the string "namespace/name" to
// DeletionObserved.
//
// If you delete an object that the cache has not shown yet, call Lower for the creation before you
// call Add for the deletion, because the cache might never show the object:
//
//	exp.Lower(key, expectations.Creating(pod))
//	exp.Add(key, expectations.Deleting(pod))
func Deleting[T metav1.Object](objs ...T) Changes { return Changes{Deleting: UIDs(objs)} }

// IDs converts strings to the type of Changes.Deleting. Use IDs if you identify deletions by strings other than
// UIDs, such as the names of the pods' nodes. Call DeletionObserved with the same strings.
func IDs[S ~string](ids ...S) []types.UID {
	var uids []types.UID
	for _, id := range ids {
		uids = append(uids, types.UID(id))
	}
	return uids
}

// KeyOfController returns the key of the owner that controls the child. The owner must have the
// given kind, in any API version. If the child is nil or has no controller of this kind, ok is
// false. The key contains the namespace of the child. If the owners are cluster-scoped, clear this
// namespace.
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

// Pointers returns pointers to the items of a list, such as PodList.Items. Use Pointers to pass the
// items to Sync, SyncLive, Names or UIDs. The pointers refer to the items of the list, not to
// copies. If there are no items, the result is nil.
func Pointers[T any](items []T) []*T {
	var pointers []*T
	for i := range items {
		pointers = append(pointers, &items[i])
	}
	return pointers
}

// ForgetFunc drops the record of each owner for which the function drop returns true. For example,
// the function may select the owners in a namespace that no longer exists. ForgetFunc calls this
// function once for each owner that has a record, and does not hold a lock during the call. If drop
// is nil, ForgetFunc does nothing. ForgetFunc takes O(n) time in the number of owners.
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

// TryAnyway is like Try, but also records the changes if the owner's state is Expired. In this case
// TryAnyway returns Expired, and you must list from the API server before you act. TryAnyway
// combines SatisfiedExpectations and SetExpectations of Kubernetes in one step.
func (s *Store[K]) TryAnyway(key K, what Changes) (found State, remaining time.Duration) {
	return s.try(key, what, Expired)
}
