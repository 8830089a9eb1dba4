// Command kubectl-scaledown shows which pods a ReplicaSet would lose, and why each,
// before anybody scales it. It is a kubectl plugin, found by its name on PATH,
// reads what kubectl prints and calls nothing:
//
//	go install ./examples/kubectl-scaledown
//	kubectl get rs,pods -o json | kubectl scaledown web-5d9c7b6f4d --replicas 25
//
// Give it the whole namespace: pods of sibling ReplicaSets, those of the same
// Deployment, count when pods are ranked by how many share a node. And give a
// saved dump its own time, with --at, as ages count too.
//
// The answer is what replicas.Manage plans, for all of the surplus at once. A
// controller deletes no more than replicas.DefaultBurstReplicas in one pass and
// decides anew after it.
//
// The exit code is 0 for an answer, 1 for input that has none, and 2 for
// arguments that are not understood.
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

const usage = `Show which pods a ReplicaSet would lose, and why each.

Usage:
  kubectl get rs,pods -o json | kubectl scaledown [NAME] [flags]

NAME is the ReplicaSet's: web, rs/web or namespace/web. It may be left out where
the input holds only one.

Flags:
      --replicas N       the number of pods wanted (default: its spec.replicas)
  -f, --filename FILE    read FILE, JSON or YAML; "-" is standard input, the
                         default. May be repeated
  -n, --namespace NAME   the ReplicaSet's namespace
  -o, --output FORMAT    table, json, or name: the pods to delete, one a line
                         (default: table)
      --at TIME          the instant of the decision, as 2026-11-21T11:40:54Z
                         (default: now)

Examples:
  # Who goes when web-5d9c7b6f4d is scaled to 25?
  kubectl get rs,pods -o json | kubectl scaledown web-5d9c7b6f4d --replicas 25

  # The names alone, from a saved dump, as it was decided at that time
  kubectl scaledown -f fleet.yaml --replicas 25 --at 2026-11-21T11:40:54Z -o name
`

const (
	exitOK = iota
	exitError
	exitUsage
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
	if err == nil && opts.wantsTerminal(stdin) {
		err = errors.New("nothing to read: pipe the output of 'kubectl get rs,pods -o json' in, or name a file with -f")
	}
	if err != nil {
		say(stderr, "error: %v\nSee 'kubectl scaledown --help'.\n", err)
		return exitUsage
	}
	if opts.at.IsZero() {
		opts.at = now()
	}
	if err := answer(opts, stdin, stdout, stderr); err != nil {
		say(stderr, "error: %v\n", err)
		return exitError
	}
	return exitOK
}

// answer reads, decides and prints. An answer is printed whole or not at all.
func answer(opts options, stdin io.Reader, stdout, stderr io.Writer) error {
	objs, err := readAll(opts.files, stdin)
	if err != nil {
		return err
	}
	d, err := decide(objs, opts)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := formats[opts.output](&out, d); err != nil {
		return err
	}
	if note := d.incomplete(); note != "" {
		say(stderr, "note: %s\n", note)
	}
	if out.Len() == 0 {
		say(stderr, "note: %s\n", d.verdict())
	}
	_, err = out.WriteTo(stdout)
	return err
}

// say writes what nobody can be told about if it fails.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
