// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
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

// An asker makes the calls of a pass, and notes them.
type asker[O, C Object] struct {
	Client[O, C]
	versioner Versioner // nil if the Client is none
	now       func() time.Time

	isReplica func(C) bool
	failure   func(format string, args ...any) error // that names the owner

	mu                   sync.Mutex // several calls are made at once
	calls                []Call
	creations, deletions allowance
}

// ErrNoRoom is in the error of a call that the Controller did not send, because it would leave more
// or fewer children than docs/guarantee.md promises. Whoever sees it has found a defect of the
// Controller: please report it.
var ErrNoRoom = errors.New("there is no room for this call")

// An allowance is how many calls there is room for, and how many were made.
type allowance struct{ room, made int }

// allow lets so many calls be made that change the number of replicas, and no others.
func (a *asker[O, C]) allow(creations, deletions int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.creations, a.deletions = allowance{room: creations}, allowance{room: deletions}
}

// take takes one call of an allowance, or refuses it.
func (a *asker[O, C]) take(of *allowance, what string, child C) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if of.made++; of.made <= of.room {
		return nil
	}
	return a.failure("%s of %q: %w: it is number %d, and there is room for %d", what, object.Name(child), ErrNoRoom, of.made, of.room)
}

// asks lets the pass make its calls through its asker.
func (p *pass[O, C]) asks() {
	a := &p.asker
	a.Client, a.now, a.isReplica, a.failure, p.client = p.reconciler.client, p.opts.Now, p.isReplica, p.failure, a
	if versioner, ok := a.Client.(Versioner); ok {
		a.versioner, p.client = versioner, versionAsker[O, C]{a}
	}
}

func (a *asker[O, C]) note(c Call, err error) {
	c.Ended, c.Err = a.now(), err
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, c)
}

// all returns the calls in the order in which they were answered.
func (a *asker[O, C]) all() []Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// about begins the note of a call about an object.
func about(verb string, obj metav1.Object, sent any) Call {
	return Call{Verb: verb, Namespace: obj.GetNamespace(), Name: obj.GetName(), sent: sent}
}

func (a *asker[O, C]) Create(ctx context.Context, child C) (C, error) {
	if err := a.take(&a.creations, "creation", child); err != nil {
		return child, err
	}
	call := about("Create", child, nil) // the client may change the child
	created, err := a.Client.Create(ctx, child)
	a.note(call, err)
	return created, err
}

func (a *asker[O, C]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) (string, error) {
	if a.isReplica(child) {
		if err := a.take(&a.deletions, "deletion", child); err != nil {
			return "", err
		}
	}
	left, err := a.Client.Delete(ctx, child, opts)
	a.note(about("Delete", child, opts), err)
	return left, err
}

func (a *asker[O, C]) Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	patched, err := a.Client.Patch(ctx, child, patch, opts)
	a.note(about("Patch", child, patch), err)
	return patched, err
}

func (a *asker[O, C]) Get(ctx context.Context, namespace, name string) (C, error) {
	child, err := a.Client.Get(ctx, namespace, name)
	a.note(Call{Verb: "Get", Namespace: namespace, Name: name}, err)
	return child, err
}

func (a *asker[O, C]) GetOwner(ctx context.Context, namespace, name string) (O, error) {
	owner, err := a.Client.GetOwner(ctx, namespace, name)
	a.note(Call{Verb: "GetOwner", Namespace: namespace, Name: name}, err)
	return owner, err
}

func (a *asker[O, C]) PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	stored, err := a.Client.PatchStatus(ctx, owner, patch)
	a.note(about("PatchStatus", owner, patch), err)
	return stored, err
}

// list is a live list, which other passes may share. See lists.
func (p *pass[O, C]) list(ctx context.Context, namespace string, matching labels.Selector) (List[C], error) {
	list, err := p.lists.get(ctx, namespace, matching)
	p.asker.note(Call{Verb: "List", Namespace: namespace, Name: matching.String()}, err)
	return list, err
}

// A versionAsker is an asker with a Client that is a Versioner.
type versionAsker[O, C Object] struct{ *asker[O, C] }

func (a versionAsker[O, C]) ServerOwnersVersion(ctx context.Context, namespace string) (string, error) {
	version, err := a.versioner.ServerOwnersVersion(ctx, namespace)
	a.note(Call{Verb: "ServerOwnersVersion", Namespace: namespace}, err)
	return version, err
}

func (a versionAsker[O, C]) ServerChildrenVersion(ctx context.Context, namespace string) (string, error) {
	version, err := a.versioner.ServerChildrenVersion(ctx, namespace)
	a.note(Call{Verb: "ServerChildrenVersion", Namespace: namespace}, err)
	return version, err
}
