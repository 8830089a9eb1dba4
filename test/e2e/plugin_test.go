package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKubectlFindsThePluginByTheNameThatGoInstallGivesIt(t *testing.T) {
	t.Parallel()
	binaries, err := findBinaries()
	require.NoError(t, err)
	bin := t.TempDir()
	const plugin = "../../examples/kubectl-scaledown"
	install := exec.CommandContext(t.Context(), "go", "install", ".")
	install.Dir, install.Env = plugin, append(os.Environ(), "GOBIN="+bin)
	out, err := install.CombinedOutput()
	require.NoError(t, err, string(out))
	want, err := os.ReadFile(plugin + "/testdata/fleet-a.name.golden")
	require.NoError(t, err)

	kubectl := exec.CommandContext(t.Context(), filepath.Join(binaries, "kubectl"), "scaledown", "web-5d9c7b6f4d",
		"-f", plugin+"/testdata/fleet-a.json", "--replicas", "25", "--at", "2026-11-21T11:40:54Z", "-o", "name")
	kubectl.Env = append(os.Environ(), "PATH="+bin)
	got, err := kubectl.CombinedOutput()
	require.NoError(t, err, string(got))
	assert.Equal(t, string(want), string(got))
}
