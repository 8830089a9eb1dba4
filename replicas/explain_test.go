// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// For any number of wanted pods, the plan deletes the first pods in the order of Explain. For the last of the
// deleted pods, the plan and Explain give the same reason.
func TestExplainIsTheOrderOfEveryPlan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rs := replicaSet(0)
		spec := specOf(t, rs)
		crowd := podtest.Fleet(20, 5, seed+1000)
		spec.Facts.Related = func() []*corev1.Pod { return crowd }
		pods := fleet(rs, 40, seed)
		order, err := replicas.Explain(pods, spec)
		require.NoError(t, err)
		for n := 1; n <= len(order); n++ {
			spec.Replicas = int32(len(order) - n)
			scale, err := replicas.ScaleTo(pods, spec)
			require.NoError(t, err)
			require.Len(t, scale.Delete, n)
			for i, v := range scale.Delete {
				require.Same(t, order[i].Object, v.Object, "seed %d: place %d of %d", seed, i, n)
			}
			require.Equal(t, order[n-1], scale.Delete[n-1].Victim, "seed %d", seed)
		}
	}
}

func TestExplainGoesByTheRules(t *testing.T) {
	t.Parallel()
	spec, rs := workerSpec(3), replicaSet(3)
	spec.Rules.MustStay = func(w *worker) bool { return w.Name == "old" }
	spec.Rules.Order = podrank.Must(podrank.NewOrder(podrank.Oldest[*worker]()))
	workers := []*worker{newWorker(rs, "young", 1), newWorker(rs, "old", 9), newWorker(rs, "middle", 5)}
	order, err := replicas.Explain(workers, spec)
	require.NoError(t, err)
	var names []string
	for _, v := range order {
		names = append(names, v.Object.Name+" "+v.Criterion)
	}
	assert.Equal(t, []string{"middle oldest", "young must-stay", "old must-stay"}, names)

	order, err = replicas.Explain(nil, spec)
	require.NoError(t, err)
	assert.Nil(t, order)
}

func TestExplainRefusesWhatScaleToDoes(t *testing.T) {
	t.Parallel()
	spec, w := workerSpec(3), newWorker(replicaSet(3), "a", 1)
	_, err := replicas.Explain([]*worker{w, w}, spec)
	require.EqualError(t, err, `replicas: ReplicaSet "default/web": child "default/a" (uid-a) is listed twice`)
	spec.Replicas = -1
	_, err = replicas.Explain([]*worker{w}, spec)
	requireRefused(t, err, "InvalidReplicas")
}
