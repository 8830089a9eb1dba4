// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/replicas/ledger"
)

func TestView(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"if nothing is known, the cache is believed", `
			cache 5: a@3 b@4 c@5! => a@3 b@4 c@5!
			holds? => nothing
			again? => 0s`},
		{"a child that the cache lacks follows after those that it has", `
			told z@7
			told y@8
			cache 5: b@4 a@3 => b@4 a@3 z@7 y@8
			again? => 5s`},
		{"children that one call has shown are in the order of their names, and then of their UIDs", `
			call c
			told z@7 of c
			told y@8 of c
			told v/x@9 of c
			told u/w@9 of c
			cache 5: => u/w@9 v/x@9 y@8 z@7`},
		{"a version that the cache has not reached is laid over it", `
			told a@7?
			cache 5: a@3 => a@7?
			cache 6: a@6 => a@7?
			holds? => 1 entries
			cache 7: a@7? => a@7?
			holds? => nothing`},
		{"a cached child that is newer than what was said is believed", `
			told a@7
			cache 8: a@8? => a@8?
			holds? => nothing`},
		{"a child is newer by its own version if that of the cache is not known", `
			told a@7
			cache : a@6? => a@7
			cache : a@8? => a@8?
			holds? => nothing`},
		{"if versions are no numbers, a cached child that has changed is believed", `
			cache : a@w => a@w
			told a@x
			cache : a@w => a@x
			cache : a@y => a@y
			holds? => nothing`},
		{"if there are no versions, a live list is believed until the cached child changes", `
			cache : a@ b@ c@ => a@ b@ c@
			list : a@- c@
			again => a@- c@
			cache : a@ b@ c@ => a@- c@
			wait 5m1s
			cache : a@ b@ c@ => a@- c@ OLD UNMET
			list : a@- c@
			cache : a@ b@ c@ => a@- c@
			cache : a@- b@ c@ => a@- c@
			cache : a@- c@ => a@- c@
			holds? => nothing`},
		{"another change of the cached child is believed, too", `
			cache : a@ b@ => a@ b@
			list : a@-
			cache : a@ b@ => a@-
			cache : a@? b@? => a@? b@?
			holds? => nothing`},
		{"an answer of another call counts as long", `
			cache : a@? => a@?
			told a@
			cache : a@? => a@
			cache : a@ => a@
			holds? => nothing`},
		{"a child that the cache did not have is believed as soon as the cache has it", `
			cache : => 
			list : a@
			again => a@
			cache : a@- => a@-
			holds? => nothing`},
		{"if only one version is a number, the cached child must change, too", `
			cache : a@3 => a@3
			list : a@x-
			again => a@x-
			cache : a@3 => a@x-
			cache : a@4 => a@4
			holds? => nothing`},
		{"a cache that has come as far shows a child even in an earlier version", `
			told a@7
			cache 9: a@6 => a@6
			holds? => nothing`},
		{"a cache that has come as far and lacks a child shows that it is gone", `
			told a@7
			cache 6: => a@7
			cache 7: =>
			holds? => nothing`},
		{"what was said after the cache was read is newer, even if versions say otherwise", `
			begin
			told a@4
			old 5: a@5? => a@4
			cache 5: a@5? => a@5?`},
		{"a child that a list lacked counts again if the cache, whose version is not known, has it newer", `
			told a@5
			list 10:
			cache : a@5 =>
			cache : a@11 => a@11
			holds? => a list`},
		{"a child without a version is believed as the cache has it", `
			told a@
			cache 5: a@3? => a@3?
			holds? => nothing`},
		{"a child that does not exist is left out until the cache drops it", `
			gone a
			cache 5: a@3 b@4 => b@4
			cache 6: a@6 b@4 => b@4
			holds? => 1 entries
			cache 7: b@4 => b@4
			wait 5m1s
			cache 7: b@4 => b@4
			holds? => nothing`},
		{"an empty UID is no child's", `
			gone /
			doubt /
			cache 5: a@3 => a@3
			wait 5m1s
			cache 5: a@3 => a@3
			holds? => nothing`},
		{"a fact that the cache does not show for five minutes makes the view old", `
			told a@7
			cache 5: => a@7
			wait 5m
			cache 5: => a@7
			again? => 5s
			wait 1s
			cache 5: => a@7 OLD UNMET
			again? => 5s
			list 8: =>
			again =>
			again? => 0s`},
		{"a child that is gone and that the cache has for five minutes makes the view old", `
			gone a
			cache 5: a@3 =>
			wait 5m1s
			cache 5: a@3 => OLD UNMET`},
		{"a version that the cache does not reach for five minutes makes the view old", `
			told a@7
			wait 5m1s
			cache 5: a@3 => a@7 OLD UNMET
			list 9: a@7
			cache 5: a@3 => a@7
			wait 4m
			told b@10
			wait 2m
			cache 5: a@3 => a@7 b@10 OLD UNMET`},
		{"a watch that hung for longer and goes on does not show a dead child again", `
			told a@7
			gone a
			cache 5: =>
			wait 5m1s
			cache 5: => OLD
			cache 7: a@7 => OLD UNMET
			cache 8: =>
			holds? => nothing`},
		{"a cache that has come as far and never had a child that is gone will not show it", `
			told a@7
			gone a
			cache 7: =>
			holds? => nothing`},
		{"a cache that does not tell may show a dead child, until a list hides it", `
			told a@7
			gone a
			cache : =>
			wait 5m1s
			cache : => OLD
			list 9: =>
			again =>
			holds? => a list
			cache : a@7 =>`},
		{"a live list that has a child ends the fact that it is gone, if it began after the fact", `
			cache 5: a@3 => a@3
			gone a
			cache 6: a@3 =>
			list 7: a@3
			again => a@3
			cache 8: a@3 => a@3
			holds? => nothing`},
		{"the cache need not show the child", `
			told a@7
			gone a
			cache 5: =>
			list 8: a@7
			again => a@7`},
		{"whatever the versions are", `
			cache : a@w => a@w
			gone a
			list : a@w
			again => a@w
			cache : a@x => a@x
			holds? => nothing`},
		{"a later fact stays when a list ends an earlier one", `
			cache 5: a@3 => a@3
			gone a
			call l
			gone a
			list 7: a@3 of l
			again =>`},
		{"an answer that is no live list ends nothing", `
			cache 5: a@3 => a@3
			gone a
			told a@9
			again =>`},
		{"without any version a child that is gone is forgotten after five minutes", `
			told a@
			gone a
			cache : =>
			holds? => 1 entries
			wait 5m1s
			cache : =>
			holds? => nothing`},
		{"a child that is gone, and that the cache has for five minutes as one that does not match, is there", `
			cache 5: a@4 => a@4
			gone a
			cache 6: a@6~ =>
			list 9: =>
			again =>
			wait 5m1s
			again => a@6~
			holds? => a list`},
		{"a child that does not match is as the cache has it after five minutes, as no list shows it", `
			told a@7~
			told b@8~
			cache 5: a@4~ => a@7~ b@8~
			wait 5m1s
			cache 5: a@4~ => a@4~
			holds? => nothing`},
		{"an older fact does not make the view old if the cache shows it", `
			told a@7
			wait 5m1s
			cache 7: a@7 => a@7`},
		{"a child of another namespace is not a child of the same name", `
			told a@7
			cache 5: z/a@3 => a@7`},
	})
}

