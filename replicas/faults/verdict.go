// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// A Break is a moment at which an owner had too many or too few children, or at which it should have settled.
type Break struct {
	At               time.Time
	Rule             string // such as "more than 3"
	Owner            string // namespace/name
	Child            string // the child that was created or deleted at this moment, if there is one
	Children, Wanted int
	Calls            []Call // the calls for this child, and those that had met faults before
}

// A Report is the result of a Judge.
type Report struct {
	Seed      uint64
	Broken    []Break
	Rules     []Rule
	Met, Done []int // for each rule, the number of calls that it matched, and of its faults
	Calls     []Call
}

func (r Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d: %d calls, %d moments at which a promise was broken\n", r.Seed, len(r.Calls), len(r.Broken))
	var began time.Time
	if len(r.Calls) > 0 {
		began = r.Calls[0].Began
	}
	since := func(t time.Time) string { return fmt.Sprintf("%8.3fs", t.Sub(began).Seconds()) }
	for _, b := range r.Broken {
		fmt.Fprintf(&text, "%s %s: %s: %d children, %d wanted; %s\n", since(b.At), b.Owner, b.Rule, b.Children, b.Wanted, cmp.Or(b.Child, "no child changed"))
		for _, c := range b.Calls {
			fmt.Fprintf(&text, "  %s %s\n", since(c.Began), c)
		}
	}
	for i, rule := range r.Rules {
		switch {
		case r.Met[i] == 0:
			fmt.Fprintf(&text, "rule %d, %s, matched nothing\n", i+1, rule)
		default:
			fmt.Fprintf(&text, "rule %d, %s, matched %d calls and spoiled %d\n", i+1, rule, r.Met[i], r.Done[i])
		}
	}
	return text.String()
}

// Settled waits until each owner has as many children as it wants, all faults have ended, and nothing has changed for a
// while. It returns an error if an owner does not settle in time, which the report contains too.
func (j *Judge) Settled(ctx context.Context) error {
	if j.stop == nil {
		return errors.New("faults: the judge has not begun")
	}
	if err := j.catchUp(ctx); err != nil {
		return err
	}
	// A child that was made and deleted just now is in no list, so its events must have the time to arrive.
	began := time.Now()
	for ; ; time.Sleep(20 * time.Millisecond) {
		isOver, end := j.Faults.isOver()
		tallies, _, last := j.verdict()
		var unsettled *tally
		for _, t := range tallies {
			if end = later(end, t.moved); len(t.children) != t.wanted {
				unsettled = t
			}
		}
		switch now := time.Now(); {
		case ctx.Err() != nil:
			return fmt.Errorf("faults: judge: %w", ctx.Err())
		case isOver && unsettled == nil && now.Sub(later(began, later(end, last))) >= cmp.Or(j.Quiet, 2*time.Second):
			return j.catchUp(ctx)
		case unsettled != nil && now.Sub(end) > cmp.Or(j.SettlesWithin, time.Minute):
			b := unsettled.breaks(fmt.Sprint("not settled within ", cmp.Or(j.SettlesWithin, time.Minute)), moment{at: now})
			j.late = append(j.late, b)
			return fmt.Errorf("faults: %s is %s", b.Owner, b.Rule)
		}
	}
}

// End waits for Settled, and ends the judge. The error contains the report if a promise was broken. It is also an error
// if the run proves nothing: no call went through the Faults, no rule of several met a call, no owner existed, or the judge lost
// the server.
func (j *Judge) End(ctx context.Context) (Report, error) {
	err := j.Settled(ctx)
	if j.stop == nil {
		return Report{}, err
	}
	j.stop()
	if len(j.late) > 0 {
		err = nil // it is in the report
	}
	_, broken, _ := j.verdict()
	f := j.Faults
	report := Report{Seed: f.Seed, Broken: append(broken, j.late...), Rules: f.Rules, Calls: f.Calls()}
	f.mu.Lock()
	report.Met, report.Done = grown(f.met, len(f.Rules)), grown(f.done, len(f.Rules))
	f.mu.Unlock()
	for i, b := range report.Broken {
		report.Broken[i].Calls = report.of(b)
	}
	j.mu.Lock()
	hasOwner := slices.ContainsFunc(j.moments, func(m moment) bool { return m.isOwner })
	j.mu.Unlock()
	switch {
	case err != nil:
	case len(report.Broken) > 0:
		err = errors.New("faults: " + report.String())
	case len(report.Calls) == 0:
		err = errors.New("faults: no call went through the faults: was the configuration wrapped before the clients were made?")
	case !hasOwner:
		err = fmt.Errorf("faults: there were no %s in namespace %q, so nothing was judged", j.Owner.Resource, j.Namespace)
	case len(f.Rules) > 0 && slices.Max(report.Done) == 0:
		err = errors.New("faults: no rule spoiled a call, so the run proves nothing: " + report.String())
	}
	return report, err
}

