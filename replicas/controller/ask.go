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
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// A Call is one call to the server, and whether it failed.
type Call struct {
	// Verb is the name of the method of Client or Versioner.
	Verb string
	// Namespace and Name are those of the object. For a list, Name is the selector.
	Namespace, Name string
	// Ended is when the answer came, and Err is the error; nil if there was none.
	Ended time.Time
	Err   error

	sent any // the options of a delete, or a patch
}

// String describes the call in one line, such as
//
//	Delete shop/web-7 {"preconditions":{"uid":"..."}}: not found
func (c Call) String() string {
	text := c.Verb
	if c.Name != "" || c.Namespace != "" {
		text += " " + strings.TrimPrefix(c.Namespace+"/"+c.Name, "/")
	}
	switch sent := c.sent.(type) {
	case nil:
	case selector.Patch:
		text += " " + string(sent.Data)
	default:
		if options, err := json.Marshal(sent); err == nil {
			text += " " + string(options)
		}
	}
	if c.Err != nil {
		text += ": " + c.Err.Error()
	}
	return text
}

// ErrNoRoom is in the error of a call that the Controller did not send, because it would leave more
// or fewer children than docs/guarantee.md promises. Whoever sees it has found a defect of the
// Controller: please report it.
var ErrNoRoom = errors.New("there is no room for this call")

// errNoAnswer is that of a call until the client returns, which it does not if it panics.
var errNoAnswer = errors.New("the client did not return")

// calls are those of a pass. Several are made at once.
type calls struct {
	mu                   sync.Mutex
	made                 []Call
	creations, deletions allowance
}

// An allowance is how many calls there is room for, and how many were made.
type allowance struct{ room, made int }

// allow lets so many calls be made that change the number of replicas, and no others.
func (c *calls) allow(creations, deletions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creations, c.deletions = allowance{room: creations}, allowance{room: deletions}
}

// take takes one call of an allowance, or refuses it.
func (c *calls) take(of *allowance, what, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.made++; of.made <= of.room {
		return nil
	}
	return fmt.Errorf("%s of %q: %w: it is number %d, and there is room for %d", what, name, ErrNoRoom, of.made, of.room)
}

func (c *calls) note(call Call, ended time.Time, err error) {
	call.Ended, call.Err = ended, err
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, call)
}

// all returns the calls in the order in which they were answered.
func (c *calls) all() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made)
}

// about begins the note of a call about an object.
func about(verb string, obj metav1.Object, sent any) Call {
	return Call{Verb: verb, Namespace: obj.GetNamespace(), Name: obj.GetName(), sent: sent}
}

// What follows is all that a pass does to the server, and what it asks it. A call that changes a child
// tells the ledger itself what its end shows; start is when its batch began. What was deleted is told
// at the end of all deletions.

// askCreate creates a child.
func (p *pass[O, C]) askCreate(ctx context.Context, start ledger.Moment, child C) (created C, err error) {
	if err := p.calls.take(&p.calls.creations, "creation", object.Name(child)); err != nil {
		return created, p.failure("%w", err)
	}
	call, name := about("Create", child, nil), nameOf(child) // the client may change the child
	err = errNoAnswer
	defer func() { p.noteCreation(start, name, created, err) }()
	created, err = p.client.Create(ctx, child)
	p.calls.note(call, p.opts.Now(), err)
	switch {
	case err != nil:
	case object.IsNil(created):
		err = errNoObject // nothing tells which child it made
	case nameOf(created) != name:
		err = fmt.Errorf("the creation of %q was answered with %q", name, object.Name(created))
	case !p.isOurs(created):
		err = strange(created)
	}
	err = p.explained(err, child)
	return created, err
}

// noteCreation notes what the end of a creation says about its name. One that had no answer may
// take effect yet.
func (p *pass[O, C]) noteCreation(start ledger.Moment, name types.NamespacedName, child C, err error) {
	known, now := p.state.known, p.opts.Now()
	known.Sending(name, now)
	switch {
	case err == nil:
		known.Bears(name, object.ID(child), ledger.Replica, true)
		_ = known.Created(start, child, now) // its name was checked
	case errors.As(err, new(strangeError)):
		known.Bears(name, object.ID(child), ledger.Stranger, true)
		known.Stray(child)
	case isFinal(err):
		known.Refused(name)
	}
}

// askDelete deletes a victim.
func (p *pass[O, C]) askDelete(ctx context.Context, start ledger.Moment, child C, opts metav1.DeleteOptions) (err error) {
	if p.isReplica(child) {
		if err := p.calls.take(&p.calls.deletions, "deletion", object.Name(child)); err != nil {
			return p.failure("%w", err)
		}
	}
	err = errNoAnswer
	defer func() { p.noteDeletion(start, object.ID(child), carried(opts), err) }()
	return p.sendDelete(ctx, child, opts)
}

