// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// TestRun measures our controller once in three scenarios. The flag -quick divides most sizes of the scenarios by
// ten.
func TestRun(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "cluster.md")
	require.NoError(t, os.WriteFile(page, []byte("# Words\n"+mark+"old\n"), 0o600))
	program, err := controlplane.Ours("replicakit-controller")
	require.NoError(t, err)
	var out bytes.Buffer
	args := []string{"-quick", "-runs=1", "-scenarios=scale,start,lost-429", "-sides=ours", "-controller=" + program, "-o=" + page}
	require.NoError(t, run(t.Context(), args, &out))
	assert.Regexp(t, `(?m)^run 1/1 scale      ours       up: all pods exist .* s, POST pods 100, DELETE pods 100, `, out.String())
	assert.Regexp(t, `(?m)^run 1/1 lost-429   ours       both directions, .* s, pods that ever existed 50, answers lost `, out.String())
	assert.Regexp(t, `(?m)^run 1/1 start      ours       the first set is looked at .* s, all sets are looked at .* s, started: controller's CPU .* s, started: peak memory .* MiB, `, out.String())
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "old")
	assert.Contains(t, string(text), "# Words\n"+mark)
	assert.Contains(t, string(text), "| one ReplicaSet, 0 → 100 → 0 pods | up: all pods exist | – |")
	assert.Contains(t, string(text), "|  | controller's peak memory | – |")
	assert.Contains(t, string(text), "| a controller starts on 1,400 pods of 200 ReplicaSets; then 20 of the ReplicaSets get 1 more each | the first set is looked at | – |")
	assert.Regexp(t, `\|  \| scaled: all statuses say so \| – \| .* s \|`, string(text))
}

func TestAControllerThatEnds(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // the controller's log is kept there after a failure
	program, err := exec.LookPath("false")
	require.NoError(t, err)
	var out bytes.Buffer
	err = run(t.Context(), []string{"-quick", "-runs=1", "-scenarios=scale", "-sides=ours", "-controller=" + program}, &out)
	require.ErrorContains(t, err, "scale, ours, run 1: ours ended: exit status 1; see ")
}

func TestSays(t *testing.T) {
	t.Parallel()
	echo, err := exec.LookPath("echo")
	require.NoError(t, err)
	c := &controller{}
	c.Program, err = controlplane.StartProgram("ours", filepath.Join(t.TempDir(), "log"), echo, "the lease is held")
	require.NoError(t, err)
	require.NoError(t, c.awaitLog(t.Context(), "the lease"))
	gone := errors.New("the controller ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	require.ErrorIs(t, c.awaitLog(ctx, "nobody says this"), gone)
}

func TestStop(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	failed := errors.New("waited in vain")
	for _, row := range []struct {
		name       string
		err, cause error
		want       func(log string) string
	}{
		{"all went well", nil, nil, nil},
		{"it took too long", failed, nil, func(log string) string { return "waited in vain; see " + log }},
		{"the program had ended", failed, errors.New("ours ended"), func(string) string { return "ours ended" }},
		{"somebody interrupts", failed, context.Canceled, func(string) string { return "waited in vain" }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := &controller{dir: filepath.Join(t.TempDir(), "dir")}
			require.NoError(t, os.Mkdir(c.dir, 0o700))
			var err error
			c.Program, err = controlplane.StartProgram("ours", filepath.Join(c.dir, "log"), sleep, "60")
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if row.cause != nil {
				cancel(row.cause)
			}
			err = c.stop(ctx, row.err)
			<-c.Ended()
			if row.want == nil {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, row.want(c.Log()))
			}
			if row.err == nil || errors.Is(row.cause, context.Canceled) {
				assert.NoDirExists(t, c.dir)
			} else {
				assert.FileExists(t, c.Log())
			}
		})
	}
}
