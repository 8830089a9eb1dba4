// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
)

func TestRollingIsWhatWasCountedInBetween(t *testing.T) {
	t.Parallel()
	before := measured{counted(t, `
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="201",host="h",method="POST"} 10
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.5
`), counted(t, `
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="replicasets",subresource="status",verb="PUT"} 2
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 7
`)}
	after := measured{counted(t, `
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="201",host="h",method="POST"} 13
rest_client_requests_total{code="403",host="h",method="POST"} 1
rest_client_requests_total{code="200",host="h",method="DELETE"} 5
rest_client_requests_total{code="200",host="h",method="GET"} 100
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.75
`), counted(t, `
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="replicasets",subresource="status",verb="PUT"} 4
apiserver_request_total{code="409",resource="replicasets",subresource="status",verb="PUT"} 1
apiserver_request_total{code="200",resource="replicasets",subresource="",verb="PUT"} 50
apiserver_request_total{code="200",resource="deployments",subresource="status",verb="PUT"} 60
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 9
`)}
	r := rolling{seconds: 12.34, fewestReady: 751}.fill(before, after)
	assert.Equal(t, rolling{
		seconds: 12.34, fewestReady: 751, cpu: 0.25, serverCPU: 2, statusWrites: 3,
		writes: map[string]float64{"POST": 4, "PUT": 0, "PATCH": 0, "DELETE": 5},
	}, r)
	assert.Equal(t, "| replicakit | 1 | 12.3 s | 751 | 0.25 s | 2.00 s | POST 4, PUT 0, PATCH 0, DELETE 5 | 3 |\n",
		rollingTable(side{title: "replicakit"}, []rolling{r}))
}

func counted(t *testing.T, text string) tally {
	t.Helper()
	counts, err := readTally(strings.NewReader(text))
	require.NoError(t, err)
	return counts
}

func TestRollingResults(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []suite.Result{
		{Test: "rolling update 1", Passed: true, Output: "only 750 pods were ready; a Deployment promises 750"},
		{Test: "rolling update 2", Output: "only 749 pods were ready; a Deployment promises 750"},
	}, rollingResults([]rolling{{fewestReady: 750}, {fewestReady: 749}}))
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	r := &readiness{ready: map[types.UID]bool{}}
	for _, uid := range []types.UID{"a", "b", "c"} {
		r.see(watch.Added, podThatIs(uid, corev1.ConditionTrue))
	}
	r.reset()
	assert.Equal(t, 3, r.fewest())
	r.see(watch.Modified, podThatIs("a", corev1.ConditionFalse))
	ending := podThatIs("b", corev1.ConditionTrue)
	ending.DeletionTimestamp = new(metav1.Now())
	r.see(watch.Modified, ending)
	assert.Equal(t, 1, r.fewest())
	r.see(watch.Added, podThatIs("d", corev1.ConditionTrue))
	assert.Equal(t, 1, r.fewest(), "the fewest, not the last")
	r.see(watch.Deleted, podThatIs("c", corev1.ConditionTrue))
	r.see(watch.Deleted, podThatIs("d", corev1.ConditionTrue))
	assert.Equal(t, 0, r.fewest())
	r.see(watch.Added, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "e"}})
	r.see(watch.Added, podThatIs("f", corev1.ConditionTrue))
	r.reset()
	assert.Equal(t, 1, r.fewest(), "a pod without conditions is not ready")
	require.NoError(t, r.await(t.Context(), 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.await(ctx, 2), context.Canceled)
}

func podThatIs(uid types.UID, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}
