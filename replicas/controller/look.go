// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// fewReads is how many children a pass reads one by one: for more, a list is
// cheaper.
const fewReads = 3

// A look asks the server for children by their names. If it is one list for all of them, it
// may lack a child that is there and does not match.
type look[C Object] struct {
	start   ledger.Moment
	isList  bool
	version string // of the list
	find    func(ctx context.Context, name types.NamespacedName) (found C, there bool, err error)
}

// looks returns how to look for n children at once.
func (p *pass[O, C]) looks(ctx context.Context, n int) look[C] {
	start := p.state.known.Start()
	if p.LiveReads+n <= fewReads {
		p.LiveReads += n
		return look[C]{start: start, find: p.get}
	}
	list, err := p.allLive(ctx, start)
	return look[C]{start, true, list.ResourceVersion, func(_ context.Context, name types.NamespacedName) (found C, there bool, _ error) {
		return within(list.Items, name, err)
	}}
}

// allLive lists what the owner's selector matches, and notes all that it shows.
func (p *pass[O, C]) allLive(ctx context.Context, start ledger.Moment) (List[C], error) {
	list, err := p.list(ctx, p.Owner.GetNamespace(), p.spec.Selector)
	if !errors.As(err, new(heldError)) {
		p.LiveLists++
	}
	if err != nil {
		return list, err
	}
	if err := p.wentBack(list.Items...); err != nil {
		return list, err
	}
	return list, p.state.known.Listed(start, ledger.List[C]{Items: list.Items, Version: list.ResourceVersion}, p.snapshot, p.opts.Now())
}

func (p *pass[O, C]) get(ctx context.Context, name types.NamespacedName) (found C, there bool, err error) {
	found, err = p.client.Get(ctx, name.Namespace, name.Name)
	switch {
	case apierrors.IsNotFound(err):
		return found, false, nil
	case err == nil && object.IsNil(found):
		return found, false, errNoObject
	case err == nil && nameOf(found) != name:
		return found, false, fmt.Errorf("the read of %q was answered with %q", name, object.Name(found))
	case err == nil:
		err = p.wentBack(found)
	}
	return found, err == nil, err
}

// wentBack notes a restore if the server has a child in an earlier version than the view.
func (p *pass[O, C]) wentBack(found ...C) error {
	isNil, live := object.NilOf[C](), make(map[types.UID]C, len(found))
	for _, c := range found {
		if !isNil(c) {
			live[c.GetUID()] = c
		}
	}
	for _, shown := range p.children {
		if is, ok := live[shown.GetUID()]; ok {
			if err := p.restores.wentBack(is, shown); err != nil {
				return err
			}
		}
	}
	return nil
}

// within looks for a child in a list, if there is one.
func within[C Object](items []C, name types.NamespacedName, err error) (found C, there bool, _ error) {
	i := slices.IndexFunc(items, func(c C) bool { return !object.IsNil(c) && nameOf(c) == name })
	if err != nil || i < 0 {
		return found, false, err
	}
	return items[i], true, nil
}

// lacks notes that a look did not find a child.
func (p *pass[O, C]) lacks(l look[C], id types.UID) {
	if l.isList {
		p.state.known.Lacked(l.start, id, l.version, p.opts.Now())
		return
	}
	p.state.known.Gone(l.start, id, p.opts.Now())
}

// failedLook reports whether a look failed without which nothing can be created, or deleted,
// and tells of that.
func (p *pass[O, C]) failedLook(ctx context.Context, err error) bool {
	p.LookErr = err
	if err == nil {
		return false
	}
	if ctx.Err() == nil {
		p.tell(LookFailed, "Error looking for "+p.childResource.Resource+": "+err.Error())
	}
	p.gate(LookFailed, "", max(serverDelay([]error{err}), p.lists.retryIn(err)), err)
	return true
}

// lookForUnwanted looks for creations without an answer that no plan asks for any
// more: what turns up is one too many, and goes like any other.
func (p *pass[O, C]) lookForUnwanted(ctx context.Context) {
	due := slices.DeleteFunc(p.state.known.Names(), func(n ledger.Name) bool { return n.NextLook(p.opts.Now()) > 0 })
	_, _ = p.lookForNames(ctx, due) // what fails is looked for again
	for _, n := range p.state.known.Names() {
		p.comeBack(max(n.NextLook(p.opts.Now()), 1))
	}
}

