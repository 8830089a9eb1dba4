// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command e2e runs Kubernetes' own end-to-end specs on three clusters. In the first, the controllers of
// ReplicaSets and ReplicationControllers are ours, and in the second Kubernetes' own. In the third there
// are none, so that specs must fail. The command prints a table. It exits with 1 if a result is not in the
// table.
//
//	make kubernetes-e2e
//	make kubernetes-e2e ARGS="-sides=ours -focus=ReplicationController"
//
// The cluster is whole, with scheduler and controller manager, except that kwok stands in for kubelets; see
// stages.yaml. It needs neither root nor a container runtime, because everything is in its own namespaces.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	err := run(ctx, os.Args[1:])
	stop()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ended.Exited(): // the process inside, which has printed the reason
		os.Exit(ended.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "e2e:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	opts, err := parse(args)
	if err != nil {
		return err
	}
	if os.Getenv(isolated) == "" {
		return isolate(ctx)
	}
	if err := enter(); err != nil {
		return err
	}
	return inDirectory(func(dir string) error { return opts.runAll(ctx, dir, os.Stdout) })
}

// isolated is set in the process inside.
const isolated = "REPLICAKIT_E2E_ISOLATED"

// errInterrupted is the error of a run that was interrupted.
var errInterrupted = errors.New("interrupted")

// inDirectory calls a function with a new directory for logs. The directory is kept only if it has
// something useful.
func inDirectory(work func(dir string) error) error {
	dir, err := os.MkdirTemp("", "replicakit-e2e-")
	if err != nil {
		return err
	}
	if err := os.Setenv("HOME", dir); err != nil { // no user's settings are read
		return err
	}
	err = work(dir)
	if err != nil && !errors.Is(err, errInterrupted) {
		return fmt.Errorf("%w; logs are in %s", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}
