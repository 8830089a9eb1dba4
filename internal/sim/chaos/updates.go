// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

// These are the maximum numbers of patches of one worker in one hour, of those that ask it to leave while the pool
// wants the same number, and of those that ask it or take this back before another client touches the mark.
const mostPatches, mostMarks, mostTurns = 100, 20, 4

// A Plant is a defect of the controller that changes the workers of a pool in place, or asks them to leave.
type Plant int

// The defects that RunPlanted can plant.
const (
	Nothing     Plant = iota
	ReadyAtOnce       // Rules.Ready does not wait until a worker runs its newest spec
	NoLimit           // the Spec has no MaxUnavailable, although the pool has one
	Unversioned       // the patches have no resourceVersion
	OldOwner          // what should be a read of the pool is answered by the cache
	Impatient         // each pass is followed by patches of all workers that differ from the cached pool
	MarkIgnored       // Rules.Leaving does not know the mark
	Regretful         // Rules.MustGo does not know a worker that leaves, so it is taken back
	AnyRequest        // Rules.Discard does not compare the request for which a worker has drained
	NoRecall          // Spec.Retire takes no mark back
	ByPrefix          // a creation without an answer is sent again for each group whose base its name begins with
	KeepsGone         // the workers of a group that is no longer listed are of no group
	AdoptsAll         // the Spec also lists the groups that the pool does not list, with no workers
	OneForAll         // a creation that is refused ends the creations of all groups
)

// RunPlanted is like Run, but plants a defect in the controller of the pool.
func RunPlanted(seed uint64, story Story, plant Plant) Report {
	shape := shapeOf(seed)
	shape.plant = plant
	return newRun(seed, shape, nil).tell(story)
}

// An updates is the part of a pool whose workers are changed in place: the controller of the workers, which restarts a
// changed worker and drains one that is asked to leave, all others who change workers and the pool, and the judge of
// the changes and marks.
type updates struct {
	*pools
	kind   controller.Kind[*pool, *worker]
	clock  *replicastest.Clock
	random *rand.Rand
	todo   []deed
	during string // the verb of the next call before which meddle is called; "" for none
	meddle func(replicastest.Call)
	undo   int // what undoes changes: 0 nothing, 1 a webhook, 2 another client
	hit    hit
	dark   map[string]time.Time // until when the calls for a worker are refused
	dies   int                  // the process dies after so many more calls; 0 means never
	old    *replicastest.View[*pool, *worker]
	second *replicastest.Controller[*pool, *worker]
	shared bool // two processes have worked at the same time

	clients []*inside.Client[replicastest.Call] // of all processes
	wants   wants                               // the numbers of workers that the current pass must leave
	plans   wants                               // the numbers that the pool wants, as the current pass sees it
	read    wants                               // the numbers that the pool wanted when the current pass read it; nil before
	ups     tally                               // available workers
	stay    tally                               // active workers that are not leaving
	lacks   tally                               // workers that hold no place
	leave   tally                               // workers that do not stay, or must go
	keep    tally                               // workers that stay, and need not go
	listed  time.Time                           // when the current process last made a live list
	own     map[types.UID]uint64                // the version of the last change by the current process
	sent    map[string]sending                  // the calls of the current process without an answer, by verb and worker
	unsure  map[string]bool                     // the names of creations of the current process without an answer
	invalid map[types.UID]bool                  // workers whose change was refused as Invalid, so they may have to go
	refused string                              // the group whose creations are refused; "" for none
	refusal error                               // the answer to these creations
	failed  error                               // of a creation in this pass
	drain   time.Duration                       // the maximum time that a worker takes to drain
	patches map[patchesIn]int
	marks   map[patchesIn]int
	turns   map[patchesIn]int
	seen    map[string]int // how often each outcome of a change was seen
}

// A deed is a change that is made at a given time.
type deed struct {
	at time.Time
	do func()
}

// patchesIn is a worker and an hour.
type patchesIn struct {
	types.UID
	hour time.Time
}

// A tally knows the workers of one sort in each place, and those that others than the current process have moved or
// made another sort.
type tally struct {
	has  func(*worker) bool
	not  bool // the tally is of all others
	at   func(*worker) string
	lost map[moved]loss
}

// A moved is a worker that was counted in a place.
type moved struct {
	types.UID
	place string
}

// in reports whether the tally of a place has a worker.
func (t tally) in(w *worker, place string) bool {
	return (w != nil && t.at(w) == place && t.has(w)) != t.not
}

// A loss is a worker that others have made another sort.
type loss struct {
	at      time.Time
	version uint64
}

// A sending is a call without an answer. It may still land, and the process may send it again.
type sending struct {
	ups, stay time.Time // see blind
	version   uint64    // of the worker that the process saw
	wants     wants     // the least that any pass since then had to leave
	replaced  int       // how many workers that had to go the process has deleted since then
}

func newUpdates(p *pools, clock *replicastest.Clock, seed uint64) *updates {
	u := &updates{
		pools: p, clock: clock, random: rand.New(rand.NewPCG(seed, 7)), drain: 3 * time.Minute,
		ups: tally{isUp, false, p.group, map[moved]loss{}}, stay: tally{stays, false, p.at, map[moved]loss{}}, invalid: map[types.UID]bool{},
		patches: map[patchesIn]int{}, marks: map[patchesIn]int{}, turns: map[patchesIn]int{}, dark: map[string]time.Time{}, seen: map[string]int{},
	}
	u.lacks = tally{u.holds, true, p.at, map[moved]loss{}}
	u.keep = tally{func(w *worker) bool { return stays(w) && !u.mustGo(w) }, false, p.at, map[moved]loss{}}
	u.leave = tally{func(w *worker) bool { return stays(w) && !u.goesAnyway(w) }, true, p.at, map[moved]loss{}}
	return u
}

// The shape decides the limit of a pool. The limit "" is none.
func limits() []string { return []string{"1", "1", "2", "25%", ""} }

// least returns how many workers of a group must be available when so many are wanted.
func (u *updates) least(wanted int32) int {
	limit := intstr.Parse(u.shape.limit)
	if limit.Type == intstr.String {
		return int(wanted - max(1, wanted/4))
	}
	return int(wanted - limit.IntVal)
}

