// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package corners_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/internal/sim/invariant"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

type podController = replicastest.Controller[*appsv1.ReplicaSet, *corev1.Pod]

const (
	namespace = "default"
	lag       = 150 * time.Millisecond
	// relistAfter is the time from the loss of an event to the next list.
	relistAfter = 20 * time.Second
	// hungFor is how long a watch hangs. During this time, expectations expire.
	hungFor = 12 * time.Minute
	// landsAfter is the delay after which a call that has timed out takes effect.
	landsAfter = 40 * time.Second
	// pausedFor is how long a controller stands still while another controller works.
	pausedFor = 5 * time.Second
	// calm is the time in which everything must settle after the last step. The error back-off is short after one
	// fault, but an expectation may have to expire.
	calm = 20 * time.Minute
	// mostSteps is the maximum number of steps in a play. Nothing else ends a play whose parts keep each other busy.
	mostSteps = 100_000
)

// A scenario is a list of user actions and incidents, such as the loss of a node, each at its own time.
type scenario struct {
	name  string
	nodes int // 0 means three
	steps []step
	// noHang leaves out the disturbances in which a watch hangs. If it hung before a step of this scenario, another
	// final state would be right.
	noHang bool
	// noReplay leaves out the disturbances in which a hung watch delivers its delayed events one by one. In this
	// scenario, they lead to a known failure: the controller deletes a pod that was missing from a live list, which
	// breaks the rule invariant.AnothersListed.
	noReplay bool
}

type step struct {
	at time.Duration
	do func(s *stage) error
}

// A disturbance is the single thing that goes wrong in a play.
type disturbance struct {
	kind
	n       int // the number of the disturbed call, event or pass, counted from 0
	back    int // how many events the stale view is behind
	failure failure.Failure
}

type kind string

const (
	undisturbed kind = "undisturbed"
	crashBefore kind = "crash before call"
	crashAfter  kind = "crash after call"
	missed      kind = "missed event"
	broken      kind = "watch broken at event"
	stale       kind = "stale pass"
	unanswered  kind = "lost answer of call"
	refused     kind = "refused call"
	resent      kind = "resent call"
	late        kind = "late call"
	taken       kind = "webhook at call"
	hung        kind = "watch hung at event"
	replayed    kind = "watch hung at event, then replayed"
	blind       kind = "lost answer of call, and a look that fails"
	paused      kind = "paused before call"
)

func (d disturbance) String() string {
	switch d.kind {
	case undisturbed:
		return string(d.kind)
	case stale:
		return fmt.Sprintf("%s %d, of %d events ago", d.kind, d.n, d.back)
	case unanswered, refused, resent, blind:
		return fmt.Sprintf("%s %d: %s", d.kind, d.n, d.failure)
	}
	return fmt.Sprintf("%s %d", d.kind, d.n)
}

// A trace records the calls, events and passes of a play.
type trace struct {
	calls  []replicastest.Call
	events int
	passes []pass
}

// A pass records when a pass began, for which owner, and how many events had arrived before the pass.
type pass struct {
	at     time.Time
	key    types.NamespacedName
	events int
}

// A stage is one play of a scenario. It is also a Part, which acts in the World in place of the controller.
type stage struct {
	*replicastest.PodCluster
	controller *podController
	checker    *invariant.Checker
	world      *replicastest.World
	disturbance
	seen     trace
	hit      bool
	at       pass // the pass that must use a stale view
	relistAt time.Time
	resume   func() // what relistAt brings instead of lists; may be nil
	isBlind  bool   // the next call fails if it is a get or a list
	steps    int
}

// play plays a scenario with one disturbance, and returns a description of the final state.
func play(sc scenario, d disturbance, learned trace) (*stage, string, error) {
	nodes := sc.nodes
	if nodes == 0 {
		nodes = 3
	}
	s := &stage{PodCluster: replicastest.NewPodCluster(replicastest.Options{Nodes: nodes, Seed: 1}), disturbance: d}
	if d.kind == stale {
		s.at = learned.passes[d.n]
	}
	s.checker = invariant.New(s.PodCluster)
	s.world = &replicastest.World{Clock: s.Clock, Parts: []replicastest.Part{s.PodCluster, s}}
	s.restart()
	start := s.Clock.Now()
	for _, step := range sc.steps {
		if err := s.runTo(start.Add(step.at)); err != nil {
			return s, "", err
		}
		if err := step.do(s); err != nil {
			return s, "", fmt.Errorf("at %v: %w", step.at, err)
		}
	}
	if err := s.runTo(s.Clock.Now().Add(calm)); err != nil {
		return s, "", err
	}
	version := inside.Of[inside.Cluster](s.PodCluster).Version()
	if err := s.runTo(s.Clock.Now().Add(calm)); err != nil {
		return s, "", err
	}
	if inside.Of[inside.Cluster](s.PodCluster).Version() != version {
		return s, "", fmt.Errorf("it does not stay as it is: %d writes more", inside.Of[inside.Cluster](s.PodCluster).Version()-version)
	}
	return s, s.state(), s.checker.Settled(namespace)
}

