// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// ownWrite is the last write of an owner's status from which nothing else follows, by
// the resourceVersions of the owner before and after it: an update from the one to the
// other shows nothing that we did not write (V15). Nobody else wrote in between, since the server refuses a
// write to a version that it does not have any more. The zero value is no write.
// Passes and event handlers use it at the same time.
type ownWrite struct {
	mu            sync.Mutex
	before, after string
	underWay      bool
	awaited       bool // by a pass that did not see it
	// seen is the version of an update that came while the write was under way,
	// and wake asks for the pass that it is worth if it turns out not to be ours.
	seen string
	wake func()
}

func (w *ownWrite) begin(before string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after, w.underWay, w.awaited = before, "", before != "", false
}

// end tells which version the write left, "" if none, or if another pass is to see it.
func (w *ownWrite) end(after string) {
	w.mu.Lock()
	wake, other := w.wake, w.seen != "" && w.seen != after
	w.after, w.underWay, w.seen, w.wake = after, false, "", nil
	w.mu.Unlock()
	if other {
		wake()
	}
}

// explains reports whether an update shows the write and nothing else. As long as the
// write is under way that is not known: then wake is called later if it does not.
func (w *ownWrite) explains(was, cur metav1.Object, wake func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	version := cur.GetResourceVersion()
	switch {
	case w.before == "" || w.awaited || was.GetResourceVersion() != w.before || version == "" || !sameMeta(was, cur):
		return false
	case w.underWay && w.seen == "":
		w.seen, w.wake = version, wake
		return true
	}
	return w.after == version && version != w.before
}

// await notes that a pass begins, and read which version of the owner it goes by. If
// that does not show the write yet, the update that does is not explained by it.
func (w *ownWrite) await() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awaited = true
}

func (w *ownWrite) read(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.after == "" || w.after == version || resourceversion.Reached(version, w.after) {
		w.awaited = false
	}
}

// sameMeta reports whether two versions of an object differ, if at all, in the
// status and in what the server keeps about it. That the generation is the same
// tells that the spec is.
func sameMeta(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() &&
		a.GetDeletionTimestamp().Equal(b.GetDeletionTimestamp()) &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		equality.Semantic.DeepEqual(a.GetFinalizers(), b.GetFinalizers()) &&
		equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences())
}
