// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// programs writes a program and its bill of materials for each platform, and returns the paths of the programs.
func programs(t *testing.T, platforms ...string) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for _, platform := range platforms {
		path := filepath.Join(dir, filepath.FromSlash(platform), "program")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("for "+platform), 0o600))
		require.NoError(t, os.WriteFile(path+".cdx.json", []byte("modules for "+platform), 0o600))
		paths = append(paths, path)
	}
	return paths
}

// read returns the only image index in the archive, and its descriptor.
func read(t *testing.T, archive string) (v1.ImageIndex, v1.Descriptor) {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	all, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := all.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return index, manifest.Manifests[0]
}

func TestAnArchiveHasAnImageForEachPlatform(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(t.TempDir(), "archive.tar")
	require.NoError(t, run(archive, "v1", programs(t, "linux/amd64", "linux/arm64")))
	index, descriptor := read(t, archive)
	assert.Equal(t, map[string]string{
		"org.opencontainers.image.ref.name": "v1", "io.containerd.image.name": "docker.io/library/program:v1",
	}, descriptor.Annotations)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 2)
	for i, platform := range []string{"linux/amd64", "linux/arm64"} {
		assert.Equal(t, platform, manifest.Manifests[i].Platform.String())
		image, err := index.Image(manifest.Manifests[i].Digest)
		require.NoError(t, err)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, platform, config.Platform().String())
		assert.Equal(t, []string{"/program"}, config.Config.Entrypoint)
		assert.Equal(t, user, config.Config.User)
		files := mutate.Extract(image)
		layer := tar.NewReader(files)
		for _, want := range []struct {
			name string
			mode int64
			text string
		}{{"program", 0o755, "for " + platform}, {"program.cdx.json", 0o644, "modules for " + platform}} {
			header, err := layer.Next()
			require.NoError(t, err)
			assert.Equal(t, want.name, header.Name)
			assert.Equal(t, want.mode, header.Mode)
			text, err := io.ReadAll(layer)
			require.NoError(t, err)
			assert.Equal(t, want.text, string(text))
		}
		_, err = layer.Next()
		require.ErrorIs(t, err, io.EOF, "there is nothing else")
		require.NoError(t, files.Close())
	}
}

func TestTheSameProgramsMakeTheSameImage(t *testing.T) {
	t.Parallel()
	var digests []v1.Hash
	for range 2 {
		archive := filepath.Join(t.TempDir(), "archive.tar")
		require.NoError(t, run(archive, "v1", programs(t, "linux/amd64")))
		_, descriptor := read(t, archive)
		digests = append(digests, descriptor.Digest)
	}
	assert.Equal(t, digests[0], digests[1])
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(t.TempDir(), "archive.tar")
	bare := programs(t, "linux/amd64")
	require.NoError(t, os.Remove(bare[0]+".cdx.json"))
	for _, row := range []struct {
		name, out string
		programs  []string
		says      string
	}{
		{"no archive", "", programs(t, "linux/amd64"), "-o: must name the archive"},
		{"no program", archive, nil, "no program is named"},
		{"a program that is not there", archive, []string{"linux/amd64/none"}, "linux/amd64/none: open linux/amd64/none: no such file or directory"},
		{"a program without a bill of materials", archive, bare, "program.cdx.json: no such file or directory"},
		{"a program of no platform", archive, []string{"main.go"}, `main.go: the name of its directory is no OS/ARCHITECTURE: "./."`},
		{"a directory that is not there", filepath.Join(archive, "in", "it"), programs(t, "linux/amd64"), "no such file or directory"},
	} {
		require.ErrorContains(t, run(row.out, "v1", row.programs), row.says, row.name)
	}
	assert.NoFileExists(t, archive)
}
