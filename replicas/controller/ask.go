// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/internal/restores"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// A Call describes one call to the API server and its result.
type Call struct {
	// Verb is the method of Client or Versioner that was called, such as Create.
	Verb string
	// Namespace and Name identify the object. For a list, Name is the selector.
	Namespace, Name string
	// Ended is the time at which the call returned. Err is the error that the call returned, or nil.
	Ended time.Time
	Err   error

	body   any // the options of a delete, or the patch that was sent
	dryRun bool
}

// String describes the call in one line, such as
//
//	Delete shop/web-7 {"preconditions":{"uid":"..."}}: not found
func (c Call) String() string {
	text := c.Verb
	if c.Name != "" || c.Namespace != "" {
		text += " " + strings.TrimPrefix(c.Namespace+"/"+c.Name, "/")
	}
	if c.dryRun {
		text += " dry run"
	}
	switch sent := c.body.(type) {
	case nil:
	case selector.Patch:
		if sent.Subresource != "" {
			text += " " + sent.Subresource
		}
		text += " " + string(sent.Data)
	default:
		if options, err := json.Marshal(sent); err == nil {
			text += " " + string(options)
		}
	}
	if c.Err != nil {
		text += ": " + oneLine(c.Err)
	}
	return text
}

func newCall(verb string, obj metav1.Object, sent any) Call {
	return Call{Verb: verb, Namespace: obj.GetNamespace(), Name: obj.GetName(), body: sent}
}

// errNoAnswer is the error of a call that has not returned, and it stays the error of one in which the client panics.
var errNoAnswer = errors.New("the client did not return")

// callLog holds the API callLog of one pass, and how many more it may make. It is safe for concurrent use.
type callLog struct {
	mu                                 sync.Mutex
	returned                           []Call
	updateRoom, createRoom, deleteRoom allowance
}

// An allowance is the room for calls of one kind. Of those that asked for it (used), min(used, room) are sent.
type allowance struct{ room, used int }

// setRoom sets how many replicas the pass may still change, create and delete.
func (c *callLog) setRoom(updates, creations, deletions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updateRoom = allowance{room: updates}
	c.createRoom, c.deleteRoom = allowance{room: creations}, allowance{room: deletions}
}

// ErrOverLimit is wrapped in the error of a call that the Controller refused to send, because after it the owner could
// have had more or fewer children than docs/guarantee.md promises. It indicates a bug in the Controller, so please
// report it.
var ErrOverLimit = errors.New("there is no room for this call")

// reserve must be called before a call is sent, and returns an error if there is no room for it.
func (c *callLog) reserve(limit *allowance, what, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Only a bug in an earlier step brings a call here without room, and then an error is better than a pod too few.
	if limit.used++; limit.used <= limit.room {
		return nil
	}
	return fmt.Errorf("%s of %q: %w: it is call %d, and there is room for %d", what, name, ErrOverLimit, limit.used, limit.room)
}

func (c *callLog) record(call Call, ended time.Time, err error) {
	call.Ended, call.Err = ended, err
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned = append(c.returned, call)
}

// inOrder returns the calls, sorted by the time of the answer.
func (c *callLog) inOrder() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.returned)
}

// A pass calls the API server only through the functions below. Those that create, patch or delete children have
// recorded the answer in the ledger when they return, so the ledger has all answers of a batch before the next batch
// begins. A moment must not be later than its call, so the moment start of a batch serves all calls of the batch.

func (p *pass[O, C]) askOwner(ctx context.Context) (O, error) {
	owner, err := p.client.GetOwner(ctx, p.Name.Namespace, p.Name.Name)
	p.calls.record(Call{Verb: "GetOwner", Namespace: p.Name.Namespace, Name: p.Name.Name}, p.opts.Now(), err)
	return owner, err
}

// askOwnersVersion returns a resourceVersion that the server has reported for owners in this term (see NewTerm), or ""
// if none is known.
func (p *pass[O, C]) askOwnersVersion(ctx context.Context, versioner Versioner) string {
	return p.askVersion(ctx, &p.term.owners, "ServerOwnersVersion", versioner.ServerOwnersVersion)
}

func (p *pass[O, C]) askChildrenVersion(ctx context.Context, versioner Versioner) string {
	return p.askVersion(ctx, &p.term.children, "ServerChildrenVersion", versioner.ServerChildrenVersion)
}

