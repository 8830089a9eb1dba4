// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image makes a container image that contains only a static program and its bill of materials. The
// command needs no container runtime and no registry.
//
//	go run . -o archive.tar -tag v0.1.0 directory/linux/amd64/program directory/linux/arm64/program
//
// The archive is an OCI layout. The last two directories in the path of a program must name its operating
// system and its architecture. The bill of materials, program.cdx.json, must be in the same directory as
// the program. For the same files, the image always has the same digest. To run this command, use make
// image.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user contains a user ID and a group ID. The Kubernetes manifests use the same IDs. Nodes have no user
// with this ID.
const user = "65532:65532"

func main() {
	out := flag.String("o", "", "the archive to write")
	tag := flag.String("tag", "latest", "the image's tag")
	flag.Parse()
	if err := run(*out, *tag, flag.Args()); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(out, tag string, programs []string) error {
	switch {
	case out == "":
		return errors.New("-o: must name the archive")
	case len(programs) == 0:
		return errors.New("no program is named")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, program := range programs {
		image, platform, err := imageOf(program)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return write(out, index, filepath.Base(programs[0])+":"+tag)
}

// imageOf returns an image with one layer. The root directory of the layer contains the program and its bill
// of materials.
func imageOf(program string) (v1.Image, *v1.Platform, error) {
	name := filepath.Base(program)
	platform, err := platformOf(program)
	if err != nil {
		return nil, nil, err
	}
	layer, err := layerOf(program)
	if err != nil {
		return nil, nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "COPY " + name + " " + name + ".cdx.json /"}})
	if err != nil {
		return nil, nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, nil, err
	}
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Config = v1.Config{
		Entrypoint: []string{"/" + name}, User: user, WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.source":   "https://github.com/replicakit/replicakit",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	image, err = mutate.ConfigFile(image, config)
	return image, platform, err
}

func platformOf(program string) (*v1.Platform, error) {
	architecture := filepath.Dir(program)
	p := &v1.Platform{OS: filepath.Base(filepath.Dir(architecture)), Architecture: filepath.Base(architecture)}
	if strings.Trim(p.OS, ".") == "" || strings.Trim(p.Architecture, ".") == "" {
		return nil, fmt.Errorf("the name of its directory is no OS/ARCHITECTURE: %q", p)
	}
	return p, nil
}

// layerOf returns a layer without timestamps, so that the same files always give the same layer.
func layerOf(program string) (v1.Layer, error) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, file := range []struct {
		path string
		mode int64
	}{{program, 0o755}, {program + ".cdx.json", 0o644}} {
		text, err := os.ReadFile(file.path)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Name: filepath.Base(file.path), Typeflag: tar.TypeReg, Mode: file.mode, Size: int64(len(text))}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
}

// write writes the archive to a temporary file and then renames this file. Tools take the name of a loaded
// image from an annotation. podman and skopeo read the first annotation, and containerd and docker read the
// second.
func write(out string, index v1.ImageIndex, name string) (err error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(name, ":")
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag,
		"io.containerd.image.name":          "docker.io/library/" + name,
	}))
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close()); err != nil {
		return err
	}
	if err := os.WriteFile(out+".part", archive.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(out+".part", out)
}
