// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/replicas/ledger"
)

// requireRecalled holds a ledger against what becomes of it as JSON, between passes.
func requireRecalled(t *testing.T, known *ledger.Ledger[kid], now time.Time) {
	t.Helper()
	clone := known.Clone()
	clone.Done()
	text, err := json.Marshal(clone)
	require.NoError(t, err)
	var again ledger.Ledger[kid]
	require.NoError(t, json.Unmarshal(text, &again), "%s", text)
	require.Equal(t, clone.Knows(now), again.Knows(now), "%s", text)
	more, err := json.Marshal(&again)
	require.NoError(t, err)
	require.JSONEq(t, string(text), string(more))
}

func TestMemory(t *testing.T) {
	t.Parallel()
	t.Run("a Ledger that knows nothing is short", func(t *testing.T) {
		t.Parallel()
		text, err := json.Marshal(&ledger.Ledger[kid]{})
		require.NoError(t, err)
		assert.Equal(t, "{}", string(text))
	})
	t.Run("what is told to a clone stays there", func(t *testing.T) {
		t.Parallel()
		var known ledger.Ledger[kid]
		require.NoError(t, known.Told(known.Start(), kidOf("a@5"), began))
		known.Sending(named("x"), began)
		before := known.Knows(began)
		clone := known.Clone()
		clone.Doubt("a", "5", began)
		require.NoError(t, clone.Told(clone.Start(), kidOf("b@6"), began))
		clone.Bears(named("x"), "x", ledger.Stranger, true)
		clone.Stray(kidOf("s@7"))
		assert.Equal(t, before, known.Knows(began))
		assert.Empty(t, known.Strays())
		assert.Len(t, clone.Strays(), 1)
		requireRecalled(t, clone, began)
	})
	for text, want := range map[string]string{
		`[]`:                              "ledger: json: cannot unmarshal array",
		`{"children": {"": {"gone": 1}}}`: "ledger: children[]: a fact about a child without a UID",
		`{"children": {"a": {"word": {"there": true, "at": 1, "child": {"metadata": {"uid": "b"}}}}}}`: `ledger: children[a]: the child is "b", another one`,
		`{"children": {"a": {"word": {"there": true, "at": 1}}}}`:                                      "ledger: children[a]: it is there, and the child is null",
		`{"children": {"a": {"word": {"there": true}}}}`:                                               `ledger: children[a]: a word of no moment`,
		`{"names": [{"name": "a", "open": 1}, {"name": "", "open": 1}]}`:                               "ledger: names[1]: it is empty",
		`{"names": [{"name": "a", "open": 0}]}`:                                                        `ledger: names[0]: "a" is open 0 times`,
		`{"names": [{"name": "a", "open": 1, "bearer": 9}]}`:                                           `ledger: names[0]: "a" has the bearer 9, which is none`,
		`{"strays": [null]}`:           "ledger: strays[0] is null",
		`{"selector": "a in (b"}`:      "ledger: selector: ",
		`{"list": {"version": "5"`:     "unexpected end",
		`{"names": [{"sent": "now"}]}`: "ledger: parsing time",
	} {
		t.Run(text+" is refused, and nothing changes", func(t *testing.T) {
			t.Parallel()
			var known ledger.Ledger[kid]
			known.Sending(named("x"), began)
			before := known.Knows(began)
			require.ErrorContains(t, json.Unmarshal([]byte(text), &known), want)
			assert.Equal(t, before, known.Knows(began))
		})
	}
}
