// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/ledger"
)

func TestNames(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"a name is open until its child is seen", `
			sending a
			names? => a nobody, next look 0s
			cache 5: =>
			open? => a nobody, next look 0s
			cache 6: a@6 => a@6
			names? =>`},
		{"a list settles it that began when it could take effect no longer", `
			sending a
			wait 4m59s
			landed
			open? => a nobody, next look 0s
			sending b
			wait 1s
			landed
			open? => b nobody, next look 0s`},
		{"an answer settles it", `
			sending a
			bears a@6
			names? =>`},
		{"a refusal settles it", `
			sending a
			refused a
			names? =>
			refused a`},
		{"a child settles one creation, and not the one that was sent when it was there before", `
			sending a
			sending a
			bears u/a@6
			names? => a replica, next look 5m0s
			bears u/a@6
			names? => a replica, next look 5m0s
			open? =>
			cache 7: =>
			open? => a nobody, next look 0s
			bears v/a@8
			names? =>`},
		{"a child that left and a later one of its name settle two", `
			sending a
			sending a
			cache 6: u/a@6 => u/a@6
			open? =>
			cache 8: v/a@8 => v/a@8
			names? =>`},
		{"one refusal settles one of two", `
			sending a
			sending a
			refused a
			names? => a nobody, next look 0s
			refused a
			names? =>`},
		{"a child of the owner that is being deleted settles a creation, and keeps the name", `
			sending a
			sending a
			cache 6: a@6- => a@6-
			names? => a leaver, next look 0s, taken
			open? => a leaver, next look 0s, taken
			cache 7: =>
			open? => a nobody, next look 0s`},
		{"a stranger settles none, and keeps the name though views do not show it", `
			sending a
			bears a@6!
			cache 7: =>
			names? => a stranger, next look 0s, taken
			none a
			names? => a nobody, next look 0s`},
		{"an orphan bears the name, and settles it when it is adopted", `
			sending a
			cache 6: a@6? => a@6?
			names? => a replica, next look 5m0s
			cache 7: a@7 => a@7
			names? =>`},
		{"a look that finds nothing settles nothing while a request may land", `
			sending a
			looked a
			names? => a nobody, next look 1s
			wait 1s
			looked a
			names? => a nobody, next look 2s
			wait 4m
			looked a
			names? => a nobody, next look 4s
			wait 57s
			looked a
			names? => a nobody, next look 2s
			wait 2s
			names? => a nobody, next look 0s, landed
			looked a 1s
			names? => a nobody, next look 4s, landed
			wait 4s
			looked a
			names? =>`},
		{"a name that is sent again is looked for anew", `
			sending a
			looked a
			looked a
			names? => a nobody, next look 2s
			sending a
			names? => a nobody, next look 0s`},
		{"looks are at most a minute apart", `
			sending a
			looked a
			looked a
			looked a
			looked a
			looked a
			looked a
			names? => a nobody, next look 32s
			looked a
			names? => a nobody, next look 1m0s
			looked a
			names? => a nobody, next look 1m0s
			wait 270s
			looked a
			names? => a nobody, next look 30s`},
		{"while a replica bears it, no look is needed until all requests have landed", `
			sending a
			sending a
			bears a@6
			wait 1m
			names? => a replica, next look 4m0s`},
		{"a name that was not sent has no bearer", `
			bears a@6
			none a
			looked a
			refused a
			names? =>`},
		{"names are in the order in which they were sent", `
			sending b
			sending a
			sending b
			names? => b nobody, next look 0s; a nobody, next look 0s`},
		{"the longest time that a request may take", `
			unanswered? => 0s
			sending a
			wait 1m
			unanswered? => 4m0s
			doubt b
			unanswered? => 5m0s
			sure b
			unanswered? => 4m0s
			wait 5m
			unanswered? => 0s`},
		{"a clock that goes back begins the wait anew", `
			sending a
			looked a
			looked a
			wait -1h
			names? => a nobody, next look 2s`},
	})
}

