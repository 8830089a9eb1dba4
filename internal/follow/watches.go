// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Watches holds the two watches of a controller. The zero Watches contains no watch.
type Watches struct{ Owners, Children *Watch }

// A Source describes how a controller's caches are filled.
type Source struct {
	// OwnersVersion returns the resourceVersion that the watch of owners has reached. ChildrenVersion does
	// the same for the watch of children. If one of these functions is nil, its resourceVersion is unknown.
	OwnersVersion, ChildrenVersion func() string
	// Namespace is the namespace of the watches, or "" if they watch all namespaces. If the server forbids
	// requests for all namespaces, the requests use the namespace of an owner in the cache.
	Namespace string
	// OwnersKind and ChildrenKind are the watched kinds. Owners and Children are their resources.
	OwnersKind, ChildrenKind string
	Owners, Children         schema.GroupVersionResource
	// Relist ends each watch of a resource that has been silent for at least the given time; see Watch.Relist.
	// If Relist is nil, the watches cannot be ended.
	Relist func(resource schema.GroupVersionResource, silent time.Duration) (done func() bool)
}

// A versioner is a client that can read the server's resourceVersion.
type versioner interface {
	ServerOwnersVersion(ctx context.Context, namespace string) (string, error)
	ServerChildrenVersion(ctx context.Context, namespace string) (string, error)
}

// New returns the watches of a controller. If the controller's client cannot read the server's
// resourceVersion, the watches are not checked. The function owners returns the owners in the cache.
func New[O metav1.Object](client any, owners func(ctx context.Context, namespace string) ([]O, error), from Source) Watches {
	server, ok := client.(versioner)
	if !ok {
		return Watches{&Watch{Kind: from.OwnersKind}, &Watch{Kind: from.ChildrenKind}}
	}
	ownersNamespace := func(ctx context.Context) string {
		cached, err := owners(ctx, "")
		if err != nil || len(cached) == 0 {
			return ""
		}
		return cached[0].GetNamespace()
	}
	watch := func(kind string, cached func() string, live func(context.Context, string) (string, error), resource schema.GroupVersionResource) *Watch {
		w := &Watch{Kind: kind, Cached: cached, Live: live, Namespace: from.Namespace, Other: ownersNamespace}
		if from.Relist != nil {
			w.Relist = func(silent time.Duration) func() bool { return from.Relist(resource, silent) }
		}
		return w
	}
	return Watches{
		Owners:   watch(from.OwnersKind, from.OwnersVersion, server.ServerOwnersVersion, from.Owners),
		Children: watch(from.ChildrenKind, from.ChildrenVersion, server.ServerChildrenVersion, from.Children),
	}
}

// followed returns the watches for which the server's resourceVersion can be read.
func (w Watches) followed() (followed []*Watch) {
	for _, one := range []*Watch{w.Owners, w.Children} {
		if one != nil && one.Live != nil {
			followed = append(followed, one)
		}
	}
	return followed
}

// Follow checks the watches regularly until ctx ends.
func (w Watches) Follow(ctx context.Context, log Log) {
	times, other := ctx.Value(timesKey{}).(Times)
	if !other {
		times = usual
	}
	for _, one := range w.followed() {
		one.begin(times)
	}
	ticker := time.NewTicker(times.Look)
	defer ticker.Stop()
	for ctx.Err() == nil {
		for _, one := range w.followed() {
			one.look(ctx, log)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// Check returns an error if a watch is more than three minutes behind the server, or ahead of the server.
func (w Watches) Check() error {
	var errs []error
	for _, one := range w.followed() {
		errs = append(errs, one.Check())
	}
	return errors.Join(errs...)
}

// Samples returns the metrics of the watches. Every call returns the same set of metrics, with their current
// values.
func (w Watches) Samples() (samples []Sample) {
	for _, one := range []*Watch{w.Owners, w.Children} {
		if one != nil {
			samples = append(samples, one.samples()...)
		}
	}
	return samples
}
