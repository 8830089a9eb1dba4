// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// writeTimeout is the timeout of a write. API servers give up earlier.
const writeTimeout = time.Minute

// writes is a transport wrapper. It completes each write in progress, even if the context of the
// write is done. Without this, the response could be lost, and the next leader would have to find
// out whether the write succeeded. Reads and watches end as usual when their contexts are done.
type writes struct {
	underWay sync.RWMutex // read-locked by each write
}

// drain waits until all writes in progress have finished. After drain has been called, new writes
// fail immediately.
func (w *writes) drain() { w.underWay.Lock() }

var errDrained = errors.New("write not sent: the controllers have ended")

// wrap is a transport wrapper for rest.Config.Wrap.
func (w *writes) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if isRead(req) {
			return next.RoundTrip(req)
		}
		if !w.underWay.TryRLock() {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, errDrained
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), writeTimeout)
		end := sync.OnceFunc(func() {
			cancel()
			w.underWay.RUnlock()
		})
		resp, err := next.RoundTrip(req.WithContext(ctx))
		if err != nil {
			end()
			return nil, err
		}
		resp.Body = body{ReadCloser: resp.Body, closed: end}
		return resp, nil
	})
}

func isRead(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A body is the body of a response. The method Close also calls the function in the field closed.
// Clients call Close after they have read the response.
type body struct {
	io.ReadCloser
	closed func()
}

func (b body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}
