// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// A Moment is the start of an observation, such as a live list. It is no clock time, but only orders the
// observations of one Ledger. Start returns a new Moment, and 0 is none.
type Moment uint64

// An answer is what the server has said about a child in one observation.
type answer[C metav1.Object] struct {
	there    bool   // the child exists; if false, a list lacked it, because it is gone or no longer matches the selector
	child    C      // the child as returned by the server; set only if the child exists
	version  string // the child's resourceVersion; if the child is missing, the list's resourceVersion
	cachedAs C      // the child as the cache had it when the answer was recorded; nil if it had none, or if all versions are numbers
	at       Moment // when the observation began; 0 if there is no answer
}

func isNumber(version string) bool { return resourceversion.Reached(version, version) }

// A fact combines all answers about one child. join is commutative, associative and idempotent, so answers
// may be recorded in any order and more than once.
type fact[C metav1.Object] struct {
	answer answer[C] // the answer whose observation began last
	gone   Moment    // the start of the last observation that showed the child to be gone; 0 if none, or if a later list has the child
}

func (f fact[C]) join(g fact[C]) fact[C] {
	last := f.answer
	if byMoment(g.answer, last) > 0 {
		last = g.answer
	}
	return fact[C]{last, max(f.gone, g.gone)}
}

// byMoment orders answers by the start of their observations, and those of one observation by their versions.
// The longer of two numbers is the greater. A call and a list are never one observation.
func byMoment[C metav1.Object](a, b answer[C]) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(len(a.version), len(b.version)), cmp.Compare(a.version, b.version), boolCompare(a.there, b.there))
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

func (f fact[C]) isEmpty() bool { return f.answer.at == 0 && f.gone == 0 }
