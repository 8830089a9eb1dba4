// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/replicas/replicastest/internal/invariant"
)

// A model is what there is at first, and what may happen to it.
type model struct {
	Replicas int  // wanted at first
	Orphans  int  // that wait to be adopted
	Sibling  bool // another ReplicaSet, of one pod
	Kubelet  bool // pods become ready, and take their time to end
	Most     int  // replicas that users may ask for; 0: they do not scale

	Faults  int // calls refused, answers lost, crashes, watches broken
	Changes int // things that users do: scale, relabel, delete a pod
	Jumps   int // of the clock while something else could happen
	// Restores is how often a backup of the beginning replaces everything, and Pauses
	// how often the controller stands still for a minute before a call, while the
	// cluster goes on.
	Restores, Pauses int
}

// A report is what was found.
type report struct {
	States int // that differ
	Edges  int // ways from one to another
	Ends   int // states in which nothing more happens
	Depth  int // the longest way without a circle
	Err    error
	Path   []string // to the error
}

// explore visits every state that a small simulated cluster can get into, by every order in which things can happen:
// which event arrives next, when the controller makes a pass, what becomes of each of its calls and what arrives in
// between, where it crashes, what users do meanwhile. States that will behave
// alike are visited once.
//
// The invariants hold in every state. And from every state, once nothing goes
// wrong any more, every way on leads to the wanted state and ends there: no state
// from which nothing more happens is any other, none is left by a pass that
// nobody asked for, and there is no way round in a circle.
//
// What is bounded: the number of pods, of faults, of things that users do, of
// times that the clock jumps ahead while something else could happen, and of
// events that arrive in the middle of one pass. What is
// left out: the cluster's own actions come in one order, ages count in whole
// seconds, no call takes time.
func explore(m model) report {
	s := &search{model: m, colors: map[digest]color{}}
	first := newWorld(m)
	s.visit(first, s.digest(first))
	s.report.States = len(s.colors)
	return s.report
}

type digest [16]byte

type color uint8

const (
	open   color = 1 + iota // on the way that is being followed
	closed                  // everything behind it was visited
)

type search struct {
	model  model
	colors map[digest]color
	path   []string
	report report
}

func (s *search) digest(w *world) digest {
	sum := sha256.Sum256([]byte(w.describe()))
	return digest(sum[:16])
}

func (s *search) fail(err error) {
	if s.report.Err == nil {
		s.report.Err, s.report.Path = err, append([]string(nil), s.path...)
	}
}

// visit goes on from a state in every way.
func (s *search) visit(w *world, d digest) {
	s.colors[d] = open
	s.report.Depth = max(s.report.Depth, len(s.path))
	system := w.systemActions()
	if len(system) == 0 {
		s.report.Ends++
		s.end(w, d)
	}
	for _, a := range append(system, w.otherActions()...) {
		s.follow(w, a)
	}
	s.colors[d] = closed
}

// follow takes an action, with everything that may happen inside it.
func (s *search) follow(w *world, a action) {
	for script := []int(nil); s.report.Err == nil; {
		next := w.clone()
		next.script = script
		a.do(next)
		s.path = append(s.path, a.name+next.told())
		s.arrive(next)
		s.path = s.path[:len(s.path)-1]
		if script = next.nextScript(); script == nil {
			return
		}
	}
}

func (s *search) arrive(w *world) {
	s.report.Edges++
	if err := w.checker.Err(); err != nil {
		s.fail(err)
		return
	}
	d := s.digest(w)
	switch s.colors[d] {
	case 0:
		s.visit(w, d)
	case open:
		s.fail(fmt.Errorf("it goes round in a circle, back to\n%s", w.describe()))
	}
}

// end checks a state in which nothing more happens: it is the wanted one, and a
// pass that nobody asked for leaves it as it is.
func (s *search) end(w *world, d digest) {
	if err := w.checker.Settled(namespace); err != nil {
		s.fail(err)
		return
	}
	again := w.clone()
	for _, rs := range w.cluster.Owners(namespace) {
		again.controller.Worker.Wake(key(rs.Name), 0)
		again.controller.Worker.Step()
	}
	if s.digest(again) != d {
		s.fail(fmt.Errorf("a pass for nothing does something:\n%s\n%s", w.describe(), again.describe()))
	}
}

// A world is one state.
type world struct {
	model      model
	cluster    *replicastest.PodCluster
	controller *podController
	checker    *invariant.Checker
	backup     *replicastest.PodCluster // as the cluster was at first

	script  []int // what will happen at each point of the action
	points  []int // how many things could
	words   []string
	arrived int // events in the middle of the pass
}

func newWorld(m model) *world {
	w := &world{model: m}
	timing := replicastest.Timing{}
	if !m.Kubelet {
		timing.Schedule = -1
	}
	w.cluster = replicastest.NewPodCluster(replicastest.Options{Counting: true, Nodes: 1, Timing: timing})
	w.checker = invariant.New(w.cluster)
	w.owner("web", m.Replicas)
	if m.Sibling {
		w.owner("db", 1)
	}
	for i := range m.Orphans {
		w.pod(fmt.Sprintf("orphan-%d", i), "web")
	}
	w.backup = w.cluster.Clone()
	w.start()
	return w
}

// start starts a controller that knows nothing.
func (w *world) start() {
	if w.controller != nil {
		w.controller.View.Stop()
		w.checker.Drop(w.controller)
	}
	w.controller = w.cluster.NewController()
	w.checker.Watch(w.controller)
	w.hook()
}

func (w *world) clone() *world {
	c := &world{model: w.model, cluster: w.cluster.Clone(), backup: w.backup}
	c.controller = w.controller.Clone(c.cluster)
	c.checker = w.checker.Clone(c.cluster, c.controller)
	c.hook()
	return c
}

// hook lets every call be a point at which something may happen.
func (w *world) hook() {
	done := w.controller.Client.Done
	w.controller.Client.Fault = w.before
	inside.Of[*inside.Controller[podPass, *corev1.Pod]](w.controller).Listed = w.listed
	w.controller.Client.Done = func(call replicastest.Call, err error) {
		done(call, err)
		w.after()
	}
}

func (w *world) describe() string {
	s := replicastest.NewState(w.cluster)
	s.Text(w.model.Faults, w.model.Changes, w.model.Jumps, w.model.Restores, w.model.Pauses)
	s.Add(w.controller)
	w.checker.Describe(s.Text)
	return s.String()
}

// told are what happened inside an action.
func (w *world) told() string {
	if len(w.words) == 0 {
		return ""
	}
	return ": " + strings.Join(w.words, ", ")
}

func (w *world) owner(name string, n int) {
	rs := replicastest.NewReplicaSet(namespace, name, int32(n))
	if _, err := w.cluster.CreateOwner(context.Background(), rs); err != nil {
		panic(err)
	}
}

// pod makes a pod that nobody owns.
func (w *world) pod(name, app string) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
	}
	if _, err := w.cluster.CreateChild(context.Background(), namespace, p); err != nil {
		panic(err)
	}
}
