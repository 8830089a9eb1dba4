// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A meddler is a user who acts once in the middle of a pass, before a call is sent, or between its effect and its
// answer.
type meddler struct {
	verb  string                                     // the verb of the call; "" means any verb
	after bool                                       // the user acts after the call has taken effect
	skip  int                                        // number of calls with this verb to ignore first
	do    func(r *run, call replicastest.Call) error // nil means that no user acts
}

func meddlers(op Op) meddler {
	deeds := []func(r *run, call replicastest.Call) error{
		func(r *run, call replicastest.Call) error { return r.touch(call.Name) },
		func(r *run, call replicastest.Call) error { return r.touchAndEnd(call.Name, op.N) },
		func(r *run, _ replicastest.Call) error { return r.deletePod(op.N, *metav1.NewDeleteOptions(0)) },
		func(r *run, call replicastest.Call) error { return r.disown(call.Name) },
		func(r *run, _ replicastest.Call) error { return r.editOwner("web", wanting(op.N%7)) },
		func(r *run, _ replicastest.Call) error { return r.replaceOwner(op) },
		func(r *run, _ replicastest.Call) error { return r.editPod(op.N, relabel(op.N)) },
		func(r *run, call replicastest.Call) error { return r.give(call.Name) },
		func(r *run, call replicastest.Call) error { return r.replaceNamed(call.Name) },
		func(r *run, call replicastest.Call) error { return r.end(call.Name) },
		func(r *run, _ replicastest.Call) error {
			return r.DeleteOwner(r.ctx, r.shape.owners(), "web", metav1.DeletePropagationBackground)
		},
		func(r *run, call replicastest.Call) error { return r.take(call.NamespacedName) },
	}
	verbs := []string{"", "create", "delete", "list", "patch", "get", "delete"}
	return meddler{verb: verbs[op.N%len(verbs)], after: op.For/time.Millisecond%2 == 0, skip: op.N / len(verbs), do: deeds[op.M%len(deeds)]}
}

// meddle lets the meddler act if it waits for this call.
func (r *run) meddle(call replicastest.Call, after bool) {
	m := &r.meddler
	if m.do == nil || m.after != after || m.verb != "" && m.verb != call.Verb {
		return
	}
	if m.skip > 0 {
		m.skip--
		return
	}
	do := m.do
	r.meddler = meddler{}
	_ = do(r, call)
	r.report.Faults["meddled"]++
	if after {
		// The events of what the user did overtake the answer to the call.
		r.quick = max(r.quick, 1)
	}
}

// quicken delivers all pending events to a controller before the answer to a call arrives.
func (r *run) quicken(c *podController) {
	if r.quick == 0 {
		return
	}
	r.quick--
	deliver(c)
}

// surprise delivers all pending events to a controller just after a pass has listed the pods in the cache.
func (r *run) surprise(c *podController) {
	if r.sudden == 0 || inside.Of[inside.Stream](c.View.ChildWatch).Pending() == 0 {
		return
	}
	r.sudden--
	deliver(c)
}

// deliver delivers all pending events, except those of watches that hang.
func deliver(c *podController) {
	for inside.Of[inside.Stream](c.View.OwnerWatch).Pending() > 0 && !inside.Of[inside.Stream](c.View.OwnerWatch).Hung() {
		inside.Of[inside.Stream](c.View.OwnerWatch).Deliver()
	}
	for inside.Of[inside.Stream](c.View.ChildWatch).Pending() > 0 && !inside.Of[inside.Stream](c.View.ChildWatch).Hung() {
		inside.Of[inside.Stream](c.View.ChildWatch).Deliver()
	}
}

// named returns the pod with this name in any namespace, or nil.
func (r *run) named(name string) *corev1.Pod {
	for _, p := range r.Children("") {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// touch gives a pod a new resourceVersion.
func (r *run) touch(name string) error {
	p := r.named(name)
	if p == nil {
		return nil
	}
	_, err := r.EditChild(r.ctx, p.Namespace, p.Name, func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "example.com/touched", strconv.FormatUint(inside.Of[inside.Cluster](r.PodCluster).Version(), 10))
	})
	return err
}

// touchAndEnd changes the named pod, and then removes another one at once.
func (r *run) touchAndEnd(name string, n int) error {
	if err := r.touch(name); err != nil {
		return err
	}
	if r.pod(n).Name == name {
		n++
	}
	return r.deletePod(n, *metav1.NewDeleteOptions(0))
}

func (r *run) disown(name string) error {
	p := r.named(name)
	if p == nil {
		return nil
	}
	_, err := r.EditChild(r.ctx, p.Namespace, p.Name, disowned)
	return err
}

// end removes a pod at once.
func (r *run) end(name string) error {
	p := r.named(name)
	if p == nil {
		return nil
	}
	_, err := r.DeleteChild(r.ctx, p.Namespace, p.Name, *metav1.NewDeleteOptions(0))
	return err
}

// take creates a pod with this name and without an owner.
func (r *run) take(name types.NamespacedName) error {
	if name.Name == "" {
		return nil
	}
	return r.createPod(name.Namespace, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name.Name, Labels: map[string]string{"app": "debug"}}})
}

// reuse gives a new pod without an owner the name of a deleted pod that the controller's cache still contains.
func (r *run) reuse(n int) error {
	for _, p := range r.controller(n).View.ChildWatch.In("") {
		if r.named(p.Name) == nil {
			return r.take(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		}
	}
	return nil
}

// give transfers a pod to the owner db.
func (r *run) give(name string) error {
	p := r.named(name)
	rs, err := r.GetOwner(r.ctx, r.shape.owners(), "db")
	if p == nil || err != nil {
		return err
	}
	_, err = r.EditChild(r.ctx, p.Namespace, p.Name, func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	})
	return err
}

// replaceNamed replaces a pod with one of the same name that has no owner.
func (r *run) replaceNamed(name string) error {
	p := r.named(name)
	if p == nil {
		return nil
	}
	return r.replaceBy(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
}

// labelBack gives the last relabelled pod back to web.
func (r *run) labelBack() error {
	pod := r.relabelled
	_, err := r.EditChild(r.ctx, pod.Namespace, pod.Name, relabel(0))
	return err
}

// replaceOwner deletes the owner web, and at once creates another one with the same name.
func (r *run) replaceOwner(op Op) error {
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan}
	if err := r.DeleteOwner(r.ctx, r.shape.owners(), "web", policies[op.M%len(policies)]); err != nil {
		return err
	}
	return r.createOwner("web", int32(op.N%6))
}

// A restless annotates both owners at regular intervals, as some agents do.
type restless struct {
	*run
	every time.Duration
	next  time.Time
	n     int
}

func (o *restless) Due() (time.Time, bool) { return o.next, true }

func (o *restless) Step() {
	o.next = o.next.Add(o.every)
	o.n++
	for _, name := range []string{"web", "db"} {
		_ = o.editOwner(name, func(rs *appsv1.ReplicaSet) {
			metav1.SetMetaDataAnnotation(&rs.ObjectMeta, "example.com/seen", strconv.Itoa(o.n))
		})
	}
}

// stirOwners makes the owners change every n seconds, or no longer if n is 0.
func (r *run) stirOwners(n int) {
	r.restless = nil
	if every := time.Duration(n) * time.Second; n > 0 {
		r.restless = &restless{run: r, every: every, next: r.Clock.Now().Add(every)}
	}
	r.show()
}
