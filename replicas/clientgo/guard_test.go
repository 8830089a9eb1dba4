// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// A guard detects changes to objects that caches share.
type guard struct {
	mu     sync.Mutex
	copies map[runtime.Object]runtime.Object
}

// watch copies an object when the object enters a cache.
func (g *guard) watch(obj runtime.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.copies == nil {
		g.copies = map[runtime.Object]runtime.Object{}
	}
	if g.copies[obj] == nil {
		g.copies[obj] = obj.DeepCopyObject()
	}
}

// watchAll calls watch for each object that enters the caches of the informers. Call watchAll before any other
// handler is added.
func (g *guard) watchAll(t inBubble, informers ...cache.SharedIndexInformer) {
	t.Helper()
	watch := func(obj any) { g.watch(obj.(runtime.Object)) }
	for _, informer := range informers {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: watch, UpdateFunc: func(_, obj any) { watch(obj) },
		})
		require.NoError(t, err)
	}
}

// check compares each watched object with its copy.
func (g *guard) check(t inBubble) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for obj, before := range g.copies {
		assert.Equal(t, before, obj, "a cached object was changed")
	}
}
