// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// pathOf matches the path of a request for objects: namespace, resource, name and subresource.
var pathOf = regexp.MustCompile(`^.*?/(?:api|apis/[^/]+)/v[^/]+/(?:namespaces/([^/]+)/)?([^/]+)(?:/([^/]+))?(?:/([^/]+))?$`)

var methods = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get",
}

// callOf reads the verb, the resource and the name of a request. It returns nil for requests that are not about objects.
func callOf(req *http.Request, body []byte) *Call {
	part := pathOf.FindStringSubmatch(req.URL.Path)
	if part == nil {
		return nil
	}
	c := &Call{Began: time.Now(), Verb: methods[req.Method], Namespace: part[1], Resource: part[2], Name: part[3]}
	if c.Namespace != "" && (c.Resource == "status" || c.Resource == "finalize") {
		c.Namespace, c.Resource, c.Name, part[4] = "", "namespaces", c.Namespace, c.Resource
	}
	if part[4] != "" {
		c.Resource += "/" + part[4]
	}
	watch := req.URL.Query().Get("watch")
	switch {
	case c.Verb == "get" && (watch == "true" || watch == "1"):
		c.Verb = "watch"
	case c.Verb == "get" && c.Name == "":
		c.Verb = "list"
	case c.Verb == "delete" && c.Name == "":
		c.Verb = "deletecollection"
	case c.Verb == "create":
		c.Name = cmp.Or(c.Name, metaOf(body).Name)
	}
	return c
}

// bodyOf reads the body of a request to its end and closes it, as a RoundTripper must.
func bodyOf(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer func() { _ = req.Body.Close() }()
	return io.ReadAll(req.Body)
}

// withBody returns a copy of a request, with a body that can be read again. The server is asked for JSON in place of
// other encodings, which any client understands too. Compression is left to the transport.
func withBody(ctx context.Context, req *http.Request, body []byte) *http.Request {
	req = req.Clone(ctx)
	req.Header.Del("Accept-Encoding")
	if accept := req.Header.Get("Accept"); accept != "" {
		req.Header.Set("Accept", otherEncodings.ReplaceAllString(accept, runtime.ContentTypeJSON))
	}
	if req.Body != nil && req.Body != http.NoBody {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
	}
	return req
}

var otherEncodings = regexp.MustCompile(`application/(vnd\.kubernetes\.protobuf|cbor(-seq)?)`)

// metaOf reads the metadata of an object or a list in JSON, or of an object in protobuf. If it can read neither, all
// fields are empty.
func metaOf(data []byte) (m metav1.PartialObjectMetadata) {
	var object runtime.Unknown
	if body, isProtobuf := bytes.CutPrefix(data, []byte("k8s\x00")); !isProtobuf {
		_ = json.Unmarshal(data, &m)
	} else if object.Unmarshal(body) == nil {
		_ = m.Unmarshal(object.Raw)
	}
	return m
}

func numberOf(version string) uint64 {
	number, _ := strconv.ParseUint(version, 10, 64)
	return number
}

func isWatch(c *Call, resp *http.Response) bool {
	return c.Verb == "watch" && resp.StatusCode == http.StatusOK
}

// isWatchList reports whether a watch begins with the existing objects.
func isWatchList(req *http.Request) bool { return req.URL.Query().Get("sendInitialEvents") == "true" }

// asksCache reports whether a list, or a watch with initial events, may be answered with any state.
func asksCache(req *http.Request) bool {
	version := req.URL.Query().Get("resourceVersion")
	return version == "0" || version == "" && isWatchList(req)
}

// old changes a list of the cache into one of an earlier version.
func old(req *http.Request, version uint64) *http.Request {
	req = req.Clone(req.Context())
	query := req.URL.Query()
	query.Set("resourceVersion", strconv.FormatUint(version, 10))
	query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	req.URL.RawQuery = query.Encode()
	return req
}

// refuse answers a call in place of the server.
func refuse(req *http.Request, r Rule) (*http.Response, error) {
	if r.Status == 0 {
		return nil, errBroken
	}
	resp := &http.Response{
		Status: http.StatusText(r.Status), StatusCode: r.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(encoded(statusOf(r.Status)))),
		ContentLength: -1, Request: req,
	}
	if r.Delay > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(int((r.Delay+time.Second-1)/time.Second)))
	}
	return resp, nil
}

// A watchEvent is one line of a watch.
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

func statusOf(code int) metav1.Status {
	status := apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, false).Status()
	status.TypeMeta, status.Message = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, "faults: "+http.StatusText(code)
	if code == http.StatusGone {
		status.Reason = metav1.StatusReasonExpired
	}
	return status
}

func encoded(object any) []byte {
	text, _ := json.Marshal(object) // of our own types, which have nothing that cannot be encoded
	return text
}
