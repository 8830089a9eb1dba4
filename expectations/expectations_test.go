package expectations_test

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

const timeout = expectations.DefaultTimeout

var start = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)

// A clock is moved by hand.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time          { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

type (
	counter = expectations.ControllerExpectations[string]
	tracker = expectations.UIDTrackingControllerExpectations[string]
)

func counters(c *clock) *counter {
	return &counter{Now: c.Now}
}

func tracking(c *clock) *tracker { return &tracker{Now: c.Now} }

// A store is what the two types have in common.
type store interface {
	ExpectCreations(key string, adds int)
	CreationObserved(key string)
	LowerExpectations(key string, adds, dels int)
	SatisfiedExpectations(key string) bool
	State(key string) (expectations.State, time.Duration)
	DeleteExpectations(key string)
	All() iter.Seq2[string, expectations.Pending]
}

var (
	_ store = &counter{}
	_ store = &tracker{}
)

// bothStores runs a test on either type.
func bothStores(t *testing.T, name string, test func(is *assert.Assertions, s store, c *clock)) {
	t.Helper()
	t.Run(name+", counters", func(t *testing.T) {
		t.Parallel()
		c := &clock{start}
		test(assert.New(t), counters(c), c)
	})
	t.Run(name+", UID tracking", func(t *testing.T) {
		t.Parallel()
		c := &clock{start}
		test(assert.New(t), tracking(c), c)
	})
}

func stateOf(s store, key string) expectations.State {
	state, _ := s.State(key)
	return state
}

func outstanding(s store, key string) (p expectations.Pending, ok bool) {
	for k, p := range s.All() {
		if k == key {
			return p, true
		}
	}
	return p, false
}

