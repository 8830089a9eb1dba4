// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/replicakit/replicakit/test/conformance/upstream"
)

var (
	podResource        = corev1.SchemeGroupVersion.WithResource("pods")
	setResource        = appsv1.SchemeGroupVersion.WithResource("replicasets")
	controllerResource = corev1.SchemeGroupVersion.WithResource("replicationcontrollers")
)

// A world is client-go's fake clientset, with a few more functions of an API server. It gives new pods UIDs, and
// names if they have none. It sets resourceVersions, deletes pods gracefully, checks preconditions, and refuses
// patches that add a second controller. If the map refusals has a refusal left for the verb of a call, the call
// fails. Creation and deletion times of pods are the time of the current step. The owners are ReplicaSets or
// ReplicationControllers. The method allSets returns ReplicationControllers as ReplicaSets.
type world struct {
	*fake.Clientset
	tracker     clienttesting.ObjectTracker
	controllers bool // whether the owners are ReplicationControllers
	replays     bool // whether our controller deletes the pods that Kubernetes deleted

	mu       sync.Mutex
	version  int
	statuses int                  // how many of the versions come from status writes
	names    map[string]int       // how many names and UIDs were generated, by prefix
	aliases  map[types.UID]string // the names that the pods would have with Kubernetes' controller
	removed  map[types.UID]string // the versions at which objects were removed
	step     time.Time            // the time of the current step
	refusals map[string]refusal   // the refusals of the next calls, by verb
	calls    map[string]int       // how many calls, by verb and resource
	// These fields are reset at each step.
	refused bool
	taken   map[string]bool // the aliases of pods that the controller deleted
	first   map[string]bool // the aliases of pods that our controller deletes first, if replays is set

	last   look
	lastAt int // the version of the world that w.last describes

	release chan struct{} // nil before the first call of holdPods, closed by letGo
	passing int           // how many more events of pods holdPods does not hold back; 0 or less means none
}

// A refusal is the kind of error with which the next calls are answered, and the number of these calls.
type refusal struct {
	kind string
	left int
}

func newWorld(controllers bool) *world {
	w := &world{
		Clientset:   &fake.Clientset{},
		tracker:     clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		controllers: controllers,
		calls:       map[string]int{},
		taken:       map[string]bool{},
		names:       map[string]int{},
		aliases:     map[types.UID]string{},
		removed:     map[types.UID]string{},
		refusals:    map[string]refusal{},
	}
	w.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		obj, err := w.react(action)
		return true, obj, err
	})
	w.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		watcher, err := w.tracker.Watch(action.GetResource(), action.GetNamespace())
		return true, watch.Filter(watcher, func(e watch.Event) (watch.Event, bool) {
			w.delay(action.GetResource())
			return w.stampDeletion(e)
		}), err
	})
	return w
}

// holdPods holds back all events of pods, except the next n events, until letGo is called.
func (w *world) holdPods(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.release, w.passing = make(chan struct{}), n
}

func (w *world) letGo() {
	close(w.release)
	synctest.Wait()
}

func (w *world) delay(resource schema.GroupVersionResource) {
	w.mu.Lock()
	release := w.release
	if resource == podResource {
		w.passing--
	}
	passes := resource != podResource || w.passing >= 0
	w.mu.Unlock()
	if release != nil && !passes {
		<-release
	}
}

func (w *world) react(action clienttesting.Action) (runtime.Object, error) {
	if action.GetResource().Resource == "events" {
		return &corev1.Event{}, nil
	}
	w.calls[verbOf(action)+" "+action.GetResource().Resource]++
	if err := w.refuse(action); err != nil {
		return nil, err
	}
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		return w.createPod(a.Namespace, a.Object.(*corev1.Pod).DeepCopy())
	case clienttesting.DeleteActionImpl:
		return nil, w.deletePod(a.Namespace, a.Name, a.DeleteOptions)
	case clienttesting.PatchActionImpl:
		if a.Subresource == "status" {
			return w.patchStatus(a)
		}
		return w.patchPod(a)
	case clienttesting.UpdateActionImpl:
		return w.updateStatus(a.Object.DeepCopyObject())
	case clienttesting.GetActionImpl:
		return w.tracker.Get(a.Resource, a.Namespace, a.Name)
	case clienttesting.ListActionImpl:
		list, err := w.tracker.List(a.Resource, a.Kind, a.Namespace)
		if accessor, ok := list.(metav1.ListInterface); ok {
			accessor.SetResourceVersion(strconv.Itoa(w.version))
		}
		return list, err
	}
	return nil, fmt.Errorf("unexpected call: %v", action)
}

// verbOf returns the verb of a call. The verb of a status write is "status", because Kubernetes updates the status
// and our controller patches it (U3).
func verbOf(action clienttesting.Action) string {
	return cmp.Or(action.GetSubresource(), action.GetVerb())
}

