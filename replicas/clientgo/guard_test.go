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

// A guard tells whether somebody changed an object that caches share.
type guard struct {
	mu     sync.Mutex
	copies map[runtime.Object]runtime.Object
}

// watch takes a copy of an object as it is when it gets into a cache.
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

// watchAll watches what gets into the caches of informers. It must be called
// before any other handler is added.
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

// check compares all of them with their copies.
func (g *guard) check(t inBubble) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for obj, before := range g.copies {
		assert.Equal(t, before, obj, "a cached object was changed")
	}
}
