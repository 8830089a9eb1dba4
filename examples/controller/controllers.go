package main

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

// A controller is one that this program can run.
type controller struct {
	name        string // Z1
	alias       string
	kind        string
	workersFlag string
	resource    schema.GroupVersionResource
	informer    func(informers.SharedInformerFactory) cache.SharedIndexInformer
	build       newController
}

type newController func(context.Context, informers.SharedInformerFactory, kubernetes.Interface, int, clientgo.Options) (*clientgo.Controller, error)

func controllers() []controller {
	return []controller{{
		name:        "replicaset-controller",
		alias:       "replicaset",
		kind:        "ReplicaSet",
		workersFlag: "concurrent-replicaset-syncs",
		resource:    schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"},
		informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Apps().V1().ReplicaSets().Informer()
		},
		build: func(ctx context.Context, f informers.SharedInformerFactory, client kubernetes.Interface, burst int, opts clientgo.Options) (*clientgo.Controller, error) {
			return clientgo.NewReplicaSetControllerWithOptions(ctx, f.Apps().V1().ReplicaSets(), f.Core().V1().Pods(), client, burst, opts)
		},
	}, {
		name:        "replicationcontroller-controller",
		alias:       "replicationcontroller",
		kind:        "ReplicationController",
		workersFlag: "concurrent-rc-syncs",
		resource:    schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"},
		informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().ReplicationControllers().Informer()
		},
		build: func(ctx context.Context, f informers.SharedInformerFactory, client kubernetes.Interface, burst int, opts clientgo.Options) (*clientgo.Controller, error) {
			return clientgo.NewReplicationManagerWithOptions(ctx, f.Core().V1().Pods(), f.Core().V1().ReplicationControllers(), client, burst, opts)
		},
	}}
}

func (c controller) isCalled(name string) bool { return name == c.name || name == c.alias }

func isKnown(name string) bool {
	return slices.ContainsFunc(controllers(), func(c controller) bool { return c.isCalled(name) })
}

func controllerNames() []string {
	var names []string
	for _, c := range controllers() {
		names = append(names, c.alias)
	}
	return names
}
