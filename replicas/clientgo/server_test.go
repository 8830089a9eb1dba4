// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/internal/mergepatch"
)

// The resources that a server holds.
const (
	pods                   = "pods"
	replicaSets            = "replicasets"
	replicationControllers = "replicationcontrollers"
)

// A server is a fake clientset that takes the place of the API server. The server sets names, UIDs and
// resourceVersions as a real server does, and checks the preconditions of deletions and status writes. The tests
// can hold back watch events.
type server struct {
	*fake.Clientset

	// onPod is called before every write of a pod, while no lock is held. The function may return an error,
	// block or panic. If the function returns an error, the write fails. While a controller runs, set onPod with
	// setOnPod.
	onPod func(verb string, pod *corev1.Pod) error
	// onStatus is called before every status write. If the function returns an error, the write fails.
	onStatus func(owner metav1.Object) error

	guard   guard
	mu      sync.Mutex
	version int
	feeds   map[string]*feed
	events  []*corev1.Event
	calls   []string // for example "create pods"
	deletes []metav1.DeleteOptions
}

type object interface {
	runtime.Object
	metav1.Object
}

// A feed holds the objects of one resource. The map stored contains their current state, and the map shown
// contains the state that informers see.
type feed struct {
	stored, shown map[types.NamespacedName]object
	version       int // the resourceVersion of the state that informers see
	at            int // the resourceVersion of the current state
	held          bool
	pending       []watch.Event
	history       []watch.Event // the events that informers have been shown
	watchers      []*watcher
}

func newServer(objects ...object) *server {
	s := &server{Clientset: &fake.Clientset{}, feeds: map[string]*feed{}, version: 1}
	for _, resource := range []string{pods, replicaSets, replicationControllers} {
		s.feeds[resource] = &feed{
			stored:  map[types.NamespacedName]object{},
			shown:   map[types.NamespacedName]object{},
			version: 1, at: 1,
		}
	}
	s.PrependReactor("*", "*", s.react)
	for _, obj := range objects {
		s.add(obj)
	}
	return s
}

func resourceOf(obj object) string {
	switch obj.(type) {
	case *corev1.Pod:
		return pods
	case *appsv1.ReplicaSet:
		return replicaSets
	case *corev1.ReplicationController:
		return replicationControllers
	}
	panic(fmt.Sprintf("no resource for %T", obj))
}

func nameOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// add creates an object, as another client would do.
func (s *server) add(obj object) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create(obj)
}

// setVersion sets the resourceVersion of the server and of its lists. The next write gets a higher
// resourceVersion.
func (s *server) setVersion(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	for _, f := range s.feeds {
		f.version, f.at, f.history = version, version, nil
	}
}

// change applies a function to a stored object. The generation changes only if the function sets it.
func (s *server) change(obj object, change func(object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.feeds[resourceOf(obj)].stored[nameOf(obj)].DeepCopyObject().(object)
	change(changed)
	s.store(watch.Modified, changed)
}

// remove deletes an object.
func (s *server) remove(obj object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(watch.Deleted, s.feeds[resourceOf(obj)].stored[nameOf(obj)].DeepCopyObject().(object))
}

// hold holds back the events of a resource until release is called.
func (s *server) hold(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds[resource].held = true
}

func (s *server) release(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feeds[resource]
	f.held = false
	for _, event := range f.pending {
		f.show(event)
	}
	f.pending = nil
}

// allPods returns the stored pods in the order of their names.
func (s *server) allPods() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*corev1.Pod
	for _, obj := range s.feeds[pods].stored {
		list = append(list, obj.(*corev1.Pod))
	}
	slices.SortFunc(list, func(a, b *corev1.Pod) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
	return list
}

func (s *server) podNames() []string {
	var names []string
	for _, pod := range s.allPods() {
		names = append(names, pod.Name)
	}
	return names
}

func (s *server) web() *appsv1.ReplicaSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	rs, _ := s.feeds[replicaSets].stored[types.NamespacedName{Namespace: namespace, Name: "web"}].(*appsv1.ReplicaSet)
	return rs
}

func (s *server) webRC() *corev1.ReplicationController {
	s.mu.Lock()
	defer s.mu.Unlock()
	rc, _ := s.feeds[replicationControllers].stored[types.NamespacedName{Namespace: namespace, Name: "web"}].(*corev1.ReplicationController)
	return rc
}

// count returns how many calls of a kind, like "create pods", were made.
func (s *server) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (s *server) setOnPod(onPod func(verb string, pod *corev1.Pod) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onPod = onPod
}

func (s *server) deleteOptions() []metav1.DeleteOptions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deletes)
}

// recorded returns the events with the given reason.
func (s *server) recorded(reason string) []*corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.events), func(e *corev1.Event) bool { return e.Reason != reason })
}