func TestAChildThatTheCacheHasHad(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"it is gone if the cache has it no longer, without any version", `
			cache : a@ => a@
			told a@
			cache : =>
			holds? => nothing`},
		{"one that the cache has never had is awaited", `
			told a@
			cache : => a@
			cache : => a@
			cache : a@ => a@
			holds? => nothing`},
		{"an empty cache has had none", `
			cache : => 
			told a@
			cache : => a@`},
		{"a call shows what a cache without versions, which was read before, does not", `
			cache : a@ => a@
			told a@!
			again => a@!`},
		{"one that came and went between two views was there, as an event tells", `
			cache /: b@4 => b@4
			told a@9
			left a
			cache /: b@4 => b@4`},
		{"a cache that tells its version tells more than such an event, as it may have gone back", `
			told a@9
			left a
			cache 6: => a@9
			cache 9: =>`},
	})
}

func TestNamesakes(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"the cached child is gone if the other one is newer", `
			told b/a@9
			cache 5: a/a@3 c@4 => c@4 b/a@9
			cache 9: b/a@9 c@4 => b/a@9 c@4
			holds? => nothing`},
		{"the other one is gone if the cached child is newer", `
			told b/a@5
			cache 4: a/a@9 => a/a@9
			cache 9: a/a@9 => a/a@9`},
		{"without versions the children must be listed", `
			told b/a@
			cache : a/a@ => a/a@ b/a@ OLD UNMET
			list : b/a@
			cache : a/a@ => b/a@`},
		{"with one version too", `
			told b/a@5
			cache 4: a/a@5 => a/a@5 b/a@5 OLD UNMET`},
		{"of two that the cache lacks the older one is gone", `
			told a/a@5
			told b/a@9
			cache 4: => b/a@9
			told c/a@7
			cache 4: => b/a@9`},
		{"of two that the cache lacks, without versions, the one that was said first is gone", `
			told a/a@
			told b/a@
			cache : => b/a@`},
		{"one that is gone leaves its name to the other one", `
			told b/a@9
			gone b
			cache 5: a/a@3 => a/a@3`},
	})
}

