// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

func TestChangesOfObjects(t *testing.T) {
	t.Parallel()
	x, y := podtest.Pod("x"), podtest.Pod("y", podtest.UID(""))
	assert.Equal(t, changes{Creating: []string{"x", "y"}}, expectations.Creating(x, nil, y))
	assert.Equal(t, changes{Deleting: uids{"uid-x", "default/y"}}, expectations.Deleting(x, nil, y))
	assert.Equal(t, changes{}, expectations.Creating[*corev1.Pod]())
	assert.Equal(t, changes{}, expectations.Deleting[metav1.Object]())
}

func TestDeletionsByAnyString(t *testing.T) {
	t.Parallel()
	type node string
	var s store
	s.Set("a", changes{Deleting: expectations.IDs[node]("node-1", "node-2")})
	assert.True(t, s.DeletionObserved("a", "node-1"))
	assert.False(t, s.DeletionObserved("a", "node-1"))
	assert.Equal(t, expectations.Waiting, stateOf(&s, "a"))
	assert.True(t, s.DeletionObserved("a", "node-2"))
	assert.Equal(t, expectations.Satisfied, stateOf(&s, "a"))
	assert.Nil(t, expectations.IDs[string]())
}

func TestADeletionTakesBackTheCreationOfTheSameObject(t *testing.T) {
	t.Parallel()
	var s store
	pod := podtest.Pod("x")
	s.Set("a", expectations.Creating(pod))
	s.Lower("a", expectations.Creating(pod))
	s.Add("a", expectations.Deleting(pod))
	assert.True(t, s.DeletionObserved("a", pod.UID))
	assert.Equal(t, expectations.Satisfied, stateOf(&s, "a"))
	assert.False(t, s.CreationObserved("a", "x"), "if its event comes late, it settles nothing else")
}

func TestKeyOfController(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	owner := &metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web", UID: "3f1c"}
	notController := func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }
	for name, tt := range map[string]struct {
		child metav1.Object
		ok    bool
	}{
		"the owner that controls it":           {podtest.Pod("x", podtest.OwnedBy(owner, "apps/v1", "ReplicaSet")), true},
		"of any version":                       {podtest.Pod("x", podtest.OwnedBy(owner, "apps/v1beta2", "ReplicaSet")), true},
		"not of another group":                 {podtest.Pod("x", podtest.OwnedBy(owner, "example.com/v1", "ReplicaSet")), false},
		"not of another kind":                  {podtest.Pod("x", podtest.OwnedBy(owner, "apps/v1", "StatefulSet")), false},
		"not one that is only an owner":        {podtest.Pod("x", podtest.OwnedBy(owner, "apps/v1", "ReplicaSet"), notController), false},
		"not if the reference is no reference": {podtest.Pod("x", podtest.OwnedBy(owner, "a/b/c", "ReplicaSet")), false},
		"none for an orphan":                   {podtest.Pod("x"), false},
		"none for nil":                         {(*corev1.Pod)(nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, ok := expectations.KeyOfController(tt.child, kind)
			assert.Equal(t, tt.ok, ok)
			if tt.ok {
				assert.Equal(t, expectations.KeyOf(owner), key)
			} else {
				assert.Zero(t, key)
			}
		})
	}
}

func TestPointers(t *testing.T) {
	t.Parallel()
	items := []corev1.Pod{*podtest.Pod("x"), *podtest.Pod("y")}
	pointers := expectations.Pointers(items)
	assert.Len(t, pointers, 2)
	assert.Same(t, &items[1], pointers[1])
	assert.Nil(t, expectations.Pointers[corev1.Pod](nil))
	assert.Nil(t, expectations.Pointers([]corev1.Pod{}))

	var s store
	s.Set("a", changes{Creating: []string{"x", "z"}})
	assert.Equal(t, []string{"z"}, expectations.Sync(&s, "a", pointers, nil).Creating)
}

func TestForgetFunc(t *testing.T) {
	t.Parallel()
	var s expectations.Store[expectations.Key]
	key := func(namespace, name string) expectations.Key {
		return expectations.Key{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, UID: types.UID(name)}
	}
	for _, name := range []string{"a", "b", "c"} {
		s.Set(key("gone", name), changes{Creations: 1})
		s.Set(key("stays", name), changes{Deleting: uids{"uid-" + types.UID(name)}})
	}
	s.Set(key("gone", "satisfied"), changes{})
	s.ForgetFunc(nil)
	asked := 0
	s.ForgetFunc(func(k expectations.Key) bool {
		asked++
		_, _ = s.Get(k) // no lock is held during this call
		return k.Namespace == "gone"
	})
	assert.Equal(t, 7, asked)
	_, is := s.Get(key("gone", "satisfied"))
	assert.False(t, is)
	left := 0
	for k := range s.All() {
		assert.Equal(t, "stays", k.Namespace)
		left++
	}
	assert.Equal(t, 3, left)
}

func TestTryAnyway(t *testing.T) {
	t.Parallel()
	c := &clock{start}
	s := &store{Now: c.Now, Timeout: time.Minute}
	found, _ := s.TryAnyway("a", changes{Creations: 1})
	assert.Equal(t, expectations.Satisfied, found)
	found, remaining := s.TryAnyway("a", changes{Creations: 2})
	assert.Equal(t, expectations.Waiting, found)
	assert.Equal(t, time.Minute+1, remaining)
	assert.Equal(t, changes{Creations: 1}, left(s, "a"))
	c.advance(time.Minute + 1)
	found, _ = s.Try("a", changes{Creations: 3})
	assert.Equal(t, expectations.Expired, found)
	assert.Equal(t, changes{Creations: 1}, left(s, "a"), "Try does not act then")
	found, remaining = s.TryAnyway("a", changes{Creations: 4})
	assert.Equal(t, expectations.Expired, found)
	assert.Zero(t, remaining)
	assert.Equal(t, changes{Creations: 4}, left(s, "a"))
	assert.Equal(t, expectations.Waiting, stateOf(s, "a"), "the time starts anew")
}
