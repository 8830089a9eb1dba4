// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimeconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

// If a second process starts before the first one ends, no Worker is created twice. Processes overlap in each
// rolling update of a Deployment.
func TestARollingUpdateOfTheOperatorMakesNoWorkerTwice(t *testing.T) {
	t.Parallel()
	config := server(t)
	w := newWorld(t, config)
	w.work()
	workers := w.watch()
	first := w.elected(config)
	w.elected(config)
	pool := w.pool(3)
	require.NoError(t, w.client.Create(t.Context(), pool))
	ready := func(n int32) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.NoError(c, w.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
			assert.Equal(c, n, pool.Status.ReadyReplicas)
		}, patience, tick)
	}
	ready(3)
	first()
	pool.Spec.Replicas = 5
	require.NoError(t, w.client.Update(t.Context(), pool))
	ready(5)
	made := map[string]bool{}
	for {
		select {
		case e := <-workers:
			if o, ok := e.Object.(metav1.Object); ok && e.Type == watch.Added {
				made[o.GetName()] = true
			}
			continue
		case <-time.After(time.Second):
		}
		break
	}
	assert.Len(t, made, 5)
}

// elected runs the program with its default flags in the world's namespace until the test ends. It elects a leader. The
// returned function stops the program earlier.
func (w world) elected(config *rest.Config) (stop func()) {
	w.t.Helper()
	opts, _, err := parse([]string{"--lease-namespace=" + w.namespace, "--metrics-bind-address=0", "--health-probe-bind-address=0"})
	require.NoError(w.t, err)
	anyName := true
	opts.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}}
	opts.Controller = runtimeconfig.Controller{SkipNameValidation: &anyName}
	mgr, err := newManager(opts, controllerruntime.Options{}, config)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(w.t, mgr.Start(ctx))
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	w.t.Cleanup(stop)
	return stop
}

// The operator needs no other rights than those in the manifest. The server accepts blockOwnerDeletion only from
// clients that may update the owner's finalizers. If the right to update workerpools/finalizers is missing, an
// event says so.
func TestTheRightsOfTheManifestAreEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, server(t))
	require.NoError(t, rbacv1.AddToScheme(w.client.Scheme()))
	manifest, err := os.ReadFile(filepath.Join("config", "rbac", "role.yaml"))
	require.NoError(t, err)
	role, ofTheLease := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	ofTheCluster, ofTheNamespace, found := strings.Cut(strings.TrimPrefix(string(manifest), "---\n"), "\n---\n")
	require.True(t, found)
	require.NoError(t, yaml.Unmarshal([]byte(ofTheCluster), role))
	require.NoError(t, yaml.Unmarshal([]byte(ofTheNamespace), ofTheLease))
	role.Name = "rights-" + w.namespace
	ofTheLease.Name, ofTheLease.Namespace = role.Name, w.namespace
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.Name}}
	require.NoError(t, w.client.Create(t.Context(), role))
	require.NoError(t, w.client.Create(t.Context(), ofTheLease))
	require.NoError(t, w.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   subjects,
	}))
	require.NoError(t, w.client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   subjects,
	}))
	user, err := shared.AddUser(envtest.User{Name: role.Name}, nil)
	require.NoError(t, err)
	w.work()
	w.elected(user.Config())
	pool := w.pool(3)
	require.NoError(t, w.client.Create(t.Context(), pool))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, w.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
		assert.Equal(c, int32(3), pool.Status.ReadyReplicas)
	}, patience, tick)
	operator, err := client.New(user.Config(), client.Options{Scheme: w.client.Scheme()})
	require.NoError(t, err)
	for _, of := range []client.ObjectKey{{Namespace: w.namespace, Name: "another"}, {Namespace: "kube-system", Name: "workerpool.example.com"}} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name}}
		for verb, err := range map[string]error{
			"get":    operator.Get(t.Context(), of, lease),
			"update": operator.Update(t.Context(), lease),
			"delete": operator.Delete(t.Context(), lease),
		} {
			assert.True(t, apierrors.IsForbidden(err), "%s %s: %v", verb, of, err)
		}
	}

	for i, rule := range role.Rules {
		for _, resource := range rule.Resources {
			if strings.HasSuffix(resource, "/finalizers") {
				role.Rules[i].Resources = []string{"workerpools/status"}
			}
		}
	}
	require.NoError(t, w.client.Update(t.Context(), role))
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the server applies the new rights a moment later
		require.NoError(c, w.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
		pool.Spec.Replicas++
		require.NoError(c, w.client.Update(t.Context(), pool))
		var events corev1.EventList
		require.NoError(c, w.client.List(t.Context(), &events, client.InNamespace(w.namespace)))
		var messages []string
		for i := range events.Items {
			if events.Items[i].Reason == "FailedCreate" {
				messages = append(messages, events.Items[i].Message)
			}
		}
		assert.Contains(c, strings.Join(messages, "\n"), `the right to update workerpools/finalizers in the group "workerpool.example.com" is missing`)
	}, patience, time.Second)
}
