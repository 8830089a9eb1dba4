// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/replicakit/replicakit/internal/follow"
	"github.com/replicakit/replicakit/replicas/transport"
)

// FollowWatches checks the watches of the owners and of the children until ctx ends, and then returns nil. Add adds
// it to the manager. For a controller that you build yourself, add it yourself:
//
//	err = mgr.Add(manager.RunnableFunc(r.FollowWatches))
//
// Some caches do not report the resourceVersion that they have reached, for example that of a manager with
// cache.Options.DefaultNamespaces. Their watches are checked only if Options.Watches is set: when one receives
// nothing for two and a half minutes, not even a bookmark, its objects are listed again.
func (r *Reconciler[O, C]) FollowWatches(ctx context.Context) error {
	if r.made() == nil {
		return errors.New("controllerruntime: New did not make this Reconciler")
	}
	logger := log.FromContext(ctx).WithValues("controller", r.name)
	r.watches.Follow(ctx, func(err error, message string, keysAndValues ...any) {
		if err != nil {
			logger.Error(err, message, keysAndValues...)
			return
		}
		logger.Info(message, keysAndValues...)
	})
	return nil
}

// CheckWatches returns an error if a watch is more than three minutes behind the server, or ahead of it, for example
// after the server was restored from a backup. It is a healthz.Checker, so that the kubelet can restart the
// program when a watch hangs; see Options.Healthz. The request is ignored, and may be nil.
func (r *Reconciler[O, C]) CheckWatches(*http.Request) error {
	if r == nil {
		return nil
	}
	return r.watches.Check()
}

// A following is a Runnable that a manager starts together with the caches, because it has GetCache. Even the first
// watch can hang, and then the caches are never filled.
type following struct {
	cache  cache.Cache
	follow func(context.Context) error
}

func (f following) GetCache() cache.Cache           { return f.cache }
func (f following) Start(ctx context.Context) error { return f.follow(ctx) }

// watches returns the follow.Watches for the owners and children of a cache.
func (v view[O, C]) watches(from cluster.Cluster, calls caller[O, C], transport *transport.Watches) (follow.Watches, error) {
	owner, err := v.owners.empty()
	if err != nil {
		return follow.Watches{}, err
	}
	child, err := v.children.empty()
	if err != nil {
		return follow.Watches{}, err
	}
	resource := func(kind schema.GroupVersionKind) schema.GroupVersionResource {
		mapping, err := from.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil { // in this case, New has already returned an error
			return schema.GroupVersionResource{}
		}
		return mapping.Resource
	}
	source := follow.Source{
		OwnersVersion: syncedOf(from.GetCache(), owner), ChildrenVersion: syncedOf(from.GetCache(), child),
		OwnersKind: v.kind.Owner.Kind, ChildrenKind: v.kind.Child.Kind, Owners: resource(v.kind.Owner), Children: resource(v.kind.Child),
	}
	if transport != nil {
		source.Relist = transport.Relist
	}
	return follow.New(calls, v.Owners, source), nil
}
