// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// faults are what can go wrong between the controller and the API server. The controller connects
// through a proxy, which calls the method answer.
type faults struct {
	loses atomic.Bool // whether the next answer to the creation of a pod is lost
	mu    sync.Mutex
	gate  chan struct{} // open while the watch of the pods hangs; nil if it never has
}

// hang makes the watch of the pods hang, until goOn is called.
func (f *faults) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = make(chan struct{})
}

func (f *faults) goOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.gate)
}

// wait returns when the watch does not hang, or when ctx is done.
func (f *faults) wait(ctx context.Context) {
	f.mu.Lock()
	gate := f.gate
	f.mu.Unlock()
	if gate == nil {
		return
	}
	select {
	case <-gate:
	case <-ctx.Done():
	}
}

// answer holds or loses the responses that the faults affect.
func (f *faults) answer(answer *http.Response) error {
	req := answer.Request
	switch {
	case !strings.HasSuffix(req.URL.Path, "/pods"):
	case req.Method == http.MethodGet && req.URL.Query().Get("watch") != "":
		answer.Body = &lateBody{answer.Body, req.Context(), f}
	case req.Method == http.MethodPost && f.loses.CompareAndSwap(true, false):
		_ = answer.Body.Close()
		panic(http.ErrAbortHandler) // the proxy closes the stream instead of answering
	}
	return nil
}

// A lateBody is the body of a watch. Its events arrive late if the watch hangs.
type lateBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // Read has no argument for it
	faults *faults
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.faults.wait(b.ctx)
	return n, err
}
