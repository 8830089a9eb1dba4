// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A Proxy forwards calls to an API server over TLS and HTTP/2. Its clients have the rights of the
// client configuration that StartProxy was called with.
type Proxy struct{ server *httptest.Server }

// StartProxy starts a proxy on a free port of 127.0.0.1. The function answer gets each response
// before it is forwarded, when the call has already taken effect. It may change the response, replace
// its body, or panic with http.ErrAbortHandler, which loses the response. It must be safe for
// concurrent use.
func StartProxy(config *rest.Config, answer func(*http.Response) error) (*Proxy, error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	silent := log.New(io.Discard, "", 0)
	p := &Proxy{httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:      transport,
		FlushInterval:  -1, // forwards each watch event immediately
		ModifyResponse: answer,
		ErrorLog:       silent,
	})}
	p.server.EnableHTTP2, p.server.Config.ErrorLog = true, silent
	p.server.StartTLS()
	return p, nil
}

// Stop stops the proxy and closes all connections to it, including watches.
func (p *Proxy) Stop() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// Kubeconfig returns the content of a kubeconfig file for clients of the proxy.
func (p *Proxy) Kubeconfig() ([]byte, error) {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: p.server.URL, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"proxy": {}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy", AuthInfo: "proxy"}},
		CurrentContext: "proxy",
	})
	if err != nil {
		return nil, fmt.Errorf("controlplane: kubeconfig of the proxy: %w", err)
	}
	return content, nil
}
