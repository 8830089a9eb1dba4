// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/replicakit/replicakit/internal/pod"
)

// few is the maximum number of pod names in one line of --why-not.
const few = 3

// printWhyNot writes, for each owner, what may keep its controller from creating or deleting pods.
// It considers only the objects that were read.
func (o *options) printWhyNot(out *bytes.Buffer, objs *objects, answers []answer) {
	for i := range answers {
		a := &answers[i]
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(out, "%s at %s\n\n%s\n\n", a.owner, a.window.start.UTC().Format(time.RFC3339Nano), strings.Join(a.standing(), "\n"))
		facts := objs.facts(a)
		if len(facts) == 0 {
			facts = []string{"Nothing was found that holds it back."}
		}
		for _, fact := range facts {
			fmt.Fprintf(out, "- %s\n", oneLine(fact))
		}
		for j, d := range a.sets {
			if j == 0 {
				out.WriteString("\nIf replicakit-controller serves it, these paths show what held back its last passes. The section \"Nothing happens\" of docs/operating.md explains how to read them:\n")
			}
			fmt.Fprintf(out, "/debug/passes/%s/%s\n", d.owner.GetNamespace(), d.owner.GetName())
		}
	}
	if !o.live() {
		objs.noteMissing()
	}
}

// oneLine replaces line breaks and control characters in the text with spaces. Without this, text
// from the cluster could send escape sequences to the terminal.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }), " ")
}

// standing returns lines that say how many pods the owner has and wants, and what its controller
// does.
func (a *answer) standing() (lines []string) {
	have := 0
	for i := range a.sets {
		d := &a.sets[i]
		have += len(d.plan.Claims.Owned) + len(d.plan.Claims.Adopt)
		text := d.verdict()
		if d.plan.IsZero() && d.plan.Blocked.Reason == "" {
			text += ", as it has what it wants"
		}
		if d.owner.kind != a.owner.kind {
			text = d.owner.kind.name + " " + d.owner.GetName() + ": " + text
		}
		lines = append(lines, text)
	}
	if a.owner.kind == deploymentKind {
		lines = slices.Insert(lines, 0, fmt.Sprintf("%s, %d wanted by its spec.replicas", number(have, "pod"), a.replicas))
	}
	return lines
}

// facts returns the lines that --why-not prints about an owner, and about the Deployment and the
// ReplicaSets that belong to it.
func (o *objects) facts(a *answer) []string {
	var owners []owner
	if a.above.Object != nil {
		owners = append(owners, a.above)
	}
	owners = append(owners, a.owner)
	for _, d := range a.sets {
		if d.owner.kind != a.owner.kind {
			owners = append(owners, d.owner)
		}
	}
	var facts []string
	for _, w := range owners {
		facts = append(facts, w.facts()...)
		facts = append(facts, o.autoscalerFacts(w)...)
	}
	if note := a.scaledFromAbove(); note != "" {
		facts = append(facts, note+".")
	}
	for i := range a.sets {
		facts = append(facts, o.podFacts(&a.sets[i])...)
	}
	facts = append(facts, o.terminatingFacts(a.owner, a.window.start)...)
	facts = append(facts, o.namespaceFacts(a.owner.GetNamespace())...)
	for _, w := range owners {
		facts = append(facts, o.warnings(w)...)
	}
	return facts
}

// facts returns the lines about the metadata and the status of the owner itself.
func (o owner) facts() (facts []string) {
	if o.GetDeletionTimestamp() != nil {
		end := "It has no finalizers, so it should be gone soon."
		if names := o.GetFinalizers(); len(names) > 0 {
			end = fmt.Sprintf("Check what should remove its finalizers: %s.", strings.Join(names, ", "))
		}
		facts = append(facts, fmt.Sprintf("%s is being deleted, so its controller no longer scales it. %s", o, end))
	}
	observed, failures := o.status()
	if observed < o.GetGeneration() {
		facts = append(facts, fmt.Sprintf("%s has generation %d, and its status describes generation %d, so its controller has not acted on the last change. Check that the controller runs, and that it serves this object.",
			o, o.GetGeneration(), observed))
	}
	for _, message := range failures {
		facts = append(facts, fmt.Sprintf("%s has the condition ReplicaFailure, so its controller could not create or delete a pod: %s", o, message))
	}
	if d, ok := o.Object.(*appsv1.Deployment); ok {
		facts = append(facts, rolloutFacts(d)...)
	}
	return facts
}

