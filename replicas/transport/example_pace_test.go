// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/transport"
)

// One owner has many calls to make, and another owner has few. The owners take turns, so the owner with few
// calls does not have to wait for all calls of the other owner.
func ExamplePace() {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Millisecond) }))
	defer server.Close()
	client := http.Client{Transport: transport.NewPace(0, 0).Wrap(nil)} // with client-go, set config.QPS = -1 and call config.Wrap
	var calls sync.WaitGroup
	for owner, n := range map[string]int{"large": 500, "small": 5} {
		ctx := transport.WithOwner(context.Background(), types.NamespacedName{Namespace: "default", Name: owner})
		for range n {
			calls.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodDelete, server.URL, nil)
				if err != nil {
					return
				}
				if resp, err := client.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			})
		}
	}
	calls.Wait()
	fmt.Println("done")
	// Output: done
}