func TestListed(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"a list that shows what the cache has leaves nothing but itself", `
			cache 5: a@3 b@4 => a@3 b@4
			list 6: a@3 b@4
			again => a@3 b@4
			holds? => a list
			cache 6: a@3 b@4 => a@3 b@4
			holds? => nothing`},
		{"a list is laid over an older cache", `
			cache 5: a@3 b@4 => a@3 b@4
			list 9: a@8 c@9
			again => a@8 c@9
			cache 6: a@3 b@4 => a@8 c@9
			cache 9: a@8 c@9 => a@8 c@9
			holds? => nothing`},
		{"a watch that goes on where it was shows the dead once more", `
			cache 5: => 
			list 9: a@8
			again => a@8
			cache 6: x@6 => a@8
			again? => 5s
			cache 7: x@6 y@7 => a@8
			cache 8: y@7 a@8 => a@8
			cache 10: a@8 b@10 => a@8 b@10
			holds? => nothing`},
		{"what the list hides for five minutes makes the view old", `
			cache 5: x@3 => x@3
			list 9: =>
			again =>
			again? => 5s
			wait 5m1s
			cache 5: x@3 => OLD UNMET
			list 11: x@3
			again => x@3`},
		{"a child that is newer than the list is there", `
			cache 5: => 
			list 9: =>
			cache 5: x@10 => x@10`},
		{"a child that does not match is not hidden", `
			cache 5: x@3! y@3~ => x@3! y@3~
			list 9: =>
			again => x@3! y@3~`},
		{"a list without a version is newer than the view until the cached child changes, or another list has it", `
			cache : a@3 b@4 c@5 => a@3 b@4 c@5
			list : a@3
			again => a@3
			cache : a@3 b@4 c@5 => a@3
			cache : a@3 b@4 c@6 => a@3 c@6
			wait 5m1s
			cache : a@3 b@4 c@6 => a@3 c@6 OLD UNMET
			list : a@3 b@4 c@6
			again => a@3 b@4 c@6`},
		{"a list that lacks a child takes it out of the view", `
			told a@7
			cache 5: => a@7
			list 9: =>
			again =>
			cache 9: =>
			holds? => nothing`},
		{"a child that does not match may be there, though a list of its version lacks it", `
			told a@7~
			cache 5: => a@7~
			list 7: =>
			again => a@7~
			cache 7: a@7~ => a@7~
			holds? => nothing`},
		{"a child that was said after the list began stays", `
			call l
			told a@9
			cache 5: => a@9
			list 8: of l
			again => a@9`},
		{"without versions it stays as well", `
			call l
			told a@
			cache : => a@
			list : of l
			again => a@`},
		{"a child that a list lacks because it does not match is as the cache has it", `
			told a@7
			cache 5: a@3 => a@7
			list 9: =>
			again =>
			cache 8: a@8~ => a@8~
			holds? => a list`},
		{"others in the list count for nothing", `
			cache 5: => 
			list 9: a@8! b@8~ c@8
			again => c@8`},
		{"an older fact is not refreshed by a list that says the same, but it counts anew", `
			told a@7
			wait 4m
			cache 5: => a@7
			list 8: a@7
			wait 4m
			cache 5: => a@7`},
		{"what a list without versions said is over when the cache has come as far as the list", `
			cache 5: a@ => a@
			list 9: b@
			again => b@
			cache 9: b@ => b@
			holds? => nothing`},
		{"a list without a version hides nothing, and is not kept", `
			cache : a@3 => a@3
			list : a@3
			holds? => nothing`},
		{"two lists: the second one counts, if it is newer", `
			cache 5: a@3 => a@3
			list 9: =>
			list 10: a@3
			again => a@3`},
		{"the children that hid are not forgotten by a second list of the same version", `
			cache 5: a@3 => a@3
			list 9: =>
			list 9: =>
			again =>`},
	})
}

