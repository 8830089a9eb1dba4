// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// This example makes a client from a kubeconfig, and runs a ReplicaSet controller. The controller replaces the
// ReplicaSet controller of kube-controller-manager. Only one process may run the controller at a time.
func Example() {
	config, err := clientcmd.BuildConfigFromFlags("", clientcmd.RecommendedHomeFile)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.Burst = 20, 30
	config.Wrap(clientgo.CapRetryAfter)
	client := kubernetes.NewForConfigOrDie(config)

	ctx := context.Background()
	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
	controller, err := clientgo.NewReplicaSetController(ctx,
		factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 0)
	if err != nil {
		log.Fatal(err)
	}
	factory.Start(ctx.Done())
	if err := controller.Run(ctx, clientgo.DefaultWorkers); err != nil {
		log.Fatal(err)
	}
}

// configMaps returns a Kind of Deployments that keep ConfigMaps instead of pods.
func configMaps() controller.Kind[*appsv1.Deployment, *corev1.ConfigMap] {
	return controller.Kind[*appsv1.Deployment, *corev1.ConfigMap]{
		Owner: appsv1.SchemeGroupVersion.WithKind("Deployment"),
		Child: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Spec: func(owner *appsv1.Deployment) (replicas.Spec[*corev1.ConfigMap], error) {
			matching, err := metav1.LabelSelectorAsSelector(owner.Spec.Selector)
			return replicas.Spec[*corev1.ConfigMap]{
				Replicas: *owner.Spec.Replicas,
				Selector: matching,
				New: func(string) (*corev1.ConfigMap, error) {
					return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: owner.Spec.Selector.MatchLabels}}, nil
				},
			}, err
		},
		Status: func(owner *appsv1.Deployment, outcome controller.Outcome[*corev1.ConfigMap]) error {
			owner.Status.Replicas = outcome.Counts.Replicas
			return nil
		},
	}
}

// This example defines a new Kind, a Deployment that keeps ConfigMaps instead of pods. A Kind of custom
// resources works in the same way, with the clients and informers that are generated for these resources. The
// API server is client-go's fake clientset.
func ExampleNew() {
	three := int32(3)
	app := map[string]string{"app": "web"}
	client := fake.NewClientset(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: &three, Selector: &metav1.LabelSelector{MatchLabels: app}},
	})
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	kind := configMaps()
	kind.Observe = func(_ context.Context, pass controller.Pass[*appsv1.Deployment, *corev1.ConfigMap]) {
		if pass.Status != nil && pass.Status.Status.Replicas == 3 {
			stop() // the example ends here
		}
	}

	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
	c, err := clientgo.New(ctx, kind, typed.NewClient(client.AppsV1().Deployments, client.CoreV1().ConfigMaps),
		factory.Apps().V1().Deployments().Informer(), factory.Core().V1().ConfigMaps().Informer(),
		clientgo.Options{EventClient: client.CoreV1()})
	if err != nil {
		fmt.Println(err)
		return
	}
	factory.Start(ctx.Done())
	if err := c.Run(ctx, clientgo.DefaultWorkers); err != nil {
		fmt.Println(err)
		return
	}

	children, err := client.CoreV1().ConfigMaps("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, child := range children.Items {
		fmt.Println(child.GenerateName, child.Labels, child.OwnerReferences[0].Kind)
	}
	// Output:
	// web- map[app:web] Deployment
	// web- map[app:web] Deployment
	// web- map[app:web] Deployment
}

// This example runs the controller of ReplicationControllers, as kube-controller-manager does. The example waits
// for the event that reports the creation of a pod. The API server is client-go's fake clientset.
func ExampleNewReplicationManager() {
	one := int32(1)
	app := map[string]string{"app": "web"}
	client := fake.NewClientset(&corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &one,
			Selector: app,
			Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}},
		},
	})
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
	manager, err := clientgo.NewReplicationManager(ctx,
		factory.Core().V1().Pods(), factory.Core().V1().ReplicationControllers(), client, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	events, err := client.CoreV1().Events("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	factory.Start(ctx.Done())
	go func() { _ = manager.Run(ctx, clientgo.DefaultWorkers) }()

	if event, ok := (<-events.ResultChan()).Object.(*corev1.Event); ok {
		fmt.Println(event.Source.Component, event.InvolvedObject.Kind, event.Reason)
	}
	// Output:
	// replication-controller ReplicationController SuccessfulCreate
}

// A webhook answers every creation with a Retry-After of ten minutes. Without CapRetryAfter, the call would wait
// ten minutes and send the request again, up to ten times. With CapRetryAfter, the call ends at once, and its
// error contains the delay.
func ExampleCapRetryAfter() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		http.Error(w, "the webhook is busy", http.StatusTooManyRequests)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	config.Wrap(clientgo.CapRetryAfter)
	client := kubernetes.NewForConfigOrDie(config)

	_, err := client.CoreV1().Pods("default").Create(context.Background(), &corev1.Pod{}, metav1.CreateOptions{})
	seconds, ok := apierrors.SuggestsClientDelay(err)
	fmt.Println(apierrors.IsTooManyRequests(err), seconds, ok)
	// Output: true 600 true
}
