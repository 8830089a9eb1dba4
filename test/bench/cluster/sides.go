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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

const (
	kubernetes = "kubernetes"
	ours       = "ours"
)

// A side is one of the two programs that the bench compares.
type side struct {
	name    string
	command func(opts options, address, port string) (path string, args []string)
}

var sides = []side{
	{kubernetes, kubeControllerManager},
	{ours, manager},
}

func sideNames() (names []string) {
	for _, s := range sides {
		names = append(names, s.name)
	}
	return names
}

// common holds the flags that both programs always get. rates holds additional flags that raise the rate
// limits. If the scenario uses the default rate limits, the programs do not get the flags in the variable
// rates.
var (
	common = []string{"--leader-elect=false", "--authorization-always-allow-paths=/metrics"}
	rates  = []string{"--kube-api-qps=5000", "--kube-api-burst=5000"}
)

func kubeControllerManager(opts options, address, port string) (path string, args []string) {
	return filepath.Join(opts.binaries, "kube-controller-manager"), append([]string{
		"--controllers=replicaset-controller,replicationcontroller-controller",
		"--bind-address=" + address, "--secure-port=" + port,
	}, common...)
}

func manager(opts options, address, port string) (path string, args []string) {
	return opts.controller, append([]string{"--metrics-bind-address=" + net.JoinHostPort(address, port)}, common...)
}

// A controller is a running process of one of the two programs.
type controller struct {
	*controlplane.Program
	dir     string // directory of the kubeconfig and the log
	metrics string // URL of the metrics

	mayEnd atomic.Bool // set if the program is expected to exit on its own
}

// A starter starts the program that is being measured.
type starter func() (*controller, error)

// start starts the program with the given kubeconfig and the flags for the scenario.
func (s side) start(ctx context.Context, opts options, kubeconfig []byte, sc scenario) (*controller, error) {
	const address = "127.0.0.1"
	port, err := freePort(ctx, address)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "replicakit-bench-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	path, args := s.command(opts, address, port)
	if !sc.slow {
		args = append(args, rates...)
	}
	program, err := controlplane.StartProgram(s.name, filepath.Join(dir, "log"), path, slices.Concat(args, sc.args, []string{"--kubeconfig=" + file})...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &controller{Program: program, dir: dir, metrics: "https://" + net.JoinHostPort(address, port) + "/metrics"}, nil
}

// stop stops the program. If the measurement succeeded or was interrupted, stop deletes the log. If the
// measurement failed, stop keeps the log and returns the cause.
func (c *controller) stop(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	_ = c.Stop() // kube-controller-manager returns an error even after a normal shutdown
	switch {
	case err == nil || errors.Is(cause, context.Canceled): // canceled by Ctrl-C
		return errors.Join(err, os.RemoveAll(c.dir))
	case cause != nil:
		return cause
	}
	return fmt.Errorf("%w; see %s", err, c.Log())
}

// freePort returns a port that is not in use.
func freePort(ctx context.Context, address string) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port, listener.Close()
}

// usage holds the resources that a program has used since it started.
type usage struct {
	cpu      float64 // seconds
	peak     float64 // bytes
	resident float64 // bytes, now
	syncs    float64
}

func (c *controller) usage(ctx context.Context) (used usage, err error) {
	proc := filepath.Join("/proc", strconv.Itoa(c.PID()))
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		return usage{}, err
	}
	if used.cpu, err = cpuSeconds(string(stat)); err != nil {
		return usage{}, err
	}
	if used.peak, used.resident, err = memoryOf(string(status)); err != nil {
		return usage{}, err
	}
	used.syncs, err = c.count(ctx, syncsMetric)
	return used, err
}

// syncsMetric is a histogram with one observation for each pass.
const syncsMetric = "workqueue_work_duration_seconds"

// count returns the value of a work queue metric of the program; see readCount.
func (c *controller) count(ctx context.Context, metric string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.metrics, nil)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the program runs on this machine and has a self-signed certificate
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", c.metrics, resp.Status)
	}
	return readCount(resp.Body, metric)
}