func TestSelectorChanges(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"what a list by the former selector has shown proves nothing", `
			cache 5: a@3 => a@3
			list 9: =>
			again =>
			selector db
			again => a@3 OLD
			list 9: a@3
			again => a@3`},
		{"no list, no fact: no matter", `
			cache 5: a@3 => a@3
			selector db
			again => a@3`},
		{"facts of the former one are dropped, and doubts and names stay", `
			cache 5: a@3 => a@3
			told a@7
			doubt a@3
			sending b
			selector db
			again => a@3 OLD
			doubts? => a 0s
			names? => b nobody, next look 0s`},
	})
}

func TestACacheThatGoesBack(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"what was known beside the newer cache is forgotten, and only a list tells", `
			told b@9
			cache 8: a@3 => a@3 b@9
			cache 4: a@3 => a@3 OLD
			cache 5: a@3 => a@3 OLD
			list 9: a@3 b@9
			again => a@3 b@9
			cache 9: a@3 b@9 => a@3 b@9
			holds? => nothing`},
		{"the view is old, though nothing was known", `
			cache 8: b@6 => b@6
			cache 4: a@3 => a@3 OLD
			list 8: b@6
			again => b@6`},
		{"an event may tell it, of a cache that does not tell how far it has come", `
			told a@9
			gone b
			doubt c
			sending d
			back
			cache /: b@3 => b@3 OLD
			doubts? => c 0s
			names? => d nobody, next look 0s
			list 9: a@9
			cache /: b@3 => a@9`},
		{"a list that began before a child was gone", `
			cache 5: a@3 => a@3
			call l
			gone a
			list 9: a@3 of l
			again =>`},
		{"a list that is older than an answer to a call that ended while the list was made", `
			cache 5: a@3 => a@3
			call l
			told a@9
			list 7: a@3 of l
			again => a@9`},
		{"an answer to an older call of an earlier version", `
			call c
			told a@9
			told a@6 of c
			cache 5: => a@9`},
	})
}

func TestForget(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"facts go, names and doubts stay", `
			cache 5: a@3 => a@3
			told b@9
			list 10: b@9
			doubt a
			sending c
			forget
			holds? => 1 entries, 1 names
			cache 5: a@3 => a@3
			doubts? => a 0s`},
		{"an owner that comes back may have another selector, and a cache that was filled anew", `
			cache 8: a@3 => a@3
			told b@9
			forget
			selector db
			cache 4: a@3 => a@3`},
	})
}

