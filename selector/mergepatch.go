// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

type mergeBody struct {
	Metadata mergeMetadata `json:"metadata"`
}

// mergeMetadata is the metadata of a JSON merge patch. Each list that is not nil replaces the
// child's whole list. UID and ResourceVersion make the API server refuse the patch if the child was
// replaced or changed after it was read.
type mergeMetadata struct {
	UID             types.UID               `json:"uid,omitempty"`
	ResourceVersion string                  `json:"resourceVersion,omitempty"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitzero"`
	Finalizers      []string                `json:"finalizers,omitzero"`
	Labels          map[string]string       `json:"labels,omitempty"` // the labels to set on the child
}

func (p patches) adoptMerge(child metav1.Object, ref metav1.OwnerReference) (Patch, error) {
	refs, err := p.withController(child, ref)
	if err != nil {
		return Patch{}, err
	}
	return newPatch(types.MergePatchType, mergeBody{mergeMetadata{
		UID:             child.GetUID(),
		ResourceVersion: child.GetResourceVersion(),
		OwnerReferences: refs,
		Finalizers:      withFinalizers(child.GetFinalizers(), p.finalizers),
		Labels:          p.labels,
	}})
}

func (p patches) releaseMerge(child metav1.Object) (Patch, error) {
	owner := object.OwnerOf(p.owner, p.kind.GroupKind())
	return newPatch(types.MergePatchType, mergeBody{mergeMetadata{
		UID:             child.GetUID(),
		ResourceVersion: child.GetResourceVersion(),
		OwnerReferences: without(child.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return owner.IsNamed(&ref, child) }),
		Finalizers:      without(child.GetFinalizers(), func(f string) bool { return slices.Contains(p.finalizers, f) }),
	}})
}

// withController returns the child's owner references with ref added at the end. If the child
// already has a reference to the owner, ref replaces this reference. If the child has another
// controller, withController returns an error.
func (p patches) withController(child metav1.Object, ref metav1.OwnerReference) ([]metav1.OwnerReference, error) {
	owner, refs := object.OwnerOf(p.owner, p.kind.GroupKind()), slices.Clone(child.GetOwnerReferences())
	for _, r := range refs {
		if r.Controller != nil && *r.Controller && !owner.IsNamed(&r, child) {
			return nil, fmt.Errorf("selector: child %q: already has a controller: %s %q with UID %q", object.Name(child), r.Kind, r.Name, r.UID)
		}
	}
	if i := slices.IndexFunc(refs, func(r metav1.OwnerReference) bool { return owner.IsNamed(&r, child) }); i >= 0 {
		refs[i] = ref
		return refs, nil
	}
	return append(refs, ref), nil
}

// withFinalizers returns the first list, followed by the finalizers that only the second list
// contains. If nothing is added, the result is nil.
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

// without returns a new list of the elements for which the given function returns false. If the
// function returns false for all elements, the result is nil.
func without[E any](list []E, drop func(E) bool) []E {
	if !slices.ContainsFunc(list, drop) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), drop)
}
