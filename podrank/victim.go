package podrank

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Victim is a pod to delete, and what decided between it and the first
// survivor, which is the pod that would have been next.
type Victim struct {
	// Pod is the pod that was passed in, not a copy.
	Pod *corev1.Pod

	// Criterion is the first criterion on which the two pods differ; All if no
	// pod survives.
	Criterion Criterion

	// Values are the two pods' values for the criterion, both empty for All:
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
	// Times are ages in whole seconds, as time.ParseDuration reads them, and
	// negative for an instant to come. If Select was given a zero now, they are
	// instants (RFC 3339). The zero instant is "unknown" in either case.
	Values struct{ Victim, Survivor string }
}

// Explain says in words why the victim goes before the first survivor: "not
// ready", "deletion cost -100 < 0", "3 replicas on node-4", "ready for 5m < 2h".
// The zero Victim gives "none".
func Explain(v Victim) string {
	victim, survivor := v.Values.Victim, v.Values.Survivor
	switch v.Criterion {
	case Unassigned, NotReady:
		return victim
	case Phase:
		return "phase " + victim + " < " + survivor
	case DeletionCost:
		return "deletion cost " + victim + " < " + survivor
	case Colocation:
		return count(victim, "replica") + " on " + nodeName(v.Pod)
	case ReadyTime:
		return explainTime("ready for ", "ready time ", victim, survivor)
	case Restarts:
		return count(victim, "restart") + " > " + survivor
	case SidecarRestarts:
		return count(victim, "sidecar restart") + " > " + survivor
	case CreationTime:
		return explainTime("age ", "creation time ", victim, survivor)
	case UID:
		return "UID " + victim + " < " + survivor
	case Name:
		return "name " + victim + " < " + survivor
	case All:
		return "all go"
	}
	return v.Criterion.String()
}

func explainTime(age, instant, victim, survivor string) string {
	switch {
	case victim == unknownTime:
		return instant + victim
	case strings.Contains(victim, "T"): // RFC 3339: now was zero
		return instant + victim + " > " + survivor
	}
	return age + victim + " < " + survivor
}

func count(n, of string) string {
	if n == "1" {
		return n + " " + of
	}
	return n + " " + of + "s"
}

func nodeName(p *corev1.Pod) string {
	if p == nil || p.Spec.NodeName == "" {
		return "no node"
	}
	return p.Spec.NodeName
}

// victims makes the first n places victims, and takes the next for the survivor.
func (r *ranking) victims(places []int32, n int) []Victim {
	if len(places) == 0 {
		return nil
	}
	victims := make([]Victim, min(n, len(places)))
	for i := range victims {
		victims[i].Pod, victims[i].Criterion = r.pods[places[i]], All
	}
	if len(places) > n {
		r.explain(victims, places)
	}
	return victims
}

// explain tells each victim, victims[i] being at places[i], what decided between
// it and the survivor, which is at the next place.
func (r *ranking) explain(victims []Victim, places []int32) {
	p, k := r.pods[places[len(victims)]], &r.keys[places[len(victims)]]
	w := words{now: r.now}
	w.text.Grow(8 * len(victims))
	var survivor [All]string // its values, made when first needed
	for i := range victims {
		v, key := &victims[i], &r.keys[places[i]]
		v.Criterion, _ = compare(v.Pod, p, key, k)
		if survivor[v.Criterion] == "" {
			survivor[v.Criterion] = w.value(v.Criterion, p, k)
		}
		v.Values.Victim, v.Values.Survivor = w.value(v.Criterion, v.Pod, key), survivor[v.Criterion]
	}
}

const unknownTime = "unknown"

// words writes values one behind the other into one text, of which each is a
// part: a string of its own for each would be an allocation for each.
type words struct {
	text strings.Builder
	now  time.Time
}

// value returns what the criterion looks at in the pod, whose key is k.
func (w *words) value(c Criterion, p *corev1.Pod, k *key) string {
	switch c {
	case Unassigned:
		if k.assigned() {
			return "assigned"
		}
		return "unassigned"
	case Phase:
		return cmp.Or(string(p.Status.Phase), "none")
	case NotReady:
		if k.ready() {
			return "ready"
		}
		return "not ready"
	case DeletionCost:
		return w.number(int(k.cost()))
	case Colocation:
		return w.number(int(k.rank))
	case ReadyTime:
		return w.time(readyTime(p))
	case Restarts:
		return w.number(int(k.restarts))
	case SidecarRestarts:
		return w.number(int(k.sidecars))
	case CreationTime:
		return w.time(p.CreationTimestamp.Time)
	case UID:
		return string(p.UID)
	case Name:
		return p.Namespace + "/" + p.Name
	}
	return ""
}

func (w *words) number(n int) string {
	var digits [20]byte
	return w.add(strconv.AppendInt(digits[:0], int64(n), 10))
}

func (w *words) time(t time.Time) string {
	var text [40]byte
	switch {
	case t.IsZero():
		return unknownTime
	case w.now.IsZero():
		return w.add(t.UTC().AppendFormat(text[:0], time.RFC3339Nano))
	}
	age := append(text[:0], w.now.Sub(t).Truncate(time.Second).String()...)
	for _, zero := range []string{"m0s", "h0m"} { // 2h0m0s is 2h
		if bytes.HasSuffix(age, []byte(zero)) {
			age = age[:len(age)-2]
		}
	}
	return w.add(age)
}

// add appends a value to the text and returns that part of it.
func (w *words) add(value []byte) string {
	start := w.text.Len()
	w.text.Write(value)
	return w.text.String()[start:]
}
