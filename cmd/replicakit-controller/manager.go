// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	kinds "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/transport"
)

// userAgent is the field manager of all writes. The user agent of each request begins with
// userAgent; see configFor.
const userAgent = "replicakit-controller"

// watchdogPatience is the time for which a renewal of the lease may be overdue before /healthz
// fails.
const watchdogPatience = 20 * time.Second

// A manager runs the controllers with the given options.
type manager struct {
	opts        options
	controllers []controller // the enabled controllers whose resource the server has
	config      *rest.Config
	registry    *prometheus.Registry
	waiting     set[string]                    // descriptions of what the manager waits for; while there are any, the manager is not ready
	watchdog    *leaderelection.HealthzAdaptor // checks that the leader renews the lease
	lease       leaseTrouble                   // why the lease cannot be read or renewed
	leads       atomic.Bool                    // whether this manager holds the lease, as far as it knows
	working     set[*cell]                     // the running cells; none while this manager waits for the lease

	foreignWrites *prometheus.CounterVec
	restored      prometheus.Gauge
	passes        *passes
	orders        *orders
	fence         *transport.Fence
	paces         paces
}

func newManager(opts options, config *rest.Config) *manager {
	m := &manager{
		opts: opts, config: config, watchdog: leaderelection.NewLeaderHealthzAdaptor(watchdogPatience),
		foreignWrites: newForeignWrites(), restored: newRestored(), passes: newPasses(), orders: newOrders(opts),
		fence: transport.NewFence(opts.lease, opts.renewDeadline),
	}
	m.registry = newRegistry(m)
	return m
}

// manage runs the program until ctx is done. It returns when everything has stopped.
func manage(ctx context.Context, opts options) error {
	built := readBuild()
	klog.FromContext(ctx).Info("Starting", "version", built.version, "revision", built.revision, "go", built.goVersion, "kubernetes", built.kubernetes)
	config, err := loadConfig(opts)
	if err != nil {
		return err
	}
	m := newManager(opts, config)
	listener, err := m.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	stop, err := m.serve(ctx, listener)
	if err != nil {
		return err
	}
	defer stop()
	if m.controllers, err = m.served(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	klog.FromContext(ctx).Info("Serving", "controllers", namesOf(m.controllers), "in", m.opts.served())
	m.watchRights(ctx)
	m.watchNamespaces(ctx)
	err = m.manage(ctx)
	if errors.Is(err, errStoodBack) || errors.Is(err, kinds.ErrRestored) {
		select {
		case <-ctx.Done():
		case <-time.After(endedShown):
		}
	}
	if errors.Is(err, errLeaseLost) {
		m.tell(ctx, m.opts.theLease(), leaseLost, fmt.Sprintf("%v; this manager held %d writes back because it could not prove that it held the lease", err, m.fence.Refused()))
	}
	return err
}

// manage runs the controllers until ctx is done or the lease is lost.
func (m *manager) manage(ctx context.Context) error {
	client, err := m.client("nodes")
	if err != nil {
		return err
	}
	restores, err := m.newRestores()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() { restores.notice(ctx) })
	watching.Go(func() {
		if err := m.orders.nodes.watch(ctx, client); err != nil {
			klog.FromContext(ctx).Error(err, "Nodes cannot be watched")
		}
	})
	if m.opts.elect {
		return m.elect(ctx)
	}
	return (&worker{manager: m}).work(ctx)
}

// loadConfig uses --kubeconfig and --master. If neither is given, loadConfig uses the service
// account of the pod.
func loadConfig(opts options) (*rest.Config, error) {
	config, err := loadAddress(opts)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no rate limit here; see paces
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return config, nil
}

func loadAddress(opts options) (*rest.Config, error) {
	if opts.kubeconfig == "" && opts.master == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("neither --kubeconfig nor --master is given, and this is not a pod of a cluster")
		}
		return config, err
	}
	config, err := clientcmd.BuildConfigFromFlags(opts.master, opts.kubeconfig)
	if err == nil {
		err = usable(config)
	}
	switch {
	case err == nil:
		return config, nil
	case opts.kubeconfig != "":
		return nil, fmt.Errorf("--kubeconfig=%s: %w", opts.kubeconfig, err)
	}
	return nil, fmt.Errorf("--master=%s: %w", opts.master, err)
}

// usable returns an error if every call with config would fail. Without this check, the manager
// would retry forever, as if the server did not answer.
func usable(config *rest.Config) error {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	if server.Scheme != "https" && server.Scheme != "http" {
		return fmt.Errorf("server %q: the scheme must be https or http", config.Host)
	}
	if config.CAFile != "" {
		if _, err := certutil.NewPool(config.CAFile); err != nil {
			return fmt.Errorf("certificate-authority: %w", err)
		}
	}
	if config.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile); err != nil {
			return fmt.Errorf("client-certificate %s, client-key %s: %w", config.CertFile, config.KeyFile, err)
		}
	}
	if config.ExecProvider != nil {
		if _, err := exec.LookPath(config.ExecProvider.Command); err != nil {
			return err
		}
	}
	_, err = rest.TransportFor(config)
	return err
}

// client returns a client whose user agent contains the name. The client has no transport.Pace and
// no transport.Fence, so use it only for a few calls that need no lease.
func (m *manager) client(name string) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(m.configFor(name))
}

func (m *manager) configFor(name string) *rest.Config {
	config := rest.CopyConfig(m.config)
	config.UserAgent = userAgent + "/" + name
	return config
}

// served returns the controllers whose resource the server has.
func (m *manager) served(ctx context.Context) ([]controller, error) {
	client, err := m.client("discovery")
	if err != nil {
		return nil, err
	}
	var served []controller
	for _, c := range m.opts.enabled {
		found, err := m.isServed(ctx, client.Discovery(), c)
		if err != nil {
			return nil, fmt.Errorf("asking %s for %s: %w", m.config.Host, c.resource.Resource, err)
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		if !found {
			klog.FromContext(ctx).Info("Skipping a controller: the server does not serve its resource", "controller", c.name, "resource", c.resource.String())
			continue
		}
		served = append(served, c)
	}
	if served == nil {
		return nil, fmt.Errorf("%s serves no resource of any controller of --controllers=%s", m.config.Host, strings.Join(m.opts.controllers, ","))
	}
	return served, nil
}

// isServed reports whether the server has the resource of a controller. If the server does not
// answer, isServed retries, and shows the error in the log and in /readyz. If the server rejects
// the client, isServed returns the error immediately.
func (m *manager) isServed(ctx context.Context, client discovery.DiscoveryInterface, c controller) (found bool, err error) {
	answered := func() {}
	defer func() { answered() }()
	for told := ""; ; {
		found, err = discovery.IsResourceEnabled(client, c.resource)
		if err == nil || isRefusal(err) {
			return found, err
		}
		if told == "" {
			answered = m.waiting.add(fmt.Sprintf("%s does not list the resources that it serves: %v", m.config.Host, err))
		}
		if told != err.Error() {
			told = err.Error()
			klog.FromContext(ctx).Info("Waiting for the server", "err", err)
		}
		select {
		case <-ctx.Done():
			return false, nil // the manager ends
		case <-time.After(time.Second):
		}
	}
}

// isRefusal reports whether the server rejects this client, or this client distrusts the server. A
// retry usually fails with the same error.
func isRefusal(err error) bool {
	_, strange := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || strange || alert || errors.Is(err, http.ErrSchemeMismatch)
}
