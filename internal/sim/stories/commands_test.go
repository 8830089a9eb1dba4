// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A command is one kind of line in a story. It simulates a user or an event in the cluster, or controls the story
// itself.
type command struct {
	// args lists the arguments of the command. N is a number, D is a duration, and a|b is a choice. VERB is the verb of
	// a call, and FAILURE is the name of a failure. Any other word is a name. Arguments in brackets are optional.
	args string
	do   func(s *stage, a args) error
}

func commands() map[string]command {
	return map[string]command{
		// These commands simulate users.
		"create":     {"SET replicas=N [app=LABEL] [min-ready=N]", (*stage).createSet},
		"scale":      {"SET N", (*stage).scale},
		"delete":     {"SET [policy=Background|Foreground|Orphan]", (*stage).deleteSet},
		"create-pod": {"POD app=LABEL", (*stage).createPod},
		"delete-pod": {"POD [grace=N]", (*stage).deletePod},
		"label":      {"POD app=LABEL", editPod(func(p *corev1.Pod, a args) { p.Labels["app"] = a["app"] })},
		"disown":     {"POD", editPod(func(p *corev1.Pod, _ args) { p.OwnerReferences = nil })},
		"cost":       {"POD N", editPod(setCost)},
		"finalizer":  {"POD on|off", editPod(setFinalizer)},

		// These commands simulate events on nodes.
		"ready":       {"POD yes|no", (*stage).setReady},
		"restarts":    {"POD N", editPod(setRestarts)},
		"finish-pod":  {"POD", editPod(func(p *corev1.Pod, _ args) { p.Status.Phase = corev1.PodFailed })},
		"lose-node":   {"NODE", func(s *stage, a args) error { s.LoseNode(a["NODE"]); return nil }},
		"remove-node": {"NODE", func(s *stage, a args) error { s.RemoveNode(a["NODE"]); return nil }},

		// These commands affect the API server and its answers.
		"quota":   {"N", func(s *stage, a args) error { s.SetQuota(namespace, a.n("N")); return nil }},
		"webhook": {"refuses|allows VERB", (*stage).setWebhook},
		"terminate-namespace": {"", func(s *stage, _ args) error {
			inside.Of[inside.Cluster](s.PodCluster).TerminateNamespace(namespace)
			return nil
		}},
		"refuse":      {"VERB FAILURE [times=N] [after=N]", (*stage).refuse},
		"lose-answer": {"VERB [times=N] [after=N] [as=FAILURE]", (*stage).loseAnswer},
		"land-late":   {"VERB D [times=N]", (*stage).landLate},
		"backup":      {"", func(s *stage, _ args) error { s.backup = inside.Of[inside.Cluster](s.PodCluster).Backup(); return nil }},
		"restore":     {"", func(s *stage, _ args) error { s.backup(); return nil }},

		// These commands affect a watch of a controller.
		"hold":    {"pods|sets [of=old|new]", onWatch(func(w watch, _ args) { w.lag(forever) })},
		"lag":     {"pods|sets D [of=old|new]", onWatch(func(w watch, a args) { w.lag(a.d()) })},
		"deliver": {"pods|sets [N] [of=old|new]", onWatch(deliver)},
		"follow":  {"pods|sets [of=old|new]", onWatch(follow)},
		"lose":    {"pods|sets [of=old|new]", onWatch(func(w watch, _ args) { w.Lose() })},
		"break":   {"pods|sets [of=old|new]", onWatch(func(w watch, _ args) { w.Break() })},
		"relist":  {"pods|sets [of=old|new]", onWatch(func(w watch, _ args) { w.Relist() })},

		// These commands affect controllers.
		"restart":         {"", func(s *stage, _ args) error { s.restart(); return nil }},
		"standby":         {"", (*stage).startStandby},
		"failover":        {"", (*stage).failOver},
		"join":            {"", (*stage).join},
		"leave":           {"", (*stage).leave},
		"crash":           {"VERB [after=N]", (*stage).crash},
		"skew":            {"D", func(s *stage, a args) error { s.controller.Skew = a.d(); return nil }},
		"remember-writes": {"", func(s *stage, _ args) error { s.remember, s.controller.RememberWrites = true, true; return nil }},

		// These commands control the story: "run" lets time pass, and "pass" makes one pass. "calls" prints the number
		// of calls since the previous "calls", and "range" the lowest and highest number of active pods since the
		// previous "range".
		"run":   {"D", func(s *stage, a args) error { return s.run(a.d()) }},
		"pass":  {"SET", (*stage).makePass},
		"calls": {"", (*stage).countCalls},
		"range": {"", (*stage).countActive},
	}
}

// args maps each word of a command's usage to the given argument.
type args map[string]string

func (a args) n(word string) int {
	n, _ := strconv.Atoi(a[word])
	return n
}

func (a args) d() time.Duration {
	d, _ := time.ParseDuration(a["D"])
	return d
}

