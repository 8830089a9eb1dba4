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
)

// unresolvedKept is how long a creation or a deletion without an answer is
// remembered: no server takes longer over a request.
const unresolvedKept = 5 * time.Minute

// names are the creations that were sent and of which it is not known whether they
// took or will take effect. The next creations go by these names first: the same
// child can not be created twice. The zero value is empty.
type names struct {
	mu         sync.Mutex
	unresolved []unresolvedName
}

type unresolvedName struct {
	types.NamespacedName

	sent time.Time // the last time
	hold hold      // until the next look, if it is not wanted any more
}

// sent notes that a creation is about to be sent.
func (n *names) sent(name types.NamespacedName, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(name.Name)
	n.unresolved = append(n.unresolved, unresolvedName{NamespacedName: name, sent: now})
}

// namespace is where a creation was sent before, if it was: there it is sent again.
func (n *names) namespace(name string) (namespace string, sent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.unresolved, func(u unresolvedName) bool { return u.Name == name })
	if i < 0 {
		return "", false
	}
	return n.unresolved[i].Namespace, true
}

// resolved notes that it is known what became of a creation.
func (n *names) resolved(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(name)
}

func (n *names) drop(name string) {
	n.unresolved = slices.DeleteFunc(n.unresolved, func(u unresolvedName) bool { return u.Name == name })
}

// seen resolves the creations of children that are there.
func (n *names) seen(children sets.Set[types.NamespacedName]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unresolved = slices.DeleteFunc(n.unresolved, func(u unresolvedName) bool { return children.Has(u.NamespacedName) })
}

func (n *names) all() []unresolvedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.unresolved)
}

func (n *names) len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.unresolved)
}

// put puts back the creation of a name after a look at it.
func (n *names) put(u unresolvedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.unresolved {
		if n.unresolved[i].NamespacedName == u.NamespacedName {
			n.unresolved[i] = u
		}
	}
}

// namer returns where a plan takes names from: those that are unresolved first.
func (p *pass[O, C]) namer() func(prefix string) string {
	unresolved := p.state.names.all()
	return func(prefix string) string {
		for len(unresolved) > 0 {
			name := unresolved[0].Name
			unresolved = unresolved[1:]
			if strings.HasPrefix(name, prefix) {
				return name
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
