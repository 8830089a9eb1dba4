// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-scaledown shows which pods would be deleted if a Deployment, ReplicaSet or
// ReplicationController were scaled down, in which order, and why. The command is a kubectl plugin,
// which kubectl finds on PATH by its name. The plugin changes nothing in the cluster:
//
//	kubectl scaledown deployment/web --replicas 25
//
// The plugin reports a deletion as certain only if the input proves it. Kubernetes' order compares
// ages only by their power of two, so several pods may rank as equal. kube-controller-manager
// deletes pods of equal rank in the order of its cache, which the plugin cannot read. The plugin
// reports these pods as a tie, and lists all pods among which kube-controller-manager chooses.
//
// The plugin reads the whole namespace, because Kubernetes' order also counts the pods of sibling
// ReplicaSets on each node. A controller deletes at most replicas.DefaultBurstReplicas pods in one
// pass, and then ranks the remaining pods again. The plugin does the same. For a Deployment, the
// plugin shows only the immediate effect of setting spec.replicas. It does not predict the later
// steps of a rollout, which continues unless the Deployment is paused.
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

// run executes the command line and returns the exit code. Tests call run with their own streams
// and clock.
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
