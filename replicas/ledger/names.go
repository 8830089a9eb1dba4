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

// If a name is not sent again, the next look for it follows after firstLook. Each later wait is twice as
// long, up to lastLook.
const firstLook, lastLook = time.Second, time.Minute

// A Name is the name of a child whose creations were sent and may have taken effect, or still may. To
// create another child, send this name again. A server has only one object of a name, so all these
// creations make at most one child.
type Name struct {
	types.NamespacedName

	// Sent is when the name was last sent.
	Sent time.Time
	// Bearer says which object has the name, as far as is known.
	Bearer Bearer

	open    int                 // how many creations are not settled
	settled sets.Set[types.UID] // the children that settled one creation each
	look    backoff.Hold        // until the next look, if the name is not sent again
}

// A Bearer says which object has a name.
type Bearer uint8

// The values of Bearer say what the object is to the owner.
const (
	Nobody   Bearer = iota // no object, or it is not known
	Replica                // a child of the owner that counts, or an orphan that the owner can adopt
	Leaver                 // another child of the owner, such as one that is being deleted
	Stranger               // an object that is not the owner's; views may lack it
)

// IsTaken reports whether an object other than a replica has the name, so that it cannot be sent again
// now.
func (n Name) IsTaken() bool { return n.Bearer == Leaver || n.Bearer == Stranger }

// HasLanded reports whether all requests under the name have already taken effect or never will. A look
// that begins at now then shows what became of them.
func (n Name) HasLanded(now time.Time) bool { return now.Sub(n.Sent) >= Landing }

// NextLook returns how long to wait before looking for the name, if it is not sent again. 0 or less
// means now. While a replica has the name, no other child can have it.
func (n Name) NextLook(now time.Time) time.Duration {
	if n.Bearer == Replica {
		return max(landsIn(n.Sent, now), n.look.Remaining(now))
	}
	return n.look.Remaining(now)
}

// landsIn returns how long a request that was sent then may still take effect, 0 or less if it cannot.
func landsIn(sent, now time.Time) time.Duration { return Landing - max(now.Sub(sent), 0) }

// Sending notes that a creation is being sent under a name, or was until now. It may take effect until
// Landing after now.
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

// Bears notes which object has a name. A child of the owner settles one creation only. If the name was
// sent again later, the child already had it.
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

// Looked notes that the server was asked for a name, from began until now. If all requests had landed at
// began, the name is dropped. Otherwise the next look follows after twice the last wait, or when the
// requests have landed if that is sooner.
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

// SentTo returns the namespace to which a creation under a name was sent, if it is not settled. Send the
// creation again to the same namespace.
func (l *Ledger[C]) SentTo(name string) (namespace string, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.names, func(n Name) bool { return n.Name == name })
	if i < 0 {
		return "", false
	}
	return l.names[i].Namespace, true
}

// Open returns the Names that no replica has. A child may have each of them, or may still get it.
func (l *Ledger[C]) Open() []Name {
	return slices.DeleteFunc(l.Names(), func(n Name) bool { return n.Bearer == Replica })
}

// InFlight has the calls that are not settled, which may have taken effect or still may. It is for the
// Spec of package replicas.
type InFlight struct {
	// Creations are the names of Open that can be sent again, with the one that was sent last first.
	// Taken are the other names of Open. As long as another object has such a name, no request under it
	// takes effect.
	Creations, Taken []string
	// Deletions are the UIDs of Doubted, sorted.
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

// resolve notes which children of a view have the names. If the view lacks the child that had a name, no
// object is known to have the name.
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
