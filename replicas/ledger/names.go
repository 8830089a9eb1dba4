// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/backoff"
)

// Landing is how long a request may still take effect after it was sent. This package assumes that no
// server takes longer than Landing.
const Landing = 5 * time.Minute

// firstLook is the first wait between two reads of a name from the server, if the name is not sent again.
// Each later wait is twice as long as the wait before it, up to lastLook.
const firstLook, lastLook = time.Second, time.Minute

// A Name is the name of a child whose creation was sent, perhaps several times, with an unknown result.
// To create another child, send this name again. A server has only one object with a name, so all
// creations under one name make at most one child.
type Name struct {
	types.NamespacedName

	// Sent is when the name was last sent.
	Sent time.Time
	// Bearer says which kind of object is known to have the name.
	Bearer Bearer

	open    int                 // how many creations under the name are not settled
	settled sets.Set[types.UID] // the children that settled one creation each
	look    backoff.Hold        // the wait for the next read of the name, if the name is not sent again
}

// A Bearer says which kind of object has a name.
type Bearer uint8

// These values of Bearer say how the object is related to the owner.
const (
	Nobody   Bearer = iota // no object, or the object is not known
	Replica                // a child that counts as a replica, or an orphan that the owner can adopt
	Leaver                 // another child of the owner, such as one that is being deleted
	Stranger               // an object that is neither a Replica nor a child of the owner; views may lack such objects
)

// IsTaken reports whether the name cannot be sent again now, because an object other than a replica has
// the name.
func (n Name) IsTaken() bool { return n.Bearer == Leaver || n.Bearer == Stranger }

// HasLanded reports whether all creations under the name have already taken effect or never will. If
// HasLanded is true, a read from the server that begins at now shows the final result.
func (n Name) HasLanded(now time.Time) bool { return now.Sub(n.Sent) >= Landing }

// NextLook returns how long to wait before the name is read from the server, if the name is not sent
// again. If the result is 0 or less, read the name now. While a replica has the name, the read can wait
// until all creations have landed, because no other child can have the name.
func (n Name) NextLook(now time.Time) time.Duration {
	if n.Bearer == Replica {
		return max(landsIn(n.Sent, now), n.look.Remaining(now))
	}
	return n.look.Remaining(now)
}

// landsIn returns how long a request that was sent at the time sent may still take effect. If the request
// can no longer take effect, the result is 0 or less.
func landsIn(sent, now time.Time) time.Duration { return Landing - max(now.Sub(sent), 0) }

// Sending notes that a creation under a name is being sent, or was being sent until now. The creation may
// take effect until Landing after now.
func (l *Ledger[C]) Sending(name types.NamespacedName, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.find(name)
	if n == nil {
		l.names = append(l.names, Name{NamespacedName: name})
		n = &l.names[len(l.names)-1]
	}
	n.open, n.Sent, n.look = n.open+1, now, backoff.Hold{}
}

// Refused notes that one creation under a name did not take effect and never will.
func (l *Ledger[C]) Refused(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.find(name); n != nil {
		l.settle(n)
	}
}

// Bears notes which object has a name. Each child of the owner settles only one creation. A later
// creation under the same name stays unsettled, because it did not make that child.
func (l *Ledger[C]) Bears(name types.NamespacedName, id types.UID, is Bearer, ours bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bears(name, id, is, ours)
}

func (l *Ledger[C]) bears(name types.NamespacedName, id types.UID, is Bearer, ours bool) {
	n := l.find(name)
	if n == nil {
		return
	}
	n.Bearer = is
	if ours && !n.settled.Has(id) {
		if n.settled == nil {
			n.settled = sets.New[types.UID]()
		}
		n.settled.Insert(id)
		l.settle(n)
	}
}

// NoneBears notes that the server has no object with a name.
func (l *Ledger[C]) NoneBears(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.find(name); n != nil {
		n.Bearer = Nobody
	}
}

// Looked notes that a name was read from the server between began and now. If all creations under the
// name had landed at began, Looked drops the name. Otherwise the next read follows after twice the last
// wait, or sooner if the creations land sooner.
func (l *Ledger[C]) Looked(name types.NamespacedName, began, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.find(name)
	switch {
	case n == nil:
	case n.HasLanded(began):
		l.drop(name)
	default:
		n.look.Double(now, firstLook, lastLook)
		if left := landsIn(n.Sent, now); left > 0 {
			n.look.Wait = min(n.look.Wait, left)
		}
	}
}

// Names returns the names whose creations are not settled, in the order in which they were first sent.
// The caller owns the slice.
func (l *Ledger[C]) Names() []Name {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.names)
}

// SentTo returns the namespace to which a creation under a name was sent, if that creation is not
// settled. Send the creation again to the same namespace.
func (l *Ledger[C]) SentTo(name string) (namespace string, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.names, func(n Name) bool { return n.Name == name })
	if i < 0 {
		return "", false
	}
	return l.names[i].Namespace, true
}

// Open returns the Names that no replica is known to have. A child may already have such a name or may
// still get it.
func (l *Ledger[C]) Open() []Name {
	return slices.DeleteFunc(l.Names(), func(n Name) bool { return n.Bearer == Replica })
}

// InFlight lists the calls that are not settled, so that they may have taken effect or may still do so.
// Copy the fields of InFlight into a replicas.Spec.
type InFlight struct {
	// Creations are the names from Open that can be sent again. The name that was sent last comes first.
	// Taken are the other names from Open. While another object has a name, no creation under that name
	// takes effect.
	Creations, Taken []string
	// Deletions are the UIDs from Doubted, sorted.
	Deletions []types.UID
}

// InFlight returns the calls that are not settled. The caller owns the slices.
func (l *Ledger[C]) InFlight() (is InFlight) {
	open := l.Open()
	slices.SortStableFunc(open, func(a, b Name) int { return b.Sent.Compare(a.Sent) })
	for _, n := range open {
		if n.IsTaken() {
			is.Taken = append(is.Taken, n.Name)
		} else {
			is.Creations = append(is.Creations, n.Name)
		}
	}
	if doubted := l.Doubted(); len(doubted) > 0 {
		is.Deletions = slices.Sorted(maps.Keys(doubted))
	}
	return is
}

func (l *Ledger[C]) find(name types.NamespacedName) *Name {
	i := slices.IndexFunc(l.names, func(n Name) bool { return n.NamespacedName == name })
	if i < 0 {
		return nil
	}
	return &l.names[i]
}

func (l *Ledger[C]) settle(n *Name) {
	if n.open--; n.open <= 0 {
		l.drop(n.NamespacedName)
	}
}

func (l *Ledger[C]) drop(name types.NamespacedName) {
	l.names = slices.DeleteFunc(l.names, func(n Name) bool { return n.NamespacedName == name })
}

// resolve notes which children in a view have the names. If no child in the view has a name, no object is
// known to have that name. Strangers keep their names, because views may lack Strangers.
func (l *Ledger[C]) resolve(children []C, rules Rules[C]) {
	if len(l.names) == 0 {
		return
	}
	open := make(sets.Set[types.NamespacedName], len(l.names))
	for i := range l.names {
		n := &l.names[i]
		if n.Bearer != Stranger {
			n.Bearer = Nobody
		}
		open.Insert(n.NamespacedName)
	}
	for _, c := range children {
		if name := nameOf(c); open.Has(name) {
			is, ours := rules.Bearer(c)
			l.bears(name, idOf(c), is, ours)
		}
	}
}
