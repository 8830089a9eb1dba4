// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployment predicts how Kubernetes' Deployment controller scales a Deployment's ReplicaSets. The
// package follows the functions scale and isScalingEvent of Kubernetes' pkg/controller/deployment. Tests in
// test/conformance compare the predictions of the package with the results of Kubernetes' functions.
package deployment

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// When the Deployment controller scales a ReplicaSet, it writes these annotations on the ReplicaSet. The
// first annotation contains the number of replicas that the Deployment wanted. The second annotation contains
// the maximum number of replicas that the Deployment allowed.
const (
	desiredAnnotation = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation     = "deployment.kubernetes.io/max-replicas"
)

// A How identifies the rule that determined the sizes of the ReplicaSets.
type How string

// These are the rules.
const (
	Unscaled    How = "unscaled"    // no scaling is needed, a Recreate rollout runs, or the Deployment is being deleted
	Whole       How = "whole"       // the only ReplicaSet with replicas gets all replicas; if none has replicas, the newest gets them
	Finished    How = "finished"    // all replicas of the newest ReplicaSet are available, so the others are scaled to 0
	Proportions How = "proportions" // during a rollout, each ReplicaSet grows or shrinks in proportion to its size
)

// Scale returns the sizes of the ReplicaSets after a change of the Deployment's spec.replicas. The argument
// replicas is the new value of spec.replicas. The argument sets must contain all ReplicaSets that the
// Deployment controls. Scale does not predict the later steps of a rollout. The field spec.replicas of the
// Deployment and of each ReplicaSet must not be nil.
func Scale(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, replicas int32) (sizes []int32, how How) {
	s := newScaling(d, sets, replicas)
	how = s.run()
	for _, rs := range sets {
		sizes = append(sizes, s.sizes[rs])
	}
	return sizes, how
}

// Scaled returns copies of the ReplicaSets with the sizes that Scale returned. Use the copies to predict a
// second change of spec.replicas. The prediction for the second change assumes that the Deployment controller
// makes no other changes between the first and the second change. For example, this assumption holds if the
// Deployment is paused.
func Scaled(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, replicas int32, sizes []int32) []*appsv1.ReplicaSet {
	scaled := make([]*appsv1.ReplicaSet, len(sets))
	for i, rs := range sets {
		rs = rs.DeepCopy()
		metav1.SetMetaDataAnnotation(&rs.ObjectMeta, desiredAnnotation, strconv.Itoa(int(replicas)))
		metav1.SetMetaDataAnnotation(&rs.ObjectMeta, maxAnnotation, strconv.Itoa(int(replicas+maxSurge(d, replicas))))
		rs.Spec.Replicas = &sizes[i]
		scaled[i] = rs
	}
	return scaled
}

// A scaling calculates the sizes of a Deployment's ReplicaSets for a new number of replicas. Its lists of
// ReplicaSets are sorted by age, oldest first, and then by name.
type scaling struct {
	*appsv1.Deployment
	replicas, surge int32

	all, active []*appsv1.ReplicaSet
	newest      *appsv1.ReplicaSet // the ReplicaSet with the Deployment's template; nil if there is none yet
	sizes       map[*appsv1.ReplicaSet]int32
}

func newScaling(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, replicas int32) *scaling {
	s := &scaling{Deployment: d, replicas: replicas, surge: maxSurge(d, replicas), sizes: map[*appsv1.ReplicaSet]int32{}}
	s.all = slices.SortedFunc(slices.Values(sets), byAge)
	for _, rs := range s.all {
		s.sizes[rs] = *rs.Spec.Replicas
		if *rs.Spec.Replicas > 0 {
			s.active = append(s.active, rs)
		}
		if s.newest == nil && sameTemplate(rs.Spec.Template, d.Spec.Template) {
			s.newest = rs
		}
	}
	return s
}

func (s *scaling) run() How {
	switch {
	case s.DeletionTimestamp != nil:
		return Unscaled
	case !s.Spec.Paused && !slices.ContainsFunc(s.active, s.wantedOther):
		return Unscaled
	case len(s.active) <= 1:
		s.giveAll()
		return Whole
	case s.isFinished():
		for _, rs := range s.active {
			if rs != s.newest {
				s.sizes[rs] = 0
			}
		}
		return Finished
	case s.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType:
		return Unscaled
	}
	s.share()
	return Proportions
}

