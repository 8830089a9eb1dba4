// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// An act is a user's action, and the calls and passes that it may cause without faults. The numbers of creations,
// deletions and patches are exact. Those of reads, lists, status writes and passes are upper limits, and the last two
// depend on whether the caches report their resourceVersion.
type act struct {
	name                          string
	do                            func(r *run) error
	creations, deletions, patches int
	reads, lists                  int
	statuses, passes              [2]int // first the limit for caches that report their resourceVersion, then the limit for other caches
	taken                         int    // number of creations that fail because a name is taken
}

func acts() []act {
	return []act{
		{"two more pods are wanted", func(r *run) error { return r.grow(2) }, 2, 0, 0, 1, 2, [2]int{3, 4}, [2]int{12, 5}, 0},
		{"two orphans appear", (*run).orphansOneByOne, 0, 2, 2, 1, 0, [2]int{0, 3}, [2]int{9, 6}, 0},
		{"a pod is given another label", (*run).relabelOne, 1, 0, 1, 0, 0, [2]int{3, 4}, [2]int{6, 6}, 0},
		{"one more pod is wanted, with minReadySeconds", func(r *run) error { return r.grow(1, minReady(3)) }, 1, 0, 0, 0, 0, [2]int{3, 4}, [2]int{5, 5}, 0},
		{"a pod fails", (*run).failOne, 1, 0, 0, 1, 0, [2]int{3, 4}, [2]int{5, 5}, 0},
		{"two fewer pods are wanted", func(r *run) error { return r.grow(-2) }, 0, 2, 0, 1, 0, [2]int{2, 3}, [2]int{4, 4}, 0},
		{"a ready orphan appears", (*run).readyOrphan, 0, 1, 1, 1, 0, [2]int{2, 3}, [2]int{4, 4}, 0},
		{"a name is taken", (*run).takenName, 1, 0, 0, 1, 0, [2]int{4, 6}, [2]int{11, 14}, 1},
	}
}

// fewReads is the maximum number of pods that a pass reads one by one. Instead of more, it lists them.
const fewReads = 3

// quiet performs all acts one after the other without faults, and checks the calls, passes and events of each.
func (r *run) quiet() error {
	if r.controllers[1] != nil {
		r.toggleSecond()
	}
	if r.createOwner("web", 3) == nil {
		if err := r.pass(calm); err != nil {
			return err
		}
	}
	looks := r.checker.Doubts()
	for _, act := range acts() {
		calls, passes, events, doubts := r.checker.Calls(), r.checker.Passes(), len(r.Events), r.checker.Doubts()
		if err := act.do(r); err != nil {
			return fmt.Errorf("chaos: %s: %w", act.name, err)
		}
		if err := r.pass(time.Hour); err != nil {
			return fmt.Errorf("chaos: %s: %w", act.name, err)
		}
		now := r.checker.Calls()
		maps.DeleteFunc(now, func(verb string, n int) bool {
			now[verb] = n - calls[verb]
			return now[verb] == 0
		})
		if doubts > 0 {
			// The controller first repeats a deletion that got no answer, and needs extra passes and status writes.
			act.statuses, act.passes = [2]int{act.statuses[0] + 3, act.statuses[1] + 3}, [2]int{act.passes[0] + 3, act.passes[1] + 3}
		}
		looks = act.looked(now, looks)
		if err := act.judge(r.shape, now, r.checker.Passes()-passes, r.Events[events:]); err != nil {
			return inexact{err}
		}
	}
	return nil
}

// looked leaves out the reads of pods whose deletion had no answer before the act, because the controller reads each of
// them once before it deletes others. The parameter looks is the number of those that it had not read yet, and the
// result how many are left.
func (a act) looked(calls map[string]int, looks int) (left int) {
	const get, list = "get Pod", "list Pod"
	if looks > fewReads && calls[list] > a.lists {
		// There are so many that the controller lists them instead.
		calls[list]--
		return 0
	}
	gets := max(min(calls[get]-a.taken, looks), 0)
	calls[get] -= gets
	return looks - gets
}

