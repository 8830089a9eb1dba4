// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/ledger"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	known := ledger.Ledger[kid]{}
	start := known.Start()
	a := kidOf("a@5")
	view := func(start ledger.Moment, s ledger.Snapshot[kid]) error {
		_, err := known.View(start, s, began)
		return err
	}
	listed := func(start ledger.Moment, s ledger.Snapshot[kid], items ...kid) error {
		err := known.Listed(start, ledger.List[kid]{Items: items}, s, began)
		return err
	}
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"a view without a start", view(0, ledger.Snapshot[kid]{Rules: rules}), "ledger: start was not returned by Start"},
		{"a view without rules", view(start, ledger.Snapshot[kid]{}), "ledger: one of Rules is nil"},
		{"a view of a nil child", view(start, ledger.Snapshot[kid]{Rules: rules, Children: []kid{a, nil}}), "ledger: children[1] is nil"},
		{"a list without a start", listed(0, ledger.Snapshot[kid]{Rules: rules}), "ledger: start was not returned by Start"},
		{"a list without rules", listed(start, ledger.Snapshot[kid]{}, a), "ledger: one of Rules is nil"},
		{"a list with a nil child", listed(start, ledger.Snapshot[kid]{Rules: rules}, a, nil), "ledger: items[1] is nil"},
		{"a list after a cache with a nil child", listed(start, ledger.Snapshot[kid]{Rules: rules, Children: []kid{nil}}, a), "ledger: children[0] is nil"},
		{"an answer without a start", known.Observe(0, a, began), "ledger: start was not returned by Start"},
		{"an answer of a nil child", known.Observe(start, nil, began), "ledger: a child is nil"},
		{"an answer without a name", known.Observe(start, &metav1.PartialObjectMetadata{}, began), "ledger: a child without a name"},
	} {
		require.EqualError(t, tt.err, tt.want, tt.name)
	}
	assert.Equal(t, "nothing", known.Holds())
	nothing, err := known.View(start, ledger.Snapshot[kid]{Rules: rules}, began)
	require.NoError(t, err)
	assert.Zero(t, nothing)

	var mixed ledger.Ledger[metav1.Object]
	require.EqualError(t, mixed.Observe(mixed.Start(), (*corev1.Pod)(nil), began), "ledger: a child is nil", "a nil pointer in an interface is nil")
}

// ExpireCalls forgets each unanswered deletion that was sent at least five minutes (ledger.MaxRequestAge) before a list began. The
// result of UnansweredCalls no longer contains these deletions.
func TestLanded(t *testing.T) {
	t.Parallel()
	var known ledger.Ledger[kid]
	known.CallUnanswered("a", ledger.Delete, "", began)
	known.CallUnanswered("b", ledger.Delete, "", began.Add(1))
	known.ExpireCalls(began.Add(ledger.MaxRequestAge - 1))
	assert.Len(t, known.UnansweredCalls(), 2)
	known.ExpireCalls(began.Add(ledger.MaxRequestAge))
	assert.Equal(t, map[types.UID]time.Time{"b": began.Add(1)}, known.UnansweredCalls())
	assert.Equal(t, "1 entries", known.Holds())
}

// Objects of a fake client may have no UID. The Ledger then identifies these objects by their namespaces and
// names.
func TestNoUIDs(t *testing.T) {
	t.Parallel()
	var known ledger.Ledger[kid]
	a, b := kidOf("a@5"), kidOf("b@6")
	a.UID, b.UID = "", ""
	require.NoError(t, known.Observe(known.Start(), b, began))
	known.ObserveDeleted(known.Start(), "shop/a", began)
	view, err := known.View(known.Start(), ledger.Snapshot[kid]{Version: "4", Children: []kid{a}, Rules: rules}, began)
	require.NoError(t, err)
	assert.Equal(t, []kid{b}, view.Children)
}

// The caller may modify the results of Names and UnansweredCalls. The Ledger does not modify the slices that are passed to
// it.
func TestNothingIsShared(t *testing.T) {
	t.Parallel()
	var known ledger.Ledger[kid]
	cached := []kid{kidOf("a@3"), kidOf("b@4")}
	items := []kid{kidOf("c@8!"), kidOf("b@9")}
	s := ledger.Snapshot[kid]{Version: "5", Children: cached, Rules: rules}
	view, err := known.View(known.Start(), s, began)
	require.NoError(t, err)
	assert.Same(t, &cached[0], &view.Children[0], "if nothing is known, the view is the snapshot")
	err = known.Listed(known.Start(), ledger.List[kid]{Items: items, Version: "9"}, s, began)
	require.NoError(t, err)
	view, err = known.View(known.Start(), s, began)
	require.NoError(t, err)
	assert.Equal(t, []kid{items[1]}, view.Children)
	assert.Equal(t, []kid{kidOf("a@3"), kidOf("b@4")}, cached)
	assert.Equal(t, []kid{kidOf("c@8!"), kidOf("b@9")}, items)

	known.CreateSent(named("x"), began)
	known.CallUnanswered("b", ledger.Delete, "", began)
	names, doubts := known.Names(), known.UnansweredCalls()
	names[0].Name = "other"
	delete(doubts, "b")
	assert.Equal(t, "x", known.Names()[0].Name)
	assert.Len(t, known.UnansweredCalls(), 1)
}

