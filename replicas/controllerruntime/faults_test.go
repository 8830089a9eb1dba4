// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimeconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/replicas/controllerruntime"
	"github.com/replicakit/replicakit/replicas/faults"
	"github.com/replicakit/replicakit/replicas/transport"
)

// installCRDs installs the CRDs of the README's API types, without a schema.
var installCRDs = sync.OnceValue(func() error {
	config, err := startShared()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "crds")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for kind, plural := range map[string]string{"WorkerPool": "workerpools", "Worker": "workers"} {
		crd := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[2]s.example.com"},"spec":{
			"group":"example.com","scope":"Namespaced","names":{"kind":"%[1]s","listKind":"%[1]sList","plural":"%[2]s","singular":"%[3]s"},"versions":[{
			"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
			"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, kind, plural, plural[:len(plural)-1])
		if err := os.WriteFile(filepath.Join(dir, plural+".yaml"), []byte(crd), 0o600); err != nil {
			return err
		}
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{dir}})
	return err
})

// inBadMinute runs an operator of WorkerPools through one bad minute, and returns the verdict.
func inBadMinute(t *testing.T, seed uint64, add func(manager.Manager, *transport.Watches) error) (faults.Report, error) {
	t.Helper()
	config := realServer(t)
	require.NoError(t, installCRDs())
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	require.NoError(t, err)
	namespace := newNamespace(t, directClient(t))
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	f := &faults.Faults{Seed: seed, Rules: faults.Minute(seed, "workerpools", "workers")}
	judge := &faults.Judge{
		Client: httpClient, Server: config.Host, Faults: f, Namespace: namespace,
		Owner: groupVersion.WithResource("workerpools"), Child: groupVersion.WithResource("workers"),
	}
	require.NoError(t, judge.Begin(t.Context()))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- f.Run(ctx, func(ctx context.Context) error {
			spoiled, watches, anyName := rest.CopyConfig(config), &transport.Watches{}, true
			spoiled.Wrap(f.Wrap)
			spoiled.Wrap(watches.Wrap)
			mgr, err := manager.New(spoiled, manager.Options{
				Scheme: newScheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: runtimeconfig.Controller{SkipNameValidation: &anyName},
				Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
			})
			if err == nil {
				err = add(mgr, watches)
			}
			if err != nil {
				return err
			}
			return mgr.Start(ctx)
		})
	}()
	defer func() {
		stop()
		assert.NoError(t, <-ended)
	}()
	pool := &WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"}, Spec: WorkerPoolSpec{Replicas: 3}}
	require.NoError(t, c.Create(t.Context(), pool))
	require.NoError(t, judge.Settled(t.Context()))
	require.NoError(t, c.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":1}}`))))
	return judge.End(t.Context())
}

// The README's program keeps its numbers in ten bad minutes.
func TestTheREADMEsProgramInBadMinutes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			report, err := inBadMinute(t, seed, func(mgr manager.Manager, watches *transport.Watches) error {
				return controllerruntime.Add(mgr, pools(), controllerruntime.Options{Watches: watches})
			})
			require.NoError(t, err)
			t.Log(report)
		})
	}
}

// A plain loop, which creates or deletes the difference to the cached children, breaks its promise in a bad minute.
// Otherwise the test above would prove nothing.
func TestAPlainLoopInABadMinute(t *testing.T) {
	t.Parallel()
	report, err := inBadMinute(t, 0, func(mgr manager.Manager, _ *transport.Watches) error {
		c := mgr.GetClient()
		return builder.ControllerManagedBy(mgr).Named("plain").For(&WorkerPool{}).Owns(&Worker{}).Complete(reconcile.Func(
			func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				var pool WorkerPool
				if err := c.Get(ctx, req.NamespacedName, &pool); err != nil {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				var workers WorkerList
				if err := c.List(ctx, &workers, client.InNamespace(req.Namespace)); err != nil {
					return reconcile.Result{}, err
				}
				for i := len(workers.Items); i < int(pool.Spec.Replicas); i++ {
					worker := &Worker{ObjectMeta: metav1.ObjectMeta{
						Namespace: req.Namespace, GenerateName: "blue-",
						OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&pool, groupVersion.WithKind("WorkerPool"))},
					}}
					if err := c.Create(ctx, worker); err != nil {
						return reconcile.Result{}, err
					}
				}
				for i := int(pool.Spec.Replicas); i < len(workers.Items); i++ {
					if err := c.Delete(ctx, &workers.Items[i]); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
				}
				return reconcile.Result{}, nil
			}))
	})
	require.Error(t, err)
	require.NotEmpty(t, report.Broken)
	assert.Equal(t, "more than 3", report.Broken[0].Rule)
	assert.NotEmpty(t, report.Broken[0].Calls)
	t.Log(report)
}