func TestDoubts(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"a deletion without an answer is doubted until a view lacks the child", `
			cache 5: a@3 => a@3
			doubt a@3
			doubts? => a 0s
			cache 6: a@3 => a@3
			wait 10h
			doubts? => a 10h0m0s
			cache 7: =>
			doubts? =>
			holds? => nothing`},
		{"it ends when the child is seen to be deleted", `
			doubt a
			cache 6: a@6- => a@6-
			doubts? =>`},
		{"it ends when the child is seen in a later version than the call carried", `
			doubt a@3
			cache 6: a@6 => a@6
			doubts? =>`},
		{"a call that carried no version is doubted in each", `
			doubt a
			cache 6: a@6 => a@6
			doubts? => a 0s`},
		{"an older version of the cache proves nothing", `
			doubt a@5
			cache 4: a@3 => a@3
			doubts? => a 0s`},
		{"of two calls that carried different versions each may take effect", `
			doubt a@3
			wait 1s
			doubt a@5
			cache 9: a@9 => a@9
			doubts? => a 0s`},
		{"a second call with the same version is doubted from then on", `
			doubt a@3
			wait 1s
			doubt a@3
			doubts? => a 0s
			cache 9: a@9 => a@9
			doubts? =>`},
		{"an answer to another call ends it, if it shows a later version", `
			doubt a@3
			told a@5
			cache 4: => a@5
			doubts? =>`},
		{"a child that is gone is doubted no longer", `
			doubt a
			gone a
			cache 4: a@3 =>
			doubts? =>`},
		{"what is certain is doubted no longer", `
			doubt a
			sure a
			sure b
			doubts? =>
			holds? => nothing`},
		{"a child that a later list lacks is doubted no longer", `
			cache 5: a@3 => a@3
			doubt a
			list 9: =>
			again =>
			doubts? =>`},
		{"if the cache shows it later all the same, it is hidden, and doubted no longer", `
			cache 5: => 
			list 9: =>
			doubt a
			cache 6: a@6 =>
			doubts? =>`},
	})
}

// If the clock is set back, no wait becomes longer than it was at first.
func TestAClockThatWentBack(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"a creation without an answer", `
			sending a
			wait 1m
			unanswered? => 4m0s
			wait -1h
			unanswered? => 5m0s
			wait 4m59s
			unanswered? => 1s`},
		{"a name that a replica bears", `
			sending a
			sending a
			bears u/a@6
			wait -1h
			names? => a replica, next look 5m0s`},
		{"a deletion without an answer", `
			doubt a
			wait -1h
			unanswered? => 5m0s
			wait 4m
			unanswered? => 1m0s`},
		{"what the cache does not show for five minutes since then", `
			told a@7
			wait -1h
			cache 5: => a@7
			wait 5m
			cache 5: => a@7
			wait 1s
			cache 5: => a@7 OLD UNMET`},
	})
}

// InFlight returns the names for which no Replica is known. The name that was sent last comes first. If another
// object has a name, InFlight returns this name in the list Taken.
func TestInFlight(t *testing.T) {
	t.Parallel()
	var known ledger.Ledger[kid]
	for i, name := range []string{"web-1", "web-2", "web-3", "web-4"} {
		known.CreateSent(named(name), began.Add(time.Duration(i)))
	}
	known.NameHeld(named("web-2"), "x", ledger.OtherObject, false)
	known.NameHeld(named("web-3"), "y", ledger.Replica, false)
	known.CallUnanswered("b", ledger.Delete, "", began)
	known.CallUnanswered("a", ledger.Delete, "", began)
	calls := known.InFlight()
	creations, taken, deletions := calls.Creations, calls.Taken, calls.Deletions
	assert.Equal(t, []string{"web-4", "web-1"}, creations)
	assert.Equal(t, []string{"web-2"}, taken)
	assert.Equal(t, []types.UID{"a", "b"}, deletions)
}

// WasSent remembers each name that was sent, whatever has become of the creation. Names whose children are gone are
// forgotten when they are the most.
func TestMade(t *testing.T) {
	t.Parallel()
	var known ledger.Ledger[kid]
	sent := func(n int) types.NamespacedName {
		return types.NamespacedName{Namespace: "shop", Name: "web-" + strconv.Itoa(n)}
	}
	view := func(children ...kid) {
		_, err := known.View(known.Start(), ledger.Snapshot[kid]{Children: children, Rules: rules}, began)
		require.NoError(t, err)
		known.Done()
	}
	for n := range 100 {
		known.CreateSent(sent(n), began)
		known.CreateRejected(sent(n))
	}
	view()
	assert.True(t, known.WasSent(sent(0)), "there are few")
	assert.False(t, known.WasSent(sent(100)))
	for n := range 3 {
		known.CreateSent(sent(100+n), began)
	}
	known.CreateRejected(sent(100))
	known.CreateRejected(sent(101))
	view(kidOf("web-101@5"))
	assert.False(t, known.WasSent(sent(0)), "it is gone")
	assert.False(t, known.WasSent(sent(100)))
	assert.True(t, known.WasSent(sent(101)), "it is there")
	assert.True(t, known.WasSent(sent(102)), "it may still appear")
}
