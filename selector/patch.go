package selector

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// Patch is what a client's Patch call needs beside the object's name. The zero
// Patch, which comes with every error, must not be sent.
type Patch struct {
	Type types.PatchType // the content type of Data (C24)
	Data []byte
}

type adoptBody struct {
	Metadata adoptMetadata `json:"metadata"`
}

type adoptMetadata struct {
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	UID             types.UID               `json:"uid"`
	Finalizers      []string                `json:"finalizers,omitempty"`
}

// AdoptPatch returns the strategic merge patch that makes owner, of the given
// kind, the controller of the pod (or other built-in object) with that UID, and
// adds the finalizers. Its bytes are those that Kubernetes' controllers send
// (C20). A reference to owner that is there already is upgraded (C10); the API
// server refuses the patch with Invalid (422) when the object has another
// controller, or when another object now bears its name: the UID is the guard
// (C22). Sending it twice changes nothing more.
//
// An owner that is nil or has no UID or name, a kind without version or kind, and
// an empty podUID are errors. The group may be empty: that is the core group, as
// in "v1" (C23). Bytes that are not UTF-8, which no API object can hold, are
// replaced by U+FFFD.
func AdoptPatch(owner metav1.Object, kind schema.GroupVersionKind, podUID types.UID, finalizers ...string) (Patch, error) {
	ref, err := controllerRef(owner, kind)
	if err != nil {
		return Patch{}, err
	}
	if podUID == "" {
		return Patch{}, fmt.Errorf("selector: owner %q: UID of the pod to adopt is empty", object.Name(owner))
	}
	return newPatch(types.StrategicMergePatchType, adoptBody{adoptMetadata{
		OwnerReferences: []metav1.OwnerReference{ref},
		UID:             podUID,
		Finalizers:      finalizers,
	}})
}

type releaseBody struct {
	Metadata releaseMetadata `json:"metadata"`
}

type releaseMetadata struct {
	UID             types.UID      `json:"uid"`
	OwnerReferences []deletedOwner `json:"ownerReferences"`
	Finalizers      []string       `json:"$deleteFromPrimitiveList/finalizers,omitempty"`
}

type deletedOwner struct {
	Directive string    `json:"$patch"`
	UID       types.UID `json:"uid"`
}

// ReleasePatch returns the strategic merge patch that removes every reference to
// the owner with ownerUID, and the finalizers, from the pod (or other built-in
// object) with podUID. Its bytes are those that Kubernetes' controllers send
// (C21). What is to be removed but is not there is passed over by the API server.
// It refuses the patch with Invalid (422) when another object now bears the name:
// the UID is the guard (C22), and there is nothing left to release (C16).
//
// An empty ownerUID or podUID is an error. Bytes that are not UTF-8 are replaced
// as in AdoptPatch.
func ReleasePatch(ownerUID, podUID types.UID, finalizers ...string) (Patch, error) {
	if ownerUID == "" {
		return Patch{}, fmt.Errorf("selector: pod with UID %q: UID of the owner to release it from is empty", podUID)
	}
	if podUID == "" {
		return Patch{}, fmt.Errorf("selector: owner with UID %q: UID of the pod to release is empty", ownerUID)
	}
	return newPatch(types.StrategicMergePatchType, releaseBody{releaseMetadata{
		UID:             podUID,
		OwnerReferences: []deletedOwner{{Directive: "delete", UID: ownerUID}},
		Finalizers:      finalizers,
	}})
}

// controllerRef returns the reference by which owner controls its children.
func controllerRef(owner metav1.Object, kind schema.GroupVersionKind) (metav1.OwnerReference, error) {
	var fault string
	switch {
	case object.IsNil(owner):
		return metav1.OwnerReference{}, errors.New("selector: owner is nil")
	case owner.GetUID() == "":
		fault = "UID is empty"
	case owner.GetName() == "":
		fault = "name is empty"
	case kind.Kind == "":
		fault = "kind is empty"
	case kind.Version == "":
		fault = "version of kind " + kind.Kind + " is empty"
	default:
		return *metav1.NewControllerRef(owner, kind), nil
	}
	return metav1.OwnerReference{}, fmt.Errorf("selector: owner %q: %s", object.Name(owner), fault)
}

func newPatch(patchType types.PatchType, body any) (Patch, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return Patch{}, fmt.Errorf("selector: %w", err)
	}
	return Patch{Type: patchType, Data: data}, nil
}
