// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

// A patch is a merge patch or a strategic merge patch. It contains only the fields that are needed
// to adopt and release children.
type patch struct {
	Metadata struct {
		UID               *types.UID   `json:"uid"`
		ResourceVersion   string       `json:"resourceVersion"`
		OwnerReferences   []ownerPatch `json:"ownerReferences"`
		Finalizers        []string     `json:"finalizers"`
		DeletedFinalizers []string     `json:"$deleteFromPrimitiveList/finalizers"`
	} `json:"metadata"`
	strategic bool
}

type ownerPatch struct {
	metav1.OwnerReference
	Directive string `json:"$patch"`
}

func (c *Cluster[O, C]) parsePatch(from selector.Patch) (*patch, error) {
	p := patch{strategic: from.Type == types.StrategicMergePatchType}
	if !p.strategic && from.Type != types.MergePatchType || p.strategic && isCustom(c.children.kind) {
		return nil, c.children.unsupported(from)
	}
	decoder := json.NewDecoder(bytes.NewReader(from.Data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, badPatch(from, err)
	}
	return &p, nil
}

func (t *table[T]) unsupported(patch selector.Patch) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", t.resource, "", string(patch.Type), 0, false)
}

func badPatch(patch selector.Patch, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("patch %q: %v", patch.Data, err))
}

// isCustom reports whether a kind is a custom resource. Custom resources do not support strategic
// merge patches.
func isCustom(kind schema.GroupKind) bool {
	return strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
}

// check returns a Conflict if the patch contains a resourceVersion, and the object has another one.
func (p *patch) check(resource schema.GroupResource, obj metav1.Object) error {
	if version := p.Metadata.ResourceVersion; version != "" {
		return checkWritten(resource, &metav1.ObjectMeta{ResourceVersion: version}, obj)
	}
	return nil
}

// apply merges the patch into an object. If the UID in the patch differs from that of the object,
// the later validation refuses the changed object.
func (p *patch) apply(obj metav1.Object) {
	if p.Metadata.UID != nil {
		obj.SetUID(*p.Metadata.UID)
	}
	if p.strategic {
		p.merge(obj)
		return
	}
	if p.Metadata.OwnerReferences != nil {
		obj.SetOwnerReferences(nil)
		p.mergeOwners(obj)
	}
	if p.Metadata.Finalizers != nil {
		obj.SetFinalizers(p.Metadata.Finalizers)
	}
}

// merge applies a strategic merge patch. The patch adds entries to the object's lists, and removes
// entries.
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

// merge adds the reference to refs, replaces the reference with the same UID, or removes all
// references with that UID.
func (o ownerPatch) merge(refs []metav1.OwnerReference) []metav1.OwnerReference {
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
