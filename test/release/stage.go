// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/mod/modfile"
)

// A stage is a release that is not committed yet.
type stage struct {
	dir      string // everything that is made for it
	copy     git    // the repository's files
	modules  []*goModule
	released []*goModule // those of modules that are; each behind those it requires
	root     *goModule
	proxy    string // a directory as GOPROXY=file:// reads it

	before string // the tree that was copied
	tagged string // the tree of the commit that gets the tags
	after  string // the tree of the commit behind it, to go on with
}

// stage makes a release of a copy of the working tree.
func (r request) stage(ctx context.Context, dir string) (*stage, error) {
	s := &stage{dir: dir, proxy: filepath.Join(dir, "proxy")}
	var err error
	if s.copy, err = git(r.root).copyTo(ctx, filepath.Join(dir, "tree")); err != nil {
		return nil, err
	}
	if s.before, err = s.copy.tree(ctx); err != nil {
		return nil, err
	}
	if s.modules, err = findModules(string(s.copy)); err != nil {
		return nil, err
	}
	if s.released, err = pick(s.modules, r.modules); err != nil {
		return nil, err
	}
	if s.root, err = find(s.modules, "."); err != nil {
		return nil, err
	}
	if err := s.announce(r); err != nil {
		return nil, err
	}
	if s.after, err = s.copy.tree(ctx); err != nil {
		return nil, err
	}
	return s, s.publish(ctx, r.version)
}

// announce makes what stays after the release: each module of the repository
// requires the released ones by their new version, and the CHANGELOG tells of it.
func (s *stage) announce(r request) error {
	for _, m := range s.modules {
		if err := m.move(s.released, r.version); err != nil {
			return err
		}
	}
	return cutChangelog(filepath.Join(string(s.copy), "CHANGELOG.md"), r.version, r.now)
}

// publish makes what is tagged: modules without replaces, and puts each into
// the proxy.
func (s *stage) publish(ctx context.Context, version string) error {
	sums := map[string][]string{}
	for _, m := range s.released {
		if err := m.stand(s.released, sums); err != nil {
			return err
		}
		tree, err := s.copy.tree(ctx)
		if err != nil {
			return err
		}
		if sums[m.path()], err = addToProxy(s.proxy, m, version, tree); err != nil {
			return err
		}
		s.tagged = tree
	}
	return nil
}

// pick returns the modules of those directories, each behind those it requires.
func pick(all []*goModule, dirs []string) ([]*goModule, error) {
	var picked []*goModule
	for _, dir := range dirs {
		m, err := find(all, dir)
		if err != nil {
			return nil, err
		}
		picked = append(picked, m)
	}
	for _, m := range picked {
		if err := m.canBeTaken(all, picked); err != nil {
			return nil, err
		}
	}
	return inOrder(picked)
}

func find(modules []*goModule, dir string) (*goModule, error) {
	i := slices.IndexFunc(modules, func(m *goModule) bool { return m.dir == filepath.Clean(dir) })
	if i < 0 {
		return nil, fmt.Errorf("%s has no go.mod", dir)
	}
	return modules[i], nil
}

// canBeTaken returns what keeps strangers from the module if it is released
// together with the others.
func (m *goModule) canBeTaken(all, released []*goModule) error {
	var errs []error
	for _, other := range m.requires(all) {
		if !slices.Contains(released, other) {
			errs = append(errs, fmt.Errorf("%s: requires %s, which is not among the released modules", m.name(), other.path()))
		}
		if !m.replaces(other) {
			errs = append(errs, fmt.Errorf("%s: requires %s without a replace, as only a tagged commit does; the one behind it is to go on with", m.name(), other.path()))
		}
	}
	for _, r := range m.file.Replace {
		ours := slices.ContainsFunc(m.requires(all), func(other *goModule) bool { return r.Old.Path == other.path() })
		if !ours || !modfile.IsDirectoryPath(r.New.Path) {
			errs = append(errs, fmt.Errorf("%s: replaces %s, which go install refuses and go get ignores", m.name(), r.Old.Path))
		}
	}
	for _, x := range m.file.Exclude {
		errs = append(errs, fmt.Errorf("%s: excludes %s, which go install refuses and go get ignores", m.name(), x.Mod))
	}
	return errors.Join(errs...)
}

// inOrder returns the modules, each behind those it requires.
func inOrder(modules []*goModule) ([]*goModule, error) {
	var done []*goModule
	for len(done) < len(modules) {
		before := len(done)
		for _, m := range modules {
			ready := !slices.Contains(done, m) && len(m.requires(modules)) == len(m.requires(done))
			if ready {
				done = append(done, m)
			}
		}
		if len(done) == before {
			return nil, errors.New("some of the modules require each other: no sums can be written")
		}
	}
	return done, nil
}

// tagOf returns the tag by which go finds the module's version.
func tagOf(m *goModule, version string) string {
	if m.dir == "." {
		return version
	}
	return filepath.ToSlash(m.dir) + "/" + version
}
