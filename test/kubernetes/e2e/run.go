// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
)

// runAll prints the table of everything that was asked for, as far as it came.
func (o options) runAll(ctx context.Context, dir string, out io.Writer) error {
	var all findings
	err := o.find(ctx, dir, &all, out)
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}
	return errors.Join(err, all.print(out))
}

// findings are what is printed at the end.
type findings struct {
	verdicts []suite.Verdict
	rolling  string // lines of a table
}

func (f *findings) print(out io.Writer) error {
	if len(f.verdicts) == 0 {
		return nil
	}
	if f.rolling != "" {
		if _, err := fmt.Fprintf(out, "\n%s%s", rollingHead, f.rolling); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return suite.Print(out, f.verdicts)
}

func (o options) find(ctx context.Context, dir string, all *findings, out io.Writer) error {
	for _, sd := range o.sides {
		if o.has(partSpecs) {
			if err := o.findSpecs(ctx, dir, sd, all, out); err != nil {
				return fmt.Errorf("%s, specs: %w", sd.name, err)
			}
		}
		if o.has(partRolling) && sd.works() {
			if err := o.findRolling(ctx, dir, sd, all, out); err != nil {
				return fmt.Errorf("%s, rolling updates: %w", sd.name, err)
			}
		}
	}
	return nil
}

func (o options) findSpecs(ctx context.Context, dir string, sd side, all *findings, out io.Writer) error {
	began := time.Now()
	dir, err := subdirectory(dir, sd.name+"-specs")
	if err != nil {
		return err
	}
	results, conflicts, err := o.runSpecs(ctx, sd, dir)
	if err != nil {
		return err
	}
	verdict := o.known(sd, results).Judge(results)
	all.verdicts = append(all.verdicts, verdict)
	_, err = fmt.Fprintf(out, "%s: %d of %d specs passed in %.0f s; %.0f status conflicts of ReplicationControllers\n",
		sd.title, verdict.Passed, verdict.Ran, time.Since(began).Seconds(), conflicts)
	return err
}

func (o options) findRolling(ctx context.Context, dir string, sd side, all *findings, out io.Writer) error {
	dir, err := subdirectory(dir, sd.name+"-rolling")
	if err != nil {
		return err
	}
	done, err := o.runRolling(ctx, sd, dir)
	if err != nil {
		return err
	}
	all.rolling += rollingTable(sd, done)
	all.verdicts = append(all.verdicts, suite.Suite{Name: "rolling updates, " + sd.title, Specs: rollingUpdates}.Judge(rollingResults(done)))
	_, err = fmt.Fprintf(out, "%s: %d rolling updates\n", sd.title, len(done))
	return err
}

func subdirectory(dir, name string) (string, error) {
	dir = filepath.Join(dir, name)
	return dir, os.Mkdir(dir, 0o700)
}