func (s *server) create(obj object) object {
	obj = obj.DeepCopyObject().(object)
	s.version++
	if obj.GetName() == "" {
		obj.SetName(obj.GetGenerateName() + fmt.Sprintf("%05d", s.version))
	}
	if obj.GetUID() == "" {
		obj.SetUID(types.UID("uid-" + strconv.Itoa(s.version)))
	}
	if obj.GetCreationTimestamp().Time.IsZero() {
		obj.SetCreationTimestamp(metav1.Now())
	}
	s.store(watch.Added, obj)
	return obj
}

// store gives obj the next resourceVersion, and stores or deletes it. Lists and watches share obj, as caches do,
// so obj must not be changed afterwards.
func (s *server) store(eventType watch.EventType, obj object) {
	s.version++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	s.guard.watch(obj)
	f := s.feeds[resourceOf(obj)]
	f.at = s.version
	if eventType == watch.Deleted {
		delete(f.stored, nameOf(obj))
	} else {
		f.stored[nameOf(obj)] = obj
	}
	event := watch.Event{Type: eventType, Object: obj}
	if f.held {
		f.pending = append(f.pending, event)
		return
	}
	f.show(event)
}

func (f *feed) show(event watch.Event) {
	obj := event.Object.(object)
	f.version, _ = strconv.Atoi(obj.GetResourceVersion())
	if event.Type == watch.Deleted {
		delete(f.shown, nameOf(obj))
	} else {
		f.shown[nameOf(obj)] = obj
	}
	f.history = append(f.history, event)
	for _, w := range f.watchers {
		w.send(event)
	}
}

// informer returns a shared informer that sees the objects that the feed shows.
func (s *server) informer(resource string) cache.SharedIndexInformer {
	f := s.feeds[resource]
	example := map[string]runtime.Object{
		pods: &corev1.Pod{}, replicaSets: &appsv1.ReplicaSet{}, replicationControllers: &corev1.ReplicationController{},
	}[resource]
	lw := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return f.list(), nil
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			w := &watcher{sent: make(chan watch.Event, 10_000), shown: make(chan watch.Event), stopped: make(chan struct{})}
			go w.show(resource)
			since, _ := strconv.Atoi(opts.ResourceVersion)
			for _, event := range f.history {
				// A controller may write between the list of its informer and the watch.
				if version, _ := strconv.Atoi(event.Object.(object).GetResourceVersion()); version > since {
					w.send(event)
				}
			}
			f.watchers = append(f.watchers, w)
			return w, nil
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, s.Clientset), example, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

func (f *feed) list() *metav1.List {
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(f.version)}}
	for obj := range maps.Values(f.shown) {
		list.Items = append(list.Items, runtime.RawExtension{Object: obj})
	}
	return list
}

// A watcher never closes its channels, so a send after Stop does not panic.
type watcher struct {
	sent, shown chan watch.Event
	stopped     chan struct{}
	once        sync.Once
}

// show shows the events. Those of owners come a nanosecond of virtual time late, so a client has the answer of a status
// write before the event of that write: now and then the event would come first and wake a pass.
func (w *watcher) show(resource string) {
	for {
		select {
		case event := <-w.sent:
			if resource != pods {
				select {
				case <-time.After(time.Nanosecond):
				case <-w.stopped:
					return
				}
			}
			select {
			case w.shown <- event:
			case <-w.stopped:
				return
			}
		case <-w.stopped:
			return
		}
	}
}

func (w *watcher) Stop()                          { w.once.Do(func() { close(w.stopped) }) }
func (w *watcher) ResultChan() <-chan watch.Event { return w.shown }

// expire ends the watch with an error. A real server sends this error if its history no longer contains the
// resourceVersion of the watch.
func (w *watcher) expire() {
	w.send(watch.Event{Type: watch.Error, Object: &metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone,
	}})
}

func (w *watcher) send(event watch.Event) {
	select {
	case w.sent <- event:
	case <-w.stopped:
	}
}

// react answers the calls of the fake clientset.
func (s *server) react(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := action.GetResource().GroupResource()
	s.calls = append(s.calls, cmp.Or(action.GetSubresource(), action.GetVerb())+" "+resource.Resource)
	if resource.Resource == "events" {
		return true, s.event(action), nil
	}
	f := s.feeds[resource.Resource]
	if f == nil {
		return true, nil, fmt.Errorf("no such resource: %s", resource)
	}
	obj, err := s.answer(f, resource, action)
	return true, obj, err
}

func (s *server) event(action clienttesting.Action) runtime.Object {
	create, ok := action.(clienttesting.CreateAction)
	if !ok {
		return &corev1.Event{}
	}
	event := create.GetObject().(*corev1.Event)
	s.events = append(s.events, event)
	return event
}

