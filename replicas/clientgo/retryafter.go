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

// longestRetryAfter is what a client waits at most before it sends a request
// again, which it does ten times: with it, no call waits for longer than
// controller.MaxServerDelay.
const longestRetryAfter = controller.MaxServerDelay / 10

// CapRetryAfter lets no server keep a call waiting for more than
// controller.MaxServerDelay. It is for rest.Config.Wrap:
//
//	config.Wrap(clientgo.CapRetryAfter)
//
// A client waits within the call for what an answer's Retry-After says, up to ten
// times. Any webhook can set it, and one that says 67 years is believed; meanwhile
// nothing else is done for the owner. An answer that asks for more than 30 seconds
// ends the call at once. The error is the server's own: the controller reads the
// delay there, and waits without a call.
//
// A creation, a deletion or a patch is never sent again by the client itself, as
// the answer may come from somebody who gave up waiting for what took effect. The
// call ends with the server's error, which tells the delay, and the controller
// finds out what became of it. Events are sent again.
func CapRetryAfter(next http.RoundTripper) http.RoundTripper { return retryAfterCap{next} }

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

// mayHaveHadAnEffect reports whether it would matter that a request is sent twice.
func mayHaveHadAnEffect(req *http.Request, resp *http.Response) bool {
	switch req.Method {
	case http.MethodPost, http.MethodDelete, http.MethodPatch:
		again := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError
		return again && !eventPath.MatchString(req.URL.Path)
	}
	return false
}

var eventPath = regexp.MustCompile(`/namespaces/[^/]+/events(/[^/]+)?$`)

// withoutRetry returns the answer with the delay in the body, where the client
// does not go by it.
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

// statusOf returns the body as it is, or what the client would make of it.
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

// WrappedRoundTripper lets client-go find the connections that are to be closed.
func (c retryAfterCap) WrappedRoundTripper() http.RoundTripper { return c.next }
