// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
)

// answered are children as the server answered when they were adopted or released: a
// cache that is behind, and does not say how far it has come, shows them as they were
// before. Patches of one pass end at the same time. The zero value is ready to use.
type answered[C Object] struct {
	mu sync.Mutex
	m  map[types.UID]answer[C]
}

type answer[C Object] struct {
	child C
	at    time.Time
}

func (a *answered[C]) add(child C, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m == nil {
		a.m = map[types.UID]answer[C]{}
	}
	a.m[object.ID(child)] = answer[C]{child, at}
}

// over lays the answers over those cached children that are older, for as long as
// patience: then the cache counts. What it shows by now, or shows no more, is dropped.
func (a *answered[C]) over(cached []C, now time.Time, patience time.Duration) []C {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.m) == 0 {
		return cached
	}
	cached = slices.Clone(cached)
	kept := map[types.UID]answer[C]{}
	for i, c := range cached {
		is, ok := a.m[object.ID(c)]
		if ok && now.Sub(is.at) < patience && resourceversion.Older(c.GetResourceVersion(), is.child.GetResourceVersion()) {
			cached[i], kept[object.ID(c)] = is.child, is
		}
	}
	a.m = kept
	return cached
}
