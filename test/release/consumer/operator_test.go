// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package consumer_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/test/release/consumer"
)

// shop returns a ReplicaSet that wants three pods, and an orphan.
func shop() []runtime.Object {
	labels, three := map[string]string{"app": "web"}, int32(3)
	return []runtime.Object{&appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &three,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "stray", UID: "uid-stray", Labels: labels}}}
}

func TestOperatorOnAnOlderReleasePlans(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(shop()...)
	plan, err := consumer.Plan(t.Context(), client, cache.ObjectName{Namespace: "shop", Name: "web"}, time.Now())
	require.NoError(t, err)
	assert.Equal(t, "adopt 1: shop/stray; create 2", plan.String())
}

// The whole controller works with typed clients and informers. Package typed connects the controller with these
// clients and informers.
func TestOperatorOnAnOlderReleaseRuns(t *testing.T) {
	t.Parallel()
	kube := fake.NewClientset()
	watches := watched(kube)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- consumer.Run(ctx, kube) }()
	watches.Wait()
	for _, object := range shop() {
		require.NoError(t, kube.Tracker().Add(object))
	}
	for _, want := range []int32{3, 1} {
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			stored, err := kube.AppsV1().ReplicaSets("shop").Get(ctx, "web", metav1.GetOptions{})
			require.NoError(collect, err)
			if *stored.Spec.Replicas != want { // tries again, because the fake's UpdateStatus also writes the spec
				stored.Spec.Replicas = &want
				_, err = kube.AppsV1().ReplicaSets("shop").Update(ctx, stored, metav1.UpdateOptions{})
				require.NoError(collect, err)
			}
			assert.Equal(collect, want, stored.Status.Replicas)
			pods, err := kube.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
			require.NoError(collect, err)
			assert.Len(collect, pods.Items, int(want))
			for _, pod := range pods.Items {
				assert.NotNil(collect, metav1.GetControllerOf(&pod), pod.Name)
			}
		}, 2*time.Minute, 10*time.Millisecond)
	}
	stop()
	require.NoError(t, <-done)
}

// watched returns a WaitGroup that waits for watches of ReplicaSets and pods. If a fake server changes between the
// list and the watch of an informer, the change is lost.
func watched(kube *fake.Clientset) *sync.WaitGroup {
	var both sync.WaitGroup
	for _, resource := range []string{"replicasets", "pods"} {
		both.Add(1)
		begun := sync.OnceFunc(both.Done)
		kube.PrependWatchReactor(resource, func(action kubetesting.Action) (bool, watch.Interface, error) {
			defer begun()
			w, err := kube.Tracker().Watch(action.GetResource(), action.GetNamespace())
			return true, w, err
		})
	}
	return &both
}

// If an operator requires this library, the versions of its k8s.io and sigs.k8s.io modules must not change. If
// only some of them changed, client-go would no longer build.
func TestNoModuleOfKubernetesMoves(t *testing.T) {
	t.Parallel()
	alone := t.TempDir()
	mod := "module alone\n\ngo 1.25.0\n\nrequire k8s.io/client-go " + kubernetesModules(t, ".")["k8s.io/client-go"] + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(alone, "go.mod"), []byte(mod), 0o600))
	was, is := kubernetesModules(t, alone, "-mod=mod"), kubernetesModules(t, ".")
	require.Contains(t, was, "k8s.io/client-go")
	for path, version := range was {
		assert.Equal(t, version, is[path], path)
	}
}

// kubernetesModules returns the versions of the k8s.io and sigs.k8s.io modules that the module in dir uses.
func kubernetesModules(t *testing.T, dir string, flags ...string) map[string]string {
	t.Helper()
	args := append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}"}, flags...)
	list := exec.CommandContext(t.Context(), "go", append(args, "all")...)
	list.Dir, list.Stderr, list.Env = dir, os.Stderr, append(os.Environ(), "GOWORK=off")
	out, err := list.Output()
	require.NoError(t, err)
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(path, "k8s.io/") || strings.HasPrefix(path, "sigs.k8s.io/") {
			versions[path] = version
		}
	}
	return versions
}
