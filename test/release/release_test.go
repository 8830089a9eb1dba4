// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kit is a small repository with the structure of this one. kit contains a library, a second library in its own
// module, and a program in its own module. kit also contains a module named test, which is not released.
var kit = map[string]string{
	"CHANGELOG.md":                 "# Changelog\n\n## Unreleased\n\n- A kit.\n",
	"LICENSE":                      "Do what you like.\n",
	"go.mod":                       "module github.com/acme/kit\n\ngo 1.25.0\n",
	"kit.go":                       "// Package kit counts.\npackage kit\n\n// Two is two.\nconst Two = 2\n",
	"example_test.go":              example("kit", "Two"),
	"examples/kubectl-two/main.go": "package main\n\nimport \"github.com/acme/kit\"\n\nfunc main() { println(kit.Two) }\n",
	"adapter/go.mod":               "module github.com/acme/kit/adapter\n\ngo 1.25.0\n\nrequire github.com/acme/kit v0.0.0\n\nreplace github.com/acme/kit => ..\n",
	"adapter/adapter.go":           "// Package adapter counts on.\npackage adapter\n\nimport \"github.com/acme/kit\"\n\n// Three is three.\nconst Three = kit.Two + 1\n",
	"adapter/example_test.go":      example("kit/adapter", "Three"),
	"examples/manager/go.mod":      nested("examples/manager", "../.."),
	"examples/manager/main.go":     "package main\n\nimport (\n\t\"github.com/acme/kit\"\n\t\"github.com/acme/kit/adapter\"\n)\n\nfunc main() { println(kit.Two, adapter.Three) }\n",
	"test/go.mod":                  nested("test", ".."),
	"test/test.go":                 "package test\n\nimport (\n\t\"github.com/acme/kit\"\n\t\"github.com/acme/kit/adapter\"\n)\n\nconst six = kit.Two * adapter.Three\n",
}

func example(path, name string) string {
	base := filepath.Base(path)
	return "package " + base + "_test\n\nimport (\n\t\"fmt\"\n\n\t\"github.com/acme/" + path + "\"\n)\n\nfunc Example() {\n\tfmt.Println(" + base + "." + name + ")\n}\n"
}

func nested(folder, up string) string {
	return "module github.com/acme/kit/" + folder + "\n\ngo 1.25.0\n\nrequire (\n\tgithub.com/acme/kit v0.0.0\n\tgithub.com/acme/kit/adapter v0.0.0\n)\n\n" +
		"replace (\n\tgithub.com/acme/kit => " + up + "\n\tgithub.com/acme/kit/adapter => " + up + "/adapter\n)\n"
}

// A workshop is a Git repository with the files of kit.
type workshop struct {
	*testing.T
	dir string
}

func newWorkshop(t *testing.T) workshop {
	t.Helper()
	w := workshop{T: t, dir: t.TempDir()}
	for name, text := range kit {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(w.dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644))
	}
	w.git("init", "--quiet", "--initial-branch=main")
	for _, setting := range []string{"user.name=Ann", "user.email=ann@example.com", "commit.gpgsign=false", "tag.gpgsign=false"} {
		name, value, _ := strings.Cut(setting, "=")
		w.git("config", name, value)
	}
	w.commit()
	return w
}

// edit replaces all occurrences of one text in a file with another text. The file must contain the first text.
func (w workshop) edit(name, old, text string) {
	w.Helper()
	data := w.read(name)
	require.Contains(w, data, old)
	require.NoError(w, os.WriteFile(filepath.Join(w.dir, name), []byte(strings.ReplaceAll(data, old, text)), 0o644))
}

func (w workshop) read(name string) string {
	w.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	require.NoError(w, err)
	return string(data)
}

func (w workshop) git(args ...string) string {
	w.Helper()
	out, err := w.run("git", args...)
	require.NoError(w, err, out)
	return strings.TrimSpace(out)
}

func (w workshop) commit() {
	w.Helper()
	w.git("add", "--all")
	w.git("commit", "--quiet", "--message", "kit: more")
}

func (w workshop) run(program string, args ...string) (string, error) {
	cmd := exec.CommandContext(w.Context(), program, args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "RELEASED=. adapter examples/manager", "PROGRAMS=examples/kubectl-two examples/manager")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w workshop) release(word string) (string, error) {
	script, err := filepath.Abs("release")
	require.NoError(w, err)
	return w.run(script, word)
}

// refused runs the release script, which must fail with the message want. The script must not change the
// repository.
func (w workshop) refused(word, want string) {
	w.Helper()
	state := func() string {
		return w.git("for-each-ref") + w.git("rev-parse", "HEAD") + w.git("status", "--porcelain", "--ignored")
	}
	before := state()
	out, err := w.release(word)
	require.Error(w, err, out)
	assert.Contains(w, out, want)
	assert.Equal(w, before, state())
}

