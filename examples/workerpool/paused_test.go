// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

// If the environment variable WORKERPOOL_KUBECONFIG is set, the test program runs the operator. If
// WORKERPOOL_STOPS_AT_RENEWAL is also set to a number n, the operator pauses itself during the n-th renewal of its
// lease.
const kubeconfigVariable, renewalVariable = "WORKERPOOL_KUBECONFIG", "WORKERPOOL_STOPS_AT_RENEWAL"

// pauses returns the number of leaders that TestPausedLeaders pauses. The environment variable WORKERPOOL_PAUSES
// sets this number.
func pauses() int {
	if n, err := strconv.Atoi(os.Getenv("WORKERPOOL_PAUSES")); err == nil {
		return n
	}
	return 4
}

// operator runs the program with a leader election that is five times as fast as usual.
func operator(kubeconfig string) error {
	opts, kubeconfigs, err := parse([]string{"--kubeconfig=" + kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0"})
	if err != nil {
		return err
	}
	lease, renew, retry := 3*time.Second, 2*time.Second, 400*time.Millisecond
	opts.LeaseDuration, opts.RenewDeadline, opts.RetryPeriod = &lease, &renew, &retry
	configs, err := load(kubeconfigs)
	if err != nil {
		return err
	}
	if at, err := strconv.Atoi(os.Getenv(renewalVariable)); err == nil {
		configs[0].Wrap(stopsAt(int64(at)))
	}
	mgr, err := newManager(opts, controllerruntime.Options{}, configs...)
	if err != nil {
		return err
	}
	return mgr.Start(signals.SetupSignalHandler())
}

// stopsAt wraps a transport, so that this process pauses during the given renewal of its lease. The pause begins
// after the server has accepted the renewal, and before the client reads the answer.
func stopsAt(renewal int64) func(http.RoundTripper) http.RoundTripper {
	var renewals atomic.Int64
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && req.Method == http.MethodPut && strings.Contains(req.URL.Path, "/leases/") && renewals.Add(1) == renewal {
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			}
			return resp, err
		})
	}
}

// Leaders are paused at random moments, even in the middle of a renewal. Each paused leader continues only after
// another process has become the leader. The number of Workers must never exceed the wanted number.
func TestPausedLeaders(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server: make test-servers")
	}
	env := newServer()
	config, err := env.Start()
	t.Cleanup(func() { _ = env.Stop() })
	require.NoError(t, err)
	w := newWorld(t, config)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, env.KubeConfig, 0o600))
	const wanted = 60
	n := w.count()
	w.create(w.pool(wanted))
	leader := w.startOperator(kubeconfig, 0)
	w.settled(wanted)
	busy, rest := context.WithCancel(t.Context())
	deleting := w.deleteWorkers(busy)
	for i := range pauses() {
		stopsAt := 0
		if i%2 == 0 && i < pauses()-1 {
			stopsAt = 5 + rand.N(8) // there is a renewal every 0.4 s
		}
		next, before := w.startOperator(kubeconfig, stopsAt), w.holder()
		if !leader.stopsItself {
			time.Sleep(rand.N(2 * time.Second))
			leader.signal(syscall.SIGSTOP)
		}
		leader.isStopped()
		require.Eventually(t, func() bool { return w.holder() != before }, patience, tick)
		time.Sleep(rand.N(time.Second))
		leader.signal(syscall.SIGCONT)
		require.Error(t, leader.end(), "a leader that has lost its lease ends")
		leader = next
	}
	rest()
	<-deleting
	w.settled(wanted)
	most, _ := n.extremes()
	assert.Equal(t, wanted, most, "never one too many")
	leader.signal(syscall.SIGTERM)
	require.NoError(t, leader.end())
}

// A process is an operator that runs as a child process of the test.
type process struct {
	world
	cmd         *exec.Cmd
	log         string
	ended       chan error
	stopsItself bool
}

func (w world) startOperator(kubeconfig string, stopsAtRenewal int) *process {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), kubeconfigVariable+"="+kubeconfig)
	if stopsAtRenewal > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprint(renewalVariable, "=", stopsAtRenewal))
	}
	log, err := os.CreateTemp(w.t.TempDir(), "operator-*.log")
	require.NoError(w.t, err)
	cmd.Stderr = log
	require.NoError(w.t, cmd.Start())
	require.NoError(w.t, log.Close())
	p := &process{w, cmd, log.Name(), make(chan error, 1), stopsAtRenewal > 0}
	go func() { p.ended <- cmd.Wait() }()
	return p
}

func (p *process) signal(signal syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(signal))
}

// end waits until the process has ended, and returns its error. If the process does not end in time, the test
// fails and shows the goroutines of the process.
func (p *process) end() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
	}
	p.signal(syscall.SIGQUIT)
	<-p.ended
	text, err := os.ReadFile(p.log)
	require.NoError(p.t, err)
	p.t.Fatalf("the operator has not ended:\n%s", text)
	return nil
}

// isStopped waits until SIGSTOP has paused the process.
func (p *process) isStopped() {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	}, patience, tick)
}

// holder returns the identity of the process that holds the lease.
func (w world) holder() string {
	w.t.Helper()
	var lease coordinationv1.Lease
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "default", Name: "workerpool.example.com"}, &lease))
	return *lease.Spec.HolderIdentity
}

// deleteWorkers deletes random Workers until ctx ends, so that the leader always has work.
func (w world) deleteWorkers(ctx context.Context) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if workers := w.workers(); len(workers) > 0 {
				for range 10 {
					_ = w.client.Delete(ctx, &workers[rand.N(len(workers))])
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return ended
}
