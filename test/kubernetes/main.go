// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubernetes runs Kubernetes' own unit and integration tests with this project's packages, and prints
// the results. The exit status is 1 if a test unexpectedly fails or unexpectedly passes.
// The Makefile has the targets kubernetes-unit and kubernetes-integration for this command.
//
//	go run . unit integration
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/replicakit/replicakit/test/kubernetes/integration"
	"github.com/replicakit/replicakit/test/kubernetes/suite"
	"github.com/replicakit/replicakit/test/kubernetes/unit"
	"github.com/replicakit/replicakit/test/kubernetes/upstream"
)

func main() {
	var runner upstream.Runner
	flag.StringVar(&runner.Binaries, "binaries", "../../.cache/bin", "the `directory` that contains etcd")
	flag.DurationVar(&runner.Tests, "tests", 20*time.Minute, "the time limit for running each suite")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, runner, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes:", err)
		os.Exit(1)
	}
}

// run runs the parts and writes the results. The current directory must be the directory of this module.
func run(ctx context.Context, runner upstream.Runner, parts []string, out io.Writer) (err error) {
	if runner.Binaries, err = filepath.Abs(runner.Binaries); err != nil {
		return err
	}
	if runner.Module, err = os.Getwd(); err != nil {
		return err
	}
	suites, err := named(parts, runner.Binaries)
	if err != nil {
		return err
	}
	var verdicts []suite.Verdict
	for _, s := range suites {
		start := time.Now()
		verdict, err := runner.Run(ctx, s)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s: %v\n", s.Name, time.Since(start).Round(time.Second)); err != nil {
			return err
		}
		verdicts = append(verdicts, verdict)
	}
	return suite.Print(out, verdicts)
}

// named returns the suites of the given parts. It returns an error if a part is unknown or etcd is missing.
func named(parts []string, binaries string) ([]upstream.Suite, error) {
	if len(parts) == 0 {
		return nil, errors.New("say which parts to run: unit, integration")
	}
	var suites []upstream.Suite
	for _, part := range parts {
		switch part {
		case "unit":
			suites = slices.Concat(suites, unit.Suites())
		case "integration":
			etcd := filepath.Join(binaries, "etcd")
			if _, err := os.Stat(etcd); err != nil {
				return nil, fmt.Errorf("there is no %s: run `make cluster-binaries`", etcd)
			}
			suites = slices.Concat(suites, integration.Suites())
		default:
			return nil, fmt.Errorf("there is no part %q, only unit and integration", part)
		}
	}
	return suites, nil
}
