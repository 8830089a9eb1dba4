// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// shell starts a script.
func shell(t *testing.T, script string) *controlplane.Program {
	t.Helper()
	path, err := exec.LookPath("sh")
	require.NoError(t, err)
	program, err := controlplane.StartProgram("the script", filepath.Join(t.TempDir(), "log"), path, "-c", script)
	require.NoError(t, err)
	t.Cleanup(func() { _ = program.Stop() })
	return program
}

func TestProgram(t *testing.T) {
	t.Parallel()
	t.Run("one that ends in order", func(t *testing.T) {
		t.Parallel()
		p := shell(t, `trap 'echo terminated; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
		require.Eventually(t, func() bool { return logged(t, p) == "ready\n" }, time.Minute, time.Millisecond)
		assert.Positive(t, p.PID())
		require.NoError(t, p.Stop())
		assert.Equal(t, "ready\nterminated\n", logged(t, p))
		require.NoError(t, p.Stop(), "nothing is left to stop")
	})
	t.Run("one that does not", func(t *testing.T) {
		t.Parallel()
		p := shell(t, "echo ready; while :; do sleep 0.01; done")
		require.Eventually(t, func() bool { return logged(t, p) == "ready\n" }, time.Minute, time.Millisecond)
		require.EqualError(t, p.Stop(), "the script ended: signal: terminated; see "+p.Log())
	})
	t.Run("one that ends by itself", func(t *testing.T) {
		t.Parallel()
		p := shell(t, "exit 3")
		<-p.Ended()
		require.EqualError(t, p.Err(), "the script ended: exit status 3; see "+p.Log())
		require.NoError(t, p.Stop())
	})
	t.Run("one that is paused", func(t *testing.T) {
		t.Parallel()
		p := shell(t, `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
		require.Eventually(t, func() bool { return logged(t, p) == "ready\n" }, time.Minute, time.Millisecond)
		require.NoError(t, p.Signal(syscall.SIGSTOP))
		require.NoError(t, p.Stop(), "it goes on, and ends in order")
	})
	t.Run("one that does not exist", func(t *testing.T) {
		t.Parallel()
		_, err := controlplane.StartProgram("the script", filepath.Join(t.TempDir(), "log"), "/does/not/exist")
		require.EqualError(t, err, "the script: fork/exec /does/not/exist: no such file or directory")
	})
}

func logged(t *testing.T, p *controlplane.Program) string {
	t.Helper()
	text, err := os.ReadFile(p.Log())
	require.NoError(t, err)
	return string(text)
}
