// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-scaledown shows which pods would go if a Deployment, ReplicaSet or
// ReplicationController were scaled down, in which order, and why each. It is a kubectl plugin,
// found by its name on PATH, and changes nothing:
//
//	kubectl scaledown deployment/web --replicas 25
//
// It names a pod only if that pod can be known. kube-controller-manager deletes pods that are alike
// by the order of its cache, and ages count as equal up to a power of two. The plugin marks such
// pods as a tie, with the set that they are drawn from.
//
// It reads the whole namespace, because pods of sibling ReplicaSets count when pods are ranked by
// how many share a node. A controller deletes at most replicas.DefaultBurstReplicas pods in one
// pass and then decides again, and so does the plugin. For a Deployment, it shows only the one step
// of scaling it. It does not foresee the steps of a rollout, which go on unless it is paused.
//
// The exit code is 0 for an answer, and 1 if there is none.
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
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the same logins as kubectl
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, time.Now))
}

// run is main with everything it depends on as an argument.
func run(ctx context.Context, args []string, streams genericiooptions.IOStreams, now func() time.Time) (code int) {
	cmd := newCommand(streams, now)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		if ctx.Err() != nil { // the error is that of an interrupted call
			err = errors.New("interrupted")
		}
		say(streams.ErrOut, "error: %v\n", err)
		return 1
	}
	return 0
}

// say writes to a stream, and ignores errors, which cannot be reported.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
