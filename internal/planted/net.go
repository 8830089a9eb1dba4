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
	"time"
)

// A net is a test that may notice a defect.
type net struct {
	name string
	dir  string // of its package
	args []string
	// first is the line that tells of its first failure, and where that was.
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
	failedSeed = regexp.MustCompile(`^\s+chaos_test\.go:\d+: ((?:scene \d+, )?seed \d+): `)
	failedTest = regexp.MustCompile(`^\s+Test:\s+(\S+)`)
	died       = regexp.MustCompile(`^(?:panic|fatal error): (.*)`)
)

func suites(b budget) []suite {
	return []suite{{
		title: "in what the simulation runs",
		dirs:  []string{"replicas/controller", "replicas/ledger", "replicas", "podrank", "expectations", "selector", "status", "slowstart"},
		nets: []net{
			{name: "stories", dir: "replicas/replicastest/internal/chaos", args: []string{"-test.run", "^TestSeeds", "-seeds", b.seeds}, first: failedSeed},
			{name: "corners", dir: "replicas/replicastest/internal/corners", args: []string{"-test.run", "^TestCorners$", "-every", strconv.Itoa(b.every)}, first: failedTest},
			{name: "explorer", dir: "replicas/replicastest", args: []string{"-test.run", "^TestExplore$"}, first: failedTest},
		},
	}, {
		title: "in the module with client-go",
		dirs:  []string{"replicas/clientgo", "replicas/typed"},
		nets:  []net{{name: "beside Kubernetes", dir: "test/conformance", args: []string{"-test.run", "^Test(Controllers|Retries)$"}, first: failedTest}},
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
			s.nets = append(slices.Clip(s.nets), testsOf(dir, ownTests))
			return s, nil
		}
	}
	return suite{}, fmt.Errorf("no net looks at %s", dir)
}

// testsOf is the net that the tests of a package are.
func testsOf(dir, name string) net { return net{name: name, dir: dir, first: failedTest} }

// catches maps the name of each net that was run to what it said, "" if it noticed
// nothing. A net is not run if one before it has noticed the defect.
type catches map[string]string

// A bed is where all defects of a suite stand together, built into the nets.
type bed struct{ root, scratch string }

// plant builds nets with all defects.
func plant(ctx context.Context, root string, defects []defect, nets []net) (b bed, err error) {
	scratch, err := os.MkdirTemp("", "planted")
	if err != nil {
		return bed{}, err
	}
	b = bed{root, scratch}
	defer func() {
		if err != nil {
			b.clear()
		}
	}()
	overlay, err := makeOverlay(root, scratch, defects)
	if err != nil {
		return bed{}, err
	}
	var dirs []string
	for _, n := range nets {
		dirs = append(dirs, n.dir)
	}
	return b, build(ctx, root, dirs, "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", scratch+string(filepath.Separator))
}

func (b bed) clear() { _ = os.RemoveAll(b.scratch) }

// binary is where go puts the test of a net.
func (b bed) binary(n net) string { return filepath.Join(b.scratch, path.Base(n.dir)+".test") }

// build runs a command of go for packages, those of one module at once.
func build(ctx context.Context, root string, dirs []string, args ...string) error {
	modules := map[string][]string{}
	for _, dir := range dirs {
		module := moduleOf(root, dir)
		dir, err := filepath.Rel(module, dir)
		if err != nil {
			return err
		}
		modules[module] = append(modules[module], "./"+filepath.ToSlash(dir))
	}
	for module, dirs := range modules {
		cmd := exec.CommandContext(ctx, "go", append(slices.Clone(args), dirs...)...)
		cmd.Dir = filepath.Join(root, filepath.FromSlash(module))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}

// try runs nets on one of the defects, one after the other until one notices it. That
// none is chosen changes nothing.
func (b bed) try(ctx context.Context, d defect, nets []net, timeout time.Duration) (catches, error) {
	caught := catches{}
	for _, n := range nets {
		said, err := n.run(ctx, b, d.name, timeout)
		if err != nil {
			return nil, err
		}
		if caught[n.name] = said; said != "" {
			break
		}
	}
	return caught, nil
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
func (n net) run(ctx context.Context, b bed, defect string, timeout time.Duration) (said string, err error) {
	limited, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	cmd := exec.CommandContext(limited, b.binary(n), append([]string{"-test.v", "-test.failfast", "-test.timeout", "0"}, n.args...)...)
	cmd.Dir, cmd.WaitDelay = filepath.Join(b.root, filepath.FromSlash(n.dir)), time.Minute
	cmd.Env = append(os.Environ(), chosen+"="+defect)
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
			return m[1]
		}
		if m := died.FindStringSubmatch(line); m != nil {
			return "panic: " + strings.TrimSpace(m[1])
		}
		if err != nil {
			return ""
		}
	}
}