// wantedOther reports whether the number in the ReplicaSet's desired-replicas annotation differs from
// s.replicas. If the annotation is missing, wantedOther compares s.replicas with the Deployment's current
// spec.replicas.
func (s *scaling) wantedOther(rs *appsv1.ReplicaSet) bool {
	desired, ok := number(rs, desiredAnnotation)
	if !ok {
		desired = *s.Spec.Replicas
	}
	return desired != s.replicas
}

// giveAll gives all replicas to the only ReplicaSet that has replicas. If no ReplicaSet has replicas, giveAll
// gives all replicas to the ReplicaSet with the Deployment's template. If no ReplicaSet has replicas, and no
// ReplicaSet has the Deployment's template, giveAll gives all replicas to the youngest ReplicaSet.
func (s *scaling) giveAll() {
	switch {
	case len(s.active) == 1:
		s.sizes[s.active[0]] = s.replicas
	case s.newest != nil:
		s.sizes[s.newest] = s.replicas
	case len(s.all) > 0:
		s.sizes[s.all[len(s.all)-1]] = s.replicas
	}
}

// isFinished reports whether the newest ReplicaSet has all replicas of the Deployment and all of them are
// available.
func (s *scaling) isFinished() bool {
	if s.newest == nil {
		return false
	}
	desired, ok := number(s.newest, desiredAnnotation)
	return ok && desired == s.replicas && *s.newest.Spec.Replicas == s.replicas && s.newest.Status.AvailableReplicas == s.replicas
}

// share distributes the change in the number of replicas over the ReplicaSets, in proportion to their sizes.
// It starts with the largest ReplicaSet. This ReplicaSet also gets the remainder from rounding.
func (s *scaling) share() {
	add := int32(0)
	if s.replicas > 0 {
		add = s.replicas + s.surge
	}
	for _, rs := range s.active {
		add -= *rs.Spec.Replicas
	}
	if add == 0 {
		return
	}
	sorted := slices.Clone(s.active)
	if add > 0 {
		slices.Reverse(sorted) // if sizes are equal, the newest ReplicaSet grows first, and the oldest shrinks first
	}
	slices.SortStableFunc(sorted, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas) })
	left := add
	for _, rs := range sorted {
		if left == 0 {
			return
		}
		part := s.change(rs)
		if add > 0 {
			part = min(part, left)
		} else {
			part = max(part, left)
		}
		s.sizes[rs] += part
		left -= part
	}
	s.sizes[sorted[0]] = max(0, s.sizes[sorted[0]]+left)
}

// change calculates how many replicas the ReplicaSet must gain to keep its proportion. The result is negative
// if the ReplicaSet must shrink.
func (s *scaling) change(rs *appsv1.ReplicaSet) int32 {
	size := *rs.Spec.Replicas
	if s.replicas == 0 {
		return -size
	}
	before, _ := number(rs, maxAnnotation)
	if before = cmp.Or(before, s.Status.Replicas); before == 0 {
		return 0
	}
	return int32(math.Round(float64(size*(s.replicas+s.surge))/float64(before))) - size
}

func byAge(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// sameTemplate reports whether two pod templates are equal, apart from the label pod-template-hash, which
// distinguishes ReplicaSets.
func sameTemplate(a, b corev1.PodTemplateSpec) bool {
	return apiequality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

func withoutHash(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template.Labels = maps.Clone(template.Labels)
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return template
}

func maxSurge(d *appsv1.Deployment, replicas int32) int32 {
	rolling := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || rolling == nil || rolling.MaxSurge == nil {
		return 0
	}
	surge, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxSurge, int(replicas), true)
	if err != nil {
		return 0 // no API server accepts a maxSurge that is neither a number nor a percentage
	}
	return int32(surge)
}

// number returns the number in an annotation of the Deployment controller. The second result reports whether
// the annotation exists and is a number.
func number(rs *appsv1.ReplicaSet, annotation string) (n int32, ok bool) {
	value, err := strconv.ParseUint(rs.Annotations[annotation], 10, 31)
	if err != nil {
		return 0, false
	}
	return int32(value), true
}
