// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

const pluginSource = "../../cmd/kubectl-scaledown"

// A plugin is kubectl with kubectl-scaledown on PATH. The file of kubectl-scaledown has the name that go install
// gives it.
type plugin struct {
	t          *testing.T
	kubectl    string
	path       string
	kubeconfig string
}

func newPlugin(t *testing.T, kubeconfig string) *plugin {
	t.Helper()
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	ours, err := controlplane.Ours(path.Base(pluginSource))
	require.NoError(t, err)
	return &plugin{t, filepath.Join(binaries, "kubectl"), filepath.Dir(ours) + string(filepath.ListSeparator) + binaries, kubeconfig}
}

// run runs kubectl with an empty standard input.
func (p *plugin) run(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	var out, errs bytes.Buffer
	kubectl := exec.CommandContext(p.t.Context(), p.kubectl, args...)
	kubectl.Env = append(os.Environ(), "PATH="+p.path, "KUBECONFIG="+p.kubeconfig)
	kubectl.Stdout, kubectl.Stderr = &out, &errs
	err := kubectl.Run()
	if kubectl.ProcessState == nil {
		require.NoError(p.t, err)
	}
	return out.String(), errs.String(), kubectl.ProcessState.ExitCode()
}

func TestKubectlFindsThePluginByTheNameThatGoInstallGivesIt(t *testing.T) {
	t.Parallel()
	outputs, err := os.ReadFile(pluginSource + "/testdata/outputs.txtar")
	require.NoError(t, err)
	_, want, found := strings.Cut(string(outputs), "\n-- fleet-a.name --\n")
	require.True(t, found)
	want, _, _ = strings.Cut(want, "\n-- ")
	got, stderr, code := newPlugin(t, os.DevNull).run("scaledown", "web-5d9c7b6f4d",
		"-f", pluginSource+"/testdata/fleet-a.json", "--replicas", "25", "--at", "2026-11-21T11:40:54Z", "-o", "name")
	require.Zero(t, code, stderr)
	assert.Equal(t, want+"\n", got)
}

// If a Deployment is scaled down in the middle of a rollout, exactly the pods that the plugin has named are
// deleted. Kubernetes' own Deployment controller divides the new size among the ReplicaSets.
//
//nolint:paralleltest // that controller looks at every namespace
func TestThePluginForetellsWhatAScaledDeploymentLoses(t *testing.T) {
	w := newWorld(t)
	w.startDeploymentController()
	w.createDeployment("web")
	w.patchDeployment(`{"metadata":{"labels":{"app":"web"}},"spec":{"replicas":8}}`)
	w.runAll(w.podsBySet(8))
	w.patchDeployment(`{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":1}}}}`)
	before := w.podsBySet(4, 6) // the four new pods do not become ready, so the rollout stays here
	for i, pod := range before {
		w.patchPod(pod.Name, `{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"`+strconv.Itoa(i)+`"}}}`)
	}

	kubectl := newPlugin(t, w.cluster.kubeconfig)
	plan, stderr, code := kubectl.run("scaledown", "deployment/web", "-n", w.namespace, "--replicas", "4", "-o", "name")
	require.Zero(t, code, stderr)
	require.NotEmpty(t, plan, stderr)

	w.cachesAreFresh()
	_, stderr, code = kubectl.run("scale", "deployment/web", "-n", w.namespace, "--replicas=4")
	require.Zero(t, code, stderr)
	foretold := strings.Fields(strings.ReplaceAll(plan, "pod/", ""))
	after := w.podsBySet(2, 3)
	gone := slices.DeleteFunc(names(before), func(name string) bool { return slices.Contains(names(after), name) })
	assert.ElementsMatch(t, foretold, gone)
}

func TestThePluginSaysWhyItCannotReadACluster(t *testing.T) {
	t.Parallel()
	guest, err := shared.env.AddUser(envtest.User{Name: "guest"}, nil)
	require.NoError(t, err)
	config, err := guest.KubeConfig()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/guest", config, 0o600))
	nobody := regexp.MustCompile(`server: \S+`).ReplaceAll(config, []byte("server: https://127.0.0.1:1"))
	require.NoError(t, os.WriteFile(dir+"/nobody", nobody, 0o600))
	kubectl := newPlugin(t, dir+"/guest")
	for name, tt := range map[string]struct {
		flag string
		want string
	}{
		"no rights":   {"-n=default", `cannot list replicasets of namespace "default": replicasets.apps is forbidden: User "guest" cannot list resource "replicasets"`},
		"no server":   {"--kubeconfig=" + dir + "/nobody", "connect: connection refused"},
		"no context":  {"--context=nope", `context "nope" does not exist`},
		"no config":   {"--kubeconfig=" + dir + "/none", "none: no such file or directory"},
		"no patience": {"--request-timeout=1ns", "no answer within 1ns: set a longer --request-timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := kubectl.run("scaledown", "deployment/web", tt.flag)
			assert.Equal(t, 1, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tt.want)
			assert.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %s", stderr)
		})
	}
}

