// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

type (
	store   = expectations.Store[string]
	changes = expectations.Changes
	uids    = []types.UID
)

func stateOf[K comparable](s *expectations.Store[K], key K) expectations.State {
	state, _ := s.State(key)
	return state
}

// left returns the outstanding changes of an owner, without the field Since of the Pending.
func left(s *store, key string) changes {
	pending, _ := s.Get(key)
	return pending.Changes
}

func all(s *store) map[string]expectations.Pending { return maps.Collect(s.All()) }

func TestStore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		run  func(is *assert.Assertions, s *store, c *clock)
	}{
		{"E1 an owner without a record is satisfied", func(is *assert.Assertions, s *store, _ *clock) {
			state, remaining := s.State("a")
			is.Equal(expectations.Satisfied, state)
			is.Zero(remaining)
			_, ok := s.Get("a")
			is.False(ok)
			s.Set("b", changes{Creations: 1})
			is.Equal(expectations.Satisfied, stateOf(s, "a"))
			is.Equal(expectations.Waiting, stateOf(s, "b"))
		}},
		{"E3 a record expires strictly after the timeout, W13 and remaining wakes the owner then", func(is *assert.Assertions, s *store, c *clock) {
			s.Set("a", changes{Creations: 1})
			state, remaining := s.State("a")
			is.Equal(expectations.Waiting, state)
			is.Equal(timeout+1, remaining, "just after the timeout")

			c.advance(timeout)
			state, remaining = s.State("a")
			is.Equal(expectations.Waiting, state, "at the timeout it still blocks")
			is.Equal(time.Duration(1), remaining)

			c.advance(remaining)
			state, remaining = s.State("a")
			is.Equal(expectations.Expired, state)
			is.Zero(remaining)
		}},
		{"E17 beside a number of deletions, a UID that is seen again takes one of the number", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Deletions: 1, Deleting: []types.UID{"uid"}})
			is.True(s.DeletionObserved("a", "uid"), "the UID")
			is.True(s.DeletionObserved("a", "uid"), "the number")
			is.False(s.DeletionObserved("a", "uid"), "nothing is left")
		}},
		{"E3 a satisfied record never expires", func(is *assert.Assertions, s *store, c *clock) {
			s.Set("a", changes{Creations: 1})
			is.True(s.CreationObserved("a", "x"))
			c.advance(2 * timeout)
			is.Equal(expectations.Satisfied, stateOf(s, "a"))
		}},
		{"E4 expiry keeps the record", func(is *assert.Assertions, s *store, c *clock) {
			s.Set("a", changes{Creations: 1, Deleting: uids{"1"}})
			c.advance(2 * timeout)
			is.Equal(expectations.Expired, stateOf(s, "a"))
			pending, ok := s.Get("a")
			is.True(ok)
			is.Equal(expectations.Pending{Changes: changes{Creations: 1, Deleting: uids{"1"}}, Since: start}, pending)
			is.True(s.CreationObserved("a", "x"))
			is.Equal(expectations.Expired, stateOf(s, "a"))
			is.True(s.DeletionObserved("a", "1"))
			is.Equal(expectations.Satisfied, stateOf(s, "a"))
		}},
		{"E5 E6 E19 E23 Set replaces everything, the time included", func(is *assert.Assertions, s *store, c *clock) {
			s.Set("a", changes{Creations: 5, Deletions: 2, Creating: []string{"x", "y"}, Deleting: uids{"1", "2"}})
			c.advance(timeout)
			s.Set("a", changes{Creating: []string{"y"}, Deleting: uids{"2", "3"}})
			_, remaining := s.State("a")
			is.Equal(timeout+1, remaining)
			is.Equal(changes{Creating: []string{"y"}, Deleting: uids{"2", "3"}}, left(s, "a"))
			is.False(s.CreationObserved("a", "x"))
			is.False(s.DeletionObserved("a", "1"), "a late event")
			is.Empty(s.OwnersOfDeletion("1"))
			is.Empty(s.OwnersOfCreation("x"))
			is.Equal([]string{"a"}, s.OwnersOfDeletion("2"))
		}},
		{"Add keeps what was recorded, and the time starts anew", func(is *assert.Assertions, s *store, c *clock) {
			s.Add("a", changes{Creations: 1, Creating: []string{"x"}})
			c.advance(timeout)
			s.Add("a", changes{Creations: 2, Creating: []string{"x", "y"}, Deletions: 1, Deleting: uids{"1"}})
			pending, _ := s.Get("a")
			is.Equal(expectations.Pending{
				Changes: changes{Creations: 3, Creating: []string{"x", "y"}, Deletions: 1, Deleting: uids{"1"}},
				Since:   start.Add(timeout),
			}, pending)
			_, remaining := s.State("a")
			is.Equal(timeout+1, remaining)
		}},
		{"Add makes an expired record wait again", func(is *assert.Assertions, s *store, c *clock) {
			s.Set("a", changes{Creations: 1})
			c.advance(timeout + 1)
			is.Equal(expectations.Expired, stateOf(s, "a"))
			s.Add("a", changes{Deleting: uids{"1"}})
			is.Equal(expectations.Waiting, stateOf(s, "a"))
			is.Equal(changes{Creations: 1, Deleting: uids{"1"}}, left(s, "a"))
		}},
		{"Add does not let a surplus stand for what is new", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Creations: -3, Deletions: -2, Deleting: uids{"1"}})
			s.Add("a", changes{Creations: 1, Deleting: uids{"2"}})
			is.Equal(changes{Creations: 1, Deletions: -1, Deleting: uids{"1", "2"}}, left(s, "a"), "the first deletion was lowered by number, the second is new")
		}},
		{"Try records only for an owner that is satisfied, and tells the state", func(is *assert.Assertions, s *store, c *clock) {
			state, remaining := s.Try("a", changes{Creations: 2})
			is.Equal(expectations.Satisfied, state)
			is.Zero(remaining)
			is.Equal(changes{Creations: 2}, left(s, "a"))

			state, remaining = s.Try("a", changes{Creations: 5})
			is.Equal(expectations.Waiting, state)
			is.Equal(timeout+1, remaining)
			is.Equal(changes{Creations: 2}, left(s, "a"))

			c.advance(timeout + 1)
			state, remaining = s.Try("a", changes{Creations: 5})
			is.Equal(expectations.Expired, state)
			is.Zero(remaining)
			is.Equal(changes{Creations: 2}, left(s, "a"))

			s.Lower("a", changes{Creations: 3})
			state, _ = s.Try("a", changes{Deleting: uids{"1"}})
			is.Equal(expectations.Satisfied, state)
			pending, _ := s.Get("a")
			is.Equal(expectations.Pending{Changes: changes{Deleting: uids{"1"}}, Since: c.now}, pending, "the surplus is gone")
		}},
		{"E8 lowering and observing never make a record", func(is *assert.Assertions, s *store, _ *clock) {
			s.Lower("a", changes{Creations: -3, Deletions: -3})
			is.False(s.CreationObserved("a", "x"))
			is.False(s.DeletionObserved("a", "1"))
			_, ok := s.Get("a")
			is.False(ok)
		}},
		{"E10 lowering and observing never refresh the time", func(is *assert.Assertions, s *store, c *clock) {
			s.Set("a", changes{Creations: 4, Deleting: uids{"1"}})
			c.advance(timeout)
			s.Lower("a", changes{Creations: 1})
			s.CreationObserved("a", "x")
			s.DeletionObserved("a", "1")
			_, remaining := s.State("a")
			is.Equal(time.Duration(1), remaining)
		}},
		{"E9 numbers are lowered below zero, observed to zero", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Creations: 1, Deletions: 1})
			is.True(s.CreationObserved("a", "x"))
			is.False(s.CreationObserved("a", "x"))
			is.True(s.DeletionObserved("a", "1"))
			is.False(s.DeletionObserved("a", "1"))
			is.Equal(changes{}, left(s, "a"))
			s.Lower("a", changes{Creations: 1, Deletions: 2})
			is.Equal(changes{Creations: -1, Deletions: -2}, left(s, "a"))
			is.Equal(expectations.Satisfied, stateOf(s, "a"))
		}},
		{"W8 W11 only the expected names count, once each, and then those that are counted", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Creations: 1, Creating: []string{"y", "x", "y"}})
			is.Equal(changes{Creations: 1, Creating: []string{"x", "y"}}, left(s, "a"))
			is.True(s.CreationObserved("a", "x"))
			is.Equal(changes{Creations: 1, Creating: []string{"y"}}, left(s, "a"))
			is.True(s.CreationObserved("a", "z"), "the one that is only counted")
			is.False(s.CreationObserved("a", "x"), "seen before")
			is.False(s.CreationObserved("a", "made-by-somebody-else"))
			is.Equal(changes{Creating: []string{"y"}}, left(s, "a"))
		}},
		{"E17 E18 E20 deletions go by UID: only the expected ones count, once each", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Deleting: uids{"1", "2", "1"}})
			is.Equal(changes{Deleting: uids{"1", "2"}}, left(s, "a"))
			is.False(s.DeletionObserved("a", "web-0 again"))
			is.True(s.DeletionObserved("a", "1"), "the update with a deletionTimestamp")
			is.False(s.DeletionObserved("a", "1"), "the delete")
			is.Equal(changes{Deleting: uids{"2"}}, left(s, "a"))
		}},
		{"Deleting tells the deletions that one chose", func(is *assert.Assertions, s *store, _ *clock) {
			is.False(s.Deleting("a", "1"))
			s.Set("a", changes{Deletions: 1, Deleting: uids{"1"}})
			is.True(s.Deleting("a", "1"))
			is.False(s.Deleting("a", "2"), "the other is known by number only")
			is.False(s.Deleting("b", "1"))
			s.DeletionObserved("a", "1")
			is.False(s.Deleting("a", "1"))
		}},
		{"Lower takes out names and UIDs, and skips those that are not outstanding", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Creations: 1, Deletions: 1, Creating: []string{"x", "y"}, Deleting: uids{"1", "2"}})
			s.Lower("a", changes{Creating: []string{"x", "z"}, Deleting: uids{"1", "9"}})
			is.Equal(changes{Creations: 1, Deletions: 1, Creating: []string{"y"}, Deleting: uids{"2"}}, left(s, "a"))
			is.Empty(s.OwnersOfCreation("x"))
			is.Empty(s.OwnersOfDeletion("1"))
		}},
		{"lowered by number, names stay and the total counts less", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Creating: []string{"x", "y"}})
			s.Lower("a", changes{Creations: 1})
			is.True(s.CreationObserved("a", "x"))
			is.Equal(expectations.Satisfied, stateOf(s, "a"))
			is.True(s.CreationObserved("a", "y"))
		}},
		{"empty names and UIDs are counted", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Creating: []string{"", "x", ""}, Deleting: uids{"", "1", ""}})
			is.Equal(changes{Creations: 2, Deletions: 2, Creating: []string{"x"}, Deleting: uids{"1"}}, left(s, "a"))
			is.True(s.CreationObserved("a", ""))
			is.True(s.DeletionObserved("a", ""))
			s.Lower("a", changes{Creating: []string{""}, Deleting: uids{""}})
			is.Equal(changes{Creating: []string{"x"}, Deleting: uids{"1"}}, left(s, "a"))
			is.Empty(s.OwnersOfCreation(""))
			is.Empty(s.OwnersOfDeletion(""))
			is.False(s.Deleting("a", ""))
		}},
		{"E2 E16 either side blocks alone, and negative numbers expect nothing", func(is *assert.Assertions, s *store, _ *clock) {
			for _, test := range []struct {
				what changes
				want expectations.State
			}{
				{changes{}, expectations.Satisfied},
				{changes{Creations: 1, Deletions: -1}, expectations.Waiting},
				{changes{Creations: -1, Deletions: 1}, expectations.Waiting},
				{changes{Creating: []string{"x"}, Deletions: -5}, expectations.Waiting},
				{changes{Creations: -5, Deleting: uids{"1"}}, expectations.Waiting},
				{changes{Creations: -5, Deletions: -1}, expectations.Satisfied},
				{changes{Creations: -1, Creating: []string{"x"}}, expectations.Satisfied},
			} {
				s.Set("a", test.what)
				is.Equal(test.want, stateOf(s, "a"), "%+v", test.what)
			}
		}},
		{"absurd numbers stop at the bound of an int32, either way", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Creations: math.MaxInt, Deletions: math.MinInt})
			is.Equal(changes{Creations: math.MaxInt32, Deletions: -math.MaxInt32}, left(s, "a"))
			s.Lower("a", changes{Creations: math.MinInt, Deletions: math.MaxInt})
			is.Equal(changes{Creations: math.MaxInt32, Deletions: -math.MaxInt32}, left(s, "a"))
			s.Lower("a", changes{Creations: math.MaxInt, Deletions: math.MinInt})
			is.Equal(changes{}, left(s, "a"))
			s.Add("a", changes{Creations: math.MaxInt, Creating: []string{"", "x"}})
			is.Equal(changes{Creations: math.MaxInt32, Creating: []string{"x"}}, left(s, "a"))
			is.Equal(expectations.Waiting, stateOf(s, "a"))
		}},
		{"E13 E21 a record that was forgotten is as if it never was", func(is *assert.Assertions, s *store, _ *clock) {
			s.Forget("a")
			s.Set("a", changes{Creations: 3, Creating: []string{"x"}, Deleting: uids{"1"}})
			s.Set("b", changes{Creations: 3, Creating: []string{"x"}, Deleting: uids{"1"}})
			s.Forget("a")
			s.Forget("a")
			_, ok := s.Get("a")
			is.False(ok)
			is.False(s.CreationObserved("a", "x"))
			is.Equal(changes{Creations: 3, Creating: []string{"x"}, Deleting: uids{"1"}}, left(s, "b"))
			is.Equal([]string{"b"}, s.OwnersOfCreation("x"))
			is.Equal([]string{"b"}, s.OwnersOfDeletion("1"))
		}},
		{"a clock that stands still expires nothing", func(is *assert.Assertions, s *store, _ *clock) {
			s.Set("a", changes{Creations: 1})
			for range 3 {
				state, remaining := s.State("a")
				is.Equal(expectations.Waiting, state)
				is.Equal(timeout+1, remaining)
			}
		}},
		{"a clock that went back waits longer, but never asks for more than the timeout", func(is *assert.Assertions, s *store, c *clock) {
			s.Set("a", changes{Creations: 1})
			c.advance(-24 * time.Hour)
			for _, look := range []func() (expectations.State, time.Duration){
				func() (expectations.State, time.Duration) { return s.State("a") },
				func() (expectations.State, time.Duration) { return s.Try("a", changes{}) },
			} {
				state, remaining := look()
				is.Equal(expectations.Waiting, state)
				is.Equal(timeout+1, remaining)
			}
			c.advance(24*time.Hour + timeout + 1)
			is.Equal(expectations.Expired, stateOf(s, "a"))
		}},
		{"slices that were passed in are not kept, W18 and those that are returned are copies", func(is *assert.Assertions, s *store, _ *clock) {
			list, names := uids{"1", "2"}, []string{"x", "y"}
			s.Set("a", changes{Creating: names, Deleting: list})
			list[0], names[0] = "3", "z"
			is.Equal(changes{Creating: []string{"x", "y"}, Deleting: uids{"1", "2"}}, left(s, "a"))
			left(s, "a").Creating[0] = "z"
			s.OwnersOfDeletion("1")[0] = "b"
			is.Equal(changes{Creating: []string{"x", "y"}, Deleting: uids{"1", "2"}}, left(s, "a"))
			is.Equal([]string{"a"}, s.OwnersOfDeletion("1"))
		}},
		{"All yields what is outstanding, from a snapshot", func(is *assert.Assertions, s *store, c *clock) {
			is.Empty(all(s))
			s.Set("waiting", changes{Creations: 2})
			c.advance(time.Minute)
			s.Set("satisfied", changes{})
			s.Set("seen", changes{Creations: 1})
			s.CreationObserved("seen", "x")
			for i := range 50 {
				s.Set(strconv.Itoa(i), changes{Creations: i + 1})
			}
			is.Equal(expectations.Pending{Changes: changes{Creations: 2}, Since: start}, all(s)["waiting"])
			is.Equal(expectations.Pending{Changes: changes{Creations: 50}, Since: start.Add(time.Minute)}, all(s)["49"])
			sequence, n := s.All(), 0
			for key := range sequence {
				n++
				for other := range s.All() { // the body of the loop may call any method
					s.Forget(other)
				}
				s.Set("new-"+key, changes{Creations: 1})
			}
			is.Equal(51, n, "it sees nothing of what it changes")
			for range sequence {
				n++
				break
			}
			is.Equal(52, n, "the sequence may be used again")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := &clock{start}
			test.run(assert.New(t), &store{Now: c.Now}, c)
		})
	}
}

