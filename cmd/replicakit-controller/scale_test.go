// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// runningPod returns a pod like one of a Deployment that a kubelet has started. The pod has one container, the
// volume of its service account, and the managed fields of three managers. Each owner has five pods.
func runningPod(i int) *corev1.Pod {
	fields := func(n int) *metav1.FieldsV1 {
		return metav1.NewFieldsV1(`{"f:metadata":{` + strings.Repeat(`"f:name":{},`, n) + `"f:labels":{}}}`)
	}
	at := metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	condition := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at}
	}
	name := fmt.Sprintf("frontend-7d4b9c6f5d-%05d", i)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, GenerateName: "frontend-7d4b9c6f5d-", Namespace: "tenant-0001", UID: types.UID(fmt.Sprintf("6f1c1c9e-5f57-4a59-9d2e-%012d", i)),
			ResourceVersion: "123456789", CreationTimestamp: at,
			Labels:          map[string]string{"app": "frontend", "pod-template-hash": "7d4b9c6f5d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "frontend-7d4b9c6f5d", UID: types.UID(fmt.Sprintf("1f1c1c9e-5f57-4a59-9d2e-%012d", i/5)), Controller: new(true), BlockOwnerDeletion: new(true)}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "replicakit-controller", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: fields(70)},
				{Manager: "kube-scheduler", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: fields(5)},
				{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: fields(50)},
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-0001", ServiceAccountName: "default", RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
			Volumes: []corev1.Volume{{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
			}}}}},
			Containers: []corev1.Container{{
				Name: "frontend", Image: "registry.example.com/shop/frontend:1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
				Env: []corev1.EnvVar{{Name: "A", Value: "some value"}, {Name: "B", Value: "some other value"}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-abcde", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			}},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.0.1", StartTime: &at, QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "frontend", Ready: true, Started: new(true), Image: "registry.example.com/shop/frontend:1.2.3",
				ImageID:     "registry.example.com/shop/frontend@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
				ContainerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
				State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
			}},
		},
	}
}

// runningSet returns a realistic ReplicaSet of five pods. Its selector and its template match the pods that
// runningPod returns.
func runningSet(i int) *appsv1.ReplicaSet {
	pod := runningPod(i)
	pod.Spec.Volumes, pod.Spec.NodeName, pod.Spec.Tolerations = nil, "", nil
	pod.Name = strings.TrimPrefix(pod.Name, "frontend-")
	pod.ManagedFields[2].Manager = "kube-controller-manager"
	return &appsv1.ReplicaSet{
		ObjectMeta: pod.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(5)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
		Status: appsv1.ReplicaSetStatus{Replicas: 5, FullyLabeledReplicas: 5, ReadyReplicas: 5, AvailableReplicas: 5, ObservedGeneration: 1},
	}
}

// A message is a Kubernetes object with a protobuf encoding.
type message interface {
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// sizes returns the number of bytes that one object takes on the wire, and on the heap if the cache holds the
// object.
func sizes(t *testing.T, original func(i int) message, empty func() message) (wire, kept float64) {
	t.Helper()
	const n = 20_000
	trim := newTrimmer(unmarked).trim
	before := heap()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for i := range n {
		data, err := original(i).Marshal()
		require.NoError(t, err)
		wire = float64(len(data))
		object := empty() // a new object, which shares memory with no other object
		require.NoError(t, object.Unmarshal(data))
		_, err = trim(object)
		require.NoError(t, err)
		require.NoError(t, store.Add(object))
	}
	after := heap()
	runtime.KeepAlive(store)
	return wire, float64(after-before) / n
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// On the wire and in the cache, objects are about as large as docs/scale.md says.
func TestWhatObjectsTake(t *testing.T) { //nolint:paralleltest // it measures the heap
	wire, kept := sizes(t, func(i int) message { return runningPod(i) }, func() message { return &corev1.Pod{} })
	t.Logf("a pod: %.0f bytes on the wire, %.0f in the cache", wire, kept)
	assert.InDelta(t, 3100, wire, 400)
	assert.InDelta(t, 1800, kept, 300)
	wire, kept = sizes(t, func(i int) message { return runningSet(i) }, func() message { return &appsv1.ReplicaSet{} })
	t.Logf("a set: %.0f bytes on the wire, %.0f in the cache", wire, kept)
	assert.InDelta(t, 2500, wire, 300)
	assert.InDelta(t, 6600, kept, 900)
}
