// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// chart renders the chart as helm install does.
func chart(t *testing.T, namespace, values string) (string, error) {
	t.Helper()
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	helm := exec.CommandContext(t.Context(), filepath.Join(binaries, "helm"), "template", "any", program+"/manifests", "--namespace="+namespace, "--values=-")
	helm.Stdin, helm.Env = strings.NewReader(values), append(os.Environ(), helmHomes(t.TempDir())...)
	text, err := helm.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(text), err
}

// helmHomes returns environment variables that make Helm keep its files in dir.
func helmHomes(dir string) (env []string) {
	for _, home := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		env = append(env, home+"="+filepath.Join(dir, home))
	}
	return env
}

// kustomized renders an overlay as kubectl apply -k does. The overlay must name the base ../manifests.
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

// objects parses the objects in the text. The keys consist of kind, namespace and name.
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
			"with alerts", "elsewhere", "{monitoring: true}",
			"{resources: [../manifests], components: [../manifests/monitoring], namespace: elsewhere}",
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

// The helm command in docs/operating.md installs the manager on a new API server. The same command works in
// another namespace, with other values. The program from the image runs with the flags of the Deployment. The
// rights of the Deployment's service account are enough.
func TestHelmInstallsTheChartOnAFreshControlPlane(t *testing.T) {
	t.Parallel()
	f := &fleet{dir: t.TempDir()}
	require.NoError(t, f.begin())
	require.NoError(t, os.CopyFS(filepath.Join(f.dir, "cmd", "replicakit-controller", "manifests"), os.DirFS(program+"/manifests")))
	f.script(t, "until kubectl get namespace kube-system; do sleep 0.1; done; kubectl create namespace elsewhere")
	require.NoError(t, f.prometheusOperator(t.Context()))
	require.NoError(t, f.makeReplicaSet())
	install, _, found := strings.Cut(regexp.MustCompile(`(?s)\n {4}(helm install .*?\n)\n`).FindString(runbook(t)), "\n\n")
	require.True(t, found)

	f.script(t, install)
	assert.Contains(t, f.ours(t), "secret/sh.helm.release.v1."+name+".v1")
	assert.Contains(t, f.ours(t), "prometheusrule.monitoring.coreos.com/"+name)
	f.runs(t, "kube-system", 4)
	upgrade := strings.Replace(install, "helm install", "helm upgrade --reuse-values", 1) + " --set replicas=3"
	f.script(t, upgrade)
	assert.Equal(t, "3", f.script(t, "kubectl --namespace=kube-system get deployment "+name+" --output=jsonpath={.spec.replicas}"))
	f.runs(t, "kube-system", 5)
	f.script(t, "helm uninstall "+name+" --namespace=kube-system")
	assert.Empty(t, f.ours(t), "Helm leaves nothing behind")

	elsewhere := strings.Replace(install, "kube-system", "elsewhere", 1) + " --set flags={--kube-api-qps=50}"
	f.script(t, elsewhere)
	f.runs(t, "elsewhere", 6)
	f.script(t, "kubectl --namespace=elsewhere get lease "+name)
	f.script(t, "helm uninstall "+name+" --namespace=elsewhere")
	assert.Empty(t, f.ours(t), "Helm leaves nothing behind")
}

// script runs a script, which must succeed, and returns its output.
func (f *fleet) script(t *testing.T, script string) string {
	t.Helper()
	out, err := f.bash(t.Context(), script)
	require.NoError(t, err, "%s: %s", script, out)
	return out
}

// ours returns the names of all objects on the server that belong to the manager. It leaves out the kinds of
// objects that managers create while they run, such as events and leases.
func (f *fleet) ours(t *testing.T) []string {
	t.Helper()
	return strings.Fields(f.script(t, `kubectl get --all-namespaces --ignore-not-found --output=name \
		"$(kubectl api-resources --verbs=list --output=name | grep -vE '^(componentstatuses|endpoints|events|leases)(\.|$)' | paste -sd,)" | { grep `+name+` || true; }`))
}

// runs starts a manager with the flags of the Deployment, and scales the ReplicaSet web. When the given number of
// pods exists, it stops the manager.
func (f *fleet) runs(t *testing.T, namespace string, pods int) {
	t.Helper()
	require.NoError(t, f.asAccount(namespace))
	deployment, err := f.client.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	args := []string{"--kubeconfig=" + f.account}
	for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.ReplaceAll(arg, "$(NAMESPACE)", namespace))
	}
	manager, err := f.start(args...)
	require.NoError(t, err)
	defer manager.stop()
	f.script(t, fmt.Sprintf("kubectl scale replicaset web --replicas=%d", pods))
	eventually(t, func(c *assert.CollectT) {
		made, err := f.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		assert.Len(c, made.Items, pods)
	})
	assert.NotContains(t, manager.log.String(), "A right is missing")
}