func TestOwners(t *testing.T) {
	t.Parallel()
	t.Run("V12 all owners of a deletion are told, in the order in which they came", func(t *testing.T) {
		t.Parallel()
		var s store
		assert.Nil(t, s.OwnersOfDeletion("1"))
		for _, key := range []string{"b", "c", "a"} {
			s.Set(key, changes{Deleting: uids{"1", "2"}})
		}
		assert.Equal(t, []string{"b", "c", "a"}, s.OwnersOfDeletion("1"))
		require.True(t, s.DeletionObserved("c", "1"))
		assert.Equal(t, []string{"b", "a"}, s.OwnersOfDeletion("1"))
		assert.Equal(t, []string{"b", "c", "a"}, s.OwnersOfDeletion("2"))
		s.Forget("b")
		assert.Equal(t, []string{"a"}, s.OwnersOfDeletion("1"))
		s.Set("a", changes{Deleting: uids{"2"}})
		assert.Nil(t, s.OwnersOfDeletion("1"))
		assert.Equal(t, []string{"c", "a"}, s.OwnersOfDeletion("2"))
	})

	t.Run("W8 creations are found by name alone, in every namespace", func(t *testing.T) {
		t.Parallel()
		var s expectations.Store[expectations.Key]
		other := expectations.Key{NamespacedName: types.NamespacedName{Namespace: "other", Name: "web"}, UID: "9"}
		s.Set(web, changes{Creating: []string{"web-x7k2p"}})
		s.Add(other, changes{Creating: []string{"web-x7k2p"}})
		assert.Equal(t, []expectations.Key{web, other}, s.OwnersOfCreation("web-x7k2p"))
		assert.True(t, s.CreationObserved(web, "web-x7k2p"))
		assert.Equal(t, []expectations.Key{other}, s.OwnersOfCreation("web-x7k2p"))
	})
}

