// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// check type-checks each package with each of its defects, which takes a moment where
// building all of them would take minutes.
func check(ctx context.Context, root string, defects []defect) error {
	packages := map[string]*checked{}
	var errs []error
	for _, d := range defects {
		if packages[d.dir()] == nil {
			p, err := list(ctx, root, d.dir())
			if err != nil {
				return err
			}
			packages[d.dir()] = p
		}
		changed, err := d.apply(root)
		if err == nil {
			err = packages[d.dir()].check(changed)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.name, err))
		}
	}
	return errors.Join(errs...)
}

// A checked is a package that can be type-checked as if its files were others.
type checked struct {
	root, dir string
	files     []string
	fset      *token.FileSet
	imports   types.Importer
}

// list asks go for the files of a package and for what it imports, compiled.
func list(ctx context.Context, root, dir string) (*checked, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Export,GoFiles", ".")
	cmd.Dir, cmd.Stderr = filepath.Join(root, filepath.FromSlash(dir)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", dir, strings.Join(cmd.Args, " "), err)
	}
	exports := map[string]string{}
	c := &checked{root: root, dir: dir, fset: token.NewFileSet()}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p struct {
			ImportPath, Export string
			GoFiles            []string
		}
		if err := decoder.Decode(&p); err != nil {
			return nil, err
		}
		exports[p.ImportPath], c.files = p.Export, p.GoFiles // the package itself comes last
	}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c, nil
}

// check type-checks the package with some of its files changed.
func (c *checked) check(changed map[string][]byte) error {
	var files []*ast.File
	for _, name := range c.files {
		var source any // nil: what the file has
		if text, ok := changed[path.Join(c.dir, name)]; ok {
			source = text
		}
		file, err := parser.ParseFile(c.fset, filepath.Join(c.root, filepath.FromSlash(c.dir), name), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, err := (&types.Config{Importer: c.imports}).Check(c.dir, c.fset, files, nil)
	return err
}