// If the cache does not show a fact for longer than the time in the field Patience, the view becomes stale.
func TestPatience(t *testing.T) {
	t.Parallel()
	known := ledger.Ledger[kid]{Patience: time.Second}
	require.NoError(t, known.Observe(known.Start(), kidOf("a@7"), began))
	s := ledger.Snapshot[kid]{Version: "5", Rules: rules}
	view, err := known.View(known.Start(), s, began.Add(time.Second))
	require.NoError(t, err)
	assert.False(t, view.Stale)
	assert.Equal(t, time.Second, known.RequeueAfter(began.Add(time.Second)))
	view, err = known.View(known.Start(), s, began.Add(time.Second+1))
	require.NoError(t, err)
	assert.True(t, view.Stale)
}

// Goroutines may record the results of parallel calls at the same time, while other goroutines read the Ledger.
func TestManyGoroutines(t *testing.T) {
	t.Parallel()
	var known ledger.Ledger[kid]
	var s ledger.Snapshot[kid]
	s.Version, s.Rules = "1000", rules
	for i := range 100 {
		s.Children = append(s.Children, kidOf(fmt.Sprintf("c%d@%d", i, i+1)))
	}
	var all sync.WaitGroup
	for range 5 { // passes
		start := known.Start()
		_, err := known.View(start, s, began)
		require.NoError(t, err)
		for i := range 20 {
			all.Go(func() {
				id, name := types.UID(fmt.Sprint("c", i)), named(fmt.Sprint("c", i))
				call := known.Start()
				known.CreateSent(name, began)
				if err := known.Observe(call, kidOf(fmt.Sprintf("c%d@%d", i, 2000+i)), began); err != nil {
					t.Error(err)
				}
				known.ObserveDeleted(call, types.UID(fmt.Sprint("c", 50+i)), began)
				known.NameHeld(name, id, ledger.OtherObject, false)
				known.NameFree(name)
				known.NameChecked(name, began, began)
				known.CreateRejected(name)
				known.CallUnanswered(id, ledger.Delete, "", began)
			})
			all.Go(func() {
				known.Names()
				known.Open()
				known.UnansweredCalls()
				known.RequeueAfter(began)
				known.CallsExpireIn(began)
			})
		}
		all.Wait()
		err = known.Listed(known.Start(), ledger.List[kid]{Items: s.Children[:50], Version: "4000"}, s, began)
		require.NoError(t, err)
		known.CallAnswered("c1")
		known.Done()
	}
	view, err := known.View(known.Start(), s, began)
	require.NoError(t, err)
	assert.Equal(t, 50, len(view.Children), "the others are gone, have left, or are not in the list") //nolint:testifylint // it would print each
	known.CacheRegressed()
	known.Forget()
	assert.Equal(t, "19 entries", known.Holds(), "of the doubts")
}

// After MarkStale, all views are stale until a live list is recorded, or until Forget is called.
func TestADistrustedCacheIsOldUntilAList(t *testing.T) {
	t.Parallel()
	var known ledger.Ledger[kid]
	s := ledger.Snapshot[kid]{Rules: rules, Version: "5", Children: []kid{kidOf("b@4")}}
	isOld := func() bool {
		view, err := known.View(known.Start(), s, began)
		require.NoError(t, err)
		require.Len(t, view.Children, 1)
		assert.False(t, view.Unmet, "no list is worthwhile if nothing is to be done")
		return view.Stale
	}
	assert.False(t, isOld())
	known.MarkStale()
	assert.True(t, isOld())
	known.Done()
	assert.True(t, isOld(), "in later passes too")
	err := known.Listed(known.Start(), ledger.List[kid]{Items: s.Children, Version: "6"}, s, began)
	require.NoError(t, err)
	assert.False(t, isOld())
	known.MarkStale()
	known.Forget()
	assert.False(t, isOld(), "the owner left the cache, and came back")
}

// SentTo returns the namespace that was recorded for a name, also after Forget.
func TestTheNamespaceOfACreationIsKept(t *testing.T) {
	t.Parallel()
	var known ledger.Ledger[kid]
	known.CreateSent(types.NamespacedName{Namespace: "other", Name: "x"}, began)
	known.Forget()
	namespace, sent := known.SentTo("x")
	assert.Equal(t, "other", namespace)
	assert.True(t, sent)
	_, sent = known.SentTo("y")
	assert.False(t, sent)
}

// The method ObserveMissing records that a child is missing from a list. The view then omits the child. If the cache has
// reached the version of the list and contains the child, the view contains the child again.
func TestWhatAListOfALookLacks(t *testing.T) {
	t.Parallel()
	var known ledger.Ledger[kid]
	s := ledger.Snapshot[kid]{Rules: rules, Version: "5", Children: []kid{kidOf("a@4"), kidOf("b@4")}}
	start := known.Start()
	known.ObserveMissing(known.Start(), "a", "6", began)
	view, err := known.View(start, s, began)
	require.NoError(t, err)
	require.Len(t, view.Children, 1)
	assert.Equal(t, "b", view.Children[0].Name)
	s.Version = "6"
	view, err = known.View(known.Start(), s, began)
	require.NoError(t, err)
	assert.Len(t, view.Children, 2, "the cache has come as far and has it: it was made again")
}
