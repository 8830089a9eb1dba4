// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// lookForCreated looks for a child whose creation failed. Whether it is there is
// known only if the server can be asked; what is not there may come yet.
func (p *pass[O, C]) lookForCreated(ctx context.Context, name types.NamespacedName, why error) (found C, err error) {
	if namespaceIsGoing(why) {
		p.state.names.resolved(name.Name)
		return found, why
	}
	found, there, err := p.find(ctx, name, apierrors.IsAlreadyExists(why))
	switch {
	case err != nil || !there:
		return found, why
	case !p.controls(found) || !p.rules.Active(found):
		p.state.names.resolved(name.Name) // the name is of no use any more
		return found, why
	}
	p.state.names.resolved(name.Name)
	if !p.isOurs(found) {
		return found, p.letGo(found)
	}
	p.wrote(found.GetResourceVersion())
	p.found.add(name.Name)
	return found, nil
}

// foundNames are the children that a look found after the answer was lost.
type foundNames struct {
	mu    sync.Mutex
	names sets.Set[string]
}

func (f *foundNames) add(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names == nil {
		f.names = sets.New[string]()
	}
	f.names.Insert(name)
}

// settleFound settles the creations of children that were found and that the cache
// has by now: their events may have come before they were expected.
func (p *pass[O, C]) settleFound(ctx context.Context) {
	if len(p.found.names) == 0 {
		return
	}
	cached, err := p.cache.Children(ctx, p.Owner)
	if err != nil {
		return // the events come, or the record expires
	}
	isNil := object.NilOf[C]()
	for _, c := range cached {
		if !isNil(c) && p.found.names.Has(c.GetName()) {
			p.pending.CreationObserved(p.key, c.GetName())
		}
	}
}

// fewReads is how many children a pass reads one by one: for more, a list is
// cheaper.
const fewReads = 3

// A look asks the server for a child by its name.
type look[C Object] func(ctx context.Context, name types.NamespacedName) (found C, there bool, err error)

// looks returns how to look for n children at once.
func (p *pass[O, C]) looks(ctx context.Context, n int) look[C] {
	if n <= fewReads {
		p.reads.Add(int64(n))
		return p.get
	}
	list, err := p.list(ctx)
	return func(_ context.Context, name types.NamespacedName) (found C, there bool, _ error) {
		return within(list.Items, name, err)
	}
}

// find looks for a child on the server. A list shows what the selector matches, so
// a child that must exist is always read.
func (p *pass[O, C]) find(ctx context.Context, name types.NamespacedName, mustExist bool) (found C, there bool, err error) {
	if p.reads.Add(1) <= fewReads || mustExist {
		return p.get(ctx, name)
	}
	p.reads.Add(-1)
	list, err := p.list(ctx)
	return within(list.Items, name, err)
}

func (p *pass[O, C]) get(ctx context.Context, name types.NamespacedName) (found C, there bool, err error) {
	found, err = p.client.Get(ctx, name.Namespace, name.Name)
	switch {
	case apierrors.IsNotFound(err):
		return found, false, nil
	case err == nil && object.IsNil(found):
		return found, false, errNoObject
	}
	return found, err == nil, err
}

// within looks for a child in a list, if there is one.
func within[C Object](items []C, name types.NamespacedName, err error) (found C, there bool, _ error) {
	i := slices.IndexFunc(items, func(c C) bool { return !object.IsNil(c) && nameOf(c) == name })
	if err != nil || i < 0 {
		return found, false, err
	}
	return items[i], true, nil
}

func nameOf(c metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}
}

// lookForUnwanted looks for creations without an answer that no plan asks for any
// more: what turns up is one too many, and goes like any other.
func (p *pass[O, C]) lookForUnwanted(ctx context.Context) {
	var due []unresolvedName
	for _, u := range p.state.names.all() {
		now := p.opts.Now()
		switch {
		case now.Sub(u.sent) > unresolvedKept:
			p.state.names.resolved(u.Name)
		case u.hold.remaining(now, 0) <= 0:
			due = append(due, u)
		}
	}
	look := p.looks(ctx, len(due))
	for _, u := range due {
		p.lookForOne(ctx, u, look)
	}
	for _, u := range p.state.names.all() {
		p.comeBack(max(u.hold.remaining(p.opts.Now(), 0), 1))
	}
}

func (p *pass[O, C]) lookForOne(ctx context.Context, u unresolvedName, look look[C]) {
	found, there, err := look(ctx, u.NamespacedName)
	if err == nil && there {
		p.state.names.resolved(u.Name)
		p.turnedUp(found)
		return
	}
	u.hold.double(p.opts.Now(), unresolvedFirst, unresolvedLast)
	p.state.names.put(u)
}

// turnedUp lets a child count that was found on the server, where nobody expected it.
func (p *pass[O, C]) turnedUp(found C) {
	if p.controls(found) && p.rules.Active(found) {
		p.state.proven.found(found, p.opts.Now())
		p.comeBack(1)
	}
}
