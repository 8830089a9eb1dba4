package replicas

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/selector"
)

// A Router is the other half of a Reconciler: it turns the watch events of pods
// and of their owners into expectations that are settled and owners that are
// woken. Its six methods are event handlers as they are; with client-go:
//
//	podInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{
//		AddFunc:    func(obj any) { report(router.PodAdded(obj)) },
//		UpdateFunc: func(old, cur any) { report(router.PodUpdated(old, cur)) },
//		DeleteFunc: func(obj any) { report(router.PodDeleted(obj)) },
//	})
//
// A Router must not be copied after its first use.
//
// All fields but Forget are required and must not change once events come in.
// The methods may then be called from any number of goroutines: the informers
// of pods and of owners need not know of each other. An event that is repeated
// settles a deletion, or a creation expected by name, once.
//
// An error says that an event was ignored because it holds no pod or owner,
// because a required field is not set, or because Kind is not that of the owners:
// a pod's reference names another kind, yet has the UID of one of them. It is for
// the log: trying again is useless. Nothing that is passed in panics.
//
// A pod's owner is what its controller reference names, if the kind is Kind,
// Owner knows the name in the pod's namespace, and the UIDs are equal. The
// API group is not compared, just as a claim goes by UID alone: pods that
// ReplicaSets of extensions/v1beta1 made are still theirs.
//
// Differs from Kubernetes (pkg/controller/replicaset/replica_set.go):
//   - An event settles the expectations of the owner that the reference names
//     also where that owner cannot be resolved; only waking it needs the owner.
//   - A deletion is settled by the pod's UID, whoever waits for it, also where
//     the pod lost its owner reference meanwhile.
//   - An update from one UID to another, which is how a cache tells of a pod
//     that was deleted and made again under its name while it was not watching,
//     is a deletion and an addition.
//   - Labels that are nil and labels that are empty are the same.
type Router struct {
	// Kind is the owners' kind. Only its Kind is compared, and its Group if the
	// owners have no UID.
	Kind schema.GroupVersionKind
	// Owner returns the owner of that name, best from a cache: it is called for
	// every event of a pod that has an owner of any kind. What it returns is not
	// changed.
	Owner func(namespace, name string) (metav1.Object, bool)
	// OwnersIn returns all owners of a namespace, for orphans that one of them
	// may want to adopt. The slice is not kept or changed.
	OwnersIn func(namespace string) []metav1.Object
	// Spec returns the selector and minReadySeconds of an owner. It is called for
	// the owner of a pod that just became ready, and, where an orphan is new or
	// changed, for every owner in its namespace, but once only for each
	// resourceVersion that an owner has: the answer must depend on nothing else.
	// An owner with an error is passed over: its own pass reports that. Only a
	// *RefusedError is remembered.
	Spec func(owner metav1.Object) (Spec, error)
	// Expectations are the Reconciler's.
	Expectations *expectations.Store[expectations.Key]
	// Forget is told of owners that are gone: Reconciler.Forget. nil: their
	// expectations are deleted and that is all.
	Forget func(expectations.Key)
	// Wake asks for a pass for an owner: at once where after is 0, else after
	// that time. A work queue, which is keyed by name, serves both with Add and
	// AddAfter. It may be called twice for one event.
	Wake func(owner types.NamespacedName, after time.Duration)

	selectors keptSelectors
}

// PodAdded handles a pod that is new to the cache. One that has an owner settles
// a creation, by its name where creations are expected by name, and wakes that
// owner alone. An orphan wakes every owner in its namespace that selects it:
// more than one is the users' mistake, but one of them must adopt it. A pod
// that is being deleted already, as seen after a restart, is handled as by
// PodDeleted.
func (r *Router) PodAdded(obj any) error {
	p, err := r.pod(obj)
	if err != nil {
		return err
	}
	r.podAdded(p)
	return nil
}

// PodUpdated handles a pod that changed. It wakes the owner, the one before
// it, and for an orphan whose labels or controller changed every owner that
// selects it. The first update with a deletionTimestamp settles the
// deletion: a replacement need not wait until the pod is gone. An owner with
// minReadySeconds is woken once more after that time, when a pod that just
// became ready may have become available. Equal resourceVersions are a
// resync, and ignored. No creation is ever settled, except where the
// UIDs differ.
func (r *Router) PodUpdated(old, cur any) error {
	was, err := r.pod(old)
	if err != nil {
		return err
	}
	p, err := r.pod(cur)
	if err != nil {
		return err
	}
	switch {
	case p.ResourceVersion != "" && was.ResourceVersion == p.ResourceVersion: // V6
	case was.UID != p.UID:
		r.podDeleted(was)
		r.podAdded(p)
	case p.DeletionTimestamp != nil:
		r.podDeleting(was, p)
	default:
		r.podChanged(was, p)
	}
	return nil
}

