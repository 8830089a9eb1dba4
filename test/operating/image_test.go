// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// unpacked unpacks the image for this machine into a subdirectory of dir. It returns the path of the program that
// the image starts. The command `make image-of-tests` must have built the image. The fleet's managers run this
// program.
func unpacked(dir string) (program string, err error) {
	image, err := imageIn(dir)
	if err != nil {
		return "", err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return "", err
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		return "", err
	}
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	untar := exec.Command("tar", "-x", "-C", root)
	untar.Stdin = files
	return filepath.Join(root, config.Config.Entrypoint[0]), untar.Run()
}

// imageIn unpacks the archive of the images into a subdirectory of dir, and returns the image for this machine.
func imageIn(dir string) (v1.Image, error) {
	archive, err := controlplane.Ours(name + ".tar")
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "image")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := exec.Command("tar", "-xf", archive, "-C", dir).Run(); err != nil {
		return nil, err
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	tagged, err := only(partial.FindIndexes(all, match.Name("latest")))
	if err != nil {
		return nil, fmt.Errorf("%s: the tag latest: %w", archive, err)
	}
	image, err := only(partial.FindImages(tagged, match.Platforms(v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH})))
	if err != nil {
		return nil, fmt.Errorf("%s: %s/%s: %w", archive, runtime.GOOS, runtime.GOARCH, err)
	}
	return image, nil
}

// only(found, err) returns the single element of the slice found. If err is not nil, or if the slice does not have
// exactly one element, the result is an error.
func only[T any](found []T, err error) (one T, _ error) {
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("want one, found %d", len(found))
	}
	if err != nil {
		return one, err
	}
	return found[0], nil
}

// The program is linked statically, because the image contains only the program and its SBOM.
func TestTheProgramNeedsNoLibraries(t *testing.T) {
	t.Parallel()
	program := fleetOf(t).controller
	root, err := os.ReadDir(filepath.Dir(program))
	require.NoError(t, err)
	require.Len(t, root, 2)
	assert.Equal(t, name+".cdx.json", root[1].Name(), "see TestTheSBOMNamesWhatIsLinked")
	file, err := elf.Open(program)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	for _, part := range file.Progs {
		assert.NotEqual(t, elf.PT_INTERP, part.Type, "a dynamic linker")
	}
	libraries, err := file.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, libraries)
}

// The manifests run the image with its own entrypoint and user. The commands in docs/operating.md push the archive
// that the Makefile builds, under the name and tag that the overlay in docs/operating.md uses.
func TestTheImageIsThatOfTheManifests(t *testing.T) {
	t.Parallel()
	image, err := imageIn(t.TempDir())
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	var deployment appsv1.Deployment
	var pod corev1.Pod
	for file, object := range map[string]any{"deployment.yaml": &deployment, "static-pod.yaml": &pod} {
		text, err := os.ReadFile(program + "/manifests/" + file)
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(text, object))
	}
	for _, spec := range []corev1.PodSpec{deployment.Spec.Template.Spec, pod.Spec} {
		assert.Equal(t, config.Config.Entrypoint, spec.Containers[0].Command)
		user, _, _ := strings.Cut(config.Config.User, ":")
		assert.Equal(t, user, strconv.FormatInt(*spec.SecurityContext.RunAsUser, 10))
	}

	builds := regexp.MustCompile(`make image VERSION=(\S+)\nskopeo copy --all oci-archive:(\S+) docker://(\S+):(\S+)\n`).FindStringSubmatch(runbook(t))
	require.NotNil(t, builds)
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^IMAGE +\?= \$\(ROOT\)/`+regexp.QuoteMeta(builds[2])+"$", string(makefile))
	assert.Equal(t, builds[1], builds[4])
	assert.Contains(t, runbook(t), "newName: "+builds[3]+", newTag: "+builds[4])
}

func TestTheSBOMNamesWhatIsLinked(t *testing.T) {
	t.Parallel()
	program := fleetOf(t).controller
	text, err := os.ReadFile(program + ".cdx.json")
	require.NoError(t, err)
	type component struct{ Name, Version string }
	var sbom struct{ Components []component }
	require.NoError(t, json.Unmarshal(text, &sbom))
	linked, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	want := []component{{"std", linked.GoVersion}}
	for _, module := range linked.Deps {
		if module.Replace != nil { // go.mod replaces modules of this repository, except in a release
			module = module.Replace
		}
		want = append(want, component{module.Path, module.Version})
	}
	assert.ElementsMatch(t, want, sbom.Components)
}
