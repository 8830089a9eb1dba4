// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// A fault changes the response to an API call. The call itself has already taken effect.
type fault func(answer *http.Response)

// cut closes the connection instead of sending the response.
func cut(answer *http.Response) {
	_ = answer.Body.Close()
	panic(http.ErrAbortHandler)
}

// tooMany replaces the response with an empty response. The new response has the status code 429 and a
// Retry-After of one second.
func tooMany(answer *http.Response) {
	_ = answer.Body.Close()
	answer.StatusCode, answer.Status = http.StatusTooManyRequests, ""
	answer.Body, answer.ContentLength = http.NoBody, 0
	answer.Header = http.Header{"Content-Length": {"0"}, "Retry-After": {"1"}}
}

// A proxy forwards the calls of a controller to the API server, and loses some of the responses.
type proxy struct {
	*controlplane.Proxy
	fault fault // changes the responses to creations, deletions and patches of pods
	armed atomic.Bool
	lost  atomic.Int64 // the number of lost responses
	draw  func() float64
}

// startProxy starts a proxy that connects to the API server with the given client configuration.
func startProxy(config *rest.Config, f fault) (*proxy, error) {
	p := &proxy{fault: f, draw: rand.Float64}
	var err error
	p.Proxy, err = controlplane.StartProxy(config, p.answer)
	return p, err
}

var podPath = regexp.MustCompile(`^/api/v1/(namespaces/[^/]+/)?pods(/[^/]+)?$`)

func (p *proxy) answer(answer *http.Response) error {
	req := answer.Request
	if podPath.MatchString(req.URL.Path) && req.Method != http.MethodGet && p.armed.Load() && p.draw() < lossShare {
		p.lost.Add(1)
		p.fault(answer)
	}
	return nil
}
