// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

// together starts n calls at the same time, and returns when all calls have ended.
func together(n int, call func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			call(i)
		})
	}
	close(start)
	wg.Wait()
}

func TestConcurrently(t *testing.T) {
	t.Parallel()

	t.Run("E11 N observations at once lower by exactly N, while other owners come and go", func(t *testing.T) {
		t.Parallel()
		var s store
		var settled atomic.Int64
		s.Set("a", changes{Creations: 6000})
		together(8, func(i int) {
			for j := range 1000 {
				if s.CreationObserved("a", "any") {
					settled.Add(1)
				}
				key := fmt.Sprint(i, "-", j)
				s.Set(key, changes{Creations: 1})
				if j%2 == 0 {
					s.Forget(key)
				}
			}
		})
		assert.EqualValues(t, 6000, settled.Load())
		assert.Equal(t, expectations.Satisfied, stateOf(&s, "a"))
		assert.Len(t, all(&s), 8*500)
	})

	t.Run("W15 creations and deletions change as one, nobody sees half a change", func(t *testing.T) {
		t.Parallel()
		var s store
		s.Set("a", changes{Creations: 1, Deletions: 1})
		var done atomic.Bool
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for !done.Load() {
					creations, deletions := left(&s, "a").Total()
					if !assert.Equal(t, creations, deletions) {
						return
					}
				}
			})
		}
		together(2, func(i int) {
			for j := range 3000 {
				token := strconv.Itoa(i)
				s.Add("a", changes{Creations: j, Deletions: j, Creating: []string{token}, Deleting: uids{types.UID(token)}})
				s.Lower("a", changes{Creations: j, Deletions: j, Creating: []string{token}, Deleting: uids{types.UID(token)}})
			}
		})
		done.Store(true)
		readers.Wait()
	})

	t.Run("E11 an observation lowers the record before or after a Set, never both", func(t *testing.T) {
		t.Parallel()
		for range 500 {
			var s store
			s.Set("a", changes{Creations: 10})
			together(2, func(i int) {
				if i == 0 {
					s.Set("a", changes{Creations: 5})
				} else {
					s.CreationObserved("a", "x")
				}
			})
			require.Contains(t, []int{4, 5}, left(&s, "a").Creations)
		}
	})

	t.Run("of many that try at once one may act", func(t *testing.T) {
		t.Parallel()
		for range 200 {
			var s store
			var may atomic.Int64
			together(8, func(int) {
				if state, _ := s.Try("a", changes{Creations: 1}); state == expectations.Satisfied {
					may.Add(1)
				}
			})
			require.EqualValues(t, 1, may.Load())
			require.Equal(t, changes{Creations: 1}, left(&s, "a"))
		}
	})

	t.Run("E20 E22 a UID or a name seen by many at once counts once", func(t *testing.T) {
		t.Parallel()
		const n = 200
		var s store
		var list uids
		var names []string
		for i := range n {
			list, names = append(list, types.UID(strconv.Itoa(i))), append(names, strconv.Itoa(i))
		}
		s.Set("a", changes{Creating: names, Deleting: list})
		var deleted, created atomic.Int64
		together(8, func(int) {
			for i := range n - 1 {
				if s.DeletionObserved("a", list[i]) {
					deleted.Add(1)
				}
				if s.CreationObserved("a", names[i]) {
					created.Add(1)
				}
			}
		})
		assert.EqualValues(t, n-1, deleted.Load())
		assert.EqualValues(t, n-1, created.Load())
		assert.Equal(t, changes{Creating: names[n-1:], Deleting: list[n-1:]}, left(&s, "a"))
	})

	t.Run("V12 owners of deletions are right and none is left behind", func(t *testing.T) {
		t.Parallel()
		var s store
		var every uids
		for i := range 20 {
			every = append(every, types.UID(strconv.Itoa(i)))
		}
		together(6, func(i int) { churn(&s, every, rand.New(rand.NewPCG(7, uint64(i)))) })

		pending := all(&s)
		for _, uid := range every {
			for _, owner := range s.OwnersOfDeletion(uid) {
				require.Contains(t, pending[owner].Deleting, uid)
				require.True(t, s.DeletionObserved(owner, uid))
			}
		}
		assert.Empty(t, all(&s), "every UID had its owner")
	})

	t.Run("Y3 forgetting a name at any moment leaves nothing that a later one does not find", func(t *testing.T) {
		t.Parallel()
		var s expectations.Store[expectations.Key]
		together(4, func(i int) {
			key := web
			key.UID = types.UID(strconv.Itoa(i % 2))
			for range 1000 {
				s.Set(key, changes{Deleting: uids{"1"}})
				s.ForgetName(web.NamespacedName)
			}
		})
		s.ForgetName(web.NamespacedName)
		for key := range s.All() {
			assert.Fail(t, "left behind", "%s", key)
		}
		assert.Empty(t, s.OwnersOfDeletion("1"))
	})
}

// churn records and observes deletions of the same UIDs for a few owners. Several goroutines call churn for the
// same owners.
func churn(s *store, every uids, r *rand.Rand) {
	for range 2000 {
		key, uid := strconv.Itoa(r.IntN(4)), every[r.IntN(len(every))]
		from := r.IntN(len(every))
		some := changes{Deleting: every[from : from+r.IntN(len(every)-from)]}
		switch r.IntN(8) {
		case 0:
			s.Set(key, some)
		case 1:
			s.Add(key, some)
		case 2:
			s.DeletionObserved(key, uid)
		case 3:
			for _, owner := range s.OwnersOfDeletion(uid) {
				s.DeletionObserved(owner, uid)
			}
		case 4:
			s.Forget(key)
		case 5:
			s.Lower(key, some)
		case 6:
			expectations.Sync(s, key, []*corev1.Pod{podtest.Pod("x", podtest.UID(uid))}, nil)
		case 7:
			for _, p := range s.All() {
				if !slices.IsSorted(p.Deleting) || len(p.Deleting) == 0 {
					panic(fmt.Sprint("half a change: ", p))
				}
			}
		}
	}
}
