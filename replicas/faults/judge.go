// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Judge watches the owners and the children on the server. At each moment, an owner should have at most as many
// children as it wants, plus MaxSurge, and at least as many, minus MaxUnavailable. While the number moves to a new
// one, all numbers between both are right. The judge needs the rights to list and watch both resources.
//
// Call Begin first, Settled after each change of the owners, and End last. The methods of a Judge must not be called at the same
// time.
type Judge struct {
	Client *http.Client // of rest.HTTPClientFor, without the faults
	Server string       // the Host of the rest.Config
	Faults *Faults

	Namespace    string // empty means all namespaces
	Owner, Child schema.GroupVersionResource
	Wanted       func(owner *unstructured.Unstructured) int         // nil means spec.replicas, or 1 if it is missing
	Owns         func(owner, child *unstructured.Unstructured) bool // nil means that the child has an owner reference with the owner's UID
	Counts       func(child *unstructured.Unstructured) bool        // nil means children that are not being deleted, and pods that have not ended

	MaxSurge, MaxUnavailable int
	SettlesWithin            time.Duration // after the last change of a wanted number, and the last fault; zero means a minute
	Quiet                    time.Duration // how long Settled sees no change before it returns; zero means two seconds

	stop    context.CancelFunc
	began   time.Time
	mu      sync.Mutex
	moments []moment
	failed  error // the judge could not see everything
	late    []Break
}

// A moment is one change of an owner or a child on the server.
type moment struct {
	at      time.Time
	version uint64
	isOwner bool
	isGone  bool
	isFirst bool // it was there when the judge began
	object  *unstructured.Unstructured
}

// Begin lists the owners and children, and watches them until End, or until ctx ends. It returns an error if the
// server cannot be reached, if a right is missing, or if a rule of the Faults is not valid.
func (j *Judge) Begin(ctx context.Context) error {
	if j.Faults == nil || j.Client == nil || j.stop != nil {
		return errors.New("faults: a judge needs Client and Faults, and begins once")
	}
	if err := j.Faults.check(); err != nil {
		return err
	}
	ctx, j.stop = context.WithCancel(ctx)
	j.began = time.Now()
	for _, isOwner := range []bool{true, false} {
		list, err := j.list(ctx, isOwner)
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			j.record(moment{isOwner: isOwner, isFirst: true, object: &o})
		}
		body, err := j.get(ctx, isOwner, list.GetResourceVersion())
		if err != nil {
			return err
		}
		go j.watch(ctx, isOwner, list.GetResourceVersion(), body)
	}
	return nil
}

func (j *Judge) resource(isOwner bool) schema.GroupVersionResource {
	if isOwner {
		return j.Owner
	}
	return j.Child
}

// get sends a watch from a version of the owners or the children, or a list if there is no version.
func (j *Judge) get(ctx context.Context, isOwner bool, version string) (io.ReadCloser, error) {
	r := j.resource(isOwner)
	address := strings.TrimSuffix(j.Server, "/") + "/api/" + r.Version
	if r.Group != "" {
		address = strings.TrimSuffix(j.Server, "/") + "/apis/" + r.Group + "/" + r.Version
	}
	if j.Namespace != "" {
		address += "/namespaces/" + j.Namespace
	}
	if address += "/" + r.Resource; !strings.Contains(address, "://") {
		address = "https://" + address
	}
	if version != "" {
		address += "?watch=1&allowWatchBookmarks=1&resourceVersion=" + version
	}
	for tries := 1; ; tries++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return nil, fmt.Errorf("faults: judge: %w", err)
		}
		resp, err := j.Client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("faults: judge: the server cannot be reached: %w", err)
		}
		if resp.StatusCode == http.StatusOK {
			return resp.Body, nil
		}
		var status metav1.Status
		_ = json.NewDecoder(resp.Body).Decode(&status)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests || tries == 30 { // a server that begins to store a new kind answers so
			return nil, fmt.Errorf("faults: judge: %s: %s: %s", r.Resource, resp.Status, status.Message)
		}
		time.Sleep(time.Second)
	}
}

func (j *Judge) list(ctx context.Context, isOwner bool) (list unstructured.UnstructuredList, err error) {
	body, err := j.get(ctx, isOwner, "")
	if err != nil {
		return list, err
	}
	defer func() { _ = body.Close() }()
	if data, err := io.ReadAll(body); errors.Join(err, list.UnmarshalJSON(data)) != nil {
		return list, fmt.Errorf("faults: judge: the list of %s cannot be read", j.resource(isOwner).Resource)
	}
	return list, nil
}

// watch records all changes after a version. A watch that ends is continued after its last event.
func (j *Judge) watch(ctx context.Context, isOwner bool, version string, body io.ReadCloser) {
	for tries := 0; ctx.Err() == nil; tries++ {
		for events := bufio.NewReader(body); ; tries = 0 {
			line, err := events.ReadBytes('\n')
			if err != nil {
				break
			}
			var e struct {
				Type   string                    `json:"type"`
				Object unstructured.Unstructured `json:"object"`
			}
			if err := json.Unmarshal(line, &e); err != nil || e.Type == "ERROR" {
				j.fail(fmt.Errorf("faults: judge: the watch of %s missed changes: %s", j.resource(isOwner).Resource, line))
				return
			}
			if version = e.Object.GetResourceVersion(); e.Type != "BOOKMARK" {
				j.record(moment{isOwner: isOwner, isGone: e.Type == "DELETED", object: &e.Object})
			}
		}
		_ = body.Close()
		time.Sleep(time.Duration(tries) * 10 * time.Millisecond)
		again, err := j.get(ctx, isOwner, version)
		switch {
		case err == nil:
			body = again
		case tries > 50: // for about ten seconds, as long as a server takes to start again
			j.fail(err)
			return
		}
	}
}

func (j *Judge) record(m moment) {
	m.at = time.Now()
	m.version = numberOf(m.object.GetResourceVersion())
	j.mu.Lock()
	defer j.mu.Unlock()
	j.moments = append(j.moments, m)
}

func (j *Judge) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = errors.Join(j.failed, err)
}
