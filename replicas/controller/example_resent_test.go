// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/replicakit/replicakit/replicas/controller"
)

// The server is busy, so the client sends its request a second time. The server refuses the second request. The
// error shows that the first request may have taken effect.
func ExampleNoteResent() {
	answers := []int{http.StatusTooManyRequests, http.StatusForbidden}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answers[0])
		answers = answers[1:]
	}))
	defer server.Close()

	err := controller.NoteResent(context.Background(), func(ctx context.Context) error {
		for {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusTooManyRequests {
				return errors.New(resp.Status)
			}
		}
	})
	fmt.Println(err)
	fmt.Println("The first request may have taken effect:", errors.Is(err, controller.ErrResent))
	// Output:
	// 403 Forbidden (the request was sent more than once)
	// The first request may have taken effect: true
}
