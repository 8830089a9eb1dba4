// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import "testing"

func TestAwaited(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"a child that was created counts, and is waited for until the cache shows it", `
			created a@7
			waits? => 5m0.000000001s
			awaited? => [a] []
			cache 5: b@4 => b@4 a@7 WAITS
			again? => 5m0.000000001s
			cache 7: b@4 a@7 => b@4 a@7
			waits? => 0s
			holds? => nothing`},
		{"or until the cache has come so far and lacks it", `
			created a@7
			cache 8: =>
			holds? => nothing`},
		{"if the cache does not tell how far it has come, the child itself tells", `
			created a@7
			cache : => a@7 WAITS
			cache : a@7 => a@7
			holds? => nothing`},
		{"or an event that it left", `
			created a@7
			cache : => a@7 WAITS
			left a
			cache : =>
			waits? => 0s
			holds? => nothing`},
		{"but not for a view of a cache that was read before", `
			cache 5: a@3 b@4 => a@3 b@4
			deleted a
			begin
			left a
			old 5: a@3 b@4 => a@3 b@4 WAITS
			split? => [b@4] [] [a@3]
			cache 6: b@4 => b@4
			holds? => nothing`},
		{"also one that came before the answer to the creation", `
			cache : =>
			call c
			left a
			created a@7 of c
			cache : =>
			done
			holds? => nothing`},
		{"an event tells nothing of a child that nobody knows, when the pass is over", `
			cache : b@4 => b@4
			left b
			done
			left a
			left /
			holds? => nothing`},
		{"what takes too long makes the view an old one, that a list mends", `
			created a@7
			wait 5m
			cache 5: => a@7 WAITS
			again? => 1ns
			wait 1ns
			again? => 5s
			cache 5: => a@7 OLD UNMET
			waits? => 0s
			list 9: a@7
			again => a@7
			waits? => 0s
			again? => 5s`},
		{"a child that was deleted stays in the view until the cache shows that it goes", `
			cache 5: a@3 b@4 => a@3 b@4
			deleted a
			awaited? => [] [a]
			split? => [b@4] [] [a@3]
			again? => 5m0.000000001s
			cache 6: a@3 b@4 => a@3 b@4 WAITS
			cache 7: a@7- b@4 => a@7- b@4
			waits? => 0s
			holds? => nothing`},
		{"or that it is gone", `
			cache : a@3 => a@3
			deleted a
			cache : =>
			holds? => nothing`},
		{"a deletion that takes too long makes the view an old one", `
			cache : a@3 => a@3
			deleted a
			wait 5m1s
			cache : a@3 => a@3 OLD UNMET
			again? => 5s
			list : a@3
			again => a@3
			waits? => 0s`},
		{"a child that only a list has shown is waited for, too", `
			cache 5: =>
			list 9: a@8
			again => a@8
			deleted a
			cache 6: => a@8 WAITS
			again? => 5s
			cache 9: a@9- => a@9-
			holds? => nothing`},
		{"what is known to be gone, or hidden by a list, is not waited for", `
			cache 5: a@3 b@4 c@2 => a@3 b@4 c@2
			deleted a
			gone a
			deleted b
			split? => [c@2] [] [b@4]
			list 9: c@2
			split? => [c@2] [] []
			again => c@2
			waits? => 0s`},
		{"a deletion that was accepted is no longer in flight", `
			cache 5: a@3 => a@3
			doubt a@3
			doubts? => a 0s
			deleted a
			doubts? =>`},
		{"an empty UID is no child's", `
			deleted /
			holds? => nothing`},
		{"an owner that has left the cache waits for nothing", `
			created a@7
			forget
			awaited? => [] []`},
		{"neither does one whose cache went back: its children must be listed", `
			cache 5: a@3 => a@3
			deleted a
			back
			cache 4: a@3 => a@3 OLD`},
		{"the former one of two with one name is not waited for", `
			created x/a@7
			told y/a@9
			cache 5: => y/a@9
			waits? => 0s`},
		{"nor is one that the cache has a later namesake of", `
			created x/a@7
			cache : y/a@9 => y/a@9
			waits? => 0s`},
		{"a list that does not show a child which does not match ends the wait for its deletion", `
			cache 5: a@3~ => a@3~
			deleted a
			wait 5m1s
			cache 5: a@3~ => a@3~ OLD UNMET
			list 9:
			again => a@3~`},
		{"a child that somebody else deletes is left out", `
			cache 5: a@3 b@4 => a@3 b@4
			told a@6-
			split? => [b@4] [] []`},
		{"a child that was deleted leaves, though a list of the same pass lacks it already", `
			cache : a@3 b@4 => a@3 b@4
			list : b@4
			deleted a
			split? => [b@4] [] [a@3]
			again => b@4
			waits? => 0s`},
		{"nothing is split if nothing is known", `
			cache 5: a@3 => a@3
			split? => [a@3] [] []`},
		{"a child that is created and that the cache has is one that came", `
			created a@7
			cache 5: => a@7 WAITS
			cache 5: a@7 => a@7
			created a@9
			split? => [] [a@7] []`},
	})
}
