package sim

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

// A State is a description of a cluster and its controllers in which two that
// will behave alike read alike: UIDs and resource versions are replaced by their
// rank among those that occur, instants by how long ago they are, in whole
// seconds. It needs a cluster that is Counting, and leaves out a ConsistencyStore,
// the lag of events, and everything about pods that the simulation never sets.
type State struct {
	cluster *Cluster
	now     time.Time
	words   []word
}

// A word is a piece of text, or a number to be replaced by its rank.
type word struct {
	text   string
	number uint64
	kind   byte // 0: text
}

// NewState returns the State of a cluster without controllers.
func NewState(c *Cluster) *State {
	s := &State{cluster: c, now: c.Clock.Now()}
	each(s, c.sets.rows, s.set)
	each(s, c.pods.rows, s.pod)
	for _, t := range c.tasks {
		s.text("task ", int(t.do), t.name)
		if t.landing != nil {
			s.text(t.call.Verb, t.client)
			s.name(t.call.Name)
		}
		if t.pod != nil {
			s.UID(t.pod.UID)
		}
	}
	return s
}

// Add adds what a controller knows.
func (s *State) Add(c *Controller) {
	s.text("\ncontroller", c.passing != nil, c.Skew)
	stream(s, c.View.ReplicaSets, s.set)
	stream(s, c.View.Pods, s.pod)
	for _, w := range c.Worker.queue {
		s.text("\nwork", w.key.Name, max(w.at.Sub(s.now), 0), c.Worker.failures[w.key])
	}
	s.expected(c)
	s.remembered(c)
}

func stream[T object[T]](s *State, from *Stream[T], describe func(T)) {
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

// expected are the expectations that hold something back.
func (s *State) expected(c *Controller) {
	all := map[expectations.Key]expectations.Pending{}
	var keys []expectations.Key
	for key, p := range c.Expectations().All() {
		all[key] = p
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b expectations.Key) int { return cmp.Compare(a.UID, b.UID) })
	for _, key := range keys {
		p := all[key]
		s.text("\nexpects", p.Creations, p.Deletions, p.Creating, s.ago(p.Since))
		s.UID(key.UID)
		for _, uid := range p.Deleting {
			s.UID(uid)
		}
	}
}

// remembered is what else the Reconciler remembers of owners.
func (s *State) remembered(c *Controller) {
	m := memory(c.Reconciler)
	for _, key := range sortedBy(m, func(key reflect.Value) string { return key.FieldByName("Name").String() }) {
		s.text("\nremembers", key.FieldByName("Name").String())
		for _, owner := range m.MapIndex(key).Seq2() {
			s.fields(owner.Elem())
		}
	}
}

func sortedBy(m reflect.Value, name func(key reflect.Value) string) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int { return cmp.Compare(name(a), name(b)) })
}

// fields adds the fields of a struct, whatever they are: all but the UID and the
// generation, which are those of the owner, or else it will be forgotten, and the
// time of the last pass, which says when. Strings are versions, and maps are keyed
// by UID.
func (s *State) fields(v reflect.Value) {
	for i := range v.NumField() {
		field, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case name == "uid" || name == "generation" || name == "seen":
		case field.Type() == reflect.TypeFor[time.Time]():
			if at := *(*time.Time)(field.Addr().UnsafePointer()); !at.IsZero() {
				s.text(s.now.Sub(at))
			}
		case field.Kind() == reflect.Struct:
			s.fields(field)
		case field.Kind() == reflect.Map:
			for _, uid := range sortedBy(field, reflect.Value.String) {
				s.UID(types.UID(uid.String()))
				s.fields(field.MapIndex(uid).Elem())
			}
		case field.Kind() == reflect.Bool:
			s.text(field.Bool())
		case field.Kind() == reflect.String:
			s.version(field.String())
		default:
			s.text(field.Int())
		}
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
	status.TerminatingReplicas = nil
	terminating := int32(-1)
	if t := rs.Status.TerminatingReplicas; t != nil {
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
func (s *State) UID(uid types.UID) { s.add('u', string(uid)) }

func (s *State) version(v string) { s.add('v', v) }

// name adds the name of a pod: the number at its end stands for when it was made.
func (s *State) name(name string) {
	base := strings.TrimRight(name, "0123456789")
	s.text(base)
	s.add('n', name[len(base):])
}

func (s *State) add(kind byte, text string) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.text(text)
		return
	}
	s.words = append(s.words, word{number: n, kind: kind})
}

// Text adds anything else.
func (s *State) Text(parts ...any) { s.text(parts...) }

// String returns the whole description.
func (s *State) String() string {
	ranks := map[byte][]uint64{}
	for _, w := range s.words {
		if w.kind != 0 {
			ranks[w.kind] = append(ranks[w.kind], w.number)
		}
	}
	for kind := range ranks {
		slices.Sort(ranks[kind])
		ranks[kind] = slices.Compact(ranks[kind])
	}
	var b strings.Builder
	for _, w := range s.words {
		if w.kind == 0 {
			b.WriteString(strings.TrimSuffix(w.text, "\n"))
		} else {
			rank, _ := slices.BinarySearch(ranks[w.kind], w.number)
			b.WriteByte(w.kind)
			b.WriteString(strconv.Itoa(rank))
		}
		b.WriteByte(' ')
	}
	return b.String()
}
