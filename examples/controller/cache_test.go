package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/status"
)

// withSidecar gives the pod a container that runs before the others, and one
// that runs beside them.
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

func TestOnlyWhatIsRead(t *testing.T) {
	t.Parallel()
	t.Run("a pod loses what nobody reads", func(t *testing.T) {
		t.Parallel()
		pod := podtest.Pod("p", podtest.Cost("7"), podtest.Restarts(2), withSidecar(3))
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
		pod.Status.PodIP = "10.0.0.1"
		want := pod.DeepCopy()
		want.ManagedFields = nil
		want.Spec = corev1.PodSpec{NodeName: "node-1", InitContainers: []corev1.Container{
			{Name: "beside", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		}}
		want.Status.PodIP = ""
		want.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", RestartCount: 2}}
		want.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "before", RestartCount: 6}, {Name: "beside", RestartCount: 3}}
		trimmed, err := onlyWhatIsRead(pod)
		require.NoError(t, err)
		assert.Equal(t, want, trimmed)
		again, err := onlyWhatIsRead(want.DeepCopy())
		require.NoError(t, err)
		assert.Equal(t, want, again)
	})
	t.Run("an owner loses nothing", func(t *testing.T) {
		t.Parallel()
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
		same, err := onlyWhatIsRead(rs)
		require.NoError(t, err)
		assert.Same(t, rs, same)
		assert.Len(t, rs.ManagedFields, 1)
	})
	t.Run("the same pods are deleted, and the status is the same", func(t *testing.T) {
		t.Parallel()
		whole := podtest.Fleet(500, 7, 1)
		for i := range int32(10) {
			whole = append(whole, podtest.Pod(fmt.Sprintf("sidecar-%d", i), withSidecar(i)))
		}
		trimmed := make([]*corev1.Pod, len(whole))
		for i, pod := range whole {
			trimmed[i] = pod.DeepCopy()
			_, err := onlyWhatIsRead(trimmed[i])
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

// names also tell the reasons.
func names(victims []podrank.Victim[*corev1.Pod]) (names []string) {
	for _, v := range victims {
		names = append(names, v.Object.Name+": "+fmt.Sprint(v.Criterion, v.Values))
	}
	return names
}
