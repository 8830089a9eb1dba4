// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// A Moment is when an observation began. It is no time of a clock: it only tells which
// of two observations of one Ledger began first. Start returns it.
type Moment uint64

// A word is what the server said of a child once.
type word[C metav1.Object] struct {
	// there says that the child is there. Otherwise a list lacks it: it is gone, or the list was
	// not asked for it any more.
	there    bool
	child    C      // as it was, if it is there
	version  string // as of which this is true
	cachedAs string // the version in which the cache had the child then; "" if it had none
	at       Moment // 0: nothing was said
}

func isNumber(version string) bool { return resourceversion.Reached(version, version) }

// A fact is all that was said of one child. It is a join: commutative, associative and
// idempotent. So answers may arrive in any order, and twice.
type fact[C metav1.Object] struct {
	word word[C] // the last one
	gone Moment  // the last observation that it does not exist any more; 0 if none
}

func (f fact[C]) join(g fact[C]) fact[C] {
	is := f.word
	if byMoment(g.word, is) > 0 {
		is = g.word
	}
	return fact[C]{is, max(f.gone, g.gone)}
}

// byMoment compares two words by when their observations began. Of two of one observation, which
// a call and a list are not, it takes the later version.
func byMoment[C metav1.Object](a, b word[C]) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(len(a.version), len(b.version)), cmp.Compare(a.version, b.version), cmp.Compare(a.cachedAs, b.cachedAs), boolCompare(a.there, b.there))
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

// isEmpty reports whether nothing was said.
func (f fact[C]) isEmpty() bool { return f.word.at == 0 && f.gone == 0 }
