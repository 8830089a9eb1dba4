package replicakit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages returns the pages for users, by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "test/*.md", "examples/*/*.md", "replicas/*/*.md"} {
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

// Code of a page stands in a test, which is compiled and run.
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

// unindented is code without the tabs at the beginnings of its lines.
func unindented(code string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "")
}

// A link to a file of the repository leads to one, and one within a page to a
// heading of that page.
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

// anchors are those that GitHub gives the headings of a page.
func anchors(text string) []string {
	var list []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		bare := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		list = append(list, strings.ReplaceAll(bare, " ", "-"))
	}
	return list
}

// The README's figures of a real API server are those of the pages that measured
// them.
func TestTheREADMEQuotesMeasuredFigures(t *testing.T) {
	t.Parallel()
	texts := pages(t)
	measured, err := os.ReadFile("test/bench/cluster.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(texts["README.md"], "What is better, on a real API server")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\nIn all else")
	figures := regexp.MustCompile(`\| ([\d.,]+(?: MiB| s)?) \| ([\d.,]+(?: MiB| s)?) \|`).FindAllStringSubmatch(table, -1)
	require.NotEmpty(t, figures)
	for _, row := range figures {
		for _, figure := range row[1:] {
			assert.Contains(t, string(measured)+texts["test/README.md"], " "+figure, row[0])
		}
	}
}
