// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/replicakit/replicakit/internal/deployment"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// An answer describes what happens if an owner is scaled to the given number of replicas. For a
// Deployment, the answer contains one decision for each ReplicaSet that has replicas before or
// after the scaling.
type answer struct {
	owner    owner
	above    owner // the Deployment that controls the owner; the zero value if there is none in the input
	before   int32 // replicas before this step
	replicas int32
	asked    bool // true if replicas comes from a flag or from the dump of --compare; false if it is the owner's spec.replicas
	window   window
	order    podrank.Order[*corev1.Pod]
	ours     bool           // whether --order is set
	how      deployment.How // how the Deployment sizes its ReplicaSets
	sets     []decision
}

// A decision describes what a controller does for one ReplicaSet or ReplicationController in one
// step. The pods that earlier steps delete come first in the field plan.Scale.Delete and in the
// field order.
type decision struct {
	owner    owner
	before   int32 // replicas before this step
	replicas int32
	asked    bool
	at       time.Time
	plan     replicas.PodPlan
	order    []podrank.Victim[*corev1.Pod] // all pods that count as replicas, in deletion order
	gone     int                           // number of pods that the earlier steps delete
	related  []*corev1.Pod                 // the pods to count on each node; nil if the order does not compare pods per node
	passes   []pass
	tie      *tie   // nil if it is certain which pods are deleted
	missing  string // the fields that the order compares, and the input lacks
	spec     replicas.SpecOfPods
}

// decide returns one answer for each step. Each step is a number of replicas. If steps is nil,
// decide returns a single answer, for the owner's spec.replicas.
func (o *options) decide(objs *objects, w owner, steps []int32) ([]answer, error) {
	if w.GetUID() == "" { // the input was not written by an API server, so pods cannot be matched with their owner
		return nil, fmt.Errorf("%s: metadata.uid is empty", w)
	}
	order, err := o.newOrder(objs)
	if err != nil {
		return nil, err
	}
	asked := steps != nil
	if !asked {
		steps = []int32{ptr.Deref(w.replicas, 0)}
	}
	var answers []answer
	for i, n := range steps {
		a := answer{
			owner: w, above: objs.above(w), before: ptr.Deref(w.replicas, 0), replicas: n, asked: asked,
			window: window{o.at, o.at.Add(o.within)}, order: order, ours: o.order != nil,
		}
		if i > 0 {
			a.before = steps[i-1]
		}
		if d, ok := w.Object.(*appsv1.Deployment); ok {
			err = a.decideDeployment(objs, d, steps[:i+1])
		} else {
			err = a.decide(objs, w, steps[:i+1])
		}
		if err != nil {
			return nil, err
		}
		a.findTies()
		answers = append(answers, a)
	}
	return answers, nil
}

func byUID(p, q *corev1.Pod) int {
	return cmp.Or(cmp.Compare(p.UID, q.UID), cmp.Compare(p.Name, q.Name))
}

// decideDeployment adds decisions to the answer, one for each ReplicaSet that has replicas before
// or after the scaling.
func (a *answer) decideDeployment(objs *objects, d *appsv1.Deployment, steps []int32) error {
	if d.Spec.Replicas == nil || *d.Spec.Replicas < 0 {
		return fmt.Errorf("%s: spec.replicas is nil or negative", a.owner)
	}
	sets := filter(objs.replicaSets, func(rs *appsv1.ReplicaSet) bool {
		return rs.Namespace == d.Namespace && metav1.IsControlledBy(rs, d)
	})
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, rs := range sets {
		if rs.Spec.Replicas == nil {
			return fmt.Errorf("%s: spec.replicas is nil", ofReplicaSet(rs))
		}
	}
	sizes := make([][]int32, len(sets))
	now := sets
	for i, n := range steps {
		var each []int32
		each, a.how = deployment.Scale(d, now, n)
		if i < len(steps)-1 && !a.paused() && !settled(each, n) {
			return fmt.Errorf("%s: --steps: a rollout is under way, and its progress between the steps cannot be predicted: ask only for the first step, or pause the rollout", a.owner)
		}
		for i, size := range each {
			sizes[i] = append(sizes[i], size)
		}
		now = deployment.Scaled(d, now, n, each)
	}
	for i, rs := range sets {
		if slices.Max(sizes[i]) == 0 && *rs.Spec.Replicas == 0 && rs.Status.Replicas == 0 {
			continue // an old revision
		}
		if err := a.decide(objs, ofReplicaSet(rs), sizes[i]); err != nil {
			return err
		}
	}
	return nil
}

