// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Victim is an object to delete, and what decided between it and the first
// survivor. The first survivor is the object that would go next.
type Victim[T any] struct {
	// Object is the object that was passed in, not a copy.
	Object T

	// Criterion is the name of the first criterion on which the victim and the
	// first survivor differ, such as "not-ready". It is MustGo or MustStay if
	// Options decided, UID or Name if no criterion did, and All if no object
	// survives.
	Criterion string

	// Values are the two objects' values for the criterion. Both are empty for All.
	// For Kubernetes' criteria:
	//
	//	unassigned        unassigned  assigned
	//	phase             Pending     Running
	//	not-ready         not ready   ready
	//	deletion-cost     -100        0
	//	colocation        3           1
	//	ready-time        5m          2h
	//	restarts          4           0
	//	sidecar-restarts  4           0
	//	creation-time     5m          2h
	//	uid               9c2e1f...   a0b1c2...
	//	name              default/a   default/b
	//
	// Times are ages in whole seconds, as time.ParseDuration reads them. The age is
	// negative if the instant is in the future. If Options.Now is zero, times are
	// instants in RFC 3339. The zero instant is "unknown".
	Values struct{ Victim, Survivor string }

	phrase, detail string // how to say it
}

// Explain says in words why the victim goes before the first survivor: "not
// ready", "deletion cost -100 < 0", "3 replicas on node-4", "ready for 5m < 2h".
// The zero Victim gives "none".
func (v Victim[T]) Explain() string {
	phrase := v.phrase
	if phrase == "" {
		phrase = v.Criterion
	}
	if phrase == "" {
		phrase = None
	}
	return strings.NewReplacer(victimHere, v.Values.Victim, survivorHere, v.Values.Survivor, detailHere, v.detail).Replace(phrase)
}

// victim makes a victim of the object found at index i. If any object survives, the first survivor
// is found at index survivor. c is the criterion on which the two differ.
func (r *ranking[T]) victim(i, survivor, c int) Victim[T] {
	place := r.found[i].place
	v := Victim[T]{Object: r.facts.Objects[place]}
	switch {
	case r.mustStay(place):
		v.Criterion, v.Values.Victim, v.phrase = MustStay, "must stay", victimHere
		return v
	case survivor == len(r.found):
		v.Criterion, v.phrase = All, "all go"
		return v
	case c == len(r.criteria):
		return byIdentity(v.Object, r.facts.Objects[r.found[survivor].place])
	}
	col := r.columns[c]
	v.Criterion, v.phrase = r.criteria[c].name, r.criteria[c].phrase
	if col.phrase != nil {
		v.phrase, v.detail = col.phrase(r.facts.Now, int(place), v.Object)
	}
	v.Values.Victim, v.Values.Survivor = col.value(r.facts.Now, int(place), v.Object), r.survivorValue(c, r.found[survivor].place)
	return v
}

// survivorValue returns the value of the survivor, and remembers it, because all victims ask for
// the same one.
func (r *ranking[T]) survivorValue(c int, i int32) string {
	if m := &r.survivor; m.value == "" || m.criterion != c || m.place != i {
		m.criterion, m.place, m.value = c, i, r.columns[c].value(r.facts.Now, int(i), r.facts.Objects[i])
	}
	return r.survivor.value
}

// byIdentity returns a victim with what decides if no criterion does.
func byIdentity[T metav1.Object](victim, survivor T) Victim[T] {
	v := Victim[T]{Object: victim, Criterion: None}
	if a, b := victim.GetUID(), survivor.GetUID(); a != b {
		v.Criterion, v.phrase = UID, "UID "+victimHere+" < "+survivorHere
		v.Values.Victim, v.Values.Survivor = string(a), string(b)
		return v
	}
	if a, b := fullName(victim), fullName(survivor); a != b {
		v.Criterion, v.phrase = Name, "name "+victimHere+" < "+survivorHere
		v.Values.Victim, v.Values.Survivor = a, b
	}
	return v
}

func fullName(obj metav1.Object) string { return obj.GetNamespace() + "/" + obj.GetName() }

const unknownTime = "unknown"

// timeText returns how long ago an instant was or, if now is zero, the instant.
func timeText(t, now time.Time) string {
	switch {
	case t.IsZero():
		return unknownTime
	case now.IsZero():
		return t.UTC().Format(time.RFC3339Nano)
	}
	age := now.Sub(t).Truncate(time.Second).String()
	for _, zero := range []string{"m0s", "h0m"} { // 2h0m0s is 2h
		if strings.HasSuffix(age, zero) {
			age = age[:len(age)-2]
		}
	}
	return age
}
