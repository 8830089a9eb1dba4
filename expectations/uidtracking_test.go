package expectations_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
)

type uids = []types.UID

func TestUIDTracking(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		run  func(is *assert.Assertions, e *tracker)
	}{
		{"E17 deletions go by UID: a pod made again under its name is another pod", func(is *assert.Assertions, e *tracker) {
			first, again := podtest.Pod("web-0"), podtest.Pod("web-0", podtest.UID("another"))
			e.ExpectDeletions("a", uids{first.UID})
			is.False(e.DeletionObserved("a", again.UID))
			is.False(e.SatisfiedExpectations("a"))
			is.True(e.DeletionObserved("a", first.UID))
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"E18 a UID given twice counts once", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"1", "2", "1"})
			p, _ := outstanding(e, "a")
			is.Equal(expectations.Pending{Dels: 2, Deleting: uids{"1", "2"}, Since: start}, p)
		}},
		{"E19 expecting deletions again replaces what was expected", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"1", "2", "3"})
			e.ExpectDeletions("a", uids{"3", "4"})
			p, _ := outstanding(e, "a")
			is.Equal(expectations.Pending{Dels: 2, Deleting: uids{"3", "4"}, Since: start}, p)
			is.False(e.DeletionObserved("a", "1"))
			is.True(e.DeletionObserved("a", "3"))
		}},
		{"E20 an expected deletion counts once, however often it is seen", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"1", "2"})
			is.True(e.DeletionObserved("a", "1"), "the update with a deletionTimestamp")
			is.False(e.DeletionObserved("a", "1"), "the delete")
			p, _ := outstanding(e, "a")
			is.Equal(1, p.Dels)
			is.Equal(uids{"2"}, p.Deleting)
			is.True(e.DeletionObserved("a", "2"))
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"E20 an unknown UID counts nothing", func(is *assert.Assertions, e *tracker) {
			is.False(e.DeletionObserved("a", "1"), "no record")
			e.ExpectDeletions("a", uids{"1"})
			is.False(e.DeletionObserved("a", "2"))
			is.False(e.DeletionObserved("b", "1"), "another owner's")
			is.False(e.SatisfiedExpectations("a"))
		}},
		{"E20 an empty UID is a UID like any other", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"", ""})
			is.False(e.SatisfiedExpectations("a"))
			is.True(e.DeletionObserved("a", ""))
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"E21 deleting an owner's expectations forgets its UIDs and names", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"1"})
			e.DeleteExpectations("a")
			is.True(e.SatisfiedExpectations("a"))
			is.False(e.DeletionObserved("a", "1"))
			_, ok := e.OwnerOfDeletion("1")
			is.False(ok)
			e.ExpectCreationsOf("a", []string{"x"})
			e.DeleteExpectations("a")
			is.False(e.CreationObservedOf("a", "x"))
		}},
		{"E23 W14 expecting creations clears the UIDs left over", func(is *assert.Assertions, e *tracker) {
			for _, expectCreation := range []func(){
				func() { e.ExpectCreations("a", 1) },
				func() { e.ExpectCreationsOf("a", []string{"x"}) },
			} {
				e.ExpectDeletions("a", uids{"1"})
				expectCreation()
				is.False(e.DeletionObserved("a", "1"), "a late event")
				_, ok := e.OwnerOfDeletion("1")
				is.False(ok)
				p, _ := outstanding(e, "a")
				is.Equal(1, p.Adds)
				is.Zero(p.Dels, "not -1")
				is.Nil(p.Deleting)
			}
		}},
		{"E24 no UIDs are fulfilled at once", func(is *assert.Assertions, e *tracker) {
			e.ExpectCreations("a", 1)
			e.ExpectDeletions("a", nil)
			is.True(e.SatisfiedExpectations("a"))
			e.ExpectCreations("a", 1)
			e.ExpectDeletions("a", uids{})
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"E6 expecting deletions forgets the creations", func(is *assert.Assertions, e *tracker) {
			e.ExpectCreationsOf("a", []string{"x"})
			e.ExpectDeletions("a", uids{"1"})
			p, _ := outstanding(e, "a")
			is.Equal(expectations.Pending{Dels: 1, Deleting: uids{"1"}, Since: start}, p)
			e.CreationObservedOf("a", "x")
			is.True(e.DeletionObserved("a", "1"))
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"W8 creations by name: only the expected names count, once each", func(is *assert.Assertions, e *tracker) {
			e.ExpectCreationsOf("a", []string{"y", "x", "y"})
			p, _ := outstanding(e, "a")
			is.Equal(expectations.Pending{Adds: 2, Creating: []string{"x", "y"}, Since: start}, p)
			is.False(e.CreationObservedOf("a", "made-by-somebody-else"))
			is.True(e.CreationObservedOf("a", "x"))
			is.False(e.CreationObservedOf("a", "x"))
			e.CreationObserved("a") // proves no name
			p, _ = outstanding(e, "a")
			is.Equal(expectations.Pending{Adds: 1, Creating: []string{"y"}, Since: start}, p)
			is.True(e.CreationObservedOf("a", "y"))
			is.True(e.SatisfiedExpectations("a"))
		}},
		{"W8 no names are fulfilled at once", func(is *assert.Assertions, e *tracker) {
			e.ExpectCreationsOf("a", nil)
			is.True(e.SatisfiedExpectations("a"))
			e.CreationObserved("a")
			is.False(e.CreationObservedOf("a", "x"))
			e.LowerExpectations("a", -1, 0)
			is.False(e.SatisfiedExpectations("a"), "neither observation was counted")
		}},
		{"W8 W11 a count is lowered by any name, and tells whether one was outstanding", func(is *assert.Assertions, e *tracker) {
			is.False(e.CreationObservedOf("a", "x"), "no record")
			e.ExpectCreations("a", 2)
			is.True(e.CreationObservedOf("a", "x"))
			is.True(e.CreationObservedOf("a", "x"))
			is.True(e.SatisfiedExpectations("a"))
			is.False(e.CreationObservedOf("a", "y"))
			e.LowerExpectations("a", -1, 0)
			is.True(e.SatisfiedExpectations("a"), "E9 it went to -1")
		}},
		{"E20 LowerExpectations lowers the numbers and leaves names and UIDs", func(is *assert.Assertions, e *tracker) {
			e.ExpectDeletions("a", uids{"1", "2"})
			e.LowerExpectations("a", 0, 1)
			p, _ := outstanding(e, "a")
			is.Equal(expectations.Pending{Dels: 1, Deleting: uids{"1", "2"}, Since: start}, p)
			is.True(e.DeletionObserved("a", "1"))
			is.True(e.SatisfiedExpectations("a"))
			is.True(e.DeletionObserved("a", "2"))
			e.LowerExpectations("a", 0, -1)
			is.True(e.SatisfiedExpectations("a"), "-1 and 1 are 0")
		}},
		{"the lists that were passed in are not kept", func(is *assert.Assertions, e *tracker) {
			list, names := uids{"1", "2"}, []string{"x", "y"}
			e.ExpectDeletions("a", list)
			e.ExpectCreationsOf("b", names)
			list[0], names[0] = "3", "z"
			is.True(e.DeletionObserved("a", "1"))
			is.True(e.CreationObservedOf("b", "x"))
			p, _ := outstanding(e, "a")
			p.Deleting[0] = "9"
			is.True(e.DeletionObserved("a", "2"), "W18 All gives copies")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(assert.New(t), tracking(&clock{start}))
		})
	}
}

