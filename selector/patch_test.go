package selector_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

var (
	setKind        = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	controllerKind = corev1.SchemeGroupVersion.WithKind("ReplicationController")
	o              = &metav1.ObjectMeta{Namespace: "ns", Name: "o", UID: "ouid"}
)

func TestAdoptPatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		kind       schema.GroupVersionKind
		finalizers []string
		want       string
	}{
		{
			"C20 C22 the bytes, the pod's UID among them", setKind, nil,
			`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"ouid","controller":true,"blockOwnerDeletion":true}],"uid":"pu"}}`,
		},
		{
			"C20 finalizers come last, in their order", setKind,
			[]string{"f2", "f1"},
			`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"ouid","controller":true,"blockOwnerDeletion":true}],"uid":"pu","finalizers":["f2","f1"]}}`,
		},
		{
			"C20 empty finalizers are left out", setKind,
			[]string{},
			`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"ouid","controller":true,"blockOwnerDeletion":true}],"uid":"pu"}}`,
		},
		{
			"C23 the core group is a bare version", controllerKind, nil,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ReplicationController","name":"o","uid":"ouid","controller":true,"blockOwnerDeletion":true}],"uid":"pu"}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			patch, err := selector.AdoptPatch(o, tt.kind, "pu", tt.finalizers...)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(patch.Data))
		})
	}
	t.Run("C24 it is a strategic merge patch", func(t *testing.T) {
		t.Parallel()
		patch, err := selector.AdoptPatch(o, setKind, "pu")
		require.NoError(t, err)
		assert.Equal(t, types.PatchType("application/strategic-merge-patch+json"), patch.Type)
	})
}

func TestAdoptPatchRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		owner  metav1.Object
		kind   schema.GroupVersionKind
		podUID types.UID
		want   string
	}{
		{"nil owner", nil, setKind, "pu", "selector: owner is nil"},
		{"typed nil owner", (*appsv1.ReplicaSet)(nil), setKind, "pu", "selector: owner is nil"},
		{"owner without UID", &metav1.ObjectMeta{Namespace: "ns", Name: "o"}, setKind, "pu", `selector: owner "ns/o": UID is empty`},
		{"owner without name", &metav1.ObjectMeta{Namespace: "ns", UID: "ouid"}, setKind, "pu", `selector: owner "ns/": name is empty`},
		{"no kind", o, schema.GroupVersionKind{Version: "v1"}, "pu", `selector: owner "ns/o": kind is empty`},
		{"no version", o, schema.GroupVersionKind{Group: "apps", Kind: "ReplicaSet"}, "pu", `selector: owner "ns/o": version of kind ReplicaSet is empty`},
		{"C22 without the pod's UID nothing would guard", o, setKind, "", `selector: owner "ns/o": UID of the pod to adopt is empty`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			patch, err := selector.AdoptPatch(tt.owner, tt.kind, tt.podUID)
			require.EqualError(t, err, tt.want)
			assert.Zero(t, patch)
		})
	}
}

func TestReleasePatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		finalizers []string
		want       string
	}{
		{
			"C21 C22 the bytes, the pod's UID first", nil,
			`{"metadata":{"uid":"pu","ownerReferences":[{"$patch":"delete","uid":"ouid"}]}}`,
		},
		{
			"C21 finalizers are deleted from their list",
			[]string{"f2", "f1"},
			`{"metadata":{"uid":"pu","ownerReferences":[{"$patch":"delete","uid":"ouid"}],"$deleteFromPrimitiveList/finalizers":["f2","f1"]}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			patch, err := selector.ReleasePatch("ouid", "pu", tt.finalizers...)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(patch.Data))
		})
	}
	t.Run("C24 it is a strategic merge patch", func(t *testing.T) {
		t.Parallel()
		patch, err := selector.ReleasePatch("ouid", "pu")
		require.NoError(t, err)
		assert.Equal(t, types.PatchType("application/strategic-merge-patch+json"), patch.Type)
	})
	t.Run("C22 without the pod's UID nothing would guard", func(t *testing.T) {
		t.Parallel()
		patch, err := selector.ReleasePatch("ouid", "")
		require.EqualError(t, err, `selector: owner with UID "ouid": UID of the pod to release is empty`)
		assert.Zero(t, patch)
	})
	t.Run("no owner UID", func(t *testing.T) {
		t.Parallel()
		patch, err := selector.ReleasePatch("", "pu")
		require.EqualError(t, err, `selector: pod with UID "pu": UID of the owner to release it from is empty`)
		assert.Zero(t, patch)
	})
}

// decode reads a patch back and refuses fields that it does not know.
func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(into))
	require.False(t, d.More())
}

// utf8 replaces every byte that is not UTF-8 by U+FFFD.
func utf8(s string) string { return string([]rune(s)) }

func FuzzAdoptPatch(f *testing.F) {
	f.Add("o", "ouid", "apps", "v1", "ReplicaSet", "pu", "f.example/keep")
	f.Add(`"`, `\`, "", "v1", "<&>", "\u2028", "ключ")
	f.Add("\xff", "a\xc3", "a/b", "\x00", "\n", "\xed\xa0\x80", "")
	f.Fuzz(func(t *testing.T, name, ownerUID, group, version, kind, podUID, finalizer string) {
		patch, err := selector.AdoptPatch(&metav1.ObjectMeta{Name: name, UID: types.UID(ownerUID)},
			schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, types.UID(podUID), finalizer)
		if name == "" || ownerUID == "" || version == "" || kind == "" || podUID == "" {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		var got struct {
			Metadata struct {
				OwnerReferences []metav1.OwnerReference
				UID             string
				Finalizers      []string
			}
		}
		decode(t, patch.Data, &got)
		yes, apiVersion := true, group+"/"+version
		if group == "" {
			apiVersion = version
		}
		require.Equal(t, []metav1.OwnerReference{{
			APIVersion: utf8(apiVersion), Kind: utf8(kind), Name: utf8(name), UID: types.UID(utf8(ownerUID)),
			Controller: &yes, BlockOwnerDeletion: &yes,
		}}, got.Metadata.OwnerReferences)
		require.Equal(t, utf8(podUID), got.Metadata.UID)
		require.Equal(t, []string{utf8(finalizer)}, got.Metadata.Finalizers)
	})
}

func FuzzReleasePatch(f *testing.F) {
	f.Add("ouid", "pu", "f.example/keep")
	f.Add(`"`, `\u0000`, "<&>")
	f.Add("\xff", "a\xc3", "")
	f.Fuzz(func(t *testing.T, ownerUID, podUID, finalizer string) {
		patch, err := selector.ReleasePatch(types.UID(ownerUID), types.UID(podUID), finalizer)
		if ownerUID == "" || podUID == "" {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		var got struct {
			Metadata struct {
				UID             string
				OwnerReferences []map[string]string
				Finalizers      []string `json:"$deleteFromPrimitiveList/finalizers"`
			}
		}
		decode(t, patch.Data, &got)
		require.Equal(t, utf8(podUID), got.Metadata.UID)
		require.Equal(t, []map[string]string{{"$patch": "delete", "uid": utf8(ownerUID)}}, got.Metadata.OwnerReferences)
		require.Equal(t, []string{utf8(finalizer)}, got.Metadata.Finalizers)
	})
}
