package replicastest

import (
	"cmp"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// An object is a pointer to an API type.
type object[T any] interface {
	comparable
	metav1.Object
	DeepCopy() T
	Marshal() ([]byte, error)
}

// A table holds the objects of one kind as the API server does: what is stored
// is never changed, only replaced, and every change goes to the streams.
type table[T object[T]] struct {
	cluster  *Cluster
	kind     schema.GroupKind
	resource schema.GroupResource
	rows     index[T]
	streams  []*Stream[T]
}

// get returns what is stored; to be copied before it leaves the package.
func (t *table[T]) get(namespace, name string) (T, error) {
	obj, ok := t.rows.get(namespace, name)
	if !ok {
		return obj, apierrors.NewNotFound(t.resource, name)
	}
	return obj, nil
}

// create stores obj, which nobody else holds, as a new object.
func (t *table[T]) create(obj T) (T, error) {
	var none T
	if errs := validation.ValidateObjectMetaAccessor(obj, true, validation.NameIsDNSSubdomain, field.NewPath("metadata")); len(errs) > 0 {
		return none, apierrors.NewInvalid(t.kind, obj.GetName(), errs)
	}
	if _, taken := t.rows.get(obj.GetNamespace(), obj.GetName()); taken {
		return none, apierrors.NewAlreadyExists(t.resource, obj.GetName())
	}
	obj.SetUID(t.cluster.newUID())
	obj.SetCreationTimestamp(t.cluster.timestamp())
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	t.store(obj)
	return obj, nil
}

// update makes a change that the API server checks, and returns what is stored.
func (t *table[T]) update(old T, change func(T)) (T, error) {
	obj := old.DeepCopy()
	change(obj)
	if err := t.validate(obj, old); err != nil {
		var none T
		return none, err
	}
	return t.write(old, obj), nil
}

// write stores a changed copy of an object and returns it. A change that changes
// nothing is no write; one that leaves nothing to wait for ends a deletion.
func (t *table[T]) write(old, obj T) T {
	switch {
	case apiequality.Semantic.DeepEqual(obj, old):
		return old
	case isFinished(obj):
		t.remove(obj)
		if t.kind == replicaSetKind {
			t.cluster.collectLater()
		}
	default:
		t.store(obj)
	}
	return obj
}

// delete marks an object as being deleted and, once the grace period is 0 and no
// finalizer is left, removes it.
func (t *table[T]) delete(old T, grace time.Duration) T {
	obj := old.DeepCopy()
	seconds := int64(grace / time.Second)
	at := metav1.NewTime(t.cluster.timestamp().Add(grace))
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(&seconds)
	return t.write(old, obj)
}

func (t *table[T]) validate(obj, old T) error {
	if errs := validation.ValidateObjectMetaAccessorUpdate(obj, old, field.NewPath("metadata")); len(errs) > 0 {
		return apierrors.NewInvalid(t.kind, obj.GetName(), errs)
	}
	return nil
}

// isFinished reports whether nothing holds back the deletion of an object.
func isFinished(obj metav1.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(obj.GetFinalizers()) == 0
}

func (t *table[T]) store(obj T) {
	before, known := t.rows.get(obj.GetNamespace(), obj.GetName())
	obj.SetResourceVersion(t.cluster.newVersion())
	t.rows.put(obj)
	t.emit(event[T]{object: obj})
	if t.cluster.Changed != nil {
		t.cluster.Changed(orNil(before, known), obj)
	}
}

func (t *table[T]) remove(obj T) {
	before, _ := t.rows.get(obj.GetNamespace(), obj.GetName())
	obj.SetResourceVersion(t.cluster.newVersion())
	t.rows.drop(obj)
	t.emit(event[T]{object: obj, is: gone})
	if t.cluster.Changed != nil {
		t.cluster.Changed(before, nil)
	}
}

func (t *table[T]) emit(e event[T]) {
	e.version = e.object.GetResourceVersion()
	for _, s := range t.streams {
		s.receive(e)
	}
}

// orNil keeps an object that is none from becoming an interface that is not nil.
func orNil[T metav1.Object](obj T, known bool) metav1.Object {
	if !known {
		return nil
	}
	return obj
}

// An index is a list of objects in the order of their namespaces and names.
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

// in returns the objects of a namespace.
func (x index[T]) in(namespace string) []T {
	var found []T
	for _, obj := range x {
		if obj.GetNamespace() == namespace {
			found = append(found, obj)
		}
	}
	return found
}
