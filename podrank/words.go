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

// OrderAnnotation is the key of an annotation for ReplicaSets and ReplicationControllers. Its value
// is a list of keywords for ParseOrder, and sets the order in which replicakit-controller deletes
// pods.
const OrderAnnotation = "replicakit.dev/scale-down-order"

// ErrNoNodes means that a keyword of ParseOrder needs nodes, but the function that returns nodes is
// nil. The error that ParseOrder returns wraps ErrNoNodes.
var ErrNoNodes = errors.New("the keyword needs nodes, but nodes cannot be read")

// leavingTaints holds the keys of taints that mark a node for removal by an autoscaler. The
// autoscaler may set such a taint without cordoning the node.
var leavingTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"}

// words contains the keywords that ParseOrder accepts, with their criteria. The argument of the
// function criterion is the function node, which returns nodes. If the field asksNodes is true, the
// returned criterion calls the function node. If the field asksNodes is false, the function node may
// be nil.
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

// OrderWords returns a new slice with the keywords that ParseOrder accepts, in sorted order.
func OrderWords() []string {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = w.word
	}
	return names
}

// ParseOrder returns the Order for a comma-separated list of keywords, such as "zones,packed". Use
// ParseOrder for the values of flags and annotations. The result always begins with the criteria
// Unassigned, Phase and NotReady, so pods that do no work come first. Next are the criteria of the
// keywords, followed by the remaining criteria of Kubernetes' order. The keywords are:
//
//	deletion-cost  DeletionCost, if it must come before other keywords
//	kubernetes     no criterion; used alone, it means Kubernetes' order
//	leaving        NodeLeaving: pods on nodes that are cordoned, being deleted, or marked
//	               for removal by cluster-autoscaler or Karpenter come first
//	newest         Newest: newer pods come first, and times are compared exactly
//	packed         Packed by node: nodes are emptied one after the other
//	zones          Spread by the zone of the node: zones stay balanced
//
// The argument node is a function that returns the node with the given name, or nil if the node is
// unknown. An unknown node has no zone, and the keyword "leaving" does not apply to it. The nodes
// are not changed. The Order is safe for concurrent use if this function is safe for concurrent
// use.
//
// ParseOrder returns an error if a keyword is unknown or listed twice. If the function is nil and a
// keyword needs nodes, the error wraps ErrNoNodes.
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
