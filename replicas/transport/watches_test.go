// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/replicas/transport"
)

// A wire is a RoundTripper that calls a function for each request.
type wire func(*http.Request) (*http.Response, error)

func (w wire) RoundTrip(req *http.Request) (*http.Response, error) { return w(req) }

func ok(body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body}
}

// hanging is the response body of a watch that sends nothing. A read returns only when the context ends.
type hanging struct{ ctx context.Context }

func (h hanging) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

func (hanging) Close() error { return nil }

func newRequest(t *testing.T, method, path string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://server/base"+path, http.NoBody)
	require.NoError(t, err)
	return req
}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// After Relist has ended an informer's watch, the informer must send a plain list. Until the informer has read the
// plain list, Watches refuses a request of this informer if the request contains a resourceVersion or asks for
// initial events. After two minutes, Watches no longer refuses these requests.
func TestRelist(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var watches transport.Watches
		client := watches.Wrap(wire(func(req *http.Request) (*http.Response, error) {
			if req.URL.Query().Has("watch") {
				return ok(hanging{req.Context()}), nil
			}
			return ok(http.NoBody), nil
		}))
		send := func(path string) (code int, ended func() bool) {
			t.Helper()
			resp, err := client.RoundTrip(newRequest(t, http.MethodGet, path))
			require.NoError(t, err)
			if resp.StatusCode != http.StatusOK {
				var status metav1.Status
				require.NoError(t, json.NewDecoder(resp.Body).Decode(&status))
				assert.EqualValues(t, resp.StatusCode, status.Code)
				return resp.StatusCode, nil
			}
			done := make(chan struct{})
			t.Cleanup(func() { _ = resp.Body.Close() })
			go func() {
				defer close(done)
				_, _ = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}()
			synctest.Wait()
			return resp.StatusCode, func() bool {
				synctest.Wait()
				select {
				case <-done:
					return true
				default:
					return false
				}
			}
		}
		_, ofPods := send("/api/v1/pods?watch=true&resourceVersion=7")
		_, ofShop := send("/api/v1/namespaces/shop/pods?watch=true&resourceVersion=7")
		_, ofSets := send("/apis/apps/v1/replicasets?watch=true&resourceVersion=7")
		assert.True(t, watches.Relist(pods, time.Minute)(), "they have just been sent")
		assert.False(t, ofPods())
		time.Sleep(time.Minute)
		done := watches.Relist(pods, time.Minute)
		assert.False(t, done())
		assert.True(t, ofPods())
		assert.True(t, ofShop(), "in each namespace")
		assert.False(t, ofSets())

		for _, step := range []struct {
			path string
			want int
			why  string
		}{
			{"/api/v1/pods?watch=true&resourceVersion=7", http.StatusGone, "it goes on from what it had"},
			{"/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersion=7", http.StatusGone, "a watch with initial events that does"},
			{"/api/v1/pods?watch=true&sendInitialEvents=true", http.StatusUnprocessableEntity, "a watch with initial events may hang too"},
			{"/api/v1/pods?resourceVersion=7", http.StatusGone, "a list that may be as old"},
			{"/api/v1/pods?limit=1", http.StatusOK, "a question for the version"},
			{"/api/v1/pods?watch=true&resourceVersion=7", http.StatusGone, "which is no list"},
			{"/api/v1/pods?labelSelector=a&limit=500", http.StatusOK, "a list of others"},
			{"/api/v1/pods/web", http.StatusOK, "a read"},
			{"/apis/apps/v1/replicasets?watch=true&resourceVersion=7", http.StatusOK, "another resource"},
			{"/api/v1/pods?limit=500", http.StatusOK, "the list"},
			{"/api/v1/pods?watch=true&resourceVersion=9", http.StatusOK, "and the watch after it"},
			{"/api/v1/namespaces/shop/pods?watch=true&resourceVersion=7", http.StatusGone, "those of the namespace have not been listed yet"},
			{"/api/v1/namespaces/shop/pods?watch=true", http.StatusOK, "a watch that nobody lists for"},
		} {
			assert.False(t, done(), "before %s", step.path)
			got, _ := send(step.path)
			assert.Equal(t, step.want, got, "%s: %s", step.path, step.why)
		}
		assert.False(t, done())
		time.Sleep(2 * time.Minute)
		assert.True(t, done(), "what is not listed has no informer any more")
		got, _ := send("/api/v1/namespaces/shop/pods?watch=true&resourceVersion=7")
		assert.Equal(t, http.StatusOK, got)
	})
}

func TestRelistOfAGuess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var watches transport.Watches
		client := watches.Wrap(wire(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done() // the context ends before the first byte of the answer
			return nil, req.Context().Err()
		}))
		ended := make(chan error, 1)
		go func() {
			_, err := client.RoundTrip(newRequest(t, http.MethodGet, "/apis/example.com/v1/proxmoxen?watch=1")) //nolint:bodyclose // there is none
			ended <- err
		}()
		synctest.Wait()
		watches.Relist(schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "proxmoxes"}, 0)
		synctest.Wait()
		assert.Empty(t, ended, "of another version")
		watches.Relist(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "proxmoxes"}, 0)
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.True(t, watches.Relist(pods, 0)(), "nobody watches them")
	})
}

func TestWatchesPassOn(t *testing.T) {
	t.Parallel()
	var watches transport.Watches
	failed := errors.New("no connection")
	client := watches.Wrap(wire(func(*http.Request) (*http.Response, error) { return nil, failed }))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, path := range []string{"/api/v1/pods", "/api/v1/pods?watch=true", "/", "/api", "/version"} {
			_, err := client.RoundTrip(newRequest(t, method, path)) //nolint:bodyclose // there is none
			require.ErrorIs(t, err, failed)
		}
	}
	wrapper, isWrapper := client.(interface{ WrappedRoundTripper() http.RoundTripper })
	require.True(t, isWrapper)
	assert.IsType(t, wire(nil), wrapper.WrappedRoundTripper())
	assert.Equal(t, http.DefaultTransport, watches.Wrap(nil).(interface{ WrappedRoundTripper() http.RoundTripper }).WrappedRoundTripper())
}
