// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import corev1 "k8s.io/api/core/v1"

// NodeLeaving puts a pod first if leaving returns true for the name of its node. For example, the
// function may return true for nodes that are cordoned or drained. The function is not called for
// pods without a node.
func NodeLeaving(leaving func(node string) bool) Criterion[*corev1.Pod] {
	c := flag("node-leaving", "node is leaving", "node stays", func(p *corev1.Pod) bool {
		return p.Spec.NodeName != "" && leaving(p.Spec.NodeName)
	})
	if leaving == nil {
		c.err = errNilFunction
	}
	return c
}
