package operating_test

import (
	"debug/elf"
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
	cmd.Dir = program
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", args, out)
	return string(out)
}

func TestAServerTakesTheManifests(t *testing.T) {
	t.Parallel()
	f := fleetOf(t)
	const name = "replicakit-controller"
	base := f.run(t, "apply", "--dry-run=server", "--validate=strict", "--output=name", "-k", "manifests")
	assert.ElementsMatch(t, []string{
		"serviceaccount/" + name,
		"role.rbac.authorization.k8s.io/" + name,
		"rolebinding.rbac.authorization.k8s.io/" + name,
		"clusterrole.rbac.authorization.k8s.io/" + name,
		"clusterrole.rbac.authorization.k8s.io/" + name + "-metrics",
		"clusterrole.rbac.authorization.k8s.io/" + name + "-metrics-reader",
		"clusterrolebinding.rbac.authorization.k8s.io/" + name,
		"clusterrolebinding.rbac.authorization.k8s.io/" + name + "-metrics",
		"deployment.apps/" + name,
		"poddisruptionbudget.policy/" + name,
		"service/" + name,
		"networkpolicy.networking.k8s.io/" + name,
	}, strings.Fields(base))
	for _, file := range []string{"static-pod.yaml", "shards.yaml", "monitoring/reader.yaml"} {
		f.run(t, "apply", "--dry-run=server", "--validate=strict", "-f", "manifests/"+file)
	}
}

func TestTheOperatorOfPrometheusTakesTheManifests(t *testing.T) {
	t.Parallel()
	rendered := fleetOf(t).run(t, "kustomize", "manifests/monitoring")
	for _, kind := range []string{"ClusterRoleBinding", "ServiceMonitor", "PrometheusRule"} {
		assert.Contains(t, rendered, "kind: "+kind+"\n")
	}
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

// docs/operating.md puts the program into an image that has nothing else.
func TestTheProgramNeedsNoLibraries(t *testing.T) {
	t.Parallel()
	file, err := elf.Open(fleetOf(t).controller)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	for _, part := range file.Progs {
		assert.NotEqual(t, elf.PT_INTERP, part.Type, "a dynamic linker")
	}
	libraries, err := file.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, libraries)
}
