// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-scaledown shows which pods would go if a Deployment, ReplicaSet
// or ReplicationController were scaled down, in which order, and why each. It is
// a kubectl plugin, found by its name on PATH, and changes nothing:
//
//	go install ./examples/kubectl-scaledown
//	kubectl scaledown deployment/web --replicas 25
//
// It reads the whole namespace, by one kubectl get, or a dump of it from a pipe or
// a file: pods of sibling ReplicaSets, those of the same Deployment, count when
// pods are ranked by how many share a node. Give a saved dump its own time, with
// --at, as ages count too.
//
// The answer is what replicas.Manage plans, for all of the surplus at once. A
// controller deletes no more than replicas.DefaultBurstReplicas in one pass and
// decides anew after it. Of a Deployment it is what follows from the one step of
// scaling it; the steps of a rollout are not foreseen.
//
// The exit code is 0 for an answer, 1 if there is none in what was read, 2 for a
// command line that is not understood, and 3 if the cluster could not be read.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

const usage = `Show which pods would go if you scaled down, in which order, and why.
It reads only: nothing is scaled, nothing is deleted.

Usage:
  kubectl scaledown KIND/NAME [--replicas N] [flags]       reads the cluster
  kubectl scaledown -f FILE [KIND/NAME] [flags]            reads a saved dump
  kubectl get deployments,rs,pods -o json | kubectl scaledown [KIND/NAME] [flags]

KIND is deployment, rs or rc. KIND, NAME or both may be left out if only one can
be meant; ReplicationControllers of the cluster are looked for only as rc.

Examples:
  # Who goes when web is scaled to 25?
  kubectl scaledown deployment/web --replicas 25

  # Who is next, down to the last pod, and what decided between each two?
  kubectl scaledown deployment/web --explain

  # The same with all that is compared: costs, pods on the node, restarts ...
  kubectl scaledown deployment/web --explain -o wide

  # A picture of the fleet by node, for a pull request or a post-mortem
  kubectl scaledown deployment/web --replicas 25 -o svg > web.svg

  # Save what is there now; ask later, as it was decided then
  kubectl get deployments,rs,pods -o json > fleet.json
  kubectl scaledown -f fleet.json --replicas 25 --at 2026-11-21T11:40:54Z

What is asked:
      --replicas N         how many are wanted (default: its spec.replicas)
      --explain            the whole order, not only those that go
  -l, --selector LABELS    the one with these labels, as app=web
  -n, --namespace NAME     its namespace (default: that of the context)
      --at TIME            decide at this instant, as 2026-11-21T11:40:54Z
                           (default: now)

How it is told:
  -o, --output FORMAT      table, wide, json, svg, or name: the pods that go, as
                           pod/NAME, the first to go first (default: table)

Where it is read:
  -f, --filename FILE      JSON or YAML of the whole namespace; "-" is standard
                           input. May be repeated
      --context NAME       the cluster, as kubectl knows it
      --kubeconfig FILE    the same
      --request-timeout D  how long one request may take (default: 30s)
  Without any of these: what is piped in, or else the current context's cluster.
  In scripts without a terminal, say </dev/null to read the cluster.

Exit codes:
  0  here is the answer
  1  no answer: nothing has that name, or what was read cannot be right
  2  the command line is not understood
  3  the cluster could not be read: no kubectl, no connection, no rights
`

const (
	exitOK = iota
	exitError
	exitUsage
	exitCluster
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, time.Now))
}

// run is main with everything it depends on as an argument.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, now func() time.Time) int {
	opts, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		say(stdout, usage)
		return exitOK
	}
	if err == nil {
		err = report(opts, stdin, stdout, stderr, now)
	}
	var mistake usageError
	var cluster *clusterError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &mistake):
		say(stderr, "error: %v\nSee 'kubectl scaledown --help'.\n", err)
		return exitUsage
	case errors.As(err, &cluster):
		say(stderr, "error: %v\n", err)
		return exitCluster
	}
	say(stderr, "error: %v\n", err)
	return exitError
}

// report reads, decides and prints. An answer is printed whole or not at all.
func report(opts options, stdin io.Reader, stdout, stderr io.Writer, now func() time.Time) error {
	objs, err := opts.read(stdin, stderr)
	if err != nil {
		return err
	}
	if opts.at.IsZero() {
		opts.at = now() // after reading, which takes its time
	}
	a, err := decide(objs, opts)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := formats[opts.output](&out, a); err != nil {
		return err
	}
	for _, note := range a.notes() {
		say(stderr, "note: %s\n", note)
	}
	if out.Len() == 0 {
		say(stderr, "note: %s\n", a.summary())
	}
	_, err = out.WriteTo(stdout)
	return err
}

// say writes what nobody can be told about if it fails.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
