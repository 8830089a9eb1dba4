// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
	*httptest.Server
	fault fault // changes the responses to creations, deletions and patches of pods
	armed atomic.Bool
	lost  atomic.Int64 // the number of lost responses
	draw  func() float64
}

// startProxy starts a proxy that connects to the API server with the given client configuration.
func startProxy(config *rest.Config, f fault) (*proxy, error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	p := &proxy{fault: f, draw: rand.Float64}
	silent := log.New(io.Discard, "", 0)
	p.Server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:      transport,
		FlushInterval:  -1, // forwards each watch event immediately
		ModifyResponse: p.answer,
		ErrorLog:       silent,
	})
	p.EnableHTTP2, p.Config.ErrorLog = true, silent
	p.StartTLS()
	return p, nil
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

// stop stops the proxy and closes all connections to it, including watches.
func (p *proxy) stop() {
	p.CloseClientConnections()
	p.Close()
}

// kubeconfig returns the kubeconfig for clients of the proxy.
func (p *proxy) kubeconfig() ([]byte, error) {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: p.URL, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"proxy": {}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy", AuthInfo: "proxy"}},
		CurrentContext: "proxy",
	})
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the proxy: %w", err)
	}
	return content, nil
}