// generation is the key of the annotation with the generation of the pool from which a worker was made.
const generation = "generation"

// of returns a Kind whose workers are changed in place.
func (u *updates) of(kind controller.Kind[*pool, *worker]) controller.Kind[*pool, *worker] {
	plain := kind.Spec
	kind.Spec = func(p *pool) (replicas.Spec[*worker], error) {
		s, err := plain(p)
		stamp := func(w *worker) *worker {
			w.Spec.Content = p.Spec.Content
			metav1.SetMetaDataLabel(&w.ObjectMeta, note, p.Spec.Note)
			// A pool that goes back to an older content has a higher generation than before, so the judge knows new
			// from old.
			metav1.SetMetaDataAnnotation(&w.ObjectMeta, generation, strconv.FormatInt(p.Generation, 10))
			return w
		}
		s.New = func(string) (*worker, error) {
			return stamp(&worker{ObjectMeta: metav1.ObjectMeta{Labels: workers()}}), nil
		}
		s.Update = func(w *worker) replicas.Change[*worker] {
			if w.Spec.Content == p.Spec.Content && w.Labels[note] == p.Spec.Note {
				return replicas.Change[*worker]{}
			}
			return replicas.Change[*worker]{To: stamp(w.DeepCopy()), Free: w.Spec.Content == p.Spec.Content, OrReplace: u.shape.replaces}
		}
		if u.shape.limit != "" && u.shape.plant != NoLimit {
			limit := intstr.Parse(u.shape.limit)
			s.MaxUnavailable = &limit
		}
		if u.shape.goes {
			s.Rules.MustGo = u.mustGo
		}
		if u.shape.marks {
			u.retires(&s)
		}
		if u.shape.plant == ReadyAtOnce {
			s.Rules.Ready = func(w *worker) bool { return w.Status.Ready }
		}
		if u.shape.groups {
			u.divides(&s, p)
		}
		return s, err
	}
	u.kind = kind
	return kind
}

// groupNames returns the names of all groups. The pool lists some of them.
func groupNames() []string { return []string{"gpu", "gpu-big", "cpu", "gpu-big-2", "gp"} }

// divides divides the pool into its groups.
func (u *updates) divides(s *replicas.Spec[*worker], p *pool) {
	listed, plant := p.Spec.Groups, u.shape.plant
	if plant == AdoptsAll {
		for _, name := range groupNames() {
			if _, ok := p.wants()[name]; !ok {
				listed = append(listed, division{Name: name})
			}
		}
	}
	for i, g := range listed {
		group := replicas.Group[*worker]{Name: g.Name, Replicas: g.Replicas, MaxUnavailable: s.MaxUnavailable}
		plain := s.New
		group.New = func(name string) (*worker, error) {
			w, err := plain(name)
			w.Labels["group"], w.Labels["slot"] = g.Name, replicas.SlotIn(name)
			return w, err
		}
		if u.hasSlots(g.Name) {
			group.Slots = replicas.Ordinals(base(g.Name))
		}
		if surge := intstr.FromInt32(u.shape.surge); u.shape.surge > 0 {
			group.MaxSurge = &surge
		}
		if one := 1; u.shape.deletions && i == 1 {
			group.MaxDeletions = &one
		}
		s.Groups = append(s.Groups, group)
	}
	s.Replicas, s.Slots, s.New, s.MaxUnavailable = 0, nil, nil, nil
	s.GroupOf = func(w *worker) string {
		if _, ok := p.wants()[w.Labels["group"]]; !ok && plant == KeepsGone {
			return ""
		}
		return w.Labels["group"]
	}
	if u.shape.lots {
		s.SlotOf = func(w *worker) string { return w.Labels["slot"] }
	}
}

// retires lets the pool ask its workers to leave.
func (u *updates) retires(s *replicas.Spec[*worker]) {
	plant, discards := u.shape.plant, s.Rules.Discard
	s.Retire = func(w *worker, leaves bool) (c replicas.Change[*worker]) {
		if leaves && u.shape.sheds && !isReady(w) || !leaves && (hasDrained(w) || plant == NoRecall) {
			// A worker that is not ready has nothing to drain, and one that has drained is not taken back.
			return c
		}
		if c.To = w.DeepCopy(); leaves {
			// The mark names its request, so a worker that has drained for an earlier one is not taken for drained.
			u.ask(c.To, w.ResourceVersion)
		} else {
			u.ask(c.To, "")
		}
		return c
	}
	s.Rules.Leaving = func(w *worker) bool { return requestOf(w) != "" && plant != MarkIgnored }
	if !u.shape.ends {
		s.Rules.Discard = func(w *worker) bool {
			return discards != nil && discards(w) || hasDrained(w) || plant == AnyRequest && requestOf(w) != "" && w.Status.Drained != ""
		}
	}
	if u.shape.keeps {
		s.Rules.Active = func(w *worker) bool { return !hasEnded(w) }
	}
	if plant == Regretful && u.shape.goes {
		s.Rules.MustGo = func(w *worker) bool { return u.mustGo(w) && requestOf(w) == "" }
	}
}

// request is the key of the annotation that asks a worker to leave, in shapes whose mark is not in the spec.
const request = "request"

// ask sets the mark of a worker, or removes it if the request is "".
func (u *updates) ask(w *worker, asked string) {
	if w.Spec.Leave = ""; u.shape.inSpec {
		w.Spec.Leave = asked
		return
	}
	delete(w.Annotations, request)
	if asked != "" {
		metav1.SetMetaDataAnnotation(&w.ObjectMeta, request, asked)
	}
}

// requestOf returns the request that the mark of a worker names, or "".
func requestOf(w *worker) string { return cmp.Or(w.Spec.Leave, w.Annotations[request]) }

// hasDrained reports whether a worker has drained for the request that its mark names.
func hasDrained(w *worker) bool { return requestOf(w) != "" && w.Status.Drained == requestOf(w) }

func (u *updates) mustGo(w *worker) bool { return u.shape.goes && w.Labels["go"] != "" }

