// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A goModule is one module of the repository.
type goModule struct {
	dir  string // within the repository; "." is the root
	file *modfile.File
	tree string // the directory of the repository
}

func (m *goModule) path() string { return m.file.Module.Mod.Path }

// name is how people know the module's go.mod.
func (m *goModule) name() string { return filepath.ToSlash(filepath.Join(m.dir, "go.mod")) }

func (m *goModule) at(file string) string { return filepath.Join(m.tree, m.dir, file) }

// isLibrary reports whether others import the module's packages.
func (m *goModule) isLibrary() bool {
	top, _, _ := strings.Cut(filepath.ToSlash(m.dir), "/")
	return top != "internal" && top != "examples" && top != "cmd"
}

// findModules reads each go.mod of the tree.
func findModules(tree string) ([]*goModule, error) {
	var found []*goModule
	err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if entry.Name() != "go.mod" {
			return nil
		}
		dir, err := filepath.Rel(tree, filepath.Dir(path))
		if err != nil {
			return err
		}
		m := &goModule{dir: dir, tree: tree}
		found = append(found, m)
		return m.read()
	})
	return found, err
}

func (m *goModule) read() error {
	data, err := os.ReadFile(m.at("go.mod"))
	if err != nil {
		return err
	}
	m.file, err = modfile.Parse(m.name(), data, nil)
	if err == nil && m.file.Module == nil {
		err = fmt.Errorf("%s: no module directive", m.name())
	}
	return err
}

func (m *goModule) write() error {
	m.file.Cleanup()
	data, err := m.file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(m.at("go.mod"), data, 0o644)
}

// requires returns those of the modules that m requires.
func (m *goModule) requires(of []*goModule) []*goModule {
	return slices.DeleteFunc(slices.Clone(of), func(other *goModule) bool {
		return !slices.ContainsFunc(m.file.Require, func(r *modfile.Require) bool { return r.Mod.Path == other.path() })
	})
}

func (m *goModule) replaces(other *goModule) bool {
	return slices.ContainsFunc(m.file.Replace, func(r *modfile.Replace) bool { return r.Old.Path == other.path() })
}

// move requires another version of the modules that m requires already.
func (m *goModule) move(of []*goModule, version string) error {
	for _, other := range m.requires(of) {
		if err := m.file.AddRequire(other.path(), version); err != nil {
			return err
		}
	}
	return m.write()
}

// stand makes m need the modules' versions instead of the directories beside
// it: its replaces go, and the sums of what it requires come.
func (m *goModule) stand(of []*goModule, sums map[string][]string) error {
	for _, r := range slices.Clone(m.file.Replace) {
		if err := m.file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	if err := m.write(); err != nil {
		return err
	}
	var lines []string
	for _, other := range m.requires(of) {
		lines = append(lines, sums[other.path()]...)
	}
	return m.addSums(lines)
}

// addSums adds lines to go.sum where go mod tidy would.
func (m *goModule) addSums(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	data, err := os.ReadFile(m.at("go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines = slices.AppendSeq(lines, strings.Lines(string(data)))
	path := func(line string) string { path, _, _ := strings.Cut(line, " "); return path }
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(path(a), path(b)) })
	return os.WriteFile(m.at("go.sum"), []byte(strings.Join(lines, "")), 0o644)
}
