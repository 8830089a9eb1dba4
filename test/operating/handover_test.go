// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// The commands in docs/replacing-kube-controller-manager.md hand a cluster over and back. Each command must
// succeed, including the commands that check the number of pods. The test does not build the programs, because
// they exist already. The test makes replicakit-controller serve its metrics on a free port.
func TestTheHandOverRunsAsItStands(t *testing.T) {
	t.Parallel()
	dir := handOverDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", handOver(t))
	shell.Dir, shell.SysProcAttr, shell.WaitDelay = dir, &syscall.SysProcAttr{Setpgid: true}, time.Minute
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGTERM) }
	output, err := shell.CombinedOutput()
	if err != nil && shell.Process != nil {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGTERM) // on SIGTERM, the demo stops its programs
	}
	require.NoError(t, err, "%s\n%s", output, logs(dir))
}

// handOver returns the commands of the page as one script.
func handOver(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/replacing-kube-controller-manager.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(page), "\n## Try it\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		script.WriteString(block[1])
	}
	commands := script.String()
	address := freeAddress(t)
	for old, instead := range map[string]string{
		"make cluster-binaries our-programs\n":               "",
		"replicakit-controller --kubeconfig=ours.kubeconfig": "replicakit-controller --kubeconfig=ours.kubeconfig --metrics-bind-address=" + address,
		"127.0.0.1:8443": address,
	} {
		require.Contains(t, commands, old)
		commands = strings.ReplaceAll(commands, old, instead)
	}
	// If the demo has ended, kill -0 fails and ends the script, so that the script does not wait forever.
	require.Contains(t, commands, "; do sleep 1; done")
	commands = strings.ReplaceAll(commands, "; do sleep 1; done", "; do kill -0 $DEMO; sleep 1; done")
	// A line that begins with ! must end the script if its command succeeds. The option -e of bash does not end the
	// script in this case.
	return "set -x\n" + regexp.MustCompile(`(?m)^(! .*)$`).ReplaceAllString(commands, "$1 || exit 1")
}

// handOverDir returns a directory with links to the files and programs that the commands need.
func handOverDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	root, err := controlplane.Repository()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(root, "cmd"), filepath.Join(dir, "cmd")))
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	bin := filepath.Join(dir, ".cache", "bin")
	require.NoError(t, os.MkdirAll(bin, 0o700))
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
		require.NoError(t, os.Symlink(filepath.Join(binaries, name), filepath.Join(bin, name)))
	}
	for _, name := range []string{"replicakit-controller", "demo"} {
		ours, err := controlplane.Ours(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(ours, filepath.Join(bin, name)))
	}
	return dir
}

// freeAddress returns an address at which no program listens. The port of this address is lower than the ports that
// Linux assigns automatically. So the address is still free when the commands use it.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(20000+rand.IntN(10000)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		return listener.Addr().String()
	}
}

// logs returns the ends of all log files in dir.
func logs(dir string) string {
	var all strings.Builder
	names, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, name := range names {
		text, _ := os.ReadFile(name)
		all.WriteString("== " + filepath.Base(name) + "\n" + string(text[max(0, len(text)-2000):]) + "\n")
	}
	return all.String()
}
