package clientgo

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/replicas"
)

// NewReplicationManager returns a controller for the ReplicationControllers that
// rcInformer knows: what NewReplicaSetController is for ReplicaSets, with queue,
// expectations and own-write record of its own.
//
// Differs from Kubernetes: no object is converted to a ReplicaSet and back,
// siblings are found, so that ranking by co-location works, and own writes are
// recorded here too.
func NewReplicationManager(ctx context.Context, podInformer coreinformers.PodInformer, rcInformer coreinformers.ReplicationControllerInformer, kubeClient kubernetes.Interface, burstReplicas int) (*Controller, error) {
	return NewReplicationManagerWithOptions(ctx, podInformer, rcInformer, kubeClient, burstReplicas, Options{})
}

// NewReplicationManagerWithOptions is NewReplicationManager with Options.
func NewReplicationManagerWithOptions(ctx context.Context, podInformer coreinformers.PodInformer, rcInformer coreinformers.ReplicationControllerInformer, kubeClient kubernetes.Interface, burstReplicas int, opts Options) (*Controller, error) {
	return newController(ctx, kind[*corev1.ReplicationController]{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		resource:         schema.GroupResource{Resource: "replicationcontrollers"},
		queue:            "replicationmanager",
		component:        "replication-controller",
		informer:         rcInformer.Informer(),
		probe:            &corev1.ReplicationController{ObjectMeta: probeMeta()},
		client: func(namespace string) typedClient[*corev1.ReplicationController] {
			return kubeClient.CoreV1().ReplicationControllers(namespace)
		},
		spec:     replicas.ReplicationControllerSpec,
		describe: describeReplicationControllerStatus,
		reporter: func(c *Controller, client replicas.StatusClient[*corev1.ReplicationController]) reporter[*corev1.ReplicationController] {
			return replicas.ReplicationControllerReporter{
				Client:      client,
				Consistency: c.reconciler.Consistency,
				Now:         c.clock.Now,
			}
		},
	}, podInformer.Informer(), kubeClient, burstReplicas, opts)
}

func describeReplicationControllerStatus(was, is *corev1.ReplicationController) string {
	a, b := &was.Status, &is.Status
	return fmt.Sprintf("Updating status for ReplicationController: %s/%s, replicas %d->%d (need %s), fullyLabeledReplicas %d->%d, readyReplicas %d->%d, availableReplicas %d->%d, sequence No: %d->%d",
		is.Namespace, is.Name, a.Replicas, b.Replicas, orNil(is.Spec.Replicas), a.FullyLabeledReplicas, b.FullyLabeledReplicas,
		a.ReadyReplicas, b.ReadyReplicas, a.AvailableReplicas, b.AvailableReplicas, a.ObservedGeneration, b.ObservedGeneration)
}
