// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/podrank"
)

// ask changes what was read as --cost and --cordon want it. Nothing is written.
func (o *options) ask(objs *objects) error {
	for name, cost := range o.cost {
		p, err := objs.pod(name)
		if err != nil {
			return fmt.Errorf("--cost: %w", err)
		}
		p.Annotations = map[string]string{corev1.PodDeletionCost: strconv.FormatInt(cost, 10)}
	}
	for _, name := range o.cordon {
		if !slices.ContainsFunc(objs.nodes, func(n *corev1.Node) bool { return n.Name == name }) &&
			!slices.ContainsFunc(objs.pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == name }) {
			return fmt.Errorf("--cordon: no node %s and no pod on one in %s", name, objs.origin)
		}
	}
	if len(o.cordon) > 0 && !slices.Contains(o.order, "leaving") {
		objs.notes = append(objs.notes, "Kubernetes' order does not ask whether a node is cordoned, so --cordon changes nothing; --order leaving does")
	}
	return nil
}

// pod returns the only pod of that name.
func (o *objects) pod(name string) (*corev1.Pod, error) {
	found := filter(o.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if len(found) == 1 {
		return found[0], nil
	}
	var names []string
	for _, p := range o.pods {
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("%s of name %s in %s%s", number(len(found), "pod"), name, o.origin, didYouMean(name, names, ""))
}

// newOrder returns the order of --order. The criteria that it names stand in front of the
// deletion cost, so that pods that do no work still go first.
func (o *options) newOrder(objs *objects) (order podrank.Order[*corev1.Pod], err error) {
	if o.order == nil {
		return order, nil
	}
	var criteria []podrank.Criterion[*corev1.Pod]
	for _, word := range o.order {
		switch word {
		case "kubernetes":
		case "zones":
			zones := objs.zones()
			if len(zones) == 0 {
				return order, fmt.Errorf("--order zones: no node with label %s in %s", corev1.LabelTopologyZone, objs.origin)
			}
			criteria = append(criteria, podrank.Topology("zones", zones))
		case "packed":
			criteria = append(criteria, podrank.Packed("packed", func(p *corev1.Pod) string { return p.Spec.NodeName }))
		case "leaving":
			leaving := map[string]bool{}
			for _, n := range objs.nodes {
				leaving[n.Name] = n.Spec.Unschedulable
			}
			for _, name := range o.cordon {
				leaving[name] = true
			}
			criteria = append(criteria, podrank.NodeLeaving(func(node string) bool { return leaving[node] }))
		default:
			words := []string{"kubernetes", "zones", "packed", "leaving"}
			return order, fmt.Errorf("--order %s: must be of %v%s", word, words, didYouMean(word, words, ""))
		}
	}
	return podrank.Kubernetes().Before("deletion-cost", criteria...)
}

// zones returns the zone of each node that has one.
func (o *objects) zones() map[string]string {
	zones := map[string]string{}
	for _, n := range o.nodes {
		if zone := n.Labels[corev1.LabelTopologyZone]; zone != "" {
			zones[n.Name] = zone
		}
	}
	return zones
}