// settled reports whether a rollout is finished. It is finished if a single ReplicaSet has all
// replicas, or if all ReplicaSets have size 0.
func settled(sizes []int32, replicas int32) bool {
	some := filter(sizes, func(size int32) bool { return size > 0 })
	return len(some) == 0 || len(some) == 1 && some[0] == replicas
}

func (a *answer) paused() bool { return a.owner.paused() }

func (o owner) paused() bool {
	d, ok := o.Object.(*appsv1.Deployment)
	return ok && d.Spec.Paused
}

// decide adds a decision about the owner w to the answer. The owner is scaled to each of the sizes
// in turn.
func (a *answer) decide(objs *objects, w owner, sizes []int32) error {
	spec, related, err := w.spec(objs)
	if err != nil {
		return err
	}
	wanted := sizes[len(sizes)-1]
	from := append([]int32{ptr.Deref(w.replicas, 0)}, sizes...)[len(sizes)-1]
	d := decision{owner: w, before: from, replicas: wanted, asked: a.asked || spec.Replicas != wanted, at: a.window.start}
	spec.Replicas, spec.Facts.Now, spec.Rules.Order = wanted, a.window.start, a.order
	spec.Facts.Related = func() []*corev1.Pod { return related }
	spec.BurstReplicas = math.MaxInt32 // the plan must list all surplus pods, not only those of the first burst
	if d.plan, err = replicas.Manage(objs.pods, spec); err != nil {
		return err
	}
	owned := slices.Concat(d.plan.Claims.Owned, d.plan.Claims.Adopt)
	d.related, d.spec, d.missing = union(owned, related), spec, objs.missing(w, owned)
	if err = d.deletePods(owned, related, spec, sizes); err != nil {
		return err
	}
	a.sets = append(a.sets, d)
	return nil
}

// deletePods simulates the passes of a controller. Each pass deletes at most
// replicas.DefaultBurstReplicas pods, and the next pass ranks the remaining pods again.
func (d *decision) deletePods(rest, related []*corev1.Pod, spec replicas.SpecOfPods, sizes []int32) (err error) {
	spec.Facts.Related = func() []*corev1.Pod { return related } // only the pods that earlier passes have not deleted
	if len(d.plan.Scale.Delete) == 0 {
		d.order, err = replicas.Explain(rest, spec)
		return err
	}
	d.plan.Scale.Delete = nil
	for _, size := range sizes {
		d.gone = len(d.plan.Scale.Delete)
		for len(rest) > int(size) {
			cut := min(len(rest)-int(size), replicas.DefaultBurstReplicas)
			spec.Replicas = int32(len(rest) - cut)
			scale, err := replicas.ScaleTo(rest, spec)
			if err != nil {
				return err
			}
			order, err := replicas.Explain(rest, spec)
			if err != nil {
				return err
			}
			d.plan.Scale.Delete = append(d.plan.Scale.Delete, scale.Delete...)
			d.passes = append(d.passes, pass{order, cut})
			gone := map[*corev1.Pod]bool{}
			for _, v := range order[:cut] {
				gone[v.Object] = true
			}
			stays := func(p *corev1.Pod) bool { return !gone[p] }
			rest, related = filter(rest, stays), filter(related, stays)
		}
	}
	for _, p := range d.passes {
		d.order = append(d.order, p.order[:p.cut]...)
	}
	last := d.passes[len(d.passes)-1]
	d.order = append(d.order, last.order[last.cut:]...)
	return nil
}

// union returns the owned and the related pods in one list without duplicates. If there are no
// related pods, it returns nil.
func union(owned, related []*corev1.Pod) []*corev1.Pod {
	if len(related) == 0 {
		return nil
	}
	all := slices.Concat(owned, related)
	slices.SortFunc(all, byUID)
	return slices.CompactFunc(all, func(p, q *corev1.Pod) bool { return byUID(p, q) == 0 })
}

// missing returns the fields that a dump lacks, because a person has removed them. If the status of
// the owner is missing, pods may be missing too.
func (o *objects) missing(w owner, pods []*corev1.Pod) string {
	var fields []string
	if observed, _ := w.status(); o.origin == input && observed == 0 && w.counted == 0 && len(pods) > 0 {
		fields = append(fields, "the status of "+w.String())
	}
	for _, field := range []struct {
		name string
		lack func(*corev1.Pod) bool
	}{
		{"UIDs of pods", func(p *corev1.Pod) bool { return p.UID == "" }},
		{"creation times of pods", func(p *corev1.Pod) bool { return p.CreationTimestamp.IsZero() }},
		{"statuses of pods", func(p *corev1.Pod) bool { return p.Status.Phase == "" }},
	} {
		if slices.ContainsFunc(pods, field.lack) {
			fields = append(fields, field.name)
		}
	}
	return strings.Join(fields, ", ")
}

