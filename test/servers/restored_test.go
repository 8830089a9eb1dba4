// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package servers_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// The data of etcd is put back to a copy, below a controller that goes on. A server that is only started again
// is no restore.
func TestAnEtcdThatIsPutBack(t *testing.T) {
	t.Parallel()
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	plane, err := controlplane.Start(binaries, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	config := rest.CopyConfig(plane.Config)
	config.QPS = -1
	w := &world{t: t, namespace: "default"}
	w.client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	t.Cleanup(cancel)
	factory := informers.NewSharedInformerFactory(w.client, 0)
	client := typed.NewClient(w.client.AppsV1().ReplicaSets, w.client.CoreV1().Pods)
	c, err := clientgo.New(ctx, controller.ReplicaSets(), client, factory.Apps().V1().ReplicaSets().Informer(), factory.Core().V1().Pods().Informer(),
		clientgo.Options{UnfilteredChildren: true})
	require.NoError(t, err)
	factory.StartWithContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, clientgo.DefaultWorkers) }()
	alive := func() (n int) {
		pods, err := w.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return -1
		}
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp == nil {
				n++
			}
		}
		return n
	}
	has := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return alive() == n }, 2*patience, glance, "%d pods", n)
	}
	w.create(3)
	has(3)

	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, plane.WithoutStore(func(dir string) error { return os.CopyFS(backup, os.DirFS(dir)) }))
	w.scale(1)
	has(1)
	for _, n := range []int32{4, 2} {
		w.scale(n)
		has(int(n))
	}
	for range 500 { // more than a server writes by itself as it starts
		_, err := w.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "later-"}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.Empty(t, ended, "a server that is only started again")

	require.NoError(t, plane.WithoutStore(func(dir string) error {
		return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(backup)), os.Chmod(dir, 0o700))
	}))
	has(3)
	w.scale(2)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, controller.ErrRestored)
	case <-time.After(2 * patience):
		require.Fail(t, "Run does not end")
	}
	assert.Equal(t, 3, alive(), "nothing is changed any more")
}