// status returns the observed generation and the messages of the condition ReplicaFailure.
func (o owner) status() (observed int64, failures []string) {
	add := func(condition string, status corev1.ConditionStatus, message string) {
		if condition == string(appsv1.ReplicaSetReplicaFailure) && status == corev1.ConditionTrue {
			failures = append(failures, message)
		}
	}
	switch obj := o.Object.(type) {
	case *appsv1.Deployment:
		observed = obj.Status.ObservedGeneration
		for _, c := range obj.Status.Conditions {
			add(string(c.Type), c.Status, c.Message)
		}
	case *appsv1.ReplicaSet:
		observed = obj.Status.ObservedGeneration
		for _, c := range obj.Status.Conditions {
			add(string(c.Type), c.Status, c.Message)
		}
	case *corev1.ReplicationController:
		observed = obj.Status.ObservedGeneration
		for _, c := range obj.Status.Conditions {
			add(string(c.Type), c.Status, c.Message)
		}
	}
	return observed, failures
}

// rolloutFacts returns the lines about the rollout of a Deployment.
func rolloutFacts(d *appsv1.Deployment) (facts []string) {
	if d.Spec.Paused {
		facts = append(facts, fmt.Sprintf("%s is paused, so its rollout goes no further. It is still scaled, in proportion. Resume it with kubectl rollout resume deployment/%s -n %s.",
			ofDeployment(d), d.Name, d.Namespace))
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			facts = append(facts, fmt.Sprintf("The rollout of %s makes no progress, as its condition Progressing says (%s): %s", ofDeployment(d), c.Reason, c.Message))
		}
	}
	return facts
}

// autoscalerFacts returns the lines about the HorizontalPodAutoscalers that scale the owner.
func (o *objects) autoscalerFacts(w owner) (facts []string) {
	for _, hpa := range o.autoscalers {
		target := hpa.Spec.ScaleTargetRef
		if hpa.Namespace != w.GetNamespace() || target.Kind != w.kind.name || target.Name != w.GetName() {
			continue
		}
		least := ptr.Deref(hpa.Spec.MinReplicas, 1)
		if ptr.Deref(w.replicas, 1) == 0 && least > 0 {
			facts = append(facts, fmt.Sprintf("HorizontalPodAutoscaler %s/%s does not scale %s, because its spec.replicas is 0.", hpa.Namespace, hpa.Name, w))
			continue
		}
		facts = append(facts, fmt.Sprintf("HorizontalPodAutoscaler %s/%s sets spec.replicas of %s, and last wanted %d. It resets any other number. Change its minReplicas (%d) and maxReplicas (%d) instead.",
			hpa.Namespace, hpa.Name, w, hpa.Status.DesiredReplicas, least, hpa.Spec.MaxReplicas))
	}
	return facts
}

// podFacts returns the lines about a wrong pod count in the status, about pods whose labels contradict
// their controller reference, and about pods that a rollout waits for.
func (o *objects) podFacts(d *decision) (facts []string) {
	claims := d.plan.Claims
	if have := len(claims.Owned) + len(claims.Release); have != int(d.owner.counted) && d.plan.Blocked.Reason == "" {
		facts = append(facts, fmt.Sprintf("The status of %s counts %s, and %s has %d. If no pod is missing there, its controller has not updated the status.",
			d.owner, number(int(d.owner.counted), "pod"), o.origin, have))
	}
	others := filter(o.pods, func(p *corev1.Pod) bool {
		above := metav1.GetControllerOfNoCopy(p)
		return p.Namespace == d.owner.GetNamespace() && pod.IsActive(p) && above != nil && above.UID != d.owner.GetUID() && d.spec.Selector.Matches(labels.Set(p.Labels))
	})
	for _, c := range []struct {
		does, what, why string
		pods            []*corev1.Pod
	}{
		{"first adopts", "orphan", "because the labels match its selector", claims.Adopt},
		{"first releases", "pod", "because the labels do not match its selector", claims.Release},
		{"never counts", "pod", "because of another controller, although the labels match its selector", others},
	} {
		if len(c.pods) > 0 {
			facts = append(facts, fmt.Sprintf("%s %s %s %s: %s. Check the labels.", d.owner, c.does, number(len(c.pods), c.what), c.why, fewOf(c.pods, controllerOf)))
		}
	}
	if above := metav1.GetControllerOfNoCopy(d.owner); above != nil && above.Kind == deploymentKind.name {
		waiting := filter(claims.Owned, func(p *corev1.Pod) bool { return !pod.IsReady(p) })
		if len(waiting) > 0 {
			facts = append(facts, fmt.Sprintf("Not ready: %s of %s: %s. A rollout waits until enough pods are ready.", number(len(waiting), "pod"), d.owner, fewOf(waiting, waitsFor)))
		}
	}
	return facts
}