func (p *pass[O, C]) askVersion(ctx context.Context, server *serverVersion, verb string, ask func(context.Context, string) (string, error)) string {
	namespace := p.Owner.GetNamespace()
	return server.ask(p.opts.Now, func() (string, error) {
		version, err := ask(ctx, namespace)
		p.calls.record(Call{Verb: verb, Namespace: namespace}, p.opts.Now(), err)
		return version, err
	})
}

// askList lists the children on the server, unless the Controller has two lists under way.
func (p *pass[O, C]) askList(ctx context.Context) (list ledger.List[C], err error) {
	select {
	case p.lists <- struct{}{}:
		defer func() { <-p.lists }()
	default:
		// Two lists hang, each for half a minute. A pass that waited for its turn would keep a worker from owners that
		// need no list, so this one comes again in a second.
		return list, errListsBusy
	}
	limited, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("a list took more than %v", listTimeout))
	defer cancel()
	namespace, matching := p.Owner.GetNamespace(), p.spec.Selector
	list, err = p.client.List(limited, namespace, matching)
	if err != nil && limited.Err() != nil && ctx.Err() == nil { // our limit has ended the list, and not the caller
		err = fmt.Errorf("%w: %w", context.Cause(limited), err)
	}
	p.calls.record(Call{Verb: "List", Namespace: namespace, Name: matching.String()}, p.opts.Now(), err)
	return list, err
}

// listsAtOnce is how many live lists a Controller has under way at most. It spares the server after an outage, when
// thousands of owners may need a list. Each Controller has its own, because Controllers may use different servers.
const listsAtOnce = 2

// listTimeout is how long a list may take, because two lists that hang for ever would bar all others.
const listTimeout = 30 * time.Second

var errListsBusy = errors.New("two live lists are under way")

// allLive lists the children that the selector matches, and records the list in the ledger.
func (p *pass[O, C]) allLive(ctx context.Context, start ledger.Moment) (ledger.List[C], error) {
	list, err := p.askList(ctx)
	if err != nil {
		return list, err
	}
	if err := restores.NoticeOlder(p.restores, p.view.children, list.Items...); err != nil { // older than the view: a restore
		return list, err
	}
	return list, p.state.ledger.Listed(start, list, p.snapshot, p.opts.Now())
}

// askPatch adopts or releases a child.
func (p *pass[O, C]) askPatch(ctx context.Context, start ledger.Moment, child C, patch selector.Patch) (C, error) {
	patched, err := p.sendPatch(ctx, child, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		// The child to release is gone, but the cache shows it. Without this note, each pass would release it again.
		p.state.ledger.ObserveDeleted(start, object.ID(child), p.opts.Now())
	case err == nil && !object.IsNil(patched):
		// The cache still shows an orphan. Without the answer in the ledger, each pass would adopt it again.
		p.observe(start, patched)
	}
	return patched, err
}

func (p *pass[O, C]) askUpdate(ctx context.Context, c *replicas.Change[C]) (patched C, err error) {
	if err := p.calls.reserve(&p.calls.updateRoom, "change", object.Name(c.Object)); err != nil { // changed + recalled <= room
		return patched, p.failure("%w", err)
	}
	if c.Recall {
		return p.askChange(ctx, c, ledger.Update, func(live C) replicas.Change[C] { return p.spec.Retire(live, false) })
	}
	return p.askChange(ctx, c, ledger.Update, p.spec.Update)
}

// askMark asks a child to leave, by the mark of Spec.Retire.
func (p *pass[O, C]) askMark(ctx context.Context, c *replicas.Change[C]) (patched C, err error) {
	if p.isReplica(c.Object) { // a mark is a deletion by another call, so deleted + marked <= room
		if err := p.calls.reserve(&p.calls.deleteRoom, "mark", object.Name(c.Object)); err != nil {
			return patched, p.failure("%w", err)
		}
	}
	return p.askChange(ctx, c, ledger.Delete, func(live C) replicas.Change[C] { return p.spec.Retire(live, true) })
}