// If the map refusals has a refusal left for the verb of a call, refuse uses up the refusal and returns its error.
// Otherwise refuse returns nil.
func (w *world) refuse(action clienttesting.Action) error {
	r := w.refusals[verbOf(action)]
	if r.left == 0 {
		return nil
	}
	r.left--
	w.refusals[verbOf(action)], w.refused = r, true
	return answer(r.kind, "pod")
}

// stamp gives an object a new resourceVersion.
func (w *world) stamp(obj metav1.Object) {
	w.version++
	obj.SetResourceVersion(strconv.Itoa(w.version))
}

// createPod stores a pod. The alias of the pod is the name that the world would generate if the pod had no name.
// The UID of the pod depends on this alias instead of the name, because only our controller chooses names.
func (w *world) createPod(namespace string, p *corev1.Pod) (*corev1.Pod, error) {
	if _, err := w.pod(namespace, p.Name); err == nil {
		return nil, apierrors.NewAlreadyExists(podResource.GroupResource(), p.Name)
	}
	w.names[p.GenerateName]++
	alias := p.GenerateName + strconv.Itoa(w.names[p.GenerateName])
	p.Namespace, p.Name = namespace, cmp.Or(p.Name, alias)
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(alias))
	p.UID, p.CreationTimestamp = types.UID(fmt.Sprintf("%08x", hash.Sum32())), metav1.NewTime(w.step)
	p.Status.Phase = corev1.PodPending
	w.aliases[p.UID] = alias
	w.stamp(p)
	return p, w.tracker.Create(podResource, p, namespace)
}

// alias returns the name that the pod would have with Kubernetes' controller.
func (w *world) alias(p *corev1.Pod) string { return cmp.Or(w.aliases[p.UID], p.Name) }

// goesFirst reports whether Kubernetes deleted the pod in the current step.
func (w *world) goesFirst(p *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first[w.alias(p)]
}

func (w *world) pod(namespace, name string) (*corev1.Pod, error) {
	obj, err := w.tracker.Get(podResource, namespace, name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod).DeepCopy(), nil
}

func (w *world) updatePod(p *corev1.Pod) {
	w.stamp(p)
	must(w.tracker.Update(podResource, p, p.Namespace))
}

// deletePod sets the deletionTimestamp of a pod that is on a node, and removes any other pod.
func (w *world) deletePod(namespace, name string, opts metav1.DeleteOptions) error {
	p, err := w.pod(namespace, name)
	if err != nil {
		return err
	}
	if pre := opts.Preconditions; pre != nil {
		if pre.UID != nil && *pre.UID != p.UID || pre.ResourceVersion != nil && *pre.ResourceVersion != p.ResourceVersion {
			return answer("Conflict", name)
		}
	}
	w.taken[w.alias(p)] = true
	if p.Spec.NodeName == "" {
		w.remove(podResource, p)
		return nil
	}
	if p.DeletionTimestamp == nil {
		p.DeletionTimestamp = new(metav1.NewTime(w.step))
		w.updatePod(p)
	}
	return nil
}

func (w *world) remove(resource schema.GroupVersionResource, obj metav1.Object) {
	w.stamp(obj)
	w.removed[obj.GetUID()] = obj.GetResourceVersion()
	must(w.tracker.Delete(resource, "a", obj.GetName()))
}

