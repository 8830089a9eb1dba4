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

// newCall returns a Call that describes a request about obj. When the request has ended, calls.record sets
// Ended and Err.
func newCall(verb string, obj metav1.Object, sent any) Call {
	return Call{Verb: verb, Namespace: obj.GetNamespace(), Name: obj.GetName(), body: sent}
}

// errNoAnswer is the error of a call that has not returned. If the client panics, errNoAnswer remains the
// error of the call.
var errNoAnswer = errors.New("the client did not return")

// calls holds the record of all API calls of one pass. It is safe for concurrent use.
type calls struct {
	mu                                 sync.Mutex
	returned                           []Call
	updateRoom, createRoom, deleteRoom allowance
}

// An allowance limits how many calls may be made. It consists of the limit (room) and the number of calls
// requested so far (used).
type allowance struct{ room, used int }

// allow sets how many replicas the pass may still change, create and delete.
func (c *calls) allow(updates, creations, deletions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updateRoom = allowance{room: updates}
	c.createRoom, c.deleteRoom = allowance{room: creations}, allowance{room: deletions}
}

// ErrOverLimit is wrapped in the error of a call that the Controller refused to send. If the call had been
// sent, the owner could have had more or fewer children than docs/guarantee.md promises. This error
// indicates a bug in the Controller, so please report it.
var ErrOverLimit = errors.New("there is no room for this call")

// take counts one call against an allowance. If the number of calls then exceeds the limit, take returns an
// error.
func (c *calls) take(limit *allowance, what, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit.used++; limit.used <= limit.room {
		return nil
	}
	return fmt.Errorf("%s of %q: %w: it is call %d, and there is room for %d", what, name, ErrOverLimit, limit.used, limit.room)
}

func (c *calls) record(call Call, ended time.Time, err error) {
	call.Ended, call.Err = ended, err
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned = append(c.returned, call)
}

// inOrder returns a copy of c.returned. Each call is added to the end of c.returned when it returns.
func (c *calls) inOrder() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.returned)
}

// A pass calls the API server only through the functions below. The functions that create, patch or delete
// children also record the result in the ledger. The argument start is the moment at which the batch of
// calls began.

func (p *pass[O, C]) askOwner(ctx context.Context) (O, error) {
	owner, err := p.client.GetOwner(ctx, p.Name.Namespace, p.Name.Name)
	p.calls.record(Call{Verb: "GetOwner", Namespace: p.Name.Namespace, Name: p.Name.Name}, p.opts.Now(), err)
	return owner, err
}

// askOwnersVersion returns a resourceVersion of the owners. The server has reported it in this term (see
// NewTerm). If there is none yet, askOwnersVersion asks the server. If the resourceVersion remains unknown,
// the result is "". The method askChildrenVersion does the same for the children.
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

// askList lists the children on the server, unless too many lists are under way.
func (p *pass[O, C]) askList(ctx context.Context) (list ledger.List[C], err error) {
	select {
	case p.lists <- struct{}{}:
		defer func() { <-p.lists }()
	default:
		return list, errListsBusy
	}
	limited, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("a list took more than %v", listTimeout))
	defer cancel()
	namespace, matching := p.Owner.GetNamespace(), p.spec.Selector
	list, err = p.client.List(limited, namespace, matching)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", context.Cause(limited), err)
	}
	p.calls.record(Call{Verb: "List", Namespace: namespace, Name: matching.String()}, p.opts.Now(), err)
	return list, err
}

// listsAtOnce is the maximum number of live lists that a Controller makes at the same time. The limit
// protects the server after an outage, when thousands of owners may need a list. Each Controller has its
// own limit, because Controllers may use different servers. No pass waits for its turn, because lists may hang
// and most passes need none.
const listsAtOnce = 2

// listTimeout is the maximum duration of one list. Without this limit, lists that hang could block all
// other lists forever.
const listTimeout = 30 * time.Second

var errListsBusy = errors.New("two live lists are under way")

// allLive lists the children that the owner's selector matches, and records the result in the ledger.
func (p *pass[O, C]) allLive(ctx context.Context, start ledger.Moment) (ledger.List[C], error) {
	list, err := p.askList(ctx)
	if err != nil {
		return list, err
	}
	if err := restores.NoticeOlder(p.restores, p.view.children, list.Items...); err != nil {
		return list, err
	}
	return list, p.state.known.Listed(start, list, p.snapshot, p.opts.Now())
}

// askPatch adopts or releases a child.
func (p *pass[O, C]) askPatch(ctx context.Context, start ledger.Moment, child C, patch selector.Patch) (C, error) {
	patched, err := p.sendPatch(ctx, child, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.state.known.ObserveDeleted(start, object.ID(child), p.opts.Now())
	case err == nil && !object.IsNil(patched):
		p.believe(start, patched)
	}
	return patched, err
}

// askUpdate sends a change or a recall, and records the answer in the ledger.
func (p *pass[O, C]) askUpdate(ctx context.Context, c *replicas.Change[C]) (patched C, err error) {
	if err := p.calls.take(&p.calls.updateRoom, "change", object.Name(c.Object)); err != nil {
		return patched, p.failure("%w", err)
	}
	if c.Recall {
		return p.askChange(ctx, c, ledger.Update, func(live C) replicas.Change[C] { return p.spec.Retire(live, false) })
	}
	return p.askChange(ctx, c, ledger.Update, p.spec.Update)
}

// askMark asks a child to leave.
func (p *pass[O, C]) askMark(ctx context.Context, c *replicas.Change[C]) (patched C, err error) {
	if p.isReplica(c.Object) {
		if err := p.calls.take(&p.calls.deleteRoom, "mark", object.Name(c.Object)); err != nil {
			return patched, p.failure("%w", err)
		}
	}
	return p.askChange(ctx, c, ledger.Delete, func(live C) replicas.Change[C] { return p.spec.Retire(live, true) })
}

