// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/status"
)

type podController = replicastest.Controller[*appsv1.ReplicaSet, *corev1.Pod]

type podPass = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]

const namespace = "default"

// A stage is where one story plays: a cluster of three nodes and a controller.
type stage struct {
	*replicastest.PodCluster
	ctx        context.Context
	start      time.Time
	world      *replicastest.World
	controller *podController // nil: it died
	standby    *podController // sees what happens and does nothing
	former     *podController // works side by side with the controller
	remember   bool           // controllers remember their writes
	fault      fault
	backup     func()
	views      []*replicastest.View[*appsv1.ReplicaSet, *corev1.Pod] // of every controller that ever was

	log     []happening
	calls   map[string]int       // by verb, since the last count
	names   map[types.UID]string // of every pod and ReplicaSet that ever was
	numbers map[string]string    // the names that controllers chose, and what they are called here
	chosen  map[string]int       // how many they chose with that prefix

	// The present pass.
	creations []creation
	made      string   // the pod that the present call created
	claims    []string // patches, and what comes before them, that failed
	refused   []string // other calls that failed
	victims   []replicas.Deletion[*corev1.Pod]
	events    int // those that were told

	active, fewest, most int // active pods: now, and since they were told
}

// A fault is what goes wrong with calls: some are spared, then some are hit.
type fault struct {
	verb, failure string
	skip, left    int
	effect        bool          // the call has its effect
	late          time.Duration // it has it then
	crash         bool          // the controller dies
	now           bool          // with the present call
}

// A creation is a call to create a pod, and whether there is one then.
type creation struct {
	pod   string
	there bool
	err   error
}

func newStage() *stage {
	s := &stage{ctx: context.Background(), calls: map[string]int{}, names: map[types.UID]string{}, numbers: map[string]string{}, chosen: map[string]int{}}
	s.PodCluster = replicastest.NewPodCluster(replicastest.Options{Nodes: 3, Counting: true})
	s.Changed = s.changed
	s.start = s.Clock.Now()
	s.world = &replicastest.World{Clock: s.Clock}
	s.restart()
	return s
}

// number numbers the names that controllers choose, in the order of the calls: a
// story is easier to read without five random letters.
func (s *stage) number(name string) {
	if _, known := s.numbers[name]; known || len(name) <= suffix {
		return
	}
	prefix := name[:len(name)-suffix]
	s.chosen[prefix]++
	s.numbers[name] = prefix + strconv.Itoa(s.chosen[prefix])
}

// suffix is how many letters there are.
const suffix = 5

// called is what a pod is called here.
func (s *stage) called(name string) string { return cmp.Or(s.numbers[name], name) }

