// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A fault is what becomes of the answer to a call that has taken effect.
type fault func(answer *http.Response)

// cut has no answer come.
func cut(answer *http.Response) {
	_ = answer.Body.Close()
	panic(http.ErrAbortHandler)
}

// replace has another answer come; retryAfter is in seconds, 0 for none.
func replace(code, retryAfter int) fault {
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

// A trouble is what a proxy does while it is armed. The zero trouble is none.
type trouble struct {
	fault  fault   // befalls answers to creations, deletions and patches of pods
	share  float64 // of these answers, from 0 to 1
	refuse int     // the status that patches of pods are answered with, and do not take effect; 0: they do
}

// A proxy is between a controller and the API server.
type proxy struct {
	*httptest.Server
	trouble trouble
	armed   atomic.Bool
	lost    atomic.Int64 // answers
	watches gate         // of pods
	lists   crowd        // of pods
	draw    func() float64
}

// startProxy starts one that has the rights of the config.
func startProxy(config *rest.Config, t trouble) (*proxy, error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	p := &proxy{trouble: t, draw: rand.Float64}
	p.watches.open()
	silent := log.New(io.Discard, "", 0)
	p.Server = httptest.NewUnstartedServer(p.counting(p.refusing(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:      transport,
		FlushInterval:  -1, // watches
		ModifyResponse: p.answer,
		ErrorLog:       silent,
	})))
	p.EnableHTTP2, p.Config.ErrorLog = true, silent
	p.StartTLS()
	return p, nil
}

var podPath = regexp.MustCompile(`^/api/v1/(namespaces/[^/]+/)?pods(/[^/]+)?$`)

func isOfPods(req *http.Request) bool { return podPath.MatchString(req.URL.Path) }

// counting counts lists of pods, but for those of one pod, which only ask for the version.
func (p *proxy) counting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/pods") && !query.Has("watch") && query.Get("limit") != "1" {
			defer p.lists.enter()()
		}
		next.ServeHTTP(w, req)
	})
}

// A crowd knows how many there were at once, at most.
type crowd struct {
	mu        sync.Mutex
	now, most int
}

func (c *crowd) enter() (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.most = max(c.most, c.now)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}
}

func (c *crowd) atMost() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

// refusing answers patches of pods itself.
func (p *proxy) refusing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		code := p.trouble.refuse
		if code == 0 || !p.armed.Load() || req.Method != http.MethodPatch || !isOfPods(req) {
			next.ServeHTTP(w, req)
			return
		}
		reasons := map[int]metav1.StatusReason{
			http.StatusBadRequest:          metav1.StatusReasonBadRequest,
			http.StatusForbidden:           metav1.StatusReasonForbidden,
			http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		}
		status := metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: "not that pod"}
		status.Kind, status.APIVersion = "Status", "v1"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(status)
	})
}

func (p *proxy) answer(answer *http.Response) error {
	req := answer.Request
	switch {
	case !isOfPods(req):
	case req.URL.Query().Has("watch"):
		answer.Body = gatedBody{answer.Body, &p.watches}
	case p.trouble.fault != nil && req.Method != http.MethodGet && p.armed.Load() && p.draw() < p.trouble.share:
		p.lost.Add(1)
		p.trouble.fault(answer)
	}
	return nil
}

// stop also ends the watches.
func (p *proxy) stop() {
	p.watches.open()
	p.CloseClientConnections()
	p.Close()
}

// A gate holds back what watches are told until it is opened.
type gate struct{ closed atomic.Pointer[chan struct{}] }

func (g *gate) close() { g.closed.Store(new(make(chan struct{}))) }

func (g *gate) open() {
	if closed := g.closed.Swap(nil); closed != nil {
		close(*closed)
	}
}

type gatedBody struct {
	io.ReadCloser
	gate *gate
}

func (b gatedBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	if closed := b.gate.closed.Load(); closed != nil {
		<-*closed
	}
	return n, err
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