// lookForOthers looks for creations without an answer that are not sent again, before
// other children are created. Nothing is created if one turns up, if a name that was taken
// may be sent again, or if the look fails.
func (p *pass[O, C]) lookForOthers(ctx context.Context, sent []string) (goOn bool, err error) {
	others := slices.DeleteFunc(p.state.known.Open(), func(n ledger.Name) bool { return slices.Contains(sent, n.Name) })
	turnedUp, err := p.lookForNames(ctx, others)
	switch {
	case errors.As(err, new(heldError)): // no error: lists are tried again later
		p.unlisted(err)
		return false, nil
	case p.failedLook(ctx, err):
		return false, p.failure("looking for creations without an answer: %w", err)
	}
	if turnedUp {
		p.gate(TurnedUp, "", 0, nil)
	}
	return !turnedUp, nil
}

// lookForNames looks for children by names that were sent, and reports whether one
// turned up that counts, or a name that was taken may be sent again. A name is resolved
// by a look that begins when nothing that was sent can take effect any more.
func (p *pass[O, C]) lookForNames(ctx context.Context, due []ledger.Name) (turnedUp bool, err error) {
	if len(due) == 0 {
		return false, nil
	}
	began := p.opts.Now()
	look := p.looks(ctx, len(due))
	for _, n := range due {
		found, there, lookErr := look.find(ctx, n.NamespacedName)
		switch {
		case lookErr != nil:
			p.state.known.PutOff(n.NamespacedName, p.opts.Now())
			if err == nil {
				err = lookErr
			}
			continue
		case there && n.Bearer == ledger.Replica: // which the view shows
			if !p.shows(found) {
				p.believe(look.start, found)
			}
			p.bears(found)
		case there:
			turnedUp = p.turnedUp(look.start, found) == ledger.Replica || turnedUp
		case look.isList && p.isUnlisted(n.NamespacedName): // so the name stays taken
		default:
			p.noneBears(look, n.NamespacedName)
			if n.IsTaken() && !n.HasLanded(began) { // it is sent again, and not another one
				turnedUp = true
				p.comeBack(1)
			}
		}
		p.state.known.Looked(n.NamespacedName, began, p.opts.Now())
	}
	return turnedUp, err
}

// shows reports whether the view has a child in the version in which it was found.
func (p *pass[O, C]) shows(found C) bool {
	return slices.ContainsFunc(p.children, func(c C) bool {
		return object.ID(c) == object.ID(found) && c.GetResourceVersion() == found.GetResourceVersion()
	})
}

// isUnlisted reports whether a child of that name does not match, such as one that was
// released: a list does not tell whether it is there.
func (p *pass[O, C]) isUnlisted(name types.NamespacedName) bool {
	return slices.ContainsFunc(p.children, func(c C) bool {
		return !object.IsNil(c) && nameOf(c) == name && !p.snapshot.Rules.MayCount(c)
	})
}

// noneBears notes that a look found no object of a name. The cache may show one for a while
// yet, or as long as its watch hangs.
func (p *pass[O, C]) noneBears(l look[C], name types.NamespacedName) {
	p.state.known.NoneBears(name)
	for _, c := range p.children {
		if !object.IsNil(c) && nameOf(c) == name {
			p.lacks(l, object.ID(c))
		}
	}
}

// turnedUp lets a child count that was found on the server, where nobody expected it.
func (p *pass[O, C]) turnedUp(start ledger.Moment, found C) ledger.Bearer {
	if (p.controls(found) || p.isOurs(found)) && p.rules.Active(found) {
		p.believe(start, found)
		p.comeBack(1)
	}
	return p.bears(found)
}

// bears notes which object has a name, and returns what that is to the owner.
func (p *pass[O, C]) bears(c C) ledger.Bearer {
	is, ours := p.snapshot.Rules.Bearer(c)
	p.state.known.Bears(nameOf(c), object.ID(c), is, ours)
	return is
}
