// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stories describes incidents and replays them with the real controller on the simulated cluster, in virtual
// time. To learn how pods are kept alive and what can go wrong, read testdata/stories.txtar.
//
//	go test ./internal/sim/stories -run /07     # plays one story
//	go test ./internal/sim/stories -rewrite     # writes the outputs anew: read every change
//
// A story consists of comments and steps, and a step of commands, a line of dashes, and their output. The output begins
// with the events and their times. For each pass that changed something, it lists the creations in call order, where
// "|" separates the batches of slow start. Then follow the ReplicaSets with their status in the API server and with
// what the controller still expects, and at last the pods. Notes say how the controller's cache differs from the API
// server.
//
// The commands are in commands_test.go. A line that starts with "# ids:" lists facts of docs/behaviour.md, which the
// whole story proves.
package stories

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the outputs of the stories anew")

const file = "testdata/stories.txtar"

// Each section of the archive is a story.
func TestStories(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	sections := strings.Split(string(content), "\n-- ")
	require.GreaterOrEqual(t, len(sections)-1, 15)
	for i, section := range sections[1:] {
		name, text, found := strings.Cut(section, " --\n")
		require.True(t, found, section)
		t.Run(ids(text)+name, func(t *testing.T) {
			t.Parallel()
			played := testStory(t, text)
			if !*rewrite {
				require.Equal(t, text, played, "-rewrite writes it anew")
			}
			sections[i+1] = name + " --\n" + played
		})
	}
	t.Cleanup(func() {
		if *rewrite && !t.Failed() {
			require.NoError(t, os.WriteFile(file, []byte(strings.Join(sections, "\n-- ")), 0o600))
		}
	})
}

// testStory plays a story, and returns it with the outputs of its steps.
func testStory(t *testing.T, text string) string {
	t.Helper()
	assert.Contains(t, text, "\n# From: ", "a story tells where it comes from")
	s := newStage()
	played, line, err := s.play(text)
	require.NoError(t, err, "line %d of the story", line)
	for _, view := range s.views {
		require.NoError(t, view.Intact(), "the caches are as they arrived")
	}
	assert.Zero(t, s.fault.left, "a fault never came about: %+v", s.fault)
	return played
}

// ids returns the ids of the facts that a story proves, with which the name of its test begins.
func ids(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	ids, found := strings.CutPrefix(first, "# ids: ")
	if !found {
		return ""
	}
	return ids + " "
}

// play runs the steps of a story, and returns the story with their outputs. If a command is wrong, at is the number of
// its line.
func (s *stage) play(text string) (played string, at int, err error) {
	var b strings.Builder
	var commands []string
	output := false // the line belongs to the old output of a step, which ends with an empty line
	for line := range strings.Lines(text) {
		at++
		switch words := strings.TrimSpace(line); {
		case output:
			if output = words != ""; output {
				continue
			}
		case words == "----":
			out, n, err := s.step(commands)
			if err != nil {
				return "", at - len(commands) + n, err
			}
			line, commands, output = line+out, nil, true
		case words != "" && words[0] != '#':
			commands = append(commands, words)
		}
		b.WriteString(line)
	}
	if len(commands) > 0 {
		return "", at, errors.New("the last commands have no line of dashes below them")
	}
	return b.String(), at, nil
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
}

func TestPlay(t *testing.T) {
	t.Parallel()
	t.Run("comments and commands stay, and outputs are written anew", func(t *testing.T) {
		t.Parallel()
		played, _, err := newStage().play("# A story.\nquota 10\nrun 1s\n----\nwrong\n\n# Its end.\nrun 1s\n----\n")
		require.NoError(t, err)
		assert.Equal(t, "# A story.\nquota 10\nrun 1s\n----\nno replica sets\nno pods\n\n# Its end.\nrun 1s\n----\nno replica sets\nno pods\n", played)
	})
	t.Run("a wrong command is named with its line", func(t *testing.T) {
		t.Parallel()
		_, at, err := newStage().play("# A story.\nquota 10\nscale web\nrun 1s\n----\n")
		require.EqualError(t, err, "scale web: N is missing; usage: scale SET N")
		assert.Equal(t, 3, at)
	})
	t.Run("commands without a line of dashes are an error", func(t *testing.T) {
		t.Parallel()
		_, _, err := newStage().play("quota 10\n----\n\nrun 1s\n")
		require.EqualError(t, err, "the last commands have no line of dashes below them")
	})
}
