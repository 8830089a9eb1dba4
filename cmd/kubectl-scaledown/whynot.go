// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/selector"
)

// printWhyNot says of an owner, and of the ReplicaSets of a Deployment, what may keep their pods from being
// created or deleted. It is what anybody can see; the controller knows more.
func (o *options) printWhyNot(ctx context.Context) error {
	ctx, cancel := o.limited(ctx)
	defer cancel()
	objs, err := o.read(ctx, *o.files.Filenames)
	if err != nil {
		return err
	}
	o.at = o.now()
	found, err := objs.find(o)
	if err != nil {
		return err
	}
	w := found[0]
	var out bytes.Buffer
	err = o.printFacts(&out, objs, w)
	if w.kind == deploymentKind {
		for _, rs := range objs.replicaSets {
			if metav1.IsControlledBy(rs, w) && (ptr.Deref(rs.Spec.Replicas, 0) > 0 || rs.Status.Replicas > 0) && err == nil {
				out.WriteString("\n")
				err = o.printFacts(&out, objs, ofReplicaSet(rs))
			}
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(&out, "\nIf replicakit-controller is at work here, /debug/passes/%s/NAME beside its metrics says what held the last passes of a ReplicaSet or ReplicationController back.\n", w.GetNamespace())
	for _, note := range objs.notes {
		say(o.ErrOut, "note: %s\n", note)
	}
	if len(objs.namespaces)+len(objs.quotas)+len(objs.events) == 0 {
		say(o.ErrOut, "note: no Namespace, ResourceQuota or Event was read: what they tell is missing here\n")
	}
	_, err = out.WriteTo(o.Out)
	return err
}

func (o *options) printFacts(out *bytes.Buffer, objs *objects, w owner) error {
	facts := slices.Concat(w.facts(), objs.inNamespace(w.GetNamespace()))
	fmt.Fprintf(out, "%s: %d wanted", w, ptr.Deref(w.replicas, 0))
	if w.kind != deploymentKind {
		active, ofPods, err := objs.ofPods(w, o.at)
		if err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
		fmt.Fprintf(out, ", %d active", active)
		facts = append(facts, ofPods...)
	}
	out.WriteString("\n")
	if facts = append(facts, objs.warnings(w, o.at)...); len(facts) == 0 {
		out.WriteString("  nothing can be seen that holds its pods back\n")
	}
	for _, fact := range facts {
		fmt.Fprintf(out, "  %s\n", fact)
	}
	return nil
}

// facts are those that the owner itself tells.
func (o owner) facts() (facts []string) {
	say := func(format string, args ...any) { facts = append(facts, fmt.Sprintf(format, args...)) }
	if at := o.GetDeletionTimestamp(); at != nil {
		say("It is being deleted since %s%s: its controller creates and deletes no pods.", at.UTC().Format(time.RFC3339), waitsFor(o.GetFinalizers()))
	}
	observed, failing := o.status()
	if observed < o.GetGeneration() {
		say("Its status is of generation %d, and the last change made generation %d: its controller has not seen that. Is one at work?", observed, o.GetGeneration())
	}
	if d, ok := o.Object.(*appsv1.Deployment); ok && d.Spec.Paused {
		say("Its rollout is paused: the template is not rolled out. Scaling goes on.")
	}
	if above := metav1.GetControllerOfNoCopy(o); above != nil {
		say("%s %s sets how many are wanted.", above.Kind, above.Name)
	}
	for _, message := range failing {
		say("%s", message)
	}
	return facts
}

// status returns the generation that the status is of, and the conditions that say that something fails.
func (o owner) status() (observed int64, failing []string) {
	fails := func(condition, status, message string) {
		if condition == "ReplicaFailure" && status == "True" || condition == "Progressing" && status == "False" {
			failing = append(failing, fmt.Sprintf("Its condition %s is %s: %s", condition, status, message))
		}
	}
	switch obj := o.Object.(type) {
	case *appsv1.Deployment:
		observed = obj.Status.ObservedGeneration
		for _, c := range obj.Status.Conditions {
			fails(string(c.Type), string(c.Status), c.Message)
		}
	case *appsv1.ReplicaSet:
		observed = obj.Status.ObservedGeneration
		for _, c := range obj.Status.Conditions {
			fails(string(c.Type), string(c.Status), c.Message)
		}
	case *corev1.ReplicationController:
		observed = obj.Status.ObservedGeneration
		for _, c := range obj.Status.Conditions {
			fails(string(c.Type), string(c.Status), c.Message)
		}
	}
	return observed, failing
}

func waitsFor(finalizers []string) string {
	if len(finalizers) == 0 {
		return ""
	}
	return ", and waits for " + strings.Join(finalizers, ", ")
}

// inNamespace are the facts of a namespace: whether it ends, and which quotas are full.
func (o *objects) inNamespace(name string) (facts []string) {
	for _, ns := range o.namespaces {
		if ns.Name != name || ns.Status.Phase != corev1.NamespaceTerminating {
			continue
		}
		fact := []string{"Its namespace is being deleted: no pod can be created."}
		for _, c := range ns.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				fact = append(fact, c.Message)
			}
		}
		facts = append(facts, strings.Join(fact, " "))
	}
	for _, q := range o.quotas {
		for _, resource := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			hard, used := q.Status.Hard[resource], q.Status.Used[resource]
			if q.Namespace == name && isOfPods(string(resource)) && used.Cmp(hard) >= 0 {
				facts = append(facts, fmt.Sprintf("ResourceQuota %s is full: %s of %s %s are used, so pods may be refused.", q.Name, used.String(), hard.String(), resource))
			}
		}
	}
	return facts
}

