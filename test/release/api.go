// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// changes are those of the libraries' API since the last release.
type changes struct {
	since        string   // the last release; "" if there is none
	added        []string // what is new
	incompatible []string // what breaks code that compiles with the last release
}

// least is the lowest version that may be released with the changes: as SemVer
// says, and as is usual before v1, where the minor version tells of what breaks.
func (c changes) least() string {
	if c.since == "" {
		return "v0.1.0"
	}
	var major, minor, patch int
	_, _ = fmt.Sscanf(c.since, "v%d.%d.%d", &major, &minor, &patch) // canonical, as git says
	broken := len(c.incompatible) > 0
	switch {
	case broken && major > 0:
		return fmt.Sprintf("v%d.0.0", major+1)
	case broken || major > 0 && len(c.added) > 0:
		return fmt.Sprintf("v%d.%d.0", major, minor+1)
	}
	return fmt.Sprintf("v%d.%d.%d", major, minor, patch+1)
}

func (c changes) String() string {
	if c.since == "" {
		return "No release yet that the API could be compared with.\n"
	}
	var text strings.Builder
	for _, part := range []struct {
		title string
		lines []string
	}{{"Incompatible", c.incompatible}, {"Added", c.added}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(&text, "%s:\n- %s\n", part.title, strings.Join(part.lines, "\n- "))
		}
	}
	fmt.Fprintf(&text, "%d incompatible changes and %d additions since %s: the next release is %s at least.\n",
		len(c.incompatible), len(c.added), c.since, c.least())
	return text.String()
}

// apidiff prints what has changed in the libraries' API, and what that means for
// the next version.
func (r request) apidiff(ctx context.Context) error {
	c, err := r.changes(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(r.log, c)
	return err
}

// changes compares the working tree with the last release before it.
func (r request) changes(ctx context.Context) (c changes, err error) {
	if c.since, err = lastRelease(ctx, git(r.root)); c.since == "" {
		return c, err
	}
	dir, err := os.MkdirTemp("", "api-")
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	released, err := r.libraries(r.root)
	if err != nil {
		return c, err
	}
	old, err := r.librariesOf(ctx, c.since, dir)
	if err != nil {
		return c, err
	}
	for _, m := range released {
		was := slices.IndexFunc(old, func(o *goModule) bool { return o.dir == m.dir })
		if was < 0 {
			c.added = append(c.added, "module "+m.path())
			continue
		}
		if err := c.compare(ctx, old[was], m); err != nil {
			return c, err
		}
	}
	return c, nil
}

// lastRelease returns the highest version that is released and no candidate, of
// those that HEAD comes after.
func lastRelease(ctx context.Context, repo git) (string, error) {
	tags, err := repo.lines(ctx, "tag", "--merged", "HEAD", "--list", "v*")
	tags = slices.DeleteFunc(tags, func(tag string) bool {
		return semver.Canonical(tag) != tag || semver.Prerelease(tag) != ""
	})
	if len(tags) == 0 {
		return "", err
	}
	return slices.MaxFunc(tags, semver.Compare), err
}

// libraries returns those of the released modules that are there.
func (r request) libraries(tree string) ([]*goModule, error) {
	var list []*goModule
	for _, dir := range r.modules {
		m := &goModule{dir: filepath.Clean(dir), tree: tree}
		err := m.read()
		if errors.Is(err, os.ErrNotExist) || err == nil && !m.isLibrary() {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// librariesOf returns the libraries as they were released, beside each other as
// in development: their versions need not be published.
func (r request) librariesOf(ctx context.Context, version, dir string) ([]*goModule, error) {
	if err := git(r.root).checkOut(ctx, version, dir); err != nil {
		return nil, err
	}
	list, err := r.libraries(dir)
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		for _, other := range m.requires(list) {
			if err := m.file.AddReplace(other.path(), "", filepath.Join(dir, other.dir), ""); err != nil {
				return nil, err
			}
		}
		if err := m.write(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (c *changes) compare(ctx context.Context, before, now *goModule) error {
	was, err := api(ctx, before)
	if err != nil {
		return fmt.Errorf("%s: %w", c.since, err)
	}
	is, err := api(ctx, now)
	if err != nil {
		return err
	}
	for _, change := range apidiff.ModuleChanges(was, is).Changes {
		list := &c.incompatible
		if change.Compatible {
			list = &c.added
		}
		*list = append(*list, strings.TrimPrefix(now.dir+": "+change.Message, ".: "))
	}
	slices.Sort(c.added)
	slices.Sort(c.incompatible)
	return nil
}

// api loads the packages of the module that others can import.
func api(ctx context.Context, m *goModule) (*apidiff.Module, error) {
	loaded, err := packages.Load(&packages.Config{
		Context: ctx,
		Dir:     m.at("."),
		Env:     append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly"),
		Mode:    packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedExportFile,
	}, "./...")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(loaded, func(a, b *packages.Package) int { return cmp.Compare(a.PkgPath, b.PkgPath) })
	var list []*types.Package
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
		if p.Name != "main" && !strings.Contains(p.PkgPath+"/", "/internal/") {
			list = append(list, p.Types)
		}
	}
	return &apidiff.Module{Path: m.path(), Packages: list}, nil
}
