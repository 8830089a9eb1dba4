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

// longestRetryAfter is the maximum time that client-go waits before it resends a request. It does so up to ten
// times, so a call waits for at most controller.MaxServerDelay in total.
const longestRetryAfter = controller.MaxServerDelay / 10

// CapRetryAfter limits how long Retry-After headers can delay one call. The maximum is
// controller.MaxServerDelay. Add CapRetryAfter to the configuration of a client:
//
//	config.Wrap(clientgo.CapRetryAfter)
//
// After a response with the code 429 or 5xx and a Retry-After header, client-go waits for that time and resends
// the request, up to ten times in one call. Any webhook can set the header to any number of seconds, and while
// a call waits, the controller does nothing else for the owner. With CapRetryAfter, a call returns the server's
// error when the response demands a delay of more than 30 seconds.
//
// With CapRetryAfter, client-go never resends a create, delete or patch request, except for events, because the
// first request may have taken effect. For example, the response may come from a proxy that stopped waiting for
// the server. The call returns the server's error, which contains the delay, so the controller waits between
// two passes instead of within the call, and finds out whether the request took effect.
//
// A nil next means http.DefaultTransport.
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
		// A proxy stopped waiting for the server, which has created the pod. A second request would be refused,
		// because the pod exists.
		return withoutRetry(req, resp, seconds)
	case seconds > most: // client-go would wait so long up to ten times, and the owner with it
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

// mayHaveHadAnEffect reports whether a failed request may have taken effect, and is not about an event.
func mayHaveHadAnEffect(req *http.Request, resp *http.Response) bool {
	switch req.Method {
	case http.MethodPost, http.MethodDelete, http.MethodPatch:
		again := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError
		return again && !eventPath.MatchString(req.URL.Path)
	}
	return false
}

var eventPath = regexp.MustCompile(`/namespaces/[^/]+/events(/[^/]+)?$`)

// withoutRetry moves the delay from the response's Retry-After header to the Status in the body, so that
// client-go does not resend the request.
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

// statusOf returns the Status in the body, or the one that client-go would make from another body.
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

// WrappedRoundTripper returns the wrapped RoundTripper, whose idle connections client-go closes.
func (c retryAfterCap) WrappedRoundTripper() http.RoundTripper { return c.next }
