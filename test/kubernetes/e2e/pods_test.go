// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestServePods(t *testing.T) {
	t.Parallel()
	ended := podAt("ended", corev1.PodSucceeded)
	ending := podAt("ending", corev1.PodRunning)
	ending.DeletionTimestamp = new(metav1.Now())
	tests := map[string]struct {
		pods   []corev1.Pod
		code   int
		answer string
	}{
		"the running pod of an address answers": {
			[]corev1.Pod{ended, ending, podAt("web-2", corev1.PodRunning)}, http.StatusOK, "web-2",
		},
		"nobody else does": {
			[]corev1.Pod{ended, ending}, http.StatusBadGateway, "no pod runs at 127.0.0.1\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = listener.Close() })
			go servePods(listener, serverOf(t, test.pods))
			code, answer := get(t, "http://"+listener.Addr().String())
			assert.Equal(t, test.code, code)
			assert.Equal(t, test.answer, answer)
		})
	}
}

func podAt(name string, phase corev1.PodPhase) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase}}
}

// serverOf returns a client of a server on which these pods have the address 127.0.0.1.
func serverOf(t *testing.T, pods []corev1.Pod) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		if r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "status.podIP=127.0.0.1" {
			list.Items = pods
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return client
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}
