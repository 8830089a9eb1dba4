// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/selector"
)

// A recorder stands between a pass and what it asks, and notes the answers.
type recorder[O, C Object] struct {
	Client[O, C]
	Cache[O, C]
	now func() time.Time

	mu     sync.Mutex // several calls are made at once
	is     Recording
	events eventLog
}

// An eventLog takes the events that tell the ledger something while a pass is under way.
type eventLog struct {
	mu     sync.Mutex
	asked  int // the answers until now, of the server and of the cache
	events []recordedEvent
}

// A recordedEvent is what an event told after so many answers.
type recordedEvent struct {
	After int `json:"after"`
	// Left is a child that left the cache, as of a version if it is known.
	Left    types.UID `json:"left,omitempty"`
	Version string    `json:"version,omitempty"`
	// WentBack says that the owner went back to an older version.
	WentBack bool `json:"wentBack,omitempty"`
}

// note notes an event; nil takes none.
func (l *eventLog) note(e recordedEvent) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.After = l.asked
	l.events = append(l.events, e)
}

func (l *eventLog) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
}

// record makes a pass go through a recorder, if somebody wants recordings.
func (p *pass[O, C]) record() {
	if p.opts.Record == nil {
		return
	}
	r := &recorder[O, C]{Client: p.client, Cache: p.cache, now: p.opts.Now}
	r.is.Owner, r.is.Kind, r.is.ChildKind, r.is.Began = p.Name, p.kind.Owner, p.kind.Child, p.Now
	p.recorder, p.cache, p.client = r, r, r
	p.owners.takeEvents(p.Name, &r.events)
	versioner, isVersioner := r.Client.(Versioner)
	if isVersioner {
		p.client = versionRecorder[O, C]{r, versioner}
	}
	r.is.settings = recordedSettings{p.opts.MaxParallel, p.opts.ExpectationsTimeout, p.opts.BackOffFailed, isVersioner}
	live := p.list
	p.list = func(ctx context.Context, namespace string, matching labels.Selector) (List[C], error) {
		list, err := live(ctx, namespace, matching)
		r.note(Call{Verb: verbList, Namespace: namespace, Name: matching.String(), answer: data{is: list}}, err)
		return list, err
	}
	random := p.random
	p.random = func(n int) int {
		number := random(n)
		r.is.random = append(r.is.random, number)
		return number
	}
}

// hand hands the recording out, if the pass looked at its owner.
func (p *pass[O, C]) hand(ctx context.Context) {
	if p.recorder == nil || object.IsNil(p.Owner) {
		return
	}
	is := p.recorder.is
	is.events = p.recorder.events.events
	is.interrupted = ctx.Err() != nil
	if is.Took, is.RequeueAfter = p.Took, p.RequeueAfter; p.Err != nil {
		is.Err = p.Err.Error()
	}
	slices.SortStableFunc(is.Calls, func(a, b Call) int { return a.Ended.Compare(b.Ended) })
	p.opts.Record(is)
}

// recordBefore notes what is known of the owner, before the pass changes it.
func (p *pass[O, C]) recordBefore(stale expectations.Stale) {
	if p.recorder == nil {
		return
	}
	m := &p.recorder.is.known
	m.Distrusted, m.EventsCame = stale != (expectations.Stale{}), p.newest.any()
	m.StatusCounts, m.Stripped, m.Compared = p.statusCounts.Load(), p.whole.stripped.Load(), p.whole.compared.Load()
	m.TermBegan = p.termBegan
	p.term.mu.Lock()
	m.TermAsked, m.TermVersion = p.term.asked, p.term.version
	p.term.mu.Unlock()
	if state, remaining := p.pending.State(p.key); state != expectations.Satisfied {
		is, _ := p.pending.Get(p.key)
		m.Pending = recordedPending{slices.Clone(is.Creating), slices.Clone(is.Deleting), is.Creations, is.Deletions, remaining}
	}
	s := p.state
	if s == nil {
		return
	}
	m.Is, m.Ledger, m.Generation = true, data{is: s.known.Clone()}, s.generation
	if is := s.known.Owner(); is.Gone || is.Is != nil {
		m.OwnerIs, m.OwnerGone, m.OwnerVersion = data{is: is.Is}, is.Gone, is.Version
	}
	m.Owner, m.Strays, m.Deletions, m.Behind, m.Round = s.owner, s.strays, s.deletions, s.behind, s.round
	m.Creations, m.Strange, m.Aside = cloned(s.creations), cloned(s.strange), cloned(s.aside)
	m.LookedInTerm, m.OwnerInTerm = s.term == p.inTerm, s.ownerTerm == p.inTerm
	if s.status != nil {
		m.StatusSent, m.StatusStored = data{is: s.status.sent}, data{is: s.status.stored}
	}
	s.ready.mu.Lock()
	m.Ready = maps.Clone(s.ready.at)
	s.ready.mu.Unlock()
}

