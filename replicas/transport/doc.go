// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transport provides three wrappers of an http.RoundTripper for the client of an operator. Each of
// them can be used without the others:
//
//   - A Fence refuses the writes of a leader that can no longer prove that it holds its lease.
//   - The type Watches ends a watch that hangs, so that the informer lists its objects again.
//   - A Pace sends calls as fast as the server answers, instead of a constant number a second.
//
// With client-go or controller-runtime, wrap the configuration before you make a client from it:
//
//	config.Wrap(fence.Wrap)
//
// The package works with every client that sends its requests through net/http, and imports no Kubernetes
// client. All types are safe for concurrent use.
package transport

import "net/http"

// A roundTripper calls trip for each request, which may send it through the wrapped RoundTripper next.
type roundTripper struct {
	next http.RoundTripper
	trip func(next http.RoundTripper, req *http.Request) (*http.Response, error)
}

// wrap returns a RoundTripper that calls trip for each request. A nil next means http.DefaultTransport.
func wrap(next http.RoundTripper, trip func(next http.RoundTripper, req *http.Request) (*http.Response, error)) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return roundTripper{next, trip}
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.trip(r.next, req)
}

// WrappedRoundTripper returns the wrapped RoundTripper, whose idle connections client-go closes.
func (r roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

func isRead(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

// isWatch reports whether a request is a watch, which goes on until the client or the server ends it.
func isWatch(req *http.Request) bool {
	watch := req.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// refuse closes the body of a request that is not sent, and returns err.
func refuse(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, err
}
