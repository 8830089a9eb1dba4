// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/podrank"
)

// ask applies --cost to the pods that were read, and validates --cordon.
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
			return fmt.Errorf("--cordon: no node %s, and no pod on this node, in %s", name, objs.origin)
		}
	}
	if len(o.cordon) > 0 && !slices.Contains(o.order, "leaving") {
		objs.notes = append(objs.notes, "Kubernetes' order does not ask whether a node is cordoned, so --cordon changes nothing without --order leaving")
	}
	return nil
}

// pod returns the pod with the given name. If no pod or several pods have this name, it returns an
// error.
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

func (o *options) newOrder(objs *objects) (podrank.Order[*corev1.Pod], error) {
	if o.order == nil {
		return podrank.Order[*corev1.Pod]{}, nil
	}
	if slices.Contains(o.order, "zones") && len(objs.zones()) == 0 {
		return podrank.Order[*corev1.Pod]{}, fmt.Errorf("--order zones: no node with label %s in %s", corev1.LabelTopologyZone, objs.origin)
	}
	nodes := map[string]*corev1.Node{}
	for _, n := range objs.nodes {
		nodes[n.Name] = n
	}
	for _, name := range o.cordon { // the input may lack the node
		n := &corev1.Node{}
		if read := nodes[name]; read != nil {
			n = read.DeepCopy()
		}
		n.Spec.Unschedulable, nodes[name] = true, n
	}
	return o.parseOrder(func(name string) *corev1.Node { return nodes[name] })
}

func (o *options) parseOrder(node func(name string) *corev1.Node) (podrank.Order[*corev1.Pod], error) {
	order, err := podrank.ParseOrder(strings.Join(o.order, ","), node)
	if err != nil {
		return order, fmt.Errorf("--order: %w%s", err, o.orderMeant())
	}
	return order, nil
}

// orderMeant suggests a known word for the first unknown word in --order.
func (o *options) orderMeant() string {
	known := podrank.OrderWords()
	for _, word := range o.order {
		if !slices.Contains(known, word) {
			return didYouMean(word, known, "")
		}
	}
	return ""
}

// zones returns the zone of each node that has a zone label, by node name.
func (o *objects) zones() map[string]string {
	zones := map[string]string{}
	for _, n := range o.nodes {
		if zone := n.Labels[corev1.LabelTopologyZone]; zone != "" {
			zones[n.Name] = zone
		}
	}
	return zones
}
