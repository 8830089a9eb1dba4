// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// many is the maximum number of pods that are printed one by one.
const many = 12

// A happening is an event in a step, or several equal ones in a row.
type happening struct {
	first, last time.Duration // the times of the first and the last event, from the start of the story
	times       int
	who, what   string
	warnings    string
	back        time.Duration // the delay before the next pass
}

func (s *stage) say(who, what string) { s.tell(happening{who: who, what: what}) }

func (s *stage) tell(h happening) {
	h.first, h.times = s.Clock.Now().Sub(s.start).Round(time.Millisecond), 1
	h.last = h.first
	if n := len(s.log); n > 0 {
		if same := &s.log[n-1]; same.who == h.who && same.what == h.what && same.warnings == h.warnings {
			same.last, same.times, same.back = h.last, same.times+1, h.back
			return
		}
	}
	s.log = append(s.log, h)
}

// told formats the happenings of the step, with one line for each, and one line for each warning event.
func (s *stage) told() string {
	var b strings.Builder
	for _, h := range s.log {
		what := cmp.Or(h.what, "has nothing to do")
		if h.times > 1 {
			what += fmt.Sprintf(" (%d times", h.times)
			if h.last > h.first {
				what += ", until " + h.last.String()
			}
			what += ")"
		}
		if h.back > 0 {
			what += "; requeues in " + short(h.back)
		}
		fmt.Fprintf(&b, "%8s  %-5s  %s\n", h.first, h.who, what)
		for line := range strings.Lines(h.warnings) {
			fmt.Fprintf(&b, "%8s  %-5s  event %s\n", "", "", strings.TrimSpace(line))
		}
	}
	return b.String()
}

// short formats a duration in whole milliseconds, but never as 0.
func short(d time.Duration) string {
	if d < time.Millisecond {
		return "an instant"
	}
	return d.Round(time.Millisecond).String()
}

// batches formats the creations of a pass in the batches of slow start, with the reasons of those that failed.
func (s *stage) batches(result podPass) string {
	var batches []string
	// Slow start sends 1, 2, 4 and so on.
	for size, left := 1, s.creations; len(left) > 0; size *= 2 {
		batch := left[:min(size, len(left))]
		left = left[len(batch):]
		if len(s.creations) > many {
			batches = append(batches, strconv.Itoa(len(batch)))
		} else {
			batches = append(batches, answers(batch))
		}
	}
	text := strings.Join(batches, " | ")
	if n := len(s.creations); n > many {
		vain := ""
		if failed := n - len(result.Created); failed > 0 {
			vain = fmt.Sprintf(", %d in vain", failed)
		}
		text = fmt.Sprintf("%d pods%s: %s", n, vain, text)
	}
	if result.Skipped > 0 {
		text += fmt.Sprintf(" | %d not tried", result.Skipped)
	}
	return text
}

// answers formats the results of the creations in one batch.
func answers(batch []creation) string {
	var texts []string
	for _, c := range batch {
		switch {
		case c.err == nil:
			texts = append(texts, c.pod)
		case !c.there:
			texts = append(texts, "("+reason(c.err)+": "+c.pod+")")
		default:
			texts = append(texts, "("+reason(c.err)+", yet "+c.pod+" exists)")
		}
	}
	return strings.Join(texts, " ")
}

// choices formats the deleted pods, each with the reason why it was chosen.
func (s *stage) choices(victims []replicas.Deletion[*corev1.Pod]) string {
	if len(victims) > many {
		return fmt.Sprintf("%d pods", len(victims))
	}
	var texts []string
	for _, v := range victims {
		texts = append(texts, fmt.Sprintf("%s (%s)", s.called(v.Object.Name), v.Explain()))
	}
	return strings.Join(texts, ", ")
}

func (s *stage) podNames(pods []*corev1.Pod) string {
	if len(pods) > many {
		return fmt.Sprintf("%d pods", len(pods))
	}
	var names []string
	for _, p := range pods {
		names = append(names, s.called(p.Name))
	}
	return strings.Join(names, " ")
}

// state formats the ReplicaSets and the pods at the end of a step.
func (s *stage) state() string { return s.sets() + s.pods() }

