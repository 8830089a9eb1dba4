// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

func TestOurs(t *testing.T) { //nolint:paralleltest // it changes the working directory
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	write := func(name string, age time.Duration) {
		t.Helper()
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		changed := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(path, changed, changed))
	}
	write("cmd/replicakit-controller/main.go", time.Hour)
	t.Chdir(filepath.Join(root, "cmd", "replicakit-controller"))
	_, err = controlplane.Ours("replicakit-controller")
	require.EqualError(t, err, "controlplane: no directory above has a Makefile: this is not the repository")

	write("Makefile", time.Hour)
	program := filepath.Join(root, ".cache", "bin", "replicakit-controller")
	_, err = controlplane.Ours("replicakit-controller")
	require.EqualError(t, err, "controlplane: no "+program+": run `make our-programs`")

	write(".cache/bin/replicakit-controller", time.Minute)
	write("cmd/replicakit-controller/main_test.go", 0) // ignored, because no program contains test files
	write("test/e2e/harness.go", 0)
	write(".cache/generated.go", 0)
	found, err := controlplane.Ours("replicakit-controller")
	require.NoError(t, err)
	assert.Equal(t, program, found)

	write("replicas/spec.go", time.Second)
	_, err = controlplane.Ours("replicakit-controller")
	require.EqualError(t, err, "controlplane: "+program+" is older than "+filepath.Join(root, "replicas", "spec.go")+": run `make our-programs`")
}
