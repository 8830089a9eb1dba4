// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// If the data of etcd is replaced with an older copy while a leader and a standby run, an alert fires. The
// commands in the runbook of the alert show the cause, and delete the leader's pod. When the leader has ended, the
// standby takes over and brings the ReplicaSet to the wanted number of pods. Both managers use the service account
// of the manifests.
func TestAPrometheusSeesARestoredServer(t *testing.T) {
	t.Parallel()
	f, err := startInstalled()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.stopServer()) })
	require.NoError(t, f.makeReplicaSet())
	p := startPrometheus(t, f)
	// The lease is longer than the time without a server. So the leader continues with its old cache, which is the
	// harder case.
	flags := []string{"--kubeconfig=" + f.account, "--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m", "-v=4"}
	leader := p.begins("leader", flags...)
	p.wants("default", 3)
	standby := p.begins("standby", flags...)
	p.seesNothingWrong()

	backup := filepath.Join(f.dir, "backup")
	require.NoError(t, f.plane.WithoutStore(func(dir string) error { return os.CopyFS(backup, os.DirFS(dir)) }))
	p.wants("default", 5)
	version := f.passVersions(t, 500) // more writes than a server makes by itself when it starts
	leader.hasHeardOf(t, version)
	standby.hasHeardOf(t, version)
	assert.NotContains(t, leader.log.String()+standby.log.String(), "was restored", "a server that is only started again")
	require.NoError(t, f.plane.WithoutStore(func(dir string) error {
		return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(backup)), os.Chmod(dir, 0o700))
	}))
	p.awaits("ReplicakitServerRestored", "firing")
	eventually(t, func(c *assert.CollectT) { assert.Len(c, p.values(c, restored+" > 0"), 2, "both noticed") })

	commands := commandsOf(runbook(t))["ReplicakitServerRestored"]
	require.Len(t, commands, 2)
	eventually(t, func(c *assert.CollectT) {
		out, err := f.bash(t.Context(), commands[0])
		require.NoError(c, err, out)
		assert.Regexp(c, `ServerRestored +lease/`+name+` +the API server went back from resourceVersion [0-9]+ to [0-9]+: it was restored from a backup`, out)
	})
	host, err := os.Hostname()
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: host}, Spec: replicaSet("leader").Spec.Template.Spec} // stands for the leader's pod
	_, err = f.client.CoreV1().Pods("kube-system").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	out, err := f.bash(t.Context(), commands[1])
	require.NoError(t, err, out)
	assert.Contains(t, out, `pod "`+host+`" deleted`)
	leader.stop()
	p.wants("default", 6)
	eventually(t, func(c *assert.CollectT) {
		pods, err := f.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		require.NoError(c, err)
		assert.Len(c, pods.Items, 6)
		text, err := f.ask(standby.address, "/readyz")
		require.NoError(c, err)
		assert.Equal(c, "ok", string(text))
	})
}

// passVersions makes n writes, so that the server reaches a newer resourceVersion. It returns the resourceVersion
// after the last write.
func (f *fleet) passVersions(t *testing.T, n int) (version int) {
	t.Helper()
	maps := f.client.CoreV1().ConfigMaps("default")
	clock, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "clock"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for i := range n {
		clock.Data = map[string]string{"time": strconv.Itoa(i)}
		clock, err = maps.Update(t.Context(), clock, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	version, err = strconv.Atoi(clock.ResourceVersion)
	require.NoError(t, err)
	return version
}

var heardOf = regexp.MustCompile(`The server reported its current resourceVersion" version="([0-9]+)"`)

// hasHeardOf waits until the manager has logged that the server has reached the given resourceVersion.
func (p *process) hasHeardOf(t *testing.T, version int) {
	t.Helper()
	eventually(t, func(c *assert.CollectT) {
		said := heardOf.FindAllStringSubmatch(p.log.String(), -1)
		require.NotEmpty(c, said)
		last, err := strconv.Atoi(said[len(said)-1][1])
		require.NoError(c, err)
		assert.GreaterOrEqual(c, last, version)
	})
}
