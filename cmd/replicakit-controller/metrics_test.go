// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestWritesThatAreRefusedCount(t *testing.T) {
	t.Parallel()
	value := func() float64 {
		var m dto.Metric
		require.NoError(t, refusedWrites.Write(&m))
		return m.GetCounter().GetValue()
	}
	before := value()
	require.Error(t, newPermit(time.Second).ask(t.Context()), "there is no lease")
	assert.Greater(t, value(), before)
}

func TestRangesThatAreServed(t *testing.T) {
	t.Parallel()
	opts, err := parse([]string{"--shard-ranges=" + equalRanges(4)}, t.Output())
	require.NoError(t, err)
	m := &manager{opts: opts}
	gather := func() map[string]float64 {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(rangeCollector{m})
		families, err := registry.Gather()
		require.NoError(t, err)
		served := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				served[metric.GetLabel()[1].GetValue()+" "+metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
			}
		}
		return served
	}
	name := func(i int) string { return strconv.Itoa(i) + " " + opts.ranges[i].String() }
	assert.Equal(t, map[string]float64{name(0): 0, name(1): 0, name(2): 0, name(3): 0}, gather(), "a standby")

	joint, own := newPermit(time.Minute), newPermit(time.Minute)
	joint.renew(joint.now())
	own.renew(own.now())
	m.working.add(&cell{worker: &worker{manager: m, permits: []*permit{joint, own}, shard: &part{2, opts.ranges[2]}}})
	assert.Equal(t, map[string]float64{name(0): 0, name(1): 0, name(2): 1, name(3): 0}, gather())
	joint.revoke()
	assert.Zero(t, gather()[name(2)], "the joint lease is lost")

	m.opts.ranges = nil
	assert.Empty(t, gather(), "the work is not shared")
}

func TestOwnerTotal(t *testing.T) {
	t.Parallel()
	five := int32(5)
	failing := &appsv1.ReplicaSet{
		Spec: appsv1.ReplicaSetSpec{Replicas: &five},
		Status: appsv1.ReplicaSetStatus{Replicas: 4, ReadyReplicas: 3, AvailableReplicas: 2, Conditions: []appsv1.ReplicaSetCondition{
			{Type: "Other", Status: corev1.ConditionTrue}, {Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue},
		}},
	}
	failed := &appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{Conditions: []appsv1.ReplicaSetCondition{
		{Type: "Other", Status: corev1.ConditionTrue}, {Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionFalse},
	}}}
	failingRC := &corev1.ReplicationController{
		Spec: corev1.ReplicationControllerSpec{Replicas: &five},
		Status: corev1.ReplicationControllerStatus{Replicas: 40, ReadyReplicas: 30, AvailableReplicas: 20, Conditions: []corev1.ReplicationControllerCondition{
			{Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue},
		}},
	}
	for _, row := range []struct {
		name   string
		owners []any
		want   ownerTotal
	}{
		{"no owners", nil, ownerTotal{}},
		{"one that fails", []any{failing}, ownerTotal{desired: 5, current: 4, ready: 3, available: 2, failing: 1}},
		{"one that failed once, and whose spec is not filled in", []any{failed}, ownerTotal{}},
		{"several", []any{failing, failed, failing}, ownerTotal{desired: 10, current: 8, ready: 6, available: 4, failing: 2}},
		{"of the other kind", []any{failingRC}, ownerTotal{desired: 5, current: 40, ready: 30, available: 20, failing: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var total ownerTotal
			for _, owner := range row.owners {
				total.add(owner)
			}
			assert.Equal(t, row.want, total)
		})
	}
}
