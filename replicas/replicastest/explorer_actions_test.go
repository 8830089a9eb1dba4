// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// An action is one step that can be taken in a state.
type action struct {
	name string
	do   func(w *world)
}

// systemActions returns the actions that need no user and no fault.
func (w *world) systemActions() (actions []action) {
	add := func(possible bool, name string, do func(w *world)) {
		if possible {
			actions = append(actions, action{name, do})
		}
	}
	view := w.controller.View
	add(view.ChildWatch.Pending() > 0 && !view.ChildWatch.Hung(), "pod event", func(w *world) { w.controller.View.ChildWatch.Deliver() })
	add(view.OwnerWatch.Pending() > 0, "owner event", func(w *world) { w.controller.View.OwnerWatch.Deliver() })
	_, acts := w.cluster.Due()
	add(acts, "cluster", func(w *world) { w.cluster.Act() })
	add(view.ChildWatch.Broken(), "list pods", func(w *world) { w.controller.View.ChildWatch.Relist() })
	add(view.ChildWatch.Hung(), "pod watch goes on", func(w *world) { w.controller.View.ChildWatch.Resume() })
	add(view.OwnerWatch.Broken(), "list owners", func(w *world) { w.controller.View.OwnerWatch.Relist() })
	due, waits := w.controller.Worker.Due()
	now := !due.After(w.cluster.Clock.Now())
	add(waits && now && view.Synced(), "pass", (*world).pass)
	// Time passes only if nothing else can happen.
	add(waits && !now && len(actions) == 0, "time passes", (*world).jump)
	return actions
}

// otherActions returns the faults, restores, jumps of the clock and user actions that the model still allows.
func (w *world) otherActions() (actions []action) {
	if w.model.Faults > 0 {
		actions = append(actions,
			action{"crash", func(w *world) { w.model.Faults--; w.start() }},
			action{"pod watch breaks", func(w *world) { w.model.Faults--; w.controller.View.ChildWatch.Break() }},
			action{"pod watch hangs", func(w *world) { w.model.Faults--; w.controller.View.ChildWatch.Hang() }},
			action{"owner watch breaks", func(w *world) { w.model.Faults--; w.controller.View.OwnerWatch.Break() }})
	}
	if w.model.Restores > 0 {
		actions = append(actions, action{"the backup is restored", func(w *world) {
			w.model.Restores--
			w.cluster.RestoreFrom(w.backup)
			w.checker.Restored()
			w.start() // the process ends, and a new one starts
		}})
	}
	if due, waits := w.controller.Worker.Due(); w.model.Jumps > 0 && waits && due.After(w.cluster.Clock.Now()) {
		actions = append(actions, action{"time jumps", func(w *world) { w.model.Jumps--; w.jump() }})
	}
	if w.model.Changes > 0 {
		actions = append(actions, w.userActions()...)
	}
	return actions
}

func (w *world) userActions() (actions []action) {
	user := func(name string, do func(w *world) error) {
		actions = append(actions, action{name, func(w *world) {
			w.model.Changes--
			if err := do(w); err != nil {
				panic(fmt.Sprintf("%s: %v", name, err))
			}
		}})
	}
	rs, err := w.cluster.GetOwner(context.Background(), namespace, "web")
	for n := range int32(w.model.Most + 1) {
		if err == nil && w.model.Most > 0 && n != *rs.Spec.Replicas {
			user(fmt.Sprintf("scale to %d", n), func(w *world) error { return w.scale(n) })
		}
	}
	for _, p := range w.cluster.Children(namespace) {
		if p.DeletionTimestamp != nil {
			continue
		}
		user("delete "+p.Name, func(w *world) error {
			_, err := w.cluster.DeleteChild(context.Background(), namespace, p.Name, metav1.DeleteOptions{})
			return err
		})
		user("replace "+p.Name, func(w *world) error { return w.replace(p.Name) })
		other := map[string]string{"web": "debug"}[p.Labels["app"]]
		if other == "" {
			other = "web"
		}
		user("label "+p.Name+" "+other, func(w *world) error {
			_, err := w.cluster.EditChild(context.Background(), namespace, p.Name, func(p *corev1.Pod) { p.Labels["app"] = other })
			return err
		})
	}
	return actions
}

// replace puts a pod without an owner in the place of a pod, under its name.
func (w *world) replace(name string) error {
	if _, err := w.cluster.DeleteChild(context.Background(), namespace, name, *metav1.NewDeleteOptions(0)); err != nil {
		return err
	}
	w.pod(name, "debug")
	return nil
}

