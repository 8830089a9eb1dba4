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

func of(is bool, version string, at Moment) fact[child] {
	w := answer[child]{there: is, version: version, at: at}
	if is {
		w.child = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}}
	}
	return fact[child]{answer: w}
}

const there, absent = true, false

func goneAt(at Moment) fact[child] { return fact[child]{gone: at} }

func joined(facts ...fact[child]) (all fact[child]) {
	for _, f := range facts {
		all = all.join(f)
	}
	return all
}

// allFacts returns many different facts. There is one fact for each combination of state, version and Moment. The
// others are the empty fact, two facts about a child that is gone, and a fact that combines two observations.
func allFacts() []fact[child] {
	all := []fact[child]{{}, goneAt(1), goneAt(2)}
	for _, is := range []bool{there, absent} {
		for _, version := range []string{"1", "2", "10", "", "x", "yy"} {
			for _, at := range []Moment{1, 2} {
				all = append(all, of(is, version, at))
			}
		}
	}
	return append(all, joined(of(there, "2", 2), goneAt(1)))
}

// meaning contains the parts of a fact that TestJoin compares.
type meaning struct {
	word string
	gone Moment
}

func meaningOf(f fact[child]) meaning {
	return meaning{fmt.Sprintf("%t %q %d %t", f.answer.there, f.answer.version, f.answer.at, f.answer.child != nil), f.gone}
}

// The method join returns the same fact for any order of the answers. An answer that arrives twice does not change
// the fact.
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
		want answer[child]
		gone bool
	}{
		{"nothing was said", fact[child]{}, answer[child]{}, false},
		{"the observation that began last counts", joined(of(absent, "9", 2), of(there, "10", 1)), answer[child]{version: "9", at: 2}, false},
		{"of one observation the later version counts, as a number", joined(of(there, "9", 1), of(there, "10", 1)), answer[child]{there: true, version: "10", at: 1}, false},
		{"a child that does not exist stays so, in each version", joined(goneAt(1), of(there, "99", 9)), answer[child]{there: true, version: "99", at: 9}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			is := tt.fact.answer
			assert.Equal(t, is.there, is.child != nil, "only what is there has an object")
			is.child = nil
			assert.Equal(t, tt.want, is)
			assert.Equal(t, tt.gone, tt.fact.gone > 0)
		})
	}
}
