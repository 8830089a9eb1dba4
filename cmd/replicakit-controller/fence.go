// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/internal/shard"
)

// A fence refuses every write that is not in a namespace of the range. What is in
// no namespace is in no range.
type fence struct {
	shard.Range
	base string // the path of the server's address, which may be the proxy of another one's
}

func newFence(r shard.Range, config *rest.Config) (fence, error) {
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fence{}, err
	}
	return fence{r, strings.TrimSuffix(address.Path, "/")}, nil
}

// wrap is for rest.Config.Wrap.
func (f fence) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if isRead(req) {
			return next.RoundTrip(req)
		}
		if namespace := f.namespaceOf(req); !f.Contains(namespace) {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, fmt.Errorf("not written: namespace %q is not in the range %v", namespace, f.Range)
		}
		return next.RoundTrip(req)
	})
}

// namespaceOf returns the namespace that a request to an API server is about, ""
// for none.
func (f fence) namespaceOf(req *http.Request) string {
	path, found := strings.CutPrefix(req.URL.Path, f.base+"/api")
	if !found {
		return ""
	}
	_, path, _ = strings.Cut(path, "/namespaces/")
	namespace, resource, _ := strings.Cut(path, "/")
	if resource == "" {
		return "" // of the namespace itself
	}
	return namespace
}
