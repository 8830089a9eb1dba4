// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
)

func errorsAs(err error, target any) bool { return errors.As(err, target) }

func requireRefused(t *testing.T, err error, reason string) {
	t.Helper()
	var refused *replicas.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, reason, refused.Reason)
}

func uids(pods []*corev1.Pod) []types.UID {
	var uids []types.UID
	for _, p := range pods {
		uids = append(uids, p.UID)
	}
	return uids
}

func deepCopies(pods []*corev1.Pod) []*corev1.Pod {
	copies := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		copies[i] = p.DeepCopy()
	}
	return copies
}

// newPod returns the first pod to create.
func newPod(tb testing.TB, scale replicas.PodScale) *corev1.Pod {
	tb.Helper()
	pod, err := scale.New(0)
	require.NoError(tb, err)
	return pod
}
