// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Watches knows the watches of a client, and can have their objects listed anew. A watch that
// hangs returns no error, and is as quiet as one of objects that do not change, so an informer waits
// for as long as the connection lasts. Give Watches to the Options of replicas/clientgo or
// replicas/controllerruntime, which notice such a watch.
//
// The zero value is ready to use. It must not be copied.
type Watches struct {
	mu    sync.Mutex
	lists map[string]*list // by path and selectors
}

// A list is what one informer lists and watches.
type list struct {
	resource schema.GroupVersionResource
	stale    bool // it has to be listed anew
	watches  map[*http.Request]context.CancelFunc
}

// Wrap returns a RoundTripper that sends requests with next, and notes the watches among them. A nil
// next means http.DefaultTransport.
func (w *Watches) Wrap(next http.RoundTripper) http.RoundTripper { return wrap(next, w.trip) }

// Relist ends the watches of a resource in all namespaces, and makes their informers send a list
// instead of a watch with initial events, which could hang as well. It returns at once. done
// reports whether all of these lists have been answered. If there is no watch of the resource, Relist does the
// same for all resources of the group and version, because the plural of a Kind is often a guess.
//
// An informer has no method for this, but it lists if the server no longer has the version that its
// watch starts from. So until the informer lists, its requests are answered with 410 Gone, as a
// server would.
func (w *Watches) Relist(resource schema.GroupVersionResource) (done func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var stale []*list
	for _, same := range []func(schema.GroupVersionResource) bool{
		func(r schema.GroupVersionResource) bool { return r == resource },
		func(r schema.GroupVersionResource) bool { return r.GroupVersion() == resource.GroupVersion() },
	} {
		for _, l := range w.lists {
			if same(l.resource) {
				l.stale = true
				stale = append(stale, l)
			}
		}
		if len(stale) > 0 {
			break
		}
	}
	for _, l := range stale {
		for _, end := range l.watches {
			end()
		}
	}
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !slices.ContainsFunc(stale, func(l *list) bool { return l.stale })
	}
}

func (w *Watches) trip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		return next.RoundTrip(req)
	}
	query := req.URL.Query()
	key := req.URL.Path + "?" + query.Get("labelSelector") + "&" + query.Get("fieldSelector")
	if refusal := w.refusal(key, query, isWatch(req)); refusal != nil {
		return answer(req, refusal)
	}
	if !isWatch(req) {
		resp, err := next.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusOK && query.Get("limit") != "1" {
			w.listed(key)
		}
		return resp, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	w.begin(key, req, cancel)
	end := sync.OnceFunc(func() {
		cancel()
		w.end(key, req)
	})
	resp, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = closing{resp.Body, end}
	return resp, nil
}

// refusal is the answer instead of the server's while a list is stale; nil if the request may be sent.
// A list of one object only asks for the version.
func (w *Watches) refusal(key string, query url.Values, watch bool) *apierrors.StatusError {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lists[key]
	switch {
	case l == nil || !l.stale || !watch && query.Get("limit") == "1":
		return nil
	case query.Get("resourceVersion") != "":
		return apierrors.NewResourceExpired("the watch hung, and its objects are listed anew")
	case watch && query.Get("sendInitialEvents") == "true":
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	case watch: // nobody lists for it
		l.stale = false
	}
	return nil
}

// listed notes that a list has been answered.
func (w *Watches) listed(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lists[key]; l != nil {
		l.stale = false
		w.drop(key)
	}
}

func (w *Watches) begin(key string, req *http.Request, cancel context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lists == nil {
		w.lists = map[string]*list{}
	}
	if w.lists[key] == nil {
		w.lists[key] = &list{resource: resourceOf(req.URL.Path), watches: map[*http.Request]context.CancelFunc{}}
	}
	w.lists[key].watches[req] = cancel
}

func (w *Watches) end(key string, req *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lists[key]; l != nil {
		delete(l.watches, req)
		w.drop(key)
	}
}

// drop forgets a list that nothing is left of. The lock must be held.
func (w *Watches) drop(key string) {
	if l := w.lists[key]; !l.stale && len(l.watches) == 0 {
		delete(w.lists, key)
	}
}

// resourceOf returns the resource of the path of a list: what a server's address has before it does not
// matter.
func resourceOf(path string) (resource schema.GroupVersionResource) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	n := len(parts)
	if n < 3 {
		return resource
	}
	resource.Resource, parts = parts[n-1], parts[:n-1]
	if n > 4 && parts[n-3] == "namespaces" {
		parts = parts[:n-3]
	}
	n = len(parts)
	resource.Version = parts[n-1]
	if n > 2 && parts[n-3] == "apis" {
		resource.Group = parts[n-2]
	}
	return resource
}

// answer answers a request in the place of the server.
func answer(req *http.Request, refusal *apierrors.StatusError) (*http.Response, error) {
	status := refusal.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(int(status.Code)), StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)), Request: req,
	}, nil
}

// closing is a body that says when it is closed.
type closing struct {
	io.ReadCloser
	closed func()
}

func (c closing) Close() error {
	defer c.closed()
	return c.ReadCloser.Close()
}
