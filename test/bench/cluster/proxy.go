package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A fault is what becomes of the answer to a creation that has taken effect.
type fault func(answer *http.Response)

// cut has no answer come.
func cut(answer *http.Response) {
	_ = answer.Body.Close()
	panic(http.ErrAbortHandler)
}

// refuse has another answer come; retryAfter is in seconds, 0 for none.
func refuse(code, retryAfter int) fault {
	return func(answer *http.Response) {
		_ = answer.Body.Close()
		answer.StatusCode, answer.Status = code, ""
		answer.Body, answer.ContentLength = http.NoBody, 0
		answer.Header = http.Header{"Content-Length": {"0"}}
		if retryAfter > 0 {
			answer.Header.Set("Retry-After", strconv.Itoa(retryAfter))
		}
	}
}

// A proxy is between a controller and the API server. While it is armed, the
// fault befalls every tenth creation of a pod.
type proxy struct {
	*httptest.Server
	fault     fault // nil: none
	armed     atomic.Bool
	creations atomic.Int64
}

const oneIn = 10

// startProxy starts one that has the rights of the config.
func startProxy(config *rest.Config, fault fault) (*proxy, error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	p := &proxy{fault: fault}
	silent := log.New(io.Discard, "", 0)
	p.Server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:      transport,
		FlushInterval:  -1, // watches
		ModifyResponse: p.answer,
		ErrorLog:       silent,
	})
	p.EnableHTTP2, p.Config.ErrorLog = true, silent
	p.StartTLS()
	return p, nil
}

func (p *proxy) answer(answer *http.Response) error {
	created := answer.StatusCode == http.StatusCreated && strings.HasSuffix(answer.Request.URL.Path, "/pods")
	if p.fault != nil && created && p.armed.Load() && p.creations.Add(1)%oneIn == 0 {
		p.fault(answer)
	}
	return nil
}

// stop also ends the watches.
func (p *proxy) stop() {
	p.CloseClientConnections()
	p.Close()
}

// kubeconfig is for whom the proxy speaks.
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
