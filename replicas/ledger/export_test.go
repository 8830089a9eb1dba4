// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Clone returns a copy of the Ledger. The two Ledgers share only values that neither of them modifies.
func (l *Ledger[C]) Clone() *Ledger[C] {
	l.mu.Lock()
	defer l.mu.Unlock()
	clone := &Ledger[C]{
		Patience: l.Patience, moment: l.moment, viewed: l.viewed, names: slices.Clone(l.names),
		list: l.list, selector: l.selector, cacheVersion: l.cacheVersion, stale: l.stale,
		suspicion: l.suspicion, hidden: l.hidden,
		cached: l.cached, known: maps.Clone(l.known),
	}
	if l.entries != nil {
		clone.entries = make(map[types.UID]*entry[C], len(l.entries))
	}
	for id, e := range l.entries {
		copied := *e
		clone.entries[id] = &copied
	}
	for i := range clone.names {
		clone.names[i].settled = maps.Clone(clone.names[i].settled)
	}
	clone.list.uids = maps.Clone(l.list.uids)
	return clone
}

// Knows returns a text that describes the content of the Ledger. Instead of a Moment, the text contains the
// position of the Moment in the order of all Moments, because only this order matters.
func (l *Ledger[C]) Knows(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	moments := map[Moment]int{0: 0, l.viewed: 0, l.list.start: 0}
	for _, e := range l.entries {
		for _, m := range []Moment{e.fact.answer.at, e.fact.gone, e.shown} {
			moments[m] = 0
		}
	}
	for i, m := range slices.Sorted(maps.Keys(moments)) {
		moments[m] = i
	}
	var b strings.Builder
	ago := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return now.Sub(t).String()
	}
	say := func(w answer[C]) string {
		if w.at == 0 {
			return "-"
		}
		text := fmt.Sprint(w.there, "@", w.version, "#", moments[w.at])
		if w.there {
			text += fmt.Sprint(nameOf(w.child), w.child.GetResourceVersion(), w.child.GetLabels())
		}
		return text
	}
	for _, id := range slices.Sorted(maps.Keys(l.entries)) {
		e := l.entries[id]
		fmt.Fprint(&b, id, "(", say(e.fact.answer), " ", e.fact.gone > 0, " ", ago(e.since))
		fmt.Fprint(&b, " shown", moments[e.shown], e.shown == l.viewed, " doubt", e.unanswered.version, ago(e.unanswered.sent), ")")
	}
	for _, n := range l.names {
		fmt.Fprint(&b, n.Name, "(", ago(n.Sent), n.Holder, n.requests, slices.Sorted(maps.Keys(n.settled)), ago(n.look.Since), n.look.Wait, ")")
	}
	if l.list.start > 0 {
		fmt.Fprint(&b, "bar", l.list.version, moments[l.list.start], slices.Sorted(maps.Keys(l.list.uids)), ago(l.list.since))
	}
	fmt.Fprint(&b, " read", l.cacheVersion, " passed", ago(l.suspicion.Since), l.suspicion.Wait, l.hidden, l.stale)
	return b.String()
}

// Holds returns a text with the numbers of entries and names in the Ledger. If the Ledger keeps a list, the text
// says so.
func (l *Ledger[C]) Holds() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	if n := len(l.entries); n > 0 {
		all = append(all, fmt.Sprintf("%d entries", n))
	}
	if n := len(l.names); n > 0 {
		all = append(all, fmt.Sprintf("%d names", n))
	}
	if l.list.start > 0 {
		all = append(all, "a list")
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