// noteDeletion notes what the end of a deletion says about a child. One that had no answer may have
// taken effect all the same, or may do so yet.
func (p *pass[O, C]) noteDeletion(start ledger.Moment, id types.UID, carried string, err error) {
	known, now := p.state.known, p.opts.Now()
	switch {
	case apierrors.IsNotFound(err):
		known.Gone(start, id, now)
		known.Sure(id)
	case hadNoAnswer(err):
		known.Doubt(id, carried, now)
	}
}

// hadNoAnswer reports whether it is not known what became of a deletion.
func hadNoAnswer(err error) bool {
	return err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !isRefusal(err) && !errors.Is(err, ErrNoRoom)
}

// carried is the resourceVersion that a deletion carries, "" if none.
func carried(opts metav1.DeleteOptions) string {
	if only := opts.Preconditions; only != nil && only.ResourceVersion != nil {
		return *only.ResourceVersion
	}
	return ""
}

// sendDelete deletes a victim, or a stray.
func (p *pass[O, C]) sendDelete(ctx context.Context, child C, opts metav1.DeleteOptions) error {
	err := p.client.Delete(ctx, child, opts)
	p.calls.note(about("Delete", child, opts), p.opts.Now(), err)
	return err
}

// askPatch adopts or releases a child.
func (p *pass[O, C]) askPatch(ctx context.Context, start ledger.Moment, child C, patch selector.Patch) (C, error) {
	patched, err := p.sendPatch(ctx, child, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.state.known.Gone(start, object.ID(child), p.opts.Now())
	case err != nil || object.IsNil(patched):
	case nameOf(patched) != nameOf(child):
		err = fmt.Errorf("the patch of %q was answered with %q", object.Name(child), object.Name(patched))
	default:
		p.believe(start, patched)
	}
	return patched, err
}

// sendPatch sends a patch, or tries one with the options of a dry run.
func (p *pass[O, C]) sendPatch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	patched, err := p.client.Patch(ctx, child, patch, opts)
	p.calls.note(about("Patch", child, patch), p.opts.Now(), err)
	return patched, err
}

func (p *pass[O, C]) askStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	stored, err := p.client.PatchStatus(ctx, owner, patch)
	p.calls.note(about("PatchStatus", owner, patch), p.opts.Now(), err)
	return stored, err
}

func (p *pass[O, C]) askChild(ctx context.Context, name types.NamespacedName) (C, error) {
	child, err := p.client.Get(ctx, name.Namespace, name.Name)
	p.calls.note(Call{Verb: "Get", Namespace: name.Namespace, Name: name.Name}, p.opts.Now(), err)
	return child, err
}

func (p *pass[O, C]) askOwner(ctx context.Context) (O, error) {
	owner, err := p.client.GetOwner(ctx, p.Name.Namespace, p.Name.Name)
	p.calls.note(Call{Verb: "GetOwner", Namespace: p.Name.Namespace, Name: p.Name.Name}, p.opts.Now(), err)
	return owner, err
}

// askList makes a live list, which other passes may share. See lists.
func (p *pass[O, C]) askList(ctx context.Context) (List[C], error) {
	namespace, matching := p.Owner.GetNamespace(), p.spec.Selector
	list, err := p.lists.get(ctx, namespace, matching)
	p.calls.note(Call{Verb: "List", Namespace: namespace, Name: matching.String()}, p.opts.Now(), err)
	return list, err
}

// askOwnersVersion and askChildrenVersion ask how far the server has come with a resource, if that
// is not known yet, and return what is known then.
func (p *pass[O, C]) askOwnersVersion(ctx context.Context, of Versioner) string {
	return p.askVersion(ctx, &p.term.owners, "ServerOwnersVersion", of.ServerOwnersVersion)
}

func (p *pass[O, C]) askChildrenVersion(ctx context.Context, of Versioner) string {
	return p.askVersion(ctx, &p.term.children, "ServerChildrenVersion", of.ServerChildrenVersion)
}

func (p *pass[O, C]) askVersion(ctx context.Context, of *serverVersion, verb string, ask func(context.Context, string) (string, error)) string {
	namespace := p.Owner.GetNamespace()
	return of.ask(p.opts.Now, func() (string, error) {
		version, err := ask(ctx, namespace)
		p.calls.note(Call{Verb: verb, Namespace: namespace}, p.opts.Now(), err)
		return version, err
	})
}
