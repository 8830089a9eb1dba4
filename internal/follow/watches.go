// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/transport"
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
	// Owners and Children are the watched resources.
	Owners, Children schema.GroupVersionResource
	// Transport can end the watches. If Transport is nil, the watches cannot be ended.
	Transport *transport.Watches
}

// New returns the watches of a controller. If the controller's client is not a controller.Versioner, the
// watches are not checked.
func New[O, C controller.Object](kind controller.Kind[O, C], client controller.Client[O, C], cache controller.OwnerCache[O], from Source) Watches {
	versioner, ok := client.(controller.Versioner)
	if !ok {
		return Watches{&Watch{Kind: kind.Owner.Kind}, &Watch{Kind: kind.Child.Kind}}
	}
	ownersNamespace := func(ctx context.Context) string {
		owners, err := cache.Owners(ctx, "")
		if err != nil || len(owners) == 0 {
			return ""
		}
		return owners[0].GetNamespace()
	}
	watch := func(kind string, cached func() string, live func(context.Context, string) (string, error), resource schema.GroupVersionResource) *Watch {
		w := &Watch{Kind: kind, Cached: cached, Live: live, Namespace: from.Namespace, Other: ownersNamespace}
		if from.Transport != nil {
			w.Relist = func(silent time.Duration) func() bool { return from.Transport.Relist(resource, silent) }
		}
		return w
	}
	return Watches{
		Owners:   watch(kind.Owner.Kind, from.OwnersVersion, versioner.ServerOwnersVersion, from.Owners),
		Children: watch(kind.Child.Kind, from.ChildrenVersion, versioner.ServerChildrenVersion, from.Children),
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
func (w Watches) Samples() (samples []controller.Sample) {
	for _, one := range []*Watch{w.Owners, w.Children} {
		if one != nil {
			samples = append(samples, one.samples()...)
		}
	}
	return samples
}
