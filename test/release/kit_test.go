// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kit is a small repository as this one is: a library, a library and a program
// in modules of their own, and tests that are not released.
var kit = map[string]string{
	"LICENSE":      "Do what you like.\n",
	"CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n- A kit.\n",
	".gitignore":   "/built\n",
	"go.mod":       "module github.com/acme/kit\n\ngo 1.25.0\n",
	"kit.go":       "// Package kit counts.\npackage kit\n\n// Two is two.\nconst Two = 2\n",
	"example_test.go": `package kit_test

import (
	"fmt"

	"github.com/acme/kit"
)

func Example() {
	fmt.Println(kit.Two)
	// Output: 2
}
`,
	"examples/kubectl-two/main.go": "package main\n\nimport \"github.com/acme/kit\"\n\nfunc main() { println(kit.Two) }\n",
	"adapter/go.mod": `module github.com/acme/kit/adapter

go 1.25.0

require github.com/acme/kit v0.0.0

replace github.com/acme/kit => ..
`,
	"adapter/adapter.go": "// Package adapter counts on.\npackage adapter\n\nimport \"github.com/acme/kit\"\n\n// Three is three.\nconst Three = kit.Two + 1\n",
	"adapter/example_test.go": `package adapter_test

import (
	"fmt"

	"github.com/acme/kit/adapter"
)

func Example_three() {
	fmt.Println(adapter.Three)
	// Output: 3
}
`,
	"examples/manager/go.mod": `module github.com/acme/kit/examples/manager

go 1.25.0

require (
	github.com/acme/kit v0.0.0
	github.com/acme/kit/adapter v0.0.0
)

replace (
	github.com/acme/kit => ../..
	github.com/acme/kit/adapter => ../../adapter
)
`,
	"examples/manager/main.go": "package main\n\nimport (\n\t\"github.com/acme/kit\"\n\t\"github.com/acme/kit/adapter\"\n)\n\nfunc main() { println(kit.Two, adapter.Three) }\n",
	"test/go.mod": `module github.com/acme/kit/test

go 1.25.0

require (
	github.com/acme/kit v0.0.0
	github.com/acme/kit/adapter v0.0.0
)

replace (
	github.com/acme/kit => ..
	github.com/acme/kit/adapter => ../adapter
)
`,
	"test/test.go": "package test\n\nimport (\n\t\"github.com/acme/kit\"\n\t\"github.com/acme/kit/adapter\"\n)\n\nconst six = kit.Two * adapter.Three\n",
}

// A workshop is a repository of the kit, with what a release prints.
type workshop struct {
	t   *testing.T
	dir string
	git git
	log bytes.Buffer
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	dir := t.TempDir()
	w := &workshop{t: t, dir: dir, git: git(dir)}
	for name, text := range kit {
		w.write(name, text)
	}
	w.do("init", "--quiet", "--initial-branch=main")
	w.do("config", "user.name", "Ann")
	w.do("config", "user.email", "ann@example.com")
	w.do("config", "commit.gpgsign", "false")
	w.do("config", "tag.gpgsign", "false")
	w.commit()
	return w
}

func (w *workshop) write(name, text string) {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(w.t, os.WriteFile(file, []byte(text), 0o644))
}

// edit replaces a part of a file, which must have it.
func (w *workshop) edit(name, old, text string) {
	w.t.Helper()
	data := w.read(name)
	require.Contains(w.t, data, old)
	w.write(name, strings.ReplaceAll(data, old, text))
}

func (w *workshop) read(name string) string {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	require.NoError(w.t, err)
	return string(data)
}

// do runs git and returns what it prints.
func (w *workshop) do(args ...string) string {
	w.t.Helper()
	out, err := w.git.run(w.t.Context(), args...)
	require.NoError(w.t, err)
	return out
}

func (w *workshop) commit() {
	w.t.Helper()
	w.do("add", "--all")
	w.do("commit", "--quiet", "--message", "kit: more")
}

// state is all that a release may change.
func (w *workshop) state() string {
	w.t.Helper()
	return w.do("for-each-ref") + "\n" + w.do("rev-parse", "HEAD") + "\n" + w.do("status", "--porcelain", "--ignored")
}

func (w *workshop) request(version string) request {
	return request{
		root:     w.dir,
		modules:  []string{"examples/manager", "adapter", "."},
		programs: []string{"examples/kubectl-two", "examples/manager"},
		version:  version,
		now:      time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC),
		log:      &w.log,
	}
}

// fromGit returns the environment of a go command that has no proxy, and finds
// the kit's published repository in the workshop.
func (w *workshop) fromGit() []string {
	w.t.Helper()
	dir := w.t.TempDir()
	return append(os.Environ(),
		"GOENV=off", "GOWORK=off", "GOPROXY=direct", "GOPRIVATE=", "GONOPROXY=", "GOSUMDB=off",
		"GOFLAGS=-modcacherw -mod=readonly -trimpath", "GOMODCACHE="+filepath.Join(dir, "modcache"), "GOBIN="+filepath.Join(dir, "bin"),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+w.dir+".insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/acme/kit")
}

func goIn(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	return string(out), err
}
