package replicastest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

// podPatch is as much of a strategic merge patch as adopting and releasing need.
type podPatch struct {
	Metadata struct {
		UID               *types.UID   `json:"uid"`
		OwnerReferences   []ownerPatch `json:"ownerReferences"`
		Finalizers        []string     `json:"finalizers"`
		DeletedFinalizers []string     `json:"$deleteFromPrimitiveList/finalizers"`
	} `json:"metadata"`
}

type ownerPatch struct {
	metav1.OwnerReference
	Directive string `json:"$patch"`
}

func parsePatch(patch selector.Patch) (*podPatch, error) {
	if patch.Type != types.StrategicMergePatchType {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch",
			podResource, "", string(patch.Type), 0, false)
	}
	decoder := json.NewDecoder(bytes.NewReader(patch.Data))
	decoder.DisallowUnknownFields()
	var p podPatch
	if err := decoder.Decode(&p); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("patch %q: %v", patch.Data, err))
	}
	return &p, nil
}

// apply merges the patch into a pod. A UID that is not the pod's own comes out
// as a change that the API server refuses.
func (p *podPatch) apply(obj *corev1.Pod) {
	if p.Metadata.UID != nil {
		obj.UID = *p.Metadata.UID
	}
	for _, ref := range p.Metadata.OwnerReferences {
		obj.OwnerReferences = ref.merge(obj.OwnerReferences)
	}
	obj.Finalizers = slices.DeleteFunc(obj.Finalizers, func(f string) bool {
		return slices.Contains(p.Metadata.DeletedFinalizers, f)
	})
	for _, f := range p.Metadata.Finalizers {
		if !slices.Contains(obj.Finalizers, f) {
			obj.Finalizers = append(obj.Finalizers, f)
		}
	}
}

// merge puts the reference into the list, or takes it out: references of one UID
// are one and the same.
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
