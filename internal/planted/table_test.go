// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	d, err := parse("d", "It breaks\nthings.\n\nNot noticed: nobody\nlooks.\n\n--- a/b.go\n x\n\n-\ty\n+\tz\n@@\n-u\n--- c.go\n+v\n w\n")
	require.NoError(t, err)
	assert.Equal(t, "It breaks things.", d.breaks)
	assert.Equal(t, "nobody looks.", d.why)
	assert.Equal(t, []edit{{"a/b.go", "x\n\n\ty\n", "x\n\n\tz\n"}, {"a/b.go", "u\n", ""}, {"c.go", "w\n", "v\nw\n"}}, d.edits)
	assert.Equal(t, "a", d.dir())
	for text, want := range map[string]string{
		"It breaks.\n":                                 `no line begins with "--- "`,
		"\n--- a.go\n-x\n":                             `one sentence says what breaks, and maybe one paragraph "Not noticed: ", not ""`,
		"Not noticed: nobody.\n\n--- a.go\n-x\n":       `one sentence says what breaks, and maybe one paragraph "Not noticed: ", not "Not noticed: nobody."`,
		"It breaks.\n\nIt does.\n\n--- a.go\n-x\n":     `one sentence says what breaks, and maybe one paragraph "Not noticed: ", not "It does."`,
		"It breaks.\n\n--- a.go\nx\n":                  `a.go: line "x\n" begins with none of plus, minus and blank`,
		"It breaks.\n\n--- a.go\n+x\n":                 "a.go: nothing is replaced",
		"It breaks.\n\n--- a.go\n x\n":                 "a.go: nothing is replaced",
		"It breaks.\n\n--- a.go\n-x\n--- b.go\n-x\n+x": "b.go: nothing is replaced",
	} {
		_, err := parse("d", text)
		require.EqualError(t, err, want, text)
	}
	_, err = load(t.TempDir())
	require.ErrorContains(t, err, "there are no defects")
}

// aTable has four defects, in two suites. What is noticed is as it should be.
func aTable(t *testing.T, file string) *table {
	t.Helper()
	r, err := openResults(file, "abc", budget{seeds: "1-9"})
	require.NoError(t, err)
	t.Cleanup(r.close)
	return &table{
		suites: []suite{
			{title: "in a", dirs: []string{"a"}, nets: []net{{name: "stories"}, {name: "corners"}}},
			{title: "in b", dirs: []string{"b"}, why: "No net runs b."},
		},
		defects: []defect{
			{name: "one", breaks: "It is a|b.", edits: []edit{{file: "a/x.go"}}},
			{name: "two", breaks: "It hangs.", edits: []edit{{file: "a/x.go"}}},
			{name: "three", breaks: "It lies.", why: "nobody asks.", edits: []edit{{file: "a/x.go"}}},
			{name: "four", breaks: "It sleeps.", edits: []edit{{file: "b/x.go"}}},
		},
		results: r, commit: "abc", day: time.Date(2026, 5, 4, 23, 0, 0, 0, time.UTC), budget: budget{seeds: "1-9", every: 5},
	}
}

// fillIn tells what was noticed of the first defects, on which all nets were run.
func fillIn(t *testing.T, table *table, all ...catches) {
	t.Helper()
	for i, caught := range all {
		require.NoError(t, table.results.put(table.defects[i], catches{"stories": "", "corners": "", ownTests: ""}))
		require.NoError(t, table.results.put(table.defects[i], caught))
	}
}

