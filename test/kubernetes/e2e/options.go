// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

type options struct {
	sides   []side
	parts   []string
	focus   *regexp.Regexp // of specs; nil: those of the table
	procs   int
	timeout time.Duration

	binaries string
}

// What can be run.
const (
	partSpecs   = "specs"
	partRolling = "rolling"
)

func parse(args []string) (opts options, err error) {
	fs := flag.NewFlagSet("e2e", flag.ContinueOnError)
	sideList := fs.String("sides", "ours,kubernetes,none", "who does the work, by commas")
	parts := fs.String("parts", partSpecs+","+partRolling, "what is run, by commas; rolling updates need somebody who works")
	focus := fs.String("focus", "", "regular expression for the specs to run; empty means those of the table")
	fs.IntVar(&opts.procs, "procs", 8, "specs that run at once")
	fs.DurationVar(&opts.timeout, "timeout", 45*time.Minute, "how long each part of each side may take")
	if err := fs.Parse(args); err != nil {
		return opts, err
	}
	if fs.NArg() > 0 {
		return opts, fmt.Errorf("arguments that are no flags: %q", fs.Args())
	}
	if opts.procs < 1 || opts.timeout <= 0 {
		return opts, fmt.Errorf("-procs=%d and -timeout=%v must be positive", opts.procs, opts.timeout)
	}
	if *focus != "" {
		if opts.focus, err = regexp.Compile(*focus); err != nil {
			return opts, fmt.Errorf("-focus: %w", err)
		}
	}
	for part := range strings.SplitSeq(*parts, ",") {
		if part != partSpecs && part != partRolling {
			return opts, fmt.Errorf("-parts=%s: %q is not one of %s,%s", *parts, part, partSpecs, partRolling)
		}
		opts.parts = append(opts.parts, part)
	}
	if opts.sides, err = chooseSides(*sideList); err != nil {
		return opts, err
	}
	if !opts.has(partSpecs) && !slices.ContainsFunc(opts.sides, side.works) {
		return opts, fmt.Errorf("-parts=%s -sides=%s: nobody does the work", *parts, *sideList)
	}
	opts.binaries, err = findBinaries()
	return opts, err
}

func (o options) has(part string) bool { return slices.Contains(o.parts, part) }

// specsBinary is what package specs is built as.
const specsBinary = "kubernetes-e2e-specs.test"

func findBinaries() (string, error) {
	dir, err := controlplane.Binaries()
	if err != nil {
		return "", err
	}
	for _, name := range []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "replicakit-controller", "ginkgo", specsBinary,
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("no %s in %s: `make kubernetes-e2e` builds it", name, dir)
		}
	}
	return dir, nil
}
