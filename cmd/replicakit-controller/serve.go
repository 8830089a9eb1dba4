// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// listen opens the port for the metrics. It is called before anything else starts, because another
// program may already use the port. If metrics are off, listen returns a listener that does
// nothing.
func (m *manager) listen(ctx context.Context) (net.Listener, error) {
	if !m.opts.metrics() {
		return nowhere{}, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", m.opts.metricsAddress)
	if err != nil {
		return nil, fmt.Errorf("--metrics-bind-address=%s: %w", m.opts.metricsAddress, err)
	}
	return listener, nil
}

type nowhere struct{ net.Listener }

func (nowhere) Close() error { return nil }

// serve answers HTTP requests until the returned function is called. The paths are /metrics,
// /livez, /healthz, /readyz and /debug/passes. With --profiling, serve also answers requests for
// /debug/pprof. As in Kubernetes, serve uses TLS on every address. The paths of
// --authorization-always-allow-paths are open to all clients. For all other paths, a client needs
// the right to get the path. The right is also needed on a loopback address, because other users
// and other pods can connect to it.
func (m *manager) serve(ctx context.Context, listener net.Listener) (stop func(), err error) {
	if !m.opts.metrics() {
		return func() {}, nil
	}
	handler, err := m.handler(ctx)
	if err != nil {
		return nil, fmt.Errorf("serving metrics: %w", err)
	}
	config, err := m.tlsConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("serving metrics: %w", err)
	}
	server := &http.Server{Handler: handler, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	logger := klog.FromContext(ctx)
	logger.Info("Serving metrics and probes", "address", listener.Addr().String())
	go func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			logger.Error(err, "The server of metrics and probes ended")
		}
	}()
	return func() { _ = server.Close() }, nil
}

func (m *manager) handler(ctx context.Context) (http.Handler, error) {
	inside := http.NewServeMux()
	gatherers := prometheus.Gatherers{m.registry, prometheus.GathererFunc(m.gatherKept)}
	inside.Handle("GET /metrics", promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{}))
	if m.opts.profiling {
		inside.HandleFunc("/debug/pprof/", pprof.Index)
		inside.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		inside.HandleFunc("/debug/pprof/profile", pprof.Profile)
		inside.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		inside.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	inside.Handle("GET "+passesPath, m.passes)
	inside.Handle("GET /livez", probe(m.watchdog.Check))
	inside.Handle("GET /healthz", probe(m.watchdog.Check))
	inside.Handle("GET /readyz", probe(func(*http.Request) error { return m.ready() }))
	client, err := m.client("metrics")
	if err != nil {
		return nil, err
	}
	return newGuard(klog.FromContext(ctx), client, m.opts.openPaths, inside)
}

// ready returns an error while the manager waits for something. It also returns an error while the
// lease cannot be read or renewed, and while a running controller has not listed all objects, or
// does not receive their changes. While another manager holds the lease, ready returns nil.
func (m *manager) ready() error {
	var errs []error
	if err := m.lease.last(); err != nil {
		errs = append(errs, fmt.Errorf("the lease cannot be read or renewed: %w", err))
	}
	for _, what := range m.waiting.all() {
		errs = append(errs, errors.New(what))
	}
	for _, w := range m.working.all() {
		if missing := w.missing(); missing != nil {
			errs = append(errs, fmt.Errorf("not listed yet: %s", strings.Join(missing, ", ")))
			continue
		}
		errs = append(errs, w.checkWatches())
	}
	return errors.Join(errs...)
}

func probe(check func(*http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
}

// tlsConfig returns a configuration with the certificate of --tls-cert-file, and reads the file
// again when it changes. Without --tls-cert-file, tlsConfig generates a self-signed certificate, as
// kube-controller-manager does.
func (m *manager) tlsConfig(ctx context.Context) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.opts.certFile == "" {
		cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		config.Certificates = []tls.Certificate{pair}
		return config, err
	}
	watcher, err := certwatcher.New(m.opts.certFile, m.opts.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file=%s, --tls-private-key-file=%s: %w", m.opts.certFile, m.opts.keyFile, err)
	}
	config.GetCertificate = watcher.GetCertificate
	go func() {
		if err := watcher.Start(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The watch of the certificate ended", "file", m.opts.certFile)
		}
	}()
	return config, nil
}