func TestBothStores(t *testing.T) {
	t.Parallel()

	bothStores(t, "E1 an owner without a record is satisfied", func(is *assert.Assertions, s store, _ *clock) {
		is.True(s.SatisfiedExpectations("a"))
		state, remaining := s.State("a")
		is.Equal(expectations.Satisfied, state)
		is.Zero(remaining)
		s.ExpectCreations("b", 1)
		is.True(s.SatisfiedExpectations("a"))
		is.False(s.SatisfiedExpectations("b"))
	})

	bothStores(t, "E3 a record expires strictly after the timeout", func(is *assert.Assertions, s store, c *clock) {
		s.ExpectCreations("a", 1)
		state, remaining := s.State("a")
		is.Equal(expectations.Waiting, state)
		is.Equal(timeout+1, remaining, "just after the timeout")

		c.advance(timeout)
		state, remaining = s.State("a")
		is.Equal(expectations.Waiting, state, "at the timeout it still blocks")
		is.Equal(time.Duration(1), remaining)
		is.False(s.SatisfiedExpectations("a"))

		c.advance(remaining)
		state, remaining = s.State("a")
		is.Equal(expectations.Expired, state)
		is.Zero(remaining)
		is.True(s.SatisfiedExpectations("a"), "expired owners act")
	})

	bothStores(t, "E3 a fulfilled record never expires", func(is *assert.Assertions, s store, c *clock) {
		s.ExpectCreations("a", 1)
		s.CreationObserved("a")
		c.advance(2 * timeout)
		is.Equal(expectations.Satisfied, stateOf(s, "a"))
	})

	bothStores(t, "E4 expiry keeps the record and its counts", func(is *assert.Assertions, s store, c *clock) {
		s.ExpectCreations("a", 2)
		c.advance(2 * timeout)
		is.Equal(expectations.Expired, stateOf(s, "a"))
		p, ok := outstanding(s, "a")
		is.True(ok)
		is.Equal(expectations.Pending{Adds: 2, Since: start}, p)
		s.CreationObserved("a")
		is.Equal(expectations.Expired, stateOf(s, "a"))
		s.CreationObserved("a")
		is.Equal(expectations.Satisfied, stateOf(s, "a"))
	})

	bothStores(t, "E5 a new expectation replaces count and time", func(is *assert.Assertions, s store, c *clock) {
		s.ExpectCreations("a", 5)
		c.advance(timeout)
		s.ExpectCreations("a", 1)
		_, remaining := s.State("a")
		is.Equal(timeout+1, remaining)
		s.CreationObserved("a")
		is.True(s.SatisfiedExpectations("a"))
	})

	bothStores(t, "E8 lowering never makes a record", func(is *assert.Assertions, s store, _ *clock) {
		s.LowerExpectations("a", -3, -3)
		s.CreationObserved("a")
		is.Equal(expectations.Satisfied, stateOf(s, "a"))
		_, ok := outstanding(s, "a")
		is.False(ok)
	})

	bothStores(t, "E9 more seen than expected stays satisfied and is not clamped", func(is *assert.Assertions, s store, _ *clock) {
		s.ExpectCreations("a", 10)
		for range 11 {
			s.CreationObserved("a")
		}
		is.True(s.SatisfiedExpectations("a"))
		s.LowerExpectations("a", -1, 0)
		is.True(s.SatisfiedExpectations("a"), "-1 and 1 are 0")
		s.LowerExpectations("a", -1, 0)
		is.False(s.SatisfiedExpectations("a"))
	})

	bothStores(t, "E10 lowering never refreshes the time", func(is *assert.Assertions, s store, c *clock) {
		s.ExpectCreations("a", 3)
		c.advance(timeout)
		s.LowerExpectations("a", 1, 0)
		s.CreationObserved("a")
		_, remaining := s.State("a")
		is.Equal(time.Duration(1), remaining)
	})

	bothStores(t, "E13 a deleted record is as if it never was, deleting it again does nothing", func(is *assert.Assertions, s store, _ *clock) {
		s.DeleteExpectations("a")
		s.ExpectCreations("a", 3)
		s.ExpectCreations("b", 3)
		s.DeleteExpectations("a")
		s.DeleteExpectations("a")
		is.Equal(expectations.Satisfied, stateOf(s, "a"))
		s.CreationObserved("a")
		_, ok := outstanding(s, "a")
		is.False(ok)
		is.Equal(expectations.Waiting, stateOf(s, "b"))
		s.ExpectCreations("a", 1)
		is.Equal(expectations.Waiting, stateOf(s, "a"))
	})

	bothStores(t, "E16 zero and negative counts are fulfilled at once", func(is *assert.Assertions, s store, _ *clock) {
		s.ExpectCreations("a", 0)
		is.True(s.SatisfiedExpectations("a"))
		s.ExpectCreations("a", -2)
		is.True(s.SatisfiedExpectations("a"))
		s.LowerExpectations("a", -3, 0)
		p, _ := outstanding(s, "a")
		is.Equal(1, p.Adds, "the negative count was kept")
	})

	bothStores(t, "W13 remaining wakes the owner when the record has just expired", func(is *assert.Assertions, s store, c *clock) {
		s.ExpectCreations("a", 1)
		c.advance(timeout / 3)
		_, remaining := s.State("a")
		c.advance(remaining - 1)
		is.Equal(expectations.Waiting, stateOf(s, "a"))
		c.advance(1)
		is.Equal(expectations.Expired, stateOf(s, "a"))
	})

	bothStores(t, "a clock that stands still expires nothing", func(is *assert.Assertions, s store, _ *clock) {
		s.ExpectCreations("a", 1)
		for range 3 {
			state, remaining := s.State("a")
			is.Equal(expectations.Waiting, state)
			is.Equal(timeout+1, remaining)
		}
	})

	bothStores(t, "a clock that went back waits longer, but never asks for more than the timeout", func(is *assert.Assertions, s store, c *clock) {
		s.ExpectCreations("a", 1)
		c.advance(-24 * time.Hour)
		state, remaining := s.State("a")
		is.Equal(expectations.Waiting, state)
		is.Equal(timeout+1, remaining)
		c.advance(24*time.Hour + timeout + 1)
		is.Equal(expectations.Expired, stateOf(s, "a"))
	})

	bothStores(t, "absurd counts stop at the bound of an int32, either way", func(is *assert.Assertions, s store, _ *clock) {
		s.ExpectCreations("a", math.MaxInt)
		p, _ := outstanding(s, "a")
		is.Equal(math.MaxInt32, p.Adds)
		is.Zero(p.Dels)
		s.LowerExpectations("a", math.MinInt, math.MinInt)
		p, _ = outstanding(s, "a")
		is.Equal(math.MaxInt32, p.Adds)
		is.Equal(math.MaxInt32, p.Dels)
		s.LowerExpectations("a", math.MaxInt, 0)
		s.LowerExpectations("a", math.MaxInt, 0)
		p, _ = outstanding(s, "a")
		is.Equal(-math.MaxInt32, p.Adds)
		is.Equal(math.MaxInt32, p.Dels)
		s.ExpectCreations("a", math.MinInt)
		s.LowerExpectations("a", 1, -1)
		p, _ = outstanding(s, "a")
		is.Equal(-math.MaxInt32, p.Adds)
		is.Equal(1, p.Dels)
	})

	bothStores(t, "All yields what is outstanding, from a snapshot", func(is *assert.Assertions, s store, c *clock) {
		is.Empty(collect(s))
		s.ExpectCreations("waiting", 2)
		c.advance(time.Minute)
		s.ExpectCreations("satisfied", 0)
		s.ExpectCreations("seen", 1)
		s.CreationObserved("seen")
		for i := range 50 {
			s.ExpectCreations(strconv.Itoa(i), i+1)
		}
		is.Equal(expectations.Pending{Adds: 2, Since: start}, collect(s)["waiting"])
		is.Equal(expectations.Pending{Adds: 50, Since: start.Add(time.Minute)}, collect(s)["49"])
		all := s.All()
		n := 0
		for key := range all {
			n++
			for other := range s.All() { // the body may call anything
				s.LowerExpectations(other, 1000, 0)
				s.DeleteExpectations(other)
			}
			s.ExpectCreations("new-"+key, 1)
		}
		is.Equal(51, n, "it sees nothing of what it changes")
		for range all {
			n++
		}
		is.Equal(52, n, "the sequence may be used again")
	})
}

