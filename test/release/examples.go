// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// An example is one of the module's, as a program.
type example struct {
	dir    string // for it alone, in any module
	source []byte
}

func (e example) write(module string) error {
	dir := filepath.Join(module, e.dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "main.go"), e.source, 0o644)
}

// findExamples returns the examples of all packages of the module that others
// can import, in the order of the packages and then of the files. One that needs
// more than its own file, or an internal package, is nothing to copy.
func findExamples(m *goModule) ([]example, error) {
	var found []example
	root := m.at(".")
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDir(root, file)
		}
		if !strings.HasSuffix(file, "_test.go") {
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		examples, err := examplesOf(file, filepath.ToSlash(name))
		found = append(found, examples...)
		return err
	})
	return found, err
}

// skipDir passes over what is no package of the module, or none for others.
func skipDir(root, dir string) error {
	if dir == root {
		return nil
	}
	name := filepath.Base(dir)
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	if err == nil || name == "internal" || name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") {
		return filepath.SkipDir
	}
	return nil
}

func examplesOf(file, name string) ([]example, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var examples []example
	for _, e := range doc.Examples(parsed) {
		if e.Play == nil || slices.ContainsFunc(e.Play.Imports, isInternal) {
			continue
		}
		var source bytes.Buffer
		if err := format.Node(&source, fset, e.Play); err != nil {
			return nil, err
		}
		dir := path.Join(strings.TrimSuffix(name, "_test.go"), "Example"+e.Name)
		examples = append(examples, example{dir: dir, source: source.Bytes()})
	}
	return examples, nil
}

func isInternal(spec *ast.ImportSpec) bool { return strings.Contains(spec.Path.Value, "/internal/") }
