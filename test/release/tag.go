// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// refuse returns why there can be no release of what is in the repository.
func (r request) refuse(ctx context.Context, repo git) error {
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != r.version || module.IsPseudoVersion(r.version) {
		return fmt.Errorf("version %q is not one such as v0.1.0", r.version)
	}
	status, err := repo.lines(ctx, "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return err
	}
	if len(status) > 0 {
		return fmt.Errorf("the working tree is not clean:\n%s", strings.Join(status, "\n"))
	}
	if _, err := repo.run(ctx, "symbolic-ref", "--quiet", "HEAD"); err != nil {
		return errors.New("no branch is checked out that the release could be committed to")
	}
	before, err := repo.lines(ctx, "tag", "--merged", "HEAD", "--list", "v*")
	if err != nil {
		return err
	}
	for _, tag := range before {
		if semver.Compare(tag, r.version) >= 0 {
			return fmt.Errorf("version %s is not above %s, which is released already", r.version, tag)
		}
	}
	return nil
}

// refuseStage returns why what was staged cannot be released.
func (r request) refuseStage(ctx context.Context, repo git, s *stage) error {
	committed, err := repo.run(ctx, "rev-parse", r.head+"^{tree}")
	if err != nil {
		return err
	}
	if s.before != committed {
		return fmt.Errorf("the files are not those of %s: tree %s instead of %s", r.head, s.before, committed)
	}
	for _, m := range s.released {
		known, err := repo.run(ctx, "tag", "--list", tagOf(m, r.version))
		if err != nil {
			return err
		}
		if known != "" {
			return fmt.Errorf("tag %s exists", known)
		}
	}
	return nil
}

// refuseAPI returns an error if the version is too low for what has changed.
func (r request) refuseAPI(ctx context.Context) error {
	c, err := r.changes(ctx)
	if err != nil || c.since == "" || semver.Compare(r.version, c.least()+"-0") >= 0 {
		return err
	}
	return fmt.Errorf("version %s is too low:\n%s", r.version, c)
}

// tag commits what was staged: first what gets the tags, and behind it what to
// go on with. If a step fails, no tag stays and the branch has not moved.
func (r request) tag(ctx context.Context, repo git, s *stage) error {
	branch, err := repo.run(ctx, "symbolic-ref", "--short", "HEAD")
	if err != nil {
		return err
	}
	if err := s.handOver(ctx, repo); err != nil {
		return err
	}
	released, err := repo.run(ctx, "commit-tree", s.tagged, "-p", r.head, "-m", "release: "+r.version)
	if err != nil {
		return err
	}
	after, err := repo.run(ctx, "commit-tree", s.after, "-p", released, "-m", "release: modules beside each other again, after "+r.version)
	if err != nil {
		return err
	}
	tags, err := r.tagAll(ctx, repo, s.released, released)
	if err == nil {
		_, err = repo.run(ctx, "merge", "--quiet", "--ff-only", after)
	}
	if err != nil {
		return errors.Join(err, undo(context.WithoutCancel(ctx), repo, tags))
	}
	_, err = fmt.Fprintf(r.log, "Committed and tagged. To publish it:\n\n\tgit push --atomic origin %s %s\n", branch, strings.Join(tags, " "))
	return err
}

// tagAll returns the tags that it has made, also with an error.
func (r request) tagAll(ctx context.Context, repo git, modules []*goModule, commit string) (tags []string, err error) {
	for _, m := range modules {
		tag := tagOf(m, r.version)
		if _, err := repo.run(ctx, "tag", "--annotate", "--message", m.path()+" "+r.version, tag, commit); err != nil {
			return tags, err
		}
		tags = append(tags, tag)
	}
	return tags, nil
}

// undo takes the tags back. Of the working tree it touches only what the merge
// has changed.
func undo(ctx context.Context, repo git, tags []string) error {
	_, err := repo.run(ctx, "reset", "--quiet", "--merge")
	if len(tags) > 0 {
		_, failed := repo.run(ctx, append([]string{"tag", "--delete"}, tags...)...)
		err = errors.Join(err, failed)
	}
	return err
}

// handOver brings the staged trees into the repository.
func (s *stage) handOver(ctx context.Context, repo git) error {
	fetch := []string{"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", string(s.copy)}
	for _, tree := range []string{s.tagged, s.after} {
		commit, err := s.copy.run(ctx, "-c", "user.name=release", "-c", "user.email=release", "commit-tree", tree, "-m", "hand over")
		if err != nil {
			return err
		}
		if _, err := s.copy.run(ctx, "update-ref", "refs/heads/"+tree, commit); err != nil {
			return err
		}
		fetch = append(fetch, "refs/heads/"+tree)
	}
	_, err := repo.run(ctx, fetch...)
	return err
}
