// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type child = *metav1.PartialObjectMetadata

// of makes the fact of one word.
func of(is state, version string, at Moment) fact[child] {
	w := word[child]{is: is, version: version, at: at}
	if is == there {
		w.child = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}}
	}
	return said(w)
}

func goneAt(at Moment) fact[child] { return fact[child]{gone: at} }

func joined(facts ...fact[child]) (all fact[child]) {
	for _, f := range facts {
		all = all.join(f)
	}
	return all
}

// allFacts are those of one word for every state, kind of version and moment, and some of
// two words.
func allFacts() []fact[child] {
	all := []fact[child]{{}, goneAt(1), goneAt(2)}
	for _, is := range []state{there, absent, left} {
		for _, version := range []string{"1", "2", "10", "", "x", "yy"} {
			for _, at := range []Moment{1, 2} {
				all = append(all, of(is, version, at))
			}
		}
	}
	return append(all,
		joined(of(there, "1", 1), of(absent, "1", 1)), // unclear
		joined(of(there, "2", 1), of(absent, "2", 2)),
		joined(of(there, "", 1), of(absent, "x", 1)),
		joined(of(there, "2", 1), of(absent, "", 2)),
		joined(of(left, "2", 2), goneAt(1)),
	)
}

// meaning is all of a fact that can make a difference.
type meaning struct {
	newest, latest, counts string
	unnumbered             bool
	gone                   Moment
}

func meaningOf(f fact[child]) meaning {
	text := func(w word[child]) string {
		return fmt.Sprintf("%d %q %d %t", w.is, w.version, w.at, w.child != nil)
	}
	return meaning{text(f.newest), text(f.latest), text(f.counts()), f.unnumbered, f.gone}
}

// The order in which answers arrive makes no difference, and neither does an answer that
// arrives twice.
func TestJoin(t *testing.T) {
	t.Parallel()
	all := allFacts()
	pairs := make([][]fact[child], len(all))
	for i, a := range all {
		require.Equal(t, meaningOf(a), meaningOf(a.join(a)), "it is idempotent")
		for _, b := range all {
			pairs[i] = append(pairs[i], a.join(b))
		}
	}
	for i, a := range all {
		for j, b := range all {
			require.Equal(t, meaningOf(pairs[i][j]), meaningOf(pairs[j][i]), "it is commutative: %v, %v", meaningOf(a), meaningOf(b))
			for k, c := range all {
				if x, y := meaningOf(pairs[i][j].join(c)), meaningOf(a.join(pairs[j][k])); x != y {
					require.Equal(t, x, y, "it is associative: %v, %v, %v", meaningOf(a), meaningOf(b), meaningOf(c))
				}
			}
		}
	}
	t.Logf("figures: %d facts, %d triples", len(all), len(all)*len(all)*len(all))
}

func TestWhatCounts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fact fact[child]
		want word[child]
		gone bool
	}{
		{"nothing was said", fact[child]{}, word[child]{}, false},
		{"the newest version counts, not the last answer", joined(of(there, "10", 1), of(absent, "9", 2)), word[child]{is: there, version: "10", at: 1}, false},
		{"versions are compared as numbers", joined(of(there, "9", 1), of(absent, "10", 1)), word[child]{is: absent, version: "10", at: 1}, false},
		{"of one version the last observation is kept", joined(of(there, "9", 1), of(there, "9", 2)), word[child]{is: there, version: "9", at: 2}, false},
		{"one version without a number lets moments count", joined(of(there, "10", 1), of(absent, "", 2)), word[child]{is: absent, at: 2}, false},
		{"moments count even if the last version is a number", joined(of(there, "x", 1), of(absent, "5", 2), of(there, "9", 1)), word[child]{is: absent, version: "5", at: 2}, false},
		{"there and absent at one version is unclear", joined(of(there, "5", 1), of(absent, "5", 2)), word[child]{is: unclear, version: "5", at: 2}, false},
		{"there and absent at one moment without versions is unclear", joined(of(there, "", 3), of(absent, "", 3)), word[child]{is: unclear, at: 3}, false},
		{"a newer version makes it clear again", joined(of(there, "5", 1), of(absent, "5", 2), of(there, "6", 1)), word[child]{is: there, version: "6", at: 1}, false},
		{"a child leaves after it was there", joined(of(left, "5", 1), of(there, "5", 2)), word[child]{is: left, version: "5", at: 1}, false},
		{"a child leaves after a list lacked it", joined(of(absent, "5", 2), of(left, "5", 1)), word[child]{is: left, version: "5", at: 1}, false},
		{"a child that does not exist stays so, in each version", joined(goneAt(1), of(there, "99", 9)), word[child]{is: there, version: "99", at: 9}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			is := tt.fact.counts()
			assert.Equal(t, is.is == there, is.child != nil, "only what is there has an object")
			is.child = nil
			assert.Equal(t, tt.want, is)
			assert.Equal(t, tt.gone, tt.fact.gone > 0)
		})
	}
}
