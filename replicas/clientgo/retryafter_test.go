// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
)

// answers is a server that answers each request with 429 and the given Retry-After.
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
			req := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/api/v1/pods", nil)
			resp, err := clientgo.CapRetryAfter(&answers{retryAfter: test.retryAfter}).RoundTrip(req)
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
				_, err = client.CoreV1().Pods("default").Get(t.Context(), "web-a", metav1.GetOptions{})
				assert.True(t, apierrors.IsTooManyRequests(err), err)
				seconds, told := apierrors.SuggestsClientDelay(err)
				assert.True(t, told, "the controller holds the owner by that")
				assert.Equal(t, test.retryAfter, strconv.Itoa(seconds))
				assert.Equal(t, test.calls, server.calls)
				assert.Equal(t, test.waited, time.Since(start))
			})
		})
	}
}

// With CapRetryAfter, client-go does not send a create, delete or patch request again, except for events. The
// server in this test answers the first request with an error and a Retry-After. It answers a further request
// with a Conflict, as if the first request had taken effect.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	protobuf, err := runtime.Encode(scheme.Codecs.EncoderForVersion(serializer(t, runtime.ContentTypeProtobuf), metav1.SchemeGroupVersion),
		&apierrors.NewTooManyRequests("the webhook is busy", 7).ErrStatus)
	require.NoError(t, err)
	for _, row := range []struct {
		name, contentType, body string
		code                    int
		is                      func(error) bool
		says                    string
	}{
		{"429 of API priority and fairness", "text/plain", "Too many requests, please try again later.\n", http.StatusTooManyRequests, apierrors.IsTooManyRequests, "try again later"},
		{"429 as JSON", "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"busy","reason":"TooManyRequests","code":429}`, http.StatusTooManyRequests, apierrors.IsTooManyRequests, "busy"},
		{"429 as protobuf", runtime.ContentTypeProtobuf, string(protobuf), http.StatusTooManyRequests, apierrors.IsTooManyRequests, "the webhook is busy"},
		{"503 of a proxy", "text/html", "<html>", http.StatusServiceUnavailable, apierrors.IsServiceUnavailable, ""},
		{"504 without a body", "", "", http.StatusGatewayTimeout, apierrors.IsTimeout, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) > 1 {
					w.WriteHeader(http.StatusConflict)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Retry-After", "1")
				w.Header().Set("Content-Type", row.contentType)
				w.WriteHeader(row.code)
				_, _ = io.WriteString(w, row.body)
			}))
			t.Cleanup(server.Close)
			config := &rest.Config{Host: server.URL, QPS: -1}
			config.ContentType = runtime.ContentTypeProtobuf
			config.AcceptContentTypes = runtime.ContentTypeProtobuf + ",application/json"
			config.Wrap(clientgo.CapRetryAfter)
			client, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			pods := client.CoreV1().Pods("default")
			for name, write := range map[string]func() error{
				"create": func() error {
					_, err := pods.Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
					return err
				},
				"delete": func() error { return pods.Delete(t.Context(), "web-a", metav1.DeleteOptions{}) },
				"patch": func() error {
					_, err := pods.Patch(t.Context(), "web-a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
					return err
				},
			} {
				calls.Store(0)
				err := write()
				assert.True(t, row.is(err), "%s: %v", name, err)
				require.ErrorContains(t, err, row.says, name)
				seconds, told := apierrors.SuggestsClientDelay(err)
				assert.True(t, told, name)
				assert.Equal(t, 1, seconds, name)
				assert.EqualValues(t, 1, calls.Load(), name)
			}
			calls.Store(0)
			_, err = client.CoreV1().Events("default").Create(t.Context(), &corev1.Event{}, metav1.CreateOptions{})
			require.Error(t, err)
			assert.EqualValues(t, 2, calls.Load(), "events are sent again")
		})
	}
}

func serializer(t *testing.T, contentType string) runtime.Serializer {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
	require.True(t, ok)
	return info.Serializer
}
