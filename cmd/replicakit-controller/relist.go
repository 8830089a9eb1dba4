// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// A relister breaks watches that hang, with their connections, and has their resources
// listed anew. Informers have no such method, but they list anew if the server no longer
// has the version that they go on from. So the relister answers in the place of the server.
type relister struct {
	connections *connrotation.Dialer

	mu    sync.Mutex
	stale map[string]bool // the ends of paths, of what is to be listed anew
}

func newRelister() *relister {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &relister{connections: connrotation.NewDialer(dialer.DialContext), stale: map[string]bool{}}
}

// install is for the configuration of the informers' client, which gets connections of
// its own.
func (r *relister) install(config *rest.Config) {
	config.Dial = r.connections.DialContext
	config.Wrap(r.wrap)
}

// relist breaks all watches of the client: their connections may be the same. Those of
// other resources go on where they were.
func (r *relister) relist(resource schema.GroupVersionResource, namespace string) {
	r.mu.Lock()
	r.stale[listPath(resource, namespace)] = true
	r.mu.Unlock()
	r.connections.CloseAll()
}

// listPath is the end of the path by which a resource is listed and watched.
func listPath(resource schema.GroupVersionResource, namespace string) string {
	path := "/apis/" + resource.Group
	if resource.Group == "" {
		path = "/api"
	}
	path += "/" + resource.Version
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resource.Resource
}

func (r *relister) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if r.goesOn(req) {
			return expired(req)
		}
		return next.RoundTrip(req)
	})
}

// goesOn reports whether a request goes on from a version though all is to be listed anew.
func (r *relister) goesOn(req *http.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path := range r.stale {
		if !strings.HasSuffix(req.URL.Path, path) {
			continue
		}
		if req.URL.Query().Get("resourceVersion") != "" {
			return true
		}
		delete(r.stale, path)
	}
	return false
}

// expired is the answer of a server that no longer has the version.
func expired(req *http.Request) (*http.Response, error) {
	status := apierrors.NewResourceExpired("the watch hung, and what it was about is listed anew").Status()
	status.APIVersion, status.Kind = "v1", "Status"
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(http.StatusGone), StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)), Request: req,
	}, nil
}