func collect(s store) map[string]expectations.Pending { return maps.Collect(s.All()) }

func TestControllerExpectations(t *testing.T) {
	t.Parallel()
	want := func(t *testing.T, e *counter, adds, dels int) {
		t.Helper()
		gotAdds, gotDels, ok := e.GetExpectations("a")
		require.True(t, ok)
		assert.Equal(t, [2]int{adds, dels}, [2]int{gotAdds, gotDels})
	}

	for _, test := range []struct {
		name       string
		adds, dels int
		want       expectations.State
	}{
		{"E2 nothing outstanding is satisfied", 0, 0, expectations.Satisfied},
		{"E2 creations alone block", 1, 0, expectations.Waiting},
		{"E2 deletions alone block", 0, 1, expectations.Waiting},
		{"E2 a surplus of deletions does not make up for a creation", 1, -1, expectations.Waiting},
		{"E2 a surplus of creations does not make up for a deletion", -1, 1, expectations.Waiting},
		{"E2 two surpluses are satisfied", -1, -1, expectations.Satisfied},
		{"E16 negative counts are fulfilled at once", -5, 0, expectations.Satisfied},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := counters(&clock{start})
			e.SetExpectations("a", test.adds, test.dels)
			assert.Equal(t, test.want, stateOf(e, "a"))
			assert.Equal(t, test.want != expectations.Waiting, e.SatisfiedExpectations("a"))
			want(t, e, test.adds, test.dels)
		})
	}

	t.Run("E4 GetExpectations returns an expired record", func(t *testing.T) {
		t.Parallel()
		c := &clock{start}
		e := counters(c)
		e.SetExpectations("a", 3, 4)
		c.advance(timeout + 1)
		want(t, e, 3, 4)
	})

	t.Run("E5 SetExpectations overwrites both counts", func(t *testing.T) {
		t.Parallel()
		e := counters(&clock{start})
		e.SetExpectations("a", 5, 6)
		e.SetExpectations("a", 1, 2)
		want(t, e, 1, 2)
	})

	t.Run("E6 expecting one kind forgets the other", func(t *testing.T) {
		t.Parallel()
		e := counters(&clock{start})
		e.ExpectCreations("a", 5)
		want(t, e, 5, 0)
		e.ExpectDeletions("a", 3)
		want(t, e, 0, 3)
		e.ExpectCreations("a", 2)
		want(t, e, 2, 0)
	})

	t.Run("E7 an observation lowers its own count by one", func(t *testing.T) {
		t.Parallel()
		e := counters(&clock{start})
		e.SetExpectations("a", 5, 6)
		e.CreationObserved("a")
		want(t, e, 4, 6)
		e.DeletionObserved("a")
		want(t, e, 4, 5)
	})

	t.Run("E8 raising and lowering change a record and never make one", func(t *testing.T) {
		t.Parallel()
		e := counters(&clock{start})
		e.RaiseExpectations("a", 1, 1)
		e.LowerExpectations("a", 1, 1)
		e.DeletionObserved("a")
		_, _, ok := e.GetExpectations("a")
		assert.False(t, ok)
		e.SetExpectations("a", 1, 2)
		e.RaiseExpectations("a", 10, 20)
		want(t, e, 11, 22)
		e.LowerExpectations("a", 2, 3)
		want(t, e, 9, 19)
	})

	t.Run("E9 counts are not clamped at zero", func(t *testing.T) {
		t.Parallel()
		e := counters(&clock{start})
		e.ExpectCreations("a", 10)
		for range 11 {
			e.CreationObserved("a")
		}
		want(t, e, -1, 0)
		e.DeletionObserved("a")
		want(t, e, -1, -1)
		e.RaiseExpectations("a", 1, 0)
		want(t, e, 0, -1)
		assert.True(t, e.SatisfiedExpectations("a"))
	})

	t.Run("E10 raising never refreshes the time", func(t *testing.T) {
		t.Parallel()
		c := &clock{start}
		e := counters(c)
		e.ExpectDeletions("a", 1)
		c.advance(timeout)
		e.RaiseExpectations("a", 1, 1)
		c.advance(1)
		assert.Equal(t, expectations.Expired, stateOf(e, "a"))
	})

	t.Run("E12 GetExpectations tells a missing record from an empty one", func(t *testing.T) {
		t.Parallel()
		e := counters(&clock{start})
		_, _, ok := e.GetExpectations("a")
		assert.False(t, ok)
		e.SetExpectations("a", 0, 0)
		want(t, e, 0, 0)
		e.DeleteExpectations("a")
		_, _, ok = e.GetExpectations("a")
		assert.False(t, ok)
	})

	t.Run("W15 bounds of one count never reach the other", func(t *testing.T) {
		t.Parallel()
		e := counters(&clock{start})
		e.SetExpectations("a", math.MinInt, 7)
		want(t, e, -math.MaxInt32, 7)
		e.RaiseExpectations("a", math.MaxInt, math.MinInt)
		want(t, e, 0, 7-math.MaxInt32)
		e.SetExpectations("a", -1, -1)
		e.RaiseExpectations("a", 0, 1)
		want(t, e, -1, 0)
		e.RaiseExpectations("a", 1, -1)
		want(t, e, 0, -1)
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		timeout, want time.Duration
	}{
		{"E3 zero means five minutes", 0, 5 * time.Minute},
		{"E3 a negative timeout means five minutes", -time.Second, 5 * time.Minute},
		{"W13 the timeout may be chosen", time.Second, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := &clock{start}
			plain := &counter{Timeout: test.timeout, Now: c.Now}
			byUID := &tracker{Timeout: test.timeout, Now: c.Now}
			for _, s := range []store{plain, byUID} {
				s.ExpectCreations("a", 1)
				_, remaining := s.State("a")
				assert.Equal(t, test.want+1, remaining)
			}
			c.advance(test.want + 1)
			for _, s := range []store{plain, byUID} {
				assert.Equal(t, expectations.Expired, stateOf(s, "a"))
			}
		})
	}

	t.Run("W13 the longest timeout never expires and does not overflow", func(t *testing.T) {
		t.Parallel()
		c := &clock{start}
		e := &counter{Timeout: math.MaxInt64, Now: c.Now}
		e.ExpectCreations("a", 1)
		_, remaining := e.State("a")
		assert.Equal(t, time.Duration(math.MaxInt64), remaining)
		c.now = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		assert.Equal(t, expectations.Waiting, stateOf(e, "a"))
	})
}

