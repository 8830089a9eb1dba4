package controllerruntime

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/replicakit/replicakit/replicas/controller"
)

// List is the live list of a Reconciler.
func List[O, C client.Object](ctx context.Context, from cluster.Cluster, kind controller.Kind[O, C], namespace string, matching labels.Selector) (controller.List[C], error) {
	return caller[O, C]{live: from.GetAPIReader(), children: objects[C]{from.GetScheme(), kind.Child}}.List(ctx, namespace, matching)
}
