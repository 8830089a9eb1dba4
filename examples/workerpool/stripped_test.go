// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/replicakit/replicakit/examples/workerpool/api/v1"
)

// If the operator's cache drops the labels and annotations of pools, the operator does not erase them on the
// server.
func TestAThousandStatusesOfAStrippedPool(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	w.transform = func(obj any) (any, error) {
		if pool, ok := obj.(*v1.WorkerPool); ok {
			pool.Labels, pool.Annotations = nil, nil
		}
		return obj, nil
	}
	pool := w.pool(1)
	pool.Labels, pool.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "n"}
	w.create(pool)
	w.operate(0, config)
	w.settled(1)
	worker := w.workers()[0]
	for i := range 1000 {
		ready := int32(1 - i%2)
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"ready":%v}}`, ready == 1))
		require.NoError(t, w.client.Status().Patch(t.Context(), worker.DeepCopy(), patch))
		require.Eventually(t, func() bool { return w.get().Status.ReadyReplicas == ready }, patience, tick/10, "status %d", i)
	}
	is := w.get()
	assert.Equal(t, pool.Labels, is.Labels)
	assert.Equal(t, pool.Annotations, is.Annotations)
}
