// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

var (
	setKind        = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	controllerKind = corev1.SchemeGroupVersion.WithKind("ReplicationController")
	o              = &metav1.ObjectMeta{Namespace: "ns", Name: "o", UID: "ouid"}
)

// patcher returns a Claimer with the default patch type.
func patcher(owner metav1.Object, kind schema.GroupVersionKind, finalizers ...string) selector.Claimer[metav1.Object] {
	return selector.Claimer[metav1.Object]{Owner: owner, Kind: kind, Finalizers: finalizers}
}

// merger returns a Claimer that makes JSON merge patches.
func merger(owner metav1.Object, kind schema.GroupVersionKind, finalizers ...string) selector.Claimer[metav1.Object] {
	c := patcher(owner, kind, finalizers...)
	c.PatchType = types.MergePatchType
	return c
}

// child returns an object with this UID.
func child(uid types.UID) metav1.Object {
	return &metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: uid}
}

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
			patch, err := patcher(o, tt.kind, tt.finalizers...).AdoptPatch(child("pu"))
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(patch.Data))
		})
	}
	t.Run("C24 it is a strategic merge patch", func(t *testing.T) {
		t.Parallel()
		patch, err := patcher(o, setKind).AdoptPatch(child("pu"))
		require.NoError(t, err)
		assert.Equal(t, types.PatchType("application/strategic-merge-patch+json"), patch.Type)
	})
}

func TestAdoptPatchRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		owner metav1.Object
		kind  schema.GroupVersionKind
		child metav1.Object
		want  string
	}{
		{"nil owner", nil, setKind, child("pu"), "selector: owner is nil"},
		{"typed nil owner", (*appsv1.ReplicaSet)(nil), setKind, child("pu"), "selector: owner is nil"},
		{"owner without UID and name", &metav1.ObjectMeta{Namespace: "ns"}, setKind, child("pu"), `selector: owner "ns/": UID and name are empty`},
		{"owner without name", &metav1.ObjectMeta{Namespace: "ns", UID: "ouid"}, setKind, child("pu"), `selector: owner "ns/": name is empty`},
		{"no kind", o, schema.GroupVersionKind{Version: "v1"}, child("pu"), `selector: owner "ns/o": kind is empty`},
		{"no version", o, schema.GroupVersionKind{Group: "apps", Kind: "ReplicaSet"}, child("pu"), `selector: owner "ns/o": version of kind ReplicaSet is empty`},
		{"nil child", o, setKind, nil, "selector: child is nil"},
		{"typed nil child", o, setKind, (*corev1.Pod)(nil), "selector: child is nil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			patch, err := patcher(tt.owner, tt.kind).AdoptPatch(tt.child)
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
			patch, err := patcher(o, setKind, tt.finalizers...).ReleasePatch(child("pu"))
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(patch.Data))
		})
	}
	t.Run("C24 it is a strategic merge patch", func(t *testing.T) {
		t.Parallel()
		patch, err := patcher(o, schema.GroupVersionKind{}).ReleasePatch(child("pu"))
		require.NoError(t, err)
		assert.Equal(t, types.PatchType("application/strategic-merge-patch+json"), patch.Type)
	})
}

func TestReleasePatchRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		owner metav1.Object
		child metav1.Object
		want  string
	}{
		{"nil owner", nil, child("pu"), "selector: owner is nil"},
		{"owner without UID and name", &metav1.ObjectMeta{}, child("pu"), `selector: owner "": UID and name are empty`},
		{"nil child", o, nil, "selector: child is nil"},
		{"typed nil child", o, (*corev1.Pod)(nil), "selector: child is nil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			patch, err := patcher(tt.owner, schema.GroupVersionKind{}).ReleasePatch(tt.child)
			require.EqualError(t, err, tt.want)
			assert.Zero(t, patch)
		})
	}
}

func TestPatchesOfNoKnownType(t *testing.T) {
	t.Parallel()
	for _, patchType := range []types.PatchType{types.JSONPatchType, types.ApplyYAMLPatchType, "x"} {
		c := patcher(o, setKind)
		c.PatchType = patchType
		_, err := c.AdoptPatch(child("pu"))
		require.EqualError(t, err, `selector: owner "ns/o": patch type "`+string(patchType)+`" is neither strategic merge nor merge`)
		_, err = c.ReleasePatch(child("pu"))
		require.Error(t, err)
	}
}

