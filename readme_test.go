// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicakit_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The README's counts of what an import brings, and of the incidents that are told.
func TestTheREADMECounts(t *testing.T) {
	t.Parallel()
	readme := pages(t)["README.md"]
	var all, others int
	modules, ours := map[string]bool{}, 0
	for _, line := range goList(t, "-deps", "-f", `{{if not .Standard}}{{.ImportPath}}={{.Module.Path}}{{end}}`, "./replicas") {
		_, of, _ := strings.Cut(line, "=")
		all++
		if of == module {
			ours = 1
			continue
		}
		others++
		modules[of] = true
	}
	assert.Contains(t, readme, fmt.Sprintf("\n| `replicakit/replicas` | %d | %d |", all, len(modules)+ours))
	assert.Contains(t, readme, fmt.Sprintf("\n| what it needs of `k8s.io/api` and `apimachinery`, alone | %d | %d |", others, len(modules)))

	stories, err := filepath.Glob("test/stories/testdata/*")
	require.NoError(t, err)
	assert.Contains(t, readme, fmt.Sprintf(": %d incidents in prose", len(stories)))
}

// What is better, on a real API server: both sides of each row are beside each other
// on the page that measured them.
func TestTheREADMEQuotesTheServer(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	measured := texts["test/bench/cluster.md"]
	_, table, found := strings.Cut(texts["README.md"], "What is better, on a real API server")
	require.True(t, found)
	table, rest, _ := strings.Cut(table, "\nIn all else")
	rows := regexp.MustCompile(`(?m)^\| .* \| (\d.*) \| (\d.*) \|$`).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, strings.Count(table, "\n| ")-1)
	for _, row := range rows {
		spread := `(?: \([^)|]*\))? \|`
		assert.Regexp(t, `\| `+regexp.QuoteMeta(row[1])+spread+" "+regexp.QuoteMeta(row[2])+spread, measured)
	}
	for phrase, measure := range map[string]string{
		` ([\d.]+) to ([\d.]+) of the CPU`:    `controller's CPU`,
		` ([\d.]+) to ([\d.]+) of the memory`: `(?:controller's )?peak memory`,
	} {
		quoted := regexp.MustCompile(phrase).FindStringSubmatch(rest)
		require.NotNil(t, quoted, phrase)
		var ratios []float64
		for _, m := range regexp.MustCompile(`(?m)\| `+measure+`(?:,? [^|]*)? \|[^|]*\|[^|]*\| (\d\.\d\d) \|`).FindAllStringSubmatch(measured, -1) {
			ratio, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err)
			ratios = append(ratios, ratio)
		}
		require.Greater(t, len(ratios), 5)
		for i, extreme := range []float64{slices.Min(ratios), slices.Max(ratios)} {
			assert.Equal(t, fmt.Sprintf("%.1f", extreme), quoted[1+i], measure)
		}
	}
}

// How fast it is: each row is one of docs/benchmarks.md.
func TestTheREADMEQuotesTheBenchmarks(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	measured := regexp.MustCompile(` ±[^ ]*`).ReplaceAllString(texts["docs/benchmarks.md"], "")
	_, table, found := strings.Cut(texts["README.md"], "<!-- make bench writes this table -->\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "<!-- until here -->")
	rows := regexp.MustCompile(`(?m)^\| (.*) \| (.*) \| (.*) \| \*\*(.*)\*\* \| (.*) \|$`).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, strings.Count(table, "\n")-2)
	for _, row := range rows {
		times := regexp.QuoteMeta(strings.Join(row[2:5], " | "))
		assert.Regexp(t, `(?m)^\|.* \| `+times+` \|.* \| `+regexp.QuoteMeta(row[5])+` \|`, measured)
	}
}

// Everything is compared with one release of Kubernetes, which the README names.
func TestTheREADMENamesTheRelease(t *testing.T) {
	t.Parallel()
	release := makeVariable(t, "KUBERNETES_VERSION")[0]
	for _, dir := range []string{"test", "test/binaries/kubernetes"} {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		require.NoError(t, err)
		assert.Regexp(t, `(?m)\bk8s\.io/kubernetes `+regexp.QuoteMeta(release)+`( //.*)?$`, string(text), dir)
	}
	named := regexp.MustCompile(`(?:Kubernetes|kube-[a-z-]+) (\d+\.[\d.]*\d)`).FindAllStringSubmatch(pages(t)["README.md"], -1)
	require.NotEmpty(t, named)
	for _, m := range named {
		assert.Regexp(t, "^v"+regexp.QuoteMeta(m[1])+`(\.|$)`, release, m[0])
	}
}

// What pages have you get or install is what a release has.
func TestPagesTakeWhatIsReleased(t *testing.T) {
	t.Parallel()
	released := map[string][]string{"get": makeVariable(t, "RELEASED"), "install": makeVariable(t, "PROGRAMS")}
	seen := 0
	for page, text := range pages(t) {
		for _, m := range regexp.MustCompile(`\bgo (get|install) `+module+`(?:/(\S+))?@`).FindAllStringSubmatch(text, -1) {
			seen++
			assert.Contains(t, released[m[1]], cmp.Or(m[2], "."), page)
		}
	}
	assert.GreaterOrEqual(t, seen, 5)
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

// Which package answers which question: all packages of the root module do.
func TestTheREADMEListsThePackages(t *testing.T) {
	t.Parallel()
	readme := pages(t)["README.md"]
	for _, dir := range goList(t, "./...") {
		dir = strings.TrimPrefix(strings.TrimPrefix(dir, module), "/")
		if dir != "" && !strings.Contains(dir, "internal") && !strings.HasPrefix(dir, "examples/") {
			assert.Contains(t, readme, fmt.Sprintf("\n| [%s](%s) | ", dir, dir))
		}
	}
}

// How many facts there are, how many of them are not for a library, and how many are
// defects.
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
