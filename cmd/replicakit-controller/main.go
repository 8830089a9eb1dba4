// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command replicakit-controller runs the ReplicaSets and ReplicationControllers of a cluster. The
// program replaces two of the controllers in kube-controller-manager. Start kube-controller-manager
// without these two controllers:
//
//	kube-controller-manager --controllers=*,-replicaset-controller,-replicationcontroller-controller ...
//	replicakit-controller --kubeconfig=$HOME/.kube/config
//
// Flags that also exist in kube-controller-manager have the same names and defaults, with three
// exceptions. By default, --profiling is off, --kube-api-qps sets no fixed rate, and the lease has
// another name. --help lists all flags. The manifests in this directory run the program in a
// cluster, and grant only the rights that it needs. docs/replacing-kube-controller-manager.md
// describes how to move a running cluster to this program, and back to kube-controller-manager.
//
// Before its first write, the program checks for another controller that serves the same kinds. If
// the program finds another controller, it ends with an error. If another controller starts later,
// the program stops making changes, and ends. With --allow-other-controllers, the program skips
// both checks.
//
// Leader election is on by default. With leader election, the program writes only while it can
// prove that it holds the lease. The proof is the last renewal of the lease that the server has
// accepted. The proof is valid until the renew deadline has passed, counted from the time when the
// program sent the renewal. If another process gets the lease, the program ends.
//
// After SIGTERM or SIGINT, no new pass begins. The program waits until all writes in progress have
// finished, releases the lease, and ends. A second signal ends the program immediately.
//
// The exit code is 0 after a signal, 1 after an error, and 2 for invalid flags.
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

// startLog configures the log of the whole process. Call startLog only once.
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
