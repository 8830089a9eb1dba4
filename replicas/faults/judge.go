// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A Judge watches the owners and the children on the server. At each moment, an owner should have at most as many
// children as it wants, plus MaxSurge, and at least as many, minus MaxUnavailable. While the number moves to a new
// one, all numbers between both are right. The judge needs the rights to list and watch both resources.
//
// Call Begin first, Settled after each change of the owners, and End last. The methods of a Judge must not be
// called at the same time.
type Judge struct {
	Client *http.Client // of rest.HTTPClientFor, without the faults
	Server string       // the Host of the rest.Config
	Faults *Faults

	Namespace    string // empty means all namespaces
	Owner, Child schema.GroupVersionResource
	Wanted       func(owner *unstructured.Unstructured) int         // nil means spec.replicas, or 1 if it is missing
	Owns         func(owner, child *unstructured.Unstructured) bool // nil means that the child has an owner reference with the owner's UID
	Counts       func(child *unstructured.Unstructured) bool        // nil means children that are not being deleted, and pods that have not ended

	MaxSurge, MaxUnavailable int
	SettlesWithin            time.Duration // after the last change of a wanted number, and the last fault; zero means a minute
	Quiet                    time.Duration // how long Settled sees no change before it returns; zero means two seconds

	ctx     context.Context //nolint:containedctx // it ends when the judge no longer sees everything, for its cause
	stop    context.CancelCauseFunc
	began   time.Time
	mu      sync.Mutex
	moments []moment
	late    []Break
}

// A moment is one change of an owner or a child on the server.
type moment struct {
	at      time.Time
	version uint64
	isOwner bool // of an owner; otherwise of a child
	isGone  bool
	isFirst bool // it was there when the judge began
	object  *unstructured.Unstructured
}

// Begin lists the owners and children, and watches them until End, or until ctx ends. It returns an error if the
// server cannot be reached, if a right is missing, or if a rule of the Faults is not valid.
func (j *Judge) Begin(ctx context.Context) error {
	if j.Faults == nil || j.Client == nil || j.stop != nil {
		return errors.New("faults: a judge needs Client and Faults, and begins once")
	}
	if err := j.Faults.check(); err != nil {
		return err
	}
	j.ctx, j.stop = context.WithCancelCause(ctx)
	j.began = time.Now()
	for _, r := range []*schema.GroupVersionResource{&j.Owner, &j.Child} {
		if err := j.follow(r); err != nil {
			j.stop(err)
			return fmt.Errorf("faults: judge: %w", err)
		}
	}
	return nil
}

func (j *Judge) follow(r *schema.GroupVersionResource) error {
	list, err := j.list(j.ctx, r)
	if err != nil {
		return err
	}
	for _, o := range list.Items {
		j.record(moment{isOwner: r == &j.Owner, isFirst: true, object: &o})
	}
	body, err := j.get(j.ctx, r, list.GetResourceVersion())
	if err == nil {
		go j.watch(r, list.GetResourceVersion(), body)
	}
	return err
}

// get sends a watch from a version of the owners or the children, or a list if there is no version.
func (j *Judge) get(ctx context.Context, r *schema.GroupVersionResource, version string) (io.ReadCloser, error) {
	prefix := map[bool]string{true: "/api/", false: "/apis/" + r.Group + "/"}[r.Group == ""]
	address := strings.TrimSuffix(j.Server, "/") + prefix + r.Version
	if j.Namespace != "" {
		address += "/namespaces/" + j.Namespace
	}
	if address += "/" + r.Resource; !strings.Contains(address, "://") {
		address = "https://" + address
	}
	if version != "" {
		address += "?watch=1&allowWatchBookmarks=1&resourceVersion=" + version
	}
	for tries := 1; ; tries++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return nil, err
		}
		resp, err := j.Client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("the server cannot be reached: %w", err)
		}
		if resp.StatusCode == http.StatusOK {
			return resp.Body, nil
		}
		var status metav1.Status
		_ = json.NewDecoder(resp.Body).Decode(&status)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests || tries == 30 { // a server that begins to store a new kind answers so
			return nil, fmt.Errorf("%s: %s: %s", r.Resource, resp.Status, status.Message)
		}
		time.Sleep(time.Second)
	}
}

func (j *Judge) list(ctx context.Context, r *schema.GroupVersionResource) (list unstructured.UnstructuredList, err error) {
	body, err := j.get(ctx, r, "")
	if err != nil {
		return list, err
	}
	defer func() { _ = body.Close() }()
	if err = json.NewDecoder(body).Decode(&list); err != nil {
		err = fmt.Errorf("the list of %s cannot be read: %w", r.Resource, err)
	}
	return list, err
}

