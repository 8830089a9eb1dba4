// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

type (
	counter = expectations.ControllerExpectations[string]
	tracker = expectations.UIDTrackingControllerExpectations[string]
)

// TestStore covers the records. This test covers the methods with the names of Kubernetes.
func TestControllerExpectations(t *testing.T) {
	t.Parallel()
	want := func(is *assert.Assertions, e *counter, adds, dels int) {
		gotAdds, gotDels, ok := e.GetExpectations("a")
		is.True(ok)
		is.Equal([2]int{adds, dels}, [2]int{gotAdds, gotDels})
	}
	for _, test := range []struct {
		name string
		run  func(is *assert.Assertions, e *counter, c *clock)
	}{
		{"E1 E13 an owner without a record is satisfied, as is one that was deleted", func(is *assert.Assertions, e *counter, _ *clock) {
			is.True(e.SatisfiedExpectations("a"))
			e.ExpectCreations("a", 3)
			is.False(e.SatisfiedExpectations("a"))
			e.DeleteExpectations("a")
			e.DeleteExpectations("a")
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"E3 E4 an expired owner may act, and its record stays", func(is *assert.Assertions, e *counter, c *clock) {
			e.SetExpectations("a", 3, 4)
			c.advance(timeout)
			is.False(e.SatisfiedExpectations("a"))
			c.advance(1)
			is.True(e.SatisfiedExpectations("a"))
			want(is, e, 3, 4)
		}},
		{"E5 SetExpectations overwrites both counts", func(is *assert.Assertions, e *counter, _ *clock) {
			e.SetExpectations("a", 5, 6)
			e.SetExpectations("a", 1, 2)
			want(is, e, 1, 2)
		}},
		{"E6 expecting one kind forgets the other", func(is *assert.Assertions, e *counter, _ *clock) {
			e.ExpectCreations("a", 5)
			want(is, e, 5, 0)
			e.ExpectDeletions("a", 3)
			want(is, e, 0, 3)
			e.ExpectCreations("a", 2)
			want(is, e, 2, 0)
		}},
		{"E7 an observation lowers its own count by one", func(is *assert.Assertions, e *counter, _ *clock) {
			e.SetExpectations("a", 5, 6)
			e.CreationObserved("a")
			want(is, e, 4, 6)
			e.DeletionObserved("a")
			want(is, e, 4, 5)
		}},
		{"E8 raising and lowering change a record and never make one", func(is *assert.Assertions, e *counter, _ *clock) {
			e.RaiseExpectations("a", 1, 1)
			e.LowerExpectations("a", 1, 1)
			e.DeletionObserved("a")
			_, _, ok := e.GetExpectations("a")
			is.False(ok)
			e.SetExpectations("a", 1, 2)
			e.RaiseExpectations("a", 10, 20)
			want(is, e, 11, 22)
			e.LowerExpectations("a", 2, 3)
			want(is, e, 9, 19)
		}},
		{"E9 counts are not clamped at zero", func(is *assert.Assertions, e *counter, _ *clock) {
			e.ExpectCreations("a", 10)
			for range 11 {
				e.CreationObserved("a")
			}
			want(is, e, -1, 0)
			e.DeletionObserved("a")
			want(is, e, -1, -1)
			e.RaiseExpectations("a", 1, 0)
			want(is, e, 0, -1)
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"E10 raising, lowering and observing never refresh the time", func(is *assert.Assertions, e *counter, c *clock) {
			e.ExpectDeletions("a", 3)
			c.advance(timeout)
			e.RaiseExpectations("a", 1, 1)
			e.LowerExpectations("a", 1, 0)
			e.DeletionObserved("a")
			c.advance(1)
			is.Equal(expectations.Expired, stateOf(&e.Store, "a"))
		}},
		{"E12 GetExpectations tells a missing record from an empty one", func(is *assert.Assertions, e *counter, _ *clock) {
			_, _, ok := e.GetExpectations("a")
			is.False(ok)
			e.SetExpectations("a", 0, 0)
			want(is, e, 0, 0)
		}},
		{"E16 zero and negative counts are fulfilled at once", func(is *assert.Assertions, e *counter, _ *clock) {
			e.ExpectCreations("a", 0)
			is.True(e.SatisfiedExpectations("a"))
			e.SetExpectations("a", -2, -3)
			is.True(e.SatisfiedExpectations("a"))
			want(is, e, -2, -3)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, e := &clock{start}, &counter{}
			e.Now = c.Now
			test.run(assert.New(t), e, c)
		})
	}
}

func TestUIDTracking(t *testing.T) {
	t.Parallel()
	counts := func(e *tracker) [2]int {
		adds, dels, _ := e.GetExpectations("a")
		return [2]int{adds, dels}
	}
	for _, test := range []struct {
		name string
		run  func(is *assert.Assertions, e *tracker)
	}{
		{"E18 E21 a UID given twice counts once, and is forgotten with its owner", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"1", "2", "1"})
			is.Equal([2]int{0, 2}, counts(e))
			e.DeleteExpectations("a")
			is.False(e.DeletionObserved("a", "1"))
			is.Empty(e.OwnersOfDeletion("1"))
		}},
		{"E19 expecting deletions again replaces what was expected", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"1", "2", "3"})
			e.ExpectDeletions("a", uids{"3", "4"})
			is.Equal([2]int{0, 2}, counts(e))
			is.False(e.DeletionObserved("a", "1"))
			is.True(e.DeletionObserved("a", "3"))
		}},
		{"E20 E22 an expected deletion counts once, an unknown one not at all", func(is *assert.Assertions, e *tracker) {
			is.False(e.DeletionObserved("a", "1"), "no record")
			e.ExpectDeletions("a", uids{"1", "2"})
			is.False(e.DeletionObserved("a", "3"))
			is.False(e.DeletionObserved("b", "1"), "another owner's")
			is.True(e.DeletionObserved("a", "1"), "the update with a deletionTimestamp")
			is.False(e.DeletionObserved("a", "1"), "the delete")
			is.Equal([2]int{0, 1}, counts(e))
			is.True(e.DeletionObserved("a", "2"))
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"E20 lowering lowers the number and leaves the UIDs", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"1", "2"})
			e.LowerExpectations("a", 0, 1)
			is.Equal([2]int{0, 1}, counts(e))
			is.True(e.DeletionObserved("a", "1"))
			is.True(e.SatisfiedExpectations("a"))
			is.True(e.DeletionObserved("a", "2"))
			is.Equal([2]int{0, -1}, counts(e))
		}},
		{"E23 W14 expecting creations clears the UIDs left over", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"1"})
			e.ExpectCreations("a", 1)
			is.False(e.DeletionObserved("a", "1"), "a late event")
			is.Equal([2]int{1, 0}, counts(e), "not -1")
			e.CreationObserved("a")
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"E24 no UIDs are fulfilled at once", func(is *assert.Assertions, e *tracker) {
			for _, none := range []uids{nil, {}} {
				e.ExpectCreations("a", 1)
				e.ExpectDeletions("a", none)
				is.True(e.SatisfiedExpectations("a"))
				is.Equal([2]int{0, 0}, counts(e))
			}
		}},
		{"deletions that were only counted are settled by any UID", func(is *assert.Assertions, e *tracker) {
			e.SetExpectations("a", 0, 1)
			is.True(e.DeletionObserved("a", "1"))
			is.False(e.DeletionObserved("a", "1"))
			is.True(e.SatisfiedExpectations("a"))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(assert.New(t), &tracker{})
		})
	}
}

// The methods with the names of Kubernetes agree with the methods of the embedded Store.
func TestStoreOfTheThinForms(t *testing.T) {
	t.Parallel()
	e := &tracker{}
	e.Set("a", expectations.Changes{Creating: []string{"x"}, Deleting: []types.UID{"1"}})
	adds, dels, ok := e.GetExpectations("a")
	require.Equal(t, []any{1, 1, true}, []any{adds, dels, ok})
	assert.True(t, e.Store.CreationObserved("a", "x"))
	assert.True(t, e.DeletionObserved("a", "1"))
	assert.True(t, e.SatisfiedExpectations("a"))
}
