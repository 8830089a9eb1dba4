// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/replicakit/replicakit/expectations"
)

// ControllerExpectations counts with our expectations.ControllerExpectations.
type ControllerExpectations struct {
	ours *expectations.ControllerExpectations[string]
}

// NewControllerExpectations returns an empty record.
func NewControllerExpectations() *ControllerExpectations {
	return &ControllerExpectations{&expectations.ControllerExpectations[string]{}}
}

// NewFakeControllerExpectationsLookup replaces a helper of Kubernetes' tests. The helper creates expectations
// with a store whose entries expire. Our expectations have a timeout and a clock as fields instead.
func NewFakeControllerExpectationsLookup(timeout time.Duration) (*ControllerExpectations, *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	ours := &expectations.ControllerExpectations[string]{}
	ours.Timeout, ours.Now = timeout, clock.Now
	return &ControllerExpectations{ours}, clock
}

// SetExpectations calls the same method of our expectations.
func (e *ControllerExpectations) SetExpectations(_ klog.Logger, key string, add, del int) {
	e.ours.SetExpectations(key, add, del)
}

// CreationObserved calls the same method of our expectations.
func (e *ControllerExpectations) CreationObserved(_ klog.Logger, key string) {
	e.ours.CreationObserved(key)
}

// DeletionObserved calls the same method of our expectations.
func (e *ControllerExpectations) DeletionObserved(_ klog.Logger, key string) {
	e.ours.DeletionObserved(key)
}

// SatisfiedExpectations calls the same method of our expectations.
func (e *ControllerExpectations) SatisfiedExpectations(_ klog.Logger, key string) bool {
	return e.ours.SatisfiedExpectations(key)
}

// GetExpectations calls the same method of our expectations.
func (e *ControllerExpectations) GetExpectations(key string) (*ControlleeExpectations, bool, error) {
	adds, dels, ok := e.ours.GetExpectations(key)
	return &ControlleeExpectations{int64(adds), int64(dels)}, ok, nil
}

// ControlleeExpectations contains two numbers for one owner: the expected creations and the expected
// deletions.
type ControlleeExpectations struct{ add, del int64 }

// Add adds the given numbers to these two numbers.
func (e *ControlleeExpectations) Add(add, del int64) { e.add, e.del = e.add+add, e.del+del }

// Fulfilled reports whether both numbers are 0 or negative.
func (e *ControlleeExpectations) Fulfilled() bool { return e.add <= 0 && e.del <= 0 }

// GetExpectations returns the two numbers.
func (e *ControlleeExpectations) GetExpectations() (add, del int64) { return e.add, e.del }

// A Record holds our expectations for all owners.
type Record interface {
	ExpectDeletions(key expectations.Key, uids []types.UID)
	CreationObserved(key expectations.Key)
	DeletionObserved(key expectations.Key, uid types.UID) bool
	SatisfiedExpectations(key expectations.Key) bool
	DeleteExpectations(key expectations.Key)
	Get(key expectations.Key) (expectations.Pending, bool)
}

// UIDTrackingControllerExpectations records deletions in our expectations. It uses the names of the pods as
// their UIDs.
type UIDTrackingControllerExpectations struct {
	Ours Record
	// Key converts a key of the tests into our expectations.Key.
	Key func(string) expectations.Key
}

// NewUIDTrackingControllerExpectations returns an empty record. The parameter is ignored, because our record
// tracks pods and does not need a counter.
func NewUIDTrackingControllerExpectations(*ControllerExpectations) *UIDTrackingControllerExpectations {
	return &UIDTrackingControllerExpectations{
		Ours: &expectations.UIDTrackingControllerExpectations[expectations.Key]{},
		Key: func(key string) expectations.Key {
			return expectations.Key{NamespacedName: types.NamespacedName{Name: key}}
		},
	}
}

// ExpectDeletions calls the same method of our expectations.
func (e *UIDTrackingControllerExpectations) ExpectDeletions(_ klog.Logger, key string, pods []string) {
	uids := make([]types.UID, len(pods))
	for i, pod := range pods {
		uids[i] = types.UID(pod)
	}
	e.Ours.ExpectDeletions(e.Key(key), uids)
}

// CreationObserved calls the same method of our expectations.
func (e *UIDTrackingControllerExpectations) CreationObserved(_ klog.Logger, key string) {
	e.Ours.CreationObserved(e.Key(key))
}

// DeletionObserved calls the same method of our expectations.
func (e *UIDTrackingControllerExpectations) DeletionObserved(_ klog.Logger, key, pod string) {
	e.Ours.DeletionObserved(e.Key(key), types.UID(pod))
}

// SatisfiedExpectations calls the same method of our expectations.
func (e *UIDTrackingControllerExpectations) SatisfiedExpectations(_ klog.Logger, key string) bool {
	return e.Ours.SatisfiedExpectations(e.Key(key))
}

// DeleteExpectations calls the same method of our expectations.
func (e *UIDTrackingControllerExpectations) DeleteExpectations(_ klog.Logger, key string) {
	e.Ours.DeleteExpectations(e.Key(key))
}

// GetExpectations calls the same method of our expectations.
func (e *UIDTrackingControllerExpectations) GetExpectations(key string) (*ControlleeExpectations, bool, error) {
	pending, ok := e.Ours.Get(e.Key(key))
	adds, dels := pending.Total()
	return &ControlleeExpectations{int64(adds), int64(dels)}, ok, nil
}

// GetUIDs returns the names of the pods whose deletion is still expected, or nil if there are none.
func (e *UIDTrackingControllerExpectations) GetUIDs(key string) sets.String {
	pending, _ := e.Ours.Get(e.Key(key))
	if pending.Deleting == nil {
		return nil
	}
	pods := sets.NewString()
	for _, uid := range pending.Deleting {
		pods.Insert(string(uid))
	}
	return pods
}