// watch records all changes after a version. A watch that ends is continued after its last event.
func (j *Judge) watch(r *schema.GroupVersionResource, version string, body io.ReadCloser) {
	for tries := 0; j.ctx.Err() == nil; tries++ {
		for events := json.NewDecoder(body); ; tries = 0 {
			var e struct {
				Type   string                    `json:"type"`
				Object unstructured.Unstructured `json:"object"`
			}
			if events.Decode(&e) != nil {
				break
			}
			if e.Type == "ERROR" {
				j.stop(fmt.Errorf("the watch of %s missed changes: %v", r.Resource, e.Object.Object))
				break
			}
			if version = e.Object.GetResourceVersion(); e.Type != "BOOKMARK" {
				j.record(moment{isOwner: r == &j.Owner, isGone: e.Type == "DELETED", object: &e.Object})
			}
		}
		_ = body.Close()
		time.Sleep(time.Duration(tries) * 10 * time.Millisecond)
		again, err := j.get(j.ctx, r, version)
		switch {
		case err == nil:
			body = again
		case tries > 50: // for about ten seconds, as long as a server takes to start again
			j.stop(err)
		}
	}
}

func (j *Judge) record(m moment) {
	m.at, m.version = time.Now(), numberOf(m.object.GetResourceVersion())
	j.mu.Lock()
	defer j.mu.Unlock()
	j.moments = append(j.moments, m)
}

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
	Began     time.Time // when the judge began
	Broken    []Break
	Rules     []Rule
	Met, Done map[int]int // the number of calls that each rule matched, and of its faults, by the rule's index
	Calls     []Call
}

func (r Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d: %d calls, %d moments at which a promise was broken\n", r.Seed, len(r.Calls), len(r.Broken))
	since := func(t time.Time) string { return fmt.Sprintf("%8.3fs", t.Sub(r.Began).Seconds()) }
	for _, b := range r.Broken {
		fmt.Fprintf(&text, "%s %s: %s: %d children, %d wanted; %s\n", since(b.At), b.Owner, b.Rule, b.Children, b.Wanted, cmp.Or(b.Child, "no child changed"))
		for _, c := range b.Calls {
			fmt.Fprintf(&text, "  %s %s\n", since(c.Began), c)
		}
	}
	for i, rule := range r.Rules {
		if r.Met[i] == 0 {
			fmt.Fprintf(&text, "rule %d, %s, matched nothing\n", i+1, rule.text())
			continue
		}
		fmt.Fprintf(&text, "rule %d, %s, matched %d calls and spoiled %d\n", i+1, rule.text(), r.Met[i], r.Done[i])
	}
	return text.String()
}

// Settled waits until each owner has as many children as it wants, all faults have ended, and nothing has changed
// for a while. It returns an error if an owner does not settle in time, which the report contains too. The time
// begins anew with each fault, so rules need Times, or ctx an end.
func (j *Judge) Settled(ctx context.Context) error {
	if j.stop == nil {
		return errors.New("faults: the judge has not begun")
	}
	quiet, limit := cmp.Or(j.Quiet, 2*time.Second), cmp.Or(j.SettlesWithin, time.Minute)
	for _, r := range j.Faults.Rules {
		if r.Fault == WatchLate { // the operator acts so much later
			quiet, limit = quiet+r.Delay, limit+r.Delay
		}
	}
	// A child that was made and deleted just now is in no list, so its events must have the time to arrive.
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		tallies, _, last := j.verdict()
		end := later(began, j.Faults.end())
		var unsettled *tally
		for _, t := range tallies {
			if end = later(end, t.moved); t.children != t.wanted {
				unsettled = t
			}
		}
		isSame, err := false, cmp.Or(ctx.Err(), context.Cause(j.ctx))
		if err == nil && unsettled == nil && time.Since(later(end, last)) >= quiet {
			isSame, err = j.seesAll(ctx)
		}
		isLate := time.Since(end) > limit
		switch {
		case err != nil:
			return fmt.Errorf("faults: judge: %w", err)
		case isSame:
			return nil
		case isLate && unsettled != nil:
			b := unsettled.breaks(fmt.Sprint("not settled within ", limit), moment{at: time.Now()})
			j.late = append(j.late, b)
			return fmt.Errorf("faults: %s is %s", b.Owner, b.Rule)
		case isLate:
			return errors.New("faults: judge: the number of children changes all the time, or the watches do not show what the server has")
		}
	}
}

