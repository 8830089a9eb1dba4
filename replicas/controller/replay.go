// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// ErrInterrupted is in the error of Replay if the context of the recorded pass ended: what
// the pass did then depends on the moment.
var ErrInterrupted = errors.New("the context of the pass ended")

// Replay plays a recorded pass again, without a server: what the pass asks is answered as it
// was then. It returns the calls that the pass makes now. If they are not those of the
// recording, the error says which is the first that differs: then the Kind, or this package,
// decides otherwise than it did. Calls that are made at once may be answered in another order.
//
// The Kind must be the one that was recorded, and its Observe is not called. Its BeforeScale
// is called, and makes its own calls again. Replay waits for nothing, and no event is sent. It is an error if the recording is of another kind or owner
// than it says, or cannot be read, or if the context of that pass ended.
func Replay[O, C Object](ctx context.Context, kind Kind[O, C], r Recording) ([]Call, error) {
	if err := kind.check(); err != nil {
		return nil, err
	}
	refuse := func(format string, args ...any) ([]Call, error) {
		return nil, fmt.Errorf("controller: the recording of %s %q: %w", r.Kind.Kind, r.Owner, fmt.Errorf(format, args...))
	}
	if r.Kind != kind.Owner || r.ChildKind != kind.Child {
		return refuse("it is of %v and %v, not of %v and %v", r.Kind, r.ChildKind, kind.Owner, kind.Child)
	}
	if r.interrupted {
		return refuse("%w", ErrInterrupted)
	}
	owner, err := as[O](r.cache.Owner)
	switch {
	case err != nil:
		return refuse("cache.owner: %w", err)
	case object.IsNil(owner):
		return refuse("it has no owner")
	case nameOf(owner) != r.Owner:
		return refuse("the owner in the cache is %q", object.Name(owner))
	}
	kind.Observe = nil
	p := &player[O, C]{r: r, owner: owner, now: r.Began, left: slices.Clone(r.Calls), random: slices.Clone(r.random)}
	again, err := p.reconciler(kind)
	if err != nil {
		return refuse("%w", err)
	}
	_, _ = again.sync(ctx, r.Owner) // the calls tell
	if p.err == nil && len(p.left) > 0 {
		p.err = fmt.Errorf("%s: it is not made any more", p.left[0].asked())
	}
	if p.err != nil {
		_, err = refuse("%w", p.err)
	}
	return p.made, err
}

// A player answers a pass as a Recording says.
type player[O, C Object] struct {
	r     Recording
	owner O

	mu                sync.Mutex // several calls are made at once
	now               time.Time
	left              []Call // that were not made again yet
	made              []Call
	random            []int
	children, related int   // how often they were read
	asked             int   // the answers until now
	err               error // the first difference
	// told tells the ledger of an event.
	told func(recordedEvent)
}

// reconciler returns one that knows what was known before the pass.
func (p *player[O, C]) reconciler(kind Kind[O, C]) (*reconciler[O, C], error) {
	opts := Options{
		Now: p.time, Random: p.number,
		MaxParallel: p.r.settings.MaxParallel, ExpectationsTimeout: p.r.settings.ExpectationsTimeout, BackOffFailed: p.r.settings.BackOffFailed,
	}.withDefaults()
	r, m := newReconciler(kind, p.client(), Cache[O, C](p), opts), p.r.known
	r.live, r.lists.random, r.pending.Jitter = p.List, func(int) int { return 0 }, nil
	r.newest.version, r.newest.came = p.r.cache.Newest, m.EventsCame
	r.statusCounts.Store(m.StatusCounts)
	r.whole.stripped.Store(m.Stripped)
	r.whole.compared.Store(m.Compared)
	r.term.began, r.term.children.asked = m.TermBegan, m.TermAsked
	p.recallVersion(&r.term.owners, verbServerOwnersVersion)
	p.recallVersion(&r.term.children, verbServerChildrenVersion)
	p.expect(r.pending)
	p.told = func(e recordedEvent) {
		if e.Left != "" {
			r.childLeft(expectations.KeyOf(p.owner), e.Left)
		} else {
			r.cacheWentBack(expectations.KeyOf(p.owner))
		}
	}
	if !m.Is && !m.Distrusted {
		return r, nil
	}
	s, _ := r.owners.of(expectations.KeyOf(p.owner), m.Generation, time.Time{})
	return r, p.recall(s, kind)
}

