// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// answerTo returns an answer of the API server to a request.
func answerTo(ctx context.Context, method, target string) *http.Response {
	return &http.Response{Request: httptest.NewRequestWithContext(ctx, method, target, nil), Body: io.NopCloser(strings.NewReader("an event"))}
}

// While the watch of the pods hangs, its events do not arrive. They arrive when the watch goes on, or the read ends
// with the request. Nothing else is held.
func TestTheWatchOfThePodsHangs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		method, target string
		held           bool
	}{
		"the watch":                         {http.MethodGet, "/api/v1/pods?watch=true", true},
		"the watch of a namespace":          {http.MethodGet, "/api/v1/namespaces/default/pods?watch=true", true},
		"a list":                            {http.MethodGet, "/api/v1/pods", false},
		"the watch of the ReplicaSets":      {http.MethodGet, "/apis/apps/v1/replicasets?watch=true", false},
		"the answer to the read of one pod": {http.MethodGet, "/api/v1/namespaces/default/pods/web", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, end := range []string{"the watch goes on", "the request ends"} {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					f := &faults{}
					answer := answerTo(ctx, tt.method, tt.target) //nolint:bodyclose // there is no connection
					require.NoError(t, f.answer(answer))
					f.hang()
					read := make(chan string, 1)
					go func() {
						part := make([]byte, 100)
						n, _ := answer.Body.Read(part)
						read <- string(part[:n])
					}()
					synctest.Wait()
					assert.Len(t, read, map[bool]int{true: 0, false: 1}[tt.held])
					if end == "the watch goes on" {
						f.goOn()
					} else {
						cancel()
					}
					assert.Equal(t, "an event", <-read)
				})
			}
		})
	}
}

// Only the answer to one creation is lost.
func TestOneAnswerIsLost(t *testing.T) {
	t.Parallel()
	f := &faults{}
	f.loses.Store(true)
	create := func() { _ = f.answer(answerTo(t.Context(), http.MethodPost, "/api/v1/namespaces/default/pods")) } //nolint:bodyclose // there is no connection
	require.NoError(t, f.answer(answerTo(t.Context(), http.MethodPost, "/api/v1/namespaces/default/events")))    //nolint:bodyclose // there is no connection
	assert.PanicsWithValue(t, http.ErrAbortHandler, create)
	assert.NotPanics(t, create)
}