// stampDeletion gives the event of a deletion the resourceVersion of the deletion. The tracker does not know this
// version.
func (w *world) stampDeletion(e watch.Event) (watch.Event, bool) {
	if e.Type != watch.Deleted {
		return e, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Object = e.Object.DeepCopyObject()
	obj, err := meta.Accessor(e.Object)
	must(err)
	obj.SetResourceVersion(w.removed[obj.GetUID()])
	return e, true
}

func (w *world) patchPod(a clienttesting.PatchActionImpl) (*corev1.Pod, error) {
	p, err := w.pod(a.Namespace, a.Name)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(p)
	must(err)
	after, err := strategicpatch.StrategicMergePatch(before, a.Patch, corev1.Pod{})
	must(err)
	patched := &corev1.Pod{}
	must(json.Unmarshal(after, patched))
	controllers := 0
	for _, ref := range patched.OwnerReferences {
		if ref.Controller != nil && *ref.Controller {
			controllers++
		}
	}
	if patched.UID != p.UID || controllers > 1 {
		return nil, answer("Invalid", a.Name)
	}
	w.updatePod(patched)
	return patched, nil
}

// patchStatus applies a patch of the status as an update of the status.
func (w *world) patchStatus(a clienttesting.PatchActionImpl) (runtime.Object, error) {
	was, err := w.tracker.Get(w.ownerResource(), a.Namespace, a.Name)
	if err != nil {
		return nil, err
	}
	switch was := was.(type) {
	case *appsv1.ReplicaSet:
		return w.updateStatus(merged(was, a.Patch))
	case *corev1.ReplicationController:
		return w.updateStatus(merged(was, a.Patch))
	}
	return nil, fmt.Errorf("unexpected patch of a %T", was)
}

// merged returns an object after a JSON merge patch.
func merged[T any](was *T, patch []byte) *T {
	before, err := json.Marshal(was)
	must(err)
	after, err := jsonpatch.MergePatch(before, patch)
	must(err)
	is := new(T)
	must(json.Unmarshal(after, is))
	return is
}

// updateStatus changes only the status of the owner.
func (w *world) updateStatus(obj runtime.Object) (runtime.Object, error) {
	changed, err := meta.Accessor(obj)
	must(err)
	fresh, err := w.tracker.Get(w.ownerResource(), "a", changed.GetName())
	if err != nil {
		return nil, err
	}
	if accessor, _ := meta.Accessor(fresh); accessor.GetResourceVersion() != changed.GetResourceVersion() {
		return nil, answer("Conflict", changed.GetName())
	}
	w.statuses++
	switch fresh := fresh.(type) {
	case *appsv1.ReplicaSet:
		fresh.Status = obj.(*appsv1.ReplicaSet).Status
		w.stamp(fresh)
	case *corev1.ReplicationController:
		fresh.Status = obj.(*corev1.ReplicationController).Status
		w.stamp(fresh)
	}
	return fresh, w.tracker.Update(w.ownerResource(), fresh, "a")
}

func (w *world) ownerResource() schema.GroupVersionResource {
	if w.controllers {
		return controllerResource
	}
	return setResource
}

// updateSet updates an owner, or creates the owner if it is new.
func (w *world) updateSet(rs *appsv1.ReplicaSet) {
	created := rs.ResourceVersion == ""
	w.stamp(rs)
	obj := runtime.Object(rs)
	if w.controllers {
		rc, err := upstream.ToReplicationController(rs)
		must(err)
		obj = rc
	}
	if created {
		must(w.tracker.Create(w.ownerResource(), obj, "a"))
		return
	}
	must(w.tracker.Update(w.ownerResource(), obj, "a"))
}

func list[T any](w *world, resource schema.GroupVersionResource, kind string) []*T {
	found, err := w.tracker.List(resource, resource.GroupVersion().WithKind(kind), "a")
	must(err)
	items, err := meta.ExtractList(found)
	must(err)
	var all []*T
	for _, item := range items {
		all = append(all, any(item).(*T))
	}
	return all
}

// allPods returns all pods, sorted by alias. allSets returns all owners, sorted by name.
func (w *world) allPods() []*corev1.Pod {
	pods := copies(list[corev1.Pod](w, podResource, "Pod"))
	slices.SortFunc(pods, func(p, q *corev1.Pod) int { return strings.Compare(w.alias(p), w.alias(q)) })
	return pods
}

func (w *world) allSets() []*appsv1.ReplicaSet {
	var sets []*appsv1.ReplicaSet
	if w.controllers {
		for _, rc := range list[corev1.ReplicationController](w, controllerResource, "ReplicationController") {
			rs, err := upstream.ToReplicaSet(rc, nil)
			must(err)
			sets = append(sets, rs)
		}
	} else {
		sets = list[appsv1.ReplicaSet](w, setResource, "ReplicaSet")
	}
	slices.SortFunc(sets, func(p, q *appsv1.ReplicaSet) int { return strings.Compare(p.Name, q.Name) })
	return sets
}

// A look is the state of all owners and pods at one time. The field text describes the owners and the pods. The
// field pods contains copies of the pods.
type look struct {
	text string
	pods []*corev1.Pod
}

// look returns the state of all owners and pods. It leaves out resourceVersions, and the times and messages of the
// conditions of owners, because they may differ between the two sides. Pods have their aliases as names.
func (w *world) look() look {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.version == w.lastAt {
		return w.last
	}
	var b strings.Builder
	for _, rs := range w.allSets() {
		s := rs.Status
		fmt.Fprintf(&b, "%s: %d wanted, generation %d; replicas %d, labeled %d, ready %d, available %d, terminating %s, observed %d",
			rs.Name, *rs.Spec.Replicas, rs.Generation, s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, dump(s.TerminatingReplicas), s.ObservedGeneration)
		for _, c := range s.Conditions {
			fmt.Fprintf(&b, ", %s %s %s", c.Type, c.Status, c.Reason)
		}
		b.WriteString("\n")
	}
	pods := w.allPods()
	for _, p := range pods {
		p.Name, p.ResourceVersion, p.ManagedFields = w.alias(p), "", nil
		fmt.Fprintf(&b, "%s\n", dump(p))
	}
	w.last, w.lastAt = look{b.String(), pods}, w.version
	return w.last
}