// goesAnyway reports whether a worker must go, or may have to because its change was refused as Invalid.
func (u *updates) goesAnyway(w *worker) bool { return u.mustGo(w) || u.invalid[w.UID] }

// drains lets the controller of the workers drain a worker, and delete it if the shape says so.
func (u *updates) drains(w *worker) {
	asked := requestOf(w)
	down := u.upTo(1 + u.drain)
	u.later(down, func() {
		_, _ = u.EditChild(context.Background(), namespace, w.Name, func(is *worker) {
			// The mark may have been taken back, or name another request.
			if is.UID == w.UID && requestOf(is) == asked {
				is.Status.Drained = asked
			}
		})
	})
	if !u.shape.ends {
		return
	}
	u.later(down+u.upTo(10*time.Second), func() {
		for _, is := range u.Children(namespace) {
			if is.UID == w.UID && requestOf(is) == asked && hasDrained(is) {
				u.seen["workers deleted by their own controller"]++
				_, _ = u.DeleteChild(context.Background(), namespace, w.Name, metav1.DeleteOptions{})
			}
		}
	})
}

// watch is called for each new process.
func (u *updates) watch(c *replicastest.Controller[*pool, *worker]) {
	u.clients = append(u.clients, inside.Of[*inside.Client[replicastest.Call]](c.Client))
	c.Client.Client = admission{c.Client.Client, u, c}
	c.Client.Fault = func(call replicastest.Call) replicastest.Fault {
		if u.during == call.Verb {
			u.during = ""
			u.meddle(call)
		}
		return u.fault(call)
	}
	c.Client.Done = func(call replicastest.Call, err error) { u.called(c, call, err) }
	sync := c.Sync
	c.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		u.read, u.failed = nil, nil
		again, err := sync(ctx, key)
		if u.shape.plant == Impatient {
			u.patchAll(ctx, c)
		}
		return again, err
	}
}

// begin is called when a process has taken the place of one that has ended.
func (u *updates) begin() {
	// What the last process knew has gone with it.
	u.own, u.sent, u.unsure, u.listed = map[types.UID]uint64{}, map[string]sending{}, map[string]bool{}, time.Time{}
	u.watch(u.controller)
}

// patchAll sends all changes that the cache asks for.
func (u *updates) patchAll(ctx context.Context, c *replicastest.Controller[*pool, *worker]) {
	p, ok := c.View.OwnerWatch.Get(namespace, "pool")
	if !ok {
		return
	}
	spec, _ := u.kind.Spec(p)
	u.wants = p.wants()
	for _, w := range c.View.ChildWatch.In(namespace) {
		change := spec.Update(w)
		if change.Object = w; change.To == nil || metav1.GetControllerOf(w) == nil {
			continue
		}
		if patch, err := change.Patch(); err == nil {
			_, _ = c.Client.Patch(ctx, w, patch, metav1.PatchOptions{})
		}
	}
}

// An admission stands between the client and the server: a webhook that undoes changes, and planted defects.
type admission struct {
	controller.Client[*pool, *worker]
	*updates
	of *replicastest.Controller[*pool, *worker]
}

// errQuota is the answer of a server whose quota is full.
var errQuota = apierrors.NewForbidden(schema.GroupResource{Resource: "workers"}, "", errors.New("exceeded quota: workers"))

func (a admission) Create(ctx context.Context, w *worker) (*worker, error) {
	switch {
	case a.refused != "" && a.refused == a.group(w):
		// A creation that times out here makes no worker, but the process cannot know that.
		a.seen["creations refused for one group"]++
		a.failed, a.unsure[w.Name] = a.refusal, apierrors.IsTimeout(a.refusal) || a.unsure[w.Name]
		return nil, a.refusal
	case a.failed != nil && a.shape.plant == OneForAll:
		return nil, a.failed
	case a.shape.plant == ByPrefix:
		for name, unsure := range a.unsure {
			if _, err := a.Get(ctx, namespace, name); err != nil && unsure && strings.HasPrefix(name, base(a.group(w))+"-") {
				w.Name = name
			}
		}
	}
	return a.Client.Create(ctx, w)
}

func (a admission) Patch(ctx context.Context, w *worker, patch selector.Patch, opts metav1.PatchOptions) (*worker, error) {
	var fields map[string]any
	if err := json.Unmarshal(patch.Data, &fields); err != nil || bytes.Contains(patch.Data, []byte("ownerReferences")) {
		// It is an adoption.
		return a.Client.Patch(ctx, w, patch, opts)
	}
	meta, _ := fields["metadata"].(map[string]any)
	if a.undo == 1 {
		delete(fields, "Spec")
		annotations, _ := meta["annotations"].(map[string]any)
		delete(annotations, request)
	}
	if a.shape.plant == Unversioned {
		delete(meta, "resourceVersion")
	}
	patch.Data, _ = json.Marshal(fields)
	patched, err := a.Client.Patch(ctx, w, patch, opts)
	a.count(w, err)
	if apierrors.IsInvalid(err) && a.shape.replaces {
		// Change.OrReplace: such a worker must go.
		a.invalid[w.UID] = true
	}
	return patched, err
}

// count counts the patches of a worker in an hour.
func (u *updates) count(w *worker, err error) {
	if err != nil {
		u.seen[fmt.Sprintf("changes answered with %q", cmp.Or(string(apierrors.ReasonForError(err)), "no status"))]++
	}
	if u.shape.marks && err != nil && !apierrors.IsConflict(err) {
		// Like a deletion, a mark that is refused or has no answer is sent again by each pass.
		return
	}
	hour := patchesIn{w.UID, u.clock.Now().Truncate(time.Hour)}
	if u.patches[hour]++; u.patches[hour] > mostPatches {
		u.err = cmp.Or(u.err, fmt.Errorf("chaos: worker %s is patched %d times in an hour", w.Name, u.patches[hour]))
	}
}

func (a admission) GetOwner(ctx context.Context, namespace, name string) (*pool, error) {
	if p, ok := a.of.View.OwnerWatch.Get(namespace, name); ok && a.shape.plant == OldOwner {
		return p.DeepCopy(), nil
	}
	return a.Client.GetOwner(ctx, namespace, name)
}