func (p *pass[O, C]) askChange(ctx context.Context, c *replicas.Change[C], verb ledger.Verb, remake func(live C) replicas.Change[C]) (patched C, err error) {
	start := p.state.known.Start()
	if c.ReplacesList() {
		// The cache drops the environment of each container to save memory. A list is sent whole, so a new image would
		// have erased it. The change is therefore made from the child as the server has it.
		if err := p.fromLive(ctx, start, c, remake); err != nil {
			return patched, err
		}
	}
	patch, err := c.Patch()
	if err != nil {
		return patched, p.failure("%w", err)
	}
	start, err = p.state.known.Start(), errNoAnswer
	defer func() { p.noteChange(start, *c, verb, patched, err) }()
	patched, err = p.sendUpdate(ctx, c.Object, patch)
	return patched, err
}

// noteChange records the result of a change in the ledger. Of a Free change without an answer nothing is recorded,
// because no other child waits for it.
func (p *pass[O, C]) noteChange(start ledger.Moment, c replicas.Change[C], verb ledger.Verb, patched C, err error) {
	known, now, id := p.state.known, p.opts.Now(), object.ID(c.Object)
	switch {
	case err == nil:
		p.believe(start, patched)
		known.CallAnswered(id) // an earlier call carried the version of before, and can no longer take effect
	case isGone(c, err):
		known.ObserveDeleted(start, id, now)
		known.CallAnswered(id)
	case hadNoAnswer(err) && (!c.Free || c.Recall || verb == ledger.Delete):
		known.CallUnanswered(id, verb, c.Object.GetResourceVersion(), now)
	}
}

// isGone reports whether the answer to a change shows that the child does not exist. A server before 1.33 has no
// subresource "resize" of pods and answers with NotFound, too, and the pod lives.
func isGone[C Object](c replicas.Change[C], err error) bool {
	return apierrors.IsNotFound(err) && c.Subresource == ""
}

// sendUpdate sends a change. The answer must contain the child.
func (p *pass[O, C]) sendUpdate(ctx context.Context, child C, patch selector.Patch) (C, error) {
	patched, err := p.sendPatch(ctx, child, patch, metav1.PatchOptions{})
	if err == nil && object.IsNil(patched) {
		err = errNoObject
	}
	return patched, err
}

// sendPatch patches a child, possibly as a dry run.
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

// askCreate creates a child.
func (p *pass[O, C]) askCreate(ctx context.Context, start ledger.Moment, child C) (created C, err error) {
	if err := p.calls.take(&p.calls.createRoom, "creation", object.Name(child)); err != nil {
		return created, p.failure("%w", err)
	}
	// The client may decode the answer into its argument. Spec.New may have given all children one map, or a
	// map of the owner in the cache, so the client must not get these.
	sent, err := copyOf(child)
	if err != nil {
		return created, p.failure("%w", err)
	}
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
		err = newNotOursError(created)
	}
	err = p.explained(err, child)
	return created, err
}

// copyOf returns a deep copy of an object.
func copyOf[T Object](obj T) (T, error) {
	c, ok := obj.DeepCopyObject().(T)
	if !ok || object.IsNil(c) {
		return c, fmt.Errorf("%T.DeepCopyObject returned another type", obj)
	}
	return c, nil
}

// noteCreation records the result of a creation in the ledger. A creation without an answer may still take
// effect.
func (p *pass[O, C]) noteCreation(start ledger.Moment, name types.NamespacedName, child C, err error) {
	known, now := p.state.known, p.opts.Now()
	known.CreateSent(name, now)
	switch {
	case err == nil:
		known.NameHeld(name, object.ID(child), ledger.Replica, true)
		_ = known.Created(start, child, now) // askCreate has checked the name
	case errors.As(err, new(notOursError)):
		known.NameHeld(name, object.ID(child), ledger.OtherObject, true)
	case isFinal(err):
		known.CreateRejected(name)
	}
}

// askDelete deletes a child that the pass has chosen for deletion.
func (p *pass[O, C]) askDelete(ctx context.Context, start ledger.Moment, child C, opts metav1.DeleteOptions) (err error) {
	if p.isReplica(child) {
		if err := p.calls.take(&p.calls.deleteRoom, "deletion", object.Name(child)); err != nil {
			return p.failure("%w", err)
		}
	}
	err = errNoAnswer
	defer func() { p.noteDeletion(start, object.ID(child), versionOf(opts), err) }()
	err = p.client.Delete(ctx, child, opts)
	p.calls.record(newCall("Delete", child, opts), p.opts.Now(), err)
	return err
}

// noteDeletion records the result of a deletion in the ledger. A deletion without an answer may have taken
// effect already, or may still take effect.
func (p *pass[O, C]) noteDeletion(start ledger.Moment, id types.UID, carried string, err error) {
	known, now := p.state.known, p.opts.Now()
	switch {
	case err == nil:
		known.Deleted(id, now)
	case apierrors.IsNotFound(err):
		known.ObserveDeleted(start, id, now)
		known.CallAnswered(id)
	case hadNoAnswer(err):
		known.CallUnanswered(id, ledger.Delete, carried, now)
	}
}

// versionOf returns the resourceVersion in the preconditions of a deletion, or "" if there is none.
func versionOf(opts metav1.DeleteOptions) string {
	if conditions := opts.Preconditions; conditions != nil && conditions.ResourceVersion != nil {
		return *conditions.ResourceVersion
	}
	return ""
}

// askDeleteStray deletes a stray. A stray is a new child that a webhook changed so that it does not belong
// to the owner. The ledger stays unchanged, because a stray is none of the owner's children.
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