func TestPatchesWithoutUIDs(t *testing.T) {
	t.Parallel()
	unknown := &metav1.ObjectMeta{Namespace: "ns", Name: "o"}
	ours, theirs := *metav1.NewControllerRef(unknown, setKind), *metav1.NewControllerRef(&metav1.ObjectMeta{Name: "other"}, setKind)
	theirs.Controller = nil
	t.Run("what the child does not have is not sent", func(t *testing.T) {
		t.Parallel()
		patch, err := patcher(o, setKind).AdoptPatch(child(""))
		require.NoError(t, err)
		assert.JSONEq(t, `{"metadata":{"ownerReferences":[`+ourEntry+`]}}`, string(patch.Data))
		patch, err = patcher(o, setKind).ReleasePatch(child(""))
		require.NoError(t, err)
		assert.JSONEq(t, `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"ouid"}]}}`, string(patch.Data))
		patch, err = merger(o, setKind).AdoptPatch(child(""))
		require.NoError(t, err)
		assert.JSONEq(t, `{"metadata":{"ownerReferences":[`+ourEntry+`]}}`, string(patch.Data))
	})
	t.Run("references to others are told apart by name", func(t *testing.T) {
		t.Parallel()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", OwnerReferences: []metav1.OwnerReference{theirs}}}
		for _, want := range [][]metav1.OwnerReference{{theirs, ours}, {theirs, ours}} {
			patch, err := patcher(unknown, setKind).AdoptPatch(p)
			require.NoError(t, err)
			p = applyToPod(t, p, patch)
			assert.Equal(t, want, p.OwnerReferences, "adopting twice changes nothing more")
		}
		patch, err := patcher(unknown, setKind).ReleasePatch(p)
		require.NoError(t, err)
		assert.Equal(t, []metav1.OwnerReference{theirs}, applyToPod(t, p, patch).OwnerReferences)
	})
}

// applyToPod applies a JSON merge patch to a pod.
func applyToPod(t *testing.T, p *corev1.Pod, patch selector.Patch) *corev1.Pod {
	t.Helper()
	require.Equal(t, types.MergePatchType, patch.Type)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	require.NoError(t, err)
	var patched corev1.Pod
	content = apply(t, &unstructured.Unstructured{Object: content}, patch).Object
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, &patched))
	return &patched
}

// decode decodes a patch, and fails if the patch has unknown fields.
func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(into))
	require.False(t, d.More())
}

// utf8 replaces every byte that is not valid UTF-8 with U+FFFD.
func utf8(s string) string { return string([]rune(s)) }