// do runs one line of a step.
func (s *stage) do(line string) error {
	words := strings.Fields(line)
	name, given := words[0], words[1:]
	c, ok := commands()[name]
	if !ok {
		return fmt.Errorf("unknown command %q", name)
	}
	a, err := parse(c.args, given)
	a["POD"] = s.named(a["POD"])
	if err == nil {
		err = c.do(s, a)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; usage: %s", line, err, strings.TrimSpace(name+" "+c.args))
	}
	return nil
}

// parse checks the given arguments against the usage of a command, and returns them by the words of the usage.
func parse(usage string, given []string) (args, error) {
	a := args{}
	for word := range strings.FieldsSeq(usage) {
		required := strings.Trim(word, "[]") == word
		key, kind, named := strings.Cut(strings.Trim(word, "[]"), "=")
		i := slices.IndexFunc(given, func(g string) bool {
			before, _, isNamed := strings.Cut(g, "=")
			return isNamed == named && (!named || before == key)
		})
		switch {
		case i < 0 && required:
			return a, fmt.Errorf("%s is missing", word)
		case i < 0:
			continue
		case named:
			_, a[key], _ = strings.Cut(given[i], "=")
		default:
			a[key], kind = given[i], key
		}
		if err := check(kind, a[key]); err != nil {
			return a, err
		}
		given = slices.Delete(slices.Clone(given), i, i+1)
	}
	if len(given) > 0 {
		return a, fmt.Errorf("unexpected argument %q", given[0])
	}
	return a, nil
}

// check checks a value against its kind.
func check(kind, value string) (err error) {
	switch choices := strings.Split(kind, "|"); {
	case kind == "N":
		_, err = strconv.Atoi(value)
	case kind == "D":
		_, err = time.ParseDuration(value)
	case kind == "FAILURE":
		_, err = failureOf(value)
	case kind == "VERB":
		return check("create|patch|delete|update|get|list", value)
	case len(choices) > 1 && !slices.Contains(choices, value):
		err = fmt.Errorf("%q is none of %s", value, kind)
	}
	return err
}

func failureOf(name string) (failure.Failure, error) {
	for f := range failure.Failures {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("unknown failure %q", name)
}

func (s *stage) createSet(a args) error {
	rs := replicastest.NewReplicaSet(namespace, a["SET"], int32(a.n("replicas")))
	rs.Spec.MinReadySeconds = int32(a.n("min-ready"))
	if app := a["app"]; app != "" {
		rs.Spec.Selector.MatchLabels["app"], rs.Spec.Template.Labels["app"] = app, app
	}
	_, err := s.CreateOwner(s.ctx, rs)
	return err
}

func (s *stage) scale(a args) error {
	n := int32(a.n("N"))
	_, err := s.EditOwner(s.ctx, namespace, a["SET"], func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
	return err
}

func (s *stage) deleteSet(a args) error {
	return s.DeleteOwner(s.ctx, namespace, a["SET"], metav1.DeletionPropagation(a["policy"]))
}

func (s *stage) createPod(a args) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: a["POD"], Labels: map[string]string{"app": a["app"]}}}
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	_, err := s.CreateChild(s.ctx, namespace, p)
	return err
}

func (s *stage) deletePod(a args) error {
	opts := metav1.DeleteOptions{}
	if _, given := a["grace"]; given {
		opts = *metav1.NewDeleteOptions(int64(a.n("grace")))
	}
	_, err := s.DeleteChild(s.ctx, namespace, a["POD"], opts)
	return err
}

// editPod returns a command that changes the named pod.
func editPod(change func(*corev1.Pod, args)) func(*stage, args) error {
	return func(s *stage, a args) error {
		_, err := s.EditChild(s.ctx, namespace, a["POD"], func(p *corev1.Pod) { change(p, a) })
		return err
	}
}

func setCost(p *corev1.Pod, a args) {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, corev1.PodDeletionCost, a["N"])
}

func setRestarts(p *corev1.Pod, a args) {
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].RestartCount = int32(a.n("N"))
	}
}

func setFinalizer(p *corev1.Pod, a args) {
	p.Finalizers = nil
	if a["on|off"] == "on" {
		p.Finalizers = []string{"example.com/hold"}
	}
}

func (s *stage) setReady(a args) error {
	value := map[string]corev1.ConditionStatus{"yes": corev1.ConditionTrue, "no": corev1.ConditionFalse}[a["yes|no"]]
	_, err := s.EditChild(s.ctx, namespace, a["POD"], func(p *corev1.Pod) {
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
				c.Status, c.LastTransitionTime = value, metav1.NewTime(s.Clock.Now())
			}
		}
	})
	return err
}

func (s *stage) setWebhook(a args) error {
	s.Webhook = nil
	if a["refuses|allows"] == "refuses" {
		s.Webhook = func(verb string, p *corev1.Pod) error {
			if verb != a["VERB"] {
				return nil
			}
			return failure.Invalid.Of(replicastest.Call{Verb: verb, Kind: "Pod", NamespacedName: types.NamespacedName{Namespace: namespace, Name: p.Name}})
		}
	}
	return nil
}

