// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"

	"github.com/replicakit/replicakit/internal/sim/invariant"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// elsewhere is a second cluster without faults. Its owners have the names of those in the first one, and its controller
// runs in the same process, but the faults of the first must not reach it.
type elsewhere struct {
	*replicastest.PodCluster
	controller *podController
	checker    *invariant.Checker
	failed     int // number of calls that failed
}

func newElsewhere(first *replicastest.PodCluster) *elsewhere {
	e := &elsewhere{PodCluster: replicastest.NewPodCluster(replicastest.Options{Clock: first.Clock, Counting: true, Nodes: 2})}
	e.checker = invariant.New(e.PodCluster)
	for _, owner := range []string{"web", "db"} {
		if _, err := e.CreateOwner(context.Background(), replicastest.NewReplicaSet(namespace, owner, 3)); err != nil {
			panic(err)
		}
	}
	e.controller = e.NewController()
	e.checker.Watch(e.controller)
	done := e.controller.Client.Done
	e.controller.Client.Done = func(call replicastest.Call, err error) {
		done(call, err)
		if err != nil {
			e.failed++
		}
	}
	return e
}

// settled returns an error if the cluster has not six pods, if a call failed, or if an invariant is broken.
func (e *elsewhere) settled() error {
	if pods := len(e.Children(namespace)); pods != 6 || e.failed > 0 {
		return fmt.Errorf("chaos: the other cluster has %d pods of 6, and %d calls failed there", pods, e.failed)
	}
	return e.checker.Settled(namespace)
}
