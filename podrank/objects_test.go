// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
)

func TestObjects(t *testing.T) {
	t.Parallel()
	old, fresh := podtest.Pod("old"), podtest.Pod("new", podtest.NotReady)
	victims := podrank.Select([]*corev1.Pod{old, fresh}, 2, podrank.PodOptions{Now: podtest.Now})
	objs := podrank.Objects(victims)
	assert.Equal(t, []*corev1.Pod{fresh, old}, objs)
	objs[0] = nil
	assert.Same(t, fresh, victims[0].Object, "the slice is a new one")
	assert.Nil(t, podrank.Objects[*corev1.Pod](nil))
}

// Objects returns the pods to delete, without the reasons.
func ExampleObjects() {
	pods := []*corev1.Pod{{}, {}}
	pods[0].Name, pods[1].Name, pods[1].Spec.NodeName = "web-x7k2p", "web-q9d4t", "node-1"
	for _, pod := range podrank.Objects(podrank.Select(pods, 1, podrank.PodOptions{})) {
		fmt.Println(pod.Name)
	}
	// Output: web-x7k2p
}
