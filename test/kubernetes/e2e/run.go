// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
)

// timeout is the time limit for the specs of one side.
const timeout = 45 * time.Minute

// runAll runs the requested specs and prints the table of their results. After an error, the remaining sides
// do not run, and the table contains only the sides that ran before the error.
func (o options) runAll(ctx context.Context, dir string, out io.Writer) error {
	var verdicts []suite.Verdict
	err := o.judge(ctx, dir, &verdicts, out)
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}
	if len(verdicts) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(out)
	return errors.Join(err, suite.Print(out, verdicts))
}

func (o options) judge(ctx context.Context, dir string, verdicts *[]suite.Verdict, out io.Writer) error {
	for _, sd := range o.sides {
		began, dir := time.Now(), filepath.Join(dir, sd.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		results, err := o.runSpecs(ctx, sd, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", sd.name, err)
		}
		verdict := o.known(sd, results).Judge(results)
		*verdicts = append(*verdicts, verdict)
		_, _ = fmt.Fprintf(out, "%s: %d of %d specs passed in %.0f s\n", sd.title, verdict.Passed, verdict.Ran, time.Since(began).Seconds())
	}
	return nil
}

// runSpecs starts a cluster for the side and runs Kubernetes' specs on this cluster. Several specs run at the
// same time.
func (o options) runSpecs(ctx context.Context, sd side, dir string) ([]suite.Result, error) {
	ctx, c, err := startCluster(ctx, o.binaries, dir, sd)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	report := filepath.Join(dir, "report.json")
	err = c.ginkgo(ctx, o, sd, report)
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	file, openErr := os.Open(report)
	if openErr != nil {
		return nil, fmt.Errorf("ginkgo gave no report: %w; see %s", errors.Join(err, openErr), dir)
	}
	defer func() { _ = file.Close() }()
	return suite.ReadGinkgo(file)
}

// ginkgo runs the specs and writes the report. If a spec fails, ginkgo also returns an error. The report
// shows which specs failed.
func (c *cluster) ginkgo(ctx context.Context, opts options, sd side, report string) error {
	log, err := os.Create(filepath.Join(c.dir, "ginkgo.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, filepath.Join(opts.binaries, "ginkgo"),
		"--procs=8", "--no-color", "--timeout="+timeout.String(),
		"--output-dir="+filepath.Dir(report), "--json-report="+filepath.Base(report),
		"--focus="+opts.focusOf(sd).String(),
		filepath.Join(opts.binaries, "kubernetes-e2e-specs.test"), "--",
		"--kubeconfig="+c.kubeconfig, "--provider=skeleton", "--dump-logs-on-failure=false", "--e2e-output-dir="+c.dir)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}
