// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicakit_test

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exports holds the names that a package declares. The field functions holds the exported functions outside tests.
// The field members holds methods, struct fields and parameters.
type exports struct{ names, functions, members map[string]bool }

func (e exports) have(name, member string) bool {
	return e.names[name] && (member == "" || e.members[member])
}

// Each name such as expectations.Store.State in a comment must exist. A comment may leave out the name of its own
// package. If the package declares Options, the test also checks a name such as Options.MaxParallel. The package
// must then declare a method, field or parameter named MaxParallel.
func TestCommentsNameWhatExists(t *testing.T) {
	t.Parallel()
	exported := map[string]exports{}
	for _, dir := range packages {
		exported[path.Base(dir)] = exportsOf(t, dir)
	}
	reference := regexp.MustCompile(`(?:\b([a-z]+)\.)?\b([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	seen := 0
	for _, dir := range packages {
		here := exported[path.Base(dir)]
		for _, text := range commentsOf(t, dir) {
			for _, m := range reference.FindAllStringSubmatch(text, -1) {
				pkg, name, member := m[1], m[2], m[3]
				named, ours := exported[pkg]
				if pkg == "" {
					named, ours = here, member != "" && here.names[name]
				}
				if ours {
					seen++
					assert.Truef(t, named.have(name, member), "a comment in %s names %s", dir, m[0])
				}
			}
		}
	}
	assert.Greater(t, seen, 100)
}

func commentsOf(t *testing.T, dir string) (texts []string) {
	t.Helper()
	for _, file := range parsed(t, dir) {
		for _, comment := range file.Comments {
			texts = append(texts, comment.Text())
		}
	}
	return texts
}

// A source is a parsed Go file of a package.
type source struct {
	*ast.File

	path string
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// parsed returns the files of a package, tests included.
func parsed(t *testing.T, dir string) (files []source) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, source{file, name})
	}
	return files
}

func exportsOf(t *testing.T, dir string) exports {
	t.Helper()
	found := exports{names: map[string]bool{}, functions: map[string]bool{}, members: map[string]bool{}}
	for _, file := range parsed(t, dir) {
		if strings.HasSuffix(file.Name.Name, "_test") {
			continue
		}
		ast.Inspect(file.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				return false
			case *ast.FuncDecl:
				if n.Recv != nil {
					found.members[n.Name.Name] = true
					return true
				}
				found.names[n.Name.Name] = true
				if n.Name.IsExported() && !file.isTest() {
					found.functions[n.Name.Name] = true
				}
			case *ast.TypeSpec:
				found.names[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, id := range n.Names {
					found.names[id.Name] = true
				}
			case *ast.Field:
				for _, id := range n.Names {
					found.members[id.Name] = true
				}
			}
			return true
		})
	}
	return found
}

// mostUnplain is the maximum number of unplain expressions in 1,000 words of comments. This maximum may only be
// lowered.
const mostUnplain = 0.4

// unplain lists expressions that made people read a sentence twice, and advice on what to write instead.
var unplain = []struct {
	expression *regexp.Regexp
	write      string
}{
	{regexp.MustCompile(`(?i)\bnobody\b`), "say who: the Controller, no other process"},
	{regexp.MustCompile(`(?i)\b(who(m)?ever|somebody|whatever)\b`), "say who or what"},
	{regexp.MustCompile(`(?:^|[.:] )What \w+`), "begin with the thing"},
	{regexp.MustCompile(`(?i)\b(tells?|told|telling)\b`), "say, report, log, return, remember"},
	{regexp.MustCompile(`(?i)\bof (which|whom)\b`), "make two sentences"},
	{regexp.MustCompile(`(?i)\bbesides?\b`), "also, in addition, next to"},
	{regexp.MustCompile(`(?i)\bbut for\b`), "except"},
	{regexp.MustCompile(`(?i)\b(no|any) more\b`), "no longer"},
	{regexp.MustCompile(`(?i)\b(go|goes|went) by\b`), "use"},
	{regexp.MustCompile(`(?i)\b(is|are|was|were) to be\b`), "must be, will be"},
	{regexp.MustCompile(`(?i)\bcomes? back\b`), "return"},
	{regexp.MustCompile(`(?i)\ball the same\b`), "anyway"},
	{regexp.MustCompile(`(?i)\bby now\b`), "now"},
}

// notUnplain matches plain texts that the expressions in unplain also match.
var notUnplain = regexp.MustCompile(`(?i)\b(no|any) more than\b|(?:^|[.:] )What (it|is|are|does|do|did|was)\b`)

// Comments outside test files must be plain English. If these comments contain too many unplain expressions,
// TestPlainWords lists all of them with their files and lines.
func TestPlainWords(t *testing.T) {
	t.Parallel()
	words, found := 0, []string(nil)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		n, places := unplainOf(t, path)
		words, found = words+n, append(found, places...)
		return nil
	}))
	assert.Greater(t, words, 50_000)
	rate := 1000 * float64(len(found)) / float64(words)
	assert.LessOrEqual(t, rate, mostUnplain, "%d expressions in %d words of comments:\n%s", len(found), words, strings.Join(found, "\n"))
	assert.GreaterOrEqual(t, rate, mostUnplain-0.3, "comments have become plainer: lower mostUnplain")
}

// unplainOf returns the number of words in the comments of a file, and the place of each unplain expression in
// them.
func unplainOf(t *testing.T, path string) (words int, places []string) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	comment := regexp.MustCompile(`(?:^|\s)//\s?(.*)`)
	lines := bufio.NewScanner(file)
	for line := 1; lines.Scan(); line++ {
		m := comment.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		words += len(strings.Fields(m[1]))
		text := notUnplain.ReplaceAllString(m[1], "")
		for _, u := range unplain {
			for range u.expression.FindAllString(text, -1) {
				places = append(places, path+":"+strconv.Itoa(line)+": "+u.write+": "+m[1])
			}
		}
	}
	require.NoError(t, lines.Err())
	return words, places
}