func FuzzAdoptPatch(f *testing.F) {
	f.Add("o", "ouid", "apps", "v1", "ReplicaSet", "pu", "f.example/keep")
	f.Add(`"`, `\`, "", "v1", "<&>", "\u2028", "ключ")
	f.Add("\xff", "a\xc3", "a/b", "\x00", "\n", "\xed\xa0\x80", "")
	// The fuzzer found these inputs.
	f.Add("0", "0", "", "", "0", "0", "0")
	f.Add("\b", "0", "0", "0", "", "0", "0")
	f.Add("\b\b", "0", "", "0", "0", "0", "0")
	f.Add("0", "\r", "0", "0", "\r\b", "0", "")
	f.Add("É00000000", "0", "0", "0", "", "0", "0")
	f.Add("0", "0", "0", "0", "\f\f\f\f\f\f\f\f", "0", "")
	f.Add("\"", "\xc3\xc3", "0", "\"", "\"", "\xed\xa0\"", "")
	f.Add("0", "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", "0", "0", "0", "0", "0")
	f.Add("0", "0", "0", "0", "0", "&&&&&&00&00&&0&&&0&", "0&00&0&0&&00000&0&&0&&&&0&")
	f.Add("0", "\xa2\xa2\xa2\xa2\xa2\xa2\xa2\xc3", "\x93", "0", "\x80\xff", "\xa0", "\xf7\xe90\xaf\x9c")
	f.Add("0", "0", "0", "0", "0", "\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f\f", "0")
	f.Add("0", "0\x9c\xd4\f\xd3\xf8 \x05\x0f\tn硱\x923\xcf6\xfbβ$TڝU\xff\xf6\xdbh^)ur\x98W\x9a\xcaS\x9eS\xbcZa\x00\xbf\xb6n\xb8\xabJd(\xe3G\xb90\x18j\xae\xbb\x8b'z\xadHE\x90s\xea6y\xe5\xda&j\xb4k\xff&\b\xbe\xb1e\xaa\x82\xb9\x99\xe0\xc1StEGy\xb0\x90.)\xb6\xe2{j\x9f\xc5AL\x9b_3\xf6'\xbcլH\xf8`\xd8A\xb8\x9b\x90\xc5\xe3\x16Q\xcd-ʟ\x92\xdc3\vf$;\xa0\xe4_\xc9\xc7_J\xa6\xff\x1b\xfe\x02[\n\x87 S\xea\xad\xc5\"a\x82\x95s\x97\xa4^\x98\x19\x91]a\xbe\xc0\x02\xeb\xc6 \xa9\xa9\x10\xbd+(uy!?\x82\x1c\x01uhw\x98\x00\x0e\xef\xc9\xcc\xdc\xc1D^lfn\xdbZ\xf5e\x99]\xaf\x84\xb0 \xaan\xd6<z`\x19sj\x97K\xe8\xc8B<\xd6\xe0\xf5r&\x80\x8e\x7f9\x00\xa0`\xa8\x94\xac4\xb5=\x02\x85\xbdch\xefbf\xfeq\x98\x9d\xdbT\xf6\x13\xeb\xed\xab\xbc\\XP\x84\xc8\xde\xd3R\xa3v\x19s\x1a3?ӝ??\x062\xb2\xab\xc9\x06T\xe9ux.\xee\x1f\xf2&\xf6\x98\xd0$р\x82Mt\xc4\xd0\x02v]\xc5n^BX\xf3\xc6\xeec\x19\x1a?\xd0^Ɵ\xf8@Z\x12[\xe8~\xee\v\x06\xa7\xac\x89\xc3[\xe1&t\xd8\xdd \x91\x829\xa1\xc1\x82]\x9d\xf3`\xd3\xc1\xa7b\xec\xea~\x03\xbb(\tr\xdcO\\W@>\xf9\xd0\x05SNg\xaf\xede\x1c\x10\xc7*\xc1\f\xc6\x02b\xa0\xba\xbb\xd4\xe8PV\x86X\xb4\x82{ ", "0", "\"", "\x13", "\"\"", "\"\"\"\"")
	f.Fuzz(func(t *testing.T, name, ownerUID, group, version, kind, podUID, finalizer string) {
		owner := &metav1.ObjectMeta{Name: name, UID: types.UID(ownerUID)}
		patch, err := patcher(owner, schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, finalizer).AdoptPatch(child(types.UID(podUID)))
		if name == "" || version == "" || kind == "" {
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
	// The fuzzer found these inputs.
	f.Add("0", "&", "")
	f.Add("邂", "0", "")
	f.Add("\n\n", "0", "0")
	f.Add("", "ȭݟᠺʠ֪ЌÀ̀", "0")
	f.Add("\f\f\f\f", "", "0")
	f.Add("0", "0", "\U000d04a0")
	f.Add("0", "0", "ᴲ嘖ᤇ豣\ue311\ue2f0䑵遝")
	f.Add("0", "\xf0\x9d\xe4\x9e\xd6", "0")
	f.Add("&00", "&", "&00&\"0&00&&&0&&&&00&&00&&&&0&0&&")
	f.Add("&00&&0", "&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&00", "000000&&&&0000")
	f.Add("\xef", "\xdf0\x87\xe3\f\xa7\xc2\xce\xcb\xd10\x81\x8f\xa7\xc5\f\xf0\xc60\x9c", "0")
	f.Add("\xbdr\xa2\xa9d\x96\xd5V\xb4}F\x19Qku\xe0\x9e\x89\x9e\xfe4\xeaO\xddqNb\x93N\x05\xf3|~l\xf4`\xf9\xd4\x10\xc4\x1c-\xf3;\x8d\x1e\xd6Xp P5\xbd\xf1\xc8s\xa9T\a\xccT\xa5\xb8\x1f\xfb#ޫ\v\x1aa`7\xc1@V\xa9&\xea\xf2\xdb\x128p+\xba\f\xfe) \xb9T\x8e\xf5\xb49+\xa0\xbc\x18cs U\xa7\fv\xef\x13\xea\xcfU\uf0bd>\x1dBtR\xb9\xa6\x12\xc4\xd9Q\x88}\xdaH\xbb\x14\x1d\x17\xe2gz\v\xec-\fV\a,\x149\xbe\a1\xe8\xfd\x11\fr#\x14y\xedI\xef\x13\xea\xcfU\xef\x82\x0e#T8$\xac\x93\xe8\xf1\x95H\xb2\xb1\t\x8ab\xef\xfe\x85\xf2\xfe\x81\x1e\xd5\x19ܔ\x80\xb5", "\xc3", " ")
	f.Fuzz(func(t *testing.T, ownerUID, podUID, finalizer string) {
		if ownerUID == "" {
			return
		}
		patch, err := patcher(&metav1.ObjectMeta{UID: types.UID(ownerUID)}, setKind, finalizer).ReleasePatch(child(types.UID(podUID)))
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
