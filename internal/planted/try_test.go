// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
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
	first := regexp.MustCompile(`seed (\d+): `)
	s, err := suiteOf([]suite{{title: "in lib", dirs: []string{"lib"}, nets: []net{
		{name: "stories", dir: "net", where: "seed ", first: first},
		{name: "corners", dir: "net2", first: failedTest},
	}}}, "lib")
	require.NoError(t, err)
	return root, s
}

func TestTryTellsWhichNetsNotice(t *testing.T) {
	t.Parallel()
	root, s := module(t)
	for _, tc := range []struct {
		name, edits string
		timeout     time.Duration
		want        catches
	}{
		{"nothing that a net looks at", "--- lib/a.go\n-\treturn a%2 == 0\n+\treturn 0 == a%2\n", time.Minute, catches{}},
		{"the seed that fails first", "--- lib/a.go\n-\treturn a + b\n+\treturn min(a+b, 7)\n", time.Minute, catches{"stories": "seed 3"}},
		{"several nets", "--- lib/a.go\n-\treturn a + b\n+\treturn a - b\n@@\n-\treturn a%2 == 0\n+\treturn a%2 == 1\n--- lib/b.go\n-\treturn a - b\n+\treturn a\n", time.Minute, catches{"stories": "seed 1", "corners": "it fails", ownTests: "TestEven"}},
		{"a panic", "--- lib/a.go\n-\treturn a + b\n+\tpanic(\"oh\")\n", time.Minute, catches{"stories": "panic: oh [recovered, repanicked]"}},
		{"no end", "--- lib/a.go\n-\treturn a + b\n+\tfor {\n+\t}\n", time.Second, catches{"stories": "no end"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d, err := parse("d", "It breaks.\n\n"+tc.edits)
			require.NoError(t, err)
			caught, err := s.try(t.Context(), root, d, budget{timeout: tc.timeout})
			require.NoError(t, err)
			assert.Len(t, caught, len(s.nets))
			for name, said := range caught {
				if tc.timeout == time.Minute || name == "stories" { // the others may take that second too
					assert.Equal(t, tc.want[name], said, name)
				}
			}
		})
	}
}

func TestTryRefuses(t *testing.T) {
	t.Parallel()
	root, s := module(t)
	for want, edits := range map[string]string{
		"d: lib/a.go must have this exactly once, and has it 0 times": "--- lib/a.go\n-\treturn b + a\n+\treturn b\n",
		"d: lib/a.go must have this exactly once, and has it 2 times": "--- lib/a.go\n-}\n+\n",
		"d does not compile": "--- lib/a.go\n-\treturn a + b\n+\treturn c\n",
		"no such file":       "--- lib/c.go\n-\treturn a + b\n+\treturn c\n",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			d, err := parse("d", "It breaks.\n\n"+edits)
			require.NoError(t, err)
			_, err = s.try(t.Context(), root, d, budget{timeout: time.Minute})
			require.ErrorContains(t, err, want)
		})
	}
	t.Run("when it is told to end", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.try(ctx, root, defect{}, budget{timeout: time.Minute})
		require.ErrorIs(t, err, context.Canceled)
	})
}
