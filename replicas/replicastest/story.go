// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A Story plays a Kind on a simulated cluster while faults happen. Play makes a Story for each seed and passes it to
// a function of yours, which fills in the fields. Kind and Owner are required.
type Story[O Object[O], C Object[C]] struct {
	// Kind is the Kind under test. Its functions may use the Story, for example Cluster and Call.
	Kind controller.Kind[O, C]
	// Options are those of each process, except for the ones that Cluster.NewControllerWith replaces.
	Options controller.Options
	// Owner is created when the story begins. A minute later, the faults begin. They end within twenty minutes.
	Owner O
	// Changes are what users do to the owner, such as scaling it or giving it another image. In each round of
	// faults, users make one or two of these changes. If there are none, the owner stays as it is.
	Changes []func(owner O)
	// Deletes is true if users also delete the owner, in the background and in the last round of each second story.
	Deletes bool
	// Ready makes a child ready that is not a pod, as Cluster.Ready does.
	Ready func(child C)
	// Parts act next to the controller, also in the quiet hour. An example is an agent that drains the children. Pods and
	// nodes do not fail by themselves, so a Part must do it, and while there are faults.
	Parts []Part
	// Always holds what must be true at every moment, and AtEnd what must be true when all has been quiet for an hour.
	// A rule has a name, such as "each living member has its claim", and returns an error while it is broken. The rules
	// in Always are called after each change of an object and after each step of a Part, so they should be fast.
	Always, AtEnd map[string]func() error

	// Cluster is the simulated cluster, which has three nodes. It exists from the moment in which the first function of
	// the Kind is called.
	Cluster *Cluster[O, C]

	seed       uint64
	random     *rand.Rand
	world      *World
	controller *Controller[O, C]
	old        *View[O, C] // what an old API server has shown; nil before the first snapshot
	dies       int         // the process dies at this call from now; 0 means never
	dead       bool        // the process is dead, so its calls have no effect
	writes     []Call      // the kinds of writes that were made, and the zero Call, which stands for all calls
	log        []string
	last       controller.Pass[O, C]
	observed   bool           // a pass has seen the children, so Spec was not refused then
	most       map[string]int // the most children that were alive or ready
	broken     error
}

// Play plays one story for each seed from first to last, and returns the first failure, or nil. The function tell is
// called once for each story, and must set up again everything that belongs to one story. The error of a story has its
// seed, the name of the rule, and what happened last. To play that story alone, call Play(seed, seed, tell): the same
// seed always gives the same story.
//
// In each story, watches are late or hang, answers are lost and calls fail. In the stories with an odd seed, the
// process also dies in the middle of a pass, and the next one begins with the caches of an old API server. In the
// stories with an even seed, one process lives on, and requests without an answer may take effect up to a minute later.
// A request of a process that has died takes effect at once or never, because the promises of a Controller end with its
// process.
//
// A Kind that modifies a cached object or has the gate StatusFaulty fails, too. Whether a status is right needs a rule of
// yours.
func Play[O Object[O], C Object[C]](first, last uint64, tell func(*Story[O, C])) error {
	if tell == nil {
		return errors.New("replicastest: tell is nil")
	}
	for seed := first; seed <= last && seed >= first; seed++ {
		s := &Story[O, C]{seed: seed, random: rand.New(rand.NewPCG(seed, 4)), writes: make([]Call, 1)}
		tell(s)
		if err := s.play(); err != nil {
			return fmt.Errorf("replicastest: seed %d: %w%s", seed, err, s.told())
		}
	}
	return nil
}

// AtMost is a rule for Always: there are never more than n living children. A child that is being deleted does not
// count, nor does a pod that has ended. One that was only asked to leave (Spec.Retire) counts, and so does one that must
// stay.
func (s *Story[O, C]) AtMost(n int) func() error {
	return func() error {
		if is := s.living(); is > n {
			return fmt.Errorf("%d children are alive, want at most %d", is, n)
		}
		return nil
	}
}

// AtLeast is a rule for Always: there are never fewer than n living children, from the first moment with n of them to
// the deletion of the owner.
func (s *Story[O, C]) AtLeast(n int) func() error {
	return s.atLeast(n, "alive", func() (int, bool) { return s.living(), true })
}

// AtLeastReady is a rule for Always: there are never fewer than n ready children, from the first moment with n of them to
// the deletion of the owner. Rules.Active and Rules.Ready of the Kind's Spec decide, or for pods their defaults. While Spec
// returns an error, any number is right.
func (s *Story[O, C]) AtLeastReady(n int) func() error {
	return s.atLeast(n, "ready", func() (ready int, known bool) {
		owner, err := s.owner()
		if err != nil {
			return 0, false
		}
		spec, err := s.Kind.Spec(owner)
		rules := spec.Rules.Complete()
		for _, child := range s.alive() {
			if rules.Ready != nil && rules.Active(child) && rules.Ready(child) {
				ready++
			}
		}
		return ready, err == nil
	})
}