// fewOf returns the names of the first few pods, each with its detail in parentheses, unless the
// detail is empty.
func fewOf(pods []*corev1.Pod, detail func(*corev1.Pod) string) string {
	var names []string
	for _, p := range pods {
		name := p.Name
		if text := detail(p); text != "" {
			name += " (" + text + ")"
		}
		names = append(names, name)
	}
	return firstOf(names, few)
}

func controllerOf(p *corev1.Pod) string {
	if above := metav1.GetControllerOfNoCopy(p); above != nil {
		return fmt.Sprintf("of %s %s", above.Kind, above.Name)
	}
	return ""
}

// heldBy returns the finalizers or the node that a terminating pod waits for.
func heldBy(p *corev1.Pod) string {
	return cmp.Or(strings.Join(p.Finalizers, ", "), p.Spec.NodeName, "no node")
}

// waitsFor returns why a pod is not ready, in the word of its kubelet or of the scheduler.
func waitsFor(p *corev1.Pod) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Waiting != nil && c.State.Waiting.Reason != "PodInitializing" {
			return c.State.Waiting.Reason
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason
		}
	}
	if p.Spec.NodeName == "" {
		return "no node"
	}
	return string(p.Status.Phase)
}

// terminatingFacts returns the lines about pods whose deletion does not finish. These pods belong
// to the owner or to its ReplicaSets. The deletionTimestamp of a pod is the end of its grace
// period.
func (o *objects) terminatingFacts(w owner, at time.Time) (facts []string) {
	const patience = time.Minute
	uids := map[types.UID]bool{w.GetUID(): true}
	for _, rs := range o.replicaSets {
		uids[rs.UID] = uids[rs.UID] || metav1.IsControlledBy(rs, w)
	}
	terminating := filter(o.pods, func(p *corev1.Pod) bool {
		above := metav1.GetControllerOfNoCopy(p)
		return p.DeletionTimestamp != nil && above != nil && uids[above.UID]
	})
	held := func(p *corev1.Pod) bool { return len(p.Finalizers) > 0 }
	overdue := func(p *corev1.Pod) bool { return !held(p) && at.Sub(p.DeletionTimestamp.Time) > patience }
	const effect = "Such pods do not count as replicas, but a rollout of strategy Recreate waits for them."
	if pods := filter(terminating, held); len(pods) > 0 {
		facts = append(facts, fmt.Sprintf("Finalizers keep %s of %s: %s. Check what should remove them. %s", number(len(pods), "terminating pod"), w, fewOf(pods, heldBy), effect))
	}
	if pods := filter(terminating, overdue); len(pods) > 0 {
		facts = append(facts, fmt.Sprintf("The grace period is over for %s of %s: %s. Check the node and its kubelet. %s", number(len(pods), "terminating pod"), w, fewOf(pods, heldBy), effect))
	}
	return facts
}