// PodDeleted handles a pod that left the cache: its deletion is settled, and its
// owner woken. obj is a pod or a tombstone: a
// cache.DeletedFinalStateUnknown of client-go, which is recognised by its shape,
// or any other struct, or pointer to one, with just the fields Key string and
// Obj any.
func (r *Router) PodDeleted(obj any) error {
	p, err := unwrap(obj, r.pod)
	if err != nil {
		return err
	}
	r.podDeleted(p)
	return nil
}

// OwnerAdded wakes an owner that is new to the cache. Any object with
// metadata is taken for an owner.
func (r *Router) OwnerAdded(obj any) error {
	owner, err := r.owner(obj)
	if err != nil {
		return err
	}
	r.wake(owner, 0)
	return nil
}

// OwnerUpdated wakes an owner, whatever changed, be it nothing. Where the
// UIDs differ the old one was deleted and made again under its name: that is
// handled as by OwnerDeleted first.
func (r *Router) OwnerUpdated(old, cur any) error {
	was, err := r.owner(old)
	if err != nil {
		return err
	}
	owner, err := r.owner(cur)
	if err != nil {
		return err
	}
	if was.GetUID() != owner.GetUID() {
		r.ownerDeleted(was)
	}
	r.selectors.forget(expectations.KeyOf(owner)) // a restored server gives versions a second time
	r.wake(owner, 0)
	return nil
}

// OwnerDeleted forgets an owner that left the cache and wakes its name, under
// which there may be another one. obj is an owner or a tombstone; see
// PodDeleted.
func (r *Router) OwnerDeleted(obj any) error {
	owner, err := unwrap(obj, r.owner)
	if err != nil {
		return err
	}
	r.ownerDeleted(owner)
	return nil
}

func (r *Router) check() error {
	switch {
	case r.Kind.Kind == "":
		return errors.New("replicas: router has no Kind")
	case r.Owner == nil:
		return errors.New("replicas: router has no Owner")
	case r.OwnersIn == nil:
		return errors.New("replicas: router has no OwnersIn")
	case r.Spec == nil:
		return errors.New("replicas: router has no Spec")
	case r.Expectations == nil:
		return errors.New("replicas: router has no Expectations")
	case r.Wake == nil:
		return errors.New("replicas: router has no Wake")
	}
	return nil
}

func (r *Router) podAdded(p *corev1.Pod) {
	switch {
	case p.DeletionTimestamp != nil:
		r.podDeleted(p)
	case metav1.GetControllerOfNoCopy(p) == nil:
		r.wakeSelecting(p)
	default:
		key, owner := r.ownerOf(p)
		r.Expectations.CreationObserved(key, p.Name)
		r.wake(owner, 0)
	}
}

// podDeleting handles an update of a pod that is being deleted. Its former self
// counts only where the labels changed (V7).
func (r *Router) podDeleting(was, p *corev1.Pod) {
	r.podDeleted(p)
	if !maps.Equal(was.Labels, p.Labels) {
		r.podDeleted(was)
	}
}

// podDeleted settles the deletion for everybody who waits for it: as a rule that
// is the owner, or nobody.
func (r *Router) podDeleted(p *corev1.Pod) {
	ownKey, owner := r.ownerOf(p)
	id := object.ID(p)
	r.Expectations.DeletionObserved(ownKey, id)
	for _, key := range r.Expectations.OwnersOfDeletion(id) {
		if r.Expectations.DeletionObserved(key, id) {
			r.wake(r.find(key), 0)
		}
	}
	r.wake(owner, 0)
}

// podChanged handles an update of a pod that is not being deleted.
func (r *Router) podChanged(was, p *corev1.Pod) {
	before, now := metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(p)
	moved := !sameOwner(before, now)
	if moved {
		_, owner := r.ownerOf(was)
		r.wake(owner, 0)
	}
	if now != nil {
		r.ownedPodChanged(was, p)
		return
	}
	if moved || !maps.Equal(was.Labels, p.Labels) {
		r.wakeSelecting(p)
	}
}

