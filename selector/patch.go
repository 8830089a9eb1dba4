// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// Patch holds the type and the body of a patch, for the Patch method of a client. If a function
// returns an error, it also returns the zero Patch, which must not be sent.
type Patch struct {
	Type types.PatchType // the content type of Data
	Data []byte
	// Subresource is the subresource to patch, such as "resize". If it is empty, the object itself is patched.
	Subresource string
}

// AdoptPatch returns the patch that makes the owner the controller of the child, adds the
// Finalizers and sets the Labels. Claimer.PatchType determines the type of the patch. If the child
// already has a reference to the owner, this reference becomes the controller reference.
//
// A strategic merge patch has the same bytes as the patch of Kubernetes' controllers. The API
// server refuses the patch with Invalid (422) if the child has another controller. The server also
// refuses the patch if another object now has the child's name, because the patch contains the
// child's UID. It is safe to send a strategic merge patch twice.
//
// A JSON merge patch can only replace whole lists, so the patch contains all owner references and
// finalizers of the child. It also contains the child's UID and resource version. If the child has
// changed since it was read, the API server refuses the patch with Conflict (409), so that no
// change is lost. In this case, read the child again and make a new patch. If the owner has no UID,
// for example because it is from a fake client, the patch is always a JSON merge patch.
//
// If the child has no UID or no resource version, the patch omits this value, and the API server
// does not check it. Bytes that are not valid UTF-8 are replaced by U+FFFD. Objects from an API
// server do not contain invalid bytes.
//
// AdoptPatch returns an error if the owner is nil or has no name, if Kind has no version or no
// kind, or if PatchType is not supported. AdoptPatch also returns an error if the child is nil, or
// if Selector would not match it after the Labels are set. For a JSON merge patch, another
// controller of the child is also an error.
func (c Claimer[T]) AdoptPatch(child T) (Patch, error) {
	p := c.patches()
	if err := p.check(); err != nil {
		return Patch{}, err
	}
	return p.adopt(child)
}

// ReleasePatch returns the patch that removes the Finalizers and every reference to the owner from
// the child. If the child has none of these references and finalizers, the patch has no effect. The
// type of the patch is determined as in AdoptPatch. If the API server returns Invalid, another
// object now has the child's name, so there is no longer anything to release.
//
// ReleasePatch returns an error if the owner is nil or has neither UID nor name, if PatchType is
// not supported, or if the child is nil. Kind is needed only if the owner has no UID.
func (c Claimer[T]) ReleasePatch(child T) (Patch, error) {
	p := c.patches()
	if err := p.checkRelease(); err != nil {
		return Patch{}, err
	}
	return p.release(child)
}

// patches holds the values for the adopt and release patches of one owner.
type patches struct {
	owner      metav1.Object
	kind       schema.GroupVersionKind
	patchType  types.PatchType
	finalizers []string
	labels     map[string]string
	selector   labels.Selector
}

func (c Claimer[T]) patches() patches {
	return patches{owner: c.Owner, kind: c.Kind, patchType: c.PatchType, finalizers: c.Finalizers, labels: c.Labels, selector: c.Selector}
}

type adoptBody struct {
	Metadata adoptMetadata `json:"metadata"`
}

type adoptMetadata struct {
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	UID             types.UID               `json:"uid,omitempty"`
	Finalizers      []string                `json:"finalizers,omitempty"`
	Labels          map[string]string       `json:"labels,omitempty"`
}

// adopt returns the patch that makes the owner the controller of the child (C20).
func (p patches) adopt(child metav1.Object) (Patch, error) {
	if object.IsNil(child) {
		return Patch{}, errChildNil
	}
	if err := p.checkLabels(child); err != nil {
		return Patch{}, err
	}
	ref := *metav1.NewControllerRef(p.owner, p.kind)
	if p.merges() {
		return p.adoptMerge(child, ref)
	}
	return newPatch(types.StrategicMergePatchType, adoptBody{adoptMetadata{
		OwnerReferences: []metav1.OwnerReference{ref},
		UID:             child.GetUID(),
		Finalizers:      p.finalizers,
		Labels:          p.labels,
	}})
}

type releaseBody struct {
	Metadata releaseMetadata `json:"metadata"`
}

type releaseMetadata struct {
	UID             types.UID      `json:"uid,omitempty"`
	OwnerReferences []deletedOwner `json:"ownerReferences"`
	Finalizers      []string       `json:"$deleteFromPrimitiveList/finalizers,omitempty"`
}

type deletedOwner struct {
	Directive string    `json:"$patch"`
	UID       types.UID `json:"uid"`
}

// release returns the patch that removes the references to the owner from the child (C21).
func (p patches) release(child metav1.Object) (Patch, error) {
	if object.IsNil(child) {
		return Patch{}, errChildNil
	}
	if p.merges() {
		return p.releaseMerge(child)
	}
	return newPatch(types.StrategicMergePatchType, releaseBody{releaseMetadata{
		UID:             child.GetUID(),
		OwnerReferences: []deletedOwner{{Directive: "delete", UID: p.owner.GetUID()}},
		Finalizers:      p.finalizers,
	}})
}

// merges reports whether the patches must be JSON merge patches. A strategic merge patch identifies
// owner references by UID, so an owner without a UID needs a JSON merge patch.
func (p patches) merges() bool {
	return p.patchType == types.MergePatchType || p.owner.GetUID() == ""
}

var errChildNil = errors.New("selector: child is nil")

// check returns an error if a value that an adopt patch needs is missing or invalid.
func (p patches) check() error {
	if err := p.checkRelease(); err != nil {
		return err
	}
	var fault string
	switch {
	case p.owner.GetName() == "":
		fault = "name is empty"
	case p.kind.Kind == "":
		fault = "kind is empty"
	case p.kind.Version == "":
		fault = "version of kind " + p.kind.Kind + " is empty"
	default:
		return nil
	}
	return fmt.Errorf("selector: owner %q: %s", object.Name(p.owner), fault)
}

// checkLabels returns an error if the selector would not match the child after the labels are set.
// Without this check, the next pass would release the adopted child again.
func (p patches) checkLabels(child metav1.Object) error {
	if len(p.labels) == 0 || p.selector == nil {
		return nil
	}
	all := labels.Set{}
	maps.Copy(all, child.GetLabels())
	maps.Copy(all, p.labels)
	if p.selector.Matches(all) {
		return nil
	}
	return fmt.Errorf("selector: child %q: with the labels %q the selector %q does not match it", object.Name(child), labels.Set(p.labels), p.selector)
}

// checkRelease returns an error if a value that a release patch needs is missing or invalid.
func (p patches) checkRelease() error {
	if err := checkOwner(p.owner); err != nil {
		return err
	}
	switch p.patchType {
	case "", types.StrategicMergePatchType, types.MergePatchType:
		return nil
	}
	return fmt.Errorf("selector: owner %q: patch type %q is neither strategic merge nor merge", object.Name(p.owner), p.patchType)
}

func checkOwner(owner metav1.Object) error {
	if object.IsNil(owner) {
		return errors.New("selector: owner is nil")
	}
	if owner.GetUID() == "" && owner.GetName() == "" {
		return fmt.Errorf("selector: owner %q: UID and name are empty", object.Name(owner))
	}
	return nil
}

func newPatch(patchType types.PatchType, body any) (Patch, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return Patch{}, fmt.Errorf("selector: %w", err)
	}
	return Patch{Type: patchType, Data: data}, nil
}