// namespaceFacts returns the lines about the namespace and its quotas.
func (o *objects) namespaceFacts(name string) (facts []string) {
	for _, ns := range o.namespaces {
		if ns.Name != name || ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceTerminating {
			continue
		}
		sentences := []string{fmt.Sprintf("Namespace %s is being deleted, so no pod can be created in it.", name)}
		for _, c := range ns.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				sentences = append(sentences, fmt.Sprintf("%s: %s.", c.Type, strings.TrimSuffix(c.Message, ".")))
			}
		}
		facts = append(facts, strings.Join(sentences, " "))
	}
	for _, quota := range o.quotas {
		var full []string
		for _, name := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
			used, hard := quota.Status.Used[name], quota.Status.Hard[name]
			if ofPods(string(name)) && used.Cmp(hard) >= 0 {
				full = append(full, fmt.Sprintf("%s (%s of %s)", name, used.String(), hard.String()))
			}
		}
		if quota.Namespace == name && full != nil {
			facts = append(facts, fmt.Sprintf("ResourceQuota %s/%s has nothing left of %s, so new pods may be refused. Raise the quota, or make room.", name, quota.Name, strings.Join(full, ", ")))
		}
	}
	return facts
}

// ofPods reports whether pods consume the given resource of a quota.
func ofPods(resource string) bool {
	return slices.Contains([]string{"pods", "count/pods", "cpu", "memory", "ephemeral-storage"}, resource) ||
		strings.HasPrefix(resource, "limits.") || strings.HasPrefix(resource, "requests.") && resource != "requests.storage"
}

// warnings returns the lines about the latest warning events of the owner, newest first. Each
// creation that fails has an event with another pod name, so events that differ only in such a name
// are one line.
func (o *objects) warnings(w owner) (facts []string) {
	const most = 10
	found := filter(o.events, func(e *corev1.Event) bool {
		about := e.InvolvedObject
		return e.Type == corev1.EventTypeWarning && about.Kind == w.kind.name && about.Namespace == w.GetNamespace() && about.Name == w.GetName() &&
			(about.UID == "" || about.UID == w.GetUID())
	})
	slices.SortFunc(found, func(a, b *corev1.Event) int {
		return cmp.Or(lastSeen(b).Compare(lastSeen(a)), cmp.Compare(a.Name, b.Name))
	})
	generated := w.generated()
	alike := func(e *corev1.Event) string { return e.Reason + " " + generated.ReplaceAllString(e.Message, "") }
	times := map[string]int{}
	var newest []*corev1.Event // one of each kind
	for _, e := range found {
		n := e.Count
		if e.Series != nil {
			n = e.Series.Count
		}
		if times[alike(e)] == 0 {
			newest = append(newest, e)
		}
		times[alike(e)] += int(max(n, 1))
	}
	for _, e := range newest[:min(len(newest), most)] {
		facts = append(facts, fmt.Sprintf("%s has the warning %s (%s, last at %s): %s", w, e.Reason, number(times[alike(e)], "time"), lastSeen(e).UTC().Format(time.RFC3339), e.Message))
	}
	return facts
}

// generated matches the names that the API server, the owner's controller or replicakit generates for
// objects of the owner. They begin with the owner's name, which may be cut, and end in letters of
// SafeEncodeString.
func (o owner) generated() *regexp.Regexp {
	const most = 58 // the API server cuts the owner's name here, to append five characters
	prefix := o.GetName() + "-"
	return regexp.MustCompile(regexp.QuoteMeta(prefix[:min(len(prefix), most)]) + `[bcdfghjklmnpqrstvwxz2456789]{5,10}(-[bcdfghjklmnpqrstvwxz2456789]{5})?`)
}

func lastSeen(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}

// unknown maps each resource to what the plugin cannot know without objects of that resource.
var unknown = map[string]string{
	"deployments":              "whether the Deployment above is paused",
	"namespaces":               "whether the namespace is being deleted",
	"resourcequotas":           "whether a quota is full",
	"events":                   "which warnings there are",
	"horizontalpodautoscalers": "whether one resets spec.replicas",
}

// noteMissing adds a note if namespaces, quotas, events or autoscalers are missing from a dump.
func (o *objects) noteMissing() {
	found := map[string]int{"namespaces": len(o.namespaces), "resourcequotas": len(o.quotas), "events": len(o.events), "horizontalpodautoscalers": len(o.autoscalers)}
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		if found[kind] == 0 {
			o.notes = append(o.notes, fmt.Sprintf("no %s in %s, so it is unknown %s", kind, o.origin, unknown[kind]))
		}
	}
}