func TestTableIsWrittenBetweenTheMarks(t *testing.T) {
	t.Parallel()
	table, page := aTable(t, ""), filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600))
	fillIn(t, table, catches{"stories": "seed 7", "corners": "TestCorners/adopt"}, catches{"corners": "no end", ownTests: "TestX"}, catches{})
	require.EqualError(t, table.insert(page), "no table without four: it was not planted, or some net was not run")
	fillIn(t, table, catches{"stories": "seed 7", "corners": "TestCorners/adopt"}, catches{"corners": "no end", ownTests: "TestX"}, catches{}, catches{ownTests: "TestY"})
	require.NoError(t, table.insert(page))
	require.NoError(t, table.insert(page), "it can be written again")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, "before\n"+begin+`
2 of 4 defects are noticed, each planted alone into abc on 2026-05-04: seeds 1-9 of the random stories, every 5th corner, the models of the explorer, one after the other until one notices it.

| in a | what it breaks | stories | corners | own tests |
|---|---|---|---|---|
| one | It is a\|b. | seed 7 | yes | – |
| two | It hangs. | – | no end | yes |
| three | It lies. *Not noticed: nobody asks.* | – | – | – |

No net runs b.

| in b | what it breaks | own tests |
|---|---|---|
| four | It sleeps. | yes |

`+end+"after\n", string(text))
	require.NoError(t, table.verdict())
	require.NoError(t, os.WriteFile(page, []byte(begin), 0o600))
	require.ErrorContains(t, table.insert(page), "no place for the table")
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	table := aTable(t, "")
	require.NoError(t, table.verdict(), "nothing was asked for")
	require.NoError(t, table.results.put(table.defects[0], catches{"stories": ""}))
	require.NoError(t, table.verdict(), "another net may notice it")
	fillIn(t, table, catches{}, catches{ownTests: "TestX"}, catches{"corners": "TestCorners/adopt"})
	require.EqualError(t, table.verdict(), "one: nothing noticed it, and its file does not say why\n"+
		"two: nothing noticed it, and its file does not say why\n"+
		"three: its file says why nothing notices it, but something did: corners: TestCorners/adopt")
}

func TestResultsOfTheSameCommitAreKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "results.jsonl")
	table := aTable(t, file)
	fillIn(t, table, catches{}, catches{"stories": "seed 3"})
	again := aTable(t, file)
	for i, want := range []catches{{"stories": "", "corners": "", ownTests: ""}, {"stories": "seed 3", "corners": "", ownTests: ""}} {
		assert.Equal(t, want, again.results.of(again.defects[i]))
	}
	again.defects[0].edits = []edit{{file: "a/y.go"}}
	assert.Nil(t, again.results.of(again.defects[0]), "the defect has changed")
	for _, other := range []struct {
		commit string
		budget budget
	}{{"abd", budget{seeds: "1-9"}}, {"abc", budget{seeds: "1-8"}}} {
		r, err := openResults(file, other.commit, other.budget)
		require.NoError(t, err)
		t.Cleanup(r.close)
		assert.Empty(t, r.all)
	}
	require.NoError(t, os.WriteFile(file, []byte("no JSON\n"), 0o600))
	_, err := openResults(file, "abc", budget{})
	require.ErrorContains(t, err, "results.jsonl: ")
}

// With nothing planted all nets must be quiet, and only what is asked for is planted.
func TestFill(t *testing.T) {
	t.Parallel()
	root, s := module(t)
	even := aDefect(t, "even", "--- lib/a.go\n-\treturn a%2 == 0\n+\treturn a%2 == 1\n")
	add := aDefect(t, "add", "--- lib/a.go\n-\treturn a + b\n+\treturn a - b\n")
	results, err := openResults("", "abc", budget{})
	require.NoError(t, err)
	table := &table{suites: []suite{s}, defects: []defect{add, even}, results: results, budget: budget{timeout: time.Minute}}
	all := regexp.MustCompile("")
	require.NoError(t, table.fill(t.Context(), root, regexp.MustCompile("^even$"), regexp.MustCompile("stories|own")))
	assert.Equal(t, catches{"stories": "", ownTests: "TestEven"}, results.of(even))
	assert.Nil(t, results.of(add))
	require.NoError(t, table.fill(t.Context(), root, regexp.MustCompile("^even$"), all), "the net that is left")
	assert.Equal(t, catches{"stories": "", "corners": "", ownTests: "TestEven"}, results.of(even))

	results.all = map[string]catches{}
	require.NoError(t, os.WriteFile(filepath.Join(root, "lib", "b.go"), []byte("package lib\n\nfunc Sub(a, b int) int {\n\treturn a\n}\n"), 0o600))
	require.EqualError(t, table.fill(t.Context(), root, all, all), "with nothing planted: corners: it fails")
}
