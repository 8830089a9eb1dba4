package clientgo

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/replicas"
)

// NewReplicaSetController returns a controller for the ReplicaSets that
// rsInformer knows. It adds its handlers and indexes to both informers, which may
// be shared and may have been started already. A pass creates or deletes
// burstReplicas pods at most: 0 means replicas.DefaultBurstReplicas, negative is
// refused. Of ctx only the logger is used.
//
// Differs from Kubernetes: what cannot be added to an informer, as it was
// stopped, is an error.
func NewReplicaSetController(ctx context.Context, rsInformer appsinformers.ReplicaSetInformer, podInformer coreinformers.PodInformer, kubeClient kubernetes.Interface, burstReplicas int) (*Controller, error) {
	return NewReplicaSetControllerWithOptions(ctx, rsInformer, podInformer, kubeClient, burstReplicas, Options{})
}

// NewReplicaSetControllerWithOptions is NewReplicaSetController with Options.
func NewReplicaSetControllerWithOptions(ctx context.Context, rsInformer appsinformers.ReplicaSetInformer, podInformer coreinformers.PodInformer, kubeClient kubernetes.Interface, burstReplicas int, opts Options) (*Controller, error) {
	return newController(ctx, kind[*appsv1.ReplicaSet]{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		resource:         schema.GroupResource{Group: appsv1.GroupName, Resource: "replicasets"},
		queue:            "replicaset",
		component:        "replicaset-controller",
		informer:         rsInformer.Informer(),
		probe:            &appsv1.ReplicaSet{ObjectMeta: probeMeta()},
		client: func(namespace string) typedClient[*appsv1.ReplicaSet] {
			return kubeClient.AppsV1().ReplicaSets(namespace)
		},
		spec:     replicas.ReplicaSetSpec,
		describe: describeReplicaSetStatus,
		reporter: func(c *Controller, client replicas.StatusClient[*appsv1.ReplicaSet]) reporter[*appsv1.ReplicaSet] {
			return &replicas.ReplicaSetReporter{
				Client:          client,
				Consistency:     c.reconciler.Consistency,
				Now:             c.clock.Now,
				OmitTerminating: opts.OmitTerminatingReplicas,
			}
		},
	}, podInformer.Informer(), kubeClient, burstReplicas, opts)
}

func describeReplicaSetStatus(was, is *appsv1.ReplicaSet) string {
	a, b := &was.Status, &is.Status
	return fmt.Sprintf("Updating status for ReplicaSet: %s/%s, replicas %d->%d (need %s), fullyLabeledReplicas %d->%d, readyReplicas %d->%d, availableReplicas %d->%d, terminatingReplicas %s->%s, sequence No: %d->%d",
		is.Namespace, is.Name, a.Replicas, b.Replicas, orNil(is.Spec.Replicas), a.FullyLabeledReplicas, b.FullyLabeledReplicas,
		a.ReadyReplicas, b.ReadyReplicas, a.AvailableReplicas, b.AvailableReplicas,
		orNil(a.TerminatingReplicas), orNil(b.TerminatingReplicas), a.ObservedGeneration, b.ObservedGeneration)
}

func orNil(n *int32) string {
	if n == nil {
		return "nil"
	}
	return strconv.Itoa(int(*n))
}
