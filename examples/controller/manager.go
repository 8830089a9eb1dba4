package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // work queues, client, leader election, by Kubernetes' names
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

// userAgent is also the field manager of what is written.
const userAgent = "replicakit-controller"

// serverPatience is how long a server that does not answer is waited for at the
// start, as kube-controller-manager does.
const serverPatience = 10 * time.Second

// watchdogPatience is how long the lease may be overdue before /healthz says so.
const watchdogPatience = 20 * time.Second

// A manager is the program with its flags read.
type manager struct {
	opts        options
	controllers []controller // those enabled that the server has a resource for
	config      *rest.Config
	writes      writes
	permit      *permit // of clients from now on; nil: they need no lease
	noNamespace atomic.Bool
	watchdog    *leaderelection.HealthzAdaptor
	working     atomic.Pointer[watched] // nil while it does not lead
}

// manage works until ctx ends, and returns when everything has ended.
func manage(ctx context.Context, opts options) error {
	config, err := loadConfig(opts)
	if err != nil {
		return err
	}
	m := &manager{opts: opts, config: config, watchdog: leaderelection.NewLeaderHealthzAdaptor(watchdogPatience)}
	listener, err := m.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if m.controllers, err = m.served(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	stop, err := m.serve(ctx, listener)
	if err != nil {
		return err
	}
	defer stop()
	m.reportMissingRights(ctx)
	m.watchNamespace(ctx)
	if opts.elect {
		m.permit = newPermit(opts.renewDeadline)
		return m.elect(ctx)
	}
	defer m.writes.drain()
	return m.work(ctx)
}

// loadConfig reads the kubeconfig, or takes the service account of the pod.
func loadConfig(opts options) (*rest.Config, error) {
	config, err := loadAddress(opts)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = opts.qps, opts.burst
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
	if err != nil && opts.kubeconfig != "" {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", opts.kubeconfig, err)
	}
	return config, err
}

// client returns a client with a rate limit of its own, which the server knows
// by the name (Z3).
func (m *manager) client(name string) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(m.configFor(name))
}

func (m *manager) configFor(name string) *rest.Config {
	config := rest.CopyConfig(m.config)
	config.UserAgent = userAgent + "/" + name
	if m.permit != nil {
		config.Wrap(m.permit.wrap)
	}
	config.Wrap(m.writes.wrap)
	config.Wrap(clientgo.CapRetryAfter)
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
		found, err := isServed(ctx, client.Discovery(), c)
		if err != nil {
			return nil, fmt.Errorf("asking %s for %s: %w", m.config.Host, c.resource.Resource, err)
		}
		if !found {
			klog.FromContext(ctx).Info("Skipping a controller: the server does not serve its resource", "controller", c.name, "resource", c.resource.String())
			continue
		}
		served = append(served, c)
	}
	if served == nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%s serves no resource of any controller of --controllers=%s", m.config.Host, strings.Join(m.opts.controllers, ","))
	}
	return served, nil
}

// isServed waits for a server that gives no answer; an answer that refuses is
// an error at once.
func isServed(ctx context.Context, client discovery.DiscoveryInterface, c controller) (found bool, err error) {
	var last error
	err = wait.PollUntilContextTimeout(ctx, time.Second, serverPatience, true, func(ctx context.Context) (bool, error) {
		found, last = discovery.IsResourceEnabled(client, c.resource)
		if last != nil && !isRefusal(last) {
			klog.FromContext(ctx).Info("Waiting for the server", "err", last)
			return false, nil
		}
		return true, last
	})
	switch {
	case ctx.Err() != nil:
		return false, nil // told to end
	case last != nil:
		return false, last
	}
	return found, err
}

// isRefusal reports whether asking again is useless: the server does not take
// us, or we do not take it.
func isRefusal(err error) bool {
	_, strange := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || strange || alert || errors.Is(err, http.ErrSchemeMismatch)
}

// work runs the controllers until ctx ends, and returns after the last pass.
func (m *manager) work(ctx context.Context) error {
	factory, err := m.newFactory()
	if err != nil {
		return err
	}
	built := map[string]*clientgo.Controller{}
	for _, c := range m.controllers {
		if built[c.name], err = m.build(ctx, c, factory); err != nil {
			return err
		}
	}
	followers, err := m.followers(factory)
	if err != nil {
		return err
	}
	m.working.Store(&watched{factory, m.controllers, followers})
	defer m.working.Store(nil)
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	var running sync.WaitGroup
	for _, f := range followers {
		running.Go(func() { f.follow(ctx) })
	}
	for name, c := range built {
		running.Go(func() { c.Run(ctx, *m.opts.workers[name]) })
	}
	running.Wait()
	return nil
}

func (m *manager) build(ctx context.Context, c controller, factory informers.SharedInformerFactory) (*clientgo.Controller, error) {
	client, err := m.client(c.name)
	if err != nil {
		return nil, err
	}
	return c.build(ctx, factory, client, m.opts.order, clientgo.Options{
		BurstReplicas:     m.opts.burstReplicas,
		EventClient:       client.CoreV1(),
		MetricsRegisterer: legacyregistry.Registerer(),

		ExpectationsTimeout: m.opts.expectationsTimeout,
		BackOffFailed:       m.opts.podFailureBackOff,
	})
}

// newFactory returns the informers that the controllers share.
func (m *manager) newFactory() (informers.SharedInformerFactory, error) {
	client, err := m.client("shared-informers")
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync(), informers.WithNamespace(m.opts.namespace))
	return factory, factory.Core().V1().Pods().Informer().SetTransform(onlyWhatIsRead)
}

// followers returns one for each watch.
func (m *manager) followers(factory informers.SharedInformerFactory) ([]*follower, error) {
	client, err := metadata.NewForConfig(m.configFor("followers"))
	if err != nil {
		return nil, err
	}
	pods := factory.Core().V1().Pods().Informer()
	followers := []*follower{newFollower(corev1.SchemeGroupVersion.WithResource("pods"), m.opts.namespace, client, pods)}
	for _, c := range m.controllers {
		followers = append(followers, newFollower(c.resource, m.opts.namespace, client, c.informer(factory)))
	}
	return followers, nil
}

// resync is a random time from 12 to 24 hours, so that several managers do not
// do it at once (Z3).
func resync() time.Duration {
	return time.Duration((1 + rand.Float64()) * float64(12*time.Hour))
}

// watched is what the controllers at work learn from.
type watched struct {
	factory     informers.SharedInformerFactory
	controllers []controller
	followers   []*follower
}

// missing are the resources that have not been listed yet.
func (w *watched) missing() []string {
	var missing []string
	if !w.factory.Core().V1().Pods().Informer().HasSynced() {
		missing = append(missing, "pods")
	}
	for _, c := range w.controllers {
		if !c.informer(w.factory).HasSynced() {
			missing = append(missing, c.resource.Resource)
		}
	}
	return missing
}

// wrong is what keeps the watches from telling what there is.
func (w *watched) wrong() error {
	errs := make([]error, 0, len(w.followers))
	for _, f := range w.followers {
		_, _, err := f.behind()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