// findTies calls findTie for each decision that deletes pods. With --order, the answer is about
// replicakit-controller, whose order has no ties unless the input lacks fields.
func (a *answer) findTies() {
	shrinking := filter(a.sets, func(d decision) bool { return d.victims() > 0 })
	for i := range a.sets {
		switch d := &a.sets[i]; {
		case d.victims() == 0:
		case d.missing != "":
			if from, to, ok := class(d.order, d.victims(), assigned); ok {
				d.tie = &tie{from, to, d.victims() - from, cause{"the input lacks " + d.missing, "these", "these"}}
			}
		case !a.ours:
			d.findTie(a.window, len(shrinking) > 1)
		}
	}
}

// findTie sets d.tie if it is not certain which pods are deleted. If the order compares the number
// of pods per node, a tie in an earlier pass makes this number uncertain. If sibling ReplicaSets
// shrink at the same time, the number of pods per node is also uncertain. If the number of pods per
// node is uncertain, findTie compares pods only by the criteria in the variable coarse.
func (d *decision) findTie(w window, siblings bool) {
	if d.related == nil {
		if t, ok := w.tie(pass{d.order, d.victims()}); ok {
			d.tie = &t
		}
		return
	}
	open, done := siblings, 0
	first := 0
	for _, p := range d.passes {
		t, ok := w.tie(p)
		if ok && !open {
			first = done + t.from
		}
		if done += p.cut; done == d.victims() && ok && !open {
			t.from, t.to = t.from+done-p.cut, t.to+done-p.cut
			d.tie = &t
			return
		}
		open = open || ok
	}
	if from, to, ok := class(d.order, d.victims(), coarse); ok && open {
		from = max(from, first)
		d.tie = &tie{from, to, d.victims() - from, shifted}
	}
}

// victims returns the number of pods that this step and the earlier steps delete. These pods come
// first in d.order.
func (d *decision) victims() int { return len(d.plan.Scale.Delete) }

// isCertain reports whether the pod at this index of d.order is outside the tie. A pod of the tie
// may either be deleted or stay.
func (d *decision) isCertain(place int) bool {
	return d.tie == nil || place < d.tie.from || place >= d.tie.to
}

// notes returns additional hints for the user.
func (a *answer) notes() (notes []string) {
	if note := a.scaledFromAbove(); note != "" && a.asked {
		notes = append(notes, note)
	}
	for _, d := range a.sets {
		if order := d.owner.GetAnnotations()[podrank.OrderAnnotation]; order != "" && !a.ours && d.victims() > 0 {
			notes = append(notes, fmt.Sprintf("%s asks replicakit-controller for the order %s, which kube-controller-manager does not know; use --order %s to answer with that order", d.owner, order, order))
		}
	}
	return notes
}

// scaledFromAbove returns a hint if another object controls the owner, because the controller of that
// object sets the number of replicas. Otherwise, it returns an empty string.
func (a *answer) scaledFromAbove() string {
	above := metav1.GetControllerOfNoCopy(a.owner)
	switch {
	case above == nil:
		return ""
	case above.Kind != deploymentKind.name:
		return fmt.Sprintf("%s belongs to %s %s of %s, whose operator may reset its replicas. Scale that object instead, and check its operator", a.owner, above.Kind, above.Name, above.APIVersion)
	case a.above.paused():
		return fmt.Sprintf("%s belongs to Deployment %s, which is paused, but still resets its replicas. Scale the Deployment, and ask for deployment/%s", a.owner, above.Name, above.Name)
	}
	return fmt.Sprintf("%s belongs to Deployment %s, which resets its replicas. Scale the Deployment, and ask for deployment/%s", a.owner, above.Name, above.Name)
}

// incomplete returns an error if pods seem to be missing from the input.
func (a *answer) incomplete() error {
	var errs []error
	total := 0
	missing := func(w owner, have int) {
		if have < int(w.counted) {
			errs = append(errs, fmt.Errorf("only %d of the %d pods in the status of %s were read: the input is incomplete (--allow-incomplete answers anyway)", have, w.counted, w))
		}
	}
	for _, d := range a.sets {
		if d.plan.Blocked.Reason != "" {
			return nil
		}
		have := len(d.plan.Claims.Owned) + len(d.plan.Claims.Release)
		missing(d.owner, have)
		total += have
	}
	if a.owner.kind == deploymentKind && errs == nil {
		missing(a.owner, total)
	}
	return errors.Join(errs...)
}
