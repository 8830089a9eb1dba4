// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/status"
)

// withSidecar gives the pod an ordinary init container, and a sidecar that has restarted the given number of
// times.
func withSidecar(restarts int32) podtest.Option {
	return func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{
			{Name: "before", Image: "x"},
			{Name: "beside", Image: "x", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{
			{Name: "before", RestartCount: 9 - restarts},
			{Name: "beside", RestartCount: restarts, Image: "x"},
		}
	}
}

// unmarked is a function for the field trimmer.mark. With unmarked, a trimmer keeps no managed fields.
func unmarked(*corev1.Pod) []metav1.ManagedFieldsEntry { return nil }

func TestTrim(t *testing.T) {
	t.Parallel()
	t.Run("a pod loses what nobody reads", func(t *testing.T) {
		t.Parallel()
		pod := podtest.Pod("p", podtest.Cost("7"), podtest.Restarts(2), withSidecar(3))
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		pod.Annotations["other"] = "x"
		pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
		since := metav1.NewTime(podtest.Now)
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "m", LastTransitionTime: since},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}
		pod.Status.PodIP = "10.0.0.1"
		want := pod.DeepCopy()
		want.ManagedFields = nil
		want.Annotations = map[string]string{corev1.PodDeletionCost: "7"}
		want.Spec = corev1.PodSpec{NodeName: "node-1", InitContainers: []corev1.Container{
			{Name: "beside", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		}}
		want.Status.PodIP = ""
		want.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: since}}
		want.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", RestartCount: 2}}
		want.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "before", RestartCount: 6}, {Name: "beside", RestartCount: 3}}
		trimmed, err := newTrimmer(unmarked).trim(pod)
		require.NoError(t, err)
		assert.Equal(t, want, trimmed)
		again, err := newTrimmer(unmarked).trim(want.DeepCopy())
		require.NoError(t, err)
		assert.Equal(t, want, again)
	})
	t.Run("a tombstone is left alone", func(t *testing.T) {
		t.Parallel()
		tombstone := cache.DeletedFinalStateUnknown{Key: "default/p", Obj: podtest.Pod("p", withSidecar(3))}
		same, err := newTrimmer(unmarked).trim(tombstone)
		require.NoError(t, err)
		assert.Equal(t, tombstone, same)
	})
	t.Run("the pods of an owner share what they have in common", func(t *testing.T) {
		t.Parallel()
		trim := newTrimmer(unmarked)
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web", UID: "uid"}}
		trimmed := func(name string, options ...podtest.Option) *corev1.Pod {
			pod := podtest.Pod(name, append([]podtest.Option{podtest.OwnedBy(rs, "apps/v1", "ReplicaSet"), labelled("app", "web")}, options...)...)
			want := pod.DeepCopy()
			_, err := trim.trim(pod)
			require.NoError(t, err)
			assert.Equal(t, want.ObjectMeta, pod.ObjectMeta)
			return pod
		}
		share := func(a, b *corev1.Pod) bool {
			return reflect.ValueOf(a.Labels).Pointer() == reflect.ValueOf(b.Labels).Pointer() && &a.OwnerReferences[0] == &b.OwnerReferences[0]
		}
		a, b := trimmed("a"), trimmed("b")
		assert.True(t, share(a, b))
		other := trimmed("c", labelled("app", "other"))
		assert.False(t, share(a, other))
		assert.True(t, share(other, trimmed("d", labelled("app", "other"))), "it is compared with the last")
		for i := range mostCommon + 1 {
			rs.UID = types.UID(strconv.Itoa(i))
			trimmed("x")
		}
		assert.LessOrEqual(t, len(trim.common), mostCommon)
	})
	t.Run("a pod that is granted no time keeps that: it is gone when it is deleted", func(t *testing.T) {
		t.Parallel()
		for granted, kept := range map[int64]*int64{0: new(int64), 30: nil} {
			pod := podtest.Pod("p")
			pod.Spec.TerminationGracePeriodSeconds = &granted
			_, err := newTrimmer(unmarked).trim(pod)
			require.NoError(t, err)
			assert.Equal(t, kept, pod.Spec.TerminationGracePeriodSeconds)
		}
	})
	t.Run("the same pods are deleted, and the status is the same", func(t *testing.T) {
		t.Parallel()
		whole := podtest.Fleet(500, 7, 1)
		for i := range int32(10) {
			whole = append(whole, podtest.Pod(fmt.Sprintf("sidecar-%d", i), withSidecar(i)))
		}
		trimmed, trim := make([]*corev1.Pod, len(whole)), newTrimmer(unmarked)
		for i, pod := range whole {
			trimmed[i] = pod.DeepCopy()
			_, err := trim.trim(trimmed[i])
			require.NoError(t, err)
		}
		for n := 0; n <= len(whole); n += 17 {
			require.Equal(t, names(podrank.Select(whole, n, podrank.PodOptions{Now: podtest.Now, Related: whole})), names(podrank.Select(trimmed, n, podrank.PodOptions{Now: podtest.Now, Related: trimmed})))
		}
		rs := &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(500)), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: whole[0].Labels}}}}
		opts := status.Options{Now: podtest.Now}
		assert.Equal(t, status.Calculate(rs, whole, opts), status.Calculate(rs, trimmed, opts))
	})
}

func labelled(key, value string) podtest.Option {
	return podtest.Labels(map[string]string{key: value})
}

// names returns a string for each pod, with the pod's name, the criterion that decided, and the compared values.
func names(victims []podrank.Victim[*corev1.Pod]) (names []string) {
	for _, v := range victims {
		names = append(names, v.Object.Name+": "+fmt.Sprint(v.Criterion, v.Values))
	}
	return names
}

// The pods in answers of the server are also trimmed, because controllers keep these pods until the cache shows
// them.
func TestAnswersAreTrimmed(t *testing.T) {
	t.Parallel()
	pod := podtest.Pod("p", podtest.Cost("7"))
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	client := fake.NewClientset(pod.DeepCopy())
	pods := newTrimmer(unmarked).podClients(client)(pod.Namespace)
	want := pod.DeepCopy()
	_, err := newTrimmer(unmarked).trim(want)
	require.NoError(t, err)

	found, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, want, found)
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.Pod{*want}, list.Items)
	patched, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	assert.Equal(t, "b", patched.Labels["a"])
	assert.Empty(t, patched.Spec.Volumes)
	_, err = pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "resize")
	require.NoError(t, err)
	assert.Equal(t, "resize", client.Actions()[len(client.Actions())-1].GetSubresource())
	other := pod.DeepCopy()
	other.Name = "q"
	created, err := pods.Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Empty(t, created.Spec.Volumes)
	_, err = pods.Create(t.Context(), other, metav1.CreateOptions{})
	require.Error(t, err, "it is there")
	assert.NotEmpty(t, other.Spec.Volumes, "what is sent stays whole")
}
