// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/replicakit/replicakit/internal/mergepatch"
	"github.com/replicakit/replicakit/replicas/controller"
)

// An Object is an API object. T is a pointer to a Kubernetes type or to a type of your own. deepcopy-gen and
// controller-gen generate the method DeepCopy.
type Object[T any] interface {
	controller.Object
	DeepCopy() T
}

// A table stores the objects of one kind as the API server does, and sends every change to the streams. Stored objects
// are replaced, never modified.
type table[T Object[T]] struct {
	server   server
	kind     schema.GroupKind
	resource schema.GroupResource
	owners   bool // the objects are owners, so their removal wakes the garbage collector
	anywhere bool // owners are cluster-scoped, and children may be in any namespace or cluster-scoped
	counts   bool // the objects have a generation, unlike ConfigMaps and Services
	rows     index[T]
	streams  []*Stream[T]
}

// A server is the cluster that a table belongs to.
type server interface {
	now() time.Time
	timestamp() metav1.Time
	newUID() types.UID
	newVersion() string
	changed(before, after metav1.Object)
	latest() uint64
	join(other server) (first server)

	// These methods are the garbage collector. Any cluster may call collectLater, which passes the work to the first
	// one. The first cluster calls the others.
	collectLater()
	hasOrphans() bool
	collectFrom(owner types.UID, orphan bool) (left bool)
	collectChildren()
}

// get returns the stored object itself. Copy it before you pass it to code outside this package.
func (t *table[T]) get(namespace, name string) (T, error) {
	obj, ok := t.rows.get(namespace, name)
	if !ok {
		return obj, apierrors.NewNotFound(t.resource, name)
	}
	return obj, nil
}

// create stores obj, which the caller must not modify afterwards.
func (t *table[T]) create(obj T) (T, error) {
	var none T
	if errs := t.faults(obj); len(errs) > 0 {
		return none, apierrors.NewInvalid(t.kind, obj.GetName(), errs)
	}
	if _, taken := t.rows.get(obj.GetNamespace(), obj.GetName()); taken {
		return none, apierrors.NewAlreadyExists(t.resource, obj.GetName())
	}
	obj.SetUID(t.server.newUID())
	obj.SetCreationTimestamp(t.server.timestamp())
	// A server resets these fields, so a child that was made as a copy of a terminating one is not born terminating.
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	if t.counts {
		obj.SetGeneration(1)
	}
	t.store(obj)
	return obj, nil
}

