// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package object_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

var (
	setKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	jobKind = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
)

func meta(namespace, name string, uid types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}
}

// controlled returns a pod in the namespace, with a controller reference to the given owner.
func controlled(namespace, name string, uid types.UID, kind schema.GroupVersionKind) *corev1.Pod {
	owner := meta("", name, uid)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&owner, kind)}}}
}

func TestOwnerControls(t *testing.T) {
	t.Parallel()
	known, unknown := &appsv1.ReplicaSet{ObjectMeta: meta("ns", "web", "u")}, &appsv1.ReplicaSet{ObjectMeta: meta("ns", "web", "")}
	kindOnly := &appsv1.ReplicaSet{TypeMeta: metav1.TypeMeta{Kind: "ReplicaSet"}, ObjectMeta: meta("ns", "web", "")}
	everywhere := &appsv1.ReplicaSet{ObjectMeta: meta("", "web", "")}
	custom := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": map[string]any{"namespace": "ns", "name": "web"}}}
	others := setKind
	others.Group = "example.com"
	otherVersion := setKind
	otherVersion.Version = "v1beta1"
	malformed := setKind
	malformed.Group = "a/b"
	plain := controlled("ns", "web", "", setKind)
	plain.OwnerReferences[0].Controller = nil
	for name, tt := range map[string]struct {
		owner metav1.Object
		kind  schema.GroupVersionKind
		child *corev1.Pod
		want  bool
	}{
		"C9 the UID alone decides":                 {known, setKind, controlled("other", "x", "u", jobKind), true},
		"C9 another UID":                           {known, setKind, controlled("ns", "web", "v", setKind), false},
		"a reference without UID, an owner with":   {known, setKind, controlled("ns", "web", "", setKind), false},
		"an owner without UID, a reference with":   {unknown, setKind, controlled("ns", "web", "u", setKind), false},
		"without UIDs, kind and name":              {unknown, setKind, controlled("ns", "web", "", setKind), true},
		"without UIDs, another name":               {unknown, setKind, controlled("ns", "api", "", setKind), false},
		"without UIDs, another kind":               {unknown, setKind, controlled("ns", "web", "", jobKind), false},
		"without UIDs, another group":              {unknown, setKind, controlled("ns", "web", "", others), false},
		"without UIDs, another version":            {unknown, setKind, controlled("ns", "web", "", otherVersion), true},
		"without UIDs, a malformed version":        {unknown, setKind, controlled("ns", "web", "", malformed), false},
		"without UIDs, another namespace":          {unknown, setKind, controlled("other", "web", "", setKind), false},
		"without UIDs, a cluster-scoped owner":     {everywhere, setKind, controlled("ns", "web", "", setKind), true},
		"without UIDs, the Go type tells the kind": {unknown, schema.GroupVersionKind{}, controlled("ns", "web", "", setKind), true},
		"and any group":                            {unknown, schema.GroupVersionKind{}, controlled("ns", "web", "", others), true},
		"but no other kind":                        {unknown, schema.GroupVersionKind{}, controlled("ns", "web", "", jobKind), false},
		"without UIDs, the object tells its kind":  {custom, schema.GroupVersionKind{}, controlled("ns", "web", "", setKind), true},
		"and its group":                            {custom, schema.GroupVersionKind{}, controlled("ns", "web", "", others), false},
		"without UIDs, a TypeMeta without group":   {kindOnly, schema.GroupVersionKind{}, controlled("ns", "web", "", setKind), true},
		"and of another kind":                      {kindOnly, schema.GroupVersionKind{}, controlled("ns", "web", "", jobKind), false},
		"C10 a plain reference does not control":   {unknown, setKind, plain, false},
		"no reference":                             {unknown, setKind, &corev1.Pod{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner := object.OwnerOf(tt.owner, tt.kind.GroupKind())
			assert.Equal(t, tt.want, owner.Controls(tt.child))
		})
	}
}

func TestSameController(t *testing.T) {
	t.Parallel()
	known, unknown := controlled("ns", "web", "u", setKind), controlled("ns", "web", "", setKind)
	for name, tt := range map[string]struct {
		a, b *corev1.Pod
		want bool
	}{
		"L1 one UID, whatever else":       {known, controlled("other", "api", "u", jobKind), true},
		"L1 another UID":                  {known, controlled("ns", "web", "v", setKind), false},
		"one with a UID, one without":     {known, unknown, false},
		"without UIDs, kind and name":     {unknown, controlled("ns", "web", "", setKind), true},
		"without UIDs, another name":      {unknown, controlled("ns", "api", "", setKind), false},
		"without UIDs, another kind":      {unknown, controlled("ns", "web", "", jobKind), false},
		"without UIDs, another group":     {unknown, controlled("ns", "web", "", schema.GroupVersionKind{Version: "v1", Kind: "ReplicaSet"}), false},
		"without UIDs, another namespace": {unknown, controlled("other", "web", "", setKind), false},
		"no controllers":                  {&corev1.Pod{}, &corev1.Pod{}, false},
		"one controller":                  {known, &corev1.Pod{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, object.SameController(tt.a, tt.b))
			assert.Equal(t, tt.want, object.SameController(tt.b, tt.a))
		})
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	a, again, b := meta("ns", "a", "u"), meta("ns", "b", "u"), meta("ns", "a", "v")
	assert.True(t, object.Same(&a, &again))
	assert.False(t, object.Same(&a, &b))
	unknown := meta("ns", "a", "")
	assert.False(t, object.Same(&unknown, &unknown), "without UID nothing is the same")
}

func TestID(t *testing.T) {
	t.Parallel()
	known, unknown, cluster := meta("ns", "a", "u"), meta("ns", "a", ""), meta("", "a", "")
	assert.Equal(t, types.UID("u"), object.ID(&known))
	assert.Equal(t, types.UID("ns/a"), object.ID(&unknown))
	assert.Equal(t, types.UID("a"), object.ID(&cluster))
}

func TestNilOf(t *testing.T) {
	t.Parallel()
	var null *corev1.Pod
	assert.True(t, object.NilOf[*corev1.Pod]()(null))
	assert.False(t, object.NilOf[*corev1.Pod]()(&corev1.Pod{}))
	mixed := object.NilOf[metav1.Object]()
	assert.True(t, mixed(nil))
	assert.True(t, mixed(null))
	assert.False(t, mixed(&corev1.Pod{}))
	assert.False(t, object.NilOf[byValue]()(byValue{}), "objects that can not be compared are looked at all the same")
}

func TestIndexNil(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{}
	var null *corev1.Pod
	assert.Equal(t, -1, object.IndexNil([]*corev1.Pod{pod, pod}))
	assert.Equal(t, -1, object.IndexNil[*corev1.Pod](nil))
	assert.Equal(t, 1, object.IndexNil([]*corev1.Pod{pod, nil, nil}))
	assert.Equal(t, 1, object.IndexNil([]*appsv1.ReplicaSet{{}, nil}))
	assert.Equal(t, 2, object.IndexNil([]metav1.Object{pod, &appsv1.ReplicaSet{}, null}))
	assert.Equal(t, 1, object.IndexNil([]metav1.Object{pod, nil}))
}

// A byValue is an object that is not a pointer and cannot be compared.
type byValue struct {
	*metav1.ObjectMeta
	_ []string
}