func TestRealClock(t *testing.T) {
	t.Parallel()
	for _, s := range []store{
		&counter{},
		&tracker{},
	} {
		t.Run(fmt.Sprintf("E3 a nil Now is the real clock, %T", s), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s.ExpectCreations("a", 1)
				time.Sleep(timeout)
				state, remaining := s.State("a")
				require.Equal(t, expectations.Waiting, state)
				time.Sleep(remaining)
				assert.Equal(t, expectations.Expired, stateOf(s, "a"))
			})
		})
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	var zero expectations.State
	assert.Equal(t, expectations.Satisfied, zero)
	assert.Equal(t, "satisfied", expectations.Satisfied.String())
	assert.Equal(t, "waiting", expectations.Waiting.String())
	assert.Equal(t, "expired", expectations.Expired.String())
	assert.Equal(t, "State(9)", expectations.State(9).String())
}

func TestKey(t *testing.T) {
	t.Parallel()
	t.Run("UIDs that are alike at both ends are different owners", func(t *testing.T) {
		t.Parallel()
		var e expectations.UIDTrackingControllerExpectations[expectations.Key]
		keys := make([]expectations.Key, 50)
		for i := range keys {
			keys[i].UID = types.UID(fmt.Sprintf("0a1b2c3d-0000-40%02d-8000-0000e5f60718", i))
			e.ExpectCreations(keys[i], i)
		}
		for i, key := range keys {
			for range i {
				assert.False(t, e.SatisfiedExpectations(key), "%s", key)
				e.CreationObserved(key)
			}
			assert.True(t, e.SatisfiedExpectations(key), "%s", key)
		}
	})
	old := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "1"}}
	again := old.DeepCopy()
	again.UID = "2"

	t.Run("W12 an owner made again under its name starts clean", func(t *testing.T) {
		t.Parallel()
		var e expectations.ControllerExpectations[expectations.Key]
		e.ExpectCreations(expectations.KeyOf(old), 3)
		assert.False(t, e.SatisfiedExpectations(expectations.KeyOf(old)))
		assert.True(t, e.SatisfiedExpectations(expectations.KeyOf(again)))
	})

	t.Run("keys that share a UID, or have none, are told apart", func(t *testing.T) {
		t.Parallel()
		for _, uid := range []types.UID{"", "same"} {
			var e expectations.ControllerExpectations[expectations.Key]
			key := func(i int) expectations.Key {
				return expectations.Key{NamespacedName: types.NamespacedName{Namespace: "team", Name: strconv.Itoa(i)}, UID: uid}
			}
			for i := range 100 {
				e.ExpectCreations(key(i), i)
			}
			for i := range 100 {
				e.RaiseExpectations(key(i), 1, i)
			}
			for i := 0; i < 100; i += 3 {
				e.DeleteExpectations(key(i))
			}
			for i := range 100 {
				adds, dels, ok := e.GetExpectations(key(i))
				require.Equal(t, i%3 != 0, ok)
				if ok {
					require.Equal(t, [2]int{i + 1, i}, [2]int{adds, dels})
				}
			}
		}
	})

	t.Run("a nil owner has the zero key", func(t *testing.T) {
		t.Parallel()
		assert.Zero(t, expectations.KeyOf(nil))
		assert.Zero(t, expectations.KeyOf((*corev1.Pod)(nil)))
	})

	t.Run("a key prints with its UID", func(t *testing.T) {
		t.Parallel()
		key := expectations.KeyOf(old)
		assert.Equal(t, "team/web (1)", key.String())
		assert.Equal(t, "{web team 1}", fmt.Sprint(key.MarshalLog()))
	})
}