// judge returns an error if the calls, passes or events are not those that the act may cause.
func (a act) judge(s shape, calls map[string]int, passes int, events []replicastest.Event) error {
	of := 1
	if s.versions {
		of = 0
	}
	statuses, mostPasses := a.statuses[of], a.passes[of]
	if s.slow && s.ruled {
		// MaxDeletions is 1, so two deletions take two passes.
		statuses, mostPasses = statuses+3, mostPasses+2
		a.reads++
	}
	const create, remove, patch = "create Pod", "delete Pod", "patch Pod"
	most := map[string]int{"get Pod": a.taken, "list Pod": a.lists, "get ReplicaSet": a.reads, "status ReplicaSet": statuses}
	for verb, n := range map[string]int{create: a.creations + a.taken, remove: a.deletions, patch: a.patches} {
		if calls[verb] != n {
			return fmt.Errorf("chaos: %s: %d %q calls, want %d", a.name, calls[verb], verb, n)
		}
	}
	for verb, n := range most {
		if calls[verb] > n {
			return fmt.Errorf("chaos: %s: %d %q calls, want at most %d", a.name, calls[verb], verb, n)
		}
	}
	if passes > mostPasses {
		return fmt.Errorf("chaos: %s: %d passes, want at most %d", a.name, passes, mostPasses)
	}
	told := map[string]int{}
	for _, e := range events {
		told[e.Reason]++
	}
	want := map[string]int{controller.SuccessfulCreate: a.creations, controller.FailedCreate: a.taken, controller.SuccessfulDelete: a.deletions}
	maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(told, want) {
		return fmt.Errorf("chaos: %s: the events are %v, want %v", a.name, told, want)
	}
	return nil
}

// grow adds n to the replicas of the owner web, and makes the other changes in the same update.
func (r *run) grow(n int32, also ...func(*appsv1.ReplicaSet)) error {
	return r.editOwner("web", func(rs *appsv1.ReplicaSet) {
		*rs.Spec.Replicas += n
		for _, change := range also {
			change(rs)
		}
	})
}

// orphansOneByOne creates two orphans at the same time, whose events arrive 300 milliseconds apart.
func (r *run) orphansOneByOne() error {
	for range 2 {
		if err := r.createOrphan(); err != nil {
			return err
		}
	}
	if err := r.pass(lag + time.Millisecond); err != nil {
		return err
	}
	r.podStream(0).Replay(300 * time.Millisecond)
	return nil
}

// readyOrphan creates a pod without an owner, which gets the labels that web selects when it is ready.
func (r *run) readyOrphan() error {
	name := types.NamespacedName{Namespace: namespace, Name: "ready-orphan"}
	if err := r.take(name); err != nil {
		return err
	}
	if err := r.pass(time.Minute); err != nil {
		return err
	}
	rs, err := r.GetOwner(r.ctx, r.shape.owners(), "web")
	if err != nil {
		return err
	}
	_, err = r.EditChild(r.ctx, name.Namespace, name.Name, func(p *corev1.Pod) { p.Labels = maps.Clone(rs.Spec.Selector.MatchLabels) })
	return err
}

// takenName scales up web by one pod, whose name a user takes just before the controller creates it.
func (r *run) takenName() error {
	r.meddler = meddler{verb: "create", do: func(r *run, call replicastest.Call) error { return r.take(call.NamespacedName) }}
	return r.grow(1)
}

func (r *run) relabelOne() error { return r.editOne(relabel(3)) }

func (r *run) failOne() error { return r.editOne(finish) }

// editOne changes one running pod of web.
func (r *run) editOne(change func(*corev1.Pod)) error {
	for _, p := range r.Children("") {
		if ref := metav1.GetControllerOf(p); ref != nil && ref.Name == "web" && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed {
			_, err := r.EditChild(r.ctx, p.Namespace, p.Name, change)
			return err
		}
	}
	return nil
}
