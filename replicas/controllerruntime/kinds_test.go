// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

type served struct {
	kind  string
	scope meta.RESTScope
}

func namespaced(kind string) served    { return served{kind, meta.RESTScopeNamespace} }
func clusterScoped(kind string) served { return served{kind, meta.RESTScopeRoot} }

func mapperOf(kinds ...served) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds {
		mapper.Add(groupVersion.WithKind(k.kind), k.scope)
	}
	return mapper
}

func newMapper() meta.RESTMapper { return mapperOf(namespaced("WorkerPool"), namespaced("Worker")) }

type (
	specOf  = replicas.Spec[*Worker]
	outcome = controller.Outcome[*Worker]
)

// pools returns a Kind that keeps Workers for WorkerPools. The label "pool" of a Worker contains the name of its
// WorkerPool.
func pools() controller.Kind[*WorkerPool, *Worker] {
	return controller.Kind[*WorkerPool, *Worker]{
		Owner: groupVersion.WithKind("WorkerPool"),
		Child: groupVersion.WithKind("Worker"),
		Spec: func(p *WorkerPool) (specOf, error) {
			set := labels.Set{"pool": p.Name}
			return specOf{
				Replicas: p.Spec.Replicas,
				Selector: set.AsSelector(),
				New:      func(string) (*Worker, error) { return &Worker{ObjectMeta: metav1.ObjectMeta{Labels: set}}, nil },
			}, nil
		},
		Status: func(p *WorkerPool, o outcome) error {
			p.Status.Replicas, p.Status.ReadyReplicas = o.Counts.Replicas, o.Counts.Ready
			return nil
		},
		StatusOf: func(p *WorkerPool) any { return &p.Status },
	}
}