// later calls a function after the duration d.
func (u *updates) later(d time.Duration, do func()) {
	at := u.clock.Now().Add(d)
	i, _ := slices.BinarySearchFunc(u.todo, at, func(d deed, at time.Time) int { return cmp.Or(d.at.Compare(at), -1) })
	u.todo = slices.Insert(u.todo, i, deed{at, do})
}

// Due returns the time of the next deed, or of the next step of the second process.
func (u *updates) Due() (time.Time, bool) {
	due, ok := time.Time{}, false
	if u.second != nil {
		due, ok = u.second.Due()
	}
	if len(u.todo) > 0 && (!ok || !due.Before(u.todo[0].at)) {
		return u.todo[0].at, true
	}
	return due, ok
}

// Step does the next deed, or a step of the second process.
func (u *updates) Step() {
	switch at, ok := u.Due(); {
	case !ok || at.After(u.clock.Now()):
	case len(u.todo) > 0 && at.Equal(u.todo[0].at):
		next := u.todo[0]
		u.todo = u.todo[1:]
		next.do()
	default:
		u.second.Step()
	}
}

func (u *updates) upTo(most time.Duration) time.Duration {
	return time.Duration(u.random.Int64N(int64(most)))
}

// restarts lets the controller of the workers restart a worker whose spec has changed.
func (u *updates) restarts(w *worker) {
	edit := func(do func(*worker)) func() {
		return func() {
			_, _ = u.EditChild(context.Background(), namespace, w.Name, func(is *worker) {
				if is.UID == w.UID && is.Generation == w.Generation && !is.Status.Ended {
					do(is)
				}
			})
		}
	}
	// For up to half a minute, the status is still that of the old spec. A rule that looks only at Ready takes the
	// worker for changed and available, and the next one goes.
	down := u.upTo(30 * time.Second)
	u.later(down, edit(func(w *worker) { w.Status.Ready, w.Status.Observed = false, w.Generation }))
	u.later(down+u.upTo(30*time.Second), edit(func(w *worker) { w.Status.Ready = w.Status.Observed == w.Generation }))
}

// isOwned reports whether a worker belongs to the pool and has not ended.
func isOwned(w *worker) bool {
	return w != nil && metav1.GetControllerOf(w) != nil && w.Labels["app"] == "pool" && !hasEnded(w)
}

// stays reports whether an active worker of the pool is neither leaving nor being deleted.
func stays(w *worker) bool { return isOwned(w) && w.DeletionTimestamp == nil && requestOf(w) == "" }

// isUp reports whether a worker of the pool is available.
func isUp(w *worker) bool { return stays(w) && isReady(w) }

// holds reports whether a worker holds a place, so that no other may be created there.
func (u *updates) holds(w *worker) bool {
	switch {
	case !isOwned(w):
		return false
	case u.shape.keeps:
		// It counts until it is gone, or until it has drained and the pool may delete it.
		return u.shape.ends || !hasDrained(w)
	}
	// A worker that has not drained can be taken back, and must be before another is created.
	return stays(w) || w.DeletionTimestamp == nil && !hasDrained(w) && !u.goesAnyway(w)
}

func versionOf(w *worker) uint64 {
	if w == nil {
		return math.MaxUint64
	}
	version, _ := strconv.ParseUint(w.ResourceVersion, 10, 64)
	return version
}

// generationOf returns the generation of the pool from which a worker was made.
func generationOf(w *worker) int {
	n, _ := strconv.Atoi(w.Annotations[generation])
	return n
}

// landed judges each change of a worker on the server.
func (u *updates) landed(was, is *worker) error {
	call, late, own := inside.Of[*inside.Client[replicastest.Call]](u.controller.Client).Calling()
	if was != nil && is != nil && is.Generation != was.Generation {
		u.restarts(is)
	}
	if is != nil && requestOf(is) != "" && (was == nil || requestOf(was) != requestOf(is)) {
		u.drains(is)
	}
	if stays(is) && was != nil && requestOf(was) != "" && !own {
		// Another client has taken the mark off. The pool may already have another worker in the place of this one.
		u.orphans[u.group(is)]++
	}
	u.note(u.ups, was, is, own)
	u.note(u.stay, was, is, own)
	u.note(u.keep, was, is, own)
	// A process that no longer waits for the answer cannot know that its own call has landed.
	u.note(u.lacks, was, is, own && !late)
	u.note(u.leave, was, is, own && !late)
	if own && !late {
		u.own[cmp.Or(is, was).UID] = versionOf(is)
	}
	// A name that is sent again makes no second worker, so the line of creations does not hold for it.
	if was == nil && own && !late && u.second == nil && !u.unsure[is.Name] {
		return u.fits(u.lacks, is, "created, and %d stay or could be taken back")
	}
	if was != nil && is != nil && (requestOf(is) != requestOf(was) || u.group(is) != u.group(was)) && !own {
		u.turns[patchesIn{is.UID, u.clock.Now().Truncate(time.Hour)}] = 0
	}
	// What follows judges only what a process does.
	if !slices.ContainsFunc(u.clients, func(c *inside.Client[replicastest.Call]) bool { _, _, ok := c.Calling(); return ok }) {
		return nil
	}
	if err := u.divided(was, is, own && !late); err != nil || was == nil {
		return err
	}
	if is != nil && generationOf(is) < generationOf(was) {
		// generation(is) >= generation(was), however late the patch arrives: it carries the version that it was made
		// from.
		return fmt.Errorf("chaos: worker %s of generation %d is changed back to generation %d", is.Name, generationOf(was), generationOf(is))
	}
	if is != nil && generationOf(is) > generationOf(was) {
		u.seen[fmt.Sprintf("changes that landed (late: %v)", late)]++
	}
	if is != nil && (is.Spec != was.Spec || requestOf(is) != requestOf(was)) && u.undo == 2 {
		u.later(u.upTo(2*time.Second), func() {
			_, _ = u.EditChild(context.Background(), namespace, is.Name, func(w *worker) {
				w.Spec = was.Spec
				u.ask(w, requestOf(was))
			})
		})
	}
	if err := u.marked(was, is, late); err != nil {
		return err
	}
	if !own || u.second != nil {
		return nil
	}
	// A recall that is sent again was judged when it was first sent.
	if _, again := u.sent[keyOf(call)]; is != nil && requestOf(was) != "" && requestOf(is) == "" && !late && !again {
		return u.fits(u.leave, is, "taken back, and %d stay")
	}
	return u.taken(call, late, was, is)
}

