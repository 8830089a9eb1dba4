// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release makes a release of this repository's modules, after it has
// shown that strangers can take it. Nothing is pushed.
//
//	go run . check     would the working tree be a release that can be taken?
//	go run . apidiff   what has changed in the API since the last release?
//	go run . v0.1.0    both, then commits and tags
//
// It is run by make release-check, make apidiff and make release; RELEASING.md
// says more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

// checkVersion is what make release-check calls the working tree. No release
// has this version.
const checkVersion = "v0.0.0-check"

// A request says what to release.
type request struct {
	root     string   // the repository's directory
	modules  []string // directories of the modules that are released; "." is the root's
	programs []string // directories of the programs that go install has to build
	version  string
	now      time.Time // of the CHANGELOG's heading
	log      io.Writer

	head string // the commit that is released, for release alone
}

func main() {
	// A git hook sets these for its own repository.
	for _, name := range []string{"GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"} {
		_ = os.Unsetenv(name)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	root := flags.String("root", "../..", "the repository's `directory`")
	modules := flags.String("modules", ".", "`directories` of the modules that are released")
	programs := flags.String("programs", "", "`directories` of the programs that go install has to build")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("want one version, or the word check or apidiff; got %q", flags.Args())
	}
	r := request{
		root:     *root,
		modules:  strings.Fields(*modules),
		programs: strings.Fields(*programs),
		version:  flags.Arg(0),
		now:      time.Now(),
		log:      os.Stdout,
	}
	switch r.version {
	case "check":
		r.version = checkVersion
		return r.check(ctx)
	case "apidiff":
		return r.apidiff(ctx)
	}
	return r.release(ctx)
}

// check stages the working tree as a release, and takes it as strangers would.
func (r request) check(ctx context.Context) error {
	return r.staged(ctx, func(s *stage) error { return r.take(ctx, s) })
}

// release does so with what is committed, and then commits and tags it.
func (r request) release(ctx context.Context) error {
	repo := git(r.root)
	if err := r.refuse(ctx, repo); err != nil {
		return err
	}
	var err error
	if r.head, err = repo.run(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	return r.staged(ctx, func(s *stage) error {
		if err := r.refuseStage(ctx, repo, s); err != nil {
			return err
		}
		if err := r.refuseAPI(ctx); err != nil {
			return err
		}
		if err := r.take(ctx, s); err != nil {
			return err
		}
		return r.tag(ctx, repo, s)
	})
}

// staged calls do with a stage that goes away afterwards.
func (r request) staged(ctx context.Context, do func(*stage) error) (err error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := r.stage(ctx, dir)
	if err != nil {
		return err
	}
	return do(s)
}
