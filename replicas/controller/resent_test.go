// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/replicakit/replicakit/replicas/controller"
)

func TestNoteResent(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(server.Close)
	// call returns a function that sends the given number of requests and returns err.
	call := func(times int, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			for range times {
				req, failed := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
				require.NoError(t, failed)
				resp, failed := server.Client().Do(req)
				require.NoError(t, failed)
				require.NoError(t, resp.Body.Close())
			}
			return err
		}
	}
	for _, tt := range []struct {
		name  string
		times int
		err   error
		want  bool
	}{
		{"an error of a request that was sent twice", 2, quotaFull(), true},
		{"of one that was sent once", 1, quotaFull(), false},
		{"of one that was not sent", 0, quotaFull(), false},
		{"a success", 2, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := controller.NoteResent(t.Context(), call(tt.times, tt.err))
			require.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.want, errors.Is(err, controller.ErrResent))
			assert.Equal(t, tt.err != nil, apierrors.IsForbidden(err), "it is the server's still")
		})
	}
}