func (r *Router) ownedPodChanged(was, p *corev1.Pod) {
	_, owner := r.ownerOf(p)
	if owner == nil {
		return
	}
	r.wake(owner, 0)
	if pod.IsReady(was) || !pod.IsReady(p) {
		return
	}
	if spec, err := r.Spec(owner); err == nil && spec.MinReadySeconds > 0 {
		r.wake(owner, time.Duration(spec.MinReadySeconds)*time.Second)
	}
}

func (r *Router) ownerDeleted(owner metav1.Object) {
	key := expectations.KeyOf(owner)
	r.selectors.forget(key)
	if r.Forget != nil {
		r.Forget(key)
	} else {
		r.Expectations.Forget(key)
	}
	r.wake(owner, 0)
}

// ownerOf returns the key of the owner that p's controller reference names, and
// the owner itself, nil where it cannot be resolved. The key is zero, which is
// no owner's, where there is no such reference.
func (r *Router) ownerOf(p *corev1.Pod) (expectations.Key, metav1.Object) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != r.Kind.Kind || ref.UID == "" && object.GroupOf(ref) != r.Kind.Group {
		return expectations.Key{}, nil
	}
	key := keyOf(p, ref)
	owner := r.find(key)
	if owner == nil {
		return key, nil
	}
	return expectations.KeyOf(owner), owner // its namespace may be none
}

// keyOf returns the key of the owner that a reference of p names.
func keyOf(p *corev1.Pod, ref *metav1.OwnerReference) expectations.Key {
	return expectations.Key{NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: ref.Name}, UID: ref.UID}
}

// find returns the owner with that key, or nil.
func (r *Router) find(key expectations.Key) metav1.Object {
	owner, ok := r.Owner(key.Namespace, key.Name)
	if !ok || object.IsNil(owner) || owner.GetUID() != key.UID {
		return nil
	}
	return owner
}

// wakeSelecting wakes the owners that may want to adopt an orphan.
func (r *Router) wakeSelecting(orphan *corev1.Pod) {
	owners := selector.Owners(orphan, r.OwnersIn(orphan.Namespace), func(owner metav1.Object) (labels.Selector, error) {
		return r.selectors.get(owner, r.Spec)
	})
	for _, owner := range owners {
		r.wake(owner, 0)
	}
}

func (r *Router) wake(owner metav1.Object, after time.Duration) {
	if owner != nil {
		r.Wake(types.NamespacedName{Namespace: owner.GetNamespace(), Name: owner.GetName()}, after)
	}
}

// sameOwner reports whether two references resolve to the same owner.
func sameOwner(a, b *metav1.OwnerReference) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID
}

// pod returns the pod of an event.
func (r *Router) pod(obj any) (*corev1.Pod, error) {
	p, ok := obj.(*corev1.Pod)
	switch {
	case !ok:
		return nil, fmt.Errorf("replicas: router: %T is not a pod", obj)
	case p == nil:
		return nil, errors.New("replicas: router: pod is nil")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return p, r.checkKind(p)
}

// checkKind tells owners of other kinds from ours under a wrong name: the UID
// knows better.
func (r *Router) checkKind(p *corev1.Pod) error {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind == r.Kind.Kind || ref.UID == "" || r.find(keyOf(p, ref)) == nil {
		return nil
	}
	return fmt.Errorf("replicas: router: pod %q is controlled by %s %q, which is one of the owners, but Kind is %s",
		object.Name(p), ref.Kind, ref.Name, r.Kind.Kind)
}

// owner returns the owner of an event.
func (r *Router) owner(obj any) (metav1.Object, error) {
	owner, ok := obj.(metav1.Object)
	switch {
	case !ok:
		return nil, fmt.Errorf("replicas: router: %T is not an owner", obj)
	case object.IsNil(owner):
		return nil, errors.New("replicas: router: owner is nil")
	}
	return owner, r.check()
}

// tombstone has the shape of client-go's cache.DeletedFinalStateUnknown: what a
// cache holds of an object whose deletion it was not told of.
type tombstone struct {
	Key string
	Obj any
}

// unwrap converts the object of a deletion, or the one in its tombstone.
func unwrap[T any](obj any, convert func(any) (T, error)) (T, error) {
	shape, v := reflect.TypeFor[tombstone](), reflect.Indirect(reflect.ValueOf(obj))
	if !v.IsValid() || !v.CanConvert(shape) {
		return convert(obj)
	}
	t, _ := reflect.TypeAssert[tombstone](v.Convert(shape))
	inner, err := convert(t.Obj)
	if err != nil {
		return inner, fmt.Errorf("%w, in the tombstone of %q", err, t.Key)
	}
	return inner, nil
}
