// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

// widget returns a custom resource with these references and finalizers.
func widget(refs []metav1.OwnerReference, finalizers ...string) *unstructured.Unstructured {
	w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.example/v1", "kind": "Widget"}}
	w.SetNamespace("ns")
	w.SetName("w")
	w.SetUID("wuid")
	w.SetResourceVersion("7")
	w.SetOwnerReferences(refs)
	w.SetFinalizers(finalizers)
	return w
}

func plain(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID(name + "-uid")}
}

const (
	ourEntry   = `{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"ouid","controller":true,"blockOwnerDeletion":true}`
	plainEntry = `{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"c-uid"}`
	guard      = `"uid":"wuid","resourceVersion":"7"`
)

func TestAdoptMergePatch(t *testing.T) {
	t.Parallel()
	plainOurs := metav1.OwnerReference{APIVersion: "apps/v1beta1", Kind: "ReplicaSet", Name: "o", UID: "ouid"}
	no := false
	notController := plain("c")
	notController.Controller = &no
	for _, tt := range []struct {
		name       string
		child      *unstructured.Unstructured
		finalizers []string
		want       string
	}{
		{
			"C10 controller: false is nobody's controller", widget([]metav1.OwnerReference{notController}), nil,
			`{"metadata":{` + guard + `,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"c-uid","controller":false},` + ourEntry + `]}}`,
		},
		{"C22 the bytes, UID and resource version first", widget(nil), nil, `{"metadata":{` + guard + `,"ownerReferences":[` + ourEntry + `]}}`},
		{"other references are kept", widget([]metav1.OwnerReference{plain("c")}), nil, `{"metadata":{` + guard + `,"ownerReferences":[` + plainEntry + `,` + ourEntry + `]}}`},
		{"C10 our plain reference is upgraded in its place", widget([]metav1.OwnerReference{plainOurs, plain("c")}), nil, `{"metadata":{` + guard + `,"ownerReferences":[` + ourEntry + `,` + plainEntry + `]}}`},
		{"finalizers are added to those there", widget(nil, "f0", "f1"), []string{"f2", "f1", "f2"}, `{"metadata":{` + guard + `,"ownerReferences":[` + ourEntry + `],"finalizers":["f0","f1","f2"]}}`},
		{"finalizers that are all there are not sent", widget(nil, "f0", "f1"), []string{"f1"}, `{"metadata":{` + guard + `,"ownerReferences":[` + ourEntry + `]}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := tt.child.DeepCopy()
			patch, err := merger(o, setKind, tt.finalizers...).AdoptPatch(tt.child)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(patch.Data))
			assert.Equal(t, types.PatchType("application/merge-patch+json"), patch.Type)
			assert.Equal(t, before, tt.child)
		})
	}
	t.Run("a typed child is not changed either", func(t *testing.T) {
		t.Parallel()
		child := &metav1.ObjectMeta{Name: "w", UID: "wuid", ResourceVersion: "7", OwnerReferences: []metav1.OwnerReference{plainOurs}, Finalizers: make([]string, 1, 4)}
		before := child.DeepCopy()
		_, err := merger(o, setKind, "f1").AdoptPatch(child)
		require.NoError(t, err)
		_, err = merger(o, setKind, "").ReleasePatch(child)
		require.NoError(t, err)
		assert.Equal(t, before, child)
		assert.Equal(t, []string{"", ""}, child.Finalizers[:2], "spare capacity belongs to the child")
	})
}

func TestReleaseMergePatch(t *testing.T) {
	t.Parallel()
	controlled := metav1.NewControllerRef(o, setKind)
	for _, tt := range []struct {
		name       string
		child      *unstructured.Unstructured
		finalizers []string
		want       string
	}{
		{"C22 the only reference is removed", widget([]metav1.OwnerReference{*controlled}), nil, `{"metadata":{` + guard + `,"ownerReferences":[]}}`},
		{"every reference to us is removed, others are kept", widget([]metav1.OwnerReference{*controlled, plain("c"), *controlled}), nil, `{"metadata":{` + guard + `,"ownerReferences":[` + plainEntry + `]}}`},
		{"the named finalizers are removed, others are kept", widget([]metav1.OwnerReference{*controlled}, "f0", "f1", "f2"), []string{"f0", "f2"}, `{"metadata":{` + guard + `,"ownerReferences":[],"finalizers":["f1"]}}`},
		{"the last finalizer", widget([]metav1.OwnerReference{*controlled}, "f0"), []string{"f0"}, `{"metadata":{` + guard + `,"ownerReferences":[],"finalizers":[]}}`},
		{"what is not there is not removed", widget([]metav1.OwnerReference{plain("c")}, "f0"), []string{"f1"}, `{"metadata":{` + guard + `}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := tt.child.DeepCopy()
			patch, err := merger(o, schema.GroupVersionKind{}, tt.finalizers...).ReleasePatch(tt.child)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(patch.Data))
			assert.Equal(t, types.PatchType("application/merge-patch+json"), patch.Type)
			assert.Equal(t, before, tt.child)
		})
	}
}

func TestMergePatchesRefuse(t *testing.T) {
	t.Parallel()
	t.Run("another controller", func(t *testing.T) {
		t.Parallel()
		child := widget([]metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "x", UID: "xuid"}, setKind)})
		patch, err := merger(o, setKind).AdoptPatch(child)
		require.EqualError(t, err, `selector: child "ns/w": already has a controller: ReplicaSet "x" with UID "xuid"`)
		assert.Zero(t, patch)
	})
}

func TestMergePatchesApplied(t *testing.T) {
	t.Parallel()
	for _, refs := range [][]metav1.OwnerReference{nil, {plain("c")}, {plain("c"), plain("d")}} {
		for _, finalizers := range [][]string{nil, {"f0"}, {"f0", "f3"}} {
			original := widget(refs, finalizers...)
			adopt, err := merger(o, setKind, "f1", "f2").AdoptPatch(original)
			require.NoError(t, err)
			adopted := apply(t, original, adopt)
			controller := metav1.GetControllerOf(adopted)
			require.NotNil(t, controller)
			assert.Equal(t, types.UID("ouid"), controller.UID)
			assert.Equal(t, append(append([]string(nil), finalizers...), "f1", "f2"), adopted.GetFinalizers())
			assert.Len(t, adopted.GetOwnerReferences(), len(refs)+1)

			again, err := merger(o, setKind, "f1", "f2").AdoptPatch(adopted)
			require.NoError(t, err)
			assert.Equal(t, adopted, apply(t, adopted, again), "adopting twice changes nothing more")

			release, err := merger(o, setKind, "f1", "f2").ReleasePatch(adopted)
			require.NoError(t, err)
			released := apply(t, adopted, release)
			assert.ElementsMatch(t, original.GetOwnerReferences(), released.GetOwnerReferences())
			assert.ElementsMatch(t, original.GetFinalizers(), released.GetFinalizers())
		}
	}
}

// apply applies a JSON merge patch (RFC 7386), as the API server does.
func apply(t *testing.T, to *unstructured.Unstructured, patch selector.Patch) *unstructured.Unstructured {
	t.Helper()
	var p any
	require.NoError(t, json.Unmarshal(patch.Data, &p))
	return &unstructured.Unstructured{Object: merge(to.DeepCopy().Object, p).(map[string]any)}
}

func merge(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(t, k)
		} else {
			t[k] = merge(t[k], v)
		}
	}
	return t
}