// refuse makes calls fail without effect.
func (s *stage) refuse(a args) error { return s.arm(a, fault{failure: a["FAILURE"]}) }

// loseAnswer makes calls fail although they take effect.
func (s *stage) loseAnswer(a args) error {
	f := fault{failure: "timeout", effect: true}
	if as := a["as"]; as != "" {
		f.failure = as
	}
	return s.arm(a, f)
}

// landLate makes calls time out, and take effect later, even if their controller has died by then.
func (s *stage) landLate(a args) error { return s.arm(a, fault{failure: "timeout", late: a.d()}) }

// crash makes the controller die just after a call.
func (s *stage) crash(a args) error { return s.arm(a, fault{effect: true, crash: true}) }

func (s *stage) arm(a args, f fault) error {
	if s.fault.left > 0 {
		// A story whose fault does not happen shows nothing.
		return errors.New("the fault before has not come about")
	}
	f.verb, f.skip, f.left = a["VERB"], a.n("after"), max(a.n("times"), 1)
	s.fault = f
	return nil
}

// forever is the delay of events during a hold, until a story uses "deliver" or "follow".
const forever = 1000 * time.Hour

// A watch is the event stream of one kind of objects.
type watch interface {
	inside.Stream
	Break()
	Relist()
	lag(d time.Duration)
}

type stream[T replicastest.Object[T]] struct {
	inside.Stream
	of *replicastest.Stream[T]
}

func streamOf[T replicastest.Object[T]](of *replicastest.Stream[T]) stream[T] {
	return stream[T]{inside.Of[inside.Stream](of), of}
}

func (s stream[T]) Break()              { s.of.Break() }
func (s stream[T]) Relist()             { s.of.Relist() }
func (s stream[T]) lag(d time.Duration) { s.of.Lag = d }

// onWatch returns a command that calls the function for one watch: that of the older controller with "of=old",
// otherwise that of the standby, or of the current controller if there is no standby.
func onWatch(do func(watch, args)) func(*stage, args) error {
	return func(s *stage, a args) error {
		c := s.controller
		switch {
		case a["of"] == "old":
			c = s.former
		case s.standby != nil:
			c = s.standby
		}
		if c == nil {
			return errors.New("there is no such controller")
		}
		if a["pods|sets"] == "pods" {
			do(streamOf(c.View.ChildWatch), a)
		} else {
			do(streamOf(c.View.OwnerWatch), a)
		}
		return nil
	}
}

// deliver delivers the next N events, or all of them without N.
func deliver(w watch, a args) {
	n := w.Pending()
	if _, given := a["N"]; given {
		n = min(n, a.n("N"))
	}
	for range n {
		w.Deliver()
	}
}

// follow ends a hold or a lag, and delivers all events.
func follow(w watch, _ args) {
	w.lag(0)
	deliver(w, nil)
}

func (s *stage) startStandby(args) error {
	s.standby = s.newController()
	s.show()
	return nil
}

func (s *stage) failOver(args) error {
	if s.standby == nil {
		return errors.New("nobody stands by")
	}
	s.stop()
	s.begin()
	return nil
}

// begin makes the standby the current controller.
func (s *stage) begin() {
	s.controller, s.standby = s.standby, nil
	// A leader that begins looks at every owner.
	for _, rs := range s.controller.View.OwnerWatch.In(namespace) {
		s.controller.Worker.Wake(types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}, 0)
	}
	s.show()
}

// join makes the standby the current controller, while the previous one goes on working.
func (s *stage) join(args) error {
	if s.standby == nil {
		return errors.New("nobody stands by")
	}
	s.former = s.controller
	s.begin()
	return nil
}

// leave stops the older one of two working controllers.
func (s *stage) leave(args) error {
	if s.former == nil {
		return errors.New("nobody works side by side")
	}
	s.former.View.Stop()
	s.former = nil
	s.show()
	return nil
}

func (s *stage) makePass(a args) error {
	if s.controller == nil {
		return errors.New("there is no controller")
	}
	key := types.NamespacedName{Namespace: namespace, Name: a["SET"]}
	s.mortal(func() {
		if again, _ := s.controller.Worker.Sync(s.ctx, key); again > 0 {
			s.controller.Worker.Wake(key, again)
		}
	})
	return nil
}

func (s *stage) countCalls(args) error {
	var counts []string
	for _, verb := range []string{"create", "delete", "patch", "get", "list", "status"} {
		counts = append(counts, fmt.Sprintf("%d %s", s.calls[verb], verb))
	}
	s.say("calls", strings.Join(counts, ", "))
	s.calls = map[string]int{}
	return nil
}

// countActive prints the lowest and the highest number of pods that were active at a time.
func (s *stage) countActive(args) error {
	s.say("pods", fmt.Sprintf("%d to %d were active at a time", s.fewest, s.most))
	s.fewest, s.most = s.active, s.active
	return nil
}
