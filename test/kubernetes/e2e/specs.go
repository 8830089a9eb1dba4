// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
)

// specNodes are as many as some of the specs have at most.
const specNodes = 6

// runSpecs runs Kubernetes' specs against a cluster of the side, several at once.
func (o options) runSpecs(ctx context.Context, sd side, dir string) (results []suite.Result, conflicts float64, err error) {
	ctx, c, err := startCluster(ctx, o.binaries, dir, sd, specNodes)
	if err != nil {
		return nil, 0, err
	}
	defer c.stop()
	report := filepath.Join(dir, "report.json")
	err = c.ginkgo(ctx, o, sd, report)
	if cause := context.Cause(ctx); cause != nil {
		return nil, 0, cause
	}
	file, openErr := os.Open(report)
	if openErr != nil {
		return nil, 0, fmt.Errorf("ginkgo gave no report: %w; see %s", errors.Join(err, openErr), dir)
	}
	defer func() { _ = file.Close() }()
	if results, err = suite.ReadGinkgo(file); err != nil {
		return nil, 0, err
	}
	server, err := serverTally(ctx, c.client)
	return results, server.sum("apiserver_request_total", map[string]string{
		"resource": "replicationcontrollers", "subresource": "status", "code": "409",
	}), err
}

// ginkgo returns an error if a spec fails, too: the report tells.
func (c *cluster) ginkgo(ctx context.Context, opts options, sd side, report string) error {
	log, err := os.Create(filepath.Join(c.dir, "ginkgo.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, filepath.Join(opts.binaries, "ginkgo"),
		"--procs="+strconv.Itoa(opts.procs), "--no-color", "--timeout="+opts.timeout.String(),
		"--output-dir="+filepath.Dir(report), "--json-report="+filepath.Base(report),
		"--focus="+opts.focusOf(sd).String(),
		filepath.Join(opts.binaries, specsBinary), "--",
		"--kubeconfig="+c.kubeconfig, "--provider=skeleton", "--dump-logs-on-failure=false", "--e2e-output-dir="+c.dir)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}
