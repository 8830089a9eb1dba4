// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// asProgram is an environment variable. If this variable is set, the test binary runs main instead of the tests.
const asProgram = "REPLICAKIT_CONTROLLER"

// patience is the maximum time that a test waits for an expected event. The time is long, because the machine may
// be busy.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	klog.SetLogger(logr.Discard())
	// The second handler limits the rate of errors. In a synctest bubble, time starts in the year 2000, so this
	// handler would sleep until the year in which the process started.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	code := m.Run()
	stopCluster()
	os.Exit(code)
}

// startCluster starts one API server for all tests, and stopCluster stops it.
var (
	stopCluster  = func() {}
	startCluster = sync.OnceValues(func() (*controlplane.ControlPlane, error) {
		binaries, err := controlplane.Binaries()
		if err != nil {
			return nil, err
		}
		cluster, err := controlplane.Start(binaries, nil)
		if err == nil {
			stopCluster = func() { _ = cluster.Stop() }
		}
		return cluster, err
	})
)

// onServers skips a test that needs a server if the flag -short is set.
func onServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server: make test-products")
	}
}

func cluster(t *testing.T) (*controlplane.ControlPlane, kubernetes.Interface) {
	t.Helper()
	onServers(t)
	cluster, err := startCluster()
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(cluster.Config)
	require.NoError(t, err)
	return cluster, client
}

// writeKubeconfig writes content into a temporary file, and returns the path of the file.
func writeKubeconfig(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// A program is a process that runs replicakit-controller.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	log log
}

// start starts replicakit-controller with the given flags. If the flags set no port, the program serves metrics on
// a free port.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t}
	p.cmd = exec.Command(os.Args[0], append([]string{"--metrics-bind-address=127.0.0.1:0"}, args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	require.NoError(t, p.cmd.Start())
	t.Cleanup(controlplane.BeforeTimeout(func() { _ = p.cmd.Process.Kill() }))
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

// says waits until the log matches the pattern, and returns the match and the submatches.
func (p *program) says(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	require.Eventually(p.t, func() bool { return re.MatchString(p.log.String()) }, patience, 20*time.Millisecond, "the log must say %s", pattern)
	return re.FindStringSubmatch(p.log.String())
}

// address returns the address at which the program serves metrics and health checks.
func (p *program) address() string {
	p.t.Helper()
	return p.says(`Serving metrics and probes" address="([^"]+)"`)[1]
}

// exitCode waits until the program has ended, and returns the exit code.
func (p *program) exitCode() int {
	p.t.Helper()
	ended := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer ended.Stop()
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// stop sends SIGTERM to the program, and checks that the exit code is exitOK.
func (p *program) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(p.t, exitOK, p.exitCode())
}

// log collects the output of a process.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// noLog replaces the function startLog in TestRun. noLog ignores the logging flags, so that TestRun does not
// change the logger of the test binary.
func noLog(*logsapi.LoggingConfiguration) error { return nil }

func TestRun(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{"help goes to stdout", []string{"--help"}, exitOK, "--concurrent-replicaset-syncs", ""},
		{"the version goes to stdout", []string{"--version"}, exitOK, "replicakit-controller (devel), revision", ""},
		{"an unknown flag is bad usage", []string{"--replicas=3"}, exitUsage, "", "unknown flag: --replicas\nSee 'replicakit-controller --help'.\n"},
		{"an argument that is no flag is bad usage", []string{"web"}, exitUsage, "", "arguments that are not flags: [\"web\"]\nSee 'replicakit-controller --help'.\n"},
		{"no kubeconfig outside of a pod", []string{"--metrics-bind-address=0"}, exitError, "", "replicakit-controller: neither --kubeconfig nor --master is given, and this is not a pod of a cluster\n"},
		{"a kubeconfig that is missing", []string{"--kubeconfig=/does/not/exist"}, exitError, "", "replicakit-controller: --kubeconfig=/does/not/exist: stat /does/not/exist: no such file or directory\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			assert.Equal(t, row.code, run(context.Background(), row.args, &stdout, &stderr, noLog))
			assert.Contains(t, stdout.String(), row.stdout)
			assert.Equal(t, row.stderr, stderr.String())
		})
	}
}

// kubeconfigFor writes a kubeconfig with the address of a server and an arbitrary token.
func kubeconfigFor(t *testing.T, server string) string {
	t.Helper()
	return kubeconfigWith(t, fmt.Sprintf("server: %q", server), "token: abc")
}

// kubeconfigWith writes a kubeconfig with one cluster and one user. The arguments contain the YAML fields of the
// cluster and of the user.
func kubeconfigWith(t *testing.T, cluster, user string) string {
	t.Helper()
	return writeKubeconfig(t, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {%s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {%s}}]
current-context: c
`, cluster, user))
}