// sets formats the ReplicaSets, with the effects of calls that the controller still expects.
func (s *stage) sets() string {
	rows := [][]string{{"SET", "WANTED", "REPLICAS", "READY", "AVAILABLE", "TERMINATING", "EXPECTS", "NOTES"}}
	known := map[types.UID]bool{}
	for _, rs := range s.Owners(namespace) {
		known[rs.UID] = true
		status, terminating := rs.Status, int32(0)
		if status.TerminatingReplicas != nil {
			terminating = *status.TerminatingReplicas
		}
		rows = append(rows, []string{
			rs.Name, number(*rs.Spec.Replicas), number(status.Replicas), number(status.ReadyReplicas),
			number(status.AvailableReplicas), number(terminating), cmp.Or(s.expected(rs.UID), "nothing"), s.setNotes(rs),
		})
	}
	// The controller may still expect effects for an owner that is gone.
	gone := len(rows)
	for key := range s.known() {
		if !known[key.UID] && s.expected(key.UID) != "" {
			rows = append(rows, []string{key.Name, "-", "-", "-", "-", "-", s.expected(key.UID), "gone"})
		}
	}
	slices.SortFunc(rows[gone:], slices.Compare)
	if len(rows) == 1 {
		return "no replica sets\n"
	}
	return table(rows)
}

func (s *stage) setNotes(rs *appsv1.ReplicaSet) string {
	var notes []string
	for _, c := range rs.Status.Conditions {
		notes = append(notes, fmt.Sprintf("%s: %s", c.Type, c.Reason))
	}
	if rs.Status.ObservedGeneration < rs.Generation {
		notes = append(notes, "status is older than spec")
	}
	if rs.DeletionTimestamp != nil {
		notes = append(notes, "being deleted")
	}
	if s.controller != nil {
		cached, ok := s.controller.View.OwnerWatch.Get(namespace, rs.Name)
		switch {
		case !ok:
			notes = append(notes, "not in the cache")
		case cached.UID != rs.UID:
			notes = append(notes, "another one in the cache")
		case *cached.Spec.Replicas != *rs.Spec.Replicas:
			notes = append(notes, fmt.Sprintf("wants %d in the cache", *cached.Spec.Replicas))
		}
	}
	return strings.Join(notes, ", ")
}

// known returns the ledgers of the controller, by owner.
func (s *stage) known() map[expectations.Key]*ledger.Ledger[*corev1.Pod] {
	if s.controller == nil {
		return nil
	}
	return ledgersOf(s.controller)
}

func ledgersOf(c *podController) map[expectations.Key]*ledger.Ledger[*corev1.Pod] {
	return inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]]](insideOf(c).Ledgers).Ledgers()
}

// expected formats the creations or deletions of an owner that the controller waits to see in the cache. "" means none.
func (s *stage) expected(owner types.UID) string {
	for key, known := range s.known() {
		creations, deletions := known.Awaited()
		if key.UID != owner || len(creations)+len(deletions) == 0 {
			continue
		}
		text := count(len(creations), "creation")
		if len(creations) > 0 && len(creations) <= many {
			text += ": " + s.numbered(strings.Join(creations, " "))
		}
		if dels := count(len(deletions), "deletion"); dels != "" {
			text = dels + s.deleting(deletions)
		}
		remaining := known.Waits(insideOf(s.controller).Now())
		if remaining == 0 {
			return text + ", expired"
		}
		return fmt.Sprintf("%s until %s", text, (s.Clock.Now().Sub(s.start) + remaining).Truncate(time.Millisecond))
	}
	return ""
}

func (s *stage) deleting(uids []types.UID) string {
	var names []string
	for _, uid := range uids {
		names = append(names, s.names[uid])
	}
	if len(names) > many {
		return ""
	}
	return ": " + strings.Join(names, " ")
}

