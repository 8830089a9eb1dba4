// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// +groupName=example.com
// +versionName=v1
package controllerruntime_test

import (
	"flag"
	"log"
	"log/slog"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
	"github.com/replicakit/replicakit/replicas/transport"
)

// +kubebuilder:rbac:groups=example.com,resources=workerpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=example.com,resources=workerpools/status,verbs=patch
// +kubebuilder:rbac:groups=example.com,resources=workerpools/finalizers,verbs=update
// +kubebuilder:rbac:groups=example.com,resources=workers,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=default,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=default,resources=leases,resourceNames=pools.example.com,verbs=get;update
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// pools keeps spec.replicas Workers for each WorkerPool.
func pools() controller.Kind[*WorkerPool, *Worker] {
	return controller.Kind[*WorkerPool, *Worker]{
		Owner: groupVersion.WithKind("WorkerPool"),
		Child: groupVersion.WithKind("Worker"),
		Spec: func(p *WorkerPool) (replicas.Spec[*Worker], error) {
			set := labels.Set{"pool": p.Name}
			return replicas.Spec[*Worker]{
				Replicas: p.Spec.Replicas,
				Selector: set.AsSelector(),
				New:      func(string) (*Worker, error) { return &Worker{ObjectMeta: metav1.ObjectMeta{Labels: set}}, nil },
				Rules:    replicas.Rules[*Worker]{Ready: func(w *Worker) bool { return w.Status.Ready }},
			}, nil
		},
		Status: func(p *WorkerPool, o controller.Outcome[*Worker]) error {
			p.Status.Replicas, p.Status.ReadyReplicas = o.Counts.Replicas, o.Counts.Ready
			return nil
		},
	}
}

// This operator is a whole program. Its API types are below, with the markers for controller-gen, which makes the CRDs
// and the role.
func Example() {
	flag.Parse() // --kubeconfig
	ctrl.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))
	config, watches := ctrl.GetConfigOrDie(), &transport.Watches{}
	config.Wrap(watches.Wrap) // ends a watch that hangs
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:         newScheme(),
		LeaderElection: true, LeaderElectionID: "pools.example.com", LeaderElectionNamespace: "default",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := controllerruntime.Add(mgr, pools(), controllerruntime.Options{Watches: watches}); err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// WorkerPool is one of the operator's API types. In a real operator, controller-gen also generates the methods of the
// API types.
//
// +kubebuilder:subresource:status
type WorkerPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   WorkerPoolSpec   `json:"spec"`
	Status WorkerPoolStatus `json:"status,omitzero"`
}

type WorkerPoolSpec struct {
	Replicas int32 `json:"replicas"`
}

type WorkerPoolStatus struct {
	Replicas      int32 `json:"replicas,omitempty"`
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
}

// +kubebuilder:subresource:status
type Worker struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Status WorkerStatus `json:"status,omitzero"`
}

type WorkerStatus struct {
	Ready bool `json:"ready,omitempty"`
}

type WorkerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []WorkerPool `json:"items"`
}

type WorkerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Worker `json:"items"`
}

var groupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(groupVersion, &WorkerPool{}, &WorkerPoolList{}, &Worker{}, &WorkerList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return scheme
}

func (p *WorkerPool) DeepCopy() *WorkerPool {
	c := *p
	p.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (p *WorkerPool) DeepCopyObject() runtime.Object { return p.DeepCopy() }

func (w *Worker) DeepCopy() *Worker {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (w *Worker) DeepCopyObject() runtime.Object { return w.DeepCopy() }

func (l *WorkerPoolList) DeepCopyObject() runtime.Object {
	c := WorkerPoolList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta, Items: make([]WorkerPool, len(l.Items))}
	for i := range l.Items {
		c.Items[i] = l.Items[i]
		l.Items[i].DeepCopyInto(&c.Items[i].ObjectMeta)
	}
	return &c
}

func (l *WorkerList) DeepCopyObject() runtime.Object {
	c := WorkerList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta, Items: make([]Worker, len(l.Items))}
	for i := range l.Items {
		c.Items[i] = l.Items[i]
		l.Items[i].DeepCopyInto(&c.Items[i].ObjectMeta)
	}
	return &c
}
