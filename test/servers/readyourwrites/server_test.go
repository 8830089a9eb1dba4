// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package readyourwrites_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/mergepatch"
)

// A server simulates an API server with the pods and the ReplicaSets of one namespace. A pod is gone as soon as it
// is deleted. Pods never become ready.
type server struct {
	mu      sync.Mutex
	changed *sync.Cond
	version int // the resourceVersion of the newest change
	made    int // how many creations were requested
	objects map[string]map[string]*unstructured.Unstructured
	events  map[string][]event // by resource, since the last restore
	epoch   int                // how many restores there were; each restore ends all watches
	held    bool               // whether watches of pods send nothing new
	lossy   bool               // whether the answer to the next write of a pod is lost, after the write has taken effect

	changedPods func() // called with mu held after each change of an object; may be nil
}

type event struct {
	Type   string                     `json:"type"`
	Object *unstructured.Unstructured `json:"object"`
}

var kinds = map[string]schema.GroupVersionKind{
	"pods":        {Version: "v1", Kind: "Pod"},
	"replicasets": {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
}

func newServer() *server {
	s := &server{version: 100, objects: map[string]map[string]*unstructured.Unstructured{}, events: map[string][]event{}}
	for resource := range kinds {
		s.objects[resource] = map[string]*unstructured.Unstructured{}
	}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// change calls the given function with mu held, and wakes the watches.
func (s *server) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.changed.Broadcast()
}

func (s *server) hold()    { s.change(func() { s.held = true }) }
func (s *server) goOn()    { s.change(func() { s.held = false }) }
func (s *server) loseOne() { s.change(func() { s.lossy = true }) }

// restore simulates a restore from a backup that contains all current objects. Afterwards, each object has a lower
// resourceVersion than before. All watches end.
func (s *server) restore() {
	s.change(func() {
		s.version, s.events = 10, map[string][]event{}
		for _, objects := range s.objects {
			for _, object := range objects {
				s.version++
				object.SetResourceVersion(strconv.Itoa(s.version))
			}
		}
		s.epoch++
	})
}

// wanted returns how many pods an owner wants.
func (s *server) wanted(owner string) (n int) {
	s.change(func() { n = s.wants(owner) })
	return n
}

// wants returns how many pods an owner wants. The caller must hold mu.
func (s *server) wants(owner string) int {
	replicas, _, _ := unstructured.NestedInt64(s.objects["replicasets"][owner].Object, "spec", "replicas")
	return int(replicas)
}

// pods returns how many pods an owner has.
func (s *server) pods(owner string) (n int) {
	s.change(func() { n = s.count(owner) })
	return n
}

// count returns how many pods an owner has. The caller must hold mu.
func (s *server) count(owner string) (n int) {
	for _, pod := range s.objects["pods"] {
		if pod.GetLabels()["owner"] == owner {
			n++
		}
	}
	return n
}

// store stores an object with a new resourceVersion, or removes the object if kind is DELETED. It then adds an
// event, and wakes the watches.
func (s *server) store(kind, resource string, object *unstructured.Unstructured) {
	s.version++
	object = object.DeepCopy() // earlier events keep the old version of the object
	object.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[resource][object.GetName()] = object
	if kind == "DELETED" {
		delete(s.objects[resource], object.GetName())
	}
	s.events[resource] = append(s.events[resource], event{kind, object})
	if s.changedPods != nil {
		s.changedPods()
	}
	s.changed.Broadcast()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(r.URL.Path, "/")
	for i, resource := range path {
		if _, ok := kinds[resource]; ok {
			name := strings.Join(path[i+1:min(i+2, len(path))], "")
			if r.URL.Query().Get("watch") != "" {
				s.watch(w, r, resource)
				return
			}
			s.answer(w, r, resource, name)
			return
		}
	}
	refuse(w, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path))
}

// answer handles one request. If the field lossy is set and the request writes a pod, answer closes the connection
// instead of sending the answer.
func (s *server) answer(w http.ResponseWriter, r *http.Request, resource, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, refused := s.call(r, resource, name)
	if s.lossy && resource == "pods" && r.Method != http.MethodGet {
		s.lossy = false
		if connection, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = connection.Close()
		}
		return
	}
	if refused != nil {
		refuse(w, refused)
		return
	}
	send(w, http.StatusOK, answer)
}

