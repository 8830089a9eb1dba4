// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// A State is a description of a cluster and its controllers, which is the same for clusters that will behave alike. So
// each UID and resourceVersion is replaced by its rank among the values in the description, each timestamp by its age
// in whole seconds, and each due time in a Worker's queue by the remaining delay. The cluster must be Counting. A State
// leaves out the ConsistencyStore of a controller, the lag of events, and all fields of pods that the simulation never
// sets.
type State struct {
	cluster *PodCluster
	now     time.Time
	words   []word
	owner   string // the name of the owner to which the remembered values belong
}

// A word is a part of a State, a text or a number. String writes a number as its rank among the numbers of its kind,
// for example UID or resourceVersion.
type word struct {
	text   string
	number uint64
	kind   string // "" means a text
}

// NewState returns the State of a cluster without controllers.
func NewState(c *PodCluster) *State {
	s := &State{cluster: c, now: c.Clock.Now()}
	each(s, c.owners.rows, s.set)
	each(s, c.children.rows, s.pod)
	for _, t := range c.tasks {
		s.text("task ", int(t.do), t.name)
		if t.landing != nil {
			s.text(t.call.Verb, t.client)
			s.name(t.call.Name)
		}
		if t.child != nil {
			s.UID((*t.child).UID)
		}
	}
	return s
}

// Add adds the state of a controller, with its caches and its memory.
func (s *State) Add(c *podController) {
	s.text("\ncontroller", c.inside.Passing != nil, c.Skew)
	stream(s, c.View.OwnerWatch, s.set)
	stream(s, c.View.ChildWatch, s.pod)
	for _, w := range c.Worker.queue {
		s.text("\nwork", w.key.Name, max(w.at.Sub(s.now), 0), c.Worker.failures[w.key])
	}
	s.remembered(c)
}

func stream[T Object[T]](s *State, from *Stream[T], describe func(T)) {
	s.text("\ncache", from.synced, from.broken, from.hung)
	each(s, from.cache, describe)
	for _, e := range from.queue {
		s.text("\nevent", int(e.is), e.listed)
		describe(e.object)
	}
}

func each[T any](s *State, objs []T, describe func(T)) {
	for _, obj := range objs {
		s.text("\n")
		describe(obj)
	}
}

// remembered adds everything that the controller remembers about its owners.
func (s *State) remembered(c *podController) {
	m := memory(c.controller)
	for _, key := range sortedBy(m, func(key reflect.Value) string { return key.FieldByName("Name").String() }) {
		s.owner = key.FieldByName("Name").String()
		s.text("\nremembers", s.owner)
		for _, owner := range m.MapIndex(key).Seq2() {
			s.value(owner.Elem())
		}
	}
}

func sortedBy(m reflect.Value, name func(key reflect.Value) string) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int { return cmp.Compare(name(a), name(b)) })
}

// isOwners reports whether a State leaves out a field of the controller's memory of an owner.
func isOwners(field string) bool {
	// The owner in the State has the same uid and generation. If they differ, the controller will drop what belongs to
	// the old value. The times of the last pass and of a ledger's latest Moment are no state, and outcome
	// and repeated only report a fault of Kind.Status.
	return field == "uid" || field == "generation" || field == "lastPass" || field == "moment" || field == "outcome" || field == "repeated"
}

// value adds a remembered value of any type. A string is a name if its field is called name or Name, and a
// version otherwise. The keys of maps are UIDs.
func (s *State) value(v reflect.Value) {
	switch t := v.Type(); {
	case isNothing(t):
	case t == reflect.TypeFor[*corev1.Pod]():
		p := *(**corev1.Pod)(unsafe.Pointer(v.UnsafeAddr()))
		if p == nil {
			s.text("none")
			return
		}
		s.pod(p)
	case t == reflect.TypeFor[time.Time]():
		if at := *(*time.Time)(unsafe.Pointer(v.UnsafeAddr())); !at.IsZero() {
			s.text(s.now.Sub(at))
		}
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			s.field(t.Field(i).Name, v.Field(i))
		}
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface:
		s.text(v.IsNil())
		if t.Kind() == reflect.Pointer && !v.IsNil() {
			s.value(v.Elem())
		}
	case t.Kind() == reflect.Slice:
		s.text(v.Len())
		for i := range v.Len() {
			s.value(v.Index(i))
		}
	case t.Kind() == reflect.Map:
		for _, uid := range sortedBy(v, reflect.Value.String) {
			s.UID(types.UID(uid.String()))
			of := reflect.New(t.Elem()).Elem()
			of.Set(v.MapIndex(uid))
			s.value(of)
		}
	case t.Kind() == reflect.Bool:
		s.text(v.Bool())
	case t.Kind() == reflect.String:
		s.version(v.String())
	case t == reflect.TypeFor[ledger.Moment]():
		s.moment(v.Uint())
	case v.CanUint():
		s.text(v.Uint())
	default:
		s.text(v.Int())
	}
}

