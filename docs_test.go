// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicakit_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages returns the text of each page for users, keyed by the path of the file.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "test/*.md", "test/*/*.md", "examples/*/*.md", "replicas/*/*.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			texts[file] = string(text)
		}
	}
	return texts
}

// If a page marks a piece of code as "code of FILE", the file of this name must contain the same code. The files
// that pages name in these marks are compiled, and most of these files are tests.
func TestPagesShowCodeOfTests(t *testing.T) {
	t.Parallel()
	quote := regexp.MustCompile("(?s)<!-- code of (\\S+) -->\n```go\n(.*?)```\n")
	found := 0
	for page, text := range pages(t) {
		for _, q := range quote.FindAllStringSubmatch(text, -1) {
			found++
			source, err := os.ReadFile(q[1])
			require.NoError(t, err, page)
			assert.Contains(t, unindented(string(source)), unindented(q[2]), "%s: %s", page, q[1])
		}
		marks := strings.Count(text, "\n<!-- code of ")
		assert.Len(t, quote.FindAllString(text, -1), marks, "%s: a mark has no code", page)
	}
	assert.GreaterOrEqual(t, found, 5)
}

// unindented returns code without the tabs at the beginnings of its lines.
func unindented(code string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "")
}

// A link to a file of the repository must lead to an existing file or directory. A link within a page must lead to
// a heading of this page.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for page, text := range pages(t) {
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			file, heading, _ := strings.Cut(l[1], "#")
			switch {
			case strings.Contains(l[1], "://"):
			case file == "":
				assert.Contains(t, anchors(text), heading, page)
			default:
				_, err := os.Stat(filepath.Join(filepath.Dir(page), file))
				assert.NoError(t, err, page)
			}
		}
	}
}

// anchors returns the anchors that GitHub gives to the headings of a page.
func anchors(text string) []string {
	var list []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		bare := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		list = append(list, strings.ReplaceAll(bare, " ", "-"))
	}
	return list
}

// If a page contains a name such as expectations.Store or controller.Kind, the name must exist.
func TestPagesNameWhatExists(t *testing.T) {
	t.Parallel()
	exported := map[string]exports{}
	for _, dir := range packages {
		exported[path.Base(dir)] = exportsOf(t, dir)
	}
	reference := regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	seen := 0
	for page, text := range pages(t) {
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			if named, ours := exported[m[1]]; ours {
				seen++
				assert.True(t, named.have(m[2], m[3]), "%s names %s", page, m[0])
			}
		}
	}
	assert.Greater(t, seen, 60)
}

// Each make target that a page names must be in the Makefile. Each directory that a page passes to go run or go
// test must exist.
func TestPagesCallWhatExists(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	target, directory := regexp.MustCompile("(?m)(?:`|^ +|; )make ([a-z][a-z0-9-]*)"), regexp.MustCompile("(?m)(?:`|^ +)go (?:run|test) (?:-\\S+ )*\\./([\\w/-]+)")
	seen := 0
	for page, text := range pages(t) {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			seen++
			assert.True(t, targets[m[1]], "%s calls make %s", page, m[1])
		}
		if page == "docs/ports.md" {
			continue // the commands on this page are for other repositories
		}
		for _, m := range directory.FindAllStringSubmatch(text, -1) {
			seen++
			assert.DirExists(t, m[1], page)
		}
	}
	assert.Greater(t, seen, 50)
}

// make help must list each phony target of the Makefile.
func TestMakeHelpListsTheTargets(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	listed := regexp.MustCompile(`'/(\^.*## )/\{printf`).FindSubmatch(makefile)
	require.NotNil(t, listed)
	line := regexp.MustCompile(string(listed[1]))
	targets := regexp.MustCompile(`(?m)^\.PHONY: (\S+)\n(?:#.*\n)*(.*)$`).FindAllSubmatch(makefile, -1)
	require.Greater(t, len(targets), 20)
	for _, target := range targets {
		assert.Regexp(t, line, string(target[2]), "make %s", target[1])
	}
}

// Each metric that a page names must occur in the code.
func TestPagesNameMetricsOfTheCode(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, dir := range []string{"replicas/internal/telemetry", "replicas/clientgo", "internal/follow", "cmd/replicakit-controller"} {
		for _, file := range parsed(t, dir) {
			if !file.isTest() {
				text, err := os.ReadFile(file.path)
				require.NoError(t, err)
				code.Write(text)
			}
		}
	}
	metric := regexp.MustCompile(`\breplicakit_(\w+?)(?:_count|_sum|_bucket)?\b`)
	for page, text := range pages(t) {
		for _, m := range metric.FindAllStringSubmatch(text, -1) {
			assert.Regexp(t, `"(replicakit_)?`+m[1]+`"`, code.String(), "%s: %s", page, m[0])
		}
	}
}

// The page docs/fit.md must name the versions in the go.mod files as the lowest versions. The page
// docs/versions.md must list each of the lowest versions as tested.
func TestPagesSayTheLowestVersions(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	for _, tt := range []struct{ dir, needs, row string }{
		{".", "k8s.io/apimachinery", "| the root module | %s | `k8s.io/api` and `k8s.io/apimachinery` %s |"},
		{"test/release/consumer", "k8s.io/client-go", "| `replicas/typed`, with client-go | %s | client-go %s |"},
		{"replicas/clientgo", "k8s.io/client-go", "| `replicas/clientgo` | %s | client-go %s |"},
		{"replicas/controllerruntime", "sigs.k8s.io/controller-runtime", "| `replicas/controllerruntime` | %s | controller-runtime %s |"},
	} {
		mod := read(t, filepath.Join(tt.dir, "go.mod"))
		language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)
		version := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(tt.needs) + ` v((\d+\.\d+)\.\d+)$`).FindStringSubmatch(mod)
		require.NotNil(t, language, tt.dir)
		require.NotNil(t, version, tt.dir)
		assert.Contains(t, texts["docs/fit.md"], fmt.Sprintf(tt.row, language[1], version[2]))
		folder := strings.Replace(tt.dir, ".", "root", 1)
		assert.Regexp(t, "(?m)^\\| `"+folder+"` \\|.*\\| "+path.Base(tt.needs)+" v"+regexp.QuoteMeta(version[1])+" \\|", texts["docs/versions.md"])
	}
}
