// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReleaseIsOneTaggedCommitAndOneBehindIt(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	before := w.do("rev-parse", "HEAD")
	require.NoError(t, w.request("v0.1.0").release(t.Context()))

	assert.Equal(t, "adapter/v0.1.0\nexamples/manager/v0.1.0\nv0.1.0", w.do("tag"))
	for tag := range strings.Lines(w.do("tag")) {
		tag = strings.TrimSpace(tag)
		assert.Equal(t, "tag", w.do("cat-file", "-t", tag), tag)
		assert.Equal(t, before, w.do("rev-parse", tag+"^{commit}^"), tag)
		assert.Equal(t, w.do("rev-parse", "main^"), w.do("rev-parse", tag+"^{commit}"), tag)
	}
	assert.Empty(t, w.do("status", "--porcelain"))
	assert.Equal(t, "release: v0.1.0", w.do("log", "-1", "--format=%s", "v0.1.0"))
	assert.Equal(t, "M\tCHANGELOG.md\nM\tadapter/go.mod\nM\texamples/manager/go.mod\nM\ttest/go.mod",
		w.do("diff", "--name-status", before, "main"))
	assert.Equal(t, "# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-05-04\n\n- A kit.\n", w.read("CHANGELOG.md"))
	assert.Contains(t, w.log.String(), "git push --atomic origin main v0.1.0 adapter/v0.1.0 examples/manager/v0.1.0\n")
}

func TestOnlyTheTaggedModulesHaveNoReplaces(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	require.NoError(t, w.request("v0.1.0").release(t.Context()))
	for name, text := range kit {
		if strings.HasSuffix(name, "go.mod") {
			assert.Equal(t, strings.ReplaceAll(text, "v0.0.0", "v0.1.0"), w.read(name), "beside each other still")
		}
	}
	w.do("checkout", "--quiet", "v0.1.0")
	assert.Equal(t, "module github.com/acme/kit/adapter\n\ngo 1.25.0\n\nrequire github.com/acme/kit v0.1.0\n", w.read("adapter/go.mod"))
	assert.NotContains(t, w.read("examples/manager/go.mod"), "replace")
	assert.Contains(t, w.read("test/go.mod"), "replace", "nobody takes it")
}

// The proof: go with no proxy but git itself.
func TestGoTakesWhatWasTagged(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	require.NoError(t, w.request("v0.1.0").release(t.Context()))
	env := w.fromGit()
	for _, program := range []string{"examples/kubectl-two", "examples/manager"} {
		out, err := goIn(t.Context(), t.TempDir(), env, "install", "github.com/acme/kit/"+program+"@latest")
		require.NoError(t, err, out)
	}
	w.do("checkout", "--quiet", "v0.1.0")
	for _, dir := range []string{".", "adapter", "examples/manager", "test"} {
		out, err := goIn(t.Context(), filepath.Join(w.dir, dir), env, "vet", "./...")
		assert.NoError(t, err, "%s: %s", dir, out)
	}
}

func TestGoTakesNothingThatWasTaggedByHand(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	for _, tag := range []string{"v0.1.0", "adapter/v0.1.0", "examples/manager/v0.1.0"} {
		w.do("tag", tag)
	}
	out, err := goIn(t.Context(), t.TempDir(), w.fromGit(), "install", "github.com/acme/kit/examples/manager@v0.1.0")
	require.Error(t, err)
	assert.Contains(t, out, "replace directives")
	empty := t.TempDir()
	out, err = goIn(t.Context(), empty, w.fromGit(), "mod", "init", "example.com/empty")
	require.NoError(t, err, out)
	out, err = goIn(t.Context(), empty, w.fromGit(), "get", "github.com/acme/kit/adapter@v0.1.0")
	require.Error(t, err)
	assert.Contains(t, out, "unknown revision v0.0.0")
}

func TestReleasesFollowEachOther(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	for _, version := range []string{"v0.1.0-rc.1", "v0.1.0", "v0.2.0"} {
		require.NoError(t, w.request(version).release(t.Context()), version)
		assert.Contains(t, w.read("adapter/go.mod"), "require github.com/acme/kit "+version+"\n")
	}
	state := w.state()
	require.EqualError(t, w.request("v0.1.5").release(t.Context()), "version v0.1.5 is not above v0.2.0, which is released already")
	w.do("checkout", "--quiet", "-b", "release-0.1", "v0.1.0")
	require.ErrorContains(t, w.request("v0.1.5").release(t.Context()), "examples/manager/go.mod: requires github.com/acme/kit without a replace")
	w.do("reset", "--quiet", "--hard", "main~2")
	require.NoError(t, w.request("v0.1.5").release(t.Context()), "of a branch where nothing above it was released")
	assert.NotEqual(t, state, w.state())
}

