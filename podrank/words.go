// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OrderAnnotation is the annotation of a ReplicaSet or ReplicationController that has the words of
// its order, as ParseOrder reads them. replicakit-controller uses that order.
const OrderAnnotation = "replicakit.dev/scale-down-order"

// ErrNoNodes is in the error of ParseOrder if a word asks about nodes, and the function that
// returns them is nil.
var ErrNoNodes = errors.New("it asks about nodes, and there is nothing to ask")

// The taints of nodes that a program will soon remove. Such programs need not cordon the node.
var leavingTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"}

// words are the criteria that an order in words may name. node may be nil.
var words = []struct {
	word      string
	asksNodes bool
	criterion func(node func(name string) *corev1.Node) Criterion[*corev1.Pod]
}{
	{"deletion-cost", false, func(func(string) *corev1.Node) Criterion[*corev1.Pod] { return DeletionCost() }},
	{"kubernetes", false, nil},
	{"leaving", true, func(node func(string) *corev1.Node) Criterion[*corev1.Pod] {
		return NodeLeaving(func(name string) bool { return isLeaving(node(name)) })
	}},
	{"newest", false, func(func(string) *corev1.Node) Criterion[*corev1.Pod] { return Newest[*corev1.Pod]() }},
	{"packed", false, func(func(string) *corev1.Node) Criterion[*corev1.Pod] {
		return Packed("packed", func(p *corev1.Pod) string { return p.Spec.NodeName })
	}},
	{"zones", true, func(node func(string) *corev1.Node) Criterion[*corev1.Pod] {
		return Spread("zones", func(p *corev1.Pod) string { return zoneOf(p, node) })
	}},
}

// OrderWords returns the words that ParseOrder knows, sorted. The slice is a copy.
func OrderWords() []string {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = w.word
	}
	return names
}

// ParseOrder returns the order of words that are separated by commas, such as "zones,packed". It is
// for flags and annotations. The criteria of the words come after Unassigned, Phase and NotReady,
// so that pods that do no work go first in any order. The rest of Kubernetes' order comes after
// them. The words are:
//
//	deletion-cost  DeletionCost, to put it in front of other words
//	kubernetes     no criterion, so alone it is Kubernetes' order
//	leaving        NodeLeaving: pods on nodes that are cordoned, being deleted, or marked
//	               for removal by cluster-autoscaler or Karpenter go first
//	newest         Newest: the pod that was created last goes first, by the exact instant
//	packed         Packed by node: nodes are emptied one after the other
//	zones          Spread by the zone of the node: zones stay even
//
// node returns the node with a name, or nil if it does not know the node. Such a node is in no
// zone, and stays. The nodes are read only. The Order is safe for concurrent use if node is.
//
// It is an error if a word is not known or is listed twice. If a word asks about nodes and node is
// nil, the error is ErrNoNodes.
func ParseOrder(text string, node func(name string) *corev1.Node) (Order[*corev1.Pod], error) {
	all := Kubernetes().Criteria()
	behind := index(all, "not-ready") + 1
	criteria, rest := all[:behind:behind], all[behind:]
	var listed []string
	for named := range strings.SplitSeq(text, ",") {
		named = strings.TrimSpace(named)
		if slices.Contains(listed, named) {
			return Order[*corev1.Pod]{}, fmt.Errorf("podrank: order %q: %q is listed twice", text, named)
		}
		listed = append(listed, named)
		i := slices.Index(OrderWords(), named)
		switch {
		case i < 0:
			return Order[*corev1.Pod]{}, fmt.Errorf("podrank: order %q: %q is not one of %s", text, named, strings.Join(OrderWords(), ", "))
		case words[i].asksNodes && node == nil:
			return Order[*corev1.Pod]{}, fmt.Errorf("podrank: order %q: %q: %w", text, named, ErrNoNodes)
		case words[i].criterion != nil:
			criteria = append(criteria, words[i].criterion(node))
		}
	}
	for _, c := range rest {
		if index(criteria, c.name) < 0 {
			criteria = append(criteria, c)
		}
	}
	return NewOrder(criteria...)
}

func isLeaving(n *corev1.Node) bool {
	return n != nil && (n.Spec.Unschedulable || n.DeletionTimestamp != nil ||
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(leavingTaints, t.Key) }))
}

func zoneOf(p *corev1.Pod, node func(name string) *corev1.Node) string {
	if p.Spec.NodeName == "" {
		return ""
	}
	n := node(p.Spec.NodeName)
	if n == nil {
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}
