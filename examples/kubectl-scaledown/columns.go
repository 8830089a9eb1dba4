// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/podrank"
)

// A columns is what a table says of each pod.
type columns []column

type column struct {
	head string
	of   func(*corev1.Pod) string
}

func narrow(at time.Time) columns {
	return columns{
		{"POD", func(p *corev1.Pod) string { return p.Name }},
		{"NODE", func(p *corev1.Pod) string { return cmp.Or(p.Spec.NodeName, "<none>") }},
		{"READY", readyText},
		{"AGE", func(p *corev1.Pod) string { return since(p.CreationTimestamp.Time, at) }},
	}
}

// wide adds everything that Kubernetes' order compares.
func (d decision) wide() columns {
	return append(narrow(d.at),
		column{"PHASE", func(p *corev1.Pod) string { return cmp.Or(string(p.Status.Phase), "<none>") }},
		column{"COST", costText},
		column{"ON NODE", d.onNode()},
		column{"READY FOR", func(p *corev1.Pod) string {
			if !pod.IsReady(p) {
				return "<none>"
			}
			return since(pod.ReadyCondition(p).LastTransitionTime.Time, d.at)
		}},
		column{"RESTARTS", restartsText},
	)
}

func readyText(p *corev1.Pod) string {
	if pod.IsReady(p) {
		return "True"
	}
	return "False"
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t))
}

func costText(p *corev1.Pod) string {
	cost, err := podrank.ParseDeletionCost(p.Annotations)
	if err != nil {
		return "0 (invalid)"
	}
	return strconv.Itoa(int(cost))
}

// onNode returns how many of the pods that count are on a pod's node.
func (d decision) onNode() func(*corev1.Pod) string {
	if d.related == nil {
		return func(*corev1.Pod) string { return "<none>" }
	}
	byNode := map[string]int{}
	for i, rank := range podrank.ColocationRanks(d.related, d.related) {
		byNode[d.related[i].Spec.NodeName] = rank
	}
	return func(p *corev1.Pod) string { return strconv.Itoa(byNode[p.Spec.NodeName]) }
}

// restartsText tells the most restarts of a container and, behind a plus, those
// of a sidecar.
func restartsText(p *corev1.Pod) string {
	text := strconv.Itoa(most(p.Status.ContainerStatuses))
	sidecars := filter(p.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool { return isSidecar(p, c.Name) })
	if restarts := most(sidecars); restarts > 0 {
		text += "+" + strconv.Itoa(restarts)
	}
	return text
}

func isSidecar(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

func most(containers []corev1.ContainerStatus) (restarts int) {
	for _, c := range containers {
		restarts = max(restarts, int(c.RestartCount))
	}
	return restarts
}

func (c columns) writeHead(text *bytes.Buffer, last string) {
	for _, column := range c {
		text.WriteString(column.head + "\t")
	}
	text.WriteString(last + "\n")
}

func (c columns) writeRow(text *bytes.Buffer, p *corev1.Pod, reason string) {
	for _, column := range c {
		text.WriteString(column.of(p) + "\t")
	}
	text.WriteString(reason + "\n")
}