func TestForgetName(t *testing.T) {
	t.Parallel()
	t.Run("Y3 every incarnation of the name goes, and nobody else", func(t *testing.T) {
		t.Parallel()
		var s expectations.Store[expectations.Key]
		other := expectations.Key{NamespacedName: types.NamespacedName{Namespace: "other", Name: "web"}, UID: "1"}
		unnamed := expectations.Key{NamespacedName: web.NamespacedName}
		for range 2 {
			for _, key := range []expectations.Key{web, webAgain, unnamed, other} {
				s.Set(key, changes{Deleting: uids{"1"}})
				s.Add(key, changes{Creations: 1})
			}
			s.Forget(webAgain)
			s.Set(webAgain, changes{})
			s.ForgetName(web.NamespacedName)
			for _, key := range []expectations.Key{web, webAgain, unnamed} {
				_, ok := s.Get(key)
				assert.False(t, ok)
			}
			assert.Equal(t, []expectations.Key{other}, s.OwnersOfDeletion("1"))
		}
	})
	t.Run("Y3 it touches its own store alone", func(t *testing.T) {
		t.Parallel()
		var s, other expectations.Store[expectations.Key]
		s.Set(web, changes{Creations: 1})
		other.Set(web, changes{Creations: 1})
		s.ForgetName(web.NamespacedName)
		assert.Equal(t, expectations.Satisfied, stateOf(&s, web))
		assert.Equal(t, expectations.Waiting, stateOf(&other, web))
	})
	t.Run("keys that are a name are found, others are not", func(t *testing.T) {
		t.Parallel()
		var byName expectations.Store[types.NamespacedName]
		byName.Set(web.NamespacedName, changes{Creations: 1})
		byName.ForgetName(web.NamespacedName)
		assert.Equal(t, expectations.Satisfied, stateOf(&byName, web.NamespacedName))
		var byString store
		byString.Set("team/web", changes{Creations: 1})
		byString.ForgetName(web.NamespacedName)
		assert.Equal(t, expectations.Waiting, stateOf(&byString, "team/web"))
	})
}

