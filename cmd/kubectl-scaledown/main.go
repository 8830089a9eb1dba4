// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-scaledown shows the effect of scaling down a Deployment, ReplicaSet or
// ReplicationController. It lists the pods that would be deleted, in deletion order, with the
// reasons. The command is a kubectl plugin, and kubectl finds it on PATH by its name. The plugin
// changes nothing in the cluster:
//
//	kubectl scaledown deployment/web --replicas 25
//
// The plugin reports a deletion as certain only if the input proves it. Kubernetes' order rounds
// ages down to powers of two, so several pods may rank as equal. kube-controller-manager deletes
// such pods in the order of its cache, but the plugin cannot read this cache. The plugin reports
// such pods as a tie, and lists all of them.
//
// The plugin reads the whole namespace, because Kubernetes' order also counts the pods of sibling
// ReplicaSets on each node. A controller deletes at most replicas.DefaultBurstReplicas pods in one
// pass, and then ranks the remaining pods again. The plugin simulates these passes. For a
// Deployment, the plugin shows only the immediate effect of setting spec.replicas. If a rollout
// then continues, the plugin does not predict its later steps.
//
// The exit code is 0 if the plugin gives an answer, and 1 if it reports an error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // registers the auth plugins that kubectl supports
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process immediately
	os.Exit(run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, time.Now))
}

// run executes the command line and returns the exit code. Tests pass their own streams and clock.
func run(ctx context.Context, args []string, streams genericiooptions.IOStreams, now func() time.Time) (code int) {
	cmd := newCommand(streams, now)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		if ctx.Err() != nil { // err describes only the call that was interrupted
			err = errors.New("interrupted")
		}
		say(streams.ErrOut, "error: %v\n", err)
		return 1
	}
	return 0
}

// say writes a formatted message to w. It ignores errors, because there is no other place to report
// them.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
