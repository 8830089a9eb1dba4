// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A net is a test that may notice a defect.
type net struct {
	name string
	dir  string // of its package
	args []string
	// where is what a net says of its first failure, and first the line that says it.
	where string
	first *regexp.Regexp
}

// A suite is where defects are planted, and the nets that look there, or why none does.
type suite struct {
	title string
	dirs  []string
	nets  []net
	why   string
}

// A budget is how much the nets may try.
type budget struct {
	seeds   string
	every   int
	timeout time.Duration
}

// ownTests is how the tests of a package itself are called.
const ownTests = "own tests"

var (
	failedSeed = regexp.MustCompile(`^\s+chaos_test\.go:\d+: seed (\d+): `)
	failedTest = regexp.MustCompile(`^\s+Test:\s+(\S+)`)
	died       = regexp.MustCompile(`^(?:panic|fatal error): (.*)`)
)

func suites(b budget) []suite {
	return []suite{{
		title: "in what the simulation runs",
		dirs:  []string{"replicas/controller", "replicas", "podrank", "expectations", "selector", "status", "slowstart"},
		nets: []net{
			{name: "stories", dir: "replicas/replicastest/internal/chaos", args: []string{"-test.run", "^TestSeeds$", "-seeds", b.seeds}, where: "seed ", first: failedSeed},
			{name: "corners", dir: "replicas/replicastest/internal/corners", args: []string{"-test.run", "^TestCorners$", "-every", strconv.Itoa(b.every)}, first: failedTest},
			{name: "explorer", dir: "replicas/replicastest", args: []string{"-test.run", "^TestExplore$"}, first: failedTest},
		},
	}, {
		title: "in the module with client-go",
		dirs:  []string{"replicas/clientgo"},
		nets:  []net{{name: "beside Kubernetes", dir: "test/conformance", args: []string{"-test.run", "^TestControllers$"}, first: failedTest}},
	}, {
		title: "in the module with controller-runtime",
		dirs:  []string{"replicas/controllerruntime"},
		why:   "No net runs this module without a server: the simulation drives replicas/controller by a client and a cache of its own.",
	}}
}

// suiteOf returns the suite for what is planted in dir.
func suiteOf(all []suite, dir string) (suite, error) {
	for _, s := range all {
		if slices.Contains(s.dirs, dir) {
			s.nets = append(slices.Clip(s.nets), net{name: ownTests, dir: dir, first: failedTest})
			return s, nil
		}
	}
	return suite{}, fmt.Errorf("no net looks at %s", dir)
}

// catches maps the name of each net that was run to what it said, "" if it noticed
// nothing.
type catches map[string]string

// try plants a defect, and runs all nets on it. The zero defect changes nothing.
func (s suite) try(ctx context.Context, root string, d defect, b budget) (catches, error) {
	scratch, err := os.MkdirTemp("", "planted")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	overlay, err := d.overlay(root, scratch)
	if err != nil {
		return nil, err
	}
	if err := s.build(ctx, root, overlay, scratch); err != nil {
		return nil, fmt.Errorf("%s does not compile: %w", d.name, err)
	}
	var wg sync.WaitGroup
	said, errs := make([]string, len(s.nets)), make([]error, len(s.nets))
	for i, n := range s.nets {
		wg.Go(func() { said[i], errs[i] = n.run(ctx, root, binary(scratch, n), b.timeout) })
	}
	wg.Wait()
	caught := catches{}
	for i, n := range s.nets {
		caught[n.name] = said[i]
	}
	return caught, errors.Join(errs...)
}

// binary is where go puts the test of a net.
func binary(scratch string, n net) string {
	return filepath.Join(scratch, path.Base(n.dir)+".test")
}

// build compiles the tests of all nets, those of one module at once.
func (s suite) build(ctx context.Context, root, overlay, scratch string) error {
	modules := map[string][]string{}
	for _, n := range s.nets {
		module := moduleOf(root, n.dir)
		dir, err := filepath.Rel(module, n.dir)
		if err != nil {
			return err
		}
		modules[module] = append(modules[module], "./"+filepath.ToSlash(dir))
	}
	for module, dirs := range modules {
		args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", scratch + string(filepath.Separator)}
		cmd := exec.CommandContext(ctx, "go", append(args, dirs...)...)
		cmd.Dir = filepath.Join(root, filepath.FromSlash(module))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}

// moduleOf returns the directory of the module that dir is in.
func moduleOf(root, dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(dir), "go.mod")); err == nil {
			return dir
		}
	}
	return dir
}

// run returns what the net says of its first failure, and "" if nothing fails. The
// first failure ends the run. So does the timeout, because a pass may never end.
func (n net) run(ctx context.Context, root, binary string, timeout time.Duration) (said string, err error) {
	limited, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	cmd := exec.CommandContext(limited, binary, append([]string{"-test.v", "-test.failfast", "-test.timeout", "0"}, n.args...)...)
	cmd.Dir, cmd.WaitDelay = filepath.Join(root, filepath.FromSlash(n.dir)), time.Minute
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if said = n.read(out); said != "" {
		stop()
	}
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case said != "" || err == nil:
		return said, nil
	case limited.Err() != nil:
		return "no end", nil
	case errors.As(err, new(*exec.ExitError)):
		return "it fails", nil
	}
	return "", err
}

// read returns what the output says of the first failure.
func (n net) read(output io.Reader) string {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if m := n.first.FindStringSubmatch(line); m != nil {
			return n.where + m[1]
		}
		if m := died.FindStringSubmatch(line); m != nil {
			return "panic: " + strings.TrimSpace(m[1])
		}
		if err != nil {
			return ""
		}
	}
}
