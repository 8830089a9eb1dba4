// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/replicakit/replicakit/examples/workerpool/api/v1"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// +kubebuilder:rbac:groups=workerpool.example.com,resources=workerpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=workerpool.example.com,resources=workerpools/status,verbs=patch
// +kubebuilder:rbac:groups=workerpool.example.com,resources=workerpools/finalizers,verbs=update
// +kubebuilder:rbac:groups=workerpool.example.com,resources=workers,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=default,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=default,resources=leases,resourceNames=workerpool.example.com,verbs=get;update
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

type workers = replicas.Spec[*v1.Worker]

// workerPools defines the whole operator. It describes the wanted Workers of a pool, the state of a Worker
// and the status of the pool.
var workerPools = controller.Kind[*v1.WorkerPool, *v1.Worker]{
	Owner:    v1.GroupVersion.WithKind("WorkerPool"),
	Child:    v1.GroupVersion.WithKind("Worker"),
	Spec:     spec,
	Status:   report,
	StatusOf: func(p *v1.WorkerPool) any { return &p.Status },
}

// spec returns the wanted state of a pool.
func spec(p *v1.WorkerPool) (workers, error) {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.Selector)
	if err != nil {
		return workers{}, &replicas.RefusedError{Reason: replicas.InvalidSelector, Err: err}
	}
	unavailable := intstr.FromInt32(p.Spec.MaxUnavailable)
	return workers{
		Replicas: p.Spec.Replicas, Selector: selector, MaxUnavailable: &unavailable, Rules: rules(p),
		New: func(string) (*v1.Worker, error) {
			labels := map[string]string{revisionLabel: revision(p)}
			maps.Copy(labels, p.Spec.Template.Labels)
			return &v1.Worker{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec.Template.Spec}, nil
		},
	}, nil
}

// rules returns the rules for removing Workers. Workers are replaced if they have another revision or do
// not become ready in time. A pool with too many Workers first removes those of an old revision, then those
// that are not ready, and then the newest.
func rules(p *v1.WorkerPool) replicas.Rules[*v1.Worker] {
	current := revision(p)
	return replicas.Rules[*v1.Worker]{
		Ready:       isReady,
		ReadyWithin: readyWithin,
		MustGo:      func(w *v1.Worker) bool { return w.Labels[revisionLabel] != current },
		Order: podrank.Must(podrank.NewOrder(
			podrank.OldRevision[*v1.Worker](revisionLabel, current),
			podrank.First("not ready", func(w *v1.Worker) bool { return !isReady(w) }),
			podrank.Newest[*v1.Worker]())),
	}
}

// readyWithin is the time for which a Worker may be unready before it is replaced.
const readyWithin = 10 * time.Minute

func isReady(w *v1.Worker) bool { return w.Status.Ready }

// spare returns the number of ready Workers minus the number that the pool needs. The result is negative if
// too few Workers are ready.
func spare(p *v1.WorkerPool, ready int32) int32 {
	return ready - (p.Spec.Replicas - p.Spec.MaxUnavailable)
}