func TestSuspicion(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"a cache that does not tell how far it has come, and seems to have passed by a child", `
			told a@7
			cache /6: => a@7
			again? => 5s
			cache /9: => a@7 OLD
			again? => 5s
			wait 3s
			cache /9: => a@7 OLD
			again? => 5s
			wait 2s
			cache /9: => a@7 OLD UNMET
			again? => 5s
			list : a@7
			again => a@7 OLD
			again? => 10s
			wait 10s
			again => a@7 OLD UNMET
			cache /9: a@7 => a@7
			again? => 0s`},
		{"a cache that tells it needs no suspicion", `
			told a@7
			cache 5/9: => a@7
			wait 10s
			cache 5/9: => a@7
			again? => 5s`},
	})
}

func TestAgain(t *testing.T) {
	t.Parallel()
	playAll(t, [][2]string{
		{"no event may tell that a child which the cache lacks is gone", `
			told a@7
			cache 5: => a@7
			again? => 5s
			cache 7: =>
			again? => 0s`},
		{"nor that the cache shows a child as it was before the answer", `
			told a@7
			cache 5: a@3 => a@7
			again? => 5s
			cache 8: a@8? => a@8?
			again? => 0s`},
		{"a clock that goes back makes nobody wait longer", `
			told a@7
			wait -1h
			cache 5: => a@7
			again? => 5s`},
		{"a child that is gone and that the cache has no longer needs no look", `
			gone a
			cache 5: =>
			again? => 0s`},
		{"a doubt alone needs none", `
			doubt a
			cache 5: a@3 => a@3
			again? => 0s`},
	})
}

// The owner's children are the objects that the owner controls. These children and orphans may count if they
// match the selector. If the owner is in a namespace, children and orphans in other namespaces do not count.
func TestRulesOf(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
	owner := &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}
	child := func(namespace, app string, of metav1.Object) kid {
		c := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", UID: "c", Labels: labels.Set{"app": app}}}
		if of != nil {
			c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, kind)}
		}
		return c
	}
	isLeaf := func(kid) bool { return true }
	rules := ledger.RulesOf(owner, kind.GroupKind(), labels.SelectorFromSet(labels.Set{"app": "web"}), isLeaf)
	for _, tt := range []struct {
		name           string
		child          kid
		ours, mayCount bool
	}{
		{"its own", child("shop", "web", owner), true, true},
		{"its own that does not match", child("shop", "db", owner), true, false},
		{"an orphan", child("shop", "web", nil), false, true},
		{"an orphan that does not match", child("shop", "db", nil), false, false},
		{"an orphan elsewhere", child("mall", "web", nil), false, false},
		{"another owner's", child("shop", "web", &metav1.ObjectMeta{Name: "web", UID: "other"}), false, false},
	} {
		assert.Equal(t, tt.ours, rules.Ours(tt.child), tt.name)
		assert.Equal(t, tt.mayCount, rules.MayCount(tt.child), tt.name)
	}
	all := ledger.RulesOf(&metav1.ObjectMeta{Name: "web", UID: "web"}, kind.GroupKind(), labels.Everything(), isLeaf)
	assert.True(t, all.MayCount(child("mall", "web", nil)), "an owner that is in no namespace")
	none := ledger.RulesOf(owner, kind.GroupKind(), nil, isLeaf)
	assert.False(t, none.MayCount(child("shop", "web", owner)), "no selector")
	var known ledger.Ledger[kid]
	_, err := known.View(known.Start(), ledger.Snapshot[kid]{Rules: ledger.RulesOf(nil, kind.GroupKind(), labels.Everything(), isLeaf)}, began)
	require.EqualError(t, err, "ledger: one of Rules is nil")
}
