// Package object holds what several packages need to say about any Kubernetes
// object.
package object

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsNil reports whether obj, an object or whatever else is behind an interface,
// is nil or holds a nil pointer.
func IsNil(obj any) bool {
	if obj == nil {
		return true
	}
	v := reflect.ValueOf(obj)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Name returns the object's "namespace/name", or its bare name where it has no
// namespace: how errors, logs and work queues write it.
func Name(obj metav1.Object) string {
	if namespace := obj.GetNamespace(); namespace != "" {
		return namespace + "/" + obj.GetName()
	}
	return obj.GetName()
}
