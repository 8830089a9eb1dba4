// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// callOf reads the verb, the resource and the name of a request. It returns nil for requests that are not about objects.
func callOf(req *http.Request, body []byte) *Call {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	for len(parts) > 0 && parts[0] != "api" && parts[0] != "apis" {
		parts = parts[1:] // the server's address may have a path
	}
	skip := 2
	if len(parts) > 0 && parts[0] == "apis" {
		skip = 3
	}
	if len(parts) <= skip {
		return nil
	}
	parts = parts[skip:]
	c := &Call{Began: time.Now()}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		c.Namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	if c.Resource, c.Name = parts[0], parts[1]; parts[2] != "" {
		c.Resource += "/" + parts[2]
	}
	c.Verb = verbOf(req, c.Name)
	if c.Verb == "create" && c.Name == "" {
		c.Name = metaOf(body).Name
	}
	return c
}

func verbOf(req *http.Request, name string) string {
	switch req.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	if watch := req.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		return "watch"
	}
	if name == "" {
		return "list"
	}
	return "get"
}

// bodyOf reads the body of a request to its end and closes it, as a RoundTripper must.
func bodyOf(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer func() { _ = req.Body.Close() }()
	return io.ReadAll(req.Body)
}

// withBody returns a copy of a request, with a body that can be read again. The transport asks for compression
// itself, and then gives the answer uncompressed.
func withBody(ctx context.Context, req *http.Request, body []byte) *http.Request {
	req = req.Clone(ctx)
	req.Header.Del("Accept-Encoding")
	if req.Body != nil && req.Body != http.NoBody {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
	}
	return req
}

const protobufPrefix = "k8s\x00"

// metaOf reads the metadata of an object or a list in JSON or protobuf. If it can read neither, all fields are empty.
func metaOf(data []byte) (m metav1.PartialObjectMetadata) {
	body, isProtobuf := bytes.CutPrefix(data, []byte(protobufPrefix))
	if !isProtobuf {
		_ = json.Unmarshal(data, &m)
		return m
	}
	var object runtime.Unknown
	if object.Unmarshal(body) != nil {
		return m
	}
	if !strings.HasSuffix(object.Kind, "List") {
		_ = m.Unmarshal(object.Raw)
		return m
	}
	var list metav1.PartialObjectMetadataList
	_ = list.Unmarshal(object.Raw)
	m.ResourceVersion = list.ResourceVersion
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

// nextEvent reads one event of a watch, in lines of JSON or in protobuf, and the version of its object.
func nextEvent(body *bufio.Reader, isProtobuf bool) (event []byte, version uint64, err error) {
	if !isProtobuf {
		var e struct {
			Object json.RawMessage `json:"object"`
		}
		event, err = body.ReadBytes('\n')
		_ = json.Unmarshal(event, &e)
		return event, numberOf(metaOf(e.Object).ResourceVersion), err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(body, head); err != nil {
		return nil, 0, err
	}
	event = append(head, make([]byte, binary.BigEndian.Uint32(head))...)
	var e metav1.WatchEvent
	_, err = io.ReadFull(body, event[4:])
	_ = e.Unmarshal(event[4:])
	return event, numberOf(metaOf(e.Object.Raw).ResourceVersion), err
}

// errorEvent returns an event of type ERROR with a status.
func errorEvent(status metav1.Status, isProtobuf bool) []byte {
	if !isProtobuf {
		event := append([]byte(`{"type":"ERROR","object":`), encoded(status)...)
		return append(event, "}\n"...)
	}
	raw, _ := status.Marshal()
	object, _ := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}, Raw: raw}).Marshal()
	event, _ := (&metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: append([]byte(protobufPrefix), object...)}}).Marshal()
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

func statusOf(code int) metav1.Status {
	status := apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, false).Status()
	status.TypeMeta, status.Message = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, "faults: "+http.StatusText(code)
	if code == http.StatusGone {
		status.Reason = metav1.StatusReasonExpired
	}
	return status
}

func encoded(status metav1.Status) []byte {
	text, _ := json.Marshal(status)
	return text
}
