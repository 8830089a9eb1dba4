// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transport has three things that an operator's client lacks, as wrappers of its
// http.RoundTripper. Use those that you need:
//
//   - A Fence refuses writes that a leader sends after it can no longer prove its lease.
//   - Watches break a watch that hangs, and have its objects listed anew.
//   - A Pace sends calls as fast as the server answers, and no constant number a second.
//
// With client-go or controller-runtime, wrap the configuration before a client is made from it:
//
//	config.Wrap(fence.Wrap)
//
// The package imports net/http and no client. All types are safe for concurrent use.
package transport

import "net/http"

// roundTripper is next with something before it.
type roundTripper struct {
	next http.RoundTripper
	trip func(next http.RoundTripper, req *http.Request) (*http.Response, error)
}

// wrap returns next with trip before it. A nil next means http.DefaultTransport.
func wrap(next http.RoundTripper, trip func(next http.RoundTripper, req *http.Request) (*http.Response, error)) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return roundTripper{next, trip}
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.trip(r.next, req)
}

// WrappedRoundTripper lets client-go find the connections that are to be closed.
func (r roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

func isRead(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

// isWatch reports whether a request is answered until one of the two sides ends it.
func isWatch(req *http.Request) bool {
	watch := req.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// refuse ends a request that is not sent.
func refuse(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, err
}