// The plugin supports kubectl's flags for other users, all namespaces and other formats, and it completes names.
// If the plugin watches, a signal ends the watch.
//
//nolint:paralleltest // Kubernetes' Deployment controller looks at every namespace
func TestThePluginTakesKubectlsFlags(t *testing.T) {
	w := newWorld(t)
	w.startDeploymentController()
	w.createDeployment("web")
	w.patchDeployment(`{"spec":{"replicas":3}}`)
	w.runAll(w.podsBySet(3))
	kubectl := newPlugin(t, w.cluster.kubeconfig)

	stdout, stderr, code := kubectl.run("scaledown", "deployments", "-A", "--replicas=1", "--allow-incomplete")
	require.Zero(t, code, stderr)
	assert.Regexp(t, w.namespace+` +deployment/web +3 +1 +2 +0 +2 of 3`, stdout)
	stdout, stderr, code = kubectl.run("scaledown", "deployment/web", "-n", w.namespace, "--replicas=1", "-o", "yaml", "--as=alice", "--as-group=system:masters")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "\nkind: ScaleDown\n")
	stdout, stderr, code = kubectl.run("scaledown", "deployment/web", "-n", w.namespace, "--as=alice")
	assert.Equal(t, 1, code)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, `User "alice" cannot list resource`)

	source, err := filepath.Abs(pluginSource)
	require.NoError(t, err)
	ours := kubectl.path
	kubectl.path += string(filepath.ListSeparator) + source
	stdout, stderr, code = kubectl.run("__complete", "scaledown", "-n", w.namespace, "deployment/w")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "deployment/web\n")

	watch := exec.CommandContext(t.Context(), filepath.Join(filepath.SplitList(ours)[0], "kubectl-scaledown"), "deployment/web", "-n", w.namespace, "--replicas=1", "-w", "-o", "name", "--allow-ties", "--kubeconfig", kubectl.kubeconfig)
	var errs bytes.Buffer
	watch.Stderr = &errs
	out, err := watch.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, watch.Start())
	lines := bufio.NewScanner(out)
	victims := map[string]bool{}
	for range 2 {
		require.True(t, lines.Scan(), &errs)
		victims[strings.TrimPrefix(lines.Text(), "pod/")] = true
	}
	for _, pod := range w.podsBySet(3) {
		if !victims[pod.Name] {
			w.patchPod(pod.Name, `{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-1"}}}`)
			require.True(t, lines.Scan(), &errs)
			assert.Equal(t, "pod/"+pod.Name, lines.Text())
		}
	}
	require.NoError(t, watch.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
		assert.NotEmpty(t, lines.Text())
	}
	_ = watch.Wait() // the exit code is checked below
	assert.Equal(t, 1, watch.ProcessState.ExitCode())
	assert.Equal(t, "error: interrupted\n", errs.String())
}

// startDeploymentController runs Kubernetes' own Deployment controller until the test ends.
func (w *world) startDeploymentController() {
	w.t.Helper()
	w.startKubernetes("deployment-controller")
}

// startKubernetes runs the given controllers of Kubernetes until the test ends.
func (w *world) startKubernetes(controllers string) {
	w.t.Helper()
	binaries, err := controlplane.Binaries()
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	manager := exec.CommandContext(ctx, filepath.Join(binaries, "kube-controller-manager"),
		"--kubeconfig="+w.cluster.kubeconfig, "--controllers="+controllers, "--horizontal-pod-autoscaler-sync-period=1s", "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=0")
	require.NoError(w.t, manager.Start())
	w.t.Cleanup(func() {
		cancel()
		_ = manager.Wait() // an error, because the process was killed
	})
}

func (w *world) patchDeployment(patch string) {
	w.t.Helper()
	_, err := w.client.AppsV1().Deployments(w.namespace).Patch(w.t.Context(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// podsBySet waits until the owners have the given numbers of active pods, and returns all these pods. Each number
// in sizes is the number of active pods of one owner. The caller gives the numbers in ascending order.
func (w *world) podsBySet(sizes ...int) []*corev1.Pod {
	w.t.Helper()
	var pods []*corev1.Pod
	w.eventually(func(c *assert.CollectT) {
		pods = w.history.find(active)
		counts := map[types.UID]int{}
		for _, pod := range pods {
			counts[ownerOf(pod)]++
		}
		assert.Equal(c, sizes, slices.Sorted(maps.Values(counts)))
	}, "%d pods by ReplicaSet", sizes)
	return pods
}