func TestOwnerOfDeletion(t *testing.T) {
	t.Parallel()
	owner := func(t *testing.T, e *tracker, uid types.UID, want string) {
		t.Helper()
		got, ok := e.OwnerOfDeletion(uid)
		assert.Equal(t, want != "", ok)
		assert.Equal(t, want, got)
	}

	t.Run("V12 a pod that lost its owner while being deleted is still settled", func(t *testing.T) {
		t.Parallel()
		e := tracking(&clock{start})
		owner(t, e, "1", "")
		e.ExpectDeletions("a", uids{"1", "2"})
		e.ExpectDeletions("b", uids{"3"})
		owner(t, e, "1", "a")
		owner(t, e, "3", "b")
		owner(t, e, "4", "")
		require.True(t, e.DeletionObserved("a", "1"))
		owner(t, e, "1", "")
		owner(t, e, "2", "a")
	})

	t.Run("V12 of two owners the last one comes first, then the other", func(t *testing.T) {
		t.Parallel()
		e := tracking(&clock{start})
		for _, key := range []string{"a", "b", "c"} {
			e.ExpectDeletions(key, uids{"1", "2"})
		}
		owner(t, e, "1", "c")
		assert.True(t, e.DeletionObserved("c", "1"))
		owner(t, e, "1", "b")
		e.DeleteExpectations("b")
		owner(t, e, "1", "a")
		owner(t, e, "2", "c")
		e.ExpectDeletions("a", uids{"2"})
		owner(t, e, "1", "")
		owner(t, e, "2", "a")
		e.DeleteExpectations("a")
		owner(t, e, "2", "c")
	})

	t.Run("V12 asking and settling in turn ends", func(t *testing.T) {
		t.Parallel()
		e := tracking(&clock{start})
		for i := range 10 {
			e.ExpectDeletions(strconv.Itoa(i), uids{"1"})
		}
		n := 0
		for key, ok := e.OwnerOfDeletion("1"); ok; key, ok = e.OwnerOfDeletion("1") {
			require.True(t, e.DeletionObserved(key, "1"))
			n++
		}
		assert.Equal(t, 10, n)
		assert.Empty(t, collect(e))
	})
}

