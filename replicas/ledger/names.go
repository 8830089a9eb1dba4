// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/backoff"
)

// MaxRequestAge is the time after which an unanswered request can no longer take effect. That no server takes
// longer to carry out a request is an assumption.
const MaxRequestAge = 5 * time.Minute

// firstCheck is the first delay before a name is looked up on the server again. Each later one is twice as
// long, up to lastCheck.
const firstCheck, lastCheck = time.Second, time.Minute

// A Name is the name in create requests with an unknown result. When another child is needed, send a request
// with this name again: names are unique on the server, so all of them together make at most one child.
type Name struct {
	types.NamespacedName

	// Sent is the time at which the last creation with this name was sent.
	Sent time.Time
	// Holder is the kind of the object that is known to have the name.
	Holder Holder

	requests int                 // the number of create requests with this name and an unknown result
	settled  sets.Set[types.UID] // the children with this name that have each settled one of the requests
	look     backoff.Hold        // the delay before the name is looked up on the server again
}

// A Holder says what kind of object has a name.
type Holder uint8

// These values of Holder describe the relation of the object to the owner.
const (
	NoObject    Holder = iota // no known object has the name
	Replica                   // a child that counts as a replica, or an orphan that the owner can adopt
	OtherChild                // another child of the owner, such as one that is being deleted
	OtherObject               // an object that is neither a Replica nor a child of the owner; views do not always contain such objects
)

// IsTaken reports whether an object other than a Replica has the name, which therefore cannot be sent again now.
func (n Name) IsTaken() bool { return n.Holder == OtherChild || n.Holder == OtherObject }

// IsExpired reports whether all creations with the name were sent at least MaxRequestAge before now. Then none
// of them can take effect any longer, and a lookup on the server that begins now or later shows the final result.
func (n Name) IsExpired(now time.Time) bool { return now.Sub(n.Sent) >= MaxRequestAge }

// NextCheck returns the time to wait before the name is looked up on the server; 0 or less means now. The
// lookup is not needed if another creation with the name is sent before. While a Replica has the name, the lookup
// waits until IsExpired returns true.
func (n Name) NextCheck(now time.Time) time.Duration {
	if n.Holder == Replica { // no other child can get the name meanwhile
		return max(expiresIn(n.Sent, now), n.look.Remaining(now))
	}
	return n.look.Remaining(now)
}

// expiresIn returns how much longer a request that was sent then can take effect; 0 or less means no longer. A
// clock that was set back makes it MaxRequestAge at most.
func expiresIn(sent, now time.Time) time.Duration { return MaxRequestAge - max(now.Sub(sent), 0) }

// CreateSent must be called for each create request, with the name of the new child. The time now must not be
// before the request, which may take effect until now.Add(MaxRequestAge).
func (l *Ledger[C]) CreateSent(name types.NamespacedName, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.find(name)
	if n == nil {
		l.names = append(l.names, Name{NamespacedName: name})
		n = &l.names[len(l.names)-1]
	}
	n.requests, n.Sent, n.look = n.requests+1, now, backoff.Hold{}
	if l.sent == nil {
		l.sent = sets.New[types.NamespacedName]()
	}
	l.sent.Insert(name)
}

// WasSent reports whether a creation with the name was ever sent. If so, a child with this name was created for
// the owner, even if it no longer names the owner as its controller. When no child in the view has the name, the
// result may be false.
func (l *Ledger[C]) WasSent(name types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent.Has(name) || l.find(name) != nil
}

// forgetSent drops the names of children that are gone, when they are the most. So its average cost for each
// creation is constant.
func (l *Ledger[C]) forgetSent(children []C) {
	if len(l.sent) <= 2*len(children)+fewSent {
		return
	}
	existing := sets.New[types.NamespacedName]()
	for _, c := range children {
		existing.Insert(nameOf(c))
	}
	l.sent = l.sent.Intersection(existing)
}

// fewSent is the number of names that forgetSent always keeps.
const fewSent = 100

// CreateRejected must be called when one creation with the name did not take effect and never will.
func (l *Ledger[C]) CreateRejected(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.find(name); n != nil {
		l.settle(n)
	}
}

// NameHeld records what kind of object has the name. If ours is true, it is a child of the owner, and counts as
// the result of one creation with the name, however often NameHeld is called for it. The results of other
// creations with the name stay unknown.
func (l *Ledger[C]) NameHeld(name types.NamespacedName, id types.UID, holder Holder, ours bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nameHeld(name, id, holder, ours)
}

