package clientgo_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"
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
	"github.com/replicakit/replicakit/replicas/controller"
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
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf(
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","details":{"retryAfterSeconds":%s},"code":429}`, cmp.Or(a.retryAfter, "0")))),
	}, nil
}

func TestCapRetryAfter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, retryAfter, want string }{
		{"W27 nobody waits for 67 years within a call", "2147483647", ""},
		{"nor for more than half a minute", "31", ""},
		{"which stays", "30", "30"},
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
	for _, test := range []struct {
		name, retryAfter string
		calls            int
		waited           time.Duration
	}{
		{"67 years end the call at once", "2147483647", 1, 0},
		{"so do five minutes", "300", 1, 0},
		{"no call waits for more than five minutes", "30", 11, controller.MaxServerDelay},
	} {
		t.Run("W27 "+test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &answers{retryAfter: test.retryAfter}
				config := &rest.Config{Host: "http://127.0.0.1", QPS: -1, Transport: server}
				config.Wrap(clientgo.CapRetryAfter)
				client, err := kubernetes.NewForConfig(config)
				require.NoError(t, err)
				start := time.Now()
				err = client.CoreV1().Pods("default").Delete(t.Context(), "web-a", metav1.DeleteOptions{})
				assert.True(t, apierrors.IsTooManyRequests(err), err)
				seconds, told := apierrors.SuggestsClientDelay(err)
				assert.True(t, told, "the Reconciler holds the owner by that")
				assert.Equal(t, test.retryAfter, strconv.Itoa(seconds))
				assert.Equal(t, test.calls, server.calls)
				assert.Equal(t, test.waited, time.Since(start))
			})
		})
	}
}
