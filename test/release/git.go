// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A git is the directory of a git repository's working tree.
type git string

// run returns what git prints, without the last line's end.
func (dir git) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = string(dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// lines returns what git prints, line by line.
func (dir git) lines(ctx context.Context, args ...string) ([]string, error) {
	out, err := dir.run(ctx, args...)
	if out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), err
}

// tree returns the id of a tree object of what is in the directory now.
func (dir git) tree(ctx context.Context) (string, error) {
	if _, err := dir.run(ctx, "add", "--all", "--force"); err != nil {
		return "", err
	}
	return dir.run(ctx, "write-tree")
}

// copyTo makes a repository of its own, without history, of the files that are
// tracked here, or not yet tracked but not ignored, as they are now.
func (dir git) copyTo(ctx context.Context, to string) (git, error) {
	out, err := dir.run(ctx, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return "", err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		err := copyFile(filepath.Join(string(dir), name), filepath.Join(to, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a tracked file may be deleted
			return "", err
		}
	}
	_, err = git(to).run(ctx, "init", "--quiet")
	return git(to), err
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", from)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// checkOut puts the files of a commit into an empty directory.
func (dir git) checkOut(ctx context.Context, commit, to string) error {
	archive := exec.CommandContext(ctx, "git", "archive", commit)
	archive.Dir = string(dir)
	files, err := archive.Output()
	if err != nil {
		return fmt.Errorf("git archive %s: %w", commit, err)
	}
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", to)
	unpack.Stdin = bytes.NewReader(files)
	if out, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w\n%s", err, out)
	}
	return nil
}
