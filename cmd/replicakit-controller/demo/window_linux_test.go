// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// The demo stops all programs that it has started if its window is closed, and if the reader of its output ends.
// The pseudo-terminal has the size 0, because a new one always has.
func TestAClosedWindowStopsEveryProgram(t *testing.T) {
	t.Parallel()
	controller := controllerProgram(t)
	demo, err := controlplane.Ours("demo")
	require.NoError(t, err)
	for name, open := range map[string]func(t *testing.T, cmd *exec.Cmd) (window, theirs *os.File){
		"a window that is closed": terminal,
		"a reader that has ended": pipe,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.Command(demo, "--dir="+dir, "--controller="+controller)
			window, theirs := open(t, cmd)
			var errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = theirs, &errs
			require.NoError(t, cmd.Start())
			require.NoError(t, theirs.Close())
			shown := readUntil(window, "ReplicaSet web: 5 wanted, 5 there, 5 ready")
			started := children(t, cmd.Process.Pid)
			t.Cleanup(func() {
				for pid := range children(t, 0, started) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			require.NoError(t, window.Close())
			_ = cmd.Wait() // the exit code after a signal is of no interest
			assert.Len(t, started, 3, "%s%s", shown, &errs)
			assert.Empty(t, children(t, 0, started), "these go on: %s", &errs)
			assert.NoFileExists(t, filepath.Join(dir, "kubeconfig"))
		})
	}
}

// terminal makes a new pseudo-terminal the controlling terminal of the command.
func terminal(t *testing.T, cmd *exec.Cmd) (window, theirs *os.File) {
	t.Helper()
	window, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(window.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(window.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd.Stdin = theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return window, theirs
}

func pipe(t *testing.T, _ *exec.Cmd) (window, theirs *os.File) {
	t.Helper()
	window, theirs, err := os.Pipe()
	require.NoError(t, err)
	return window, theirs
}

// readUntil reads until the text has been shown, or nothing follows.
func readUntil(window *os.File, text string) (shown string) {
	part := make([]byte, 4096)
	for !strings.Contains(shown, text) {
		n, err := window.Read(part)
		if shown += string(part[:n]); err != nil {
			break
		}
	}
	return shown
}

// children returns the names of the processes that the process has started, by their ids. If former is given,
// children returns only those of the former processes that still run, of any parent.
func children(t *testing.T, parent int, former ...map[int]string) map[int]string {
	t.Helper()
	found := map[int]string{}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, file := range files {
		text, _ := os.ReadFile(file) // the process may have ended
		head, tail, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(tail) // the state, the parent
		if !ok || fields[0] == "Z" {
			continue
		}
		number, name, _ := strings.Cut(head, " (")
		pid, err := strconv.Atoi(number)
		require.NoError(t, err)
		if fields[1] == strconv.Itoa(parent) && former == nil || former != nil && former[0][pid] == name {
			found[pid] = name
		}
	}
	return found
}
