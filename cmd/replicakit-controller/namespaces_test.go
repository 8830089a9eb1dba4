// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSeveralNamespaces(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	for _, namespace := range []string{"several-a", "several-b", "several-c"} {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = client.AppsV1().ReplicaSets(namespace).Create(t.Context(), newReplicaSet("web", 2), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), "--namespace=several-a,several-b", "--leader-elect=false", openMetrics)
	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		pods := map[string]int{}
		list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if assert.NoError(c, err) {
			for _, pod := range list.Items {
				if strings.HasPrefix(pod.Namespace, "several-") {
					pods[pod.Namespace]++
				}
			}
		}
		assert.Equal(c, map[string]int{"several-a": 2, "several-b": 2}, pods)
		code, text := p.get("/readyz")
		assert.Equal(c, http.StatusOK, code, text)
	}, patience, patience/500)
	code, text := p.get("/metrics")
	assert.Equal(t, http.StatusOK, code)
	for _, namespace := range []string{"several-a", "several-b"} {
		assert.Regexp(t, `replicakit_sync_duration_seconds_count\{[^}]*namespace="`+namespace+`"`, text)
	}
	p.stop()
}
