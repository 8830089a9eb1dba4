// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// hang is an environment variable. If this variable is set, TestHang starts a program and never ends.
const hang = "REPLICAKIT_HANG"

func TestHang(t *testing.T) {
	t.Parallel()
	if os.Getenv(hang) == "" {
		return // only TestNothingIsLeft sets the variable
	}
	controlplane.BeforeTimeout(func() { println("stopped") })
	off := controlplane.BeforeTimeout(func() { println("called off, and stopped") })
	off()
	println("program", shell(t, "exec sleep 1000").PID())
	select {}
}

// If a test binary ends without running its deferred calls, the programs that it has started also end.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	env, err := exec.LookPath("env")
	require.NoError(t, err)
	for _, row := range []struct {
		name, timeout string
		kill          bool
	}{
		{"go test -timeout", "4s", false},
		{"kill -9", "0", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.kill && runtime.GOOS != "linux" {
				return // only Linux kills a program when its parent process is killed
			}
			tests, err := controlplane.StartProgram("the tests", filepath.Join(t.TempDir(), "log"), env,
				hang+"=1", os.Args[0], "-test.run=^TestHang$", "-test.timeout="+row.timeout)
			require.NoError(t, err)
			said := func() string { return logged(t, tests) }
			program := regexp.MustCompile(`program ([0-9]+)`)
			require.Eventually(t, func() bool { return program.MatchString(said()) }, time.Minute, 10*time.Millisecond)
			pid, err := strconv.Atoi(program.FindStringSubmatch(said())[1])
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, 0), "it runs")
			if row.kill {
				require.NoError(t, tests.Signal(syscall.SIGKILL))
			}
			<-tests.Ended()
			assert.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, time.Minute, 10*time.Millisecond, "it is gone")
			if !row.kill {
				assert.Regexp(t, "(?s)-timeout=4s is near: stopping.*stopped.*panic: test timed out after 4s", said())
				assert.NotContains(t, said(), "called off")
			}
		})
	}
}
