// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// A change compares the number of pods before and after the scaling. If there are ties, the number
// after the scaling can be any number from Least to Most.
type change struct {
	Name   string `json:"name"`
	Before int    `json:"before"`
	Least  int    `json:"least"`
	Most   int    `json:"most"`
}

// zones returns the number of pods in each zone before and after the scaling. If no node has a zone
// label, the result is nil.
func (a *answer) zones(objs *objects) []change {
	zones := objs.zones()
	if len(zones) == 0 {
		return nil
	}
	byZone := map[string]*change{}
	for i := range a.sets {
		d := &a.sets[i]
		for _, v := range d.order {
			if name := zones[v.Object.Spec.NodeName]; byZone[name] == nil {
				byZone[name] = &change{Name: name}
			}
		}
		for name, c := range byZone {
			before, least, most := d.staying(func(p *corev1.Pod) bool { return zones[p.Spec.NodeName] == name })
			c.Before, c.Least, c.Most = c.Before+before, c.Least+least, c.Most+most
		}
	}
	var list []change
	for _, name := range slices.Sorted(maps.Keys(byZone)) {
		list = append(list, *byZone[name])
	}
	return list
}

// staying counts the pods before and after the scaling. It counts only pods for which the given
// function returns true. If there is a tie, the number after the scaling can be any number from
// least to most.
func (d *decision) staying(counts func(*corev1.Pod) bool) (before, least, most int) {
	tied := 0
	for i, v := range d.order {
		if !counts(v.Object) {
			continue
		}
		before++
		switch {
		case !d.isCertain(i):
			tied++
		case i >= d.victims():
			least++
		}
	}
	most = least
	if t := d.tie; t != nil {
		least += max(0, tied-t.goes)
		most += min(tied, t.to-t.from-t.goes)
	}
	return before, least, most
}

// A budget counts the ready pods of a PodDisruptionBudget before and after the scaling. A
// PodDisruptionBudget limits evictions, but it does not limit scaling down.
type budget struct {
	change `json:",inline"`

	Wanted int `json:"wanted"` // number of ready pods that the PodDisruptionBudget requires
}

// broken reports whether the number of ready pods may fall below the number that the
// PodDisruptionBudget requires.
func (b budget) broken() bool { return b.Least < b.Wanted }

