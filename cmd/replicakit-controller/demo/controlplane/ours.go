// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Ours returns the path of a program of this repository. If the name ends in .tar, it returns the
// path of the program's image. To build the programs, run `make our-programs`. To build the images,
// run `make image-of-tests`. If the file is older than a source file, Ours returns an error, because
// the file may lack the latest changes.
func Ours(name string) (string, error) {
	root, err := Repository()
	if err != nil {
		return "", err
	}
	path, target := filepath.Join(root, ".cache", "bin", name), "our-programs"
	if filepath.Ext(name) == ".tar" {
		target = "image-of-tests"
	}
	program, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("controlplane: no %s: run `make %s`", path, target)
	}
	source, changed, err := newestSource(root)
	if err != nil {
		return "", err
	}
	if changed.After(program.ModTime()) {
		return "", fmt.Errorf("controlplane: %s is older than %s: run `make %s`", path, source, target)
	}
	return path, nil
}

// newestSource returns the most recently changed Go file below root, and the time of the change. It
// skips test files and directories called test or testdata, because no program contains them.
func newestSource(root string) (path string, changed time.Time, err error) {
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "test" || entry.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().After(changed) {
			path, changed = name, info.ModTime()
		}
		return err
	})
	return path, changed, err
}

// Repository returns the root directory of this repository. It searches the working directory and
// its parents for a directory with a Makefile.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "Makefile")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("controlplane: no directory above has a Makefile: this is not the repository")
		}
		dir = filepath.Dir(dir)
	}
}