func TestObserve(t *testing.T) {
	t.Parallel()
	live := func(pods ...*corev1.Pod) (objects []metav1.Object) {
		for _, pod := range pods {
			objects = append(objects, pod)
		}
		return objects
	}
	for _, test := range []struct {
		name   string
		expect func(e *tracker)
		live   []metav1.Object
		want   expectations.Pending // Since is added; zero = satisfied
	}{
		{
			"W8 a name in the list was created", func(e *tracker) {
				e.ExpectCreationsOf("a", []string{"x", "y"})
			},
			live(podtest.Pod("x"), podtest.Pod("old")),
			expectations.Pending{Adds: 1, Creating: []string{"y"}},
		},
		{
			"W8 a name in the list was created, though it is being deleted again", func(e *tracker) {
				e.ExpectCreationsOf("a", []string{"x"})
			},
			live(podtest.Pod("x", podtest.Deleting)),
			expectations.Pending{},
		},
		{
			"W8 a list proves nothing about a number of creations", func(e *tracker) {
				e.ExpectCreations("a", 2)
			},
			live(podtest.Pod("x"), podtest.Pod("y")),
			expectations.Pending{Adds: 2},
		},
		{
			"W9 a UID missing from the list was deleted", func(e *tracker) {
				e.ExpectDeletions("a", uids{"uid-x", "uid-y"})
			},
			live(podtest.Pod("x")),
			expectations.Pending{Dels: 1, Deleting: uids{"uid-x"}},
		},
		{
			"W9 a UID in the list with a deletionTimestamp was deleted", func(e *tracker) {
				e.ExpectDeletions("a", uids{"uid-x", "uid-y"})
			},
			live(podtest.Pod("x", podtest.Deleting), podtest.Pod("y")),
			expectations.Pending{Dels: 1, Deleting: uids{"uid-y"}},
		},
		{
			"W9 a pod made again under its name does not hold up the deletion of the first", func(e *tracker) {
				e.ExpectDeletions("a", uids{"uid-x"})
			},
			live(podtest.Pod("x", podtest.UID("another"))),
			expectations.Pending{},
		},
		{
			"W9 an empty list proves every deletion", func(e *tracker) {
				e.ExpectDeletions("a", uids{"uid-x", "uid-y"})
			},
			nil,
			expectations.Pending{},
		},
		{
			"nil objects are skipped", func(e *tracker) {
				e.ExpectDeletions("a", uids{"uid-x", "uid-y"})
			},
			[]metav1.Object{nil, (*corev1.Pod)(nil), podtest.Pod("x")},
			expectations.Pending{Dels: 1, Deleting: uids{"uid-x"}},
		},
		{
			"E1 an owner without a record stays without one", func(*tracker) {},
			live(podtest.Pod("x")),
			expectations.Pending{},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := tracking(&clock{start})
			test.expect(e)
			for range 2 { // a second look changes nothing
				e.Observe("a", test.live)
				got, ok := outstanding(e, "a")
				if ok {
					test.want.Since = start
				}
				assert.Equal(t, test.want, got)
				assert.Equal(t, !ok, e.SatisfiedExpectations("a"))
			}
			for _, uid := range (uids{"uid-x", "uid-y"}) {
				_, ok := e.OwnerOfDeletion(uid)
				assert.Equal(t, ok, e.DeletionObserved("a", uid), "what Observe settled is forgotten everywhere")
			}
		})
	}
}
