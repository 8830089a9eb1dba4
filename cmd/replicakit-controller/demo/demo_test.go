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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
	"github.com/replicakit/replicakit/podrank"
)

// onServers skips a test that needs a server if the flag -short is set.
func onServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server: make test-products")
	}
}

// controllerProgram returns the program that the demo starts.
func controllerProgram(t *testing.T) string {
	t.Helper()
	onServers(t)
	program, err := controlplane.Ours("replicakit-controller")
	require.NoError(t, err)
	return program
}

func TestOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out bytes.Buffer
	err := run(t.Context(), []string{"--once", "--dir=" + dir, "--controller=" + controllerProgram(t)}, newScreen(&out, false))
	text := out.String()
	require.NoError(t, err, text)
	for _, line := range []string{
		"ReplicaSet web: 5 wanted, 5 there, 5 ready, 0 terminating",
		"ReplicaSet web: 12 wanted, 12 there, 12 ready, 0 terminating",
		"a new pod takes its place, at once.",
		" not ready\n",
		" deletion cost -100 < 0\n",
		"ReplicaSet web: 7 wanted, 7 there, 7 ready, 0 terminating",
		"\n6. The controller's watch of the pods hangs for 5s, and the answer to its next creation is lost. The ReplicaSet is scaled to 8.\n",
		", and created no other pod.\n",
		"ReplicaSet web: 8 wanted, 8 there, 8 ready, 0 terminating",
		"\nstopping\n",
	} {
		assert.Contains(t, text, line)
	}
	assert.NotContains(t, text, "\x1b", "what is for terminals")
	assert.NoFileExists(t, filepath.Join(dir, "kubeconfig"))
	assert.NoFileExists(t, filepath.Join(dir, "controller.kubeconfig"))
	log, err := os.ReadFile(filepath.Join(dir, "controller.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), "Released the lease", "the controller ended in order")
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	onServers(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"--bare", "--dir=" + dir}, newScreen(&out, true)) }()
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "kubeconfig"))
		return err == nil || len(ended) > 0
	}, time.Minute, 50*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	assert.NoFileExists(t, filepath.Join(dir, "kubeconfig"))
}

// setReady also sets the readiness of the containers. So kubectl get pods shows the same readiness as the table of
// the demo.
func TestContainersAreAsReadyAsTheirPod(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
	}
	client := fake.NewClientset(pod)
	for _, ready := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
		require.NoError(t, (&fleet{client: client}).setReady(t.Context(), pod, ready))
		stored, err := client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.Len(t, stored.Status.ContainerStatuses, 1)
		assert.Equal(t, ready == corev1.ConditionTrue, stored.Status.ContainerStatuses[0].Ready)
		assert.NotNil(t, stored.Status.ContainerStatuses[0].State.Running)
	}
}

func TestAControllerThatIsMissing(t *testing.T) {
	t.Parallel()
	onServers(t)
	var out bytes.Buffer
	err := run(t.Context(), []string{"--once", "--dir=" + t.TempDir(), "--controller=/does/not/exist"}, newScreen(&out, false))
	require.ErrorContains(t, err, "the controller: fork/exec /does/not/exist: no such file or directory")
}

func TestAControllerThatEnds(t *testing.T) {
	t.Parallel()
	onServers(t)
	program, err := exec.LookPath("false")
	require.NoError(t, err)
	var out bytes.Buffer
	err = run(t.Context(), []string{"--once", "--dir=" + t.TempDir(), "--controller=" + program}, newScreen(&out, false))
	require.ErrorContains(t, err, "the controller ended: exit status 1; see ")
}

func TestScreen(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newScreen(&out, true)
	s.say("one")
	s.show([]string{"a", "b"})
	s.say("two")
	s.show([]string{"c"})
	assert.Equal(t, "one\na\nb\n\x1b[2A\x1b[Jtwo\na\nb\n\x1b[2A\x1b[Jc\n", out.String())

	t.Run("a table that is too high or too wide is cut", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		s := newScreen(&out, true)
		s.show(strings.Split(strings.Repeat(strings.Repeat("x", 100)+"\n", 50), "\n"))
		lines := strings.Split(out.String(), "\n")
		assert.Len(t, lines, 22)
		assert.Len(t, lines[0], 79)
		assert.Equal(t, "... and 31 more", lines[20])
	})
	for _, size := range [][2]int{{0, 0}, {0, 24}, {80, 0}, {1, 1}, {-1, -1}} {
		t.Run(fmt.Sprintf("a terminal of size %v", size), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := newScreen(&out, true)
			s.size = func() (int, int, error) { return size[0], size[1], nil }
			s.show([]string{"a pod", "another pod"})
			assert.NotEmpty(t, out.String())
		})
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{UID: "29e04671-1c76-43cd-856f-2fe1ff95cfb6"}},
		{ObjectMeta: metav1.ObjectMeta{UID: "4a9ff5a5-1f89-4e8c-b0cf-aa4b0f3d3734"}},
	}
	assert.Equal(t, "UID 29e04671... < 4a9ff5a5...", explain(podrank.Select(pods, 1, podrank.PodOptions{Now: time.Now()})[0]))
}
