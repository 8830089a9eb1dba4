// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/replicakit/replicakit/replicas/controller"
)

// longestRetryAfter is the longest time that client-go waits before it sends a request again. client-go
// sends a request again up to ten times, so no call waits longer than controller.MaxServerDelay.
const longestRetryAfter = controller.MaxServerDelay / 10

// CapRetryAfter limits the time by which a server can delay one call to controller.MaxServerDelay. Wrap a
// client's configuration with CapRetryAfter:
//
//	config.Wrap(clientgo.CapRetryAfter)
//
// If an answer has a Retry-After, client-go waits that long inside the call and then sends the request
// again, up to ten times. Any webhook can set this header to any number of seconds. While a call waits,
// the controller does nothing else for the owner. With CapRetryAfter, if an answer asks for a wait of more
// than 30 seconds, the call returns the server's error.
//
// With CapRetryAfter, client-go never sends a creation, a deletion or a patch again, because the first
// request may have taken effect. For example, the answer may come from a proxy that stopped waiting for
// the server. Such a call returns the server's error, which contains the delay. The controller then waits
// between two passes, and finds out whether the request took effect. client-go still sends requests for
// events again.
//
// If next is nil, http.DefaultTransport is used.
func CapRetryAfter(next http.RoundTripper) http.RoundTripper {
	return retryAfterCap{orElse(next, http.DefaultTransport)}
}

type retryAfterCap struct{ next http.RoundTripper }

var _ utilnet.RoundTripperWrapper = retryAfterCap{}

func (c retryAfterCap) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	const most = int(longestRetryAfter / time.Second)
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	switch {
	case err != nil:
	case mayHaveHadAnEffect(req, resp):
		return withoutRetry(req, resp, seconds)
	case seconds > most:
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

// mayHaveHadAnEffect reports whether sending a request twice could do harm.
func mayHaveHadAnEffect(req *http.Request, resp *http.Response) bool {
	switch req.Method {
	case http.MethodPost, http.MethodDelete, http.MethodPatch:
		again := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError
		return again && !eventPath.MatchString(req.URL.Path)
	}
	return false
}

var eventPath = regexp.MustCompile(`/namespaces/[^/]+/events(/[^/]+)?$`)

// withoutRetry moves the delay from the header of an answer into its body, so that client-go does not send
// the request again.
func withoutRetry(req *http.Request, resp *http.Response, seconds int) (*http.Response, error) {
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	status := statusOf(req, resp, body)
	if status.Details == nil {
		status.Details = &metav1.StatusDetails{}
	}
	status.Details.RetryAfterSeconds = int32(min(seconds, math.MaxInt32))
	if body, err = json.Marshal(status); err != nil {
		return nil, err
	}
	resp.Header.Del("Retry-After")
	resp.Header.Set("Content-Type", runtime.ContentTypeJSON)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

// statusOf returns the Status in the body. If the body holds no Status, statusOf returns the Status that
// client-go would make from the body.
func statusOf(req *http.Request, resp *http.Response, body []byte) metav1.Status {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	status, ok := obj.(*metav1.Status)
	if err != nil || !ok {
		text := strings.TrimSpace(string(body))
		status = &apierrors.NewGenericServerResponse(resp.StatusCode, req.Method, schema.GroupResource{}, "", text, 0, true).ErrStatus
	}
	status.Kind, status.APIVersion = "Status", "v1"
	return *status
}

// WrappedRoundTripper returns the wrapped RoundTripper, so that client-go can close its connections.
func (c retryAfterCap) WrappedRoundTripper() http.RoundTripper { return c.next }
