// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nightly runs make targets that take too long for each change, one after the
// other, and writes what came of each into the table of a page. A target that fails
// stops no other. A target that has a row of this commit is not run again, so a run that
// was interrupted goes on where it was.
//
//	go run ./internal/nightly -page test/README.md -all "sim soak"        what is missing
//	go run ./internal/nightly -page test/README.md -all "sim soak" soak   this one, whatever its row says
//
// It is run by make nightly. What a target prints is kept in .cache/nightly. A line of it
// that has "figures: " in it tells the figures of its row.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	page := flag.String("page", "", "the `file` that has the table")
	all := flag.String("all", "", "the `targets` of the table, in its order")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	n := nightly{page: *page, logs: filepath.Join(".cache", "nightly"), all: strings.Fields(*all), out: os.Stdout, run: runMake, now: time.Now, commit: commit}
	err := n.do(ctx, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nightly:", err)
		os.Exit(1)
	}
}

// nightly is one run.
type nightly struct {
	page, logs string
	all        []string // the targets of the table
	out        io.Writer

	run    func(ctx context.Context, target string, log io.Writer) error
	now    func() time.Time
	commit func(ctx context.Context) (string, error)
}

// do runs the targets given, or else those that the page knows nothing of at this commit.
func (n nightly) do(ctx context.Context, targets []string) error {
	for _, target := range targets {
		if !slices.Contains(n.all, target) {
			return fmt.Errorf("%s is none of %s", target, strings.Join(n.all, ", "))
		}
	}
	at, err := n.commit(ctx)
	if err != nil {
		return err
	}
	known, err := readTable(n.page)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		targets = slices.DeleteFunc(slices.Clone(n.all), func(target string) bool { return known[target].commit == at })
		_, _ = fmt.Fprintf(n.out, "at %s: %d of %d targets are left\n", at, len(targets), len(n.all))
	}
	if err := os.MkdirAll(n.logs, 0o755); err != nil {
		return err
	}
	failed := []string(nil)
	for _, target := range targets {
		made, err := n.one(ctx, target, at)
		if err != nil {
			return err
		}
		if err := writeRow(n.page, n.all, target, made); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(n.out, "%s: %s after %s. %s\n", target, made.outcome, made.took, made.figures)
		if made.outcome != passes {
			failed = append(failed, target)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("these fail: %s; see %s", strings.Join(failed, ", "), n.logs)
	}
	return nil
}

// one runs a target to its end. An interrupt is no result.
func (n nightly) one(ctx context.Context, target, at string) (row, error) {
	log, err := os.Create(filepath.Join(n.logs, target+".log"))
	if err != nil {
		return row{}, err
	}
	began := n.now()
	ran := n.run(ctx, target, log)
	took := n.now().Sub(began)
	if err := log.Close(); err != nil {
		return row{}, err
	}
	if ctx.Err() != nil {
		return row{}, fmt.Errorf("%s: interrupted: run it again to go on", target)
	}
	text, err := os.ReadFile(log.Name())
	if err != nil {
		return row{}, err
	}
	made := row{outcome: passes, commit: at, date: began.Format(time.DateOnly), took: took.Round(time.Second).String(), figures: figures(text)}
	if ran != nil {
		made.outcome = fails
	}
	return made, nil
}

// figures are what the output tells of itself.
func figures(output []byte) string {
	var told []string
	for line := range bytes.Lines(output) {
		if _, figure, ok := strings.Cut(string(line), "figures: "); ok {
			told = append(told, strings.ReplaceAll(strings.TrimSpace(figure), "|", "/"))
		}
	}
	return strings.Join(told, "; ")
}

// runMake runs a target in a process group of its own, and stops all of it when ctx ends.
func runMake(ctx context.Context, target string, log io.Writer) error {
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", target)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}

// commit names what is checked out. The pages that targets write are no change of it.
func commit(ctx context.Context) (string, error) {
	name, err := exec.CommandContext(ctx, "git", "describe", "--always", "--exclude=*").Output()
	if err != nil {
		return "", fmt.Errorf("git describe: %w", err)
	}
	err = exec.CommandContext(ctx, "git", "diff", "--quiet", "HEAD", "--", ".", ":!*.md", ":!*.svg").Run()
	var changed *exec.ExitError
	switch {
	case errors.As(err, &changed):
		return strings.TrimSpace(string(name)) + "-dirty", nil
	case err != nil:
		return "", fmt.Errorf("git diff: %w", err)
	}
	return strings.TrimSpace(string(name)), nil
}