func (l *Ledger[C]) nameHeld(name types.NamespacedName, id types.UID, holder Holder, ours bool) {
	n := l.find(name)
	if n == nil {
		return
	}
	n.Holder = holder
	// web-2 was sent twice, and the second request is still under way. Each view has the child of the first. It
	// settles one request and not both, because when it ends, the second request may still make another web-2.
	if ours && !n.settled.Has(id) {
		if n.settled == nil {
			n.settled = sets.New[types.UID]()
		}
		n.settled.Insert(id)
		l.settle(n)
	}
}

// NameFree records that no object on the server has the name.
func (l *Ledger[C]) NameFree(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.find(name); n != nil {
		n.Holder = NoObject
	}
}

// NameChecked records that a name was looked up on the server, between began and now. It doubles the delay before
// the next lookup, up to the time for which a creation with the name can still take effect. But it drops the
// name if none could take effect after the lookup began.
func (l *Ledger[C]) NameChecked(name types.NamespacedName, began, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.find(name)
	switch {
	case n == nil:
	case n.IsExpired(began): // not now: a lookup that took long may have missed what landed while it was made
		l.drop(name)
	default:
		n.look.Double(now, firstCheck, lastCheck)
		if left := expiresIn(n.Sent, now); left > 0 {
			n.look.Wait = min(n.look.Wait, left)
		}
	}
}

// Names returns the names of creations with an unknown result, in the order in which each was first sent. The
// caller owns the slice.
func (l *Ledger[C]) Names() []Name {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.names)
}

// SentTo returns the namespace to which a creation with an unknown result was sent. A repeated creation must use
// the same one. The second result is false if no such creation has the name.
func (l *Ledger[C]) SentTo(name string) (namespace string, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.names, func(n Name) bool { return n.Name == name })
	if i < 0 {
		return "", false
	}
	return l.names[i].Namespace, true
}

// Open returns the Names for which no Replica is known. A child with such a name may already exist or may still
// be created.
func (l *Ledger[C]) Open() []Name {
	return slices.DeleteFunc(l.Names(), func(n Name) bool { return n.Holder == Replica })
}

// InFlight are the calls with an unknown result, in the form in which replicas.Facts needs them. Such a call may have
// taken effect already, or may still do so.
type InFlight struct {
	// Each Name in the result of Open is either in Creations, where the name that was sent last comes first, or in
	// Taken, because another object has it and so no creation with it can take effect now.
	Creations, Taken []string
	// Deletions and Updates are the UIDs in the result of UnansweredCalls, in sorted order, by the verb of the call.
	Deletions, Updates []types.UID
}

// InFlight returns the calls with an unknown result. The caller owns the slices.
func (l *Ledger[C]) InFlight() (calls InFlight) {
	open := l.Open()
	slices.SortStableFunc(open, func(a, b Name) int { return b.Sent.Compare(a.Sent) })
	for _, n := range open {
		if n.IsTaken() {
			calls.Taken = append(calls.Taken, n.Name)
		} else {
			calls.Creations = append(calls.Creations, n.Name)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.entries {
		if e.unanswered.verbs&Delete != 0 {
			calls.Deletions = append(calls.Deletions, id)
		}
		if e.unanswered.verbs&Update != 0 {
			calls.Updates = append(calls.Updates, id)
		}
	}
	slices.Sort(calls.Deletions)
	slices.Sort(calls.Updates)
	return calls
}

func (l *Ledger[C]) find(name types.NamespacedName) *Name {
	i := slices.IndexFunc(l.names, func(n Name) bool { return n.NamespacedName == name })
	if i < 0 {
		return nil
	}
	return &l.names[i]
}

func (l *Ledger[C]) settle(n *Name) {
	if n.requests--; n.requests <= 0 {
		l.drop(n.NamespacedName)
	}
}

func (l *Ledger[C]) drop(name types.NamespacedName) {
	l.names = slices.DeleteFunc(l.names, func(n Name) bool { return n.NamespacedName == name })
}

// resolve updates the Holder of each Name from the children in a view.
func (l *Ledger[C]) resolve(children []C, rules Rules[C]) {
	if len(l.names) == 0 {
		return
	}
	open := make(sets.Set[types.NamespacedName], len(l.names))
	for i := range l.names {
		n := &l.names[i]
		if n.Holder != OtherObject { // it may have the name still, because views need not contain it
			n.Holder = NoObject
		}
		open.Insert(n.NamespacedName)
	}
	for _, c := range children {
		if name := nameOf(c); open.Has(name) {
			holder, ours := rules.Holder(c)
			l.nameHeld(name, idOf(c), holder, ours)
		}
	}
}
