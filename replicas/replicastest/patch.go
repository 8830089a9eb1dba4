// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/replicakit/replicakit/selector"
)

// A patch changes a child. A strategic merge patch can only adopt or release it, so it has only the fields for this.
type patch struct {
	Metadata struct {
		UID               types.UID    `json:"uid"`
		ResourceVersion   string       `json:"resourceVersion"`
		OwnerReferences   []ownerPatch `json:"ownerReferences"`
		Finalizers        []string     `json:"finalizers"`
		DeletedFinalizers []string     `json:"$deleteFromPrimitiveList/finalizers"`
	} `json:"metadata"`
	fields      map[string]any // what a merge patch changes; nil for a strategic merge patch
	subresource string
}

type ownerPatch struct {
	metav1.OwnerReference
	Directive string `json:"$patch"`
}

func (t *table[T]) parsePatch(from selector.Patch, obj T) (*patch, error) {
	p, strategic := patch{subresource: from.Subresource}, from.Type == types.StrategicMergePatchType
	// A server has the merge keys of its own types only, so it answers 415 to a strategic merge patch of a custom
	// resource.
	if !strategic && from.Type != types.MergePatchType || strategic && isCustom(t.kind) {
		return nil, t.unsupported(from)
	}
	decoder := json.NewDecoder(bytes.NewReader(from.Data))
	if strategic {
		// A field that the simulation would not apply must not pass unnoticed.
		decoder.DisallowUnknownFields()
	}
	err := decoder.Decode(&p)
	if err == nil && !strategic {
		err = decode(from.Data, &p.fields)
	}
	if err == nil && !strategic && p.fields == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return nil, badPatch(from, err)
	}
	if from.Subresource == "status" && part(obj, "Status") == nil {
		// A ConfigMap has no status, and so no such URL.
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", t.resource, "", "", 0, false)
	}
	maps.DeleteFunc(p.fields, func(field string, _ any) bool { return isReset(field, from.Subresource) })
	return &p, nil
}

// isReset reports whether the server ignores a field of a patch.
func isReset(field, subresource string) bool {
	// Only a patch of the status changes the status, and it changes nothing else. Custom resources are assumed to have
	// this subresource.
	return strings.EqualFold(field, "status") != (subresource == "status")
}

func (t *table[T]) unsupported(patch selector.Patch) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", t.resource, "", string(patch.Type), 0, false)
}

func badPatch(patch selector.Patch, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("patch %q: %v", patch.Data, err))
}

// isCustom reports whether a kind is a custom resource.
func isCustom(kind schema.GroupKind) bool {
	return strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
}

// checkPatch returns an error if the patch was made for another version of the object, or for another object.
func (t *table[T]) checkPatch(p *patch, obj T) error {
	// A server compares the version first, and looks at the UID only when it validates the result. So a patch for a
	// child that was replaced under its name is a Conflict if it has a version, and Invalid if it has only the UID.
	if err := checkWritten(t.resource, &metav1.ObjectMeta{ResourceVersion: p.Metadata.ResourceVersion}, obj); err != nil {
		return err
	}
	if id := p.Metadata.UID; id != "" && id != obj.GetUID() {
		return apierrors.NewInvalid(t.kind, obj.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), id, validation.FieldImmutableErrorMsg),
		})
	}
	return nil
}

// patched returns a changed copy of an object.
func patched[T Object[T]](p *patch, old T) (T, error) {
	obj := old.DeepCopy()
	if p.fields == nil {
		p.merge(obj)
		return obj, nil
	}
	fields := maps.Clone(p.fields)
	metadata, _ := fields["metadata"].(map[string]any)
	if delete(fields, "metadata"); len(fields) > 0 {
		// Decoding adds to the maps of obj, so fields that the patch removes would stay in them.
		if v := reflect.ValueOf(obj); v.Kind() == reflect.Pointer {
			v.Elem().SetZero()
		}
		if err := mergeInto(obj, old, fields); err != nil {
			return obj, err
		}
		// JSON rounds times to seconds and drops their location, so what the patch leaves alone is taken from old.
		obj.SetCreationTimestamp(old.GetCreationTimestamp())
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
		if p.subresource != "status" {
			setStatus(obj, old.DeepCopy())
		}
	}
	return obj, mergeMetadata(obj, metadata)
}

// mergeMetadata applies a JSON merge patch to the metadata of obj.
func mergeMetadata(obj metav1.Object, patch map[string]any) error {
	if len(patch) == 0 {
		return nil
	}
	var to metav1.ObjectMeta
	if err := mergeInto(&to, meta.AsPartialObjectMetadata(obj).ObjectMeta, patch); err != nil {
		return err
	}
	// A server ignores changes of what only it sets, such as the creation time. The methods are needed because a type
	// of one's own may lack the JSON tag of ObjectMeta.
	obj.SetName(to.Name)
	obj.SetNamespace(to.Namespace)
	obj.SetLabels(to.Labels)
	obj.SetAnnotations(to.Annotations)
	obj.SetOwnerReferences(to.OwnerReferences)
	obj.SetFinalizers(to.Finalizers)
	return nil
}

// merge applies a strategic merge patch, which adds entries to lists and removes entries.
func (p *patch) merge(obj metav1.Object) {
	p.mergeOwners(obj)
	finalizers := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
		return slices.Contains(p.Metadata.DeletedFinalizers, f)
	})
	for _, f := range p.Metadata.Finalizers {
		if !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	obj.SetFinalizers(finalizers)
}

func (p *patch) mergeOwners(obj metav1.Object) {
	refs := slices.Clone(obj.GetOwnerReferences())
	for _, ref := range p.Metadata.OwnerReferences {
		refs = ref.merge(refs)
	}
	obj.SetOwnerReferences(refs)
}

// merge applies the patch of one owner reference.
func (o ownerPatch) merge(refs []metav1.OwnerReference) []metav1.OwnerReference {
	// The UID is the merge key of this list, so the adoption by a plain owner of the child makes that owner the
	// controller.
	i := slices.IndexFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == o.UID })
	switch {
	case o.Directive == "delete":
		return slices.DeleteFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == o.UID })
	case i < 0:
		return append(refs, o.OwnerReference)
	}
	refs[i] = o.OwnerReference
	return refs
}
