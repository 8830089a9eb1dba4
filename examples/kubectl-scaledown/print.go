package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// formats are the values of --output.
var formats = map[string]func(*bytes.Buffer, decision) error{
	"table": printTable,
	"json":  printJSON,
	"name":  printNames,
}

// printNames writes the pods to delete, the first to go first. All are of one
// namespace, so bare names tell them apart.
func printNames(out *bytes.Buffer, d decision) error {
	for _, victim := range d.plan.Scale.Delete {
		fmt.Fprintln(out, victim.Object.Name)
	}
	return nil
}

func printJSON(out *bytes.Buffer, d decision) error {
	type reference struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
	}
	rs := d.replicaSet
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	return encoder.Encode(struct {
		ReplicaSet reference     `json:"replicaSet"`
		Replicas   int32         `json:"replicas"`
		At         time.Time     `json:"at"`
		Plan       replicas.Plan `json:"plan"`
	}{reference{rs.Namespace, rs.Name, string(rs.UID)}, d.replicas, d.at.UTC(), d.plan})
}

// printTable writes sections of text and of rows like kubectl's. One tabwriter
// serves them all: text, which has no tabs, ends the columns above it.
func printTable(out *bytes.Buffer, d decision) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "ReplicaSet %s/%s at %s\n", d.replicaSet.Namespace, d.replicaSet.Name, d.at.UTC().Format(time.RFC3339Nano))
	d.writeClaim(&text, "Adopt", "orphan that matches the selector", d.plan.Claims.Adopt)
	d.writeClaim(&text, "Release", "labels no longer match the selector", d.plan.Claims.Release)
	d.writeScale(&text)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if _, err := text.WriteTo(table); err != nil {
		return err
	}
	return table.Flush()
}

func (d *decision) writeClaim(text *bytes.Buffer, verb, reason string, pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	fmt.Fprintf(text, "\n%s %s:\n\n%s", verb, count(len(pods)), columns)
	for _, pod := range pods {
		d.writeRow(text, pod, reason)
	}
}

func (d *decision) writeScale(text *bytes.Buffer) {
	fmt.Fprintf(text, "\n%s\n", d.verdict())
	victims := d.plan.Scale.Delete
	if len(victims) == 0 {
		return
	}
	fmt.Fprintf(text, "\n%s", columns)
	for _, victim := range victims {
		d.writeRow(text, victim.Object, victim.Explain())
	}
	if len(victims) > replicas.DefaultBurstReplicas {
		fmt.Fprintf(text, "\nA controller deletes %d in one pass and decides anew after it.\n", replicas.DefaultBurstReplicas)
	}
}

const columns = "POD\tNODE\tREADY\tAGE\tREASON\n"

func (d *decision) writeRow(text *bytes.Buffer, pod *corev1.Pod, reason string) {
	node := cmp.Or(pod.Spec.NodeName, "<none>")
	ready, age := "False", "<unknown>"
	if status.IsPodReady(pod) {
		ready = "True"
	}
	if !pod.CreationTimestamp.IsZero() {
		age = duration.HumanDuration(d.at.Sub(pod.CreationTimestamp.Time))
	}
	fmt.Fprintf(text, "%s\t%s\t%s\t%s\t%s\n", pod.Name, node, ready, age, reason)
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
		return fmt.Sprintf("delete %d, in this order:", len(scale.Delete))
	}
	return "nothing to create or delete"
}

func count(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", pods)
}
