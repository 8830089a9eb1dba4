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

// Landing is how long a request may still take effect after it was sent. No server
// takes longer.
const Landing = 5 * time.Minute

// The next look at a name that is not sent again follows after the first of these, and
// later after twice as long as before.
const firstLook, lastLook = time.Second, time.Minute

// A Name is one under which creations were sent that may have taken effect, or may do so
// yet. To create another child, send this name again: a server has one object of a
// name, so that makes at most one child.
type Name struct {
	types.NamespacedName

	// Sent is when it was sent last.
	Sent time.Time
	// Bearer is the object that has the name, as far as was seen.
	Bearer Bearer

	open    int                 // how many sendings nothing has settled
	settled sets.Set[types.UID] // the children that have settled one each
	look    backoff.Hold        // until the next look, if it is not sent again
}

// A Bearer is the object that has a name.
type Bearer uint8

// What an object that has a name is to the owner.
const (
	Nobody   Bearer = iota // none, or it is not known
	Replica                // a child of the owner that counts, or an orphan that it can adopt
	Leaver                 // another child of the owner, such as one that is being deleted
	Stranger               // an object that is not the owner's: views may not show it
)

// IsTaken reports whether the name cannot be sent again now, though no replica bears it.
func (n Name) IsTaken() bool { return n.Bearer == Leaver || n.Bearer == Stranger }

// HasLanded reports whether all requests that were sent under the name have taken effect by
// now or never will. A look that begins then tells what became of them.
func (n Name) HasLanded(now time.Time) bool { return now.Sub(n.Sent) >= Landing }

// NextLook returns how long it takes until the name is to be looked for, if it is not
// sent again: 0 or less if now. While a replica bears it, no other child can.
func (n Name) NextLook(now time.Time) time.Duration {
	if n.Bearer == Replica {
		return max(landsIn(n.Sent, now), n.look.Remaining(now))
	}
	return n.look.Remaining(now)
}

// landsIn returns how long a request that was sent then may still take effect: 0 or less if
// it cannot.
func landsIn(sent, now time.Time) time.Duration { return Landing - max(now.Sub(sent), 0) }

// Sending notes that a creation is sent under a name, or was until now: it may take effect Landing after
// that.
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

// Bears notes which object has a name. A child of the owner settles one creation. A child
// that has done so before settles no other: it bore the name before it was sent again.
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

// NoneBears notes that the server has no object of a name.
func (l *Ledger[C]) NoneBears(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.find(name); n != nil {
		n.Bearer = Nobody
	}
}

// Looked notes that the server was asked for a name, from began until now. If all requests
// had landed by then, nothing can take effect any more, and the name is dropped. Otherwise
// the next look is after twice as long as before, or when they have landed.
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

// Names returns the names that nothing has settled, in the order in which they were first
// sent. The slice is the caller's.
func (l *Ledger[C]) Names() []Name {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.names)
}

// SentTo returns the namespace that a creation was sent to under a name which nothing has
// settled: there it is to be sent again.
func (l *Ledger[C]) SentTo(name string) (namespace string, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.names, func(n Name) bool { return n.Name == name })
	if i < 0 {
		return "", false
	}
	return l.names[i].Namespace, true
}

// Open returns those of Names that no replica bears: a child may have each of them, or
// get it yet.
func (l *Ledger[C]) Open() []Name {
	return slices.DeleteFunc(l.Names(), func(n Name) bool { return n.Bearer == Replica })
}

// InFlight are the calls that nothing has settled: they may have taken effect, or may do so
// yet. They are for the Spec of package replicas.
type InFlight struct {
	// Creations are the names of Open that can be sent again, the one that was sent last
	// first. Taken are the others: as long as another object has the name, no request takes
	// effect.
	Creations, Taken []string
	// Deletions are the UIDs of Doubted, sorted.
	Deletions []types.UID
}

// InFlight returns the calls that nothing has settled. The slices are the caller's.
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

// resolve tells the names by the children of a view. A child of the owner that is not
// among them has left.
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
