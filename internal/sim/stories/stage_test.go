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
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/status"
)

type podController = replicastest.Controller[*appsv1.ReplicaSet, *corev1.Pod]

type podPass = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]

const namespace = "default"

// A stage runs one story, on a cluster of three nodes with a controller.
type stage struct {
	*replicastest.PodCluster
	ctx        context.Context
	start      time.Time
	world      *replicastest.World
	controller *podController // nil after the controller has died
	standby    *podController // receives events but makes no passes; may be nil
	former     *podController // an older controller that still works; may be nil
	remember   bool           // controllers remember their writes
	fault      fault
	backup     func()
	views      []*replicastest.View[*appsv1.ReplicaSet, *corev1.Pod] // the views of all controllers, including former ones

	log     []happening
	calls   map[string]int       // the number of calls since the last count, by verb
	names   map[types.UID]string // the printed names of all pods and ReplicaSets, including deleted ones
	numbers map[string]string    // the printed names of pods, by the names that controllers chose
	chosen  map[string]int       // the number of chosen names, by prefix

	// These fields describe the current pass.
	creations []creation
	made      string   // the pod that the current call created
	claims    []string // failed patches, and failed calls before the first creation or deletion
	refused   []string // other calls that failed
	victims   []replicas.Deletion[*corev1.Pod]
	events    int // how many of the events in the field Events were already read

	active, fewest, most int // active pods now, and the lowest and highest number since the last count
}

// A fault affects calls with one verb: after skip calls that succeed, the next left calls.
type fault struct {
	verb, failure string
	skip, left    int
	effect        bool          // the failed call takes effect
	late          time.Duration // if not 0, the failed call takes effect after this time
	crash         bool          // the controller dies just after the call
	now           bool          // the controller dies just after the current call
}

// A creation is a call to create a pod.
type creation struct {
	pod   string
	there bool // true if the call created the pod, even if the call failed
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

// number chooses the printed name of a pod that a controller has just named.
func (s *stage) number(name string) {
	if _, known := s.numbers[name]; known || len(name) <= suffix {
		return
	}
	// A number in the order of the calls takes the place of the five random letters, because people read these stories.
	prefix := name[:len(name)-suffix]
	s.chosen[prefix]++
	s.numbers[name] = prefix + strconv.Itoa(s.chosen[prefix])
}

// suffix is the number of random letters in a name.
const suffix = 5

// called returns the printed name of a pod.
func (s *stage) called(name string) string { return cmp.Or(s.numbers[name], name) }

// numbered replaces all names of pods in a text with their printed names.
func (s *stage) numbered(text string) string {
	var pairs []string
	for name, number := range s.numbers {
		pairs = append(pairs, name, number)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// named returns the real name for a printed name.
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

// active returns 1 for an active pod, and 0 for anything else.
func active(obj metav1.Object) int {
	if p, ok := obj.(*corev1.Pod); ok && p != nil && status.IsPodActive(p) {
		return 1
	}
	return 0
}

// step runs the lines of a step, and returns its happenings and the state at its end. If a line is wrong, at is its
// index.
func (s *stage) step(lines []string) (text string, at int, err error) {
	s.log = nil
	for i, line := range lines {
		if err := s.do(line); err != nil {
			return "", i, err
		}
	}
	return s.told() + s.state(), 0, nil
}

// restart replaces the controller with a new one that remembers nothing.
func (s *stage) restart() {
	s.stop()
	s.controller = s.newController()
	s.show()
}

func (s *stage) stop() {
	if s.controller != nil {
		s.controller.View.Stop()
	}
	s.controller = nil
	s.forgetPass()
	s.show()
}

func (s *stage) forgetPass() { s.creations, s.claims, s.refused, s.victims = nil, nil, nil, nil }

// show updates the parts of the world after a controller has come or gone.
func (s *stage) show() {
	s.world.Parts = []replicastest.Part{s.PodCluster}
	if s.controller != nil {
		s.world.Parts = append(s.world.Parts, s.controller)
	}
	if s.standby != nil {
		// It follows the watches, but makes no pass.
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

// mortal calls the function, and reports whether the controller died in it. One that died leaves the stage.
func (s *stage) mortal(do func()) (died bool) {
	if died = replicastest.Crashes(do); died {
		s.say(insideOf(s.controller).Passing.Owner.Name, s.telling(s.controller, podPass{})+"the controller dies")
		s.stop()
	}
	return died
}

// before returns the fault for a call that is about to be sent.
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
		// The call takes effect. The controller dies when it would get the answer, in done.
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

// done records the answer to a call.
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
		// It is an adoption or a release, or a call before the pass creates or deletes.
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

// passed adds a pass to the output of the step, unless it did nothing and requests no further pass.
func (s *stage) passed(c *podController, result podPass) {
	rs, err := result.Owner, result.Err
	text := s.telling(c, result)
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
		// The output contains this time already; see expected.
		back = 0
	}
	if text+warnings != "" || back > 0 {
		who := rs.Name
		if s.former != nil {
			who += map[bool]string{true: " (old)", false: " (new)"}[c == s.former]
		}
		s.tell(happening{who: who, what: text, warnings: warnings, back: back})
	}
}

// telling formats the actions of a pass.
func (s *stage) telling(c *podController, result podPass) string {
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
	say("waits for the adoption of", podsOf(result.Gates, controller.AdoptionUndecided))
	say("sets aside", podsOf(result.Gates, controller.AdoptionRefused))
	say("releases", result.Released)
	if len(s.creations) > 0 {
		fmt.Fprintf(&b, "creates %s; ", s.batches(result))
	}
	switch {
	case knowsNewer(c, result):
		b.WriteString("knows of a newer owner than its cache; ")
	case len(s.victims) > 0:
		fmt.Fprintf(&b, "deletes %s; ", s.choices(s.victims))
	}
	for _, call := range s.refused {
		fmt.Fprintf(&b, "%s; ", call)
	}
	if slices.ContainsFunc(result.Calls, func(c controller.Call) bool { return c.Verb == "List" }) {
		b.WriteString("lists its pods live; ")
	}
	return b.String()
}

// podsOf returns a pod for each gate with one reason. These pods have only a name.
func podsOf(gates []controller.Gate, reason controller.GateReason) (pods []*corev1.Pod) {
	for _, g := range gates {
		if g.Reason == reason {
			pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: g.Object}})
		}
	}
	return pods
}

// knowsNewer reports whether a pass waited for a newer owner than the cached one, or went on with that from the server.
func knowsNewer(c *podController, result podPass) bool {
	cached, is := c.View.OwnerWatch.Get(result.Name.Namespace, result.Name.Name)
	return is && resourceversion.Older(cached.ResourceVersion, result.Owner.ResourceVersion) ||
		slices.ContainsFunc(result.Gates, func(g controller.Gate) bool {
			return g.Reason == controller.OwnerStale || g.Reason == controller.OwnerGone
		})
}

// waiting explains why a pass did nothing.
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

// warnings returns the texts of the warning events that were not printed yet.
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

// messages formats errors in one line, without the part of each that names the reporter.
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