func (s *server) answer(f *feed, resource schema.GroupResource, action clienttesting.Action) (runtime.Object, error) {
	find := func(name string) (object, error) {
		if obj, ok := f.stored[types.NamespacedName{Namespace: action.GetNamespace(), Name: name}]; ok {
			return obj, nil
		}
		return nil, apierrors.NewNotFound(resource, name)
	}
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		obj := a.GetObject().(object)
		obj.SetNamespace(a.GetNamespace())
		if _, err := find(obj.GetName()); err == nil {
			return nil, apierrors.NewAlreadyExists(resource, obj.GetName())
		}
		return s.create(obj), nil
	case clienttesting.GetActionImpl:
		return find(a.GetName())
	case clienttesting.ListActionImpl:
		return s.live(f, a.GetNamespace(), a.GetListRestrictions().Labels), nil
	case clienttesting.PatchActionImpl:
		obj, err := find(a.GetName())
		if err != nil {
			return nil, err
		}
		if a.GetSubresource() == "status" {
			return s.patchStatus(resource, obj, a.GetPatch())
		}
		return s.patch(obj.(*corev1.Pod), a)
	case clienttesting.DeleteActionImpl:
		obj, err := find(a.GetName())
		if err != nil {
			return nil, err
		}
		s.deletes = append(s.deletes, a.GetDeleteOptions())
		if !holds(a.GetDeleteOptions().Preconditions, obj) {
			return nil, apierrors.NewConflict(resource, a.GetName(), errors.New("precondition"))
		}
		s.store(watch.Deleted, obj.DeepCopyObject().(object))
		return obj, nil
	}
	return nil, fmt.Errorf("cannot %s %s", action.GetVerb(), resource)
}

// live returns the stored pods that match, even if informers do not see them yet. For owners, live returns only
// the resourceVersion of the list.
func (s *server) live(f *feed, namespace string, matching labels.Selector) runtime.Object {
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(f.at)}
	switch f {
	case s.feeds[replicaSets]:
		return &appsv1.ReplicaSetList{ListMeta: meta}
	case s.feeds[replicationControllers]:
		return &corev1.ReplicationControllerList{ListMeta: meta}
	}
	list := &corev1.PodList{ListMeta: meta}
	for _, obj := range f.stored {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Namespace == namespace && matching.Matches(labels.Set(pod.Labels)) {
			list.Items = append(list.Items, *pod)
		}
	}
	return list
}

func holds(p *metav1.Preconditions, obj metav1.Object) bool {
	return p == nil || (p.UID == nil || *p.UID == obj.GetUID()) &&
		(p.ResourceVersion == nil || *p.ResourceVersion == obj.GetResourceVersion())
}

func (s *server) patchStatus(resource schema.GroupResource, obj object, patch []byte) (runtime.Object, error) {
	if s.onStatus != nil {
		if err := s.onStatus(obj); err != nil {
			return nil, err
		}
	}
	var before, change map[string]any
	text, err := json.Marshal(obj)
	if err := errors.Join(err, json.Unmarshal(text, &before), json.Unmarshal(patch, &change)); err != nil {
		return nil, err
	}
	after, err := json.Marshal(mergepatch.Apply(before, change))
	if err != nil {
		return nil, err
	}
	var updated object = &appsv1.ReplicaSet{}
	if resource.Resource == replicationControllers {
		updated = &corev1.ReplicationController{}
	}
	if err := json.Unmarshal(after, updated); err != nil {
		return nil, err
	}
	if updated.GetResourceVersion() != obj.GetResourceVersion() {
		return nil, apierrors.NewConflict(resource, obj.GetName(), errors.New("stale"))
	}
	s.store(watch.Modified, updated)
	return updated, nil
}

func (s *server) patch(pod *corev1.Pod, a clienttesting.PatchActionImpl) (runtime.Object, error) {
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, a.GetPatch(), &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	patched := &corev1.Pod{}
	if err := json.Unmarshal(after, patched); err != nil {
		return nil, err
	}
	if patched.UID != pod.UID {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod.Name, nil)
	}
	s.store(watch.Modified, patched)
	return patched, nil
}

// A server is a kubernetes.Interface. Its clients for pods call onPod before each write.

func (s *server) CoreV1() typedcorev1.CoreV1Interface { return coreV1{s.Clientset.CoreV1(), s} }

type coreV1 struct {
	typedcorev1.CoreV1Interface
	server *server
}

func (c coreV1) Pods(namespace string) typedcorev1.PodInterface {
	return podClient{c.CoreV1Interface.Pods(namespace), c.server}
}

type podClient struct {
	typedcorev1.PodInterface
	server *server
}

func (c podClient) before(verb string, pod *corev1.Pod) error {
	c.server.mu.Lock()
	onPod := c.server.onPod
	c.server.mu.Unlock()
	if onPod == nil {
		return nil
	}
	return onPod(verb, pod)
}

func (c podClient) Create(ctx context.Context, pod *corev1.Pod, opts metav1.CreateOptions) (*corev1.Pod, error) {
	if err := c.before("create", pod); err != nil {
		return nil, err
	}
	return c.PodInterface.Create(ctx, pod, opts)
}

func (c podClient) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if err := c.before("delete", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return err
	}
	return c.PodInterface.Delete(ctx, name, opts)
}

func (c podClient) Patch(ctx context.Context, name string, patchType types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (*corev1.Pod, error) {
	if err := c.before("patch", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return nil, err
	}
	return c.PodInterface.Patch(ctx, name, patchType, data, opts, sub...)
}
