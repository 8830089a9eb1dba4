// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// chart renders the chart as helm install does.
func chart(t *testing.T, namespace, values string) (string, error) {
	t.Helper()
	chart, err := loader.Load(program + "/manifests")
	require.NoError(t, err)
	given, err := chartutil.ReadValues([]byte(values))
	require.NoError(t, err)
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "any", Namespace: namespace}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	require.NoError(t, err)
	require.Len(t, files, 1)
	for _, text := range files {
		return text, nil
	}
	panic("unreachable")
}

// kustomized renders an overlay as kubectl apply -k does. The base is called ../manifests there.
func kustomized(t *testing.T, overlay string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "manifests"), os.DirFS(program+"/manifests")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "overlay"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay", "kustomization.yaml"), []byte(overlay), 0o600))
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	text, err := exec.CommandContext(t.Context(), filepath.Join(binaries, "kubectl"), "kustomize", filepath.Join(dir, "overlay")).Output()
	require.NoError(t, err)
	return string(text)
}

// objects are those of the text, by kind and name.
func objects(t *testing.T, text string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for document := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSpace(text), "---\n"), "\n---\n") {
		object := unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object))
		key := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		require.NotContains(t, found, key)
		found[key] = object.Object
	}
	return found
}

func TestTheChartMakesWhatKustomizeMakes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, namespace, values, overlay string }{
		{"as it is", "kube-system", "", "resources: [../manifests]"},
		{"elsewhere", "elsewhere", "", "{resources: [../manifests], namespace: elsewhere}"},
		{
			"with alerts and the rights to ranges", "elsewhere", "{monitoring: true, shards: true}",
			"{resources: [../manifests], components: [../manifests/monitoring, ../manifests/shards], namespace: elsewhere}",
		},
		{
			"with an image, other replicas, flags, and fields", "kube-system",
			`{image: "registry.example.com/ours:v1", replicas: 3, flags: [--kube-api-qps=50], container: {resources: {requests: {memory: 1Gi}}}, pod: {nodeSelector: {a: b}, priorityClassName: c}}`,
			`resources: [../manifests]
images: [{name: replicakit-controller, newName: registry.example.com/ours, newTag: v1}]
replicas: [{name: replicakit-controller, count: 3}]
patches:
  - target: {kind: Deployment}
    patch: |-
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --kube-api-qps=50}
      - {op: add, path: /spec/template/spec/containers/0/resources/requests/memory, value: 1Gi}
      - {op: add, path: /spec/template/spec/nodeSelector, value: {a: b}}
      - {op: add, path: /spec/template/spec/priorityClassName, value: c}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			text, err := chart(t, row.namespace, row.values)
			require.NoError(t, err)
			want := objects(t, kustomized(t, row.overlay))
			require.Greater(t, len(want), 10)
			assert.Equal(t, want, objects(t, text))
		})
	}
}

func TestValuesThatTheChartDoesNotHaveAreRefused(t *testing.T) {
	t.Parallel()
	for values, says := range map[string]string{
		"replica: 3":         "'replica' not allowed",
		"replicas: -1":       "at '/replicas': minimum: got -1, want 0",
		"image: {tag: v1}":   "at '/image': got object, want string",
		"flags: [v=2]":       "at '/flags/0': 'v=2' does not match pattern '^--'",
		"monitoring: always": "at '/monitoring': got string, want boolean",
	} {
		_, err := chart(t, "kube-system", values)
		require.ErrorContains(t, err, says, values)
	}
}

// What the chart makes is applied to a server that has nothing yet. The program of the image runs with the flags of the Deployment,
// and with the rights of its service account.
func TestTheChartRunsOnAFreshControlPlane(t *testing.T) {
	t.Parallel()
	const namespace = "elsewhere"
	f := &fleet{dir: t.TempDir()}
	require.NoError(t, f.begin())
	text, err := chart(t, namespace, "{shards: true, flags: [--kube-api-qps=50]}")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "chart.yaml"), []byte(text), 0o600))
	out, err := f.bash(t.Context(), "kubectl create namespace "+namespace+" && kubectl apply --validate=strict -f chart.yaml")
	require.NoError(t, err, out)
	require.NoError(t, f.asAccount(namespace))
	require.NoError(t, f.makeReplicaSet())

	deployment, err := f.client.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	args := []string{"--kubeconfig=" + f.account}
	for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.ReplaceAll(arg, "$(NAMESPACE)", namespace))
	}
	manager, err := f.start(args...)
	require.NoError(t, err)
	eventually(t, func(c *assert.CollectT) {
		pods, err := f.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		assert.Len(c, pods.Items, 3)
	})
	_, err = f.client.CoordinationV1().Leases(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err, "the lease is in the namespace of the Deployment")
	assert.NotContains(t, manager.log.String(), "A right is missing")
	manager.stop()
}
