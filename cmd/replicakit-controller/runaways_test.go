// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

func TestRunaways(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_000_000_020, 0)
	type pass struct{ minute, made, wanted int }
	every := func(minutes, made, wanted int) (passes []pass) {
		for i := range minutes {
			passes = append(passes, pass{i, made, wanted})
		}
		return passes
	}
	for _, row := range []struct {
		name   string
		passes []pass
		at     int // in minutes
		want   int
	}{
		{"nothing is made", every(20, 0, 5), 20, 0},
		{"a scale-up", []pass{{0, 500, 10_000}, {1, 500, 10_000}, {5, 9_000, 10_000}}, 5, 0},
		{"all are replaced once", []pass{{0, 100, 100}, {3, 100, 100}}, 3, 0},
		{"a pod that fails as soon as it is made, of one", every(10, 6, 1), 9, 1},
		{"the pods of one of many, where the others want a hundred thousand", every(10, 60, 100), 9, 1},
		{"a few that fail of many", every(10, 60, 1_000), 9, 0},
		{"scaled up and down again", []pass{{0, 300, 300}, {4, 0, 0}}, 9, 0},
		{"it is over", every(10, 60, 100), 20, 0},
		{"what was long ago does not count", []pass{{0, 100, 50}, {60, 100, 50}}, 60, 0},
		{"the largest number that was wanted counts, for as long as what was made for it", []pass{{0, 0, 1000}, {1, 5, 0}, {2, 20, 0}}, 2, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, owner := newRunaways(), types.NamespacedName{Name: "web"}
			for _, p := range row.passes {
				r.note(owner, p.made, p.wanted, began.Add(time.Duration(p.minute)*time.Minute))
			}
			assert.Equal(t, row.want, r.count(began.Add(time.Duration(row.at)*time.Minute)))
			r.count(began.Add(time.Hour + 15*time.Minute))
			assert.Empty(t, r.owned, "nothing is remembered for ever")
		})
	}
	t.Run("a clock that goes back", func(t *testing.T) {
		t.Parallel()
		r, owner := newRunaways(), types.NamespacedName{Name: "web"}
		r.note(owner, 10, 1, began)
		r.note(owner, 10, 1, began.Add(-time.Hour))
		assert.Equal(t, 1, r.count(began))
	})
}