// runTo lets time pass until the given time.
func (s *stage) runTo(end time.Time) error {
	done := func() bool {
		s.steps++
		return s.steps > mostSteps || s.checker.Awake(namespace) != nil
	}
	for replicastest.Crashes(func() { s.world.RunUntil(end, done) }) {
		s.restart()
	}
	if s.steps > mostSteps {
		return fmt.Errorf("%d steps and no end", s.steps)
	}
	s.Clock.Advance(end.Sub(s.Clock.Now()))
	return s.checker.Awake(namespace)
}

// restart replaces the controller with a new one, which has empty caches and no memory.
func (s *stage) restart() {
	if s.controller != nil {
		s.controller.View.Stop()
		s.checker.Drop(s.controller)
	}
	c := s.NewController()
	s.controller = c
	s.checker.Watch(c)
	done := c.Client.Done
	c.Client.Fault = s.before
	c.Client.Done = func(call replicastest.Call, err error) {
		done(call, err)
		s.after()
	}
	c.View.ChildWatch.Lag, c.View.OwnerWatch.Lag = lag, lag/2
	sync := c.Worker.Sync
	c.Worker.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		s.seen.passes = append(s.seen.passes, pass{s.Clock.Now(), key, s.seen.events})
		return sync(ctx, key)
	}
}

// strikes reports whether the disturbance of this play must happen now, which it does once.
func (s *stage) strikes(k kind, n int) bool {
	if s.hit || s.kind != k || s.n != n {
		return false
	}
	s.hit = true
	return true
}

func (s *stage) before(call replicastest.Call) replicastest.Fault {
	n := len(s.seen.calls)
	s.seen.calls = append(s.seen.calls, call)
	switch {
	case s.strikes(crashBefore, n):
		panic(replicastest.Crash{})
	case s.isBlind:
		s.isBlind = false
		if call.Verb == "get" || call.Verb == "list" {
			return replicastest.Fault{Before: failure.InternalError.Of(call)}
		}
	case s.strikes(blind, n):
		s.isBlind = true
		return replicastest.Fault{After: s.failure.Of(call)}
	case s.strikes(unanswered, n):
		return replicastest.Fault{After: s.failure.Of(call)}
	case s.strikes(refused, n):
		return replicastest.Fault{Before: s.failure.Of(call)}
	case s.strikes(resent, n):
		// The resent request meets the effect of the first one.
		return replicastest.Fault{After: s.failure.Of(call), Resend: true}
	case s.strikes(late, n):
		return replicastest.Fault{Before: failure.Timeout.Of(call), Late: landsAfter}
	case s.strikes(taken, n):
		once := true
		s.Mutate = func(p *corev1.Pod) {
			if once {
				p.Labels["app"], once = "other", false
			}
		}
	case s.strikes(paused, n):
		s.pause()
	}
	return replicastest.Fault{}
}

// pause interrupts a pass while another controller works and ends.
func (s *stage) pause() {
	view := s.controller.View
	view.ChildWatch.Hang()
	view.OwnerWatch.Hang()
	other := s.NewController()
	s.checker.Watch(other)
	world := &replicastest.World{Clock: s.Clock, Parts: []replicastest.Part{s.PodCluster, other}}
	world.Run(pausedFor)
	other.View.Stop()
	s.checker.Drop(other)
	view.ChildWatch.Resume()
	view.OwnerWatch.Resume()
}

func (s *stage) after() {
	if s.strikes(crashAfter, len(s.seen.calls)-1) {
		panic(replicastest.Crash{})
	}
}

// holds reports whether events must wait for the pass on the stale view.
func (s *stage) holds() bool {
	return s.kind == stale && !s.hit && s.seen.events >= s.at.events-s.back
}

func (s *stage) Due() (time.Time, bool) {
	at, _, ok := s.next()
	return at, ok
}

func (s *stage) Step() {
	if _, do, ok := s.next(); ok {
		do()
	}
}

// next returns the next action and its time. An event comes before a pass that is due at the same time.
func (s *stage) next() (at time.Time, do func(), ok bool) {
	consider := func(due time.Time, is bool, what func()) {
		if is && (!ok || due.Before(at)) {
			at, do, ok = due, what, true
		}
	}
	consider(s.relistAt, !s.relistAt.IsZero(), s.relist)
	if s.holds() {
		consider(s.at.at, true, s.passOnStaleView)
	} else {
		event, arrives := s.controller.View.Due()
		consider(event, arrives, s.deliver)
	}
	work, waits := s.controller.Worker.Due()
	consider(work, waits && inside.Of[inside.View](s.controller.View).Synced(), s.controller.Worker.Step)
	return at, do, ok
}

