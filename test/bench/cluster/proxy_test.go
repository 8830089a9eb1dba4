package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// throughProxy makes thirty creations, the first ten unarmed, and returns what became of each and how
// many the server has heard of.
func throughProxy(t *testing.T, fault fault) (errs []error, heard int) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1"}`)
	}))
	t.Cleanup(server.Close)
	p, err := startProxy(&rest.Config{Host: server.URL}, fault)
	require.NoError(t, err)
	t.Cleanup(p.stop)
	content, err := p.kubeconfig()
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	require.NoError(t, err)
	config.QPS = -1
	client, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	for i := range 30 {
		p.armed.Store(i >= 10)
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	return errs, heard
}

func TestProxy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault fault
		lost  func(error) bool
	}{
		"cut": {cut, func(err error) bool {
			return strings.Contains(err.Error(), "stream error") || strings.Contains(err.Error(), "EOF")
		}},
		"504": {refuse(http.StatusGatewayTimeout, 0), func(err error) bool { return apierrors.ReasonForError(err) == metav1.StatusReasonTimeout }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs, heard := throughProxy(t, tc.fault)
			assert.Equal(t, 30, heard, "every creation takes effect")
			for i, err := range errs {
				if i == 19 || i == 29 {
					require.Error(t, err)
					assert.True(t, tc.lost(err), err)
					continue
				}
				require.NoError(t, err)
			}
		})
	}
	t.Run("429", func(t *testing.T) {
		t.Parallel()
		errs, heard := throughProxy(t, refuse(http.StatusTooManyRequests, 1))
		assert.Equal(t, 32, heard, "the client itself asks again")
		for _, err := range errs {
			require.NoError(t, err)
		}
	})
	t.Run("no fault", func(t *testing.T) {
		t.Parallel()
		errs, heard := throughProxy(t, nil)
		assert.Equal(t, 30, heard)
		for _, err := range errs {
			require.NoError(t, err)
		}
	})
}
