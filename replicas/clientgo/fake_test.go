// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// A fakeCluster is client-go's fake clientset, as in the unit tests of operators. The fake clientset sets no UID
// and no resourceVersion.
type fakeCluster struct {
	inBubble
	*fake.Clientset
}

// newFakeCluster starts a ReplicaSet controller on a fake clientset that holds the objects.
func newFakeCluster(t inBubble, objects ...runtime.Object) *fakeCluster {
	t.Helper()
	c := &fakeCluster{t, fake.NewClientset(objects...)}
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(c, 0)
	var cached guard
	cached.watchAll(t, factory.Apps().V1().ReplicaSets().Informer(), factory.Core().V1().Pods().Informer())
	controller, err := clientgo.New(ctx, controller.ReplicaSets(), typed.NewClient(c.AppsV1().ReplicaSets, c.CoreV1().Pods),
		factory.Apps().V1().ReplicaSets().Informer(), factory.Core().V1().Pods().Informer(),
		clientgo.Options{MaxParallel: 1, MetricsRegisterer: prometheus.NewRegistry()})
	require.NoError(t, err)
	factory.Start(ctx.Done())
	go func() { _ = controller.Run(ctx, 1) }()
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		synctest.Wait()
		cached.check(t)
	})
	settle()
	return c
}

// set returns the ReplicaSet "web".
func (c *fakeCluster) set() *appsv1.ReplicaSet {
	c.Helper()
	rs, err := c.AppsV1().ReplicaSets(namespace).Get(c.Context(), "web", metav1.GetOptions{})
	require.NoError(c, err)
	require.Empty(c, rs.UID)
	require.Empty(c, rs.ResourceVersion)
	return rs
}

// scale changes the number of replicas and lets the controller settle.
func (c *fakeCluster) scale(replicas int32) {
	c.Helper()
	rs := c.set()
	rs.Spec.Replicas = &replicas
	_, err := c.AppsV1().ReplicaSets(namespace).Update(c.Context(), rs, metav1.UpdateOptions{})
	require.NoError(c, err)
	settle()
}

// owners returns the controller of each pod.
func (c *fakeCluster) owners() map[string]string {
	c.Helper()
	list, err := c.CoreV1().Pods(namespace).List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	owners := map[string]string{}
	for _, pod := range list.Items {
		require.Empty(c, pod.UID)
		owners[pod.Name] = ""
		if ref := metav1.GetControllerOf(&pod); ref != nil {
			owners[pod.Name] = ref.Kind + "/" + ref.Name
		}
	}
	return owners
}

// generated returns a copy of the map owners without the generated names of pods. In the copy, the single key
// "web-" replaces all names that start with "web-".
func generated(owners map[string]string) map[string]string {
	short := map[string]string{}
	for name, owner := range owners {
		if strings.HasPrefix(name, "web-") {
			name = "web-"
		}
		short[name] = owner
	}
	return short
}

// replicas returns the number of pods that the ReplicaSet controls. replicas also checks that status.replicas
// has the same value.
func (c *fakeCluster) replicas() int {
	c.Helper()
	n := 0
	for _, owner := range c.owners() {
		if owner == "ReplicaSet/web" {
			n++
		}
	}
	assert.EqualValues(c, n, c.set().Status.Replicas)
	return n
}

// calls counts the calls for pods with this verb, including the calls of the test itself.
func (c *fakeCluster) calls(verb string) (n int) {
	for _, action := range c.Actions() {
		if action.Matches(verb, "pods") {
			n++
		}
	}
	return n
}

// unmarked removes the UID of a pod or an owner, and sets the namespace.
func unmarked[T metav1.Object](obj T) T {
	obj.SetUID("")
	obj.SetNamespace(namespace)
	return obj
}

func fakePod(name string, labels map[string]string, refs ...metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, OwnerReferences: refs}}
}

func TestFakeClientsetWithoutUIDs(t *testing.T) {
	t.Parallel()
	app := map[string]string{"app": "web"}
	others := *metav1.NewControllerRef(unmarked(replicaSet("web", 0)), appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	plain := others
	plain.Controller, plain.Name = nil, "plain"

	bubble(t, "pods are created, adopted, deleted and released, up and down", func(t inBubble) {
		c := newFakeCluster(t, unmarked(replicaSet("web", 3)),
			fakePod("orphan", app, plain), fakePod("theirs", app, others))
		assert.Equal(t, 3, c.replicas())
		assert.Equal(t, map[string]string{
			"orphan": "ReplicaSet/web", "theirs": "StatefulSet/web", "web-": "ReplicaSet/web",
		}, generated(c.owners()))

		c.scale(7)
		assert.Equal(t, 7, c.replicas())
		c.scale(2)
		assert.Equal(t, 2, c.replicas())
		assert.Equal(t, "StatefulSet/web", c.owners()["theirs"])
		c.scale(4)
		assert.Equal(t, 4, c.replicas())

		for name, owner := range c.owners() {
			if owner == "ReplicaSet/web" {
				pod, err := c.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				pod.Labels = map[string]string{"app": "debug"}
				_, err = c.CoreV1().Pods(namespace).Update(t.Context(), pod, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
		}
		settle()
		assert.Equal(t, 4, c.replicas(), "all were relabelled: all are released and replaced")
		assert.Len(t, c.owners(), 9)
		c.scale(0)
		assert.Zero(t, c.replicas())
		assert.Len(t, c.owners(), 5)

		assert.Equal(t, []int{12, 9}, []int{c.calls("create"), c.calls("delete")}, "nothing was done twice")
		assert.GreaterOrEqual(t, c.calls("patch"), 5, "once more if a pass comes before the event: the fake tells no version")
	})
	bubble(t, "a pod that appears later is adopted, one that somebody deletes is replaced", func(t inBubble) {
		c := newFakeCluster(t, unmarked(replicaSet("web", 2)))
		_, err := c.CoreV1().Pods(namespace).Create(t.Context(), fakePod("late", app, plain), metav1.CreateOptions{})
		require.NoError(t, err)
		settle()
		assert.Equal(t, 2, c.replicas())
		assert.Equal(t, 3, c.calls("create"), "ours and this test's")
		for name := range c.owners() {
			require.NoError(t, c.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
			settle()
			assert.Equal(t, 2, c.replicas())
		}
	})
	bubble(t, "what another owner refers to without being its controller stays", func(t inBubble) {
		c := newFakeCluster(t, unmarked(replicaSet("web", 1)), fakePod("orphan", app, plain))
		pod, err := c.CoreV1().Pods(namespace).Get(t.Context(), "orphan", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, []metav1.OwnerReference{plain, *metav1.NewControllerRef(c.set(), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}, pod.OwnerReferences)

		pod.Labels = nil
		_, err = c.CoreV1().Pods(namespace).Update(t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		settle()
		pod, err = c.CoreV1().Pods(namespace).Get(t.Context(), "orphan", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, []metav1.OwnerReference{plain}, pod.OwnerReferences)
	})
	bubble(t, "a set made again under its name has none of the records of the one before", func(t inBubble) {
		c := newFakeCluster(t, unmarked(replicaSet("web", 2)))
		require.NoError(t, c.AppsV1().ReplicaSets(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
		_, err := c.AppsV1().ReplicaSets(namespace).Create(t.Context(), unmarked(replicaSet("web", 5)), metav1.CreateOptions{})
		require.NoError(t, err)
		settle()
		assert.Equal(t, 5, c.replicas())
	})
}
