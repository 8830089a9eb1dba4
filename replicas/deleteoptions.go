// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
)

// InvalidDeleteOptions is the RefusedError.Reason if Spec.DeleteOptions cannot be used.
const InvalidDeleteOptions = "InvalidDeleteOptions"

// checkDeleteOptions returns an error if no child could be deleted with DeleteOptions.
func (s *Spec[T]) checkDeleteOptions() error {
	if reflect.ValueOf(&s.DeleteOptions).Elem().IsZero() { // the usual case
		return nil
	}
	opts := s.DeleteOptions
	switch {
	case opts.Preconditions != nil:
		return s.refuse(InvalidDeleteOptions, "deleteOptions.preconditions is set, but each deletion has its own")
	case len(opts.DryRun) > 0:
		return s.refuse(InvalidDeleteOptions, "deleteOptions.dryRun is set, so no child would ever be deleted")
	}
	opts.Preconditions = &metav1.Preconditions{} // some options may not be combined with the preconditions of a Deletion
	if faults := metav1validation.ValidateDeleteOptions(&opts); len(faults) > 0 {
		return s.refuse(InvalidDeleteOptions, "deleteOptions.%w", faults.ToAggregate())
	}
	return nil
}

// DeleteOptionsFor returns the options with which to delete a child now, as in Deletion.Options. A plan has these
// options already. Use DeleteOptionsFor to delete a child that is in no plan, or that has been read again.
func (s *Spec[T]) DeleteOptionsFor(child T) metav1.DeleteOptions {
	if object.IsNil(child) {
		return s.DeleteOptions
	}
	opts := s.optionsFor(child)
	opts.Preconditions = new(guard).preconditions(child)
	return opts
}

// optionsFor returns the options for the deletion of a child, without preconditions.
func (s *Spec[T]) optionsFor(child T) metav1.DeleteOptions {
	opts := s.DeleteOptions
	if rulesOfPods[T]() != nil || opts.PropagationPolicy != nil || opts.OrphanDependents != nil || slices.ContainsFunc(child.GetFinalizers(), isCollectors) { //nolint:staticcheck // servers still accept OrphanDependents
		return opts
	}
	// Without a policy, the server orphans what a batch/v1 Job or a v1 ReplicationController controls. The owner is
	// scaled from 2 to 0, and the pods of its Jobs go on running, with no owner that would ever delete them.
	background := metav1.DeletePropagationBackground
	opts.PropagationPolicy = &background
	return opts
}

// isCollectors reports whether a finalizer says what becomes of the dependents, which a policy would override.
func isCollectors(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

// guarded turns each victim into a Deletion with preconditions.
func (s *Spec[T]) guarded(victims []podrank.Victim[T]) []Deletion[T] {
	if len(victims) == 0 {
		return nil
	}
	deletions, guards := make([]Deletion[T], len(victims)), make([]guard, len(victims))
	for i, v := range victims {
		deletions[i].Victim = v
		deletions[i].Options = s.optionsFor(v.Object)
		deletions[i].Options.Preconditions = guards[i].preconditions(v.Object)
	}
	return deletions
}

// A guard holds the preconditions of a deletion and the values that the preconditions point to.
type guard struct {
	metav1.Preconditions
	uid     types.UID
	version string
}

// preconditions returns the preconditions for the deletion of a child.
func (g *guard) preconditions(child metav1.Object) *metav1.Preconditions {
	// web-2 was deleted and made again meanwhile. By its name alone, the new one would go.
	if g.uid = child.GetUID(); g.uid != "" {
		g.UID = &g.uid
	}
	// The owner was deleted with --cascade=orphan, and its finalizer kept it. The cache was half a second late and still
	// showed the orphaned pods as the owner's. By their UIDs alone, all of them would have been deleted.
	if g.version = child.GetResourceVersion(); g.version != "" {
		g.ResourceVersion = &g.version
	}
	if g.Preconditions == (metav1.Preconditions{}) {
		return nil
	}
	return &g.Preconditions
}
