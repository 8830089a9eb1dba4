// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// aModule is a library with a net and tests of its own, which take no time.
var aModule = map[string]string{
	"go.mod":    "module example.com/m\n\ngo 1.25\n",
	"lib/a.go":  "package lib\n\nfunc Add(a, b int) int {\n\treturn a + b\n}\n\nfunc Even(a int) bool {\n\treturn a%2 == 0\n}\n",
	"lib/b.go":  "package lib\n\nfunc Sub(a, b int) int {\n\treturn a - b\n}\n",
	"net/n.go":  "package net\n",
	"net2/n.go": "package net2\n",
	"lib/a_test.go": `package lib

import "testing"

func TestEven(t *testing.T) {
	if !Even(2) {
		t.Fatal("\n\tTest: TestEven")
	}
}
`,
	"net/n_test.go": `package net

import (
	"testing"

	"example.com/m/lib"
)

func TestSeeds(t *testing.T) {
	for seed := 1; seed < 5; seed++ {
		if lib.Add(seed, 2*seed) != 3*seed {
			t.Errorf("seed %d: wrong", seed)
		}
	}
}
`,
	"net2/n_test.go": `package net2

import (
	"testing"

	"example.com/m/lib"
)

func TestSub(t *testing.T) {
	if lib.Sub(3, 2) != 1 {
		t.Fatal("wrong")
	}
}
`,
}

func module(t *testing.T) (root string, s suite) {
	t.Helper()
	root = t.TempDir()
	for name, text := range aModule {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	first := regexp.MustCompile(`(seed \d+): `)
	return root, suite{title: "in lib", dirs: []string{"lib"}, nets: []net{
		{name: "stories", dir: "net", first: first},
		{name: "corners", dir: "net2", first: failedTest},
	}}
}

func TestTryTellsWhichNetsNotice(t *testing.T) {
	t.Parallel()
	root, s := module(t)
	tests := []struct {
		name, edits string
		timeout     time.Duration
		want        catches
	}{
		{"nothing-that-a-net-looks-at", "--- lib/a.go\n-\treturn a%2 == 0\n+\treturn 0 == a%2\n", time.Minute, catches{}},
		{"the-seed-that-fails-first", "--- lib/a.go\n-\treturn a + b\n+\treturn min(a+b, 7)\n", time.Minute, catches{"stories": "seed 3"}},
		{"several-nets", "--- lib/a.go\n-\treturn a + b\n+\treturn a - b\n@@\n-\treturn a%2 == 0\n+\treturn a%2 == 1\n--- lib/b.go\n-\treturn a - b\n+\treturn a\n", time.Minute, catches{"stories": "seed 1"}},
		{"the-tests-of-the-package", "--- lib/a.go\n-\treturn a%2 == 0\n+\treturn a%2 == 1\n", time.Minute, catches{ownTests: "TestEven"}},
		{"the-second-net", "--- lib/b.go\n-\treturn a - b\n+\treturn a\n", time.Minute, catches{"corners": "it fails"}},
		{"a-panic", "--- lib/a.go\n-\treturn a + b\n+\tpanic(\"oh\")\n", time.Minute, catches{"stories": "panic: oh [recovered, repanicked]"}},
		{"no-end", "--- lib/a.go\n-\treturn a + b\n+\tfor {\n+\t}\n", time.Second, catches{"stories": "no end"}},
	}
	var all []defect
	for _, tc := range tests {
		all = append(all, aDefect(t, tc.name, tc.edits))
	}
	nets := append(slices.Clone(s.nets), testsOf("lib", ownTests))
	b, err := plant(t.Context(), root, all, nets)
	require.NoError(t, err)
	t.Cleanup(b.clear)
	for i, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			caught, err := b.try(t.Context(), all[i], nets, tc.timeout)
			require.NoError(t, err)
			if _, run := caught["corners"]; tc.want["stories"] != "" {
				assert.False(t, run, "a net before it noticed")
			}
			for name, said := range caught {
				if tc.timeout == time.Minute || name == "stories" { // the others may take that second too
					assert.Equal(t, tc.want[name], said, name)
				}
			}
		})
	}
	t.Run("when it is told to end", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.try(ctx, defect{}, nets, time.Minute)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func aDefect(t *testing.T, name, edits string) defect {
	t.Helper()
	d, err := parse(name, "It breaks.\n\n"+edits)
	require.NoError(t, err)
	return d
}

func TestPlantRefuses(t *testing.T) {
	t.Parallel()
	root, s := module(t)
	for want, edits := range map[string]string{
		"d: lib/a.go must have this exactly once, and has it 0 times": "--- lib/a.go\n-\treturn b + a\n+\treturn b\n",
		"d: lib/a.go must have this exactly once, and has it 2 times": "--- lib/a.go\n-}\n+\n",
		"undefined: c": "--- lib/a.go\n-\treturn a + b\n+\treturn c\n",
		"no such file": "--- lib/c.go\n-\treturn a + b\n+\treturn c\n",
		"a defect changes functions, and nothing else": "--- lib/a.go\n-package lib\n+package bib\n",
		"Even is renamed to Odd":                       "--- lib/a.go\n-func Even(a int) bool {\n+func Odd(a int) bool {\n",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			_, err := plant(t.Context(), root, []defect{aDefect(t, "d", edits)}, s.nets)
			require.ErrorContains(t, err, want)
		})
	}
}

// A function of each form hands its arguments on to the variant, and what that returns back.
func TestVariantsAreCalledAsTheOriginal(t *testing.T) {
	t.Parallel()
	for original, want := range map[string]string{
		"func F(a, b int) {\n}":                       "F_d(a, b)\n\t\treturn\n",
		"func F(a int, b ...string) (err error) {\n}": "return F_d(a, b...)\n",
		"func F[A, B any](a A) B {\n}":                "return F_d[A, B](a)\n",
		"func (r *R[A]) F() int {\n}":                 "return r.F_d()\n",
		"func (*R) F() int {\n}":                      "*R.F: its receiver has no name",
		"func F(a int, _ string) int {\n}":            "F: a parameter has no name",
		"func F(int) int {\n}":                        "F: a parameter has no name",
	} {
		s, err := parseSource([]byte("package p\n\n" + original + "\n"))
		require.NoError(t, err)
		call, err := s.functions[0].call("F_d")
		if err != nil {
			call = err.Error()
		}
		assert.Equal(t, want, strings.TrimLeft(call, "\t"))
	}
}
