// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/replicakit/replicakit/replicas/controller"
)

// isNil reports whether an interface is nil or holds a nil pointer.
func isNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

func checkCluster(from cluster.Cluster) error {
	if isNil(from) {
		return errors.New("cluster is nil")
	}
	if isNil(from.GetAPIReader()) {
		return errors.New("the cluster has no uncached reader: GetAPIReader returned nil")
	}
	for _, part := range []struct {
		name string
		is   any
	}{
		{"GetScheme", from.GetScheme()},
		{"GetRESTMapper", from.GetRESTMapper()},
		{"GetClient", from.GetClient()},
		{"GetCache", from.GetCache()},
		{"GetFieldIndexer", from.GetFieldIndexer()},
	} {
		if isNil(part.is) {
			return fmt.Errorf("%s of the cluster returned nil", part.name)
		}
	}
	return nil
}

// checkScopes reports whether the owners of a kind are cluster-scoped, or returns an error if they cannot own the
// children.
func checkScopes[O, C controller.Object](mapper meta.RESTMapper, kind controller.Kind[O, C]) (clusterScoped bool, err error) {
	if isNil(mapper) { // it knows no kinds
		mapper = meta.NewDefaultRESTMapper(nil)
	}
	owner, err := mapper.RESTMapping(kind.Owner.GroupKind(), kind.Owner.Version)
	if err != nil {
		return false, fmt.Errorf("controllerruntime: kind %s: %w", kind.Owner.Kind, err)
	}
	child, err := mapper.RESTMapping(kind.Child.GroupKind(), kind.Child.Version)
	if err != nil {
		return false, fmt.Errorf("controllerruntime: kind %s: child %s: %w", kind.Owner.Kind, kind.Child.Kind, err)
	}
	if owner.Scope.Name() != meta.RESTScopeNameNamespace {
		return true, nil
	}
	if child.Scope.Name() != meta.RESTScopeNameNamespace {
		return false, fmt.Errorf("controllerruntime: kind %s is namespaced, but its child kind %s is cluster-scoped, so an owner cannot own a child", kind.Owner.Kind, kind.Child.Kind)
	}
	if kind.ClusterScoped {
		return false, fmt.Errorf("controllerruntime: kind %s: ClusterScoped is true, but the server has it in namespaces", kind.Owner.Kind)
	}
	return false, nil
}

// warnOfNoLeader is called when the manager starts the controllers, and warns if it elects no leader.
func (r *Reconciler[O, C]) warnOfNoLeader(logger logr.Logger, elects bool) {
	// The manager has no method that says whether it elects. But with a lease, controllers start only when client-go's metric
	// leader_election_master_status is 1.
	if !elects || !leads(metrics.Registry) {
		logger.Info("Warning: the manager elects no leader. If two processes run at the same time, they create every child twice. Set LeaderElection, LeaderElectionID and LeaderElectionNamespace of the manager's Options", "controller", r.name)
	}
}

// leads reports whether the process holds a leader election lease, as far as the metrics can be read.
func leads(gatherer prometheus.Gatherer) bool {
	families, err := gatherer.Gather()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "leader_election_master_status" && m.GetGauge().GetValue() == 1 {
				return true
			}
		}
	}
	return err != nil && len(families) == 0
}

// addIndex adds the index that the view uses to search the cache.
func (v *view[O, C]) addIndex(indexer client.FieldIndexer) error {
	field, extract := Index(v.kind)
	v.field = field
	child, err := v.children.empty()
	if err != nil {
		return err
	}
	err = indexer.IndexField(context.Background(), child, field, extract)
	if err != nil && strings.Contains(err.Error(), "indexer conflict") {
		return fmt.Errorf("controllerruntime: kind %s: the cluster has a controller of this kind already: call Add or New once for each kind and cluster: %w", v.kind.Owner.Kind, err)
	}
	if err != nil {
		return fmt.Errorf("controllerruntime: adding the index %q of %s: %w", field, v.kind.Child.Kind, err)
	}
	if !arePods[C]() {
		return nil
	}
	owner, err := v.owners.empty()
	if err != nil {
		return err
	}
	if err := indexer.IndexField(context.Background(), owner, field, extract); err != nil {
		return fmt.Errorf("controllerruntime: adding the index %q of %s: %w", field, v.kind.Owner.Kind, err)
	}
	return nil
}

// checkCache returns an error if the cache lacks the index, or the children of owners that it has.
func (v view[O, C]) checkCache(ctx context.Context) error {
	if _, err := v.byController(ctx, nil, "", noController); err != nil {
		return err
	}
	// The cache has owners in two namespaces, and children in one. All those of the other would count as missing.
	owners, err := v.Owners(ctx, "")
	if err != nil {
		return fmt.Errorf("controllerruntime: listing %s: %w", v.kind.Owner.Kind, err)
	}
	namespaces := sets.New[string]()
	for _, owner := range owners {
		namespaces.Insert(owner.GetNamespace())
	}
	for _, namespace := range sets.List(namespaces) {
		if _, err := v.byController(ctx, nil, namespace, noController); err != nil {
			return err
		}
	}
	return nil
}