// seesAll reports whether the watches have shown exactly the objects that the server lists.
func (j *Judge) seesAll(ctx context.Context) (bool, error) {
	shown, listed := map[types.UID]bool{}, map[types.UID]bool{}
	for _, r := range []*schema.GroupVersionResource{&j.Owner, &j.Child} {
		list, err := j.list(ctx, r)
		if err != nil {
			return false, err
		}
		for _, o := range list.Items {
			listed[o.GetUID()] = true
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.moments {
		shown[m.object.GetUID()] = !m.isGone
	}
	maps.DeleteFunc(shown, func(_ types.UID, exists bool) bool { return !exists })
	return maps.Equal(shown, listed), nil
}

// End waits for Settled, and ends the judge. The error contains the report if a promise was broken. It is also an
// error if the run proves nothing: no call went through the Faults, no rule spoiled a call, no owner existed, or the
// judge lost the server, or its context, before the end.
func (j *Judge) End(ctx context.Context) (Report, error) {
	err := j.Settled(ctx)
	if j.stop == nil {
		return Report{}, err
	}
	j.stop(nil)
	_, broken, _ := j.verdict()
	f := j.Faults
	report := Report{Seed: f.Seed, Began: j.began, Broken: append(broken, j.late...), Rules: f.Rules, Calls: f.Calls()}
	f.locked(func() { report.Met, report.Done = maps.Clone(f.met), maps.Clone(f.done) })
	for i, b := range report.Broken {
		report.Broken[i].Calls = report.of(b, j.Child.Resource)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case len(report.Broken) > 0:
		err = errors.New("faults: " + report.String())
	case err != nil:
	case len(report.Calls) == 0:
		err = errors.New("faults: no call went through the faults: was the configuration wrapped before the clients were made?")
	case !slices.ContainsFunc(j.moments, func(m moment) bool { return m.isOwner }):
		err = fmt.Errorf("faults: there were no %s in namespace %q, so nothing was judged", j.Owner.Resource, j.Namespace)
	case len(f.Rules) > 0 && len(report.Done) == 0:
		err = errors.New("faults: no rule spoiled a call, so the run proves nothing: " + report.String())
	}
	return report, err
}

// of returns the last calls that made a break.
func (r Report) of(b Break, children string) (calls []Call) {
	for _, c := range r.Calls {
		isOfChild := c.Resource == children && c.Name != "" && c.Name == b.Child && slices.Contains(writes, c.Verb)
		if c.Began.Before(b.At) && (len(c.Faults) > 0 || isOfChild) {
			calls = append(calls, c)
		}
	}
	return calls[max(0, len(calls)-10):]
}

// A tally is the count of one owner. Numbers from low to high are right until the owner has as many children as it
// wants.
type tally struct {
	owner                       *unstructured.Unstructured
	children, wanted, low, high int
	moved                       time.Time // when wanted changed last
	broken                      string    // the rule that is broken since an earlier moment
}

func (t *tally) breaks(rule string, m moment) Break {
	b := Break{At: m.at, Rule: rule, Owner: t.owner.GetNamespace() + "/" + t.owner.GetName(), Children: t.children, Wanted: t.wanted}
	if m.object != nil && !m.isOwner {
		b.Child = m.object.GetName()
	}
	return b
}

// verdict counts the children of each owner at each moment, in the order of the server's versions. The last
// change of a number was at the time last.
func (j *Judge) verdict() (tallies map[types.UID]*tally, broken []Break, last time.Time) {
	j.mu.Lock()
	moments := slices.Clone(j.moments)
	j.mu.Unlock()
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.version, b.version) })
	tallies, children := map[types.UID]*tally{}, map[types.UID]*unstructured.Unstructured{}
	for _, m := range moments {
		uid, isGone := m.object.GetUID(), m.isGone || m.object.GetDeletionTimestamp() != nil
		switch {
		case m.isOwner && isGone:
			delete(tallies, uid) // its children go with it
		case m.isOwner:
			tallies[uid] = cmp.Or(tallies[uid], &tally{wanted: -1, low: math.MaxInt})
			tallies[uid].owner = m.object
		case m.isGone || !j.counts(m.object):
			delete(children, uid)
		default:
			children[uid] = m.object
		}
		for _, t := range tallies {
			former := *t
			t.children = 0
			for _, child := range children {
				if j.owns(t.owner, child) {
					t.children++
				}
			}
			if t.judge(j, m); t.broken != "" && t.broken != former.broken {
				broken = append(broken, t.breaks(t.broken, m))
			}
			if t.children != former.children || t.wanted != former.wanted {
				last = later(last, m.at)
			}
		}
	}
	return tallies, broken, last
}

// judge judges the number of children at a moment.
func (t *tally) judge(j *Judge, m moment) {
	wanted := j.wanted(t.owner)
	if t.wanted < 0 || m.isFirst {
		t.low, t.high = min(t.low, t.children), max(t.high, t.children)
	}
	if wanted != t.wanted {
		t.wanted, t.moved, t.low, t.high = wanted, m.at, min(t.low, wanted), max(t.high, wanted)
	}
	if t.children == wanted {
		t.low, t.high = wanted, wanted
	}
	t.broken = ""
	if most := t.high + j.MaxSurge; t.children > most {
		t.broken = fmt.Sprint("more than ", most)
	}
	if least := t.low - j.MaxUnavailable; t.children < least {
		t.broken = fmt.Sprint("fewer than ", least)
	}
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
