// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	watchpkg "k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// throughProxy makes thirty creations, of which the tenth answers are lost, but for the first
// ten, and returns what became of each and how many the server has heard of.
func throughProxy(t *testing.T, fault fault) (errs []error, heard int) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1"}`)
	}))
	t.Cleanup(server.Close)
	p, client := clientOf(t, server.URL, trouble{fault: fault, share: 0.5})
	answers := 0
	p.draw = func() float64 {
		if answers++; answers%10 == 0 {
			return 0
		}
		return 0.5
	}
	for i := range 30 {
		p.armed.Store(i >= 10)
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	return errs, heard
}

// clientOf starts a proxy of the server and returns a client of the proxy.
func clientOf(t *testing.T, server string, trouble trouble) (*proxy, clientset.Interface) {
	t.Helper()
	p, err := startProxy(&rest.Config{Host: server}, trouble)
	require.NoError(t, err)
	t.Cleanup(p.stop)
	content, err := p.kubeconfig()
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
	for name, tc := range map[string]struct {
		fault fault
		lost  func(error) bool
	}{
		"cut": {cut, func(err error) bool {
			return strings.Contains(err.Error(), "stream error") || strings.Contains(err.Error(), "EOF")
		}},
		"504": {replace(http.StatusGatewayTimeout, 0), func(err error) bool { return apierrors.ReasonForError(err) == metav1.StatusReasonTimeout }},
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
		errs, heard := throughProxy(t, replace(http.StatusTooManyRequests, 1))
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

func TestProxyRefusesPatches(t *testing.T) {
	t.Parallel()
	patched := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		patched++
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1"}`)
	}))
	t.Cleanup(server.Close)
	for code, is := range map[int]func(error) bool{
		http.StatusBadRequest: apierrors.IsBadRequest, http.StatusForbidden: apierrors.IsForbidden, http.StatusUnprocessableEntity: apierrors.IsInvalid,
	} {
		p, client := clientOf(t, server.URL, trouble{refuse: code})
		patched = 0
		patch := func(armed bool) error {
			p.armed.Store(armed)
			_, err := client.CoreV1().Pods(namespace).Patch(t.Context(), "web", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		}
		require.NoError(t, patch(false))
		err := patch(true)
		require.ErrorContains(t, err, "not that pod")
		assert.True(t, is(err), err)
		assert.Equal(t, 1, patched)
		_, err = client.CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
	}
}

func TestProxyCountsLists(t *testing.T) {
	t.Parallel()
	all := make(chan struct{}) // are there
	var there atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if there.Add(1) == 5 {
			close(all)
		}
		<-all
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1"}`)
	}))
	t.Cleanup(server.Close)
	p, client := clientOf(t, server.URL, trouble{})
	var calls sync.WaitGroup
	for _, opts := range []metav1.ListOptions{{}, {LabelSelector: "app=web"}, {Limit: 500}, {Limit: 1}} {
		calls.Go(func() {
			_, err := client.CoreV1().Pods(namespace).List(t.Context(), opts)
			assert.NoError(t, err)
		})
	}
	calls.Go(func() { _, _ = client.CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{}) })
	calls.Wait()
	assert.Equal(t, 3, p.lists.atMost())
	_, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Equal(t, 3, p.lists.atMost())
}

func TestProxyHoldsWatchesBack(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}`+"\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	p, client := clientOf(t, server.URL, trouble{})
	told := func() <-chan watchpkg.Event {
		watching, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		t.Cleanup(watching.Stop)
		return watching.ResultChan()
	}
	assert.Equal(t, watchpkg.Added, (<-told()).Type)
	p.watches.close()
	late := told()
	select {
	case event := <-late:
		assert.Fail(t, "it hangs", event)
	case <-time.After(100 * time.Millisecond):
	}
	p.watches.open()
	assert.Equal(t, watchpkg.Added, (<-late).Type)
}
