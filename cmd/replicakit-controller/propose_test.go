// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/internal/shard"
)

func TestProposeRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, args string
		code       int
		want       string
	}{
		{"no ranges", "-n 0", exitUsage, "--ranges=0: must be a positive number\nSee 'replicakit-controller shard-ranges --help'.\n"},
		{"an argument that is no flag", "4", exitUsage, `arguments that are no flags: ["4"]`},
		{"a flag of the other command", "--leader-elect", exitUsage, "unknown flag: --leader-elect"},
		{"no server", "-n 2 --kubeconfig=/does/not/exist", exitError, "replicakit-controller shard-ranges: --kubeconfig=/does/not/exist: stat /does/not/exist: no such file or directory\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			assert.Equal(t, row.code, run(t.Context(), append([]string{"shard-ranges"}, strings.Fields(row.args)...), &stdout, &stderr, nil))
			assert.Contains(t, stderr.String(), row.want)
			assert.Empty(t, stdout.String())
		})
	}
}

func TestProposeIsUnderstood(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	kubeconfig := "--kubeconfig=" + writeKubeconfig(t, cluster.Kubeconfig)
	require.Eventually(t, func() bool { // a server makes those of its own after it has started
		namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(namespaces.Items) >= 3
	}, patience, 50*time.Millisecond)
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"shard-ranges", "-n", "3", kubeconfig}, &stdout, &stderr, nil), stderr.String())
	opts, err := parse(strings.Fields(stdout.String()), &bytes.Buffer{})
	require.NoError(t, err)
	require.Len(t, opts.ranges, 3)
	namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	served := map[int]bool{}
	for _, namespace := range namespaces.Items {
		served[opts.ranges.Of(namespace.Name)] = true
	}
	assert.Len(t, served, 3, "each has a namespace")
	assert.Regexp(t, `^SHARD +RANGE +NAMESPACES +PODS\n0 +0x0000000000000000-0x[0-9a-f]{16} +[0-9]+ +[0-9]+\n`, stderr.String())

	stdout.Reset()
	stderr.Reset()
	assert.Equal(t, exitError, run(t.Context(), []string{"shard-ranges", "-n", "1000", kubeconfig}, &stdout, &stderr, nil))
	assert.Regexp(t, `^replicakit-controller shard-ranges: 1000 ranges for [0-9]+ namespaces: want at least one range, and a namespace for each`, stderr.String())
}

func TestPodsByNamespace(t *testing.T) {
	t.Parallel()
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	object := func(kind, namespace, name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		}
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, object("Namespace", "", "a"), object("Namespace", "", "empty"), object("Pod", "a", "1"), object("Pod", "a", "2"))
	weights, err := podsByNamespace(t.Context(), client)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"a": 3, "empty": 1}, weights)

	ranges, err := shard.Propose(weights, 2)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, printShares(&out, ranges, weights))
	table := strings.Join(strings.Fields(out.String()), " ")
	for i, want := range map[int]string{ranges.Of("a"): "1 2", ranges.Of("empty"): "1 0"} {
		assert.Contains(t, table, fmt.Sprintf("%d %v %s", i, ranges[i], want))
	}
}
