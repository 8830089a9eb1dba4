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

// OrderAnnotation is an annotation of ReplicaSets and ReplicationControllers. The value of the
// annotation is an order in the words of ParseOrder. replicakit-controller deletes the pods of the
// owner in this order.
const OrderAnnotation = "replicakit.dev/scale-down-order"

// ErrNoNodes is wrapped by the error of ParseOrder if a word needs nodes and the function that
// returns nodes is nil.
var ErrNoNodes = errors.New("the word needs nodes, but nodes cannot be read")

// leavingTaints are taints that autoscalers set on nodes that they will soon remove. An autoscaler
// may set such a taint without cordoning the node.
var leavingTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"}

// words lists the words that ParseOrder knows, with their criteria. If asksNodes is false, the
// function node may be nil.
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

// OrderWords returns the words that ParseOrder knows, in sorted order. The slice is a copy.
func OrderWords() []string {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = w.word
	}
	return names
}

// ParseOrder returns the Order for a list of words that are separated by commas, such as
// "zones,packed". Use ParseOrder for flags and annotations. Each word stands for one criterion or
// none. The criteria of the words come after Unassigned, Phase and NotReady, so that pods that do
// no work go first in any order. The other criteria of Kubernetes' order come after the criteria of
// the words. The words are:
//
//	deletion-cost  DeletionCost, to put it in front of other words
//	kubernetes     no criterion, so alone it is Kubernetes' order
//	leaving        NodeLeaving: pods on nodes that are cordoned, being deleted, or marked
//	               for removal by cluster-autoscaler or Karpenter go first
//	newest         Newest: the pod that was created last goes first, by the exact instant
//	packed         Packed by node: nodes are emptied one after the other
//	zones          Spread by the zone of the node: zones stay even
//
// The function node returns the node with a name, or nil if the node is not known. A node that is
// not known is in no zone and is not leaving. The nodes are not changed. The Order is safe for
// concurrent use if the function node is.
//
// If a word is not known or is listed twice, ParseOrder returns an error. If a word needs nodes and
// the function node is nil, the error wraps ErrNoNodes.
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
