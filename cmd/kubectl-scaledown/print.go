// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/deployment"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// printTables writes the answers as text and tables. With -A or several owners, it writes one table
// with a line for each owner.
func (o *options) printTables(out *bytes.Buffer, objs *objects, answers []answer) error {
	if o.all || answers[0].owner.Object != answers[len(answers)-1].owner.Object {
		return o.printOverview(out, answers)
	}
	for i, a := range answers {
		if i > 0 {
			out.WriteString("\n")
		}
		if err := o.printAnswer(out, objs, &a); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) printOverview(out *bytes.Buffer, answers []answer) error {
	t := o.table("NAMESPACE", "NAME", "PODS", "WANTED", "GO", "CERTAIN", "TIES")
	for _, a := range answers {
		pods, goes, certain := 0, 0, 0
		var ties []string
		for _, d := range a.sets {
			pods, goes, certain = pods+len(d.order), goes+d.victims(), certain+d.victims()
			if d.tie != nil {
				certain -= d.tie.goes
				ties = append(ties, d.tie.String())
			}
		}
		t.add(ties != nil, a.owner.GetNamespace(), a.owner.kind.short+"/"+a.owner.GetName(), pods, a.replicas, goes, certain, cmp.Or(strings.Join(ties, ", "), "none"))
	}
	return t.print(out)
}

func (o *options) printAnswer(out *bytes.Buffer, objs *objects, a *answer) error {
	fmt.Fprintf(out, "%s at %s\n", a.owner, a.window.start.UTC().Format(time.RFC3339Nano))
	if o.pod != "" {
		return a.printPosition(out, o.pod)
	}
	if a.owner.kind == deploymentKind {
		fmt.Fprintf(out, "\n%s\n", a.summary())
		if err := o.printSizes(out, a); err != nil {
			return err
		}
	}
	for i := range a.sets {
		d := &a.sets[i]
		if d.owner.kind != a.owner.kind {
			fmt.Fprintf(out, "\n%s %s\n", d.owner.kind.name, d.owner.GetName())
		}
		if err := o.printSet(out, d); err != nil {
			return err
		}
	}
	return o.printEffects(out, objs, a)
}

// printSizes writes the size of each ReplicaSet of a Deployment before and after the scaling.
func (o *options) printSizes(out *bytes.Buffer, a *answer) error {
	if len(a.sets) == 0 {
		return nil
	}
	out.WriteString("\n")
	t := o.table("REPLICASET", "FROM", "TO")
	for _, d := range a.sets {
		t.add(false, d.owner.GetName(), d.before, d.replicas)
	}
	return t.print(out)
}

func (o *options) printSet(out *bytes.Buffer, d *decision) error {
	for _, claim := range []struct {
		verb, reason string
		pods         []*corev1.Pod
	}{
		{"Adopt", "orphan that matches the selector", d.plan.Claims.Adopt},
		{"Release", "labels no longer match the selector", d.plan.Claims.Release},
	} {
		if len(claim.pods) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s %s:\n\n", claim.verb, number(len(claim.pods), "pod"))
		t := o.podTable(d, nil, "REASON")
		for _, p := range claim.pods {
			t.addPod(p, false, nil, claim.reason)
		}
		if err := t.print(out); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\n%s", d.verdict())
	if err := o.printPods(out, d); err != nil {
		return err
	}
	if d.tie != nil {
		const most = 40
		fmt.Fprintf(out, "\n%d of these %d pods go, but it is not known which: %s.\n%s\n", d.tie.goes, d.tie.to-d.tie.from, d.tie.cause, firstOf(d.tied(), most))
	}
	if d.related == nil && d.victims() > d.gone && len(d.order) > d.victims() {
		fmt.Fprintf(out, "\nPods per node are not compared, as %s has no controller such as a Deployment.\n", d.owner)
	}
	if d.victims()-d.gone > replicas.DefaultBurstReplicas {
		fmt.Fprintf(out, "\nA controller deletes %d in one pass and decides anew after it.\n", replicas.DefaultBurstReplicas)
	}
	return nil
}

// printPods writes a table of the pods to delete or, with --explain, of all pods.
func (o *options) printPods(out *bytes.Buffer, d *decision) error {
	if len(d.order) == 0 || !o.explain && d.victims() == d.gone {
		out.WriteString("\n")
		return nil
	}
	if o.explain {
		out.WriteString("\n\n")
	} else {
		out.WriteString(", in this order:\n\n")
	}
	if err := o.printReasons(out, d); err != nil {
		return err
	}
	if o.explain {
		t := o.podTable(d, []string{"#", "GOES"}, "BEFORE THE NEXT BECAUSE OF")
		for i, v := range d.order {
			t.addPod(v.Object, !d.isCertain(i), []any{i + 1, d.fate(i)}, d.whyBefore(i))
		}
		return t.print(out)
	}
	t := o.podTable(d, nil, "CERTAIN", "REASON")
	for i, v := range d.plan.Scale.Delete[d.gone:] {
		certain := "yes"
		if !d.isCertain(d.gone + i) {
			certain = d.tie.String()
		}
		t.addPod(v.Object, certain != "yes", nil, certain, inWords(v.Victim))
	}
	return t.print(out)
}

// many is the minimum number of pods for which printReasons writes a table.
const many = 200

// printReasons writes the number of pods to delete for each reason. If d.order has few pods, it
// writes nothing; see the constant many.
func (o *options) printReasons(out *bytes.Buffer, d *decision) error {
	goes := d.plan.Scale.Delete[d.gone:]
	if len(d.order) < many || len(goes) == 0 {
		return nil
	}
	var reasons []string
	pods, certain := map[string]int{}, map[string]int{}
	for i, v := range goes {
		if pods[v.Criterion] == 0 {
			reasons = append(reasons, v.Criterion)
		}
		pods[v.Criterion]++
		certain[v.Criterion] += count(d.isCertain(d.gone + i))
	}
	t := o.table("GO BECAUSE OF", "PODS", "CERTAIN")
	for _, reason := range reasons {
		t.add(certain[reason] < pods[reason], reason, pods[reason], certain[reason])
	}
	if err := t.print(out); err != nil {
		return err
	}
	out.WriteString("\n")
	return nil
}

// printEffects writes the effects of the scaling on zones and PodDisruptionBudgets.
func (o *options) printEffects(out *bytes.Buffer, objs *objects, a *answer) error {
	zones := o.table("ZONE", "BEFORE", "AFTER")
	for _, z := range a.zones(objs) {
		zones.add(false, cmp.Or(z.Name, "<none>"), z.Before, z.bounds())
	}
	budgets, err := a.budgets(objs)
	if err != nil {
		return err
	}
	pdbs := o.table("BUDGET", "READY", "AFTER", "WANTS", "BROKEN")
	for _, b := range budgets {
		broken := "no"
		if b.broken() {
			broken = "yes"
		}
		pdbs.add(b.broken(), b.Name, b.Before, b.bounds(), b.Wanted, broken)
	}
	for _, t := range []*table{zones, pdbs} {
		if len(t.rows) == 0 {
			continue
		}
		out.WriteString("\n")
		if err := t.print(out); err != nil {
			return err
		}
	}
	return nil
}

// bounds returns the number of pods after the scaling. With ties, the result may be a range such as "2-5".
func (c change) bounds() string {
	if c.Least == c.Most {
		return strconv.Itoa(c.Most)
	}
	return fmt.Sprintf("%d-%d", c.Least, c.Most)
}

// printPosition writes whether and why a pod is deleted, and what would happen with two other
// deletion costs.
func (a *answer) printPosition(out *bytes.Buffer, name string) error {
	p, err := a.position(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s is number %d of %d to go.\nGoes: %s\nWhy: %s\n", p.Name, p.Place, p.Of, p.Goes, p.Reason)
	if p.First == nil {
		out.WriteString("No deletion cost would change its place, because costs are compared only among pods that are equally ready.\n")
		return nil
	}
	for _, c := range []*costing{p.First, p.Protect} {
		does := "stays"
		if c.Goes {
			does = "goes"
		}
		fmt.Fprintf(out, "With deletion cost %d it is number %d, and %s.\n", c.Cost, c.Place, does)
	}
	return nil
}

// printComparison writes which of the predicted pods are gone in the later dump.
func (a *answer) printComparison(out *bytes.Buffer, after *objects) {
	c := a.compare(after)
	fmt.Fprintf(out, "%s at %s\n\n%s\n", a.owner, a.window.start.UTC().Format(time.RFC3339Nano), a.summary())
	fmt.Fprintf(out, "%s went since.\n%d of the %d that were certain did.\n", number(c.Gone, "pod"), c.Certain, c.Named)
	if c.Ties > 0 {
		fmt.Fprintf(out, "%d of the %d that were a tie did, and %d were to go.\n", c.Tied, c.Ties, c.Drawn)
	}
	if len(c.Kept) > 0 {
		fmt.Fprintf(out, "Certain to go, and still there: %s.\n", strings.Join(c.Kept, ", "))
	}
	if len(c.Others) > 0 {
		fmt.Fprintf(out, "Certain to stay, and gone: %s.\n", strings.Join(c.Others, ", "))
	}
}

// summary returns the result in one line.
func (a *answer) summary() string {
	if a.owner.kind != deploymentKind {
		return a.sets[0].verdict()
	}
	text := number(int(a.replicas), "replica") + " wanted"
	if !a.asked {
		text += " by its spec.replicas"
	}
	switch {
	case len(a.sets) == 0:
		return text + ": it has no ReplicaSet with pods"
	case a.replicas == 0 && a.how != deployment.Unscaled:
		return text + ": no ReplicaSet keeps any."
	case a.how == deployment.Unscaled && len(a.sets) == 1 && *a.sets[0].owner.replicas == a.replicas:
		return text + ": its ReplicaSet has them, and no rollout is under way."
	case a.how == deployment.Proportions && a.paused():
		return text + ": its rollout is paused, so each ReplicaSet is sized in proportion, surge included."
	}
	return text + ": " + map[deployment.How]string{
		deployment.Unscaled:    "its ReplicaSets keep their sizes. The rest of its rollout is not predicted.",
		deployment.Whole:       "all in one ReplicaSet.",
		deployment.Finished:    "the rollout is done, and all pods of older ReplicaSets go.",
		deployment.Proportions: "a rollout is under way, so each ReplicaSet is sized in proportion, surge included. The next steps of the rollout are not predicted.",
	}[a.how]
}

// fate returns "yes" if the pod at this index of d.order is deleted, and "no" if it stays. If the
// pod belongs to a tie, fate describes the tie, for example "2 of 5".
func (d *decision) fate(place int) string {
	switch {
	case !d.isCertain(place):
		return d.tie.String()
	case place < d.victims():
		return "yes"
	}
	return "no"
}

// String returns how many pods of the tie are deleted, such as "2 of 5".
func (t *tie) String() string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d", t.goes, t.to-t.from)
}

// whyBefore returns the reason why the pod at index i comes before the next pod in d.order. Both
// pods may stay.
func (d *decision) whyBefore(i int) string {
	if i == len(d.order)-1 {
		return "the last one"
	}
	return inWords(d.order[i])
}

// inWords returns the text of Victim.Explain without UIDs, which are long and explain nothing.
func inWords(v podrank.Victim[*corev1.Pod]) string {
	if v.Criterion == podrank.UID {
		return "UID, as nothing else differs"
	}
	return v.Explain()
}

// verdict returns a line that says how many pods a controller creates or deletes.
func (d *decision) verdict() string {
	have := number(len(d.plan.Claims.Owned)+len(d.plan.Claims.Adopt)-d.gone, "pod")
	wanted := fmt.Sprintf("%d wanted", d.replicas)
	if !d.asked {
		wanted += " by its spec.replicas"
	}
	return have + ", " + wanted + ": " + d.action()
}

func (d *decision) action() string {
	switch goes := d.victims() - d.gone; {
	case d.plan.Blocked.Reason != "":
		return "nothing to create or delete, as the " + string(d.plan.Blocked.Reason)
	case d.plan.Scale.Create > 0:
		return fmt.Sprintf("create %d", d.plan.Scale.Create)
	case goes > 0:
		return fmt.Sprintf("delete %d", goes)
	}
	return "nothing to create or delete"
}

func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
