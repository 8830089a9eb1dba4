// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/deployment"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// An answer is what comes of an owner that has its replicas: for a Deployment,
// of each of its ReplicaSets that has any.
type answer struct {
	owner    owner
	replicas int32
	asked    bool // for this number, by --replicas
	explain  bool
	at       time.Time
	how      deployment.How // of a Deployment
	sets     []decision
}

// A decision is what is to be done for one owner of pods.
type decision struct {
	owner    owner
	replicas int32
	asked    bool
	at       time.Time
	plan     replicas.Plan
	order    []podrank.Victim[*corev1.Pod] // all that count, the first to go first
	related  []*corev1.Pod                 // that count when nodes are compared; nil: none do
}

func decide(objs *objects, opts options) (answer, error) {
	w, err := objs.find(opts)
	if err != nil {
		return answer{}, err
	}
	if w.GetUID() == "" { // a file written by hand: its pods would seem to be nobody's
		return answer{}, fmt.Errorf("%s: metadata.uid is empty", w)
	}
	slices.SortFunc(objs.pods, byUID) // the plan keeps the order, which shall not be that of the dump
	a := answer{owner: w, at: opts.at, asked: opts.replicas != nil, explain: opts.explain}
	switch {
	case opts.replicas != nil:
		a.replicas = *opts.replicas
	case w.replicas != nil:
		a.replicas = *w.replicas
	}
	if d, ok := w.Object.(*appsv1.Deployment); ok {
		return a, a.decideDeployment(objs, d)
	}
	return a, a.decide(objs, w, a.replicas)
}

func byUID(p, q *corev1.Pod) int {
	return cmp.Or(cmp.Compare(p.UID, q.UID), cmp.Compare(p.Name, q.Name))
}

// decideDeployment decides for each ReplicaSet that has pods or is to have some.
func (a *answer) decideDeployment(objs *objects, d *appsv1.Deployment) error {
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
	sizes, how := deployment.Scale(d, sets, a.replicas)
	a.how = how
	for i, rs := range sets {
		if sizes[i] == 0 && *rs.Spec.Replicas == 0 && rs.Status.Replicas == 0 {
			continue // an old revision
		}
		if err := a.decide(objs, ofReplicaSet(rs), sizes[i]); err != nil {
			return err
		}
	}
	return nil
}

// decide adds what is to be done for the owner to have so many replicas.
func (a *answer) decide(objs *objects, w owner, wanted int32) error {
	spec, err := w.spec(objs)
	if err != nil {
		return err
	}
	asked := a.asked || spec.Replicas != wanted
	spec.Replicas = wanted
	spec.Now = a.at
	spec.BurstReplicas = math.MaxInt32 // asked about is the whole surplus
	plan, err := replicas.Manage(objs.pods, spec)
	if err != nil {
		return err
	}
	candidates := slices.Concat(plan.Claims.Owned, plan.Claims.Adopt)
	order, err := replicas.Explain(candidates, spec)
	if err != nil {
		return err
	}
	a.sets = append(a.sets, decision{
		owner: w, replicas: wanted, asked: asked, at: a.at,
		plan: plan, order: order, related: together(candidates, spec.Related),
	})
	return nil
}

// together returns the pods that count when nodes are compared: nil if nothing is
// related, else those and the owned ones, each once.
func together(owned, related []*corev1.Pod) []*corev1.Pod {
	if len(related) == 0 {
		return nil
	}
	all := slices.Concat(owned, related)
	slices.SortFunc(all, byUID)
	return slices.CompactFunc(all, func(p, q *corev1.Pod) bool { return byUID(p, q) == 0 })
}

// notes are what the reader has to know beside the answer.
func (a *answer) notes() []string {
	var notes []string
	for _, d := range a.sets {
		if note := d.incomplete(); note != "" {
			notes = append(notes, note)
		}
	}
	if above := metav1.GetControllerOfNoCopy(a.owner); above != nil && above.Kind == deploymentKind.name && a.asked {
		notes = append(notes, fmt.Sprintf("%s belongs to Deployment %s, which sets its replicas again: scale that one, and ask for deployment/%s",
			a.owner, above.Name, above.Name))
	}
	return notes
}

// incomplete says that pods seem to be missing in what was read, if so.
func (d *decision) incomplete() string {
	claims := d.plan.Claims
	have, counted := len(claims.Owned)+len(claims.Release), int(d.owner.counted)
	if have >= counted {
		return ""
	}
	return fmt.Sprintf("%d pods of %s were read, and its status counts %d: is the input complete?", have, d.owner, counted)
}
