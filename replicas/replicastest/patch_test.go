// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/selector"
)

func TestPatchPod(t *testing.T) {
	t.Parallel()
	owner := &metav1.ObjectMeta{Name: "web", UID: "owner"}
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	ours := *metav1.NewControllerRef(owner, kind)
	plain := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "owner"}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "thing", UID: "thing"}
	rival := *metav1.NewControllerRef(&metav1.ObjectMeta{Name: "rival", UID: "rival"}, kind)

	claimer := func(finalizers []string) selector.Claimer[*corev1.Pod] {
		return selector.Claimer[*corev1.Pod]{Owner: owner, Kind: kind, Finalizers: finalizers}
	}
	adopt := func(finalizers ...string) func(*corev1.Pod) (selector.Patch, error) {
		return claimer(finalizers).AdoptPatch
	}
	release := func(finalizers ...string) func(*corev1.Pod) (selector.Patch, error) {
		return claimer(finalizers).ReleasePatch
	}
	type list = []metav1.OwnerReference
	for name, tc := range map[string]struct {
		owners     list
		finalizers []string
		patch      func(*corev1.Pod) (selector.Patch, error)
		want       list
		finalized  []string
	}{
		"an orphan is adopted":               {nil, nil, adopt(), list{ours}, nil},
		"a plain reference is upgraded":      {list{plain, other}, nil, adopt(), list{ours, other}, nil},
		"another owner stays":                {list{other}, nil, adopt(), list{other, ours}, nil},
		"adopting twice is the same":         {list{ours}, nil, adopt(), list{ours}, nil},
		"finalizers are merged":              {nil, []string{"a/a"}, adopt("a/a", "b/b"), list{ours}, []string{"a/a", "b/b"}},
		"a pod is released":                  {list{ours}, nil, release(), list{}, nil},
		"the other owner is not":             {list{other, ours}, nil, release(), list{other}, nil},
		"what is free is released all right": {list{rival}, nil, release(), list{rival}, nil},
		"a finalizer goes":                   {list{ours}, []string{"a/a", "b/b"}, release("a/a"), list{}, []string{"b/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			in := pod("web")
			in.OwnerReferences, in.Finalizers = tc.owners, tc.finalizers
			p := createPod(t, c, in)
			patch, err := tc.patch(p)
			require.NoError(t, err)
			patched, err := c.PatchChild(t.Context(), namespace, "web", patch, metav1.PatchOptions{})
			require.NoError(t, err)
			assert.ElementsMatch(t, tc.want, patched.OwnerReferences)
			assert.Equal(t, tc.finalized, patched.Finalizers)
		})
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		patch  func(*corev1.Pod) (selector.Patch, error)
	}{
		"another controller": {func(p *corev1.Pod) { p.OwnerReferences = list{rival} }, adopt()},
		"another pod": {func(*corev1.Pod) {}, func(*corev1.Pod) (selector.Patch, error) {
			return release()(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "another"}})
		}},
	} {
		t.Run(name+" is invalid", func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			in := pod("web")
			tc.change(in)
			p := createPod(t, c, in)
			patch, err := tc.patch(p)
			require.NoError(t, err)
			_, err = c.PatchChild(t.Context(), namespace, "web", patch, metav1.PatchOptions{})
			require.True(t, apierrors.IsInvalid(err), err)
			left, err := c.GetChild(t.Context(), namespace, "web")
			require.NoError(t, err)
			assert.Equal(t, p, left)
		})
	}
	t.Run("a pod that is being deleted gets no finalizer", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		in := pod("web")
		in.Finalizers = []string{"a/a"}
		p := createPod(t, c, in)
		_, err := c.DeleteChild(t.Context(), namespace, "web", metav1.DeleteOptions{})
		require.NoError(t, err)
		patch, err := adopt("b/b")(p)
		require.NoError(t, err)
		_, err = c.PatchChild(t.Context(), namespace, "web", patch, metav1.PatchOptions{})
		assert.True(t, apierrors.IsInvalid(err), err)
	})
	t.Run("a dry run checks everything and stores nothing", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		p := createPod(t, c, pod("web"))
		patch, err := adopt()(p)
		require.NoError(t, err)
		dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		patched, err := c.PatchChild(t.Context(), namespace, "web", patch, dry)
		require.NoError(t, err)
		assert.Equal(t, list{ours}, patched.OwnerReferences)
		assert.Equal(t, p, c.Children(namespace)[0])
		c.Deny("patch", failure.BadRequest.Of)
		_, err = c.PatchChild(t.Context(), namespace, "web", patch, dry)
		assert.True(t, apierrors.IsBadRequest(err), err)
		c.Webhook = nil
		_, err = c.EditChild(t.Context(), namespace, "web", func(p *corev1.Pod) { p.OwnerReferences = list{rival} })
		require.NoError(t, err)
		_, err = c.PatchChild(t.Context(), namespace, "web", patch, dry)
		assert.True(t, apierrors.IsInvalid(err), err)
	})
	t.Run("other patches are refused", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		createPod(t, c, pod("web"))
		_, err := c.PatchChild(t.Context(), namespace, "web", selector.Patch{Type: types.JSONPatchType, Data: []byte(`[]`)}, metav1.PatchOptions{})
		assert.True(t, apierrors.IsUnsupportedMediaType(err), err)
		for _, data := range []string{`{"spec":{}}`, `{`, ``} {
			_, err = c.PatchChild(t.Context(), namespace, "web", selector.Patch{Type: types.StrategicMergePatchType, Data: []byte(data)}, metav1.PatchOptions{})
			assert.True(t, apierrors.IsBadRequest(err), "%q: %v", data, err)
		}
		_, err = c.PatchChild(t.Context(), namespace, "none", selector.Patch{}, metav1.PatchOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
	})
}