// of returns the last calls that made a break.
func (r Report) of(b Break) (calls []Call) {
	for _, c := range r.Calls {
		if c.Began.Before(b.At) && (len(c.Faults) > 0 || c.Name != "" && c.Name == b.Child && slices.Contains(writes, c.Verb)) {
			calls = append(calls, c)
		}
	}
	return calls[max(0, len(calls)-10):]
}

// A tally is the count of one owner. Numbers from low to high are right until the owner has as many children as it
// wants.
type tally struct {
	owner             *unstructured.Unstructured
	wanted, low, high int
	moved             time.Time // when wanted changed last
	children          map[types.UID]bool
	broken            string // the rule that is broken since an earlier moment
}

func (t *tally) breaks(rule string, m moment) Break {
	b := Break{At: m.at, Rule: rule, Owner: t.owner.GetNamespace() + "/" + t.owner.GetName(), Children: len(t.children), Wanted: t.wanted}
	if m.object != nil && !m.isOwner {
		b.Child = m.object.GetName()
	}
	return b
}

// verdict counts the children of each owner at each moment, in the order of the server's versions.
func (j *Judge) verdict() (tallies map[types.UID]*tally, broken []Break, last time.Time) {
	j.mu.Lock()
	moments := slices.Clone(j.moments)
	j.mu.Unlock()
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.version, b.version) })
	tallies, children := map[types.UID]*tally{}, map[types.UID]*unstructured.Unstructured{}
	for _, m := range moments {
		last = later(last, m.at)
		uid := m.object.GetUID()
		if m.isOwner {
			j.seeOwner(tallies, children, m)
		} else if children[uid] = m.object; m.isGone || !j.counts(m.object) {
			delete(children, uid)
		}
		for id, t := range tallies {
			if !m.isOwner && children[uid] != nil && j.owns(t.owner, m.object) {
				t.children[uid] = true
			} else if !m.isOwner {
				delete(t.children, uid)
			}
			if (!m.isOwner || id == uid) && t.judge(m.isFirst, j.MaxSurge, j.MaxUnavailable) {
				broken = append(broken, t.breaks(t.broken, m))
			}
		}
	}
	return tallies, broken, last
}

func (j *Judge) seeOwner(tallies map[types.UID]*tally, children map[types.UID]*unstructured.Unstructured, m moment) {
	uid := m.object.GetUID()
	if m.isGone || m.object.GetDeletionTimestamp() != nil {
		delete(tallies, uid) // its children go with it
		return
	}
	t, wanted := tallies[uid], j.wanted(m.object)
	if t == nil {
		t = &tally{wanted: wanted, moved: m.at, children: map[types.UID]bool{}}
		for id, child := range children {
			if j.owns(m.object, child) {
				t.children[id] = true
			}
		}
		t.low, t.high = min(wanted, len(t.children)), max(wanted, len(t.children))
		tallies[uid] = t
	}
	t.owner = m.object
	if wanted != t.wanted {
		t.wanted, t.moved = wanted, m.at
		t.low, t.high = min(t.low, wanted), max(t.high, wanted)
	}
}

// judge judges the number of children, and reports whether a promise breaks at this moment.
func (t *tally) judge(isFirst bool, surge, unavailable int) bool {
	n, former := len(t.children), t.broken
	if isFirst {
		t.low, t.high = min(t.low, n), max(t.high, n)
	}
	if n == t.wanted {
		t.low, t.high = n, n
	}
	switch {
	case n > t.high+surge:
		t.broken = fmt.Sprint("more than ", t.high+surge)
	case n < t.low-unavailable:
		t.broken = fmt.Sprint("fewer than ", t.low-unavailable)
	default:
		t.broken = ""
	}
	return t.broken != "" && t.broken != former
}

func (j *Judge) wanted(owner *unstructured.Unstructured) int {
	if j.Wanted != nil {
		return j.Wanted(owner)
	}
	if replicas, found, err := unstructured.NestedInt64(owner.Object, "spec", "replicas"); found && err == nil {
		return int(replicas)
	}
	return 1
}

func (j *Judge) owns(owner, child *unstructured.Unstructured) bool {
	if j.Owns != nil {
		return j.Owns(owner, child)
	}
	return slices.ContainsFunc(child.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}

func (j *Judge) counts(child *unstructured.Unstructured) bool {
	if j.Counts != nil {
		return j.Counts(child)
	}
	phase, _, _ := unstructured.NestedString(child.Object, "status", "phase")
	isEnded := j.Child.Group == "" && j.Child.Resource == "pods" && (phase == "Succeeded" || phase == "Failed")
	return child.GetDeletionTimestamp() == nil && !isEnded
}
