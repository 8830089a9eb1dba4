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

// Ours returns the path of one of this repository's own programs, or of its image. The commands
// make our-programs and make image-of-tests build them next to those of the control plane. Ours
// returns an error if the program is older than a source file, because it may not match that file.
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

// newestSource returns the Go file below the directory that was changed last. It skips
// tests and directories called test, because they are in no program.
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

// Repository returns this repository's directory, which contains the working directory.
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