// moment adds a Moment of a ledger. Only the order of moments of one owner matters.
func (s *State) moment(m uint64) {
	if m == 0 {
		s.text("never")
		return
	}
	s.words = append(s.words, word{number: m, kind: s.owner + " m"})
}

func (s *State) field(name string, v reflect.Value) {
	switch {
	case isOwners(name):
	case name == "name" || name == "Name":
		s.name(v.String())
	default:
		s.value(writable(v))
	}
}

func (s *State) meta(obj metav1.Object) {
	s.UID(obj.GetUID())
	s.version(obj.GetResourceVersion())
	s.text(obj.GetLabels()["app"], obj.GetFinalizers(), s.ago(obj.GetCreationTimestamp().Time))
	if d := obj.GetDeletionTimestamp(); d != nil {
		s.text("deleted", s.ago(d.Time))
	}
}

func (s *State) set(rs *appsv1.ReplicaSet) {
	s.text("set", rs.Name)
	s.meta(rs)
	status := rs.Status
	terminating := int32(-1)
	if t := *replicaset.Terminating(&status); t != nil {
		terminating = *t
	}
	s.text(*rs.Spec.Replicas, rs.Generation, status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas,
		status.AvailableReplicas, status.ObservedGeneration, terminating)
	for _, c := range status.Conditions {
		s.text(c.Type, c.Reason)
	}
}

func (s *State) pod(p *corev1.Pod) {
	s.text("pod")
	s.meta(p)
	s.name(p.Name)
	for _, ref := range p.OwnerReferences {
		s.UID(ref.UID)
	}
	s.text(p.Status.Phase, p.Spec.NodeName, p.Annotations[corev1.PodDeletionCost])
	for _, c := range p.Status.Conditions {
		s.text(c.Type, c.Status, s.ago(c.LastTransitionTime.Time))
	}
}

func (s *State) ago(t time.Time) int { return int(s.now.Sub(t) / time.Second) }

func (s *State) text(parts ...any) {
	s.words = append(s.words, word{text: fmt.Sprintln(parts...)})
}

// UID adds the UID of an object.
func (s *State) UID(uid types.UID) { s.add("u", string(uid)) }

func (s *State) version(v string) { s.add("v", v) }

// name adds the name of a pod. The suffix is added as a number, because the order of these numbers shows which
// name was generated first.
func (s *State) name(name string) {
	end := max(len(name)-suffixLength, 0)
	number := uint64(0)
	for _, letter := range name[end:] {
		number = number*letters + uint64(strings.IndexRune(alphabet, letter)+1)
	}
	s.text(name[:end])
	s.add("n", strconv.FormatUint(number, 10))
}

func (s *State) add(kind, text string) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.text(text)
		return
	}
	s.words = append(s.words, word{number: n, kind: kind})
}

// Text adds the given values as text.
func (s *State) Text(parts ...any) { s.text(parts...) }

// String returns the whole description.
func (s *State) String() string {
	ranks := map[string][]uint64{}
	for _, w := range s.words {
		if w.kind != "" {
			ranks[w.kind] = append(ranks[w.kind], w.number)
		}
	}
	for kind := range ranks {
		slices.Sort(ranks[kind])
		ranks[kind] = slices.Compact(ranks[kind])
	}
	var b strings.Builder
	for _, w := range s.words {
		if w.kind == "" {
			b.WriteString(strings.TrimSuffix(w.text, "\n"))
		} else {
			rank, _ := slices.BinarySearch(ranks[w.kind], w.number)
			b.WriteString(w.kind)
			b.WriteString(strconv.Itoa(rank))
		}
		b.WriteByte(' ')
	}
	return b.String()
}
