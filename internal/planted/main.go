// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var b budget
	flags := flag.NewFlagSet("planted", flag.ExitOnError)
	flags.StringVar(&b.seeds, "seeds", "1-100", "the seeds of the stories")
	flags.IntVar(&b.every, "every", 11, "the corners make only every so manieth disturbance")
	flags.DurationVar(&b.timeout, "timeout", 3*time.Minute, "how long one net may take for one defect, without the build")
	only := flags.String("run", "", "plant only the defects whose names match")
	which := flags.String("nets", "", "run only the nets whose names match")
	resume := flags.String("resume", "", "keep the results in this file, and take those of the same commit from there")
	checkOnly := flags.Bool("check", false, "only compile the packages with all of their defects")
	_ = flags.Parse(args) // it exits
	if flags.NArg() > 1 {
		return errors.New("usage: planted [flags] [PAGE]")
	}
	names, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	nets, err := regexp.Compile(*which)
	if err != nil {
		return err
	}
	root, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	defects, err := load(filepath.Join(root, "internal", "planted", "testdata"))
	if err != nil {
		return err
	}
	if *checkOnly {
		return check(ctx, root, suites(b), defects)
	}
	commit, err := commitOf(ctx)
	if err != nil {
		return err
	}
	t := &table{suites: suites(b), defects: defects, commit: commit, day: time.Now().UTC(), budget: b}
	if t.results, err = openResults(*resume, commit, b); err != nil {
		return err
	}
	defer t.results.close()
	if err := t.fill(ctx, root, names, nets); err != nil {
		return err
	}
	if flags.NArg() == 1 {
		err = t.insert(flags.Arg(0))
	}
	return errors.Join(err, t.verdict())
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// commitOf names what the defects are planted into.
func commitOf(ctx context.Context) (string, error) {
	commit, err := git(ctx, "rev-parse", "--short=10", "HEAD")
	if err != nil {
		return "", err
	}
	changes, err := git(ctx, "status", "--porcelain", "--", "*.go")
	if changes != "" {
		commit += " with changes"
	}
	return commit, err
}
