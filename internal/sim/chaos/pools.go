// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A pool is an owner whose children are workers. Workers are not pods.
type pool struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   poolSpec
	Status poolStatus
}

type poolStatus struct {
	Replicas, Ready, Updated int32
	Groups                   string
}

type poolSpec struct {
	Replicas      int32
	Groups        []division // in place of Replicas, in shapes with groups
	Content, Note string     // of each worker, in shapes with updates
}

// A division is a group that a pool lists.
type division struct {
	Name     string
	Replicas int32
}

// wants is how many workers a pool wants in each group. Without groups, all workers are in the group "".
type wants map[string]int32

// wants returns how many workers the pool wants in each group.
func (p *pool) wants() wants {
	if len(p.Spec.Groups) == 0 {
		return wants{"": p.Spec.Replicas}
	}
	w := wants{}
	for _, g := range p.Spec.Groups {
		w[g.Name] = g.Replicas
	}
	return w
}

// with returns, for each group, what the function choose makes of the two numbers.
func (w wants) with(other wants, choose func(a, b int32) int32) wants {
	all := wants{}
	for _, of := range []wants{w, other} {
		for g := range of {
			all[g] = choose(w[g], other[g])
		}
	}
	return all
}

func least(a, b int32) int32 { return min(a, b) }
func most(a, b int32) int32  { return max(a, b) }

func (p *pool) DeepCopy() *pool {
	c := *p
	p.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Groups = slices.Clone(p.Spec.Groups)
	return &c
}

func (p *pool) DeepCopyObject() runtime.Object { return p.DeepCopy() }

type worker struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct{ Content, Leave string }
	Status            workerStatus
}

type workerStatus struct {
	Ready, Ended bool
	Observed     int64  // the generation that the worker runs
	Drained      string // the last request to leave for which the worker has drained
}

