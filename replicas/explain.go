package replicas

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/podrank"
)

// Explain returns the children in the order in which they would go if ever fewer
// were wanted, each with what decides between it and the next: the whole order
// of which Scale.Delete is the beginning. Those that must stay come last.
//
// The children are those that ScaleTo takes, for a plan its Claims.Owned and
// Claims.Adopt. Inactive ones are dropped; ownership is not looked at. Nothing
// depends on Spec.Replicas, and whether a plan would be Blocked does not matter.
// Errors are those of ScaleTo; no children give nil.
func Explain[T metav1.Object](owned []T, spec SpecOf[T]) ([]podrank.Victim[T], error) {
	if err := spec.checkScale(); err != nil {
		return nil, err
	}
	active, err := spec.active(owned)
	if err != nil {
		return nil, err
	}
	return podrank.Explain(active, spec.ranking(active)), nil
}
