package selector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
)

// Owners returns the owners that an orphan concerns: those that would adopt it
// and must be looked at when it appears, in the order of the input. More
// than one means that their selectors overlap: the first to adopt wins, and the
// caller may want to report it.
//
// A child that is nil, that has no labels or that has a controller already
// concerns nobody: nil. Owners that are nil, of another namespace, or whose
// selector is refused by sel, nil or empty are passed over; owners being deleted
// are not. ForReplicaSet and ForReplicationController serve as sel; a nil
// sel finds nobody.
func Owners[O metav1.Object](child metav1.Object, owners []O, sel func(O) (labels.Selector, error)) []O {
	if sel == nil || object.IsNil(child) || len(child.GetLabels()) == 0 || metav1.GetControllerOfNoCopy(child) != nil {
		return nil
	}
	var found []O
	isNil := object.NilOf[O]()
	for _, owner := range owners {
		if isNil(owner) || !reaches(owner.GetNamespace(), child) {
			continue
		}
		s, err := sel(owner)
		if err != nil || object.CheckSelector(s) != nil {
			continue
		}
		if s.Matches(labels.Set(child.GetLabels())) {
			found = append(found, owner)
		}
	}
	return found
}

// reaches reports whether an owner of the namespace may adopt obj: a
// cluster-scoped owner, one without a namespace, may adopt anywhere (C7).
func reaches(namespace string, obj metav1.Object) bool {
	return namespace == "" || namespace == obj.GetNamespace()
}