// numbered puts what pods are called in place of their names.
func (s *stage) numbered(text string) string {
	var pairs []string
	for name, number := range s.numbers {
		pairs = append(pairs, name, number)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// named is the name of what is called so here.
func (s *stage) named(called string) string {
	for name, number := range s.numbers {
		if number == called {
			return name
		}
	}
	return called
}

func (s *stage) changed(before, after metav1.Object) {
	s.active += active(after) - active(before)
	s.fewest, s.most = min(s.fewest, s.active), max(s.most, s.active)
	if before != nil {
		return
	}
	s.names[after.GetUID()] = s.called(after.GetName())
	if p, ok := after.(*corev1.Pod); ok {
		s.made = p.Name
	}
}

// active is 1 for an active pod.
func active(obj metav1.Object) int {
	if p, ok := obj.(*corev1.Pod); ok && p != nil && status.IsPodActive(p) {
		return 1
	}
	return 0
}

// step carries out the lines of a step and returns what happened and how things
// stand; at tells which line is wrong.
func (s *stage) step(lines []string) (text string, at int, err error) {
	s.log = nil
	for i, line := range lines {
		if err := s.do(line); err != nil {
			return "", i, err
		}
	}
	return s.told() + s.state(), 0, nil
}

// restart starts a controller that knows nothing in place of the old one.
func (s *stage) restart() {
	s.stop()
	s.controller = s.newController()
	s.show()
}

// stop ends the controller.
func (s *stage) stop() {
	if s.controller != nil {
		s.controller.View.Stop()
	}
	s.controller = nil
	s.forgetPass()
	s.show()
}

func (s *stage) forgetPass() { s.creations, s.claims, s.refused, s.victims = nil, nil, nil, nil }

// show puts those on the stage that are alive.
func (s *stage) show() {
	s.world.Parts = []replicastest.Part{s.PodCluster}
	if s.controller != nil {
		s.world.Parts = append(s.world.Parts, s.controller)
	}
	if s.standby != nil {
		s.world.Parts = append(s.world.Parts, s.standby.View)
	}
	if s.former != nil {
		s.world.Parts = append(s.world.Parts, s.former)
	}
}

func (s *stage) newController() *podController {
	c := s.NewController()
	c.Client.Fault, c.Client.Done = s.before, s.done
	c.Passed = func(result podPass) { s.passed(c, result) }
	hooks := insideOf(c)
	hooks.Scaling = func([]*corev1.Pod) { s.victims = hooks.Passing.Scale.Delete }
	c.RememberWrites = s.remember
	s.views = append(s.views, c.View)
	return c
}

// insideOf is what a controller hides.
func insideOf(c *podController) *inside.Controller[podPass, *corev1.Pod] {
	return inside.Of[*inside.Controller[podPass, *corev1.Pod]](c)
}

// run lets time pass.
func (s *stage) run(d time.Duration) error {
	end := s.Clock.Now().Add(d)
	for s.mortal(func() { s.world.Run(end.Sub(s.Clock.Now())) }) {
	}
	return nil
}

// mortal does something in which the controller may die, and reports whether it
// did.
func (s *stage) mortal(do func()) (died bool) {
	if died = replicastest.Crashes(do); died {
		s.say(insideOf(s.controller).Passing.Owner.Name, s.telling(podPass{})+"the controller dies")
		s.stop()
	}
	return died
}

// before says what goes wrong with a call.
func (s *stage) before(call replicastest.Call) replicastest.Fault {
	s.calls[call.Verb]++
	s.made = ""
	if call.Verb == "create" {
		s.number(call.Name)
	}
	f := &s.fault
	switch {
	case f.left == 0 || call.Verb != f.verb:
		return replicastest.Fault{}
	case f.skip > 0:
		f.skip--
		return replicastest.Fault{}
	case f.crash:
		f.now = true
		return replicastest.Fault{}
	}
	f.left--
	failure, _ := failureOf(f.failure)
	if f.late > 0 {
		return replicastest.Fault{Before: failure.Of(call), Late: f.late}
	}
	if f.effect {
		return replicastest.Fault{After: failure.Of(call)}
	}
	return replicastest.Fault{Before: failure.Of(call)}
}

// done remembers how calls were answered.
func (s *stage) done(call replicastest.Call, err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("%s %s is answered %s", call.Verb, s.called(call.Name), s.numbered(reason(err)))
	}
	switch {
	case call.Verb == "create":
		s.creations = append(s.creations, creation{s.called(call.Name), s.made != "", err})
	case text == "":
	case call.Verb == "patch" || len(s.creations)+len(s.victims) == 0:
		s.claims = append(s.claims, text)
	default:
		s.refused = append(s.refused, text)
	}
	if s.fault.now {
		s.fault = fault{}
		panic(replicastest.Crash{})
	}
}

func reason(err error) string {
	if r := apierrors.ReasonForError(err); r != "" {
		return string(r)
	}
	return err.Error()
}

// passed tells of a pass, if anything came of it.
func (s *stage) passed(c *podController, result podPass) {
	rs, err := result.Owner, result.Err
	text := s.telling(result)
	if text == "" && result.Waiting() {
		text = s.waiting(rs, result) + "; "
	}
	warnings := s.warnings()
	if err != nil && warnings == "" {
		text += "fails: " + s.numbered(messages(err)) + "; "
	}
	text = strings.TrimSuffix(text, "; ")
	s.forgetPass()
	back := result.RequeueAfter
	if known := ledgersOf(c)[expectations.KeyOf(rs)]; known != nil && back == known.Waits(insideOf(c).Now()) {
		back = 0 // told with what is expected
	}
	if text+warnings != "" || back > 0 {
		who := rs.Name
		if s.former != nil {
			who += map[bool]string{true: " (old)", false: " (new)"}[c == s.former]
		}
		s.tell(happening{who: who, what: text, warnings: warnings, back: back})
	}
}

// telling tells what a pass did.
func (s *stage) telling(result podPass) string {
	var b strings.Builder
	say := func(verb string, pods []*corev1.Pod) {
		if len(pods) > 0 {
			fmt.Fprintf(&b, "%s %s; ", verb, s.podNames(pods))
		}
	}
	for _, call := range s.claims {
		fmt.Fprintf(&b, "%s; ", call)
	}
	say("adopts", result.Adopted)
	say("waits for the adoption of", result.AdoptionPending)
	say("sets aside", result.AdoptionRejected)
	say("releases", result.Released)
	if len(s.creations) > 0 {
		fmt.Fprintf(&b, "creates %s; ", s.batches(result))
	}
	switch {
	case result.OwnerWasStale:
		b.WriteString("knows of a newer owner than its cache; ")
	case len(s.victims) > 0:
		fmt.Fprintf(&b, "deletes %s; ", s.choices(s.victims))
	}
	for _, call := range s.refused {
		fmt.Fprintf(&b, "%s; ", call)
	}
	if result.LiveLists() > 0 {
		b.WriteString("lists its pods live; ")
	}
	return b.String()
}

// waiting tells why a pass did nothing.
func (s *stage) waiting(rs *appsv1.ReplicaSet, result podPass) string {
	switch expected := s.expected(rs.UID); {
	case !result.Observed:
		return "waits for its cache to show what it wrote"
	case expected != "":
		return "waits: it expects " + expected
	case rs.DeletionTimestamp != nil:
		return "leaves its pods alone, as it is being deleted"
	}
	if len(result.Active) > int(*rs.Spec.Replicas) {
		return "holds deletions back"
	}
	return "holds creations back"
}

// warnings are the texts of the events that were sent and not yet told.
func (s *stage) warnings() string {
	var texts []string
	for _, e := range s.Events[s.events:] {
		if e.Type == corev1.EventTypeWarning {
			texts = append(texts, e.Reason+": "+s.numbered(e.Message))
		}
	}
	s.events = len(s.Events)
	return strings.Join(slices.Compact(texts), "\n")
}

// messages are errors, each without the name of who reports it.
func messages(err error) string {
	var texts []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if _, text, found := strings.Cut(line, `": `); found {
			line = text
		}
		texts = append(texts, line)
	}
	return strings.Join(texts, ", ")
}
