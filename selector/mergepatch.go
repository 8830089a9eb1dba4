package selector

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

type mergeBody struct {
	Metadata mergeMetadata `json:"metadata"`
}

// mergeMetadata replaces the lists that are not nil as a whole.
type mergeMetadata struct {
	UID             types.UID               `json:"uid"`
	ResourceVersion string                  `json:"resourceVersion"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitzero"`
	Finalizers      []string                `json:"finalizers,omitzero"`
}

// AdoptMergePatch is AdoptPatch for custom resources: the API server refuses
// strategic merge patches on them with 415, and a JSON merge patch can only
// replace lists as a whole. So it takes the child as it was last read, keeps the
// owner references and finalizers that it has, and carries its UID and resource
// version: when anybody has changed the child since, the API server answers
// Conflict (409) and nothing is lost. Read the child again then, claim again, and
// make a new patch.
//
// A reference to owner that is there already is upgraded in its place (C10). A
// list that does not change is not sent, except ownerReferences.
//
// The errors are those of AdoptPatch; besides, a child that is nil, that has no
// UID or resource version, or that has another controller already is one.
func AdoptMergePatch(owner metav1.Object, kind schema.GroupVersionKind, child metav1.Object, finalizers ...string) (Patch, error) {
	ref, err := controllerRef(owner, kind)
	if err != nil {
		return Patch{}, err
	}
	meta, err := guarded(child)
	if err != nil {
		return Patch{}, err
	}
	meta.OwnerReferences, err = withController(child, ref)
	if err != nil {
		return Patch{}, err
	}
	meta.Finalizers = withFinalizers(child.GetFinalizers(), finalizers)
	return newPatch(types.MergePatchType, mergeBody{meta})
}

// ReleaseMergePatch is ReleasePatch for custom resources: it removes every
// reference to the owner with ownerUID, and the finalizers, and keeps the others.
// It takes the child, is guarded and must be made anew after a Conflict as
// AdoptMergePatch. What is to be removed but is not there is no error: the patch
// then changes less, or nothing.
//
// An empty ownerUID is an error, and so is a child that is nil or has no UID or
// resource version.
func ReleaseMergePatch(ownerUID types.UID, child metav1.Object, finalizers ...string) (Patch, error) {
	meta, err := guarded(child)
	if err != nil {
		return Patch{}, err
	}
	if ownerUID == "" {
		return Patch{}, fmt.Errorf("selector: child %q: UID of the owner to release it from is empty", object.Name(child))
	}
	meta.OwnerReferences = without(child.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == ownerUID })
	meta.Finalizers = without(child.GetFinalizers(), func(f string) bool { return slices.Contains(finalizers, f) })
	return newPatch(types.MergePatchType, mergeBody{meta})
}

// guarded returns what makes the API server refuse the patch if the child is
// another one, or another version of it, than the one that was read.
func guarded(child metav1.Object) (mergeMetadata, error) {
	if object.IsNil(child) {
		return mergeMetadata{}, errors.New("selector: child is nil")
	}
	if child.GetUID() == "" {
		return mergeMetadata{}, fmt.Errorf("selector: child %q: UID is empty", object.Name(child))
	}
	if child.GetResourceVersion() == "" {
		return mergeMetadata{}, fmt.Errorf("selector: child %q: resource version is empty", object.Name(child))
	}
	return mergeMetadata{UID: child.GetUID(), ResourceVersion: child.GetResourceVersion()}, nil
}

// withController returns the child's owner references with ref in the place of
// the entry of the same UID, or at the end.
func withController(child metav1.Object, ref metav1.OwnerReference) ([]metav1.OwnerReference, error) {
	refs := slices.Clone(child.GetOwnerReferences())
	for _, r := range refs {
		if r.Controller != nil && *r.Controller && r.UID != ref.UID {
			return nil, fmt.Errorf("selector: child %q: has a controller already: %s %q with UID %q", object.Name(child), r.Kind, r.Name, r.UID)
		}
	}
	if i := slices.IndexFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == ref.UID }); i >= 0 {
		refs[i] = ref
		return refs, nil
	}
	return append(refs, ref), nil
}

// withFinalizers returns have and those of more that it lacks, or nil if it lacks
// none.
func withFinalizers(have, more []string) []string {
	all := slices.Clone(have)
	for _, f := range more {
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	if len(all) == len(have) {
		return nil
	}
	return all
}

// without returns list without the elements to drop, or nil if there are none.
func without[E any](list []E, drop func(E) bool) []E {
	if !slices.ContainsFunc(list, drop) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), drop)
}
