// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
	"github.com/replicakit/replicakit/test/kubernetes/upstream"
)

// TestMain turns off workspaces, because the module that these tests write is in no workspace.
func TestMain(m *testing.M) {
	_ = os.Setenv("GOWORK", "off")
	os.Exit(m.Run())
}

// files is a module with a small module k8s.io/kubernetes in its directory kubernetes.
var files = map[string]string{
	"go.mod": `module example.com/suites
go 1.25.0
require k8s.io/kubernetes v0.0.0
replace k8s.io/kubernetes => ./kubernetes
`,
	"words/words.go":     "// Package words has our greeting.\npackage words\n\nfunc Hello() string { return \"hello\" }\n",
	"greet/greet.go":     "// Package greet is where the tests run.\npackage greet\n",
	"kubernetes/go.mod":  "module k8s.io/kubernetes\ngo 1.25.0\n",
	"kubernetes/w/w.go":  "package words\n\nfunc Hello() string { return \"theirs\" }\n",
	"kubernetes/g/g.go":  "package greet\n",
	"kubernetes/g/no.go": "package greet\n",
	"kubernetes/g/greet_test.go": `package greet

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	words "k8s.io/kubernetes/w"
)

func TestHello(t *testing.T) {
	if words.Hello() != "hello" {
		t.Error("said", words.Hello())
	}
}

func TestInside(t *testing.T) { unexported.Field++ }

type onlyInside struct{}

func (onlyInside) method() { unexported.Method() }

func TestHangs(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(os.Getenv("LEFT_BEHIND"), []byte(strconv.Itoa(child.Process.Pid)), 0o600)
	time.Sleep(time.Hour)
}
`,
}

// module writes files and the additional files in more to a new directory, and returns this directory.
func module(t *testing.T, more map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, set := range []map[string]string{files, more} {
		for name, content := range set {
			path := filepath.Join(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		}
	}
	return dir
}

// greet returns the suite of the module, without the tests in leftOut.
func greet(specs int, leftOut ...string) upstream.Suite {
	s := upstream.Suite{
		Suite:   suite.Suite{Name: "greet", Specs: specs},
		From:    "g",
		In:      "greet",
		Imports: map[string]string{"k8s.io/kubernetes/w": "example.com/suites/words"},
		Unused:  []string{"onlyInside"},
	}
	for _, test := range leftOut {
		s.LeftOut = append(s.LeftOut, suite.Difference{Test: test, Why: "it cannot run"})
	}
	return s
}

func TestRun(t *testing.T) {
	t.Parallel()
	runner := func(t *testing.T, more map[string]string) upstream.Runner {
		t.Helper()
		return upstream.Runner{Module: module(t, more), Tests: 10 * time.Minute}
	}
	t.Run("tests run with ours, what is left out need not even build", func(t *testing.T) {
		t.Parallel()
		verdict, err := runner(t, nil).Run(t.Context(), greet(1, "TestInside", "TestHangs"))
		require.NoError(t, err)
		assert.Equal(t, 1, verdict.Passed)
		assert.Empty(t, verdict.News)
	})
	t.Run("ours is wrong", func(t *testing.T) {
		t.Parallel()
		wrong := map[string]string{"words/words.go": "package words\n\nfunc Hello() string { return \"good bye\" }\n"}
		verdict, err := runner(t, wrong).Run(t.Context(), greet(1, "TestInside", "TestHangs"))
		require.NoError(t, err)
		require.Len(t, verdict.News, 1)
		assert.Contains(t, verdict.News[0], "TestHello fails:\n=== RUN   TestHello\n    greet_test.go:15: said good bye\n")
	})
	t.Run("it does not build", func(t *testing.T) {
		t.Parallel()
		_, err := runner(t, nil).Run(t.Context(), greet(1, "TestHangs"))
		require.ErrorContains(t, err, "greet: it does not build: exit status 1\n")
		assert.ErrorContains(t, err, "undefined: unexported")
	})
	t.Run("a test that is left out does not exist", func(t *testing.T) {
		t.Parallel()
		_, err := runner(t, nil).Run(t.Context(), greet(1, "TestInside", "TestHangs", "TestElse"))
		assert.EqualError(t, err, "greet: upstream: greet: TestElse is left out, but is in no file of g")
	})
	t.Run("no test runs", func(t *testing.T) {
		t.Parallel()
		broken := map[string]string{"kubernetes/g/main_test.go": "package greet\n\nimport \"log\"\n\nfunc init() { log.SetFlags(0); log.Fatal(\"no port is free\") }\n"}
		_, err := runner(t, broken).Run(t.Context(), greet(1, "TestInside", "TestHangs"))
		assert.EqualError(t, err, "greet: no test ran: exit status 1: no port is free")
	})
	t.Run("there is no Kubernetes", func(t *testing.T) {
		t.Parallel()
		_, err := runner(t, map[string]string{"go.mod": "module example.com/suites\n"}).Run(t.Context(), greet(1))
		assert.ErrorContains(t, err, "greet: k8s.io/kubernetes cannot be downloaded: exit status 1: ")
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	tests := []struct {
		name string
		run  func(t *testing.T, r upstream.Runner, started func() bool)
	}{
		{"the tests run out of time", func(t *testing.T, r upstream.Runner, _ func() bool) {
			t.Helper()
			r.Tests = 5 * time.Second
			verdict, err := r.Run(t.Context(), greet(2, "TestInside"))
			require.NoError(t, err)
			require.Len(t, verdict.News, 1)
			assert.Contains(t, verdict.News[0], "TestHangs fails:\n")
			assert.Contains(t, verdict.News[0], "panic: test timed out after 5s")
		}},
		{"it is interrupted", func(t *testing.T, r upstream.Runner, started func() bool) {
			t.Helper()
			ctx, interrupt := context.WithCancel(t.Context())
			go func() {
				for !started() {
					time.Sleep(time.Millisecond)
				}
				interrupt()
			}()
			_, err := r.Run(ctx, greet(2, "TestInside"))
			assert.EqualError(t, err, "greet: context canceled")
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			left, temp := filepath.Join(t.TempDir(), "pid"), t.TempDir()
			t.Setenv("LEFT_BEHIND", left)
			t.Setenv("TMPDIR", temp)
			pid := func() int {
				content, _ := os.ReadFile(left)
				n, _ := strconv.Atoi(strings.TrimSpace(string(content)))
				return n
			}
			r := upstream.Runner{Module: module(t, nil), Tests: 10 * time.Minute}
			tc.run(t, r, func() bool { return pid() > 0 })
			require.Positive(t, pid())
			assert.Eventually(t, func() bool { return !alive(pid()) }, time.Minute, time.Millisecond, "the test's child")
			entries, err := os.ReadDir(temp)
			require.NoError(t, err)
			for _, entry := range entries {
				assert.NotRegexp(t, "^k8s", entry.Name(), "files")
			}
		})
	}
}

// alive reports whether the process runs. A zombie process does not run.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
