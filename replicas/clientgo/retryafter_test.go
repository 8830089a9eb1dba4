package clientgo_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

// answers is a server that always answers 429 and when to come back.
type answers struct {
	retryAfter string
	calls      int
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	a.calls++
	return &http.Response{
		StatusCode: http.StatusTooManyRequests,
		Header:     http.Header{"Retry-After": {a.retryAfter}, "Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}`)),
	}, nil
}

func TestCapRetryAfter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, retryAfter, want string }{
		{"W27 67 years are five minutes", "2147483647", "300"},
		{"five minutes stay", "300", "300"},
		{"seconds stay", "7", "7"},
		{"what is no number is nobody's business", "tomorrow", "tomorrow"},
		{"nor is nothing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			resp, err := clientgo.CapRetryAfter(&answers{retryAfter: test.retryAfter}).RoundTrip(nil)
			require.NoError(t, err)
			defer func() { _ = resp.Body.Close() }()
			assert.Equal(t, test.want, resp.Header.Get("Retry-After"))
		})
	}
	t.Run("W27 a client's call ends within an hour, whatever the server says", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			server := &answers{retryAfter: "2147483647"}
			config := &rest.Config{Host: "http://127.0.0.1", QPS: -1, Transport: server}
			config.Wrap(clientgo.CapRetryAfter)
			client, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			start := time.Now()
			err = client.CoreV1().Pods("default").Delete(t.Context(), "web-a", metav1.DeleteOptions{})
			assert.True(t, apierrors.IsTooManyRequests(err), err)
			assert.Equal(t, 11, server.calls)
			assert.Equal(t, 50*time.Minute, time.Since(start))
		})
	})
}
