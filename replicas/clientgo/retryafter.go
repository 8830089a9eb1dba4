package clientgo

import (
	"net/http"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

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
// times, whoever set it: a webhook that says 67 years is believed, and meanwhile
// nothing else is done for the owner. An answer that asks for more than 30 seconds
// ends the call at once. The error is the server's own: the controller reads the
// delay there, and waits without a call.
func CapRetryAfter(next http.RoundTripper) http.RoundTripper { return retryAfterCap{next} }

type retryAfterCap struct{ next http.RoundTripper }

var _ utilnet.RoundTripperWrapper = retryAfterCap{}

func (c retryAfterCap) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	const most = int(longestRetryAfter / time.Second)
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > most {
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the connections that are to be closed.
func (c retryAfterCap) WrappedRoundTripper() http.RoundTripper { return c.next }