// faults validates the metadata of an object.
func (t *table[T]) faults(obj T) field.ErrorList {
	return validation.ValidateObjectMetaAccessor(obj, t.isNamespaced(obj), validation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// isNamespaced reports whether an object must be in a namespace. Other objects must not be in one.
func (t *table[T]) isNamespaced(obj T) bool {
	if t.anywhere {
		// The pods of a cluster-scoped owner are in any namespaces. Other children of it may be cluster-scoped, too.
		return !t.owners && obj.GetNamespace() != ""
	}
	return true
}

// update stores a changed copy of an object if it is valid.
func (t *table[T]) update(old T, change func(T)) (T, error) {
	obj := old.DeepCopy()
	change(obj)
	if err := t.prepare(obj, old); err != nil {
		var none T
		return none, err
	}
	return t.write(old, obj), nil
}

// prepare validates obj, a changed copy of old, and sets its generation.
func (t *table[T]) prepare(obj, old T) error {
	if errs := append(t.faults(obj), validation.ValidateObjectMetaAccessorUpdate(obj, old, field.NewPath("metadata"))...); len(errs) > 0 {
		return apierrors.NewInvalid(t.kind, obj.GetName(), errs)
	}
	// The generation is the server's: it ignores what a client sends, and counts changes of the spec. If the status
	// counted too, observedGeneration could never reach it.
	obj.SetGeneration(old.GetGeneration())
	if t.counts && !same(specOf(obj), specOf(old)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	return nil
}

// write stores obj, a changed copy of old, and returns what is stored.
func (t *table[T]) write(old, obj T) T {
	switch {
	case same(obj, old):
		// On a server, a write that changes nothing keeps the resourceVersion and sends no event. A controller that
		// waits for this event sleeps.
		return old
	case isFinished(obj):
		// The last finalizer was taken off, or the grace period has ended. On a server, too, this write removes the
		// object.
		t.remove(obj)
		if t.owners {
			t.server.collectLater()
		}
	default:
		t.store(obj)
	}
	return obj
}

// delete marks an object as being deleted, and removes it if nothing holds it.
func (t *table[T]) delete(old T, grace time.Duration) T {
	obj := old.DeepCopy()
	seconds := int64(grace / time.Second)
	// As on a server, this is the time at which the grace period ends, not the time of the call.
	at := metav1.NewTime(t.server.timestamp().Add(grace))
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(&seconds)
	return t.write(old, obj)
}

// isFinished reports whether the deletion of an object is complete: its grace period is 0, and it has no finalizers.
func isFinished(obj metav1.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(obj.GetFinalizers()) == 0
}

func (t *table[T]) store(obj T) {
	before, known := t.rows.get(obj.GetNamespace(), obj.GetName())
	obj.SetResourceVersion(t.server.newVersion())
	// The row comes first and Changed last: a rule that is called there looks at the server, which must have the
	// change.
	t.rows.put(obj)
	t.emit(event[T]{object: obj})
	t.server.changed(orNil(before, known), obj)
}

func (t *table[T]) remove(obj T) {
	before, _ := t.rows.get(obj.GetNamespace(), obj.GetName())
	// A deletion has a version of its own, which its event carries. With the version that the object had, a cache that
	// has seen the deletion would look as old as before.
	obj.SetResourceVersion(t.server.newVersion())
	t.rows.drop(obj)
	t.emit(event[T]{object: obj, is: gone})
	t.server.changed(before, nil)
}

func (t *table[T]) emit(e event[T]) {
	e.version = e.object.GetResourceVersion()
	for _, s := range t.streams {
		s.receive(e)
	}
}

// part returns the field Spec or Status of an API object, or nil if there is none.
func part(obj any, name string) any {
	if field := partOf(obj, name); field.IsValid() {
		return field.Interface()
	}
	return nil
}

// specOf returns the part of an object whose changes the generation counts.
func specOf(obj any) any {
	if u, ok := obj.(runtime.Unstructured); ok {
		return u.UnstructuredContent()["spec"]
	}
	v := reflect.ValueOf(obj)
	if spec := part(obj, "Spec"); spec != nil || v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return spec
	}
	// A custom resource need not have a spec. A server then counts changes of all other fields.
	rest := reflect.New(v.Elem().Type())
	rest.Elem().Set(v.Elem())
	for _, name := range []string{"TypeMeta", "ObjectMeta", "Status"} {
		if field := partOf(rest.Interface(), name); field.IsValid() && field.CanSet() {
			field.SetZero()
		}
	}
	return rest.Interface()
}

func partOf(obj any, name string) reflect.Value {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.Elem().FieldByName(name)
}

// setStatus makes obj share the status of another object of its type.
func setStatus(obj, from any) {
	if to := partOf(obj, "Status"); to.IsValid() && to.CanSet() {
		to.Set(partOf(from, "Status"))
	}
}

// patchStatus applies a JSON merge patch to the status of obj.
func patchStatus(obj any, patch map[string]any) error {
	status := partOf(obj, "Status")
	if !status.IsValid() || !status.CanSet() {
		return nil
	}
	to := reflect.New(status.Type())
	if err := mergeInto(to.Interface(), status.Interface(), patch); err != nil {
		return err
	}
	status.Set(to.Elem())
	return nil
}

// mergeInto applies a JSON merge patch to the JSON of from, and decodes the result into to, which is empty.
func mergeInto(to, from any, patch map[string]any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := decode(text, &fields); err != nil {
		return err
	}
	if text, err = json.Marshal(mergepatch.Apply(fields, patch)); err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// decode decodes JSON.
func decode(text []byte, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	// A float64 has too few digits for an int64.
	decoder.UseNumber()
	return decoder.Decode(to)
}

func clearStatus(obj any) {
	if status := partOf(obj, "Status"); status.IsValid() && status.CanSet() {
		status.SetZero()
	}
}

func orNil[T metav1.Object](obj T, known bool) metav1.Object {
	if !known {
		// A nil pointer in an interface is not nil, so Changed could not see that the object is new.
		return nil
	}
	return obj
}

// An index is a list of objects, sorted by namespace and name.
type index[T metav1.Object] []T

func (x index[T]) find(namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(x, types.NamespacedName{Namespace: namespace, Name: name}, func(obj T, key types.NamespacedName) int {
		return cmp.Or(cmp.Compare(obj.GetNamespace(), key.Namespace), cmp.Compare(obj.GetName(), key.Name))
	})
}

func (x index[T]) get(namespace, name string) (obj T, ok bool) {
	i, ok := x.find(namespace, name)
	if ok {
		obj = x[i]
	}
	return obj, ok
}

func (x *index[T]) put(obj T) {
	i, ok := x.find(obj.GetNamespace(), obj.GetName())
	if !ok {
		*x = slices.Insert(*x, i, obj)
	}
	(*x)[i] = obj
}

func (x *index[T]) drop(obj T) {
	if i, ok := x.find(obj.GetNamespace(), obj.GetName()); ok {
		*x = slices.Delete(*x, i, i+1)
	}
}

// in returns the objects in a namespace. "" means all namespaces.
func (x index[T]) in(namespace string) []T {
	var found []T
	for _, obj := range x {
		if namespace == "" || obj.GetNamespace() == namespace {
			found = append(found, obj)
		}
	}
	return found
}

// same reports whether two objects are equal.
func same[T any](a, b T) bool {
	// reflect.DeepEqual is faster, and usually true. Semantic equality also knows that 1000m is 1.
	return reflect.DeepEqual(a, b) || apiequality.Semantic.DeepEqual(a, b)
}
