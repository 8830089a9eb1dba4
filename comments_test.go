// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicakit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
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
