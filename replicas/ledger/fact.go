// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// A Moment is when an observation began. It is no time of a clock: it only tells which
// of two observations of one Ledger began first. Start returns it.
type Moment uint64

// A state is what was said of a child.
type state uint8

const (
	unsaid  state = iota // nothing was said of it
	there                // it is there
	absent               // a list lacks it: it is gone, or the list was not asked for it any more
	left                 // it was there and left, so at the same version this is newer
	unclear              // it was said to be there and to be absent, as of the same version
)

// A word is what the server said of a child once.
type word[C metav1.Object] struct {
	is      state
	child   C      // as it was, if it is there
	version string // as of which this is true
	at      Moment
}

func (w word[C]) isNumbered() bool { return isNumber(w.version) }

func isNumber(version string) bool { return resourceversion.Reached(version, version) }

// A fact is all that was said of one child. It is a join: commutative, associative and
// idempotent. So answers may arrive in any order, and twice.
type fact[C metav1.Object] struct {
	newest word[C] // of those whose version is a number
	latest word[C] // of all
	// unnumbered says that the version of one is no number, so versions do not tell
	// which one is the newest.
	unnumbered bool
	gone       Moment // the last observation that it does not exist any more; 0 if none
}

func said[C metav1.Object](w word[C]) fact[C] {
	f := fact[C]{latest: w, unnumbered: !w.isNumbered()}
	if !f.unnumbered {
		f.newest = w
	}
	return f
}

func (f fact[C]) join(g fact[C]) fact[C] {
	return fact[C]{
		newest:     greater(f.newest, g.newest, byVersion),
		latest:     greater(f.latest, g.latest, byMoment),
		unnumbered: f.unnumbered || g.unnumbered,
		gone:       max(f.gone, g.gone),
	}
}

// isEmpty reports whether nothing was said.
func (f fact[C]) isEmpty() bool { return f.latest.is == unsaid && f.gone == 0 }

// counts returns the word that counts, unless the child is gone.
func (f fact[C]) counts() word[C] {
	if f.unnumbered {
		return f.latest
	}
	return f.newest
}

// An order tells which of two words is the greater one, as cmp.Compare does.
type order[C metav1.Object] func(a, b word[C]) int

func byVersion[C metav1.Object](a, b word[C]) int {
	c, err := resourceversion.Compare(a.version, b.version)
	if err != nil {
		return 0 // never: only numbers are ordered so
	}
	return cmp.Or(c, boolCompare(a.is == left, b.is == left))
}

func byMoment[C metav1.Object](a, b word[C]) int {
	return cmp.Or(cmp.Compare(a.at, b.at), boolCompare(a.is == left, b.is == left))
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// greater returns the greater one of two words. Of two equal ones it makes one, and that
// is unclear if they contradict each other.
func greater[C metav1.Object](a, b word[C], order order[C]) word[C] {
	switch {
	case a.is == unsaid:
		return b
	case b.is == unsaid:
		return a
	}
	switch c := order(a, b); {
	case c > 0:
		return a
	case c < 0:
		return b
	}
	one := a
	if cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(len(a.version), len(b.version)), strings.Compare(a.version, b.version)) < 0 {
		one = b
	}
	if a.is != b.is {
		one.is, one.child = unclear, *new(C)
	}
	return one
}