func (s *server) call(r *http.Request, resource, name string) (answer any, refused *apierrors.StatusError) {
	if r.Method == http.MethodGet && name == "" {
		return s.list(r, resource), nil
	}
	if r.Method == http.MethodPost {
		return s.create(r, resource)
	}
	object := s.objects[resource][name]
	if object == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	switch r.Method {
	case http.MethodGet:
		return object, nil
	case http.MethodPut:
		put := &unstructured.Unstructured{}
		_ = json.NewDecoder(r.Body).Decode(put)
		s.store("MODIFIED", resource, put)
		return s.objects[resource][name], nil
	case http.MethodPatch: // the controllers patch only the status
		patch, patched := map[string]any{}, object.DeepCopy()
		_ = json.NewDecoder(r.Body).Decode(&patch)
		patched.Object = mergepatch.Apply(patched.Object, patch)
		s.store("MODIFIED", resource, patched)
		return s.objects[resource][name], nil
	case http.MethodDelete:
		var opts metav1.DeleteOptions
		_ = json.NewDecoder(r.Body).Decode(&opts)
		if p := opts.Preconditions; p != nil && (p.UID != nil && *p.UID != object.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != object.GetResourceVersion()) {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: resource}, name, errors.New("another pod"))
		}
		s.store("DELETED", resource, object)
		return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, nil
	}
	return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: resource}, r.Method)
}

func (s *server) create(r *http.Request, resource string) (answer any, refused *apierrors.StatusError) {
	object := &unstructured.Unstructured{}
	_ = json.NewDecoder(r.Body).Decode(object)
	s.made++
	if object.GetName() == "" {
		object.SetName(fmt.Sprint(object.GetGenerateName(), s.made))
	}
	if s.objects[resource][object.GetName()] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: resource}, object.GetName())
	}
	object.SetGroupVersionKind(kinds[resource])
	object.SetUID(types.UID(fmt.Sprint("uid-", s.made)))
	object.SetNamespace(namespace)
	object.SetGeneration(1)
	object.SetCreationTimestamp(metav1.Now())
	s.store("ADDED", resource, object)
	return s.objects[resource][object.GetName()], nil
}

func (s *server) list(r *http.Request, resource string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{}}
	kind := kinds[resource]
	kind.Kind += "List"
	list.SetGroupVersionKind(kind)
	list.SetResourceVersion(strconv.Itoa(s.version))
	matching, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	for _, object := range s.objects[resource] {
		if err == nil && matching.Matches(labels.Set(object.GetLabels())) {
			list.Items = append(list.Items, *object)
		}
	}
	return list
}

// watch serves a watch until it ends.
func (s *server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	w.Header().Set("Content-Type", "application/json")
	out, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
	stop := make(chan struct{})
	defer close(stop)
	go func() { // wakes this watch when its client disconnects
		select {
		case <-r.Context().Done():
			s.changed.Broadcast()
		case <-stop:
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := s.epoch
	var at int
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		at = s.initialEvents(out, resource)
	} else if after, ok := s.since(r.URL.Query().Get("resourceVersion"), resource); ok {
		at = after
	} else {
		_ = out.Encode(map[string]any{"type": "ERROR", "object": apierrors.NewResourceExpired("restored").ErrStatus})
		return
	}
	_ = flush()
	for r.Context().Err() == nil && epoch == s.epoch {
		if at >= len(s.events[resource]) || s.held && resource == "pods" {
			s.changed.Wait()
			continue
		}
		_ = out.Encode(s.events[resource][at])
		_ = flush()
		at++
	}
}

// initialEvents sends all existing objects and a bookmark to a new watch. It returns the index of the event that
// the watch sends next.
func (s *server) initialEvents(out *json.Encoder, resource string) (next int) {
	for _, object := range s.objects[resource] {
		_ = out.Encode(event{"ADDED", object})
	}
	mark := &unstructured.Unstructured{}
	mark.SetGroupVersionKind(kinds[resource])
	mark.SetResourceVersion(strconv.Itoa(s.version))
	mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	_ = out.Encode(event{"BOOKMARK", mark})
	return len(s.events[resource])
}

// since returns the index of the first event after the given resourceVersion. If the server has not reached this
// resourceVersion yet, ok is false.
func (s *server) since(version, resource string) (next int, ok bool) {
	from, _ := strconv.Atoi(version)
	for _, e := range s.events[resource] {
		if of, _ := strconv.Atoi(e.Object.GetResourceVersion()); of > from {
			break
		}
		next++
	}
	return next, from <= s.version
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	send(w, int(err.ErrStatus.Code), err.ErrStatus)
}

func send(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}
