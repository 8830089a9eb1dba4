// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// A worker is a child that is not a pod.
type worker struct {
	metav1.ObjectMeta
	ready bool
}

// newWorker returns a worker of the ReplicaSet. The worker is the given number of minutes old.
func newWorker(rs *appsv1.ReplicaSet, name string, minutes int, changes ...func(*worker)) *worker {
	w := &worker{ObjectMeta: metav1.ObjectMeta{
		Namespace: podtest.Namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Labels: web,
		CreationTimestamp: metav1.NewTime(podtest.Now.Add(-time.Duration(minutes) * time.Minute)),
		OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(rs, replicaSetKind)},
	}}
	for _, change := range changes {
		change(w)
	}
	return w
}

// workerSpec returns a spec with n workers for the ReplicaSet default/web.
func workerSpec(n int32) replicas.Spec[*worker] {
	return replicas.Spec[*worker]{
		Owner: replicaSet(n), Kind: replicaSetKind, Replicas: n, Selector: labels.SelectorFromSet(web),
		Facts: replicas.Facts[*worker]{Now: podtest.Now},
		New:   func(string) (*worker, error) { return &worker{ObjectMeta: metav1.ObjectMeta{Labels: web}}, nil },
	}
}

// orphans returns n workers that no owner controls.
func orphans(n int) (list []*worker) {
	for i := range n {
		list = append(list, &worker{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("orphan-", i), Labels: web}})
	}
	return list
}

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
