// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Victim is an object to delete, with the reason why this object was chosen instead of the first
// survivor. The first survivor is the object that would be deleted next.
type Victim[T any] struct {
	// Object is the object that was passed in, not a copy.
	Object T

	// Criterion is the name of the first criterion in which the victim and the first survivor
	// differ, such as "not-ready". If Options.MustGo or Options.MustStay decided, Criterion is
	// MustGo or MustStay. If no criterion decided, Criterion is UID, Name or None. None means that
	// the two objects do not differ. If no object survives, Criterion is All.
	Criterion string

	// Values holds the values of the victim and the first survivor for the criterion. If Criterion
	// is All, both values are empty. Examples of values for Kubernetes' criteria are:
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
	// A time is shown as an age in whole seconds, in the format of time.ParseDuration. The age is
	// negative if the time is in the future. If Options.Now is zero, times are shown in RFC 3339
	// format. The zero time is shown as "unknown". The values of one call share memory, so clone those that you keep.
	Values struct{ Victim, Survivor string }

	phrase, detail string // the template for the result of Explain, and the detail to insert into the template
}

// Explain returns a short explanation of why the victim was chosen instead of the first survivor.
// Examples are "not ready", "deletion cost -100 < 0", "3 replicas on node-4" and
// "ready for 5m < 2h". For the zero Victim, Explain returns "none".
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

// victim returns the Victim for the object of r.found[i]. The first survivor, if there is one, is
// the object of r.found[survivor]. The argument c is the index of the first criterion that
// distinguishes the two objects.
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
	v.Values.Victim, v.Values.Survivor = r.value(c, place), r.survivorValue(c, r.found[survivor].place)
	return v
}

// survivorValue returns the survivor's value for the given criterion. The value is cached, because
// several victims usually need it.
func (r *ranking[T]) survivorValue(c int, i int32) string {
	if m := &r.survivor; m.value == "" || m.criterion != c || m.place != i {
		m.criterion, m.place, m.value = c, i, r.value(c, i)
	}
	return r.survivor.value
}

// typicalValue is the length of a typical value in Victim.Values, such as "1h23m45s".
const typicalValue = 8

// value returns the object's value for the given criterion. The values of all victims share the
// memory of r.values, so that they need only a few allocations.
func (r *ranking[T]) value(c int, i int32) string {
	r.text = r.columns[c].value(r.text[:0], r.facts.Now, int(i), r.facts.Objects[i])
	start := r.values.Len()
	r.values.Write(r.text)
	return r.values.String()[start:]
}

// byIdentity returns the Victim if no criterion distinguishes the two objects. It compares their
// UIDs, and then their names.
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

// appendTime appends the age of t, which is now minus t. If now is zero, appendTime appends the time t
// itself.
func appendTime(text []byte, t, now time.Time) []byte {
	switch {
	case t.IsZero():
		return append(text, unknownTime...)
	case now.IsZero():
		return t.UTC().AppendFormat(text, time.RFC3339Nano)
	}
	age := now.Sub(t).Truncate(time.Second).String()
	for _, zero := range []string{"m0s", "h0m"} { // shorten 2h0m0s to 2h
		if strings.HasSuffix(age, zero) {
			age = age[:len(age)-2]
		}
	}
	return append(text, age...)
}
