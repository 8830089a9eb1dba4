// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command e2e runs Kubernetes' own end-to-end specs against a cluster whose
// ReplicaSets and ReplicationControllers are ours, against one where they are
// Kubernetes' own, and against one where nobody works on them, so that specs have
// to fail. It prints a table, and exits with
// 1 if anything happened that the table does not have.
//
//	make kubernetes-e2e
//	make kubernetes-e2e ARGS="-sides=ours -focus=ReplicationController"
//
// The cluster is whole, with scheduler and controller manager, but for kubelets:
// kwok stands in for them, see stages.yaml. It needs neither root nor a container
// runtime; everything is in namespaces of its own.
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
	case errors.As(err, &ended) && ended.Exited(): // the process inside, which has said why
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

// isolated tells a process that it is the one inside.
const isolated = "REPLICAKIT_E2E_ISOLATED"

// inside reports whether this process has users, processes and a network of its
// own; see isolate.
var errInterrupted = errors.New("interrupted")

// inDirectory gives a function a new directory for logs. It stays only if there
// is something to be found in it.
func inDirectory(work func(dir string) error) error {
	dir, err := os.MkdirTemp("", "replicakit-e2e-")
	if err != nil {
		return err
	}
	if err := os.Setenv("HOME", dir); err != nil { // nobody reads anybody's settings
		return err
	}
	err = work(dir)
	if err != nil && !errors.Is(err, errInterrupted) {
		return fmt.Errorf("%w; logs are in %s", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}
