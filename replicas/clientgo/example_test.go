package clientgo_test

import (
	"context"
	"log"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/replicakit/replicakit/replicas/clientgo"
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