// divided judges what a process does to a worker of a group.
func (u *updates) divided(was, is *worker, own bool) error {
	switch {
	case !u.shape.groups:
	case was == nil:
		// The name tells the group of a new worker. If a creation without an answer is sent again for a group whose
		// name begins alike, the other group lacks it.
		if name := replicas.SlotIn(is.Name); !u.hasSlots(u.group(is)) && name != base(u.group(is)) {
			return fmt.Errorf("chaos: worker %s is created in group %q", is.Name, u.group(is))
		}
	case metav1.GetControllerOf(was) != nil && u.group(was) == "":
		// A user has moved it out of all groups.
		return fmt.Errorf("chaos: worker %s of no group is touched", was.Name)
	case own && is != nil && metav1.GetControllerOf(was) == nil && metav1.GetControllerOf(is) != nil:
		// The worker may have moved since the cache showed it. One that is where the cache shows it must be in a listed
		// group.
		cached, ok := u.controller.View.ChildWatch.Get(namespace, was.Name)
		if pass := u.inside.Passing; ok && pass != nil && cached.UID == was.UID {
			if _, listed := pass.Owner.wants().with(u.read, most)[u.group(cached)]; !listed && u.group(cached) == u.group(was) {
				return fmt.Errorf("chaos: worker %s is adopted into group %q, which the pool does not list", was.Name, u.group(was))
			}
		}
	}
	return nil
}

// taken judges a change or deletion by the current process.
func (u *updates) taken(call replicastest.Call, late bool, was, is *worker) error {
	wants, ups, stay := u.wants, u.blind(u.ups), u.blind(u.stay)
	if u.goesAnyway(was) && stays(was) && !stays(is) {
		// See below: this worker is replaced at once, before the calls without an answer are settled.
		for key, sent := range u.sent {
			sent.replaced++
			u.sent[key] = sent
		}
	}
	if sent, ok := u.sent[keyOf(call)]; ok && (late || call.Verb == "delete" || u.shown(was) <= sent.version) {
		// This may be the sending that had no answer, so it counts what was known then, and the least that was wanted
		// since.
		wants, ups, stay = wants.with(sent.wants, least), sent.ups, sent.stay
	}
	group, place := u.group(was), u.at(was)
	if _, listed := wants[group]; isUp(was) && !isUp(is) && u.shape.limit != "" && listed {
		// available >= wanted - MaxUnavailable
		if n := u.number(u.ups, group, ups); n < u.least(wants[group]) {
			return fmt.Errorf("chaos: a %s of worker %s leaves %d available%s, want %d (late: %v)", call.Verb, was.Name, n, in(group), u.least(wants[group]), late)
		}
	}
	if stays(was) && !stays(is) && !u.goesAnyway(was) {
		// staying >= wanted. But a surplus worker was deleted without an answer, and then two that had to go, at once.
		// The creations count the first one for all that is known, so when its deletion takes effect there is one too
		// few.
		if n := u.number(u.stay, place, stay) + u.sent[keyOf(call)].replaced; n < u.wantsAt(wants, place) {
			return fmt.Errorf("chaos: a %s of worker %s leaves %d that stay%s, want %d (late: %v)", call.Verb, was.Name, n, in(place), u.wantsAt(wants, place), late)
		}
		if since := u.blind(u.keep); since.Before(stay) {
			stay = since
		}
		// In each slot, one that need not go must stay, and those that must go do not stand in for it.
		if n := u.number(u.keep, place, stay); n < u.wantsAt(wants, place) && u.shape.lots && u.hasSlots(group) {
			return fmt.Errorf("chaos: a %s of worker %s leaves %d that need not go%s, want %d (late: %v)", call.Verb, was.Name, n, in(place), u.wantsAt(wants, place), late)
		}
	}
	if is == nil || is.DeletionTimestamp != nil && was.DeletionTimestamp == nil {
		// A worker that could drain goes only when it has drained for the request that its mark names.
		if u.shape.marks && !hasEnded(was) && !hasDrained(was) && (!u.shape.sheds || isReady(was)) {
			return fmt.Errorf("chaos: worker %s is deleted, but it has not drained for the request %q", was.Name, requestOf(was))
		}
	}
	return nil
}

// marked judges marks that a process has set or taken back.
func (u *updates) marked(was, is *worker, late bool) error {
	if is == nil || requestOf(is) == requestOf(was) {
		return nil
	}
	hour := patchesIn{is.UID, u.clock.Now().Truncate(time.Hour)}
	if u.turns[hour]++; requestOf(is) == "" {
		u.seen[fmt.Sprintf("marks taken back (late: %v)", late)]++
	} else {
		u.seen[fmt.Sprintf("marks that landed (late: %v)", late)]++
		u.marks[hour]++
	}
	switch {
	case requestOf(is) == "" && u.mustGo(was):
		return fmt.Errorf("chaos: worker %s is taken back, but must go", is.Name)
	case requestOf(is) != "" && requestOf(was) != "":
		return fmt.Errorf("chaos: worker %s is asked to leave again, but it bears the mark", is.Name)
	case u.marks[hour] > mostMarks:
		return fmt.Errorf("chaos: worker %s is asked to leave %d times in an hour", is.Name, u.marks[hour])
	case u.turns[hour] > mostTurns:
		return fmt.Errorf("chaos: worker %s is asked to leave and taken back %d times in an hour", is.Name, u.turns[hour])
	}
	return nil
}

