// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// quotas returns a Kind that keeps two ConfigMaps in each Namespace. The owners are cluster-scoped, and the
// children are in namespaces.
func quotas() controller.Kind[*corev1.Namespace, *corev1.ConfigMap] {
	return controller.Kind[*corev1.Namespace, *corev1.ConfigMap]{
		Owner: corev1.SchemeGroupVersion.WithKind("Namespace"), ClusterScoped: true,
		Child: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Spec: func(ns *corev1.Namespace) (replicas.Spec[*corev1.ConfigMap], error) {
			set := labels.Set{"of": ns.Name}
			return replicas.Spec[*corev1.ConfigMap]{
				Replicas: 2, Selector: set.AsSelector(),
				New: func(string) (*corev1.ConfigMap, error) {
					return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Labels: set}}, nil
				},
			}, nil
		},
	}
}

type quotaClient = controller.Client[*corev1.Namespace, *corev1.ConfigMap]

// A hangingClient delays creations in some namespaces until the client's channel is closed. The names of these
// namespaces begin with "hangs".
type hangingClient struct {
	quotaClient
	opened chan struct{}
}

func (c hangingClient) Create(ctx context.Context, child *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	if strings.HasPrefix(child.Namespace, "hangs") {
		<-c.opened
	}
	return c.quotaClient.Create(ctx, child)
}

func TestOwnersInNoNamespace(t *testing.T) {
	t.Parallel()
	start := func(t inBubble, wrap func(quotaClient) quotaClient, namespaces ...string) (*fake.Clientset, func() map[string]int) {
		client := fake.NewClientset()
		for _, name := range namespaces {
			require.NoError(t, client.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		}
		require.NoError(t, client.Tracker().Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "orphan", Labels: map[string]string{"of": namespaces[0]}}}))
		ctx, cancel := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactory(client, 0)
		owners, children := factory.Core().V1().Namespaces().Informer(), factory.Core().V1().ConfigMaps().Informer()
		c, err := clientgo.New(ctx, quotas(),
			wrap(typed.NewClient(func(string) typedcorev1.NamespaceInterface { return client.CoreV1().Namespaces() }, client.CoreV1().ConfigMaps)),
			owners, children, clientgo.Options{})
		require.NoError(t, err)
		factory.Start(ctx.Done())
		go func() { _ = c.Run(ctx, 0) }()
		t.Cleanup(func() {
			cancel()
			factory.Shutdown()
			synctest.Wait()
		})
		settle()
		return client, func() map[string]int {
			list, err := client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
			require.NoError(t, err)
			in := map[string]int{}
			for _, c := range list.Items {
				assert.NotNil(t, metav1.GetControllerOf(&c), c.Name)
				in[c.Namespace]++
			}
			return in
		}
	}
	asIs := func(c quotaClient) quotaClient { return c }

	bubble(t, "C7 they keep children in namespaces, and adopt from all", func(t inBubble) {
		client, children := start(t, asIs, "blue", "red")
		assert.Equal(t, map[string]int{"elsewhere": 1, "blue": 1, "red": 2}, children())
		require.NoError(t, client.CoreV1().ConfigMaps("elsewhere").Delete(t.Context(), "orphan", metav1.DeleteOptions{}))
		settle()
		assert.Equal(t, map[string]int{"blue": 2, "red": 2}, children(), "its event woke the owner")
		_, err := client.CoreV1().ConfigMaps("green").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late", Labels: map[string]string{"of": "red"}}}, metav1.CreateOptions{})
		require.NoError(t, err)
		settle()
		total := 0
		for _, n := range children() {
			total += n
		}
		assert.Equal(t, 4, total, "adopted, and one too many")
	})
	bubble(t, "D7 they are no namespace's: those that hang keep nobody waiting", func(t inBubble) {
		var hanging []string
		for i := range 2 * clientgo.DefaultWorkers {
			hanging = append(hanging, fmt.Sprint("hangs-", i))
		}
		opened := make(chan struct{})
		client, children := start(t, func(c quotaClient) quotaClient { return hangingClient{c, opened} }, hanging...)
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		after(5 * time.Second)
		assert.Equal(t, 2, children()["red"])
		close(opened)
		settle()
	})
}
