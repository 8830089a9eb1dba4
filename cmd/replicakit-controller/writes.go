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

// writeTimeout ends a write that gets no answer. It is longer than an API server takes to give
// up by itself.
const writeTimeout = time.Minute

// writes lets every write that has begun finish, even if its context ends. Otherwise the answer
// would be lost, and the next leader would have to find out whether the write succeeded. Reads and
// watches end at once.
type writes struct {
	underWay sync.RWMutex // read-locked by each write
}

// drain waits for the writes under way. A write that begins later fails at once, without
// waiting.
func (w *writes) drain() { w.underWay.Lock() }

var errDrained = errors.New("not written: the controllers have ended")

// wrap is for rest.Config.Wrap.
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

// A body calls closed when it is closed, because the answer has then been read.
type body struct {
	io.ReadCloser
	closed func()
}

func (b body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}
