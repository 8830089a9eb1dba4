// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/deployment"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// formats are the values of --output.
var formats = map[string]func(*bytes.Buffer, answer) error{
	"table": printTable,
	"wide":  printWide,
	"json":  printJSON,
	"name":  printNames,
	"svg":   printPicture,
}

// printNames writes the pods that go as kubectl does, the first to go first.
func printNames(out *bytes.Buffer, a answer) error {
	for _, d := range a.sets {
		for _, victim := range d.plan.Scale.Delete {
			fmt.Fprintf(out, "pod/%s\n", victim.Object.Name)
		}
	}
	return nil
}

func printTable(out *bytes.Buffer, a answer) error {
	return a.print(out, func(d decision) columns { return narrow(d.at) })
}

func printWide(out *bytes.Buffer, a answer) error {
	return a.print(out, func(d decision) columns { return d.wide() })
}

// print writes sections of text and of rows like kubectl's. One tabwriter serves
// them all: text, which has no tabs, ends the columns above it.
func (a *answer) print(out *bytes.Buffer, columnsOf func(decision) columns) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s at %s\n", a.owner, a.at.UTC().Format(time.RFC3339Nano))
	a.writeSizes(&text)
	for _, d := range a.sets {
		if d.owner.kind != a.owner.kind {
			fmt.Fprintf(&text, "\n%s %s\n", d.owner.kind.name, d.owner.GetName())
		}
		d.write(&text, columnsOf(d), a.explain)
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if _, err := text.WriteTo(table); err != nil {
		return err
	}
	return table.Flush()
}

// writeSizes says of a Deployment what becomes of its ReplicaSets.
func (a *answer) writeSizes(text *bytes.Buffer) {
	if a.owner.kind != deploymentKind {
		return
	}
	fmt.Fprintf(text, "\n%s\n", a.summary())
	if len(a.sets) == 0 {
		return
	}
	text.WriteString("\nREPLICASET\tFROM\tTO\n")
	for _, d := range a.sets {
		fmt.Fprintf(text, "%s\t%d\t%d\n", d.owner.GetName(), *d.owner.replicas, d.replicas)
	}
}

// foretold says which rule sized the ReplicaSets of a Deployment.
var foretold = map[deployment.How]string{
	deployment.Unscaled:    "its ReplicaSets keep their sizes. What its rollout still does is not foreseen.",
	deployment.Whole:       "all in one ReplicaSet.",
	deployment.Finished:    "the rollout is done, and what older ReplicaSets still have goes.",
	deployment.Proportions: "a rollout is under way, so each ReplicaSet is sized in proportion, surge included. What the rollout does next is not foreseen.",
}

// summary says in a line what comes of it.
func (a *answer) summary() string {
	if a.owner.kind != deploymentKind {
		return a.sets[0].verdict()
	}
	text := number(a.replicas, "replica") + " wanted"
	if !a.asked {
		text += " by its spec.replicas"
	}
	if len(a.sets) == 0 {
		return text + ": it has no ReplicaSet with pods"
	}
	if a.replicas == 0 && a.how != deployment.Unscaled {
		return text + ": no ReplicaSet keeps any."
	}
	return text + ": " + foretold[a.how]
}

func (d *decision) write(text *bytes.Buffer, c columns, explain bool) {
	d.writeClaim(text, c, "Adopt", "orphan that matches the selector", d.plan.Claims.Adopt)
	d.writeClaim(text, c, "Release", "labels no longer match the selector", d.plan.Claims.Release)
	fmt.Fprintf(text, "\n%s", d.verdict())
	if explain {
		d.writeOrder(text, c)
	} else {
		d.writeVictims(text, c)
	}
	if len(d.plan.Scale.Delete) > replicas.DefaultBurstReplicas {
		fmt.Fprintf(text, "\nA controller deletes %d in one pass and decides anew after it.\n", replicas.DefaultBurstReplicas)
	}
}

func (d *decision) writeClaim(text *bytes.Buffer, c columns, verb, reason string, pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	fmt.Fprintf(text, "\n%s %s:\n\n", verb, count(len(pods)))
	c.writeHead(text, "REASON")
	for _, p := range pods {
		c.writeRow(text, p, reason)
	}
}

func (d *decision) writeVictims(text *bytes.Buffer, c columns) {
	if d.goes() == 0 {
		text.WriteString("\n")
		return
	}
	text.WriteString(", in this order:\n\n")
	c.writeHead(text, "REASON")
	for _, victim := range d.plan.Scale.Delete {
		c.writeRow(text, victim.Object, inWords(victim.Victim))
	}
}

// writeOrder writes all pods, those that stay too.
func (d *decision) writeOrder(text *bytes.Buffer, c columns) {
	if len(d.order) == 0 {
		text.WriteString("\n")
		return
	}
	goes := d.goes()
	text.WriteString("\n\n#\tGOES\t")
	c.writeHead(text, "BEFORE THE NEXT BECAUSE OF")
	for i, v := range d.order {
		fmt.Fprintf(text, "%d\t%s\t", i+1, yesNo(i < goes))
		c.writeRow(text, v.Object, d.because(i))
	}
}

// goes returns how many pods of the order are deleted.
func (d *decision) goes() int { return len(d.plan.Scale.Delete) }

// because says what decided between a pod of the order and the next.
func (d *decision) because(i int) string {
	if i == len(d.order)-1 {
		return "the last one"
	}
	return inWords(d.order[i])
}

// inWords is what the victim's own Explain says, without UIDs, which fill the
// line and tell nobody anything.
func inWords(v podrank.Victim[*corev1.Pod]) string {
	if v.Criterion == podrank.UID {
		return "UID, as nothing else differs"
	}
	return v.Explain()
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// verdict says in a line what is to be created or deleted.
func (d *decision) verdict() string {
	have := count(len(d.plan.Claims.Owned) + len(d.plan.Claims.Adopt))
	wanted := fmt.Sprintf("%d wanted", d.replicas)
	if !d.asked {
		wanted += " by its spec.replicas"
	}
	return have + ", " + wanted + ": " + d.action()
}

func (d *decision) action() string {
	switch scale := d.plan.Scale; {
	case d.plan.Blocked.Reason != "":
		return "nothing to create or delete, as the " + string(d.plan.Blocked.Reason)
	case scale.Create > 0:
		return fmt.Sprintf("create %d", scale.Create)
	case len(scale.Delete) > 0:
		return fmt.Sprintf("delete %d", len(scale.Delete))
	}
	return "nothing to create or delete"
}

func count(pods int) string { return number(int32(pods), "pod") }

func number(n int32, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
