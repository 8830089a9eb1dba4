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
	"github.com/replicakit/replicakit/internal/sim/invariant"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A model describes the initial state of a small cluster, and limits how many faults and changes can happen.
type model struct {
	Replicas int  // how many pods the ReplicaSet web wants at the start
	Orphans  int  // how many pods without an owner exist at the start
	Sibling  bool // whether there is a second ReplicaSet, which wants one pod
	Kubelet  bool // whether pods get a node, become ready, and need time to stop
	Most     int  // the highest number that users scale to; 0 means that users do not scale

	Faults  int // how many faults can happen, such as refused calls, lost answers, crashes and broken watches
	Changes int // how often users can scale the ReplicaSet web, or relabel, delete or replace a pod
	Jumps   int // how often the clock can jump ahead while another action is possible
	// Restores is how often a backup of the initial state can be restored. Pauses is how often the controller
	// can stand still for a minute before a call, while the cluster continues.
	Restores, Pauses int
}

// A report is the result of explore.
type report struct {
	States int // how many different states were visited
	Edges  int // how many steps from one state to another were taken
	Ends   int // how many states have no further system action
	Depth  int // the length of the longest path that has led to a new state
	Err    error
	Path   []string // the actions that lead to Err
}

// explore visits every state that a small simulated cluster can reach, by every order of events, passes, crashes and
// user actions. For each call, it tries every result, and every number of events that can arrive before the call. Of
// states that will behave alike, only one is visited.
//
// The invariants must hold in every state. If nothing more goes wrong, every path must lead to the wanted state and end
// there, which also means that no path returns to one of its own states and that an additional pass changes nothing in
// a final state. A state is final if no system action is possible. The report has the first error.
//
// The model limits the numbers of pods, faults, user actions, restores and pauses, and of jumps of the clock while
// another action is possible. The constant early limits the events in the middle of one pass. The simulation is simpler
// than a real cluster in three ways: the cluster's own actions happen in one fixed order, ages are counted in whole
// seconds, and a call takes no time.
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
	open   color = 1 + iota // the state is on the current path
	closed                  // all states that can follow this state were visited
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

// visit follows every action that is possible in a state.
func (s *search) visit(w *world, d digest) {
	s.colors[d] = open
	s.report.Depth = max(s.report.Depth, len(s.path))
	system := w.systemActions()
	if len(system) == 0 {
		s.report.Ends++
		s.end(w)
	}
	for _, a := range append(system, w.otherActions()...) {
		s.follow(w, a)
	}
	s.colors[d] = closed
}

// follow runs an action several times, once for each combination of choices inside it.
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
		// A path that returns to one of its own states never ends.
		s.fail(fmt.Errorf("it goes round in a circle, back to\n%s", w.describe()))
	}
}

// end checks a final state.
func (s *search) end(w *world) {
	if err := w.checker.Settled(namespace); err != nil {
		s.fail(err)
		return
	}
	pass := func(w *world) *world {
		next := w.clone()
		for _, rs := range w.cluster.Owners(namespace) {
			next.controller.Worker.Wake(key(rs.Name), 0)
			next.controller.Worker.Step()
		}
		return next
	}
	// The first additional pass may notice that the cache shows the controller's own status write.
	noticed := pass(w)
	if again := pass(noticed); s.digest(again) != s.digest(noticed) || replicastest.NewState(again.cluster).String() != replicastest.NewState(w.cluster).String() {
		s.fail(fmt.Errorf("a pass for nothing does something:\n%s\n%s", w.describe(), again.describe()))
	}
}

// A world is one state that explore can visit.
type world struct {
	model      model
	cluster    *replicastest.PodCluster
	controller *podController
	checker    *invariant.Checker
	backup     *replicastest.PodCluster // the cluster in its initial state

	script  []int // script[i] is the index of the possibility that call i of w.choose selects
	points  []int // points[i] is the number of possibilities in call i of w.choose
	words   []string
	arrived int // how many events have arrived in the middle of the pass
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

// start starts a controller with empty caches and no memory in place of the old one.
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

// hook sets the hooks of the controller, of which w.before and w.listed choose what happens next.
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

// told describes the choices that were made inside an action.
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

// pod creates a pod without an owner.
func (w *world) pod(name, app string) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
	}
	if _, err := w.cluster.CreateChild(context.Background(), namespace, p); err != nil {
		panic(err)
	}
}
