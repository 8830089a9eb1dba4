// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each file of testdata is a story.
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 15)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		t.Run(ids(string(text))+filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			assert.Contains(t, string(text), "\n# From: ", "a story tells where it comes from")
			s := newStage()
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				t.Helper()
				lines := linesOf(d)
				out, at, err := s.step(lines)
				if err != nil {
					t.Fatalf("%s: %v", lineOf(d, at), err)
				}
				return out
			})
			for _, view := range s.views {
				require.NoError(t, view.Intact(), "the caches are as they arrived")
			}
			assert.Zero(t, s.fault.left, "a fault never came about: %+v", s.fault)
		})
	}
}

// ids returns the ids of the facts that a story proves. The name of the test begins with these ids.
func ids(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	ids, found := strings.CutPrefix(first, "# ids: ")
	if !found {
		return ""
	}
	return ids + " "
}

// linesOf returns the commands of a step. The package datadriven stores the first command and the other commands
// in different fields.
func linesOf(d *datadriven.TestData) []string {
	first := d.Cmd
	for _, arg := range d.CmdArgs {
		first += " " + arg.String()
	}
	if d.Input == "" {
		return []string{first}
	}
	return append([]string{first}, strings.Split(d.Input, "\n")...)
}

// lineOf returns the file and the line number of a command.
func lineOf(d *datadriven.TestData, n int) string {
	file, line, _ := strings.Cut(d.Pos, ":")
	first := 0
	_, _ = fmt.Sscan(line, &first)
	return fmt.Sprintf("%s:%d", file, first+n)
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"scael web 3":                "unknown command \"scael\"",
		"scale web":                  "scale web: N is missing; usage: scale SET N",
		"scale web many":             "scale web many: strconv.Atoi: parsing \"many\": invalid syntax; usage: scale SET N",
		"scale web 3 4":              "scale web 3 4: unexpected argument \"4\"; usage: scale SET N",
		"scale web 3":                "scale web 3: replicasets.apps \"web\" not found; usage: scale SET N",
		"create web replicas=x":      "create web replicas=x: strconv.Atoi: parsing \"x\": invalid syntax; usage: create SET replicas=N [app=LABEL] [min-ready=N]",
		"run soon":                   "run soon: time: invalid duration \"soon\"; usage: run D",
		"ready web-1 maybe":          "ready web-1 maybe: \"maybe\" is none of yes|no; usage: ready POD yes|no",
		"refuse create rudely":       "refuse create rudely: unknown failure \"rudely\"; usage: refuse VERB FAILURE [times=N] [after=N]",
		"refuse watch timeout":       "refuse watch timeout: \"watch\" is none of create|patch|delete|update|get|list; usage: refuse VERB FAILURE [times=N] [after=N]",
		"refuse create timeout at=3": "refuse create timeout at=3: unexpected argument \"at=3\"; usage: refuse VERB FAILURE [times=N] [after=N]",
		"failover":                   "failover: nobody stands by; usage: failover",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			_, at, err := newStage().step([]string{"quota 10", line})
			require.EqualError(t, err, want)
			assert.Equal(t, 1, at)
		})
	}
	d := &datadriven.TestData{Pos: "testdata/01-first:17", Cmd: "quota", Input: "scale web\nrun 1s"}
	d.CmdArgs = []datadriven.CmdArg{{Key: "10"}}
	assert.Equal(t, []string{"quota 10", "scale web", "run 1s"}, linesOf(d))
	assert.Equal(t, "testdata/01-first:18", lineOf(d, 1))
}
