// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
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

// A refactoring that moves what a defect changes has to move the defect too. Whether it
// still compiles, make check says: a test compiles nothing.
func TestEachDefectApplies(t *testing.T) {
	t.Parallel()
	for _, d := range defects(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			changed, err := d.apply(root)
			require.NoError(t, err)
			for name, source := range changed {
				assert.Equal(t, d.dir(), path.Dir(name), "a defect is in the files of one package")
				_, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
				assert.NoError(t, err)
			}
		})
	}
}

// One build has all defects, so each one changes functions alone.
func TestAllDefectsStandBesideEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := makeOverlay(root, dir, defects(t))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		_, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
	}
}

func TestThereIsANetForEachDefect(t *testing.T) {
	t.Parallel()
	for _, d := range defects(t) {
		s, err := suiteOf(suites(budget{}), d.dir())
		require.NoError(t, err, d.name)
		binaries := map[string]bool{}
		for _, n := range s.nets {
			assert.DirExists(t, filepath.Join(root, n.dir), d.name)
			binaries[bed{}.binary(n)] = true
		}
		assert.Len(t, binaries, len(s.nets), "each net has a binary of its own")
	}
	_, err := suiteOf(suites(budget{}), "docs")
	require.EqualError(t, err, "no net looks at docs")
}
