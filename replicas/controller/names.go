// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// unresolvedKept is how long a request may still take effect after it was sent: no
// server takes longer.
const unresolvedKept = 5 * time.Minute

// names are the names under which creations were sent that may have taken effect or
// may do so yet. The next creations go by these names first: a server has one object
// of a name. The zero value is empty.
type names struct {
	mu         sync.Mutex
	unresolved []unresolvedName
}

type unresolvedName struct {
	types.NamespacedName

	open    int                 // how many sendings nothing has settled
	sent    time.Time           // the last one
	settled sets.Set[types.UID] // the children that have settled one each
	bearer  bearer
	hold    hold // until the next look, if it is not sent again
}

// A bearer is the object that has a name, as it was seen last.
type bearer int

const (
	nobody   bearer = iota // or it is not known
	replica                // a child of the owner that counts
	leaver                 // another child of the owner, such as one that is being deleted
	stranger               // an object that is not the owner's: views may not show it
)

func (n *names) find(name string) *unresolvedName {
	i := slices.IndexFunc(n.unresolved, func(u unresolvedName) bool { return u.Name == name })
	if i < 0 {
		return nil
	}
	return &n.unresolved[i]
}

// sent notes that a creation is about to be sent.
func (n *names) sent(name types.NamespacedName, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	u := n.find(name.Name)
	if u == nil {
		n.unresolved = append(n.unresolved, unresolvedName{NamespacedName: name})
		u = &n.unresolved[len(n.unresolved)-1]
	}
	u.open, u.sent, u.hold = u.open+1, now, hold{}
}

// namespace is where a creation was sent before, if it was: there it is sent again.
func (n *names) namespace(name string) (namespace string, sent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if u := n.find(name); u != nil {
		return u.Namespace, true
	}
	return "", false
}

// failed notes that a sending did not and will not take effect.
func (n *names) failed(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if u := n.find(name); u != nil {
		n.settle(u)
	}
}

func (n *names) settle(u *unresolvedName) {
	if u.open--; u.open <= 0 {
		n.drop(u.Name)
	}
}

// seen notes which object bears a name. A child of the owner settles one sending; one
// that has done so before settles no other.
func (n *names) seen(name types.NamespacedName, id types.UID, own bool, is bearer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	u := n.find(name.Name)
	if u == nil || u.NamespacedName != name {
		return
	}
	u.bearer = is
	if own && !u.settled.Has(id) {
		if u.settled == nil {
			u.settled = sets.New[types.UID]()
		}
		u.settled.Insert(id)
		n.settle(u)
	}
}

// absent notes that a look at a name found nothing.
func (n *names) absent(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if u := n.find(name); u != nil {
		u.bearer = nobody
	}
}

// viewed notes that the children are viewed anew, and returns the names to look for
// among them. A child of the owner that is not among them has left.
func (n *names) viewed() sets.Set[types.NamespacedName] {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.unresolved) == 0 {
		return nil
	}
	names := make(sets.Set[types.NamespacedName], len(n.unresolved))
	for i := range n.unresolved {
		u := &n.unresolved[i]
		if u.bearer != stranger {
			u.bearer = nobody
		}
		names.Insert(u.NamespacedName)
	}
	return names
}

// resolved drops a name: nothing that was sent under it can take effect any more.
func (n *names) resolved(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(name)
}

func (n *names) drop(name string) {
	n.unresolved = slices.DeleteFunc(n.unresolved, func(u unresolvedName) bool { return u.Name == name })
}

// putOff puts off the next look at a name: for twice as long as before, but not beyond
// the time when nothing that was sent can take effect any more.
func (n *names) putOff(name string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	u := n.find(name)
	if u == nil {
		return
	}
	u.hold.double(now, unresolvedFirst, unresolvedLast)
	if left := unresolvedKept - now.Sub(u.sent); left > 0 {
		u.hold.wait = min(u.hold.wait, left)
	}
}

// all returns a copy of all names.
func (n *names) all() []unresolvedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.unresolved)
}

// open returns the names that no replica bears: a child may have each of them, or get
// it yet.
func (n *names) open() []unresolvedName {
	return slices.DeleteFunc(n.all(), func(u unresolvedName) bool { return u.bearer == replica })
}

// isTaken reports whether a name cannot be sent again now, though no replica bears it.
func (u *unresolvedName) isTaken() bool { return u.bearer == leaver || u.bearer == stranger }

// untilLook is how long it takes until a name is to be looked for, if it is not sent
// again. While a replica bears it, nothing else can.
func (u *unresolvedName) untilLook(now time.Time) time.Duration {
	if u.bearer == replica {
		return unresolvedKept - now.Sub(u.sent)
	}
	return u.hold.remaining(now, 0)
}

// namer returns where a plan takes names from: those that are open first.
func (p *pass[O, C]) namer() func(prefix string) string {
	open := p.state.names.open()
	return func(prefix string) string {
		for len(open) > 0 {
			u := open[0]
			open = open[1:]
			if strings.HasPrefix(u.Name, prefix) && !u.isTaken() {
				return u.Name
			}
		}
		name := prefix + suffix(p.opts.Random)
		for tries := 0; tries < nameTries && len(p.pending.OwnersOfCreation(name)) > 0; tries++ {
			name = prefix + suffix(p.opts.Random)
		}
		return name
	}
}

// nameTries is how often a name is made in vain that somebody waits for: many more
// would not help, as nearly all names must be taken or Options.Random is not random.
const nameTries = 100

// suffix makes the random end of a name, as the API server does for generateName.
func suffix(random func(n int) int) string {
	const letters = 27 // that SafeEncodeString knows
	b := make([]byte, 5)
	for i := range b {
		b[i] = byte(random(letters))
	}
	return rand.SafeEncodeString(string(b))
}

// bears settles a creation without an answer by an object that has its name, and
// returns what that object is.
func (p *pass[O, C]) bears(c C) bearer {
	is, own := stranger, p.controls(c)
	switch {
	case own && p.mayCount(c) && p.rules.Active(c):
		is = replica
	case own:
		is = leaver
	}
	p.state.names.seen(nameOf(c), object.ID(c), own, is)
	return is
}

// resolveNames settles creations without an answer by a view of the children.
func (p *pass[O, C]) resolveNames(children []C) {
	open := p.state.names.viewed()
	if len(open) == 0 {
		return
	}
	for _, c := range children {
		if open.Has(nameOf(c)) {
			p.bears(c)
		}
	}
}
