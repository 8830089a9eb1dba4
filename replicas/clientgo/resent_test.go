// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// If client-go sends a creation several times and the call fails, the error wraps ErrResent. The server in this
// test answers the first requests with a Retry-After, and then refuses the creation. A real server may have
// created the pod before it answers with a Retry-After.
func TestCreationsThatAreSentTwiceAreTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		busy   int
		wrap   transport.WrapperFunc
		resent bool
		is     func(error) bool
	}{
		{"client-go sends it again by itself", 2, nil, true, apierrors.IsForbidden},
		{"an answer that refuses at once is for one request", 0, nil, false, apierrors.IsForbidden},
		{"with CapRetryAfter it is sent once", 2, clientgo.CapRetryAfter, false, apierrors.IsTooManyRequests},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if calls++; calls <= tt.busy {
					w.Header().Set("Retry-After", "0")
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				w.WriteHeader(http.StatusForbidden)
			}))
			t.Cleanup(server.Close)
			config := &rest.Config{Host: server.URL, QPS: -1}
			if tt.wrap != nil {
				config.Wrap(tt.wrap)
			}
			kube, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			client := typed.NewClient(kube.AppsV1().ReplicaSets, kube.CoreV1().Pods)
			_, err = client.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-a"}})
			assert.True(t, tt.is(err), err)
			assert.Equal(t, tt.resent, errors.Is(err, controller.ErrResent))
		})
	}
}
