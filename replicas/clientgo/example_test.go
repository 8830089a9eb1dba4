package clientgo_test

import (
	"context"
	"log"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
)

// From a kubeconfig to a running controller. It takes the place of the one in
// kube-controller-manager, and only one process may run it at a time.
func Example() {
	config, err := clientcmd.BuildConfigFromFlags("", clientcmd.RecommendedHomeFile)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.Burst = 20, 30
	client := kubernetes.NewForConfigOrDie(config)

	ctx := context.Background()
	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
	controller, err := clientgo.NewReplicaSetController(ctx,
		factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 0)
	if err != nil {
		log.Fatal(err)
	}
	factory.Start(ctx.Done())
	controller.Run(ctx, clientgo.DefaultWorkers)
}

// A kind of one's own: here a Deployment that keeps ConfigMaps instead of pods.
// With the client and the informers that client-gen makes for a custom resource it
// is the same.
func ExampleNew() {
	config, err := clientcmd.BuildConfigFromFlags("", clientcmd.RecommendedHomeFile)
	if err != nil {
		log.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	kind := controller.Kind[*appsv1.Deployment, *corev1.ConfigMap]{
		Owner: appsv1.SchemeGroupVersion.WithKind("Deployment"),
		Child: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Spec: func(owner *appsv1.Deployment) (replicas.SpecOf[*corev1.ConfigMap], error) {
			matching, err := metav1.LabelSelectorAsSelector(owner.Spec.Selector)
			return replicas.SpecOf[*corev1.ConfigMap]{
				Replicas: *owner.Spec.Replicas,
				Selector: matching,
				New: func() (*corev1.ConfigMap, error) {
					return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: owner.Spec.Template.Labels}}, nil
				},
			}, err
		},
		Status: func(owner *appsv1.Deployment, outcome controller.Outcome[*corev1.ConfigMap]) error {
			owner.Status.Replicas = outcome.Counts.Replicas
			return nil
		},
	}

	ctx := context.Background()
	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
	c, err := clientgo.New(ctx, kind, clientgo.NewClient(client.AppsV1().Deployments, client.CoreV1().ConfigMaps),
		factory.Apps().V1().Deployments().Informer(), factory.Core().V1().ConfigMaps().Informer(),
		clientgo.Options{EventClient: client.CoreV1()})
	if err != nil {
		log.Fatal(err)
	}
	factory.Start(ctx.Done())
	c.Run(ctx, clientgo.DefaultWorkers)
}