// fits judges a creation, or a mark that is taken back, by the current process. The workers in the tally do not count.
func (u *updates) fits(t tally, w *worker, what string) error {
	place := u.at(w)
	want := u.wantsAt(u.plans, place) + int(u.shape.surge)
	// In a rollout, a slot also has the workers that must go.
	for _, other := range u.Children(namespace) {
		want += one(u.shape.lots && u.shape.limit != "" && u.at(other) == place && stays(other) && u.goesAnyway(other))
	}
	n := len(u.Children(namespace)) - u.number(t, place, u.blind(t))
	// A creation without an answer holds its place, unless it is the one that has just landed.
	for name := range u.underway() {
		n += one(name != w.Name && u.placeOf(name) == place)
	}
	// holders + creations in flight <= wanted + MaxSurge
	if n > want {
		return fmt.Errorf("chaos: worker %s is "+what+"%s, want %d", w.Name, n, in(place), want)
	}
	return nil
}

// underway returns the names of the creations that will take effect although they had no answer.
func (u *updates) underway() sets.Set[string] {
	names := sets.New[string]()
	for _, call := range inside.Of[*inside.Client[replicastest.Call]](u.controller.Client).InFlight() {
		// While another worker has the name, nothing is made.
		if _, err := u.GetChild(context.Background(), namespace, call.Name); call.Verb == "create" && err != nil {
			names.Insert(call.Name)
		}
	}
	return names
}

// placeOf returns the place of a worker that is created under a name.
func (u *updates) placeOf(name string) string {
	slot, group := replicas.SlotIn(name), "gpu" // a slot
	for _, other := range groupNames() {
		if base(other) == slot {
			group = other
		}
	}
	return u.at(&worker{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"group": group, "slot": slot}}})
}

// note records a worker that others have moved or made another sort.
func (u *updates) note(t tally, was, is *worker, own bool) {
	for _, w := range []*worker{was, is} {
		if w == nil {
			continue
		}
		switch place := t.at(w); {
		case t.in(is, place):
			delete(t.lost, moved{w.UID, place})
		case t.in(was, place) && !own:
			t.lost[moved{w.UID, place}] = loss{u.clock.Now(), inside.Of[inside.Cluster](u.Cluster).Version()}
		}
	}
}

// number returns the number of workers of one sort in a place, with those that others have made another sort since a
// time.
func (u *updates) number(t tally, place string, since time.Time) (n int) {
	for _, w := range u.Children(namespace) {
		n += one(t.in(w, place))
	}
	for moved, l := range t.lost {
		n += one(moved.place == place && !l.at.Before(since))
	}
	return n
}

// blind returns the time since when the current process may not know which workers others have made another sort.
func (u *updates) blind(t tally) time.Time {
	since := u.clock.Now()
	cache, _ := strconv.ParseUint(inside.Of[inside.Stream](u.controller.View.ChildWatch).Version(), 10, 64)
	for moved, l := range t.lost {
		// It knows of a loss if its cache shows it, if a live list has followed, or if it has changed the worker itself
		// since.
		if l.version > cache && l.version > u.own[moved.UID] && !l.at.Before(u.listed) && l.at.Before(since) {
			since = l.at
		}
	}
	return since
}

// sets is called when a pass sets out to make its plan.
func (u *updates) sets(pass *controller.Pass[*pool, *worker]) {
	u.plans, u.wants = pass.Owner.wants(), pass.Owner.wants()
	// A plan for the cached pool must also be that of the pool as the pass has read it.
	if u.read != nil {
		u.wants = u.wants.with(u.read, most)
	}
	// A call without an answer must be right for each pass since, also for one that wants fewer.
	for key, sent := range u.sent {
		sent.wants = sent.wants.with(u.wants, least)
		u.sent[key] = sent
	}
}

// called is called after each call of a process.
func (u *updates) called(c *replicastest.Controller[*pool, *worker], call replicastest.Call, err error) {
	if call.Kind == "Pool" && call.Verb == "get" && err == nil {
		if p, err := u.GetOwner(context.Background(), namespace, "pool"); err == nil {
			u.read = p.wants()
		}
	}
	if call.Kind == "Worker" && call.Verb == "list" && call.Limit == 0 && err == nil && c == u.controller {
		u.listed = u.clock.Now()
	}
	if c == u.controller && call.Kind == "Worker" && (call.Verb == "patch" || call.Verb == "delete") {
		u.answered(call, err)
	}
	if c == u.controller && call.Kind == "Worker" && call.Verb == "create" && err != nil {
		u.unsure[call.Name] = true
	}
	if u.dies > 0 && c == u.controller && call.Verb != "create" && !u.isCreating() {
		// The next process would not know of a creation in flight, so none dies then.
		if u.dies--; u.dies == 0 {
			panic(replicastest.Crash{})
		}
	}
}

// isCreating reports whether a creation is in flight.
func (u *updates) isCreating() bool {
	return slices.ContainsFunc(inside.Of[*inside.Client[replicastest.Call]](u.controller.Client).InFlight(), func(call replicastest.Call) bool {
		return call.Verb == "create"
	})
}

// answered records a call without an answer.
func (u *updates) answered(call replicastest.Call, err error) {
	key := keyOf(call)
	sent, known := u.sent[key]
	carried, _ := strconv.ParseUint(call.ResourceVersion, 10, 64)
	switch {
	case err == nil:
		delete(u.sent, key)
	case isFinal(err):
		// It never lands, but one that was sent before still may.
	case known && (call.Verb == "delete" || carried <= sent.version):
		// It is sent again.
		sent.wants = sent.wants.with(u.wants, least)
		u.sent[key] = sent
	default:
		u.sent[key] = sending{u.blind(u.ups), u.blind(u.stay), carried, u.wants, 0}
	}
}

func keyOf(call replicastest.Call) string { return call.Verb + " " + call.Name }

