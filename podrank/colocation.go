// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"math/bits"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// Colocation puts pods first that share their node with more related pods: pods
// with a higher rank, as ColocationRanks computes it from Options.Related. If
// Related is empty, all ranks are 0. Ranks are computed once; Spread counts again
// after each victim.
func Colocation() Criterion[*corev1.Pod] {
	return Criterion[*corev1.Pod]{name: "colocation", open: func(facts Facts[*corev1.Pod]) *column[*corev1.Pod] {
		if len(facts.Related) == 0 {
			return equal[*corev1.Pod]()
		}
		c := newCensus(facts.Objects, facts.Related)
		nodes := make([]int32, len(facts.Objects))
		most := len(facts.Related)
		return &column[*corev1.Pod]{
			bits:  bits.Len(uint(most)),
			weigh: eachPlace(func(i int, _ *corev1.Pod) { nodes[i] = c.visit(i) }),
			settle: func() weights {
				c.finish()
				return func(i int) (int64, int64) { return int64(most) - int64(c.active[nodes[i]]), 0 } // (R6)
			},
			value: func(_ time.Time, i int, _ *corev1.Pod) string { return strconv.Itoa(int(c.active[nodes[i]])) },
			phrase: func(_ time.Time, i int, p *corev1.Pod) (phrase, detail string) {
				if c.active[nodes[i]] == 1 {
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

// ColocationRanks returns, for each pod, the number of active related pods on its
// node; the pod itself counts if it is in related. Active means neither finished
// nor being deleted. A pod that is not ready counts too, although the comment on
// the sort in pkg/controller/controller_utils.go says otherwise. Unassigned pods
// share the node "". The rank of a nil pod is 0. If there are no pods, the result
// is nil.
//
// A pod that is twice in related counts twice: if you collect the pods of several
// owners, drop duplicates, as package replicas does.
func ColocationRanks(pods, related []*corev1.Pod) []int {
	if len(pods) == 0 {
		return nil
	}
	nodes := make([]int32, len(pods))
	c := newCensus(pods, related)
	for i, p := range pods {
		if p != nil {
			nodes[i] = c.visit(i)
		}
	}
	c.finish()
	ranks := make([]int, len(pods))
	for i, node := range nodes {
		ranks[i] = int(c.active[node])
	}
	return ranks
}

// A census counts the active related pods on the nodes of pods (L5, L6).
type census struct {
	pods, related []*corev1.Pod
	numbers       map[string]int32 // of the nodes, from 1
	active        []int32          // on the node of the number; 0 stands for no node of pods
}

func newCensus(pods, related []*corev1.Pod) *census {
	nodes := min(len(pods), 512)
	return &census{pods: pods, related: related, numbers: make(map[string]int32, nodes), active: make([]int32, 1, 1+nodes)}
}

// visit returns the number of the node of pods[i]. The lists are often one: then
// it counts the pod while it is at hand.
func (c *census) visit(i int) (node int32) {
	p := c.pods[i]
	node, ok := c.numbers[p.Spec.NodeName]
	if !ok {
		node = int32(len(c.active))
		c.numbers[p.Spec.NodeName] = node
		c.active = append(c.active, 0)
	}
	if c.visits(i) && pod.IsActive(p) {
		c.active[node]++
	}
	return node
}

// visits reports whether visit(i) counts related[i].
func (c *census) visits(i int) bool {
	return i < len(c.pods) && i < len(c.related) && c.related[i] == c.pods[i]
}

// finish counts the related pods that visit has not, when all pods are visited.
func (c *census) finish() {
	for i, p := range c.related {
		if !c.visits(i) && pod.IsActive(p) {
			c.active[c.numbers[p.Spec.NodeName]]++
		}
	}
	c.active[0] = 0
}