func (w *world) scale(n int32) error {
	_, err := w.cluster.EditOwner(context.Background(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
	return err
}

// jump advances the clock to the time of the controller's next pass.
func (w *world) jump() {
	due, _ := w.controller.Worker.Due()
	w.cluster.Clock.Advance(due.Sub(w.cluster.Clock.Now()))
}

func (w *world) pass() {
	if replicastest.Crashes(w.controller.Worker.Step) {
		w.start()
	}
}

// These constants are the possibilities from which the method w.choose selects. Hooks call w.choose before each
// request, and after a pass has listed the pods in the cache.
const (
	listed      = "listed"
	answered    = "answered"
	event       = "pod event first"
	refused     = "refused"
	unanswered  = "answer lost"
	resent      = "sent again"
	late        = "takes effect late"
	paused      = "the controller stands still"
	taken       = "webhook takes it"
	crashed     = "crash"
	crashedThen = "crash afterwards"
)

// before runs at the start of each request, and chooses what happens to it.
func (w *world) before(call replicastest.Call) replicastest.Fault {
	for {
		switch w.choose(w.fates(call)) {
		case event:
			w.arrive()
			continue
		case paused:
			w.model.Pauses--
			w.standStill()
			continue
		case refused:
			w.model.Faults--
			return replicastest.Fault{Before: failure.InternalError.Of(call)}
		case unanswered:
			w.model.Faults--
			return replicastest.Fault{After: failure.Timeout.Of(call)}
		case resent:
			w.model.Faults--
			return replicastest.Fault{After: failure.TooManyRequests.Of(call), Resend: true}
		case late:
			w.model.Faults--
			return replicastest.Fault{Before: failure.Timeout.Of(call), Late: time.Minute}
		case taken:
			w.model.Faults--
			w.cluster.Mutate = func(p *corev1.Pod) { p.Labels["app"] = "other" }
		case crashed:
			w.model.Faults--
			panic(replicastest.Crash{})
		}
		return replicastest.Fault{}
	}
}

// standStill lets a minute pass in the middle of a pass. The cluster goes on, but the controller receives no event.
func (w *world) standStill() {
	end := w.cluster.Clock.Now().Add(time.Minute)
	for due, ok := w.cluster.Due(); ok && !due.After(end); due, ok = w.cluster.Due() {
		w.cluster.Clock.Advance(max(due.Sub(w.cluster.Clock.Now()), 0))
		w.cluster.Act()
	}
	w.cluster.Clock.Advance(end.Sub(w.cluster.Clock.Now()))
}

// listed runs after a pass has listed the pods in the cache. Events that it delivers come too late for this list.
func (w *world) listed() {
	for w.mayArrive() && w.choose([]string{listed, event}) == event {
		w.arrive()
	}
}

// early is the maximum number of events that arrive in the middle of one pass.
const early = 2

func (w *world) mayArrive() bool {
	return w.arrived < early && w.controller.View.ChildWatch.Pending() > 0 && !w.controller.View.ChildWatch.Hung()
}

func (w *world) arrive() {
	w.arrived++
	w.controller.View.ChildWatch.Deliver()
}

// after runs at the end of each call, where the process may have to crash.
func (w *world) after() {
	w.cluster.Mutate = nil
	if n := len(w.words); n > 0 && w.words[n-1] == crashedThen {
		w.model.Faults--
		panic(replicastest.Crash{})
	}
}

// fates returns everything that can happen to a call.
func (w *world) fates(call replicastest.Call) []string {
	fates := []string{answered}
	if w.mayArrive() {
		fates = append(fates, event)
	}
	if w.model.Pauses > 0 {
		fates = append(fates, paused)
	}
	if w.model.Faults > 0 {
		fates = append(fates, refused)
		if call.Verb != "get" {
			fates = append(fates, unanswered, resent, late, crashed, crashedThen)
		}
		if call.Verb == "create" {
			fates = append(fates, taken)
		}
	}
	return fates
}

// choose returns the possibility that the script selects, or the first one after the end of the script.
func (w *world) choose(from []string) string {
	choice, n := 0, len(w.points)
	if n < len(w.script) {
		choice = w.script[n]
	}
	w.points = append(w.points, len(from))
	w.words = append(w.words, from[choice])
	return from[choice]
}

// nextScript returns the script for the next run of the same action, or nil after the last one. The scripts count up
// like the digits of an odometer.
func (w *world) nextScript() []int {
	script := make([]int, len(w.points))
	copy(script, w.script)
	for i := len(script) - 1; i >= 0; i-- {
		if script[i]+1 < w.points[i] {
			script[i]++
			return script[:i+1]
		}
	}
	return nil
}
