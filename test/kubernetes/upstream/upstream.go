// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream runs tests of k8s.io/kubernetes in packages of this module. The tests come from the module
// cache, and this repository keeps no copy of them. The only changes are that imports are replaced and some
// tests are removed.
package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
)

// A Suite defines which tests run in which package.
type Suite struct {
	suite.Suite
	// The field From is the directory of the tests in k8s.io/kubernetes. The field In is the directory of the
	// package that runs the tests, relative to the root of this module.
	From, In string
	// Imports contains the replacements for import paths of the tests.
	Imports map[string]string
	// Unused lists functions and types that are removed together with the tests in LeftOut, because only these
	// tests need them.
	Unused []string
}

// A Runner builds and runs suites.
type Runner struct {
	// Module is this module's directory.
	Module string
	// Binaries is the directory that contains etcd.
	Binaries string
	// Tests is the time limit for running one suite. The time for building the suite is not included.
	Tests time.Duration
}

// Run builds and runs the suite. When Run returns, all programs that it started have ended. All files that
// it created outside Go's caches have been removed.
func (r Runner) Run(ctx context.Context, s Suite) (verdict suite.Verdict, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", s.Name, err)
		}
	}()
	scratch, err := os.MkdirTemp("", "k8s") // a short name, because it is part of the path of etcd's Unix socket
	if err != nil {
		return verdict, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	kubernetes, err := r.kubernetes(ctx)
	if err != nil {
		return verdict, err
	}
	overlay, err := s.overlay(kubernetes, r.Module, scratch)
	if err != nil {
		return verdict, err
	}
	binary := filepath.Join(scratch, "suite.test")
	if err := r.build(ctx, overlay, binary, s.In); err != nil {
		return verdict, err
	}
	results, err := r.test(ctx, binary, scratch, s.In)
	if err != nil {
		return verdict, err
	}
	return s.Judge(results), nil
}

// kubernetes downloads the module k8s.io/kubernetes if necessary, and returns its directory in the module
// cache.
func (r Runner) kubernetes(ctx context.Context) (string, error) {
	download := r.command(ctx, "mod", "download", "k8s.io/kubernetes")
	if out, err := output(download); err != nil {
		return "", fmt.Errorf("k8s.io/kubernetes cannot be downloaded: %w: %s", err, lastLine(out))
	}
	out, err := output(r.command(ctx, "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"))
	return lastLine(out), err
}

func (r Runner) build(ctx context.Context, overlay, binary, in string) error {
	build := r.command(ctx, "test", "-c", "-trimpath", "-vet=off", "-overlay", overlay, "-o", binary, "./"+in)
	out, err := output(build)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	return nil
}

// test runs the test binary. All temporary files, including etcd's data, are in the directory scratch. The
// tests start their own etcd instead of using one that is already running. Kubernetes' test server reads
// files from its source directory. A binary that is built with -trimpath knows this directory only as a path
// relative to the module cache. Therefore TEST_SRCDIR and TEST_WORKSPACE together specify the module cache.
func (r Runner) test(ctx context.Context, binary, scratch, in string) ([]suite.Result, error) {
	modules, err := output(r.command(ctx, "env", "GOMODCACHE"))
	if err != nil {
		return nil, err
	}
	test := r.command(ctx, "tool", "test2json", "-t", "-p", in, binary, "-test.v=test2json", "-test.timeout="+r.Tests.String())
	test.Dir = filepath.Join(r.Module, in)
	test.Env = append(os.Environ(), "TMPDIR="+scratch, "KUBE_INTEGRATION_ETCD_URL=http://127.0.0.1:0",
		"TEST_SRCDIR="+lastLine(modules), "TEST_WORKSPACE=.",
		"PATH="+r.Binaries+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := output(test)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	results, readErr := suite.ReadGoTest(bytes.NewReader(out))
	if readErr != nil {
		return nil, errors.Join(err, readErr)
	}
	if len(results) == 0 || len(results) == 1 && results[0].Test == in { // only the package has a result
		return nil, fmt.Errorf("no test ran: %w: %s", err, reason(results))
	}
	return results, nil
}

// reason returns the last line that a package printed before the line that begins with FAIL.
func reason(results []suite.Result) string {
	if len(results) == 0 {
		return "it printed nothing"
	}
	said, _, _ := strings.Cut(results[0].Output, "\nFAIL")
	return lastLine([]byte(said))
}

// patience is the maximum time that a program may take to exit after SIGTERM.
const patience = 10 * time.Second

// command returns a go command that runs in the directory of the module. The command runs in a new process
// group, so that output(cmd) can kill all processes of this group.
func (r Runner) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.Module
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = patience
	return cmd
}

// output runs the command and returns its output. If child processes still run after the command, for
// example after a panic in a test, output kills them.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return out, err
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
