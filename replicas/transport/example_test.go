// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/transport"
)

// A leader gives up its lease. The Fence then refuses the leader's writes, except requests for the lease.
func ExampleFence() {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	fence := transport.NewFence(types.NamespacedName{Namespace: "default", Name: "pools.example.com"}, 0)
	client := http.Client{Transport: fence.Wrap(nil)} // with client-go, call config.Wrap(fence.Wrap)
	send := func(method, path, body string) error {
		req, err := http.NewRequestWithContext(context.Background(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	renew := func(holder string) error {
		return send(http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/default/leases/pools.example.com",
			`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "`+holder+`"}}`)
	}
	for _, err := range []error{
		renew("me"),
		send(http.MethodPost, "/api/v1/namespaces/default/pods", "{}"),
		renew(""),
	} {
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(fence.Check(), send(http.MethodPost, "/api/v1/namespaces/default/pods", "{}") != nil, fence.Refused())
	// Output: not written: the lease is not held true 1
}
