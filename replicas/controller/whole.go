// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wholeEnough is how many owners without annotations are compared with the server. More of
// them would tell nothing new.
const wholeEnough = 10

// A wholeness tells whether the cache has whole owners. The status of some kinds, such as
// ReplicaSets, is written with labels and annotations. So it would erase what a transform
// of the cache drops. The zero value does not know.
type wholeness struct {
	stripped atomic.Bool  // an owner lacked labels or annotations
	compared atomic.Int64 // owners that were like the server's; wholeEnough at once if one had annotations
}

// compare compares an owner in the cache with a read of the server. Only one version of an
// owner tells something.
func (w *wholeness) compare(cached, read metav1.Object) {
	version := cached.GetResourceVersion()
	switch {
	case version == "" || version != read.GetResourceVersion():
	case !maps.Equal(cached.GetLabels(), read.GetLabels()) || !maps.Equal(cached.GetAnnotations(), read.GetAnnotations()):
		w.stripped.Store(true)
	case len(read.GetAnnotations()) > 0:
		w.compared.Add(wholeEnough)
	default:
		w.compared.Add(1)
	}
}

// unreadable notes that the rights to read owners are missing. Then nothing can be compared.
func (w *wholeness) unreadable() { w.compared.Add(1) }

// mayWrite reports whether a status may be written to an owner of the cache. One without a
// version is no API server's.
func (w *wholeness) mayWrite(cached metav1.Object) bool {
	return !w.stripped.Load() && (w.compared.Load() >= wholeEnough || cached.GetResourceVersion() == "")
}
