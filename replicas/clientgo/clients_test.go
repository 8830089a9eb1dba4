package clientgo_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

// A Reconciler gives the same pod to many calls at once, and clients write into
// what they encode.
func TestCreatePodLeavesThePodAlone(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-x"}}`))
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	pod := &corev1.Pod{}
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			created, err := clientgo.PodControl{Client: client.CoreV1()}.CreatePod(t.Context(), "default", pod)
			if assert.NoError(t, err) {
				assert.Equal(t, "web-x", created.Name)
			}
		})
	}
	calls.Wait()
	assert.Equal(t, &corev1.Pod{}, pod)
}
