// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-scaledown shows which pods would be deleted if a Deployment, ReplicaSet or
// ReplicationController were scaled down, in which order, and why. The command is a kubectl plugin,
// which kubectl finds on PATH by its name. The plugin changes nothing in the cluster:
//
//	kubectl scaledown deployment/web --replicas 25
//
// The plugin names a pod as certain only if it can be known that the pod goes. Pods that are equal
// in Kubernetes' order are deleted in the order of the cache of kube-controller-manager. Ages count
// as equal if they have the same power of two. The plugin reports equal pods as a tie, and lists
// all pods among which kube-controller-manager chooses.
//
// The plugin reads the whole namespace. The plugin needs the pods of sibling ReplicaSets to rank
// pods by how many of them share a node. A controller deletes at most replicas.DefaultBurstReplicas
// pods in one pass, and then ranks the remaining pods again. The plugin ranks the remaining pods
// again in the same way. For a Deployment, the plugin shows only what changes when spec.replicas is
// set. The plugin does not predict the later steps of a rollout, which continues unless the
// Deployment is paused.
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
	_ "k8s.io/client-go/plugin/pkg/client/auth" // to log in as kubectl does
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, time.Now))
}

// run is main, with everything that main depends on passed as an argument.
func run(ctx context.Context, args []string, streams genericiooptions.IOStreams, now func() time.Time) (code int) {
	cmd := newCommand(streams, now)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		if ctx.Err() != nil { // err only says that a call was interrupted
			err = errors.New("interrupted")
		}
		say(streams.ErrOut, "error: %v\n", err)
		return 1
	}
	return 0
}

// say writes to a stream. say ignores errors, because there is no other place to report them.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