// recallVersion makes a version what the pass knew of it. If the pass did not ask the server
// then, as another one did, it does not ask now.
func (p *player[O, C]) recallVersion(v *serverVersion, verb string) {
	if !slices.ContainsFunc(p.left, func(c Call) bool { return c.Verb == verb }) {
		v.is, v.asking = p.r.known.TermVersions[verb], true
	}
}

// client returns the player, as a Versioner if the recorded one was so.
func (p *player[O, C]) client() Client[O, C] {
	if p.r.settings.Versioner {
		return p
	}
	return struct{ Client[O, C] }{p}
}

// expect makes a store expect what was expected, for as long as it was still to last.
func (p *player[O, C]) expect(store *expectations.Store[expectations.Key]) {
	is, timeout := p.r.known.Pending, store.Timeout
	changes := expectations.Changes{Creating: is.Creating, Deleting: is.Deleting, Creations: is.Creations, Deletions: is.Deletions}
	store.Timeout = max(is.Remaining, 1)
	if is.Remaining == 0 {
		p.now = p.r.Began.Add(-time.Second)
	}
	store.Set(expectations.KeyOf(p.owner), changes)
	store.Timeout, p.now = timeout, p.r.Began
}

// recall makes s what was known of the owner.
func (p *player[O, C]) recall(s *ownerState[C], kind Kind[O, C]) error {
	m := p.r.known
	known, err := as[*ledger.Ledger[C]](m.Ledger)
	if err != nil {
		return fmt.Errorf("known.ledger: %w", err)
	}
	if known != nil {
		s.known = known.Clone() // the recording may be played again
	}
	is, err := as[O](m.OwnerIs)
	if err != nil {
		return fmt.Errorf("known.ownerIs: %w", err)
	}
	if owner := (ledger.Owner{Gone: m.OwnerGone, Version: m.OwnerVersion}); m.OwnerGone || !object.IsNil(is) {
		if !object.IsNil(is) {
			owner.Is = is
		}
		s.known.OwnerTold(owner)
	}
	if m.Distrusted {
		s.known.Distrust()
	}
	s.owner, s.holds, s.behind, s.round, s.aside = m.Owner, cloned(m.Holds), m.Behind, m.Round, cloned(m.Aside)
	s.active, s.childLeft = m.Active, m.ChildLeft
	s.ready.at = maps.Clone(m.Ready)
	if s.term = 0; m.LookedInTerm {
		s.term = 1
	}
	if s.ownerTerm = 0; m.OwnerInTerm {
		s.ownerTerm = 1
	}
	if kind.StatusOf == nil || m.StatusSent.isNull() {
		return nil
	}
	sent, err := like(kind.StatusOf(p.owner), m.StatusSent)
	if err != nil {
		return fmt.Errorf("known.statusSent: %w", err)
	}
	stored, err := like(kind.StatusOf(p.owner), m.StatusStored)
	if err != nil {
		return fmt.Errorf("known.statusStored: %w", err)
	}
	s.status = &differing{sent, stored}
	return nil
}

// like returns the value of d, which is of the type of another one.
func like(other any, d data) (any, error) {
	if d.text == nil || other == nil {
		return d.is, nil
	}
	value := reflect.New(reflect.TypeOf(other))
	err := json.Unmarshal(d.text, value.Interface())
	return value.Elem().Interface(), err
}

func (p *player[O, C]) time() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// number returns the next random number, and 0 if none was needed then.
func (p *player[O, C]) number(int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.random) == 0 {
		return 0
	}
	number := p.random[0]
	p.random = p.random[1:]
	return number
}

// ask tells the events that came before an answer.
func (p *player[O, C]) ask() {
	p.mu.Lock()
	var came []recordedEvent
	for len(p.r.events) > 0 && p.r.events[0].After <= p.asked {
		came, p.r.events = append(came, p.r.events[0]), p.r.events[1:]
	}
	p.asked++
	p.mu.Unlock()
	for _, e := range came {
		p.told(e)
	}
}

