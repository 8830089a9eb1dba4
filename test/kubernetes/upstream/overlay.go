// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// overlay copies the suite's tests into the directory scratch and applies the suite's changes. It also writes
// an overlay file there and returns its path. The go command adds the tests to the suite's package if the
// flag -overlay names this file.
func (s Suite) overlay(kubernetes, module, scratch string) (file string, err error) {
	tests, err := filepath.Glob(filepath.Join(kubernetes, s.From, "*_test.go"))
	if err != nil {
		return "", err
	}
	cut := map[string]bool{}
	for _, name := range s.removedNames() {
		cut[name] = true
	}
	replace := map[string]string{}
	for _, test := range tests {
		source, err := os.ReadFile(test)
		if err != nil {
			return "", err
		}
		changed, err := rewrite(source, s.Imports, cut)
		if err != nil {
			return "", err
		}
		shown := filepath.Join(scratch, filepath.Base(test))
		if err := os.WriteFile(shown, changed, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(module, s.In, filepath.Base(test))] = shown
	}
	for _, name := range s.removedNames() {
		if cut[name] {
			return "", fmt.Errorf("upstream: %s: %s is left out, but is in no file of %s", s.Name, name, s.From)
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(scratch, "overlay.json")
	return file, os.WriteFile(file, content, 0o600)
}

// rewrite replaces imports, and removes some functions and types. If cut[name] exists, rewrite removes the
// function or type with this name. It also removes imports that only the removed code needs. Line numbers stay
// the same. For each removed function or type, rewrite sets cut[name] to false.
func rewrite(source []byte, imports map[string]string, cut map[string]bool) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	out := bytes.Clone(source)
	blank := func(node ast.Node) {
		for i := files.Position(node.Pos()).Offset; i < files.Position(node.End()).Offset; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	used := map[string]bool{}
	for _, decl := range file.Decls {
		name := nameOf(decl)
		if _, left := cut[name]; left {
			cut[name] = false
			blank(decl)
			continue
		}
		ast.Inspect(decl, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok {
				if x, ok := selector.X.(*ast.Ident); ok {
					used[x.Name] = true
				}
			}
			return true
		})
	}
	for _, spec := range slices.Backward(file.Imports) { // backward, so that earlier imports keep their offsets
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("upstream: %w", err)
		}
		if !slices.ContainsFunc(namesOf(spec, importPath), func(name string) bool { return used[name] || name == "." || name == "_" }) {
			blank(spec)
			continue
		}
		if other, ok := imports[importPath]; ok {
			at := files.Position(spec.Path.Pos()).Offset
			out = slices.Replace(out, at, at+len(spec.Path.Value), []byte(strconv.Quote(other))...)
		}
	}
	return out, nil
}

// nameOf returns the name that a suite uses for a declaration. For a function or a single type, this is its
// own name. For a method, this is the name of the receiver type.
func nameOf(decl ast.Decl) string {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil {
			return decl.Name.Name
		}
		receiver := decl.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if ident, ok := receiver.(*ast.Ident); ok {
			return ident.Name
		}
	case *ast.GenDecl:
		if spec, ok := decl.Specs[0].(*ast.TypeSpec); ok && len(decl.Specs) == 1 {
			return spec.Name.Name
		}
	}
	return ""
}

var version = regexp.MustCompile(`^v[0-9]+$`)

// namesOf returns the possible names of an imported package in the file. If the import path ends with
// "/v1" or another version, the last two elements of the path are both possible names. namesOf does not
// load the package to determine its name.
func namesOf(spec *ast.ImportSpec, importPath string) []string {
	if spec.Name != nil {
		return []string{spec.Name.Name}
	}
	names := []string{path.Base(importPath)}
	if version.MatchString(names[0]) {
		names = append(names, path.Base(path.Dir(importPath)))
	}
	return names
}

// removedNames collects the names of the functions and types that the suite removes.
func (s Suite) removedNames() []string {
	names := slices.Clone(s.Unused)
	for _, left := range s.LeftOut {
		top, _, _ := strings.Cut(left.Test, "/")
		names = append(names, top)
	}
	return names
}
