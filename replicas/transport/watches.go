// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// refusedFor is the maximum time for which an informer's watch requests are refused. They are accepted
	// again as soon as the informer lists its objects, but it may have ended.
	refusedFor = 2 * time.Minute
	// mostLists is the maximum number of informers that Watches remembers; a client usually has a few.
	mostLists = 1000
)

// Watches is a record of the watch requests of a client, and can make the client's informers list their objects
// again. A watch that hangs returns no error, so to the informer it looks like a watch of objects that do not
// change, until the connection ends. Packages replicas/clientgo and replicas/controllerruntime notice such a
// watch, if the field Watches is set in their Options.
//
// The zero Watches is ready to use, and must not be copied.
type Watches struct {
	mu    sync.Mutex
	lists map[string]*list // keyed by path, selectors and accepted types
}

// A list is the record of one informer's list and watch requests.
type list struct {
	resource schema.GroupVersionResource
	stale    time.Time // the requirement of a new list expires at this time; zero if no new list is required
	watches  map[*watching]struct{}
}

// A watching is a watch request that is under way.
type watching struct {
	end   context.CancelFunc
	heard atomic.Int64 // when the server last sent data, or when the request was sent
}

// Wrap returns a RoundTripper that sends requests through next, and records the watch requests. A nil next means
// http.DefaultTransport.
func (w *Watches) Wrap(next http.RoundTripper) http.RoundTripper { return wrap(next, w.trip) }

// Relist ends the watches of a resource, in all namespaces, that have been silent for at least the given
// duration, so that their informers list their objects. Relist does not wait for the lists, but done reports
// whether the server has answered all of them, or two minutes have passed; it is true if no watch was ended.
// The name of a resource is often guessed from a Kind. So when Watches has never seen a watch of the resource,
// Relist ends the silent watches of all resources with the same group and version.
//
// An informer has no method that starts a new list, but it lists its objects when the server says that the
// resourceVersion of its watch request is too old. Therefore Watches responds to the informer's requests with
// 410 Gone, as a server does, until the informer lists its objects, or for two minutes. It also refuses a watch
// with initial events in place of a list, because that watch could hang too.
func (w *Watches) Relist(resource schema.GroupVersionResource, silent time.Duration) (done func() bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	var stale []*list
	for _, l := range w.of(resource) {
		isSilent := func(is *watching) bool { return now.Sub(time.Unix(0, is.heard.Load())) >= silent }
		if len(l.watches) == 0 || !all(l.watches, isSilent) {
			continue
		}
		l.stale = now.Add(refusedFor)
		stale = append(stale, l)
		for is := range l.watches {
			is.end()
		}
	}
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !slices.ContainsFunc(stale, func(l *list) bool { return l.isStale(time.Now()) })
	}
}

func all(watches map[*watching]struct{}, is func(*watching) bool) bool {
	for one := range watches {
		if !is(one) {
			return false
		}
	}
	return true
}

// of returns the lists of the resource, or of all resources with its group and version if there are none.
func (w *Watches) of(resource schema.GroupVersionResource) (found []*list) {
	for _, l := range w.lists {
		if l.resource == resource {
			found = append(found, l)
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, l := range w.lists {
		if l.resource.GroupVersion() == resource.GroupVersion() {
			found = append(found, l)
		}
	}
	return found
}

func (l *list) isStale(now time.Time) bool { return now.Before(l.stale) }

func (w *Watches) trip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		return next.RoundTrip(req)
	}
	query := req.URL.Query()
	key := strings.Join([]string{req.URL.Path, query.Get("labelSelector"), query.Get("fieldSelector"), req.Header.Get("Accept")}, "\n")
	if !isWatch(req) {
		return w.tripOfList(next, req, key)
	}
	ctx, cancel := context.WithCancel(req.Context())
	is := &watching{end: cancel}
	is.heard.Store(time.Now().UnixNano())
	if refusal := w.begin(key, req, is); refusal != nil {
		cancel()
		return answer(req, refusal)
	}
	end := sync.OnceFunc(func() {
		cancel()
		w.end(key, is)
	})
	resp, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = body{resp.Body, end, func() { is.heard.Store(time.Now().UnixNano()) }}
	return resp, nil
}

// tripOfList sends a list request, which may be the one that a stale informer must send.
func (w *Watches) tripOfList(next http.RoundTripper, req *http.Request, key string) (*http.Response, error) {
	w.mu.Lock()
	l := w.lists[key]
	// A request with limit 1 asks for the server's version. The informer, whose watch hangs, has listed nothing.
	stale := l != nil && l.isStale(time.Now()) && req.URL.Query().Get("limit") != "1"
	w.mu.Unlock()
	if !stale {
		return next.RoundTrip(req)
	}
	if req.URL.Query().Get("resourceVersion") != "" { // such a list may be as old as the watch that hung
		return answer(req, expired())
	}
	resp, err := next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusOK {
		resp.Body = body{resp.Body, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			l.stale = time.Time{}
		}, func() {}}
	}
	return resp, err
}

func expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired("the watch hung, so its objects must be listed again")
}

// begin records a watch, or returns the error that makes the informer list its objects first.
func (w *Watches) begin(key string, req *http.Request, is *watching) *apierrors.StatusError {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lists) >= mostLists {
		clear(w.lists)
	}
	if w.lists == nil {
		w.lists = map[string]*list{}
	}
	l := w.lists[key]
	if l == nil {
		l = &list{resource: resourceOf(req.URL.Path), watches: map[*watching]struct{}{}}
		w.lists[key] = l
	}
	query := req.URL.Query()
	switch {
	case !l.isStale(time.Now()):
	case query.Get("resourceVersion") != "":
		return expired()
	case query.Get("sendInitialEvents") == "true":
		// The informer asks for a watch in place of a list, and that one may hang as well. After
		// an Invalid it sends a plain list.
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	l.watches[is] = struct{}{}
	return nil
}

func (w *Watches) end(key string, is *watching) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lists[key]; l != nil {
		delete(l.watches, is)
	}
}

// resourceOf returns the resource in the path of a list request, after a path in the server's address.
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

// answer makes the error response to a request that is not sent to the server.
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

// A body is a response body that calls heard when data was read, and closed when the body was closed.
type body struct {
	io.ReadCloser
	closed, heard func()
}

func (b body) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	if n > 0 {
		b.heard()
	}
	return n, err
}

func (b body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}
