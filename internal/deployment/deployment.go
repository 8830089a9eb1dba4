// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployment predicts how Kubernetes' Deployment controller scales a Deployment's ReplicaSets. It
// follows scale and isScalingEvent of pkg/controller/deployment, which test/conformance runs for
// comparison.
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

// The Deployment controller writes these annotations on a ReplicaSet: the size that the Deployment wanted
// when it was last scaled, and the most replicas that it then allowed.
const (
	desiredAnnotation = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation     = "deployment.kubernetes.io/max-replicas"
)

// A How says which rule sized the ReplicaSets.
type How string

// The rules. The first that applies is used.
const (
	Unscaled    How = "unscaled"    // every ReplicaSet keeps its size, because nothing is scaled, a Recreate is under way, or the Deployment is deleted
	Whole       How = "whole"       // the only one with replicas gets them all, or else the newest
	Finished    How = "finished"    // the newest has all its replicas, available: the others get none
	Proportions How = "proportions" // during a rollout each one shrinks or grows in proportion to its size
)

// Scale returns the new size of each ReplicaSet once spec.replicas of the Deployment is set to a number.
// sets must be all that the Deployment controls. The later steps of a rollout are left out. The replicas of
// the Deployment and of each ReplicaSet must not be nil.
func Scale(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, replicas int32) (sizes []int32, how How) {
	s := newScaling(d, sets, replicas)
	how = s.run()
	for _, rs := range sets {
		sizes = append(sizes, s.sizes[rs])
	}
	return sizes, how
}

// Scaled returns copies of the ReplicaSets with Scale's sizes. The next number starts from them if the
// Deployment does nothing else in between, for example because it is paused.
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

// A scaling is a Deployment that is scaled to a number of replicas. The lists are sorted by age, the oldest
// first, and then by name.
type scaling struct {
	*appsv1.Deployment
	replicas, surge int32

	all, active []*appsv1.ReplicaSet
	newest      *appsv1.ReplicaSet // of the Deployment's own template; nil: none yet
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

// wantedOther reports whether the ReplicaSet was last sized for another number. Without an annotation, it
// was sized for the Deployment's present number.
func (s *scaling) wantedOther(rs *appsv1.ReplicaSet) bool {
	desired, ok := number(rs, desiredAnnotation)
	if !ok {
		desired = *s.Spec.Replicas
	}
	return desired != s.replicas
}

// giveAll gives all replicas to the only ReplicaSet that has some, or else to the
// newest.
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

// isFinished reports whether the newest ReplicaSet already has the size that the rollout ends with.
func (s *scaling) isFinished() bool {
	if s.newest == nil {
		return false
	}
	desired, ok := number(s.newest, desiredAnnotation)
	return ok && desired == s.replicas && *s.newest.Spec.Replicas == s.replicas && s.newest.Status.AvailableReplicas == s.replicas
}

// share shares out replicas that are allowed or too many, from the largest ReplicaSet to the smallest. The
// largest gets the rest that rounding leaves.
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
		slices.Reverse(sorted) // among equal sizes the newest grows first, and the oldest shrinks first
	}
	slices.SortStableFunc(sorted, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas) })
	left := add
	for _, rs := range sorted {
		if left == 0 {
			return
		}
		part := s.part(rs)
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

// part returns how much the ReplicaSet must grow to stay in proportion.
func (s *scaling) part(rs *appsv1.ReplicaSet) int32 {
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

// sameTemplate compares pod templates without the hash that distinguishes ReplicaSets.
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
		return 0 // no server stores it
	}
	return int32(surge)
}

// number reads an annotation of the Deployment controller. It returns 0 if that is no number.
func number(rs *appsv1.ReplicaSet, annotation string) (n int32, ok bool) {
	value, err := strconv.ParseUint(rs.Annotations[annotation], 10, 31)
	if err != nil {
		return 0, false
	}
	return int32(value), true
}