func (s *stage) passOnStaleView() {
	s.hit = true
	if inside.Of[inside.View](s.controller.View).Synced() {
		s.controller.Worker.Wake(s.at.key, 0)
		s.controller.Worker.Step()
	}
}

func (s *stage) relist() {
	s.relistAt = time.Time{}
	if s.resume != nil {
		s.resume()
		return
	}
	s.controller.View.ChildWatch.Relist()
	s.controller.View.OwnerWatch.Relist()
}

// deliver delivers the next event, unless the disturbance hits it.
func (s *stage) deliver() {
	n := s.seen.events
	s.seen.events++
	view := s.controller.View
	cut, hang, resume := view.ChildWatch.Break, view.ChildWatch.Hang, view.ChildWatch.Resume
	stream := inside.Of[inside.Stream](view.ChildWatch)
	pods, ok := inside.Of[inside.Stream](view.ChildWatch).Due()
	if sets, is := inside.Of[inside.Stream](view.OwnerWatch).Due(); is && (!ok || !sets.After(pods)) {
		cut, hang, resume = view.OwnerWatch.Break, view.OwnerWatch.Hang, view.OwnerWatch.Resume
		stream = inside.Of[inside.Stream](view.OwnerWatch)
	}
	switch {
	case s.strikes(missed, n):
		stream.Lose()
	case s.strikes(broken, n):
		cut()
	case s.strikes(hung, n):
		hang()
		if n%2 == 0 {
			s.resume = resume
		}
		s.relistAt = s.Clock.Now().Add(hungFor)
		return
	case s.strikes(replayed, n):
		hang()
		s.resume = func() { stream.Replay(time.Second) }
		s.relistAt = s.Clock.Now().Add(hungFor)
		return
	default:
		view.Step()
		return
	}
	s.relistAt = s.Clock.Now().Add(relistAfter)
}

// state describes the cluster without its random parts, which are the names of pods and the times.
func (s *stage) state() string {
	var lines []string
	for _, rs := range s.Owners(namespace) {
		t := podtest.Terminating(rs.Status)
		*replicaset.Terminating(&rs.Status) = nil
		lines = append(lines, fmt.Sprintf("%s wants %d, generation %d, status %v, %d terminating, finalizers %v",
			rs.Name, *rs.Spec.Replicas, rs.Generation, rs.Status, t, rs.Finalizers))
	}
	for _, p := range s.Children(namespace) {
		lines = append(lines, s.describe(p))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (s *stage) describe(p *corev1.Pod) string {
	owner := "nobody"
	if ref := metav1.GetControllerOf(p); ref != nil {
		owner = ref.Name
		if rs, err := s.GetOwner(context.Background(), namespace, ref.Name); err != nil || rs.UID != ref.UID {
			owner += ", which is gone"
		}
	}
	return fmt.Sprintf("pod %v of %s, %s, deleted %t, finalizers %v, conditions %d",
		p.Labels, owner, p.Status.Phase, p.DeletionTimestamp != nil, p.Finalizers, len(p.Status.Conditions))
}

// The following methods do what users do.

func (s *stage) owner(name string, n, minReady int32) error {
	rs := replicastest.NewReplicaSet(namespace, name, n)
	rs.Spec.MinReadySeconds = minReady
	_, err := s.CreateOwner(context.Background(), rs)
	return err
}

func (s *stage) scale(name string, n int32) error {
	_, err := s.EditOwner(context.Background(), namespace, name, func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
	return err
}

func (s *stage) orphan(name string) error {
	_, err := s.CreateChild(context.Background(), namespace, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
	})
	return err
}

// oldest returns the name of the oldest pod that has the label app=web and is not being deleted.
func (s *stage) oldest() string {
	var first *corev1.Pod
	for _, p := range s.Children(namespace) {
		if p.DeletionTimestamp == nil && p.Labels["app"] == "web" &&
			(first == nil || p.CreationTimestamp.Time.Before(first.CreationTimestamp.Time)) {
			first = p
		}
	}
	if first == nil {
		return ""
	}
	return first.Name
}

func (s *stage) edit(pod string, change func(*corev1.Pod)) error {
	_, err := s.EditChild(context.Background(), namespace, pod, change)
	return err
}

func (s *stage) relabel(pod, app string) error {
	return s.edit(pod, func(p *corev1.Pod) { p.Labels["app"] = app })
}

// cheap lowers the deletion cost of a pod, so that the pod is deleted before other ready pods.
func cheap(p *corev1.Pod) {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, corev1.PodDeletionCost, "-100")
}

// replace deletes a pod, and creates another pod with the same name. The new pod has no owner.
func (s *stage) replace(name string) error {
	if _, err := s.DeleteChild(context.Background(), namespace, name, *metav1.NewDeleteOptions(0)); err != nil {
		return err
	}
	_, err := s.CreateChild(context.Background(), namespace, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "debug"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
	})
	return err
}