// budgets returns a budget for each PodDisruptionBudget that selects pods of a scaled-down set.
func (a *answer) budgets(objs *objects) (list []budget, err error) {
	for _, pdb := range objs.budgets {
		sel, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil || pdb.Namespace != a.owner.GetNamespace() {
			continue
		}
		matched := func(p *corev1.Pod) bool { return pdb.Namespace == p.Namespace && sel.Matches(labels.Set(p.Labels)) }
		b := budget{change: change{Name: pdb.Name}}
		total, ours, goes := 0, 0, 0
		for _, p := range objs.pods {
			if pod.IsActive(p) && matched(p) {
				total++
				b.Before += count(pod.IsReady(p))
			}
		}
		b.Least, b.Most = b.Before, b.Before
		for i := range a.sets {
			d := &a.sets[i]
			before, least, most := d.staying(func(p *corev1.Pod) bool { return matched(p) && pod.IsReady(p) })
			b.Least, b.Most = b.Least-before+least, b.Most-before+most
			if slices.ContainsFunc(d.order, func(v podrank.Victim[*corev1.Pod]) bool { return matched(v.Object) }) {
				ours, goes = ours+len(d.order), goes+d.victims()
			}
		}
		if ours == 0 || goes == 0 {
			continue
		}
		if b.Wanted, err = minReady(pdb, total-goes); err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// minReady returns the number of ready pods that a PodDisruptionBudget requires if it selects the
// given number of pods.
func minReady(pdb *policyv1.PodDisruptionBudget, pods int) (n int, err error) {
	if most := pdb.Spec.MaxUnavailable; most != nil {
		n, err = intstr.GetScaledValueFromIntOrPercent(most, pods, true)
		n = max(0, pods-n)
	} else if least := pdb.Spec.MinAvailable; least != nil {
		n, err = intstr.GetScaledValueFromIntOrPercent(least, pods, true)
	}
	if err != nil {
		return 0, fmt.Errorf("PodDisruptionBudget %s/%s: minAvailable or maxUnavailable is neither a number nor a percentage", pdb.Namespace, pdb.Name)
	}
	return n, nil
}

// A position describes the place of a pod in the deletion order. It says whether and why the pod is
// deleted. With the deletion cost in the field First, the pod would rank before all other pods of
// its group. With the deletion cost in the field Protect, the pod would rank after all other pods
// of its group. Both deletion costs are results of the method decision.costs.
type position struct {
	Name    string   `json:"name"`
	Place   int      `json:"place"` // counted from 1
	Of      int      `json:"of"`
	Goes    string   `json:"goes"`   // yes, no or maybe
	Reason  string   `json:"reason"` // why the pod comes before the first pod that stays, or after the last pod that is deleted
	First   *costing `json:"first,omitempty"`
	Protect *costing `json:"protect,omitempty"`
}

// A costing describes the place that a pod would have with a given deletion cost.
type costing struct {
	Cost  int64 `json:"cost"`
	Place int   `json:"place"`
	Goes  bool  `json:"goes"`
}

// position returns the position of the pod with the given name.
func (a *answer) position(name string) (position, error) {
	var names []string
	for i := range a.sets {
		d := &a.sets[i]
		for place, v := range d.order {
			if v.Object.Name == name {
				return d.position(place)
			}
			names = append(names, v.Object.Name)
		}
	}
	return position{}, fmt.Errorf("--pod: %s has no pod %s%s", a.owner, name, didYouMean(name, names, ""))
}

func (d *decision) position(place int) (position, error) {
	p := d.order[place].Object
	at := position{Name: p.Name, Place: place + 1, Of: len(d.order), Goes: "no", Reason: "nothing will be deleted"}
	if place < d.victims() {
		at.Goes = "yes"
		at.Reason = inWords(d.plan.Scale.Delete[place].Victim)
	} else if d.victims() > 0 {
		last := d.order[d.victims()-1].Object
		pair, err := replicas.Explain([]*corev1.Pod{last, p}, d.spec)
		if err != nil {
			return position{}, err
		}
		at.Reason = fmt.Sprintf("%s is the last pod to be deleted. It ranks before this pod: %s", last.Name, inWords(pair[0]))
	}
	if !d.isCertain(place) {
		at.Goes = fmt.Sprintf("maybe: %d of %d tied pods are deleted", d.tie.goes, d.tie.to-d.tie.from)
	}
	at.First, at.Protect = d.costs(place)
	return at, nil
}

// costs returns two deletion costs for the pod at this index of d.order. Deletion costs are
// compared only within a group of pods with the same assignment, phase and readiness. With the
// first cost, the pod ranks before all other pods of its group. With the second cost, the pod
// ranks after all other pods of its group. If its group contains no other pod, both results are
// nil.
func (d *decision) costs(place int) (first, last *costing) {
	before := map[string]bool{"unassigned": true, "phase": true, "not-ready": true}
	from, to := place, place+1
	for from > 0 && !before[d.order[from-1].Criterion] {
		from--
	}
	for to < len(d.order) && !before[d.order[to-1].Criterion] {
		to++
	}
	if to-from == 1 {
		return nil, nil
	}
	var costs []int64
	for i, v := range d.order[from:to] {
		if cost, _ := podrank.ParseDeletionCost(v.Object.Annotations); from+i != place {
			costs = append(costs, int64(cost))
		}
	}
	return &costing{slices.Min(costs) - 1, from + 1, from < d.victims()}, &costing{slices.Max(costs) + 1, to, to <= d.victims()}
}

// A comparison compares the predicted deletions with the pods that are missing from a later dump.
type comparison struct {
	Gone    int      `json:"gone"`
	Certain int      `json:"certain"`          // pods that were certain to be deleted, and are gone
	Named   int      `json:"named"`            // pods that were certain to be deleted
	Tied    int      `json:"tied"`             // pods that were part of a tie, and are gone
	Ties    int      `json:"ties"`             // all pods that were part of a tie
	Drawn   int      `json:"drawn"`            // predicted number of deleted pods that were part of a tie
	Kept    []string `json:"kept,omitempty"`   // pods that were certain to be deleted, but are not gone
	Others  []string `json:"others,omitempty"` // pods that were certain to stay, but are gone
}

// compare compares the answer with the objects of a later dump.
func (a *answer) compare(after *objects) comparison {
	there := map[any]bool{}
	for _, p := range after.pods {
		there[p.UID] = pod.IsActive(p)
	}
	var c comparison
	for i := range a.sets {
		d := &a.sets[i]
		if d.tie != nil {
			c.Ties, c.Drawn = c.Ties+d.tie.to-d.tie.from, c.Drawn+d.tie.goes
		}
		for place, v := range d.order {
			gone := !there[v.Object.UID]
			c.Gone += count(gone)
			switch goes := place < d.victims(); {
			case !d.isCertain(place):
				c.Tied += count(gone)
			case goes:
				c.Named++
				c.Certain += count(gone)
				if !gone {
					c.Kept = append(c.Kept, v.Object.Name)
				}
			case gone:
				c.Others = append(c.Others, v.Object.Name)
			}
		}
	}
	return c
}