func count(n int, noun string) string {
	switch {
	case n <= 0:
		return ""
	case n == 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// pods formats the pods one by one, or if there are many the numbers of equal ones.
func (s *stage) pods() string {
	pods := s.Children(namespace)
	if s.controller != nil {
		for _, p := range s.controller.View.ChildWatch.In(namespace) {
			if !slices.ContainsFunc(pods, func(other *corev1.Pod) bool { return other.UID == p.UID }) {
				// The server no longer has it.
				pods = append(pods, p)
			}
		}
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(len(s.called(a.Name)), len(s.called(b.Name))), cmp.Compare(s.called(a.Name), s.called(b.Name)), cmp.Compare(a.UID, b.UID))
	})
	switch {
	case len(pods) == 0:
		return "no pods\n"
	case len(pods) > many:
		return s.crowd(pods)
	}
	rows := [][]string{{"POD", "OF", "NODE", "PHASE", "READY", "NOTES"}}
	for _, p := range pods {
		rows = append(rows, []string{s.called(p.Name), s.ownerOf(p), cmp.Or(p.Spec.NodeName, "-"), phase(p), s.ready(p), s.podNotes(p)})
	}
	return table(rows)
}

// crowd formats how many pods are equal in owner, phase, readiness and notes.
func (s *stage) crowd(pods []*corev1.Pod) string {
	rows := [][]string{{"PODS", "OF", "PHASE", "READY", "NOTES"}}
	counts := map[string]int{}
	var kinds [][]string
	for _, p := range pods {
		ready := "no"
		if pod.IsReady(p) {
			ready = "yes"
		}
		kind := []string{s.ownerOf(p), phase(p), ready, s.podNotes(p)}
		if counts[fmt.Sprint(kind)]++; counts[fmt.Sprint(kind)] == 1 {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, slices.Compare)
	for _, kind := range kinds {
		rows = append(rows, append([]string{strconv.Itoa(counts[fmt.Sprint(kind)])}, kind...))
	}
	return table(rows)
}

func (s *stage) ownerOf(p *corev1.Pod) string {
	ref := metav1.GetControllerOf(p)
	if ref == nil {
		return "nobody"
	}
	if rs, err := s.GetOwner(s.ctx, namespace, ref.Name); apierrors.IsNotFound(err) || rs.UID != ref.UID {
		return "the old " + ref.Name
	}
	return ref.Name
}

// selects returns the value of the label "app" that an owner selects, or "" for a nil ref. If the owner cannot be read,
// it returns the owner's name.
func (s *stage) selects(ref *metav1.OwnerReference) string {
	if ref == nil {
		return ""
	}
	rs, err := s.GetOwner(s.ctx, namespace, ref.Name)
	if err != nil {
		return ref.Name
	}
	return rs.Spec.Selector.MatchLabels["app"]
}

func phase(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	return string(p.Status.Phase)
}

// ready formats the time for which the pod has been ready.
func (s *stage) ready(p *corev1.Pod) string {
	if !pod.IsReady(p) {
		return "no"
	}
	return s.Clock.Now().Sub(pod.ReadyCondition(p).LastTransitionTime.Time).String()
}

func (s *stage) podNotes(p *corev1.Pod) string {
	var notes []string
	if app := p.Labels["app"]; app != s.selects(metav1.GetControllerOf(p)) {
		notes = append(notes, "app="+app)
	}
	if cost, ok := p.Annotations[corev1.PodDeletionCost]; ok {
		notes = append(notes, "cost "+cost)
	}
	if len(p.Finalizers) > 0 {
		notes = append(notes, "has a finalizer")
	}
	if s.controller == nil {
		return strings.Join(notes, ", ")
	}
	stored, err := s.GetChild(s.ctx, namespace, p.Name)
	cached, ok := s.controller.View.ChildWatch.Get(namespace, p.Name)
	switch {
	case err != nil || stored.UID != p.UID:
		notes = append(notes, "only in the cache")
	case !ok || cached.UID != p.UID:
		notes = append(notes, "not in the cache")
	case cached.ResourceVersion != p.ResourceVersion:
		notes = append(notes, "old in the cache")
	}
	return strings.Join(notes, ", ")
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// table aligns rows. The first row contains the titles, and the last column contains notes.
func table(rows [][]string) string {
	last := len(rows[0]) - 1
	if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[last] != "" }) {
		// No row has a note.
		for i := range rows {
			rows[i] = rows[i][:last]
		}
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) // a write to a strings.Builder never fails
	}
	_ = w.Flush()
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
