// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const page = `# Proof

<!-- make nightly writes this table -->
| command | last run | commit | date | took | figures |
|---|---|---|---|---|---|
| ` + "`make soak`" + ` | passes | aaaaaaa | 2026-05-03 | 10m0s | 7 seeds |
| ` + "`make gone`" + ` | passes | aaaaaaa | 2026-05-03 | 1s |  |
<!-- until here -->

The end.
`

// newNightly returns a run of commit bbbbbbb, in which the targets print what is given; one
// that is not there fails.
func newNightly(t *testing.T, prints map[string]string) (n *nightly, ran *[]string, out *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	ran, out = &[]string{}, &bytes.Buffer{}
	now := time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	n = &nightly{
		page: filepath.Join(dir, "page.md"), logs: filepath.Join(dir, "logs"), all: []string{"sim", "soak", "fuzz"}, out: out,
		run: func(_ context.Context, target string, log io.Writer) error {
			*ran = append(*ran, target)
			text, ok := prints[target]
			if _, err := io.WriteString(log, text); err != nil {
				return err
			}
			if !ok {
				return errors.New("exit status 2")
			}
			return nil
		},
		now:    func() time.Time { now = now.Add(time.Minute); return now },
		commit: func(context.Context) (string, error) { return "bbbbbbb", nil },
	}
	require.NoError(t, os.WriteFile(n.page, []byte(page), 0o600))
	return n, ran, out
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func TestEachTargetIsRunAndWritten(t *testing.T) {
	t.Parallel()
	n, ran, out := newNightly(t, map[string]string{
		"sim":  "ok\n    chaos_test.go:98: figures: 500 seeds, at most 9|8 steps\n",
		"fuzz": "figures: 11 targets\nPASS\nfigures: none failed\n",
	})
	require.EqualError(t, n.do(t.Context(), nil), "these fail: soak; see "+n.logs)
	assert.Equal(t, []string{"sim", "soak", "fuzz"}, *ran)
	assert.Equal(t, `# Proof

<!-- make nightly writes this table -->
| command | last run | commit | date | took | figures |
|---|---|---|---|---|---|
| `+"`make sim`"+` | passes | bbbbbbb | 2026-05-04 | 1m0s | 500 seeds, at most 9/8 steps |
| `+"`make soak`"+` | **fails** | bbbbbbb | 2026-05-04 | 1m0s |  |
| `+"`make fuzz`"+` | passes | bbbbbbb | 2026-05-04 | 1m0s | 11 targets; none failed |
<!-- until here -->

The end.
`, read(t, n.page))
	assert.Equal(t, "at bbbbbbb: 3 of 3 targets are left\nsim: passes after 1m0s. 500 seeds, at most 9/8 steps\nsoak: **fails** after 1m0s. \nfuzz: passes after 1m0s. 11 targets; none failed\n", out.String())
	assert.Contains(t, read(t, filepath.Join(n.logs, "fuzz.log")), "PASS")
}

func TestAnInterruptedRunGoesOn(t *testing.T) {
	t.Parallel()
	n, ran, out := newNightly(t, map[string]string{"sim": "", "soak": "", "fuzz": ""})
	ctx, interrupt := context.WithCancel(t.Context())
	run := n.run
	n.run = func(ctx context.Context, target string, log io.Writer) error {
		if target == "soak" {
			interrupt()
		}
		return errors.Join(run(ctx, target, log), ctx.Err())
	}
	require.EqualError(t, n.do(ctx, nil), "soak: interrupted: run it again to go on")
	assert.Contains(t, read(t, n.page), "| `make soak` | passes | aaaaaaa | 2026-05-03 | 10m0s | 7 seeds |")
	n.run, *ran = run, nil
	require.NoError(t, n.do(t.Context(), nil))
	assert.Equal(t, []string{"soak", "fuzz"}, *ran)
	*ran = nil
	require.NoError(t, n.do(t.Context(), nil))
	assert.Empty(t, *ran)
	assert.Contains(t, out.String(), "at bbbbbbb: 0 of 3 targets are left\n")
	require.NoError(t, n.do(t.Context(), []string{"sim"}))
	assert.Equal(t, []string{"sim"}, *ran, "what is named is run again")
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		page, target, want string
	}{
		"a target that is in no table": {page, "dance", "dance is none of sim, soak, fuzz"},
		"a page without a table":       {"# Proof\n", "", `PAGE: want a line "<!-- make nightly writes this table -->", and later one "<!-- until here -->"`},
		"a table without an end":       {first + head, "", `PAGE: want a line "<!-- make nightly writes this table -->", and later one "<!-- until here -->"`},
		"a row with too few cells":     {first + "| `make sim` | passes |\n" + last, "", "PAGE: want 6 cells in \"| `make sim` | passes |\\n\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, ran, _ := newNightly(t, nil)
			require.NoError(t, os.WriteFile(n.page, []byte(test.page), 0o600))
			var targets []string
			if test.target != "" {
				targets = []string{test.target}
			}
			err := n.do(t.Context(), targets)
			require.Error(t, err)
			assert.Equal(t, test.want, replaced(err, n.page))
			assert.Empty(t, *ran)
			assert.Equal(t, test.page, read(t, n.page))
		})
	}
	n, _, _ := newNightly(t, nil)
	n.commit = func(context.Context) (string, error) { return "", errors.New("git describe: no repository") }
	require.EqualError(t, n.do(t.Context(), nil), "git describe: no repository")
}

func replaced(err error, page string) string {
	return string(bytes.ReplaceAll(fmt.Append(nil, err), []byte(page), []byte("PAGE")))
}
