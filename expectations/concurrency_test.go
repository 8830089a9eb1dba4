package expectations_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
)

// together runs n calls, starts them at once and returns when all are done.
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

func TestConcurrentCounters(t *testing.T) {
	t.Parallel()

	t.Run("E11 N observations at once lower by exactly N", func(t *testing.T) {
		t.Parallel()
		var e counter
		e.SetExpectations("a", 80_200, 160_400)
		together(4, func(int) {
			for range 20_000 {
				e.CreationObserved("a")
				e.DeletionObserved("a")
				e.LowerExpectations("a", 0, 1)
			}
		})
		adds, dels, _ := e.GetExpectations("a")
		assert.Equal(t, [2]int{200, 400}, [2]int{adds, dels})
	})

	t.Run("E11 N observations at once lower by exactly N while the table grows and shrinks", func(t *testing.T) {
		t.Parallel()
		var e counter
		e.ExpectCreations("a", 4000)
		together(8, func(i int) {
			for j := range 500 {
				key := fmt.Sprint(i, "-", j)
				e.ExpectCreations(key, 1)
				e.CreationObserved("a")
				if !assert.Equal(t, expectations.Waiting, stateOf(&e, key)) {
					return
				}
				if j%2 == 0 {
					e.DeleteExpectations(key)
				}
			}
		})
		assert.True(t, e.SatisfiedExpectations("a"))
		assert.Len(t, collect(&e), 8*250)
	})

	t.Run("W15 adds and dels change as one, nobody sees half a change", func(t *testing.T) {
		t.Parallel()
		var e counter
		e.SetExpectations("a", 1, 1)
		var done atomic.Bool
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for !done.Load() {
					adds, dels, _ := e.GetExpectations("a")
					if !assert.Equal(t, adds, dels) {
						return
					}
				}
			})
		}
		together(2, func(int) {
			for i := range 3000 {
				e.RaiseExpectations("a", i, i)
				e.LowerExpectations("a", i, i)
				if i%100 == 0 {
					e.SetExpectations("a", i, i)
				}
			}
		})
		done.Store(true)
		readers.Wait()
	})

	t.Run("E11 an observation lowers the record before or after a Set, never both", func(t *testing.T) {
		t.Parallel()
		for range 500 {
			var e counter
			e.ExpectCreations("a", 10)
			together(2, func(i int) {
				if i == 0 {
					e.ExpectCreations("a", 5)
				} else {
					e.CreationObserved("a")
				}
			})
			adds, _, _ := e.GetExpectations("a")
			require.Contains(t, []int{4, 5}, adds)
		}
	})
}

func TestConcurrentTracking(t *testing.T) {
	t.Parallel()

	t.Run("E11 N observations at once lower by exactly N", func(t *testing.T) {
		t.Parallel()
		var e tracker
		e.ExpectCreations("a", 60_000)
		var outstandingOnes atomic.Int64
		together(4, func(int) {
			for range 20_000 {
				if e.CreationObservedOf("a", "any") {
					outstandingOnes.Add(1)
				}
			}
		})
		assert.EqualValues(t, 60_000, outstandingOnes.Load())
		e.LowerExpectations("a", -20_001, 0)
		p, _ := outstanding(&e, "a")
		assert.Equal(t, 1, p.Adds)
	})

	t.Run("E20 E22 a UID or a name seen by many at once counts once", func(t *testing.T) {
		t.Parallel()
		const n = 200
		var e tracker
		var list []types.UID
		var names []string
		for i := range n {
			list, names = append(list, types.UID(strconv.Itoa(i))), append(names, strconv.Itoa(i))
		}
		e.ExpectDeletions("a", list)
		e.ExpectCreationsOf("b", names)
		var deleted, created atomic.Int64
		together(8, func(int) {
			for i := range n - 1 {
				if e.DeletionObserved("a", list[i]) {
					deleted.Add(1)
				}
				if e.CreationObservedOf("b", names[i]) {
					created.Add(1)
				}
				if i%50 == 0 {
					e.Observe("a", []metav1.Object{podtest.Pod("x", podtest.UID(list[n-1])), podtest.Pod("y", podtest.UID(list[n-2]))})
				}
			}
		})
		// What Observe settled, nobody else did; the last of either is left.
		assert.LessOrEqual(t, deleted.Load(), int64(n-1))
		assert.EqualValues(t, n-1, created.Load())
		a, _ := outstanding(&e, "a")
		assert.Equal(t, 1, a.Dels)
		assert.Equal(t, uids{list[n-1]}, a.Deleting)
		b, _ := outstanding(&e, "b")
		assert.Equal(t, 1, b.Adds)
		assert.Equal(t, []string{names[n-1]}, b.Creating)
	})

	t.Run("E22 a UID is settled once in whichever record it stands", func(t *testing.T) {
		t.Parallel()
		for range 300 {
			var e tracker
			e.ExpectDeletions("a", uids{"1", "2"})
			var settled atomic.Int64
			together(3, func(i int) {
				if i == 0 {
					e.ExpectDeletions("a", uids{"1", "3"})
				} else if e.DeletionObserved("a", "1") {
					settled.Add(1)
				}
			})
			p, _ := outstanding(&e, "a")
			require.Len(t, p.Deleting, p.Dels)
			require.Contains(t, p.Deleting, types.UID("3"))
			require.NotContains(t, p.Deleting, types.UID("2"))
			// Seen before the second record, in it, or once in either.
			require.LessOrEqual(t, settled.Load(), int64(2))
			require.GreaterOrEqual(t, settled.Load(), int64(1))
		}
	})

	t.Run("V12 owners of deletions are right and none is left behind", func(t *testing.T) {
		t.Parallel()
		var e tracker
		var all []types.UID
		for i := range 20 {
			all = append(all, types.UID(strconv.Itoa(i)))
		}
		together(6, func(i int) { churn(&e, all, rand.New(rand.NewPCG(7, uint64(i)))) })

		pending := collect(&e)
		for _, p := range pending {
			assert.Len(t, p.Deleting, p.Dels, "numbers and UIDs agree")
		}
		for _, uid := range all {
			for owner, ok := e.OwnerOfDeletion(uid); ok; owner, ok = e.OwnerOfDeletion(uid) {
				require.Contains(t, pending[owner].Deleting, uid)
				require.True(t, e.DeletionObserved(owner, uid))
			}
		}
		assert.Empty(t, collect(&e), "every UID had its owner")
	})
}

// churn has a few owners, shared with everybody, expect and see deletions of the
// same UIDs.
func churn(e *tracker, all []types.UID, r *rand.Rand) {
	for range 2000 {
		key := strconv.Itoa(r.IntN(4))
		uid := all[r.IntN(len(all))]
		switch r.IntN(8) {
		case 0, 1:
			from := r.IntN(len(all))
			e.ExpectDeletions(key, all[from:from+r.IntN(len(all)-from)])
		case 2:
			e.DeletionObserved(key, uid)
		case 3:
			if owner, ok := e.OwnerOfDeletion(uid); ok {
				e.DeletionObserved(owner, uid)
			}
		case 4:
			e.DeleteExpectations(key)
		case 5:
			e.ExpectCreations(key, 0)
		case 6:
			e.Observe(key, []metav1.Object{podtest.Pod("x", podtest.UID(uid))})
		case 7:
			for _, p := range e.All() {
				if len(p.Deleting) != p.Dels {
					panic(fmt.Sprint("half a change: ", p))
				}
			}
		}
	}
}
