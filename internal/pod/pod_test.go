// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

func TestPhaseAndDeletion(t *testing.T) {
	t.Parallel()
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodUnknown, ""} {
		p := podtest.Pod("a", podtest.Phase(phase))
		assert.True(t, pod.IsActive(p), "Y6 phase %q is active", phase)
		assert.False(t, pod.IsTerminating(p))
		podtest.Deleting(p)
		assert.False(t, pod.IsActive(p), "Y6 a pod being deleted is not active")
		assert.True(t, pod.IsTerminating(p), "T8 phase %q with a deletionTimestamp is terminating", phase)
	}
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		p := podtest.Pod("a", podtest.Phase(phase), podtest.Deleting)
		assert.True(t, pod.IsFinished(p))
		assert.False(t, pod.IsActive(p), "Y6 phase %q is not active", phase)
		assert.False(t, pod.IsTerminating(p), "T8 phase %q is not terminating", phase)
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	not := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionUnknown}
	p := podtest.Pod("a")
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, not, ready}
	assert.False(t, pod.IsReady(p), "R3 the first Ready condition counts")
	assert.Same(t, &p.Status.Conditions[1], pod.ReadyCondition(p))
	p.Status.Conditions = []corev1.PodCondition{ready, not}
	assert.True(t, pod.IsReady(p), "R3 the first Ready condition counts")
	p.Status.Conditions = nil
	assert.False(t, pod.IsReady(p), "R3 no Ready condition is not ready")
}

func TestNilPod(t *testing.T) {
	t.Parallel()
	assert.False(t, pod.IsActive(nil))
	assert.False(t, pod.IsFinished(nil))
	assert.False(t, pod.IsTerminating(nil))
	assert.False(t, pod.IsReady(nil))
	assert.Nil(t, pod.ReadyCondition(nil))
}