func (s *Story[O, C]) atLeast(n int, what string, count func() (is int, known bool)) func() error {
	return func() error {
		is, known := count()
		if !known {
			return nil // nothing says which children are ready
		}
		if s.most == nil {
			s.most = map[string]int{}
		}
		s.most[what] = max(s.most[what], is)
		if is >= n || s.most[what] < n || s.isGoing() {
			return nil
		}
		return fmt.Errorf("%d children are %s, want at least %d", is, what, n)
	}
}

// AsWanted is a rule for AtEnd: as many children are alive as the owner wants, and none if it is gone. Children that
// must stay for ever, or never leave when they were asked to, are too many. If the owner has groups, this is so for each
// of them, and children of no group do not count. The number comes from Kind.Spec, so a rule about Spec itself must be
// yours. While Spec refuses the owner (replicas.RefusedError), any number is right, unless it has never accepted it.
func (s *Story[O, C]) AsWanted() error {
	var spec replicas.Spec[C] // of an owner that is gone
	if owner, err := s.owner(); err == nil && owner.GetDeletionTimestamp() == nil {
		spec, err = s.Kind.Spec(owner)
		if refused := (*replicas.RefusedError)(nil); errors.As(err, &refused) && s.observed {
			return nil // the children stay as they are
		}
		if err != nil {
			return err
		}
	}
	if spec.GroupOf == nil {
		if is := s.living(); is != int(spec.Replicas) {
			return fmt.Errorf("%d children are alive, want %d", is, spec.Replicas)
		}
		return nil
	}
	wanted, alive := map[string]int32{}, map[string]int32{}
	for _, g := range spec.Groups {
		wanted[g.Name] = g.Replicas
	}
	for _, child := range s.alive() {
		name := spec.GroupOf(child)
		alive[name]++
		wanted[name] += 0
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if is, want := alive[name], wanted[name]; is != want && name != "" {
			return fmt.Errorf("%d children of group %q are alive, want %d", is, name, want)
		}
	}
	return nil
}

// Call makes a call of the Kind's own, for example in Prepare. The faults of the Story also happen to this call: it
// may fail, its answer may be lost, or the process may die before or after it. The argument call names the call, such
// as Call{Verb: "delete", Kind: "Claim"}. The function effect may be called later, or never.
func (s *Story[O, C]) Call(ctx context.Context, call Call, effect func() error) error {
	switch {
	case effect == nil:
		return errors.New("replicastest: effect is nil")
	case s.controller == nil:
		return errNotBegun
	}
	_, err := do(ctx, s.controller.Client, call, func(context.Context, *Cluster[O, C]) (struct{}, error) {
		return struct{}{}, effect()
	})
	s.check(s.Always)
	return err
}

// Wake requests a pass for the Owner, as a watch does on another object that Kind.Spec reads. Before the first process
// begins, Wake does nothing.
func (s *Story[O, C]) Wake() {
	if s.controller != nil {
		s.controller.Worker.Wake(types.NamespacedName{Namespace: s.Owner.GetNamespace(), Name: s.Owner.GetName()}, 0)
	}
}

func (s *Story[O, C]) play() (err error) {
	if object.IsNil(s.Owner) {
		return errors.New("the Story has no Owner")
	}
	defer func() {
		if value := recover(); value == errBusy { //nolint:errorlint // the very value
			err = errBusy
		} else if value != nil {
			panic(value)
		}
	}()
	if s.Cluster, err = NewCluster(s.Kind, Options{Seed: s.seed, Nodes: 3}); err != nil {
		return err
	}
	s.Cluster.Ready = s.Ready
	s.Cluster.Changed = func(_, _ metav1.Object) { s.check(s.Always) }
	s.world = &World{Clock: s.Cluster.Clock}
	if err := s.start("the first process begins"); err != nil {
		return err
	}
	if _, err := s.Cluster.CreateOwner(context.Background(), s.Owner); err != nil {
		return err
	}
	s.run(time.Minute)
	rounds := 3 + s.random.IntN(4)
	for i := range rounds {
		s.round(s.Deletes && i == rounds-1 && s.random.IntN(2) == 0)
	}
	s.end("all faults are over")
	s.run(time.Hour)
	for range 5 { // as resyncs would; a status that is another one each time is noticed by the fourth write
		s.Wake()
		s.run(time.Minute)
	}
	s.check(s.AtEnd)
	return errors.Join(s.broken, s.controller.View.Intact())
}