func (p *pass[O, C]) askChange(ctx context.Context, c *replicas.Change[C], verb ledger.Verb, remake func(live C) replicas.Change[C]) (patched C, err error) {
	start := p.state.ledger.Start()
	if c.ReplacesList() {
		// The cache drops the environment of each container to save memory. A merge patch sends the whole list of
		// containers, so a new image would erase the environment. The change is made again from the child on the server.
		if err := p.fromLive(ctx, start, c, remake); err != nil {
			return patched, err
		}
	}
	patch, err := c.Patch()
	if err != nil {
		return patched, p.failure("%w", err)
	}
	// The note is set up before the patch is sent. So if the client panics, the ledger has a change without an answer.
	start, err = p.state.ledger.Start(), errNoAnswer
	defer func() { p.noteChange(start, *c, verb, patched, err) }()
	patched, err = p.sendUpdate(ctx, c.Object, patch)
	return patched, err
}

func (p *pass[O, C]) noteChange(start ledger.Moment, c replicas.Change[C], verb ledger.Verb, patched C, err error) {
	known, now, id := p.state.ledger, p.opts.Now(), object.ID(c.Object)
	switch {
	case err == nil:
		// The cache shows web-a ready, as it was before the patch. By the answer it is not ready until it runs the new
		// template, so the next pass leaves web-b as it is.
		p.observe(start, patched)
		known.CallAnswered(id) // an earlier call carried the version of before, and can no longer take effect
	case isGone(c, err):
		known.ObserveDeleted(start, id, now)
		known.CallAnswered(id)
	case hadNoAnswer(err) && (!c.Free || c.Recall || verb == ledger.Delete):
		// One of three may be unavailable, and the change of web-a had no answer. It may have landed, so web-a counts as
		// unavailable, and web-b must wait. No child waits for a Free change, which makes none unavailable.
		known.CallUnanswered(id, verb, c.Object.GetResourceVersion(), now)
	}
}

// isGone reports whether the answer to a change shows that the child does not exist.
func isGone[C Object](c replicas.Change[C], err error) bool {
	// A server before 1.33 has no subresource "resize" and answers the change of a living pod with NotFound, too.
	return apierrors.IsNotFound(err) && c.Subresource == ""
}

// sendUpdate sends a change, whose answer must contain the child.
func (p *pass[O, C]) sendUpdate(ctx context.Context, child C, patch selector.Patch) (C, error) {
	patched, err := p.sendPatch(ctx, child, patch, metav1.PatchOptions{})
	if err == nil && object.IsNil(patched) {
		err = errNoObject
	}
	return patched, err
}

func (p *pass[O, C]) sendPatch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	patched, err := p.client.Patch(ctx, child, patch, opts)
	call := newCall("Patch", child, patch)
	call.dryRun = len(opts.DryRun) > 0
	p.calls.record(call, p.opts.Now(), err)
	if err == nil && !object.IsNil(patched) && nameOf(patched) != nameOf(child) {
		err = fmt.Errorf("the patch of %q was answered with %q", object.Name(child), object.Name(patched))
	}
	return patched, err
}

func (p *pass[O, C]) askCreate(ctx context.Context, start ledger.Moment, child C) (created C, err error) {
	if err := p.calls.reserve(&p.calls.createRoom, "creation", object.Name(child)); err != nil {
		return created, p.failure("%w", err)
	}
	// Thirty creations run at once, and Spec.New gave all children the map of labels that the owner in the cache has.
	// A client that decodes the answer into its argument would write into this map, so it gets a copy.
	sent, err := copyOf(child)
	if err != nil {
		return created, p.failure("%w", err)
	}
	// The note is set up before the request is sent. If the client panics, the child may still exist. So its name must be
	// in flight then, and the next pass sends this name again and not a second one.
	name := nameOf(child)
	err = errNoAnswer
	defer func() { p.noteCreation(start, name, created, err) }()
	created, err = p.client.Create(ctx, sent)
	p.calls.record(newCall("Create", child, nil), p.opts.Now(), err)
	switch {
	case err != nil:
	case object.IsNil(created):
		err = errNoObject // the answer does not say which child was created
	case nameOf(created) != name:
		err = fmt.Errorf("the creation of %q was answered with %q", name, object.Name(created))
	case !p.isOurs(created), p.groupOf(created) != p.groupOf(child):
		// A webhook took the labels from web-bbbbb. If web-bbbbb counted as created, the next pass would find it missing
		// and create one more, and so would each pass after it.
		err = newNotOursError(created)
	}
	err = p.explained(err, child)
	return created, err
}

