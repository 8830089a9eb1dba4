// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync/atomic"
)

// ErrResent is in the error of Client.Create if the client sent the request more than
// once. The server may have made the child at the first request although it refused
// the second, so the Controller looks for the child, and keeps its name.
var ErrResent = errors.New("the request was sent more than once")

// NoteResent calls send, which makes one call over net/http, and adds ErrResent to its
// error if the request was sent more than once. client-go does that by itself if the
// server answers 429 or 5xx with Retry-After. NoteResent is for the Create of a Client:
//
//	err = controller.NoteResent(ctx, func(ctx context.Context) error {
//		created, err = pods.Create(ctx, pod, metav1.CreateOptions{})
//		return err
//	})
//
// It counts what net/http/httptrace reports. An http.RoundTripper that does not end in an
// http.Transport may report nothing: then NoteResent returns the error as it is.
func NoteResent(ctx context.Context, send func(ctx context.Context) error) error {
	if send == nil {
		return errors.New("controller: send is nil")
	}
	var sent atomic.Int64
	err := send(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }}))
	if err != nil && sent.Load() > 1 {
		return fmt.Errorf("%w (%w)", err, ErrResent)
	}
	return err
}