// answer returns what a call was answered.
func answer[T any, O, C Object](p *player[O, C], call Call) (value T, err error) {
	p.ask()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = append(p.made, call)
	i := slices.IndexFunc(p.left, func(c Call) bool {
		return c.Verb == call.Verb && c.Namespace == call.Namespace && c.Name == call.Name
	})
	if i < 0 {
		return value, p.differs(fmt.Errorf("%s: it was not made then", call.asked()))
	}
	then := p.left[i]
	p.left = slices.Delete(p.left, i, i+1)
	was, err := json.Marshal(then.sent)
	is, otherErr := json.Marshal(call.sent)
	switch {
	case err != nil || otherErr != nil:
		return value, p.differs(errors.Join(err, otherErr))
	case !sameJSON(was, is):
		return value, p.differs(fmt.Errorf("%s %s/%s: it sent %s then, and sends %s now", call.Verb, call.Namespace, call.Name, was, is))
	}
	if then.Ended.After(p.now) {
		p.now = then.Ended
	}
	made := &p.made[len(p.made)-1]
	made.Ended, made.Err, made.answer, made.failure = then.Ended, then.Err, then.answer, then.failure
	if value, err = as[T](then.answer); err != nil {
		return value, p.differs(fmt.Errorf("%s: the answer: %w", call.asked(), err))
	}
	return value, then.failure.err()
}

// differs notes the first difference.
func (p *player[O, C]) differs(err error) error {
	if p.err == nil {
		p.err = err
	}
	return err
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func (p *player[O, C]) Create(_ context.Context, child C) (C, error) {
	return answer[C](p, callTo(verbCreate, child, child))
}

func (p *player[O, C]) Delete(_ context.Context, child C, opts metav1.DeleteOptions) (string, error) {
	return answer[string](p, callTo(verbDelete, child, opts))
}

func (p *player[O, C]) Patch(_ context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	return answer[C](p, callTo(verbPatch, child, sentPatch{patch.Type, string(patch.Data), len(opts.DryRun) > 0}))
}

func (p *player[O, C]) Get(_ context.Context, namespace, name string) (C, error) {
	return answer[C](p, Call{Verb: verbGet, Namespace: namespace, Name: name})
}

func (p *player[O, C]) List(_ context.Context, namespace string, matching labels.Selector) (List[C], error) {
	return answer[List[C]](p, Call{Verb: verbList, Namespace: namespace, Name: matching.String()})
}

func (p *player[O, C]) GetOwner(_ context.Context, namespace, name string) (O, error) {
	return answer[O](p, Call{Verb: verbGetOwner, Namespace: namespace, Name: name})
}

func (p *player[O, C]) UpdateStatus(_ context.Context, owner O) (O, error) {
	return answer[O](p, callTo(verbUpdateStatus, owner, owner))
}

func (p *player[O, C]) ServerOwnersVersion(_ context.Context, namespace string) (string, error) {
	return answer[string](p, Call{Verb: verbServerOwnersVersion, Namespace: namespace})
}

func (p *player[O, C]) ServerChildrenVersion(_ context.Context, namespace string) (string, error) {
	return answer[string](p, Call{Verb: verbServerChildrenVersion, Namespace: namespace})
}

func (p *player[O, C]) Owner(context.Context, types.NamespacedName) (O, error) { return p.owner, nil }

func (p *player[O, C]) Owners(context.Context, string) ([]O, error) { return []O{p.owner}, nil }

func (p *player[O, C]) Children(context.Context, O) ([]C, error) {
	p.ask()
	return read[C](p.r.cache.Children, &p.children)
}

func (p *player[O, C]) Related(context.Context, O) ([]C, error) {
	p.ask()
	return read[C](p.r.cache.Related, &p.related)
}

// read returns the next answer of the cache, and the last one again if there is no other.
func read[C Object](reads []recordedRead, n *int) ([]C, error) {
	if len(reads) == 0 {
		return nil, nil
	}
	is := reads[min(*n, len(reads)-1)]
	*n++
	if is.Error != nil {
		return nil, is.Error.err()
	}
	return as[[]C](is.Children)
}

// OwnersVersion is not known, as no write is to be waited for.
func (p *player[O, C]) OwnersVersion() string   { return "" }
func (p *player[O, C]) ChildrenVersion() string { return p.r.cache.Version }
