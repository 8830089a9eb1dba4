// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command workerpool is an operator that keeps spec.replicas Workers for each WorkerPool. Both kinds are
// custom resources; see config/crd.
//
//	kubectl apply -f config/crd -f config/rbac
//	go run . --kubeconfig ~/.kube/config
//
// One process can serve several clusters, with one controller for each cluster:
//
//	go run . --kubeconfig east.yaml --kubeconfig west.yaml
//
// The whole operator is in workerpool.go. This file makes the manager.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	v1 "github.com/replicakit/replicakit/examples/workerpool/api/v1"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
	"github.com/replicakit/replicakit/replicas/transport"
)

func main() {
	log.SetLogger(klog.Background())
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "workerpool:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	opts, kubeconfigs, err := parse(args)
	if err != nil {
		return err
	}
	configs, err := load(kubeconfigs)
	if err != nil {
		return err
	}
	mgr, err := newManager(opts, controllerruntime.Options{Runtime: runtimecontroller.Options{MaxConcurrentReconciles: 4}}, configs...)
	if err != nil {
		return err
	}
	return mgr.Start(signals.SetupSignalHandler())
}

// parse reads the flags. A leader is elected, because two active processes would create every Worker twice.
// The leader releases the lease when the manager stops. The release is safe, because the program then
// exits.
func parse(args []string) (opts manager.Options, kubeconfigs []string, err error) {
	opts = manager.Options{LeaderElection: true, LeaderElectionID: "workerpool.example.com", LeaderElectionReleaseOnCancel: true}
	flags := flag.NewFlagSet("workerpool", flag.ContinueOnError)
	flags.Func("kubeconfig", "kubeconfig file of a cluster to serve; may be repeated; without this flag, the program serves its own cluster", func(path string) error {
		kubeconfigs = append(kubeconfigs, path)
		return nil
	})
	flags.StringVar(&opts.LeaderElectionNamespace, "lease-namespace", "default", "namespace of the leader's lease")
	flags.StringVar(&opts.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "host:port of /healthz, which fails while a watch hangs; 0 turns it off")
	flags.StringVar(&opts.Metrics.BindAddress, "metrics-bind-address", ":8080", "host:port of the metrics; 0 turns them off")
	if err := flags.Parse(args); err != nil {
		return opts, nil, err
	}
	if opts.LeaderElectionNamespace == "" {
		return opts, nil, errors.New("--lease-namespace must not be empty")
	}
	return opts, kubeconfigs, nil
}

func load(kubeconfigs []string) (configs []*rest.Config, err error) {
	if len(kubeconfigs) == 0 {
		kubeconfigs = []string{""} // "" means the cluster in which the program runs
	}
	for _, path := range kubeconfigs {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, err
		}
		configs = append(configs, config)
	}
	return configs, nil
}

// newManager returns a manager that serves the clusters. The first cluster is the manager's own cluster and
// contains the lease. Each cluster has a controller with its own queue, expectations and metrics.
func newManager(opts manager.Options, each controllerruntime.Options, configs ...*rest.Config) (manager.Manager, error) {
	opts.Scheme = runtime.NewScheme()
	if err := v1.AddToScheme(opts.Scheme); err != nil {
		return nil, err
	}
	configs, watches := withTransport(opts, configs)
	mgr, err := manager.New(configs[0], opts)
	if err != nil {
		return nil, err
	}
	for i, config := range configs {
		if i > 0 {
			if each.Cluster, err = newCluster(mgr, config, opts); err != nil {
				return nil, err
			}
		}
		each.Name = fmt.Sprintf("workerpool-%d", i+1)
		each.Watches, each.Healthz = watches[i], each.Name
		if err := controllerruntime.Add(mgr, workerPools, each); err != nil {
			return nil, err
		}
	}
	return mgr, nil
}

// withTransport returns a copy of each client configuration, and a transport.Watches for each copy. Clients
// with these configurations send writes only while this process can prove that it holds the lease. Their
// call rate depends only on the server's responses. The controllers use the transport.Watches to end
// watches that hang.
func withTransport(opts manager.Options, configs []*rest.Config) (wrapped []*rest.Config, watches []*transport.Watches) {
	fence := &transport.Fence{} // without an elector, it refuses nothing
	if opts.LeaderElection {
		fence = transport.NewFence(types.NamespacedName{Namespace: opts.LeaderElectionNamespace, Name: opts.LeaderElectionID}, ptr.Deref(opts.RenewDeadline, 0))
	}
	for _, config := range configs {
		config, own := rest.CopyConfig(config), &transport.Watches{}
		config.QPS = -1
		config.Wrap(fence.Wrap)
		config.Wrap(transport.NewPace(0, 0).Wrap)
		config.Wrap(own.Wrap)
		wrapped, watches = append(wrapped, config), append(watches, own)
	}
	return wrapped, watches
}

// newCluster returns another cluster, which the manager starts and stops.
func newCluster(mgr manager.Manager, config *rest.Config, opts manager.Options) (cluster.Cluster, error) {
	other, err := cluster.New(config, func(o *cluster.Options) { o.Scheme, o.Cache = opts.Scheme, opts.Cache })
	if err != nil {
		return nil, err
	}
	return other, mgr.Add(other)
}