// isFinal reports whether a call with this error has no effect, now or later.
func isFinal(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

// shown returns the version of a worker in the cache of the current process.
func (u *updates) shown(w *worker) uint64 {
	shown, ok := u.controller.View.ChildWatch.Get(w.Namespace, w.Name)
	if !ok {
		return 0
	}
	return versionOf(shown)
}

// change is what users, the server and other clients do.
func (u *updates) change(op Op) error { //nolint:funlen // a list of faults
	contents := []string{"a", "b", "c"}
	set := func(do func(*pool)) error {
		_, err := u.EditOwner(context.Background(), namespace, "pool", do)
		return err
	}
	content := func(is string) error { return set(func(p *pool) { p.Spec.Content = is }) }
	edit := func(name string, do func(*worker)) error {
		_, err := u.EditChild(context.Background(), namespace, name, do)
		return err
	}
	switch op.N {
	case 0:
		if op.M > 5 {
			u.snapshot()
		}
		return content(contents[op.M%3])
	case 1:
		u.stir(op.For/5, 20*op.For)
	case 2: // changed, and changed back: at once, or in the middle of the rollout
		p, err := u.GetOwner(context.Background(), namespace, "pool")
		if err != nil {
			return err
		}
		u.later(time.Duration(op.M%3)*op.For, func() { _ = content(p.Spec.Content) })
		return content(contents[op.M%3])
	case 3:
		return set(func(p *pool) { p.Spec.Note = contents[op.M%3] })
	case 4:
		if err := u.scale(op.M); err != nil {
			return err
		}
		return content(contents[op.M%3])
	case 5: // another client changes the worker that a call is about, between the read and the call
		u.during, u.meddle = []string{"patch", "patch", "delete", "get"}[op.M%4], func(call replicastest.Call) {
			_ = edit(call.Name, func(w *worker) {
				if op.M > 5 {
					w.Spec.Content = contents[op.M%3]
				}
				metav1.SetMetaDataAnnotation(&w.ObjectMeta, "touched", call.Verb)
			})
		}
	case 6:
		u.undo = op.M % 3
		u.later(20*op.For, func() { u.undo = 0 })
	case 7:
		u.Webhook = func(verb string, w *worker) error {
			if verb != "patch" || metav1.GetControllerOf(w) == nil || int(w.UID[5])%3 == op.M%4 {
				return nil
			}
			call := replicastest.Call{Verb: verb, Kind: "Worker", NamespacedName: types.NamespacedName{Namespace: w.Namespace, Name: w.Name}}
			return []failure.Failure{failure.Invalid, failure.Invalid, failure.Forbidden, failure.InternalError}[op.M%4].Of(call)
		}
		u.later(20*op.For, func() { u.Webhook = nil })
	case 8: // the pool changes during a pass
		u.during, u.meddle = []string{"patch", "get", "delete", "create"}[op.M%4], func(replicastest.Call) {
			if op.M > 5 {
				_ = u.scale(op.M)
				return
			}
			_ = content(contents[op.M%3])
		}
	case 9:
		u.lags(op)
	case 10:
		u.process(op)
	case 11:
		all := u.Children(namespace)
		if len(all) == 0 {
			return nil
		}
		return edit(all[op.M%len(all)].Name, func(w *worker) {
			if op.M > 3 {
				w.Status.Ready = false // it crashes, and comes up again
				u.later(u.upTo(time.Minute), func() { _ = edit(w.Name, func(w *worker) { w.Status.Ready = !w.Status.Ended }) })
				return
			}
			metav1.SetMetaDataLabel(&w.ObjectMeta, "go", "now")
		})
	}
	return nil
}

// stirMarks is what users and other clients do while workers leave.
func (u *updates) stirMarks(op Op) error {
	switch op.N % 7 {
	case 0, 1: // scaled down, and up again within about the lag of the cache
		was := int(u.wanted)
		u.later(time.Duration(op.M)*op.For/40, func() { _ = u.scale(was) })
		return u.scale(max(0, was-1-op.M%3))
	case 2, 3: // another client takes the mark of a worker off, or sets its own
		mark := []string{"", "other"}[op.N%2]
		all := slices.DeleteFunc(u.Children(namespace), func(w *worker) bool { return !isOwned(w) || (requestOf(w) == "") == (mark == "") })
		if len(all) == 0 {
			return nil
		}
		_, err := u.EditChild(context.Background(), namespace, all[op.M%len(all)].Name, func(w *worker) { u.ask(w, mark) })
		return err
	case 4:
		u.undo = op.M % 3
		u.later(20*op.For, func() { u.undo = 0 })
	case 5:
		u.drain = []time.Duration{0, 5 * time.Second, time.Minute, 3 * time.Minute}[op.M%4]
	case 6: // one must go
		all := u.Children(namespace)
		if len(all) == 0 {
			return nil
		}
		_, err := u.EditChild(context.Background(), namespace, all[op.M%len(all)].Name, func(w *worker) { metav1.SetMetaDataLabel(&w.ObjectMeta, "go", "now") })
		return err
	}
	return nil
}

// divide is what users do to the groups of the pool and their workers.
func (u *updates) divide(op Op) error {
	names := groupNames()
	name, free := names[op.M%len(names)], slices.DeleteFunc(groupNames(), func(g string) bool { return slices.Contains(u.lists, g) })
	i := op.M % len(u.lists)
	listed := func(groups []string) error {
		u.lists = groups
		return u.scale(int(u.wanted))
	}
	switch op.N % 9 {
	case 0: // a group goes, and is back within about the lag of the cache
		was := slices.Clone(u.lists)
		if len(was) > 1 {
			u.later(time.Duration(op.M)*op.For/40, func() { _ = listed(was) })
			return listed(slices.Delete(slices.Clone(was), i, i+1))
		}
	case 1:
		if len(u.lists) > 1 {
			return listed(slices.Delete(slices.Clone(u.lists), i, i+1))
		}
	case 2:
		if len(u.lists) < 4 {
			return listed(slices.Insert(slices.Clone(u.lists), i, free[0]))
		}
	case 3: // a group is renamed: the old one wants none, and a new one comes
		renamed := slices.Clone(u.lists)
		renamed[i] = free[op.M%len(free)]
		return listed(renamed)
	case 4, 5: // a worker moves to another group, or to none
		if all := slices.DeleteFunc(u.Children(namespace), func(w *worker) bool {
			return !isOwned(w) || u.shape.slots && u.hasSlots(u.group(w)) // its name would still fill the slot
		}); len(all) > 0 {
			if op.M == 0 {
				name = ""
			}
			u.orphans[name]++
			clear(u.turns)
			_, err := u.EditChild(context.Background(), namespace, all[op.M%len(all)].Name, func(w *worker) {
				w.Labels["group"], w.Labels["slot"] = name, fmt.Sprintf("%s-%d", base(name), op.M%3)
			})
			return err
		}
	case 6, 7: // the template of a group is refused, its quota is full, or its creations have no answer
		u.refuse(name, op.M)
		u.later(20*op.For, func() {
			if u.more == 0 { // see grow
				u.refused = ""
			}
		})
	case 8: // a worker of the group with slots must go
		all := slices.DeleteFunc(u.Children(namespace), func(w *worker) bool { return !isOwned(w) || u.group(w) != "gpu" })
		if len(all) > 0 {
			_, err := u.EditChild(context.Background(), namespace, all[op.M%len(all)].Name, func(w *worker) { w.Labels["go"] = "now" })
			return err
		}
	}
	return nil
}

// refuse lets the server refuse the creations of a group.
func (u *updates) refuse(group string, n int) {
	call := replicastest.Call{Verb: "create", Kind: "Worker"}
	u.refused, u.refusal = group, []error{errQuota, failure.Timeout.Of(call), failure.Invalid.Of(call)}[n%3]
}

// grow lets all groups grow while the creations of one are refused.
func (u *updates) grow() error {
	u.refuse(u.lists[u.random.IntN(len(u.lists))], u.random.IntN(3))
	u.more = 2
	return u.scale(int(u.wanted))
}

// grown ends the refusal, and returns an error if a group has not the right number, except the refused one.
func (u *updates) grown() error {
	p, err := u.GetOwner(context.Background(), namespace, "pool")
	if err != nil {
		return err
	}
	refused := u.refused
	u.refused = ""
	return u.exact(p.wants(), refused)
}

// A hit makes the next changes or deletions fail.
type hit struct {
	verb  string
	left  int
	fault replicastest.Fault
	// dark answers each further call for a worker until the late one has landed, but no call for other workers. Nil
	// answers none.
	dark error
}

// fault returns the fault of a call.
func (u *updates) fault(call replicastest.Call) replicastest.Fault {
	h := &u.hit
	switch {
	case u.clock.Now().Before(u.dark[call.Name]):
		return replicastest.Fault{Before: h.dark}
	case h.left == 0 || h.verb != call.Verb:
		return replicastest.Fault{}
	case h.dark != nil:
		u.dark[call.Name] = u.clock.Now().Add(h.fault.Late)
	}
	h.left--
	return h.fault
}

// fails lets changes or deletions fail, with no effect, with their effect, or with a late one.
func (u *updates) fails(op Op) {
	lost := failure.Lost()
	err := lost[op.M%len(lost)].Of(replicastest.Call{})
	u.hit = hit{verb: []string{"patch", "patch", "delete"}[op.M%3], left: 1 + op.M/3}
	switch op.N % 4 {
	case 0:
		u.hit.fault.Before = err
	case 1:
		u.hit.fault.After = err
	default:
		u.hit.fault = replicastest.Fault{Before: err, Late: time.Duration(1+4*op.N%37) * op.For}
		if op.N%4 == 3 {
			u.hit.dark = (failure.Failure(op.M) % failure.Failures).Of(replicastest.Call{})
		}
	}
}

// lags disturbs or resumes the watch of pools.
func (u *updates) lags(op Op) {
	watch := u.controller.View.OwnerWatch
	switch watch.Lag = lag; op.M % 4 {
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

// process lets the process die, restart, restart with lists of an old server, or work with a second one for a while.
func (u *updates) process(op Op) {
	if u.isCreating() {
		// See called.
		return
	}
	switch op.M % 6 {
	case 0:
		u.dies = 1 + op.M
	case 1:
		u.restart()
	case 2, 3:
		if u.old != nil {
			u.restart()
			inside.Of[inside.View](u.controller.View).ListFrom(inside.Of[inside.View](u.old), 8*op.For)
		}
	case 4:
		// Two processes are no term, so the judges of numbers rest.
		if u.second == nil {
			u.shared = true
			u.second = u.newController()
			u.watch(u.second)
			u.later(10*op.For, u.alone)
		}
	}
}

// snapshot saves what an old server will list.
func (u *updates) snapshot() {
	u.old = u.NewView()
	u.old.ChildWatch.Hang()
	u.old.OwnerWatch.Hang()
}

// stir annotates the pool again and again, so passes come at all times.
func (u *updates) stir(every, left time.Duration) {
	if every <= 0 || left <= 0 {
		return
	}
	_, _ = u.EditOwner(context.Background(), namespace, "pool", func(p *pool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "seen", u.clock.Now().String())
	})
	u.later(every, func() { u.stir(every, left-every) })
}

// alone ends the second process.
func (u *updates) alone() {
	if u.second != nil {
		u.second.View.Stop()
		u.second = nil
	}
}

// calm ends all that is against the controller.
func (u *updates) calm() {
	if u == nil {
		return
	}
	u.during, u.undo, u.dies, u.Webhook, u.hit, u.refused = "", 0, 0, nil, hit{}, ""
	clear(u.dark)
	u.alone()
	u.controller.View.OwnerWatch.Lag = lag
	u.controller.View.OwnerWatch.Relist()
	for _, w := range u.Children(namespace) {
		_, _ = u.EditChild(context.Background(), namespace, w.Name, func(w *worker) {
			if delete(w.Labels, "go"); u.shape.groups && u.group(w) == "" {
				u.ask(w, "")
			}
		})
	}
}

// settled returns an error if a worker is not as the pool wants it.
func (u *updates) settled(p *pool) error {
	for _, w := range u.Children(namespace) {
		if requestOf(w) != "" && (!u.shape.groups || u.group(w) != "") {
			return fmt.Errorf("chaos: worker %s bears the mark %q for ever", w.Name, requestOf(w))
		}
	}
	for _, w := range u.owned() {
		if u.shape.groups && u.group(w) == "" {
			continue
		}
		if w.Spec.Content != p.Spec.Content || w.Labels[note] != p.Spec.Note || !isReady(w) {
			return fmt.Errorf("chaos: worker %s has content %q and note %q, want %q and %q (%v)", w.Name, w.Spec.Content, w.Labels[note], p.Spec.Content, p.Spec.Note, w.Status)
		}
	}
	return nil
}
