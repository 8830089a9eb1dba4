// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/distinct"
	"github.com/replicakit/replicakit/internal/pod"
)

// Colocation puts the pod with the higher rank first. The rank of a pod is the number of active
// related pods on its node. The related pods are in Options.Related. ColocationRanks returns the
// same ranks. If Related is empty, all ranks are 0. Colocation computes the ranks only once.
// Spread, in contrast, updates its counts after each victim.
func Colocation() Criterion[*corev1.Pod] {
	return Criterion[*corev1.Pod]{name: "colocation", open: func(facts Facts[*corev1.Pod]) *column[*corev1.Pod] {
		if len(facts.Related) == 0 {
			return equal[*corev1.Pod]()
		}
		count := sync.OnceValue(func() *census { return newCensus(facts.Related) })
		return &column[*corev1.Pod]{
			weigh: []weigher[*corev1.Pod]{each(func(p *corev1.Pod) int64 { return -int64(count().activeOn(p.Spec.NodeName)) })}, // (R6)
			value: func(text []byte, _ time.Time, _ int, p *corev1.Pod) []byte {
				return strconv.AppendInt(text, int64(count().activeOn(p.Spec.NodeName)), 10)
			},
			phrase: func(_ time.Time, _ int, p *corev1.Pod) (phrase, detail string) {
				if count().activeOn(p.Spec.NodeName) == 1 {
					return victimHere + " replica on " + detailHere, nodeName(p)
				}
				return victimHere + " replicas on " + detailHere, nodeName(p)
			},
		}
	}}
}

func nodeName(p *corev1.Pod) string {
	if p.Spec.NodeName == "" {
		return "no node"
	}
	return p.Spec.NodeName
}

// ColocationRanks returns the rank of each pod. The rank is the number of active related pods on
// the pod's node. The pod itself counts if it is in the list related. A pod is active if it is not
// finished and not being deleted. As in Kubernetes, a related pod counts even if it is not ready.
// (A comment in Kubernetes' pkg/controller/controller_utils.go says that only ready pods count.)
// Pods without a node count as pods on a node with an empty name. The rank of a nil pod is 0. If
// there are no pods, the result is nil.
//
// A pod that occurs twice in the list related counts twice. If you collect the pods of several
// owners, remove duplicates, as package replicas does.
func ColocationRanks(pods, related []*corev1.Pod) []int {
	if len(pods) == 0 {
		return nil
	}
	c, ranks := newCensus(related), make([]int, len(pods))
	for i, p := range pods {
		if p != nil {
			ranks[i] = c.activeOn(p.Spec.NodeName)
		}
	}
	return ranks
}

// A census holds the number of active pods on each node (L5, L6).
type census struct {
	nodes  *distinct.Table // the names of the nodes
	active []int32         // the number of active pods on each node, with the same indices as the field nodes
}

func newCensus(pods []*corev1.Pod) *census {
	node := func(i int) string { return pods[i].Spec.NodeName }
	c := &census{nodes: distinct.New(len(pods), node), active: make([]int32, len(pods))}
	for i, p := range pods {
		if pod.IsActive(p) {
			c.active[c.nodes.Add(i, p.Spec.NodeName)]++
		}
	}
	return c
}

// activeOn returns the number of active pods on a node.
func (c *census) activeOn(node string) int {
	if i := c.nodes.Find(node); i >= 0 {
		return int(c.active[i])
	}
	return 0
}
