// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"k8s.io/apimachinery/pkg/api/meta"

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

// plainPools is the Kind of the example without a rule of what is ready, so each Worker counts as ready.
func plainPools() controller.Kind[*WorkerPool, *Worker] {
	kind := pools()
	spec := kind.Spec
	kind.Spec = func(p *WorkerPool) (specOf, error) {
		s, err := spec(p)
		s.Rules = replicas.Rules[*Worker]{}
		return s, err
	}
	kind.StatusOf = func(p *WorkerPool) any { return &p.Status }
	return kind
}
