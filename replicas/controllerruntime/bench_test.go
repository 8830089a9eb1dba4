// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

// BenchmarkChildren lists pods in a cache of controller-runtime with 10,000 pods in one namespace. Two cases
// list the whole namespace. The third case uses the index to find the ten pods of one ReplicaSet.
func BenchmarkChildren(b *testing.B) {
	for _, bench := range []struct {
		name string
		opts func(field string) []client.ListOption
		want int
	}{
		{"namespace", func(string) []client.ListOption { return nil }, 10_000},
		{"namespace, not copied", func(string) []client.ListOption {
			return []client.ListOption{client.UnsafeDisableDeepCopy}
		}, 10_000},
		{"index, not copied", func(field string) []client.ListOption {
			return []client.ListOption{client.MatchingFields{field: "uid/set-7"}, client.UnsafeDisableDeepCopy}
		}, 10},
	} {
		b.Run("pods=10000/"+bench.name, func(b *testing.B) {
			field, from := cacheOfPods(b, 1000, 10)
			opts := append(bench.opts(field), client.InNamespace("default"))
			b.ReportAllocs()
			for b.Loop() {
				var list corev1.PodList
				require.NoError(b, from.List(b.Context(), &list, opts...))
				require.Len(b, list.Items, bench.want)
			}
		})
	}
}

// cacheOfPods returns a running cache with the pods of several ReplicaSets, and the name of its index field. The
// last argument is the number of pods per ReplicaSet.
func cacheOfPods(b *testing.B, sets, each int) (field string, from cache.Cache) {
	b.Helper()
	var pods corev1.PodList
	for i := range sets {
		for j := range each {
			pods.Items = append(pods.Items, *podOf(i, j))
		}
	}
	from, err := cache.New(realServer(b), cache.Options{NewInformer: func(_ toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &pods, nil },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
		}, obj, resync, indexers)
	}})
	require.NoError(b, err)
	field, extract := controllerruntime.Index(controller.ReplicaSets())
	require.NoError(b, from.IndexField(b.Context(), &corev1.Pod{}, field, extract))
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- from.Start(ctx) }()
	b.Cleanup(func() {
		stop()
		require.NoError(b, <-ended)
	})
	require.True(b, from.WaitForCacheSync(ctx))
	return field, from
}

func podOf(set, n int) *corev1.Pod {
	isController := true
	name := fmt.Sprintf("set-%d", set)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("%s-%d", name, n), UID: types.UID(fmt.Sprintf("%s-%d", name, n)),
			ResourceVersion: "1", Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: &isController}},
		},
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		}},
	}
}