func (w *worker) DeepCopy() *worker {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (w *worker) DeepCopyObject() runtime.Object { return w.DeepCopy() }

// isReady reports whether a worker is ready and runs its newest spec.
func isReady(w *worker) bool { return w.Status.Ready && w.Status.Observed == w.Generation }

func hasEnded(w *worker) bool { return w.Status.Ended }

// workers returns the labels by which a pool selects its workers.
func workers() map[string]string { return map[string]string{"app": "pool"} }

// poolKind returns the Kind for pools. With slots, workers have ordinals. With discards, the pool discards workers that
// have ended.
func poolKind(slots, discards bool) controller.Kind[*pool, *worker] {
	version := schema.GroupVersion{Group: "example.com", Version: "v1"}
	return controller.Kind[*pool, *worker]{
		Owner: version.WithKind("Pool"), Child: version.WithKind("Worker"),
		Spec: func(p *pool) (replicas.Spec[*worker], error) {
			spec := replicas.Spec[*worker]{
				Replicas: p.Spec.Replicas, Selector: labels.SelectorFromSet(workers()),
				Rules: replicas.Rules[*worker]{Ready: isReady},
				New:   func(string) (*worker, error) { return &worker{ObjectMeta: metav1.ObjectMeta{Labels: workers()}}, nil },
			}
			if slots {
				spec.Slots = replicas.Ordinals(p.Name)
			}
			if discards {
				spec.Rules.Discard = hasEnded
			}
			return spec, nil
		},
		Status: func(p *pool, o controller.Outcome[*worker]) error {
			p.Status.Replicas, p.Status.Ready, p.Status.Updated, p.Status.Groups = o.Counts.Replicas, o.Counts.Ready, o.Updated, ""
			for _, g := range o.Groups {
				p.Status.Groups += fmt.Sprintln(g.Name, g.Desired, g.Counts.Replicas, g.Counts.Ready, g.Updated)
			}
			return nil
		},
	}
}

// pools is a cluster with one pool. It has a controller and faults of its own, but uses the clock of the run.
type pools struct {
	*replicastest.Cluster[*pool, *worker]
	controller *replicastest.Controller[*pool, *worker]
	inside     *inside.Controller[controller.Pass[*pool, *worker], *worker]
	shape      shape
	wanted     int32
	lists      []string // the groups that the pool lists; nil if the shape has no groups
	more       int32    // how many more workers each group wants
	most       wants    // the highest numbers of workers that the pool ever wanted
	orphans    wants    // numbers of orphans ever created; the pool might create workers before it sees and adopts these orphans
	author     author
	template   *template // nil if the shape has no templates
	updates    *updates  // nil if the shape has no updates
	err        error
}

// An author simulates an operator that sets Kind.Prepare. Prepare cordons a worker before it is deleted or changed, and
// lifts the cordon of one that stays.
type author struct {
	turn     int
	isCalm   bool
	cordoned map[types.UID]bool
}

var errAuthor = errors.New("the author fails on purpose")

func (a *author) prepare(_ context.Context, _ *pool, step *controller.Step[*worker]) error {
	if a.turn++; !a.isCalm {
		// Some passes fail, panic or postpone everything.
		switch a.turn % 11 {
		case 3:
			return errAuthor
		case 5:
			panic(errAuthor)
		case 7:
			step.Create, step.Delete, step.Update, step.RequeueAfter = nil, nil, nil, time.Second
			return nil
		}
	}
	going := sets.New[types.UID]()
	waits := func(w *worker) bool {
		going.Insert(w.UID)
		// An earlier pass has cordoned it, so it may go.
		if a.cordoned[w.UID] {
			return false
		}
		a.cordoned[w.UID], step.RequeueAfter = true, time.Second
		return true
	}
	step.Delete = slices.DeleteFunc(step.Delete, func(d replicas.Deletion[*worker]) bool { return waits(d.Object) })
	step.Update = slices.DeleteFunc(step.Update, func(c replicas.Change[*worker]) bool { return !c.Free && !c.Recall && waits(c.Object) })
	for _, w := range step.Active {
		// A step that leaves deletions for later does not name all workers that go.
		if step.Later == 0 && !going.Has(w.UID) {
			delete(a.cordoned, w.UID)
		}
	}
	return nil
}

func newPools(clock *replicastest.Clock, shape shape, seed uint64) *pools {
	p := &pools{shape: shape, author: author{cordoned: map[types.UID]bool{}}, orphans: wants{}}
	if shape.groups {
		p.lists = slices.Clone(groupNames()[:2+seed%3])
	}
	kind := poolKind(shape.slots, shape.discards)
	kind.Prepare = p.author.prepare
	if shape.templates {
		p.template = &template{pools: p, clock: clock, cached: "a", live: "a", lag: lag}
		kind = p.template.of(kind)
	}
	if shape.updates {
		p.updates = newUpdates(p, clock, seed)
		kind = p.updates.of(kind)
	}
	var err error
	if p.Cluster, err = replicastest.NewCluster(kind, replicastest.Options{Clock: clock, Counting: true}); err != nil {
		panic(err)
	}
	p.Ready = func(w *worker) {
		// updates.restarts does the same for a changed worker, but takes longer.
		if w.Status.Observed == 0 {
			w.Status.Ready, w.Status.Observed = !w.Status.Ended, w.Generation
		}
	}
	p.Changed = p.changed
	p.start()
	first := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool"}, Spec: poolSpec{Content: "a", Groups: p.divisions()}}
	p.most = first.wants()
	if _, err := p.CreateOwner(context.Background(), first); err != nil {
		panic(err)
	}
	return p
}

func (p *pools) newController() *replicastest.Controller[*pool, *worker] {
	c := p.NewController()
	c.View.ChildWatch.Lag, c.View.OwnerWatch.Lag = lag, lag
	c.RememberWrites = p.shape.versions
	return c
}

// restart starts a new controller in place of the old one.
func (p *pools) restart() {
	p.controller.View.Stop()
	p.start()
}

// start starts a new controller with empty caches.
func (p *pools) start() {
	p.controller = p.newController()
	p.inside = inside.Of[*inside.Controller[controller.Pass[*pool, *worker], *worker]](p.controller)
	p.inside.Scaling = p.scaling
	if p.template != nil {
		p.controller.Client.Done = func(call replicastest.Call, _ error) { p.template.called(call) }
	}
	if p.updates != nil {
		p.updates.begin()
	}
}

// changed is called after each change, and judges the workers.
func (p *pools) changed(before, after metav1.Object) {
	w, is := after.(*worker)
	if was, wasWorker := before.(*worker); p.updates != nil && (is || wasWorker) {
		p.err = cmp.Or(p.err, p.updates.landed(was, w))
	}
	// Two processes keep no promise about numbers.
	if !is || p.err != nil || p.updates != nil && p.updates.shared {
		return
	}
	group := p.group(w)
	if p.shape.groups && group == "" {
		return
	}
	// A new worker is in a slot that was wanted at some time. A creation may land long after a scale-down.
	if was, _ := before.(*worker); was == nil && p.hasSlots(group) && metav1.GetControllerOf(w) != nil && p.wantsAt(p.most, p.at(w)) == 0 {
		p.err = fmt.Errorf("chaos: worker %s is created, although the pool never wanted more than %d slots", w.Name, p.most[group])
	}
	n, most := 0, p.most[group]+p.orphans[group]+p.shape.surge
	for _, other := range p.owned() {
		n += one(p.group(other) == group)
	}
	// workers <= the most that were ever wanted + orphans + MaxSurge. The pool may have created a worker in the place
	// of an orphan before it saw and adopted the orphan.
	if n > int(most) {
		p.err = fmt.Errorf("chaos: the pool has %d workers%s, want at most %d", n, in(group), most)
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// in returns the part of a message that says where something is.
func in(place string) string {
	if place == "" {
		return ""
	}
	return " in " + place
}

// base returns the part before the "-" in the names of the workers or slots of a group.
func base(group string) string { return strings.TrimSuffix("pool-"+group, "-") }

func (p *pools) slots(group string, n int32) (slots []string) {
	for i := range n {
		slots = append(slots, fmt.Sprintf("%s-%d", base(group), i))
	}
	return slots
}

// group returns the group of a worker, which is "" in shapes without groups, too.
func (p *pools) group(w *worker) string {
	if !p.shape.groups {
		return ""
	}
	return w.Labels["group"]
}

// hasSlots reports whether the workers of a group have slots.
func (p *pools) hasSlots(group string) bool {
	return (p.shape.slots || p.shape.lots) && (!p.shape.groups || group == "gpu")
}

// at returns the place of a worker: its group, and after a "/" its slot if it has one.
func (p *pools) at(w *worker) string {
	switch group := p.group(w); {
	case !p.hasSlots(group):
		return group
	case p.shape.lots:
		return group + "/" + w.Labels["slot"]
	default:
		return group + "/" + w.Name
	}
}

// wantsAt returns how many workers are wanted in a place.
func (p *pools) wantsAt(all wants, place string) int {
	group, slot, isSlot := strings.Cut(place, "/")
	if isSlot {
		return one(slices.Contains(p.slots(group, all[group]), slot))
	}
	return int(all[group])
}

// owned returns the active workers of the pool.
func (p *pools) owned() []*worker {
	return slices.DeleteFunc(p.Children(namespace), func(w *worker) bool { return !stays(w) })
}

// scaling judges the plan of a pass.
func (p *pools) scaling(owned []*worker) {
	pass := p.inside.Passing
	for _, v := range pass.Scale.Delete {
		// Prepare runs before each deletion and change, so none comes without a cordon.
		if !p.author.cordoned[v.Object.UID] {
			p.err = fmt.Errorf("chaos: worker %s is deleted, but Prepare has not allowed its deletion", v.Object.Name)
		}
	}
	for _, c := range pass.Scale.Update {
		if !c.Free && !c.Recall && !p.author.cordoned[c.Object.UID] {
			p.err = fmt.Errorf("chaos: worker %s is changed, but Prepare has not allowed its change", c.Object.Name)
		}
	}
	for _, v := range pass.Scale.Discard {
		if !hasEnded(v.Object) && !hasDrained(v.Object) {
			p.err = fmt.Errorf("chaos: worker %s is discarded, but has neither ended nor drained for the request %q", v.Object.Name, requestOf(v.Object))
		}
	}
	if p.updates != nil {
		p.updates.sets(pass)
		return
	}
	if p.template != nil {
		p.err = cmp.Or(p.err, p.template.judge(owned, pass.Scale, int(pass.Owner.Spec.Replicas)))
		return
	}
	if p.shape.slots {
		for _, v := range pass.Scale.Delete {
			if slices.Contains(p.slots("", pass.Owner.Spec.Replicas), v.Object.Name) {
				p.err = fmt.Errorf("chaos: worker %s is deleted, but its slot is wanted", v.Object.Name)
			}
		}
		return
	}
	gone, ready := map[types.UID]bool{}, 0
	for _, v := range pass.Scale.Delete {
		gone[v.Object.UID] = true
		if isReady(v.Object) {
			ready++
		}
	}
	for _, w := range owned {
		if ready > 0 && !isReady(w) && !gone[w.UID] {
			// A ready worker goes only if all that are not ready go.
			p.err = fmt.Errorf("chaos: a ready worker is deleted, but worker %s, which is not ready, stays", w.Name)
		}
	}
}

// scale sets the number of workers that the pool wants.
func (p *pools) scale(n int) error {
	p.wanted = int32(n)
	if p.updates != nil {
		// A change of the pool ends what holds marks back, so they are counted anew.
		clear(p.updates.marks)
		clear(p.updates.turns)
	}
	_, err := p.EditOwner(context.Background(), namespace, "pool", func(is *pool) {
		is.Spec.Replicas, is.Spec.Groups = p.wanted, p.divisions()
		p.most = p.most.with(is.wants(), most)
	})
	return err
}

// divisions returns the groups that the pool lists. When one of them grows, another shrinks.
func (p *pools) divisions() (all []division) {
	n := p.wanted
	for i, group := range p.lists {
		all = append(all, division{group, p.more + []int32{n, max(0, 7-n), n / 2, 3 - n%4}[i]})
	}
	return all
}

// orphan creates a worker that has no owner.
func (p *pools) orphan(op Op) error {
	orphan, group := &worker{ObjectMeta: metav1.ObjectMeta{GenerateName: "orphan-", Labels: maps.Clone(workers())}}, ""
	if p.shape.groups {
		group = append(groupNames(), "")[op.M%6]
		orphan.Labels["group"], orphan.Labels["slot"] = group, fmt.Sprintf("%s-%d", base(group), op.N)
	}
	if p.shape.slots && p.hasSlots(group) {
		// In an unwanted slot, the pool does not adopt it.
		orphan.Name = fmt.Sprintf("%s-%d", base(group), op.N)
	} else {
		p.orphans[group]++
	}
	_, err := p.CreateChild(context.Background(), namespace, orphan)
	return err
}

// user performs one of six actions on the pool, such as deleting a worker or restarting the controller.
func (p *pools) user(op Op) error {
	all := p.Children(namespace)
	if len(all) == 0 {
		return nil
	}
	name := all[op.M%len(all)].Name
	edit := func(change func(*worker)) error {
		_, err := p.EditChild(context.Background(), namespace, name, change)
		return err
	}
	switch op.N % 6 {
	case 0:
		_, err := p.DeleteChild(context.Background(), namespace, name, metav1.DeleteOptions{})
		return err
	case 1:
		// Without slots, the new process would not know about creations in flight.
		if p.shape.slots && !p.shape.groups {
			p.restart()
		}
	case 2: // another object takes a name that may belong to a slot
		_, err := p.CreateChild(context.Background(), namespace, &worker{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", base(p.group(all[0])), op.M), Labels: squatter()}})
		return err
	case 3:
		return edit(func(w *worker) { w.Finalizers = []string{"example.com/hold"} })
	case 4:
		return edit(func(w *worker) { w.Finalizers = nil })
	case 5:
		if p.shape.discards {
			return edit(func(w *worker) { w.Status.Ready, w.Status.Ended = false, true })
		}
	}
	return nil
}

// squatter returns the labels of an object that the pool does not select.
func squatter() map[string]string { return map[string]string{"app": "other"} }

// fails makes some calls of the pool's controller fail, with no effect, with their effect, or with a late one.
func (p *pools) fails(op Op) {
	if p.updates != nil && op.For/time.Millisecond%2 == 0 {
		p.updates.fails(op)
		return
	}
	lost := failure.Lost()
	rule := replicastest.Rule{Skip: op.N / 6, Times: 1 + op.M/3, Err: lost[op.M%len(lost)].Of(replicastest.Call{}), Landed: op.N%3 == 0}
	if op.N%3 == 1 {
		rule.Late = 4 * op.For
	}
	p.controller.Client.Fail(rule)
}

// watches disturbs or resumes the watch of workers.
func (p *pools) watches(op Op) {
	watch := p.controller.View.ChildWatch
	watch.Lag = lag
	switch op.N % 4 {
	case 0:
		watch.Hang()
	case 1:
		watch.Lag += op.For
	case 2:
		watch.Relist()
	default:
		watch.Resume()
	}
}

// calm ends all faults and deletes the workers that the pool will never own.
func (p *pools) calm() {
	for _, w := range p.Children(namespace) {
		_, _ = p.EditChild(context.Background(), namespace, w.Name, func(w *worker) { w.Finalizers = nil })
		isOrphan := metav1.GetControllerOf(w) == nil
		unwanted := w.Status.Ended && (isOrphan || p.group(w) == "" && p.shape.groups) // the pool does not adopt an orphan that has ended
		if w.Labels["app"] != "pool" || unwanted || isOrphan && p.shape.groups && !slices.Contains(p.lists, p.group(w)) {
			_, _ = p.DeleteChild(context.Background(), namespace, w.Name, metav1.DeleteOptions{})
		}
	}
	p.author.isCalm = true
	p.template.calm()
	p.updates.calm()
	p.controller.Client.Fail()
	p.controller.View.ChildWatch.Lag = lag
	p.controller.View.ChildWatch.Relist()
}

// settled returns an error if workers are missing or superfluous, or if the pool's status is wrong.
func (p *pools) settled() error {
	is, err := p.GetOwner(context.Background(), namespace, "pool")
	if err != nil || p.err != nil {
		return errors.Join(err, p.err)
	}
	if p.updates != nil {
		if err := p.updates.settled(is); err != nil {
			return err
		}
	}
	if err := p.exact(is.wants(), ""); err != nil {
		return err
	}
	n, all := len(p.owned()), len(p.Children(namespace))
	if p.shape.slots || p.shape.lots {
		// Orphans in unwanted slots are not adopted.
		all = n
	}
	for _, w := range p.owned() {
		if is := w.Annotations["template"]; p.template != nil && is != p.template.live {
			return fmt.Errorf("chaos: worker %s of the pool has the template %q, want %q", w.Name, is, p.template.live)
		}
		if p.author.cordoned[w.UID] {
			return fmt.Errorf("chaos: worker %s of the pool stays, but Prepare has not lifted its cordon", w.Name)
		}
	}
	want := poolStatus{Replicas: int32(n), Ready: int32(n), Updated: int32(n)}
	for _, g := range is.Spec.Groups {
		want.Groups += fmt.Sprintln(g.Name, g.Replicas, g.Replicas, g.Replicas, g.Replicas)
	}
	if all != n || is.Status != want {
		return fmt.Errorf("chaos: the pool wants %v workers, owns %d of the %d that exist, and its status is %v", is.wants(), n, all, is.Status)
	}
	return nil
}

// exact returns an error if a place has not as many workers as are wanted. The group except is left out, and so are
// workers of no group.
func (p *pools) exact(all wants, except string) error {
	has, places := map[string]int{}, map[string]bool{}
	for _, w := range p.owned() {
		has[p.at(w)]++
		places[p.at(w)] = true
	}
	for group, n := range all {
		if places[group] = true; p.hasSlots(group) {
			delete(places, group)
			for _, slot := range p.slots(group, n) {
				places[group+"/"+slot] = true
			}
		}
	}
	for _, place := range slices.Sorted(maps.Keys(places)) {
		n := p.wantsAt(all, place)
		group, _, _ := strings.Cut(place, "/")
		if p.shape.groups && (group == "" || group == except) {
			continue
		}
		if has[place] != n {
			return fmt.Errorf("chaos: the pool has %d workers%s, want %d", has[place], in(place), n)
		}
	}
	return nil
}

// A template is another object than the pool, from which its workers are made. The template "" does not exist.
type template struct {
	*pools
	clock        *replicastest.Clock
	cached, live string
	lag          time.Duration
	hangs        bool   // the watch of templates
	events       []seen // on their way to the cache
	unread       int    // how many of the next reads fail
	during       string // verb of the call during which the template changes; "" for none
	becomes      string
	read         *string // what SpecLive has read in this pass; nil before
}

// A seen is a change of the template that the cache shows at a given time.
type seen struct {
	at time.Time
	is string
}

var errTemplate = errors.New("the template cannot be read")

// of returns a Kind whose workers are made from the template.
func (t *template) of(kind controller.Kind[*pool, *worker]) controller.Kind[*pool, *worker] {
	plain := kind.Spec
	spec := func(p *pool, is string) (replicas.Spec[*worker], error) {
		s, err := plain(p)
		// Nothing can be made from a template that does not exist.
		s.Paused = is == ""
		s.Rules.MustGo = func(w *worker) bool { return w.Annotations["template"] != is }
		s.New = func(string) (*worker, error) {
			return &worker{ObjectMeta: metav1.ObjectMeta{Labels: workers(), Annotations: map[string]string{"template": is}}}, nil
		}
		return s, err
	}
	kind.Spec = func(p *pool) (replicas.Spec[*worker], error) { return spec(p, t.cached) }
	kind.SpecLive = func(_ context.Context, p *pool) (replicas.Spec[*worker], error) {
		if t.unread > 0 {
			t.unread--
			return replicas.Spec[*worker]{}, errTemplate
		}
		is := t.live
		t.read = &is
		// Here the template may change just after it was read.
		t.called(replicastest.Call{Verb: "read"})
		return spec(p, is)
	}
	kind.Observe = func(context.Context, controller.Pass[*pool, *worker]) { t.read = nil }
	return kind
}

// set changes the template on the server, and later in the cache.
func (t *template) set(is string) {
	at := t.clock.Now().Add(t.lag)
	if n := len(t.events); n > 0 && t.events[n-1].at.After(at) {
		// The watch was later when that event was sent, and no event overtakes another.
		at = t.events[n-1].at
	}
	t.live, t.events = is, append(t.events, seen{at, is})
}

// change is what users, the watch and the server do to the template.
func (t *template) change(op Op) {
	if t == nil {
		return
	}
	names := []string{"a", "b", "c"}
	switch op.N % 8 {
	case 0, 1:
		t.set(names[op.M%3])
	case 2: // changed, and changed back before any cache shows it
		was := t.live
		t.set(names[op.M%3])
		t.set(was)
	case 3:
		t.set("")
	case 4:
		t.hangs = !t.hangs
	case 5:
		t.lag = lag + op.For
	case 6: // changed while a deletion is under way: before or after the template is read, or between two calls
		t.during, t.becomes = []string{"get", "read", "delete"}[op.M%3], names[op.M/3%3]
	case 7:
		t.unread = op.M
	}
}

// called changes the template during a call of the pool's controller.
func (t *template) called(call replicastest.Call) {
	if t.during != "" && t.during == call.Verb {
		t.during = ""
		t.set(t.becomes)
	}
}

func (t *template) Due() (time.Time, bool) {
	if t.hangs || len(t.events) == 0 {
		return time.Time{}, false
	}
	return t.events[0].at, true
}

// Step shows the next change to the cache, and wakes the pool.
func (t *template) Step() {
	if at, ok := t.Due(); !ok || at.After(t.clock.Now()) {
		return
	}
	t.cached, t.events = t.events[0].is, t.events[1:]
	t.controller.Worker.Wake(types.NamespacedName{Namespace: namespace, Name: "pool"}, 0)
}

// judge checks that a pass deletes only what the template wants deleted, as SpecLive has read it in this pass.
func (t *template) judge(owned []*worker, scale replicas.Scale[*worker], wanted int) error {
	if len(scale.Delete)+len(scale.Discard) == 0 {
		return nil
	}
	switch {
	case t.read == nil:
		// The cache may be old. After a change and its undoing, it would want the deletion of all workers.
		return errors.New("chaos: a pass deletes workers, but has not read the template")
	case *t.read == "":
		return errors.New("chaos: a pass deletes workers of a template that does not exist")
	}
	good := func(w *worker) int { return one(w.Annotations["template"] == *t.read) }
	stay, gone := 0, 0
	for _, w := range owned {
		stay += good(w)
	}
	for _, v := range scale.Delete {
		if gone += good(v.Object); good(v.Object) > 0 && slices.Contains(t.slots("", int32(wanted)), v.Object.Name) && t.shape.slots {
			return fmt.Errorf("chaos: worker %s of the template %s is deleted, but its slot is wanted", v.Object.Name, *t.read)
		}
	}
	// staying of this template - deleted >= wanted
	if gone > 0 && stay-gone < wanted && !t.shape.slots {
		return fmt.Errorf("chaos: %d of %d workers of the template %s are deleted, but %d are wanted", gone, stay, *t.read, wanted)
	}
	return nil
}

// calm ends all faults of the template.
func (t *template) calm() {
	if t == nil {
		return
	}
	t.hangs, t.unread, t.lag, t.during = false, 0, lag, ""
	t.set(cmp.Or(t.live, "a"))
}