// round lets one or two faults happen, then one or two changes of users close to each other.
func (s *Story[O, C]) round(deletes bool) {
	faults := s.faults()
	for range 1 + s.random.IntN(2) {
		faults[s.random.IntN(len(faults))]()
	}
	for range 1 + s.random.IntN(2) {
		s.change()
		// This is within the lag of a cache, so a controller may see neither change, one, or both.
		s.run(s.upTo(4 * time.Second))
	}
	if deletes {
		s.tell("a user deletes the owner")
		_ = s.Cluster.DeleteOwner(context.Background(), s.Owner.GetNamespace(), s.Owner.GetName(), metav1.DeletePropagationBackground)
	}
	s.run(s.upTo(time.Minute))
	// Otherwise, the faults of this round go on in the next.
	if s.random.IntN(2) == 0 {
		s.end("the faults of this round are over")
		s.run(s.upTo(time.Minute))
	}
}

func (s *Story[O, C]) change() {
	if len(s.Changes) == 0 {
		return
	}
	n := s.random.IntN(len(s.Changes))
	s.tell("a user makes change %d", n)
	_, err := s.Cluster.EditOwner(context.Background(), s.Owner.GetNamespace(), s.Owner.GetName(), s.Changes[n])
	if err != nil && !apierrors.IsNotFound(err) {
		s.breaks(fmt.Errorf("change %d: %w", n, err))
	}
}

func (s *Story[O, C]) faults() []func() {
	faults := []func(){
		func() { s.lag(s.upTo(5*time.Second), 0) },
		func() { s.lag(0, s.upTo(5*time.Second)) },
		func() { s.lag(s.upTo(5*time.Second), s.upTo(5*time.Second)) },
		func() {
			s.tell("the watch of the children hangs")
			s.controller.View.ChildWatch.Hang()
		},
		func() { s.fail("calls lose their answers", Rule{Landed: true}) },
		func() { s.fail("calls fail", Rule{}) },
	}
	if s.seed%2 == 0 {
		// No process dies in these stories, because the next one could not know of a call that has yet to take effect.
		return append(faults, func() { s.fail("calls take effect late", Rule{Late: s.upTo(time.Minute)}) })
	}
	return append(faults,
		func() { s.dies = 1 + s.random.IntN(8) },
		func() { s.snapshot() },
		func() { s.takeOver() },
	)
}

func (s *Story[O, C]) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + s.random.Int64N(int64(d)))
}

func (s *Story[O, C]) lag(children, owners time.Duration) {
	s.tell("the cache of the children is %v late, and that of the owners %v", children, owners)
	s.controller.View.ChildWatch.Lag, s.controller.View.OwnerWatch.Lag = children, owners
}

func (s *Story[O, C]) fail(what string, rule Rule) {
	lost := Lost()
	// Accidents hit the kinds of writes that this Kind makes, also those of its own, or all calls.
	hit := s.writes[s.random.IntN(len(s.writes))]
	rule.Verb, rule.Kind, rule.Skip = hit.Verb, hit.Kind, s.random.IntN(3)
	rule.Times, rule.Err = 1+s.random.IntN(4), lost[s.random.IntN(len(lost))]
	s.tell("%s: %d %s %s, after %d others", what, rule.Times, cmp.Or(hit.Verb, "calls"), hit.Kind, rule.Skip)
	s.controller.Client.Fail(rule)
}

// snapshot keeps what an API server shows that gets no further changes.
func (s *Story[O, C]) snapshot() {
	s.tell("an API server stands still")
	if s.old != nil {
		s.old.Stop()
	}
	s.old = s.Cluster.NewView()
	s.old.ChildWatch.Hang()
	s.old.OwnerWatch.Hang()
}

// takeOver replaces the controller, and its caches with those of the old server if there is one.
func (s *Story[O, C]) takeOver() {
	s.controller.View.Stop()
	what := "another process takes over"
	if s.old != nil {
		what += ", with the caches of an old API server"
	}
	if err := s.start(what); err != nil {
		panic(err) // the first process began with the same options
	}
	if s.old == nil {
		return
	}
	inside.Of[inside.View](s.controller.View).ListFrom(inside.Of[inside.View](s.old), s.upTo(10*time.Second))
}

