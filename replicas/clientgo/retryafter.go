package clientgo

import (
	"net/http"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/replicakit/replicakit/replicas"
)

// CapRetryAfter lets no server ask for a delay of more than
// replicas.MaxServerDelay. It is for rest.Config.Wrap:
//
//	config.Wrap(clientgo.CapRetryAfter)
//
// A client waits within the call for what an answer's Retry-After says, up to ten
// times, whoever set it: a webhook that says 67 years is believed. The error that
// a call returns in the end is the server's own.
func CapRetryAfter(next http.RoundTripper) http.RoundTripper { return retryAfterCap{next} }

type retryAfterCap struct{ next http.RoundTripper }

var _ utilnet.RoundTripperWrapper = retryAfterCap{}

func (c retryAfterCap) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	const most = int(replicas.MaxServerDelay / time.Second)
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > most {
		resp.Header.Set("Retry-After", strconv.Itoa(most))
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the connections that are to be closed.
func (c retryAfterCap) WrappedRoundTripper() http.RoundTripper { return c.next }