// isOfPods reports whether a quota of a resource can refuse pods.
func isOfPods(resource string) bool {
	return !strings.HasPrefix(resource, "count/") && !strings.HasPrefix(resource, "services") && !strings.Contains(resource, "storage") || resource == "count/pods"
}

// ofPods counts the active pods of an owner, and returns what is to be said of some pods.
func (o *objects) ofPods(w owner, now time.Time) (active int, facts []string, err error) {
	var matches labels.Selector
	switch obj := w.Object.(type) {
	case *appsv1.ReplicaSet:
		matches, err = selector.ForReplicaSet(obj)
	case *corev1.ReplicationController:
		matches, err = selector.ForReplicationController(obj)
	}
	if err != nil {
		return 0, nil, err
	}
	pods := map[string][]string{}
	note := func(p *corev1.Pod, format string, args ...any) {
		fact := fmt.Sprintf(format, args...)
		pods[fact] = append(pods[fact], p.Name)
	}
	for _, p := range o.pods {
		if p.Namespace != w.GetNamespace() {
			continue
		}
		above, is := metav1.GetControllerOfNoCopy(p), matches.Matches(labels.Set(p.Labels))
		ours := above != nil && above.UID == w.GetUID()
		if ours && is && pod.IsActive(p) {
			active++
		}
		switch {
		case ours && p.DeletionTimestamp != nil && len(p.Finalizers) > 0:
			note(p, "being deleted%s", waitsFor(p.Finalizers))
		case ours && p.DeletionTimestamp != nil && now.After(p.DeletionTimestamp.Time):
			note(p, "should be gone by now: does the node answer?")
		case ours && !is:
			note(p, "no longer match the selector and will be let go")
		case is && above == nil && p.DeletionTimestamp == nil:
			note(p, "belong to nobody and match the selector: they will be adopted")
		case is && !ours && above != nil:
			note(p, "match the selector and belong to %s %s: they do not count", above.Kind, above.Name)
		}
	}
	for _, fact := range slices.Sorted(maps.Keys(pods)) {
		slices.Sort(pods[fact])
		facts = append(facts, fmt.Sprintf("%s (%s): %s", number(len(pods[fact]), "pod"), some(pods[fact], 3), fact))
	}
	return active, facts, nil
}

// warnings are the last Warning events about an owner, ten at most.
func (o *objects) warnings(w owner, now time.Time) (facts []string) {
	const most = 10
	about := filter(o.events, func(e *corev1.Event) bool {
		return e.Type == corev1.EventTypeWarning && e.InvolvedObject.UID == w.GetUID()
	})
	last := func(e *corev1.Event) time.Time {
		if e.Series != nil {
			return e.Series.LastObservedTime.Time
		}
		if !e.LastTimestamp.IsZero() {
			return e.LastTimestamp.Time
		}
		return e.EventTime.Time
	}
	slices.SortFunc(about, func(a, b *corev1.Event) int { return cmp.Or(last(b).Compare(last(a)), cmp.Compare(a.Name, b.Name)) })
	for _, e := range about[:min(len(about), most)] {
		facts = append(facts, fmt.Sprintf("Event %s %s ago: %s", e.Reason, now.Sub(last(e)).Round(time.Second), e.Message))
	}
	return facts
}