func TestKeysAreToldApart(t *testing.T) {
	t.Parallel()
	key := func(name string, uid types.UID) expectations.Key {
		return expectations.Key{NamespacedName: types.NamespacedName{Namespace: "team", Name: name}, UID: uid}
	}
	var s expectations.Store[expectations.Key]
	var keys []expectations.Key
	for i := range 100 {
		keys = append(keys, key(strconv.Itoa(i), ""), key(strconv.Itoa(i), "same"), key("web", types.UID(fmt.Sprint(i, "-0000-e5f6"))))
	}
	for i, key := range keys {
		s.Set(key, changes{Creations: i})
	}
	for i, key := range keys {
		pending, ok := s.Get(key)
		require.True(t, ok)
		require.Equal(t, i, pending.Creations)
		if i%3 == 0 {
			s.Forget(key)
		}
	}
	for i, key := range keys {
		_, ok := s.Get(key)
		require.Equal(t, i%3 != 0, ok)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	jitter := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	for _, test := range []struct {
		name    string
		timeout time.Duration
		jitter  func() time.Duration
		want    time.Duration
	}{
		{"E3 zero means five minutes", 0, nil, 5 * time.Minute},
		{"E3 a negative timeout means five minutes", -time.Second, nil, 5 * time.Minute},
		{"W13 the timeout may be chosen", time.Second, nil, time.Second},
		{"W13 jitter comes on top", time.Second, jitter(time.Minute), time.Minute + time.Second},
		{"W13 jitter comes on top of five minutes", 0, jitter(time.Minute), 6 * time.Minute},
		{"W13 negative jitter is none", time.Second, jitter(-time.Minute), time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := &clock{start}
			s := &store{Timeout: test.timeout, Now: c.Now, Jitter: test.jitter}
			s.Set("a", changes{Creations: 1})
			_, remaining := s.State("a")
			assert.Equal(t, test.want+1, remaining)
			c.advance(test.want)
			assert.Equal(t, expectations.Waiting, stateOf(s, "a"))
			c.advance(1)
			assert.Equal(t, expectations.Expired, stateOf(s, "a"))
		})
	}

	t.Run("W13 each record has a jitter of its own, until it is recorded again", func(t *testing.T) {
		t.Parallel()
		c, next := &clock{start}, time.Duration(0)
		s := &store{Timeout: time.Minute, Now: c.Now, Jitter: func() time.Duration { next += time.Second; return next }}
		s.Set("a", changes{Creations: 1})
		s.Add("b", changes{Creations: 1})
		s.Try("c", changes{Creations: 1})
		for range 2 {
			for i, key := range []string{"a", "b", "c"} {
				_, remaining := s.State(key)
				assert.Equal(t, time.Minute+time.Duration(i+1)*time.Second+1, remaining)
			}
			s.CreationObserved("a", "x") // observing and lowering do not change the jitter
			s.Lower("a", changes{Creations: -1})
		}
		s.Add("a", changes{})
		_, remaining := s.State("a")
		assert.Equal(t, time.Minute+4*time.Second+1, remaining)
	})

	t.Run("W13 the longest timeout never expires and does not overflow", func(t *testing.T) {
		t.Parallel()
		c := &clock{start}
		s := &store{Timeout: math.MaxInt64 - 1, Now: c.Now, Jitter: jitter(math.MaxInt64)}
		s.Set("a", changes{Creations: 1})
		_, remaining := s.State("a")
		assert.Equal(t, time.Duration(math.MaxInt64), remaining)
		c.now = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		assert.Equal(t, expectations.Waiting, stateOf(s, "a"))
	})

	t.Run("E3 a nil Now is the real clock", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var s store
			s.Set("a", changes{Creations: 1})
			time.Sleep(timeout)
			state, remaining := s.State("a")
			require.Equal(t, expectations.Waiting, state)
			time.Sleep(remaining)
			assert.Equal(t, expectations.Expired, stateOf(&s, "a"))
		})
	})
}