func TestRefusesAndChangesNothing(t *testing.T) {
	t.Parallel()
	require0 := "require github.com/acme/kit v0.0.0\n"
	for name, tt := range map[string]struct {
		version string
		spoil   func(w *workshop)
		want    string
	}{
		"no version":              {version: "", want: `version "" is not one such as v0.1.0`},
		"no v":                    {version: "0.1.0", want: `version "0.1.0" is not`},
		"no patch number":         {version: "v0.1", want: `version "v0.1" is not`},
		"build metadata":          {version: "v0.1.0+linux", want: `version "v0.1.0+linux" is not`},
		"a word":                  {version: "latest", want: `version "latest" is not`},
		"a pseudo-version":        {version: "v0.0.0-20260504120000-0123456789ab", want: "is not one such as v0.1.0"},
		"a major version":         {version: "v2.0.0", want: "v2"},
		"an edited file":          {spoil: func(w *workshop) { w.edit("kit.go", "two", "2") }, want: "the working tree is not clean:\n M kit.go"},
		"a staged file":           {spoil: func(w *workshop) { w.write("new.go", "package kit\n"); w.do("add", "new.go") }, want: "not clean:\nA  new.go"},
		"an untracked file":       {spoil: func(w *workshop) { w.write("new.go", "package kit\n") }, want: "not clean:\n?? new.go"},
		"the tag":                 {spoil: func(w *workshop) { w.do("tag", "v0.1.0") }, want: "version v0.1.0 is not above v0.1.0"},
		"the tag, elsewhere":      {spoil: func(w *workshop) { w.do("tag", "v0.1.0", w.do("commit-tree", "HEAD^{tree}", "-m", "other")) }, want: "tag v0.1.0 exists"},
		"a nested module's tag":   {spoil: func(w *workshop) { w.do("tag", "examples/manager/v0.1.0") }, want: "tag examples/manager/v0.1.0 exists"},
		"no branch":               {spoil: func(w *workshop) { w.do("checkout", "--quiet", "--detach") }, want: "no branch is checked out"},
		"no heading":              {spoil: committed("CHANGELOG.md", "## Unreleased", "## Later"), want: `no heading "## Unreleased"`},
		"a foreign replace":       {spoil: committed("adapter/go.mod", "=> ..", "=> github.com/acme/fork v1.0.0"), want: "adapter/go.mod: replaces github.com/acme/kit, which go install refuses"},
		"an exclude":              {spoil: committed("adapter/go.mod", require0, require0+"\nexclude github.com/acme/x v1.0.0\n"), want: "adapter/go.mod: excludes github.com/acme/x@v1.0.0"},
		"a module that stays":     {spoil: committed("adapter/go.mod", require0, require0+"\nrequire github.com/acme/kit/test v0.0.0\n"), want: "adapter/go.mod: requires github.com/acme/kit/test, which is not among the released modules"},
		"what does not compile":   {spoil: committed("adapter/adapter.go", "kit.Two", "kit.Ten"), want: "undefined: kit.Ten"},
		"a module that is a ring": {spoil: committed("go.mod", "go 1.25.0", "go 1.25.0\n\nrequire github.com/acme/kit/adapter v0.0.0\n\nreplace github.com/acme/kit/adapter => ./adapter"), want: "require each other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkshop(t)
			version := tt.version
			if tt.spoil != nil {
				tt.spoil(w)
				version = "v0.1.0"
			}
			before := w.state()
			require.ErrorContains(t, w.request(version).release(t.Context()), tt.want)
			assert.Equal(t, before, w.state())
		})
	}
}

func committed(file, old, text string) func(*workshop) {
	return func(w *workshop) {
		w.edit(file, old, text)
		w.commit()
	}
}

func TestAFailureBehindTheTagsTakesThemBack(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.write(".git/hooks/reference-transaction", "#!/bin/sh\nwhile read -r _ _ ref; do\n[ \"$1 $ref\" != \"prepared refs/heads/main\" ] || exit 1\ndone\n")
	require.NoError(t, os.Chmod(filepath.Join(w.dir, ".git/hooks/reference-transaction"), 0o755))
	before := w.state()
	require.ErrorContains(t, w.request("v0.1.0").release(t.Context()), "git merge")
	assert.Equal(t, before, w.state())
}

func TestWhatIsCommittedMeanwhileIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	r := w.request("v0.1.0")
	r.head = w.do("rev-parse", "HEAD")
	s, err := r.stage(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.NoError(t, r.refuseStage(t.Context(), w.git, s))
	w.write("new.go", "package kit\n")
	w.commit()
	before := w.state()
	require.ErrorContains(t, r.tag(t.Context(), w.git, s), "git merge")
	assert.Equal(t, before, w.state())
}
