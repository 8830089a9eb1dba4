// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster compares cmd/replicakit-controller with kube-controller-manager on a real API server. For
// each of the two programs, it reports the elapsed time, the number of API calls of each kind, the CPU time
// and the memory.
//
//	make bench-cluster                    # three runs, into test/bench/cluster.md
//	make bench-cluster ARGS=-quick        # small, in three minutes, and into no file
//	make bench-cluster ARGS="-scenarios pause,lost-429 -runs 1"
//
// Each measurement starts its own etcd, kube-apiserver and controller. The two programs are measured
// alternately.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

type options struct {
	runs      int
	scenarios []string
	sides     []string
	size      size
	output    string

	binaries, controller string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	binaries, err := controlplane.Binaries()
	if err != nil {
		return err
	}
	opts, err := parse(args, binaries)
	if err != nil {
		return err
	}
	all := &results{runs: opts.runs, size: opts.size}
	err = measureAll(ctx, opts, all, out)
	_, _ = fmt.Fprintf(out, "\n%s", all.table())
	if err != nil || opts.output == "" {
		return err
	}
	page, err := os.ReadFile(opts.output)
	if err != nil {
		return err
	}
	if page, err = all.into(page); err != nil {
		return err
	}
	return os.WriteFile(opts.output, page, 0o644)
}

func parse(args []string, binaries string) (options, error) {
	opts := options{size: full, binaries: binaries}
	fs := flag.NewFlagSet("cluster", flag.ContinueOnError)
	fs.IntVar(&opts.runs, "runs", 3, "number of times that each side runs each scenario")
	fs.DurationVar(&opts.size.idle, "idle", full.idle, "how long nothing happens in the scenario named life; divided by ten with -quick")
	quick := fs.Bool("quick", false, "divide all sizes by ten")
	asked := fs.String("scenarios", strings.Join(scenarioNames(), ","), "comma-separated scenarios to run, out of "+strings.Join(scenarioNames(), ","))
	taken := fs.String("sides", strings.Join(sideNames(), ","), "comma-separated sides to measure")
	fs.StringVar(&opts.output, "o", "", "Markdown file whose table is replaced; if empty, no file is written")
	fs.StringVar(&opts.controller, "controller", filepath.Join(binaries, "replicakit-controller"), "path of our controller program")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	if fs.NArg() > 0 {
		return options{}, fmt.Errorf("arguments that are not flags: %q", fs.Args())
	}
	if opts.runs < 1 {
		return options{}, fmt.Errorf("-runs=%d must be positive", opts.runs)
	}
	if opts.size.idle < 0 {
		return options{}, fmt.Errorf("-idle=%v is negative", opts.size.idle)
	}
	if *quick {
		opts.size = opts.size.tenth()
	}
	var err error
	if opts.scenarios, err = choose("-scenarios", *asked, scenarioNames()); err != nil {
		return options{}, err
	}
	opts.sides, err = choose("-sides", *taken, sideNames())
	return opts, err
}

// choose splits a comma-separated list. It returns an error if the list contains an unknown name.
func choose(flag, asked string, known []string) ([]string, error) {
	chosen := strings.Split(asked, ",")
	for _, name := range chosen {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s=%s: %q is not one of %s", flag, asked, name, strings.Join(known, ","))
		}
	}
	return chosen, nil
}

// measureAll measures each chosen scenario opts.runs times with each chosen program. The order of the
// programs changes from run to run.
func measureAll(ctx context.Context, opts options, all *results, out io.Writer) error {
	for i := range opts.runs {
		for _, sc := range scenarios {
			if !slices.Contains(opts.scenarios, sc.name) {
				continue
			}
			for j := range sides {
				sd := sides[(i+j)%len(sides)]
				if !slices.Contains(opts.sides, sd.name) {
					continue
				}
				began := time.Now()
				got, err := measure(ctx, opts, sc, sd)
				if err != nil {
					return fmt.Errorf("%s, %s, run %d: %w", sc.name, sd.name, i+1, err)
				}
				all.add(sc.name, sd.name, got)
				_, _ = fmt.Fprintf(out, "run %d/%d %-10s %-10s %s (%.0fs)\n", i+1, opts.runs, sc.name, sd.name, got, time.Since(began).Seconds())
			}
		}
	}
	return nil
}
