// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
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
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

func defects(t *testing.T) []defect {
	t.Helper()
	all, err := load("testdata")
	require.NoError(t, err)
	return all
}

// A refactoring that moves what a defect changes has to move the defect too.
func TestEachDefectAppliesAndCompiles(t *testing.T) {
	t.Parallel()
	packages := map[string]*checked{}
	for _, d := range defects(t) {
		if packages[d.dir()] == nil {
			packages[d.dir()] = list(t, d.dir())
		}
	}
	for _, d := range defects(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			changed, err := d.apply(root)
			require.NoError(t, err)
			require.NoError(t, packages[d.dir()].check(t, changed))
		})
	}
}

// A checked is a package that can be type-checked as if its files were others.
type checked struct {
	dir   string
	files []string
	fset  *token.FileSet

	mu      sync.Mutex
	imports types.Importer
}

// list asks go for the files of a package and for what it imports, compiled.
func list(t *testing.T, dir string) *checked {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles", ".")
	cmd.Dir, cmd.Stderr = filepath.Join(root, dir), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	exports := map[string]string{}
	c := &checked{dir: dir, fset: token.NewFileSet()}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p struct {
			ImportPath, Export string
			GoFiles            []string
		}
		require.NoError(t, decoder.Decode(&p))
		exports[p.ImportPath], c.files = p.Export, p.GoFiles // the package itself comes last
	}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

func (c *checked) check(t *testing.T, changed map[string][]byte) error {
	t.Helper()
	var files []*ast.File
	for _, name := range c.files {
		var source any // nil: what the file has
		if text, ok := changed[path.Join(c.dir, name)]; ok {
			source = text
			delete(changed, path.Join(c.dir, name))
		}
		file, err := parser.ParseFile(c.fset, filepath.Join(root, c.dir, name), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	assert.Empty(t, changed, "a defect is in the files of one package")
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := (&types.Config{Importer: c.imports}).Check(c.dir, c.fset, files, nil)
	return err
}

func TestThereIsANetForEachDefect(t *testing.T) {
	t.Parallel()
	for _, d := range defects(t) {
		s, err := suiteOf(suites(budget{}), d.dir())
		require.NoError(t, err, d.name)
		binaries := map[string]bool{}
		for _, n := range s.nets {
			assert.DirExists(t, filepath.Join(root, n.dir), d.name)
			binaries[binary("", n)] = true
		}
		assert.Len(t, binaries, len(s.nets), "each net has a binary of its own")
	}
	_, err := suiteOf(suites(budget{}), "docs")
	require.EqualError(t, err, "no net looks at docs")
}
