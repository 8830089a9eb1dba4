// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transport has three wrappers of an http.RoundTripper for the client of an operator. Use those
// that you need:
//
//   - A Fence refuses writes that a leader sends after it can no longer prove its lease.
//   - Watches end a watch that hangs, and have its objects listed again.
//   - A Pace sends calls as fast as the server answers, instead of a constant number a second.
//
// With client-go or controller-runtime, wrap the configuration before a client is made from it:
//
//	config.Wrap(fence.Wrap)
//
// The package imports net/http and no client. All types are safe for concurrent use.
package transport

import "net/http"

// roundTripper calls trip in place of next.
type roundTripper struct {
	next http.RoundTripper
	trip func(next http.RoundTripper, req *http.Request) (*http.Response, error)
}

// wrap returns a RoundTripper that calls trip. A nil next means http.DefaultTransport.
func wrap(next http.RoundTripper, trip func(next http.RoundTripper, req *http.Request) (*http.Response, error)) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return roundTripper{next, trip}
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.trip(r.next, req)
}

// WrappedRoundTripper lets client-go find the connections that it closes.
func (r roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

func isRead(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

// isWatch reports whether a request is answered until one of the two sides ends it.
func isWatch(req *http.Request) bool {
	watch := req.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// refuse returns err for a request that is not sent.
func refuse(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, err
}
