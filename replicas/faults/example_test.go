// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/replicakit/replicakit/replicas/faults"
)

// The answer to the first creation is lost, although the pod exists. With client-go, use config.Wrap(f.Wrap).
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		fmt.Println("the server gets", req.Method, req.URL.Path)
	}))
	defer server.Close()
	f := &faults.Faults{Rules: []faults.Rule{{Verb: "create", Resource: "pods", Times: 1, Fault: faults.LoseAnswer}}}
	client := &http.Client{Transport: f.Wrap(nil)}
	for range 2 {
		resp, err := client.Post(server.URL+"/api/v1/namespaces/default/pods", "application/json", strings.NewReader(`{"metadata":{"name":"web"}}`))
		if err != nil {
			fmt.Println("the client gets no answer")
			continue
		}
		_ = resp.Body.Close()
		fmt.Println("the client gets", resp.Status)
	}
	// Output:
	// the server gets POST /api/v1/namespaces/default/pods
	// the client gets no answer
	// the server gets POST /api/v1/namespaces/default/pods
	// the client gets 200 OK
}

// Each seed is a bad minute of its own.
func ExampleMinute() {
	for seed := range uint64(3) {
		fmt.Println("seed", seed)
		for _, rule := range faults.Minute(seed, "workerpools", "workers") {
			fmt.Println(" ", rule.Verb, rule.Resource, rule.Fault, rule.Delay)
		}
	}
	// Output:
	// seed 0
	//   create workers watch hangs 3.711s
	//   create workers answer lost 0s
	// seed 1
	//   delete workers watch hangs 3.84s
	//   delete workers answer lost 0s
	// seed 2
	//    workers watch late 2.369s
}
