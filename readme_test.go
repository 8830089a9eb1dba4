// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicakit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The README and docs/why.md must be short. The README must state the right numbers of imported packages and of
// Kubernetes' defects. The versions of Go and of Kubernetes' libraries in the README must be right too.
func TestTheREADMECounts(t *testing.T) {
	t.Parallel()
	readme := pages(t)["README.md"]
	var all, others int
	for _, line := range goList(t, "-deps", "-f", `{{if not .Standard}}{{.ImportPath}}={{.Module.Path}}{{end}}`, "./replicas") {
		_, of, _ := strings.Cut(line, "=")
		all++
		if of != module {
			others++
		}
	}
	assert.Contains(t, readme, fmt.Sprintf("\n| `replicas`, which has no client | %d packages, %d of them ", all, others))
	assert.LessOrEqual(t, len(strings.Fields(readme)), 900, "words: make the README shorter")
	assert.LessOrEqual(t, len(regexp.MustCompile(`[^\s|]*\pL[^\s|]*`).FindAllString(pages(t)["docs/why.md"], -1)), 350, "words: make docs/why.md shorter")
	defects := regexp.MustCompile(`(?m)^- \*\*W\d+\*\*`).FindAllString(pages(t)["docs/behaviour.md"], -1)
	assert.Contains(t, readme, fmt.Sprintf("The [%d defects](docs/behaviour.md)", len(defects)))
	assert.Contains(t, read(t, "go.mod"), "\ngo "+regexp.MustCompile(`\nGo (\d+\.\d+) `).FindStringSubmatch(readme)[1]+".0\n")
	lowest, highest := regexp.MustCompile(`libraries (0\.\d+) to (0\.\d+) `).FindStringSubmatch(readme), pages(t)["docs/versions.md"]
	assert.Contains(t, read(t, "go.mod"), "k8s.io/api v"+lowest[1]+".0\n")
	assert.Contains(t, highest, "| apimachinery v"+lowest[2]+".")
}

// Each row of the README's table for a real API server must have the figures of test/bench/cluster.md. In a table
// of test/bench/cluster.md, the two figures of the row must be in adjacent cells.
func TestTheREADMEQuotesTheServer(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	measured := texts["test/bench/cluster.md"]
	_, table, found := strings.Cut(texts["README.md"], "\nOn a real API server")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\nChoosing and planning")
	rows := regexp.MustCompile(`(?m)^\| .* \| (\d.*) \| (\d.*) \|$`).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, strings.Count(table, "\n| ")-1)
	for _, row := range rows {
		spread := `(?: \([^)|]*\))? \|`
		assert.Regexp(t, `\| `+regexp.QuoteMeta(row[1])+spread+" "+regexp.QuoteMeta(row[2])+spread, measured)
	}
}

// Each row of the README's benchmark table must have the figures of a row in docs/benchmarks.md.
func TestTheREADMEQuotesTheBenchmarks(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	measured := regexp.MustCompile(` ±[^ ]*`).ReplaceAllString(texts["docs/benchmarks.md"], "")
	_, table, found := strings.Cut(texts["README.md"], "\n| work | Kubernetes | ours | |\n")
	require.True(t, found)
	rows := regexp.MustCompile(`(?m)^\| (.*) \| (.*) \| (.*) \| (\d.*x) \|$`).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, 2)
	for _, row := range rows {
		times := regexp.QuoteMeta(strings.Join(row[2:5], " | "))
		assert.Regexp(t, `(?m)^\|.* \| `+times+` \|`, measured, "copy the row %q from docs/benchmarks.md, which make bench wrote", row[1])
	}
}

// The modules test and test/binaries/kubernetes must use the release in the Makefile's KUBERNETES_VERSION. Each
// release of Kubernetes that the README names must also be in test/bench/cluster.md.
func TestTheREADMENamesTheRelease(t *testing.T) {
	t.Parallel()
	release := makeVariable(t, "KUBERNETES_VERSION")[0]
	for _, dir := range []string{"test", "test/binaries/kubernetes"} {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		require.NoError(t, err)
		assert.Regexp(t, `(?m)\bk8s\.io/kubernetes `+regexp.QuoteMeta(release)+`( //.*)?$`, string(text), dir)
	}
	named := regexp.MustCompile(`(?:Kubernetes|kube-[a-z-]+) \d+\.[\d.]*\d`).FindAllString(pages(t)["README.md"], -1)
	require.NotEmpty(t, named)
	measured := read(t, "test/bench/cluster.md")
	for _, name := range named {
		assert.Contains(t, measured, name)
	}
}

// makeVariable returns the words of a variable of the Makefile.
func makeVariable(t *testing.T, name string) []string {
	t.Helper()
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	value := regexp.MustCompile(`(?m)^` + name + ` +:= ([^#\n]*)`).FindSubmatch(makefile)
	require.NotNil(t, value, name)
	var words []string
	for word := range strings.FieldsSeq(string(value[1])) {
		if of := regexp.MustCompile(`^\$\((\w+)\)$`).FindStringSubmatch(word); of != nil {
			words = append(words, makeVariable(t, of[1])...)
			continue
		}
		words = append(words, word)
	}
	return words
}

// docs/loop.md must have a row for each public package of the root module.
func TestTheLoopListsThePackages(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/loop.md"]
	for _, dir := range goList(t, "./...") {
		dir = strings.TrimPrefix(strings.TrimPrefix(dir, module), "/")
		if dir != "" && !strings.Contains(dir, "internal") && !strings.HasPrefix(dir, "examples/") {
			assert.Contains(t, page, fmt.Sprintf("\n| [%s](../%s) | ", dir, dir))
		}
	}
}

// test/README.md must state how many facts are in the section "Facts that are not for this library" of
// docs/behaviour.md. It must also state the number of Kubernetes' defects in docs/behaviour.md.
func TestFactsAreCounted(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	_, foreign, found := strings.Cut(texts["docs/behaviour.md"], "\n## Facts that are not for this library\n")
	require.True(t, found)
	foreign, facts, _ := strings.Cut(foreign, "\n## ")
	var ids []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+(?:, [A-Z]\d+)*) \|`).FindAllStringSubmatch(foreign, -1) {
		ids = append(ids, strings.Split(m[1], ", ")...)
	}
	defects := regexp.MustCompile(`(?m)^- \*\*W\d+\*\*`).FindAllString(facts, -1)
	assert.Contains(t, texts["test/README.md"], fmt.Sprintf("all have but those %d that are not for this", len(ids)))
	assert.Contains(t, texts["test/README.md"], fmt.Sprintf(" of the %d defects of ", len(defects)))
}