func (s *Story[O, C]) start(what string) (err error) {
	s.tell("%s", what)
	s.dead, s.dies = false, 0
	if s.controller, err = s.Cluster.NewControllerWith(s.Options); err != nil {
		return err
	}
	s.controller.RememberWrites = s.seed%4 < 2
	s.controller.Passed = func(pass controller.Pass[O, C]) {
		s.last, s.observed = pass, s.observed || pass.Observed
		for _, g := range pass.Gates {
			if g.Reason == controller.StatusFaulty {
				s.breaks(fmt.Errorf("%v: %w", g.Reason, g.Err))
			}
		}
	}
	s.controller.Client.Fault = func(Call) Fault {
		if s.die(); s.dead {
			return Fault{Before: errDead}
		}
		return Fault{}
	}
	s.controller.Client.Done = func(call Call, err error) {
		if kind := (Call{Verb: call.Verb, Kind: call.Kind}); call.Verb != "get" && call.Verb != "list" && !slices.Contains(s.writes, kind) {
			s.writes = append(s.writes, kind)
		}
		if call.Err = err; !s.dead {
			s.tell("  %v", call)
		}
		s.die()
	}
	s.world.Parts = append([]Part{s.Cluster, s.controller}, s.Parts...)
	return nil
}

var errDead = errors.New("the process is dead")

// die counts calls, before and after each, and ends the process when the count is over.
func (s *Story[O, C]) die() {
	if s.dies == 0 {
		return
	}
	if s.dies--; s.dies == 0 {
		s.tell("the process dies")
		// A Crash would not end the process in Kind.Prepare, whose panics the Controller turns into errors. So all
		// further calls of this pass fail without an effect. A Rule comes before Fault and might let one take effect,
		// so the Rules go.
		s.controller.Client.Fail()
		s.dead = true
	}
}

// end ends all faults.
func (s *Story[O, C]) end(what string) {
	s.tell("%s", what)
	s.dies = 0
	s.controller.Client.Fail()
	s.lag(0, 0)
	s.controller.View.ChildWatch.Relist()
	s.controller.View.OwnerWatch.Relist()
}

func (s *Story[O, C]) run(d time.Duration) {
	end := s.Cluster.Clock.Now().Add(d)
	s.world.RunUntil(end, func() bool {
		// A dead process finishes its pass without effects. Only then can another take over.
		if s.dead {
			s.takeOver()
		}
		s.check(s.Always)
		return s.broken != nil
	})
	s.Cluster.Clock.Advance(end.Sub(s.Cluster.Clock.Now()))
}

// check calls rules in the order of their names, and keeps the first failure.
func (s *Story[O, C]) check(rules map[string]func() error) {
	if s.broken != nil || len(rules) == 0 {
		return
	}
	names := make([]string, 0, len(rules))
	for name := range rules {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := obey(rules[name]); err != nil {
			s.breaks(fmt.Errorf("%q is broken: %w", name, err))
			return
		}
	}
}

// obey calls a rule. A panic of the rule is its failure.
func obey(rule func() error) (err error) {
	if rule == nil {
		return errors.New("the rule is nil")
	}
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the rule panicked: %v", value)
		}
	}()
	return rule()
}

func (s *Story[O, C]) breaks(err error) {
	if s.broken == nil {
		s.tell("%v", err)
		s.broken = err
	}
}

var errNotBegun = errors.New("replicastest: the Story has not begun")

func (s *Story[O, C]) living() int { return len(s.alive()) }

func (s *Story[O, C]) alive() (children []C) {
	if s.world == nil {
		return nil
	}
	for _, child := range s.Cluster.children.rows {
		ended, isPod := any(child).(*corev1.Pod)
		if child.GetDeletionTimestamp() == nil && metav1.GetControllerOfNoCopy(child) != nil && (!isPod || !pod.IsFinished(ended)) {
			children = append(children, child)
		}
	}
	return children
}

func (s *Story[O, C]) owner() (O, error) {
	if s.world == nil {
		return s.Owner, errNotBegun
	}
	return s.Cluster.owners.get(s.Owner.GetNamespace(), s.Owner.GetName())
}

func (s *Story[O, C]) isGoing() bool {
	owner, err := s.owner()
	return err != nil || owner.GetDeletionTimestamp() != nil
}

// tell adds a line to the report of the story.
func (s *Story[O, C]) tell(format string, args ...any) {
	// The failure is the last line: what happens after it explains nothing.
	if s.broken == nil {
		at := s.Cluster.Clock.Now().Sub(beginning).Round(time.Millisecond)
		s.log = append(s.log, fmt.Sprintf("%10v  %s", at, fmt.Sprintf(format, args...)))
	}
}

// told returns the last lines of the story.
func (s *Story[O, C]) told() string {
	const most = 30
	lines := slices.Clone(s.log[max(0, len(s.log)-most):])
	for _, g := range s.last.Standing {
		lines = append(lines, fmt.Sprintf("held back by %v", g))
	}
	if s.last.Err != nil {
		lines = append(lines, fmt.Sprintf("the last pass ended with: %v", s.last.Err))
	}
	if len(lines) == 0 {
		return ""
	}
	return "\n" + strings.Join(lines, "\n")
}
