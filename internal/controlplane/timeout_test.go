package controlplane_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/internal/controlplane"
)

// hang makes a process of the test binary a test that never ends.
const hang = "REPLICAKIT_HANG"

func TestHang(t *testing.T) {
	if os.Getenv(hang) == "" {
		return // it has nothing to show by itself
	}
	controlplane.BeforeTimeout(func() { println("stopped") })
	off := controlplane.BeforeTimeout(func() { println("called off, and stopped") })
	off()
	println("program", shell(t, "exec sleep 1000").PID())
	select {}
}

// TestNothingIsLeft ends a test binary in ways that run nothing deferred.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
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
				return // only there does the kernel help
			}
			var said log
			tests := exec.Command(os.Args[0], "-test.run=^TestHang$", "-test.timeout="+row.timeout)
			tests.Env = append(os.Environ(), hang+"=1")
			tests.Stderr = &said
			require.NoError(t, tests.Start())
			program := regexp.MustCompile(`program ([0-9]+)`)
			require.Eventually(t, func() bool { return program.MatchString(said.String()) }, time.Minute, 10*time.Millisecond)
			pid, err := strconv.Atoi(program.FindStringSubmatch(said.String())[1])
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, 0), "it runs")
			if row.kill {
				require.NoError(t, tests.Process.Kill())
			}
			require.Error(t, tests.Wait())
			assert.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, time.Minute, 10*time.Millisecond, "it is gone")
			if !row.kill {
				assert.Regexp(t, "(?s)-timeout=4s is near: stopping.*stopped.*panic: test timed out after 4s", said.String())
				assert.NotContains(t, said.String(), "called off")
			}
		})
	}
}

// log is what a process says.
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