// recordPlan notes what the pass planned from.
func (p *pass[O, C]) recordPlan() {
	if p.recorder == nil {
		return
	}
	is := &p.recorder.is
	is.Desired, is.cache.Newest, is.Believed = p.Desired, p.snapshot.Newest, nil
	for _, c := range p.Active {
		is.Believed = append(is.Believed, c.GetName())
	}
}

// cloned copies a map and what its pointers point to.
func cloned[M ~map[K]*V, K comparable, V any](m M) M {
	if m == nil {
		return nil
	}
	clone := make(M, len(m))
	for k, v := range m {
		is := *v
		clone[k] = &is
	}
	return clone
}

// note notes a call and its answer.
func (r *recorder[O, C]) note(c Call, err error) {
	c.Ended, c.failure = r.now(), recordError(err)
	if err != nil {
		c.Err, c.answer = err.Error(), data{}
	}
	r.events.answered()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.is.Calls = append(r.is.Calls, c)
}

// callTo begins the record of a call about an object.
func callTo(verb string, obj metav1.Object, sent any) Call {
	return Call{Verb: verb, Namespace: obj.GetNamespace(), Name: obj.GetName(), sent: data{is: sent}}
}

func (r *recorder[O, C]) Create(ctx context.Context, child C) (C, error) {
	call := callTo(verbCreate, child, child.DeepCopyObject()) // the client may change it
	created, err := r.Client.Create(ctx, child)
	call.answer = data{is: created}
	r.note(call, err)
	return created, err
}

func (r *recorder[O, C]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) (string, error) {
	left, err := r.Client.Delete(ctx, child, opts)
	call := callTo(verbDelete, child, opts)
	call.answer = data{is: left}
	r.note(call, err)
	return left, err
}

// sentPatch is a patch as a Recording has it.
type sentPatch struct {
	Type types.PatchType `json:"type"`
	Data string          `json:"data"`
	// DryRun says that the server was only asked.
	DryRun bool `json:"dryRun,omitempty"`
}

func (r *recorder[O, C]) Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	patched, err := r.Client.Patch(ctx, child, patch, opts)
	call := callTo(verbPatch, child, sentPatch{patch.Type, string(patch.Data), len(opts.DryRun) > 0})
	call.answer = data{is: patched}
	r.note(call, err)
	return patched, err
}

func (r *recorder[O, C]) Get(ctx context.Context, namespace, name string) (C, error) {
	child, err := r.Client.Get(ctx, namespace, name)
	r.note(Call{Verb: verbGet, Namespace: namespace, Name: name, answer: data{is: child}}, err)
	return child, err
}

func (r *recorder[O, C]) GetOwner(ctx context.Context, namespace, name string) (O, error) {
	owner, err := r.Client.GetOwner(ctx, namespace, name)
	r.note(Call{Verb: verbGetOwner, Namespace: namespace, Name: name, answer: data{is: owner}}, err)
	return owner, err
}

func (r *recorder[O, C]) UpdateStatus(ctx context.Context, owner O) (O, error) {
	written, err := r.Client.UpdateStatus(ctx, owner)
	call := callTo(verbUpdateStatus, owner, owner)
	call.answer = data{is: written}
	r.note(call, err)
	return written, err
}

// A versionRecorder is a recorder of a Client that is a Versioner.
type versionRecorder[O, C Object] struct {
	*recorder[O, C]
	versioner Versioner
}

func (r versionRecorder[O, C]) ServerVersion(ctx context.Context, namespace string) (string, error) {
	version, err := r.versioner.ServerVersion(ctx, namespace)
	r.note(Call{Verb: verbServerVersion, Namespace: namespace, answer: data{is: version}}, err)
	return version, err
}

// The reads of the cache are those of the pass alone, one after the other.

func (r *recorder[O, C]) Owner(ctx context.Context, name types.NamespacedName) (O, error) {
	owner, err := r.Cache.Owner(ctx, name)
	r.is.cache.Owner = data{is: owner}
	return owner, err
}

func (r *recorder[O, C]) Children(ctx context.Context, owner O) ([]C, error) {
	children, err := r.Cache.Children(ctx, owner)
	r.is.cache.Children = append(r.is.cache.Children, recordRead(children, err))
	r.events.answered()
	return children, err
}

func (r *recorder[O, C]) Related(ctx context.Context, owner O) ([]C, error) {
	related, err := r.Cache.Related(ctx, owner)
	r.is.cache.Related = append(r.is.cache.Related, recordRead(related, err))
	r.events.answered()
	return related, err
}

func (r *recorder[O, C]) ChildrenVersion() string {
	r.is.cache.Version = r.Cache.ChildrenVersion()
	return r.is.cache.Version
}

// recordedRead is an answer of the cache.
type recordedRead struct {
	Children data           `json:"children,omitzero"`
	Error    *recordedError `json:"error,omitempty"`
}

func recordRead[C Object](children []C, err error) recordedRead {
	if err != nil {
		return recordedRead{Error: recordError(err)}
	}
	return recordedRead{Children: data{is: slices.Clone(children)}} // the slice is the cache's
}