func TestSync(t *testing.T) {
	t.Parallel()
	type pods = []*corev1.Pod
	for _, test := range []struct {
		name              string
		expected          changes
		live, terminating pods
		want              changes
	}{
		{
			"W8 a name in a list was created, though it is terminating again",
			changes{Creating: []string{"x", "y", "z"}},
			pods{podtest.Pod("x"), podtest.Pod("old")},
			pods{podtest.Pod("z")},
			changes{Creating: []string{"y"}},
		},
		{
			"W8 a list proves nothing about what is only counted",
			changes{Creations: 2, Deletions: 2},
			pods{podtest.Pod("x"), podtest.Pod("y")},
			nil,
			changes{Creations: 2, Deletions: 2},
		},
		{
			"W9 a UID that is not among the live was deleted",
			changes{Deleting: uids{"uid-x", "uid-y", "uid-z"}},
			pods{podtest.Pod("x")},
			pods{podtest.Pod("y", podtest.Deleting)},
			changes{Deleting: uids{"uid-x"}},
		},
		{
			"W9 a pod made again under its name does not hold up the deletion of the first",
			changes{Deleting: uids{"uid-x"}},
			pods{podtest.Pod("x", podtest.UID("another"))},
			nil,
			changes{},
		},
		{
			"W9 empty lists prove every deletion",
			changes{Creating: []string{"x"}, Deleting: uids{"uid-x", "uid-y"}},
			nil, nil,
			changes{Creating: []string{"x"}},
		},
		{
			"an object without UID goes by its name",
			changes{Deleting: uids{"default/x", "default/y"}},
			pods{podtest.Pod("x", podtest.UID(""))},
			nil,
			changes{Deleting: uids{"default/x"}},
		},
		{
			"nil objects are skipped",
			changes{Deleting: uids{"uid-x", "uid-y"}},
			pods{nil, podtest.Pod("x")},
			pods{nil},
			changes{Deleting: uids{"uid-x"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := &clock{start}
			s := &store{Now: c.Now}
			s.Set("a", test.expected)
			s.Set("b", test.expected)
			c.advance(time.Minute)
			for range 2 { // a second call changes nothing
				got := expectations.Sync(s, "a", test.live, test.terminating)
				assert.Equal(t, expectations.Pending{Changes: test.want, Since: start}, got)
				assert.Equal(t, test.want, left(s, "a"))
			}
			for _, uid := range test.expected.Deleting {
				assert.Contains(t, s.OwnersOfDeletion(uid), "b", "others keep theirs")
			}
		})
	}
	t.Run("E1 an owner without a record stays without one", func(t *testing.T) {
		t.Parallel()
		var s store
		assert.Zero(t, expectations.Sync(&s, "a", pods{podtest.Pod("x")}, nil))
		_, ok := s.Get("a")
		assert.False(t, ok)
	})
}

func TestNothingIsAllocatedToObserveAndCheck(t *testing.T) { //nolint:paralleltest // it counts allocations
	var s expectations.Store[expectations.Key]
	s.Set(web, changes{Creations: math.MaxInt32, Deleting: uids{"1"}})
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		s.CreationObserved(web, "web-0")
		s.DeletionObserved(web, "2")
		s.State(web)
	}))
}
