// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command e2e runs Kubernetes' own end-to-end specs on three clusters. The first cluster runs our controllers
// for ReplicaSets and ReplicationControllers. The second cluster runs Kubernetes' own controllers. The third
// cluster runs no controllers for these two kinds, so the specs must fail. The command prints a table of the
// results. If a result is unexpected, the exit status is 1.
//
//	make kubernetes-e2e
//	make kubernetes-e2e ARGS="-sides=ours -focus=ReplicationController"
//
// Each cluster has a scheduler and a controller manager, but kwok replaces the kubelets; see stages.yaml. The
// command needs neither root nor a container runtime, because everything runs in new Linux namespaces.
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
	case errors.As(err, &ended) && ended.Exited(): // the process inside the namespaces has printed the reason
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

// isolated is the name of an environment variable that is set only in the process inside the namespaces.
const isolated = "REPLICAKIT_E2E_ISOLATED"

// errInterrupted is returned if the run was interrupted.
var errInterrupted = errors.New("interrupted")

// inDirectory calls the given function with a new directory for logs. If the function succeeds or returns
// errInterrupted, the directory is removed.
func inDirectory(work func(dir string) error) error {
	dir, err := os.MkdirTemp("", "replicakit-e2e-")
	if err != nil {
		return err
	}
	if err := os.Setenv("HOME", dir); err != nil { // so that the programs ignore the user's settings
		return err
	}
	err = work(dir)
	if err != nil && !errors.Is(err, errInterrupted) {
		return fmt.Errorf("%w; logs are in %s", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}
