// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The first build loads modules for a while before it compiles a package. A line shows that it is at work. The
// command in this test prints nothing, and goes on only when the line has been read.
func TestProgressIsShownBeforeTheFirstPackage(t *testing.T) {
	t.Parallel()
	release := filepath.Join(t.TempDir(), "release")
	require.NoError(t, syscall.Mkfifo(release, 0o600))
	cmd := exec.CommandContext(t.Context(), "./progress", "the test", "sh", "-c", "echo go: downloading example.com/a v1.0.0; cat "+release)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	goOn := sync.OnceFunc(func() { assert.NoError(t, os.WriteFile(release, nil, 0)) })
	silent := time.AfterFunc(time.Minute, goOn)
	line, err := bufio.NewReader(out).ReadString('\n')
	silent.Stop()
	goOn()
	require.NoError(t, err)
	assert.Regexp(t, `^building the test: 1 modules, 0 packages, \d+s\n$`, line)
	require.NoError(t, cmd.Wait())
}
