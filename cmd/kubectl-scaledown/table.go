// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/podrank"
)

// A table is printed in the format of kubectl. On a terminal, some rows are highlighted.
type table struct {
	metav1.Table

	options  printers.PrintOptions
	coloured bool
	rows     []bool // whether each row is highlighted
	pods     []column
}

// A column shows one value for each pod. A wide column is shown only with -o wide.
type column struct {
	head string
	wide bool
	of   func(*corev1.Pod) string
}

func (o *options) table(heads ...string) *table {
	t := &table{options: printers.PrintOptions{NoHeaders: o.noHeaders, Wide: *o.format.OutputFormat == "wide"}, coloured: o.colours()}
	t.addHeads(heads...)
	return t
}

func (t *table) addHeads(heads ...string) {
	for _, head := range heads {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: head})
	}
}

// podTable returns an empty table of pods. The caller can add columns to the left and to the right
// of the columns that describe a pod.
func (o *options) podTable(d *decision, before []string, behind ...string) *table {
	t := o.table(before...)
	t.pods = d.columns()
	for _, c := range t.pods {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: c.head, Priority: int32(count(c.wide))})
	}
	t.addHeads(behind...)
	return t
}

func (t *table) add(marked bool, cells ...any) {
	t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	t.rows = append(t.rows, marked)
}

func (t *table) addPod(p *corev1.Pod, marked bool, before []any, behind ...any) {
	cells := slices.Clone(before)
	for _, c := range t.pods {
		cells = append(cells, c.of(p))
	}
	t.add(marked, append(cells, behind...)...)
}

// print writes the table with one line for each row. On a terminal, print uses colours.
func (t *table) print(out *bytes.Buffer) error {
	var plain bytes.Buffer
	if err := printers.NewTablePrinter(t.options).PrintObj(&t.Table, &plain); err != nil || !t.coloured {
		out.Write(plain.Bytes())
		return err
	}
	lines := strings.SplitAfter(plain.String(), "\n")
	heads := len(lines) - 1 - len(t.rows)
	for i, line := range lines {
		colour := ""
		switch text := strings.TrimSuffix(line, "\n"); {
		case i < heads:
			colour = "\x1b[1m"
			fallthrough
		case i-heads < len(t.rows) && t.rows[i-heads]:
			line = cmp.Or(colour, "\x1b[33m") + text + "\x1b[0m\n"
		}
		out.WriteString(line)
	}
	return nil
}

// columns returns the columns that describe a pod. They show all values that Kubernetes' order
// compares.
func (d *decision) columns() []column {
	return []column{
		{"POD", false, func(p *corev1.Pod) string { return p.Name }},
		{"NODE", false, func(p *corev1.Pod) string { return cmp.Or(p.Spec.NodeName, "<none>") }},
		{"READY", false, readyText},
		{"AGE", false, func(p *corev1.Pod) string { return since(p.CreationTimestamp.Time, d.at) }},
		{"PHASE", true, func(p *corev1.Pod) string { return cmp.Or(string(p.Status.Phase), "<none>") }},
		{"COST", true, costText},
		{"ON NODE", true, d.onNode()},
		{"READY FOR", true, func(p *corev1.Pod) string {
			if !pod.IsReady(p) {
				return "<none>"
			}
			return since(readySince(p), d.at)
		}},
		{"RESTARTS", true, restartsText},
	}
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

// onNode returns a function that counts how many pods of d.related share the node of a given pod.
// If d.related is nil, the function returns "<none>".
func (d *decision) onNode() func(*corev1.Pod) string {
	if d.related == nil {
		return func(*corev1.Pod) string { return "<none>" }
	}
	byNode := map[string]int{}
	for i, rank := range podrank.ColocationRanks(d.related, d.related) {
		byNode[d.related[i].Spec.NodeName] = rank
	}
	return func(p *corev1.Pod) string { return strconv.Itoa(byNode[p.Spec.NodeName]) }
}

// restartsText returns the highest restart count of the containers. If a sidecar has restarted, a
// plus sign and the highest restart count of the sidecars follow, as in "3+1".
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