func copyOf[T Object](obj T) (T, error) {
	c, ok := obj.DeepCopyObject().(T)
	if !ok || object.IsNil(c) {
		return c, fmt.Errorf("%T.DeepCopyObject returned another type", obj)
	}
	return c, nil
}

func (p *pass[O, C]) noteCreation(start ledger.Moment, name types.NamespacedName, child C, err error) {
	known, now := p.state.ledger, p.opts.Now()
	// The answer was lost: web-bbbbb may exist, or may appear within five minutes. A pod under another name would be one
	// too many. So the name holds a place and is sent again, until one of the answers below or a read settles it.
	known.CreateSent(name, now)
	switch {
	case err == nil:
		known.NameHeld(name, object.ID(child), ledger.Replica, true)
		_ = known.Created(start, child, now) // askCreate has checked the name
	case errors.As(err, new(notOursError)): // the request has taken effect, although its child is not ours
		known.NameHeld(name, object.ID(child), ledger.OtherObject, true)
	case isFinal(err):
		known.CreateRejected(name)
	}
}

// askDelete deletes a child that the pass has chosen for deletion.
func (p *pass[O, C]) askDelete(ctx context.Context, start ledger.Moment, child C, opts metav1.DeleteOptions) (err error) {
	if p.isReplica(child) { // a child that has ended or leaves already has no place in the room
		if err := p.calls.reserve(&p.calls.deleteRoom, "deletion", object.Name(child)); err != nil {
			return p.failure("%w", err)
		}
	}
	err = errNoAnswer // before the call, as in askCreate
	defer func() { p.noteDeletion(start, object.ID(child), versionOf(opts), err) }()
	err = p.client.Delete(ctx, child, opts)
	p.calls.record(newCall("Delete", child, opts), p.opts.Now(), err)
	return err
}

func (p *pass[O, C]) noteDeletion(start ledger.Moment, id types.UID, carried string, err error) {
	known, now := p.state.ledger, p.opts.Now()
	switch {
	case err == nil:
		known.Deleted(id, now)
	case apierrors.IsNotFound(err):
		known.ObserveDeleted(start, id, now) // or each pass would choose it again until the cache shows that it is gone
		known.CallAnswered(id)
	case hadNoAnswer(err):
		// The answer for web-a was lost, and web-a is there. If the next pass chose web-b, and the first call took effect
		// late, both would go. So web-a counts as gone when others are chosen, and goes first.
		known.CallUnanswered(id, ledger.Delete, carried, now)
		// A refusal has no case: an earlier call for the child, without an answer, may still take effect.
	}
}

// versionOf returns the resourceVersion that a deletion carries, or "".
func versionOf(opts metav1.DeleteOptions) string {
	if conditions := opts.Preconditions; conditions != nil && conditions.ResourceVersion != nil {
		return *conditions.ResourceVersion
	}
	return ""
}

// askDeleteStray deletes a stray. The ledger learns nothing of it, because a stray is none of the owner's children.
func (p *pass[O, C]) askDeleteStray(ctx context.Context, stray C, opts metav1.DeleteOptions) error {
	err := p.client.Delete(ctx, stray, opts)
	p.calls.record(newCall("Delete", stray, opts), p.opts.Now(), err)
	return err
}

func (p *pass[O, C]) askChild(ctx context.Context, name types.NamespacedName) (C, error) {
	child, err := p.client.Get(ctx, name.Namespace, name.Name)
	p.calls.record(Call{Verb: "Get", Namespace: name.Namespace, Name: name.Name}, p.opts.Now(), err)
	return child, err
}

func (p *pass[O, C]) readChild(ctx context.Context, name types.NamespacedName) (found C, there bool, err error) {
	found, err = p.askChild(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return found, false, nil
	case err == nil && object.IsNil(found):
		return found, false, errNoObject
	case err == nil && nameOf(found) != name:
		return found, false, fmt.Errorf("the read of %q returned %q", name, object.Name(found))
	case err == nil:
		err = restores.NoticeOlder(p.restores, p.view.children, found)
	}
	return found, err == nil, err
}

func (p *pass[O, C]) askStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	stored, err := p.client.PatchStatus(ctx, owner, patch)
	p.calls.record(newCall("PatchStatus", owner, patch), p.opts.Now(), err)
	return stored, err
}
