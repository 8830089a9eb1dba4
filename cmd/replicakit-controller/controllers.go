// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	kinds "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// A controller describes one of the controllers that this program can run.
type controller struct {
	name        string // Z1
	alias       string
	queue       string // name of the work queue, and of the controller in metrics
	kind        string
	workersFlag string
	resource    schema.GroupVersionResource
	prober      func(client kubernetes.Interface, namespace string) prober
	informer    func(informers.SharedInformerFactory) cache.SharedIndexInformer
	build       newController
}

type newController func(context.Context, informers.SharedInformerFactory, kubernetes.Interface, settings, clientgo.Options) (*clientgo.Controller, error)

// settings holds what this program adds to one of Kubernetes' controllers.
type settings struct {
	queue  string // the queue of the controller
	orders *orders
	passes *passes
	pods   *trimmer
	// passed is called at the end of each pass.
	passed func(owner types.NamespacedName, made, wanted int, now time.Time)
	// isProbe reports whether an owner is a probe. The controllers never write the status of a
	// probe.
	isProbe func(owner types.UID) bool
}

func controllers() []controller {
	return []controller{{
		name:        "replicaset-controller",
		alias:       "replicaset",
		queue:       "replicaset",
		kind:        "ReplicaSet",
		workersFlag: "concurrent-replicaset-syncs",
		resource:    schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"},
		prober: func(client kubernetes.Interface, namespace string) prober {
			return proberOf(client.AppsV1().ReplicaSets(namespace), func(about metav1.ObjectMeta, labels map[string]string) *appsv1.ReplicaSet {
				return &appsv1.ReplicaSet{ObjectMeta: about, Spec: appsv1.ReplicaSetSpec{
					Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: probeTemplate(labels),
				}}
			})
		},
		informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Apps().V1().ReplicaSets().Informer()
		},
		build: func(ctx context.Context, f informers.SharedInformerFactory, client kubernetes.Interface, set settings, opts clientgo.Options) (*clientgo.Controller, error) {
			return clientgo.New(ctx, withSettings(set, kinds.ReplicaSets()), typed.NewClient(client.AppsV1().ReplicaSets, set.pods.podClients(client)),
				f.Apps().V1().ReplicaSets().Informer(), f.Core().V1().Pods().Informer(), opts)
		},
	}, {
		name:        "replicationcontroller-controller",
		alias:       "replicationcontroller",
		queue:       "replicationmanager",
		kind:        "ReplicationController",
		workersFlag: "concurrent-rc-syncs",
		resource:    schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"},
		prober: func(client kubernetes.Interface, namespace string) prober {
			return proberOf(client.CoreV1().ReplicationControllers(namespace), func(about metav1.ObjectMeta, labels map[string]string) *corev1.ReplicationController {
				template := probeTemplate(labels)
				return &corev1.ReplicationController{ObjectMeta: about, Spec: corev1.ReplicationControllerSpec{
					Replicas: new(int32), Selector: labels, Template: &template,
				}}
			})
		},
		informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().ReplicationControllers().Informer()
		},
		build: func(ctx context.Context, f informers.SharedInformerFactory, client kubernetes.Interface, set settings, opts clientgo.Options) (*clientgo.Controller, error) {
			return clientgo.New(ctx, withSettings(set, kinds.ReplicationControllers()), typed.NewClient(client.CoreV1().ReplicationControllers, set.pods.podClients(client)),
				f.Core().V1().ReplicationControllers().Informer(), f.Core().V1().Pods().Informer(), opts)
		},
	}}
}

// withSettings returns a copy of kind that uses the settings. If the order of an owner is invalid, or needs nodes
// that are not listed yet, passes of the owner delete no pods, but do all their other work.
func withSettings[O kinds.Object](set settings, kind kinds.Kind[O, *corev1.Pod]) kinds.Kind[O, *corev1.Pod] {
	original := kind.Spec
	kind.Spec = func(owner O) (replicas.SpecOfPods, error) {
		spec, err := original(owner)
		spec.Rules.Order = set.orders.order(owner)
		return spec, err
	}
	update := kind.Status
	kind.Status = func(owner O, outcome kinds.Outcome[*corev1.Pod]) error {
		if set.isProbe(owner.GetUID()) {
			return nil
		}
		return update(owner, outcome)
	}
	kind.Prepare = func(_ context.Context, owner O, step *kinds.Step[*corev1.Pod]) (err error) {
		if len(step.Delete) == 0 {
			return nil
		}
		var may bool
		if may, step.RequeueAfter, err = set.orders.admit(kind.Owner.Kind, owner); !may {
			step.Delete = nil
		}
		return err
	}
	kind.Observe = func(_ context.Context, pass kinds.Pass[O, *corev1.Pod]) {
		keep(set.passes, kind.Owner.Kind, pass)
		set.passed(pass.Name, len(pass.Created), int(pass.Desired), pass.Now)
		if any(pass.Owner) != any(*new(O)) { // the pass has found the owner
			set.orders.passed(set.queue, pass.Owner, len(pass.Deleted))
		}
	}
	return kind
}

func (c controller) isCalled(name string) bool { return name == c.name || name == c.alias }

func isKnown(name string) bool {
	return slices.ContainsFunc(controllers(), func(c controller) bool { return c.isCalled(name) })
}

// namesOf returns the names that kube-controller-manager has for these controllers.
func namesOf(controllers []controller) []string {
	names := make([]string, len(controllers))
	for i, c := range controllers {
		names[i] = c.name
	}
	return names
}

func controllerNames() []string {
	var names []string
	for _, c := range controllers() {
		names = append(names, c.alias)
	}
	return names
}