func TestAReleaseIsOneTaggedCommitAndOneBehindIt(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	before := w.git("rev-parse", "HEAD")
	out, err := w.release("v0.1.0")
	require.NoError(t, err, out)
	assert.Contains(t, out, "No release yet that the API could be compared with.\n")
	assert.Contains(t, out, "git push --atomic origin main v0.1.0 adapter/v0.1.0 examples/manager/v0.1.0\n")
	for _, tag := range []string{"v0.1.0", "adapter/v0.1.0", "examples/manager/v0.1.0"} {
		assert.Equal(t, "tag", w.git("cat-file", "-t", tag), tag)
		assert.Equal(t, before, w.git("rev-parse", tag+"^{commit}^"), tag)
		assert.Equal(t, w.git("rev-parse", "main^"), w.git("rev-parse", tag+"^{commit}"), tag)
	}
	assert.Empty(t, w.git("status", "--porcelain"))
	assert.Equal(t, "CHANGELOG.md\nadapter/go.mod\nexamples/manager/go.mod\ntest/go.mod", w.git("diff", "--name-only", before, "main"))
	assert.Regexp(t, `^# Changelog\n\n## Unreleased\n\n## 0.1.0 - \d{4}-\d\d-\d\d\n\n- A kit.\n$`, w.read("CHANGELOG.md"))
	for name, text := range kit {
		if strings.HasSuffix(name, "go.mod") {
			assert.Equal(t, strings.ReplaceAll(text, "v0.0.0", "v0.1.0"), w.read(name), "beside each other still")
		}
	}

	w.git("checkout", "--quiet", "v0.1.0")
	assert.Equal(t, "module github.com/acme/kit/adapter\n\ngo 1.25.0\n\nrequire github.com/acme/kit v0.1.0\n", w.read("adapter/go.mod"))
	assert.Contains(t, w.read("examples/manager/go.sum"), "github.com/acme/kit/adapter v0.1.0 h1:")
	w.git("switch", "--quiet", "--create", "release-0.1")
	w.refused("v0.1.1", "adapter/go.mod: requires github.com/acme/kit without a replace, as only a tagged commit does")
}

func TestReleasesFollowEachOtherAsTheAPISays(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	for _, version := range []string{"v0.1.0-rc.1", "v0.1.0"} {
		out, err := w.release(version)
		require.NoError(t, err, out)
	}
	w.refused("v0.1.0-rc.2", "version v0.1.0-rc.2 is not above v0.1.0, which is released already")
	out, err := w.release("apidiff")
	require.NoError(t, err, out)
	assert.Contains(t, out, "The next release is v0.1.1 at least.\n")

	w.edit("adapter/adapter.go", "Three is three.\nconst Three", "Drei is three.\nconst Drei")
	w.edit("adapter/example_test.go", "adapter.Three", "adapter.Drei")
	w.edit("examples/manager/main.go", "adapter.Three", "adapter.Drei")
	w.edit("test/test.go", "adapter.Three", "adapter.Drei")
	w.commit()
	w.refused("v0.1.1", "Three: removed")
	w.refused("v0.1.1", "version v0.1.1 is too low")
	for _, version := range []string{"v0.2.0-rc.1", "v0.2.0"} {
		out, err := w.release(version)
		require.NoError(t, err, out)
	}
}

func TestRefusesAndChangesNothing(t *testing.T) {
	t.Parallel()
	changed := func(name, old, text string) func(workshop) {
		return func(w workshop) { w.edit(name, old, text); w.commit() }
	}
	for name, tt := range map[string]struct {
		version string
		spoil   func(workshop)
		want    string
	}{
		"no version":            {"", nil, "version '' is not one such as v0.1.0"},
		"a pseudo-version":      {"v0.0.0-20260504120000-0123456789ab", nil, "is not one such as v0.1.0"},
		"a major version":       {"v2.0.0", nil, "v2"},
		"an edited file":        {"v0.1.0", func(w workshop) { w.edit("kit.go", "two", "2") }, "the working tree is not clean"},
		"a nested module's tag": {"v0.1.0", func(w workshop) { w.git("tag", "examples/manager/v0.1.0") }, "tag examples/manager/v0.1.0 exists"},
		"no branch":             {"v0.1.0", func(w workshop) { w.git("checkout", "--quiet", "--detach") }, "no branch is checked out"},
		"no heading":            {"v0.1.0", changed("CHANGELOG.md", "## Unreleased", "## Later"), "no heading '## Unreleased'"},
		"a foreign replace":     {"v0.1.0", changed("adapter/go.mod", "=> ..", "=> ..\n\nreplace example.com/x => example.com/y v1.0.0"), "go install refuses this"},
		"a module that stays":   {"v0.1.0", changed("adapter/go.mod", "kit v0.0.0\n", "kit v0.0.0\n\nrequire github.com/acme/kit/test v0.0.0\n"), "github.com/acme/kit/test"},
		"what is not tidy":      {"v0.1.0", changed("go.mod", "go 1.25.0", "go 1.25.0\n\nrequire golang.org/x/mod v0.32.0"), "go.mod is not tidy"},
		"what does not compile": {"v0.1.0", changed("adapter/adapter.go", "kit.Two", "kit.Ten"), "undefined: kit.Ten"},
		"a failure behind the tags": {"v0.1.0", func(w workshop) {
			hook := filepath.Join(w.dir, ".git/hooks/reference-transaction")
			text := "#!/bin/sh\nwhile read -r _ _ ref; do\n[ \"$1 $ref\" != \"prepared refs/heads/main\" ] || exit 1\ndone\n"
			require.NoError(w, os.WriteFile(hook, []byte(text), 0o755))
		}, "ref updates aborted by hook"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkshop(t)
			if tt.spoil != nil {
				tt.spoil(w)
			}
			w.refused(tt.version, tt.want)
		})
	}
}

func TestChecksTheWorkingTreeAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.edit("adapter/adapter.go", "kit.Two + 1", "kit.Three")
	w.refused("check", "undefined: kit.Three")
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "three.go"), []byte("package kit\n\n// Three is three.\nconst Three = 3\n"), 0o644))
	before := w.git("status", "--porcelain")
	out, err := w.release("check")
	require.NoError(t, err, out)
	assert.Equal(t, before, w.git("status", "--porcelain"))
}
