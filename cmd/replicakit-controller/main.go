// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command replicakit-controller runs the ReplicaSets and ReplicationControllers of a
// cluster, in place of the two controllers of kube-controller-manager that do.
// That one is told to leave them out:
//
//	kube-controller-manager --controllers=*,-replicaset-controller,-replicationcontroller-controller ...
//	replicakit-controller --kubeconfig=$HOME/.kube/config
//
// Flags have the names and defaults that Kubernetes gives them, but for --profiling,
// which is off, and for the name of the lease; see --help. The manifests beside
// this file run it in a cluster with the rights it needs and no others.
// docs/replacing-kube-controller-manager.md tells how to move a running cluster
// here and back.
//
// Before its first write it looks whether another controller serves the same kinds, and
// ends with an error if so. If one begins later, it makes no more changes, and ends.
// --allow-other-controllers neither looks nor ends.
//
// With leader election, the default, it writes only as long as the lease is
// proven: until the renew deadline after the time that was sent with the last
// renewal that the server accepted. It ends when another one holds the lease.
//
// SIGTERM and SIGINT end it in order: no new pass begins, every write under way
// is waited for, the lease is released. A second signal ends it at once.
//
// The exit code is 0 after a signal, 1 where it could not go on, and 2 for flags
// that are not understood.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	exitOK = iota
	exitError
	exitUsage
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, startLog)
	klog.Flush()
	os.Exit(code)
}

// startLog is for the whole process, and done once.
func startLog(logging *logsapi.LoggingConfiguration) error {
	if err := logsapi.ValidateAndApply(logging, nil); err != nil {
		return err
	}
	ctrllog.SetLogger(klog.Background())
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, startLog func(*logsapi.LoggingConfiguration) error) int {
	opts, err := parse(args, stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "%v\nSee 'replicakit-controller --help'.\n", err)
		return exitUsage
	case opts.version:
		printVersion(stdout, readBuild())
		return exitOK
	}
	if err := startLog(opts.logging); err != nil {
		_, _ = fmt.Fprintf(stderr, "replicakit-controller: %v\n", err)
		return exitError
	}
	if err := manage(ctx, opts); err != nil {
		_, _ = fmt.Fprintf(stderr, "replicakit-controller: %v\n", err)
		return exitError
	}
	return exitOK
}
