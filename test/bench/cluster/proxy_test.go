// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// throughProxy creates thirty pods through a proxy. From the eleventh creation on, the proxy applies the fault to
// every tenth answer. throughProxy returns the errors of the creations, and how many creations the server has
// received.
func throughProxy(t *testing.T, fault fault) (errs []error, heard int) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1"}`)
	}))
	t.Cleanup(server.Close)
	p, client := clientOf(t, server.URL, fault)
	answers := 0
	p.draw = func() float64 {
		if answers++; answers%10 == 0 {
			return 0
		}
		return lossShare
	}
	for i := range 30 {
		p.armed.Store(i >= 10)
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	return errs, heard
}

// clientOf starts a proxy of the server and returns a client of the proxy.
func clientOf(t *testing.T, server string, fault fault) (*proxy, clientset.Interface) {
	t.Helper()
	p, err := startProxy(&rest.Config{Host: server}, fault)
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	content, err := p.Kubeconfig()
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	require.NoError(t, err)
	config.QPS = -1
	client, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	return p, client
}

func TestProxy(t *testing.T) {
	t.Parallel()
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		errs, heard := throughProxy(t, cut)
		assert.Equal(t, 30, heard, "every creation takes effect")
		for i, err := range errs {
			if i == 19 || i == 29 {
				assert.Regexp(t, "stream error|EOF", err)
				continue
			}
			require.NoError(t, err)
		}
	})
	t.Run("429", func(t *testing.T) {
		t.Parallel()
		errs, heard := throughProxy(t, tooMany)
		assert.Equal(t, 32, heard, "the client itself asks again")
		for _, err := range errs {
			require.NoError(t, err)
		}
	})
}
