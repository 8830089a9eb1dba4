// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// run runs kubectl on the cluster of the fleet, in the directory of the program.
func (f *fleet) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), f.kubectl, append([]string{"--kubeconfig=" + f.kubeconfig}, args...)...)
	cmd.Dir, cmd.Env = program, append(os.Environ(), "KUBECACHEDIR="+f.dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", args, out)
	return string(out)
}

// The commands in docs/operating.md create all objects of the overlay. The server refuses unknown fields, so the
// manifests have none.
func TestAServerTakesTheManifests(t *testing.T) {
	t.Parallel()
	f := fleetOf(t)
	out, err := f.bash(t.Context(), "kubectl get --output=name -k overlay")
	require.NoError(t, err, out)
	assert.ElementsMatch(t, []string{
		"serviceaccount/" + name,
		"role.rbac.authorization.k8s.io/" + name,
		"rolebinding.rbac.authorization.k8s.io/" + name,
		"clusterrole.rbac.authorization.k8s.io/" + name,
		"clusterrole.rbac.authorization.k8s.io/" + name + "-metrics",
		"clusterrole.rbac.authorization.k8s.io/" + name + "-metrics-reader",
		"clusterrolebinding.rbac.authorization.k8s.io/" + name,
		"clusterrolebinding.rbac.authorization.k8s.io/" + name + "-metrics",
		"clusterrolebinding.rbac.authorization.k8s.io/" + name + "-metrics-reader",
		"deployment.apps/" + name,
		"poddisruptionbudget.policy/" + name,
		"service/" + name,
		"networkpolicy.networking.k8s.io/" + name,
		"configmap/" + name + "-dashboard",
		"servicemonitor.monitoring.coreos.com/" + name,
		"prometheusrule.monitoring.coreos.com/" + name,
	}, strings.Fields(out))
	image := f.run(t, "--namespace=kube-system", "get", "deployment", name, "--output=jsonpath={.spec.template.spec.containers[0].image}")
	assert.Contains(t, runbook(t), "newName: "+strings.Replace(image, ":", `, newTag: "`, 1)+`"`, "the overlay names the image")
	f.run(t, "apply", "--dry-run=server", "--validate=strict", "-f", "manifests/static-pod.yaml")
}

// The rights in the manifests are enough for the fleet's managers, which have no other rights. The leader has
// created the pods with these rights.
func TestTheManifestsGrantWhatTheManagerNeeds(t *testing.T) {
	t.Parallel()
	f := fleetOf(t)
	for _, manager := range f.managers {
		assert.NotContains(t, manager.log.String(), "A right is missing")
		assert.NotContains(t, manager.log.String(), "forbidden: User")
	}
	const prometheus = "monitoring:prometheus-k8s"
	for _, row := range []struct{ account, verb, what, may string }{
		{"kube-system:" + name, "create", "tokenreviews", "yes"},
		{"kube-system:" + name, "create", "subjectaccessreviews", "yes"},
		{"kube-system:" + name, "delete", "replicasets", "no"},
		{prometheus, "get", "/metrics", "yes"},
		{prometheus, "get", "/debug/pprof", "no"},
	} {
		out, _ := f.bash(t.Context(), "kubectl auth can-i "+row.verb+" "+row.what+" --as=system:serviceaccount:"+row.account+" 2>/dev/null")
		assert.Equal(t, row.may, strings.TrimSpace(out), row)
	}
}

func TestTheOperatorOfPrometheusTakesTheManifests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(program + "/manifests/monitoring/servicemonitor.yaml")
	require.NoError(t, err)
	var monitor monitoringv1.ServiceMonitor
	require.NoError(t, yaml.UnmarshalStrict(text, &monitor))
	service := fleetOf(t).run(t, "apply", "--dry-run=client", "--output=yaml", "-f", "manifests/service.yaml")
	for label, value := range monitor.Spec.Selector.MatchLabels {
		assert.Contains(t, service, label+": "+value+"\n")
	}
	assert.Contains(t, service, "name: "+monitor.Spec.Endpoints[0].Port+"\n")
}
