// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// A Moment says when an observation began. A Moment is not a clock time, and only orders the observations
// of one Ledger. Start returns a Moment.
type Moment uint64

// A word is one answer from the server about a child.
type word[C metav1.Object] struct {
	// there says that the child exists. If there is false, a list lacks the child, because the child is
	// gone or no longer matches the list's selector.
	there    bool
	child    C      // the child in the answer, if there is set
	version  string // the version at which the answer is true
	cachedAs string // the child's version in the cache when the answer was noted; "" if the cache lacked the child
	at       Moment // when the observation began; 0 if there is no answer
}

func isNumber(version string) bool { return resourceversion.Reached(version, version) }

// A fact joins all answers about one child. The join is commutative, associative and idempotent, so
// answers may arrive in any order and more than once.
type fact[C metav1.Object] struct {
	word word[C] // the last answer
	gone Moment  // the last observation that the child no longer exists; 0 if none
}

func (f fact[C]) join(g fact[C]) fact[C] {
	is := f.word
	if byMoment(g.word, is) > 0 {
		is = g.word
	}
	return fact[C]{is, max(f.gone, g.gone)}
}

// byMoment compares two words by the start of their observations. If two words come from the same
// observation, the word with the later version is greater. A call and a list are never the same
// observation.
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

// isEmpty reports whether the server has given no answer about the child.
func (f fact[C]) isEmpty() bool { return f.word.at == 0 && f.gone == 0 }
