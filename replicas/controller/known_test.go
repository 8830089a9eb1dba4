// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
)

func TestWhatTheCacheShowsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	t.Run("what expired and the cache shows by now needs no live list", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.awaits(r.owner, "a")
		r.known().Deleted("uid-b", r.now)
		pass, err := r.pass(t, 331, podtest.Pod("a", owned(r.owner)), podtest.Pod("c", owned(r.owner)))
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1)
		assert.Zero(t, pass.LiveLists())
	})
	t.Run("what expired and the cache does not show needs one", func(t *testing.T) {
		t.Parallel()
		for name, awaits := range map[string]func(*podRig){
			"a creation": func(r *podRig) { r.awaits(r.owner, "b") }, "a deletion": func(r *podRig) { r.known().Deleted("uid-a", r.now) },
		} {
			r := newRig(2)
			awaits(r)
			r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 2), nil }
			pass, err := r.pass(t, 331, podtest.Pod("a", owned(r.owner)))
			require.NoError(t, err, name)
			assert.True(t, pass.ViewWasStale, name)
		}
	})
}

func TestProofGrowsOld(t *testing.T) {
	t.Parallel()
	r := newRig(0)
	pods := podsOf(r.owner, 2)
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return notFound(p.Name) }
	r.live = func() ([]*corev1.Pod, error) { return nil, nil }
	_, err := r.pass(t, 0, pods[0])
	require.NoError(t, err)
	pass, err := r.pass(t, 250, pods...) // another one is found to be gone
	require.NoError(t, err)
	assert.Zero(t, pass.LiveLists())
	assert.Equal(t, 5*time.Second, pass.RequeueAfter, "a watch that hangs tells nothing then")
	pass, err = r.pass(t, 301, pods...)
	require.NoError(t, err)
	assert.Equal(t, 1, pass.LiveLists(), "the first has been taken to be gone for five minutes")
}

func TestAChildThatMatchesAgainIsNotReleased(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	r.awaits(r.owner, "web-lost")
	again := podtest.Pod("a", owned(r.owner))
	r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{again}, nil }
	pass, err := r.pass(t, 331, podtest.Pod("a", owned(r.owner), podtest.Labels(api)))
	require.NoError(t, err)
	assert.Empty(t, pass.Released)
	assert.Len(t, pass.Active, 1)
}

// The list was right, and then the call says that it is no more.
func TestWhatAListShowedAndACallFindsGone(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	r.awaits(r.owner, "web-lost")
	pods := podsOf(r.owner, 2)
	r.live = func() ([]*corev1.Pod, error) { return pods, nil }
	pass, err := r.pass(t, 301)
	require.NoError(t, err)
	require.Len(t, pass.Active, 2)
	*r.owner.Spec.Replicas = 1
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return notFound(p.Name) }
	_, err = r.pass(t, 302)
	require.NoError(t, err)
	require.Len(t, r.callsOf("delete"), 1)
	pass, err = r.pass(t, 303)
	require.NoError(t, err)
	assert.Empty(t, r.calls, "it is known to be gone")
	assert.Len(t, pass.Active, 1)
	*r.owner.Spec.Replicas = 2
	pass, err = r.pass(t, 304)
	require.NoError(t, err)
	assert.Len(t, pass.Created, 1)
}

// A list by one selector does not tell what another one matches.
func TestASelectorThatChangesAfterAList(t *testing.T) {
	t.Parallel()
	both, tier := map[string]string{"app": "web", "tier": "x"}, map[string]string{"tier": "x"}
	r := newRig(1)
	r.awaits(r.owner, "web-lost")
	cached := podtest.Pod("a", owned(r.owner), version("5"), podtest.Labels(both))
	r.live = func() ([]*corev1.Pod, error) { return nil, nil } // a is no app=web any more
	pass, err := r.pass(t, 331, cached)
	require.NoError(t, err)
	require.Len(t, pass.Created, 1)
	r.settle()
	b := podtest.Pod(pass.Created[0].Name, owned(r.owner), version("11"), podtest.Labels(both))
	r.live = func() ([]*corev1.Pod, error) {
		return []*corev1.Pod{podtest.Pod("a", owned(r.owner), version("8"), podtest.Labels(tier)), b}, nil
	}
	r.owner.Spec.Selector.MatchLabels, r.owner.Spec.Template.Labels = tier, both
	*r.owner.Spec.Replicas = 2
	r.owner.Generation++
	pass, err = r.pass(t, 340, cached, b)
	require.NoError(t, err)
	assert.Empty(t, pass.Created, "a is tier=x")
	assert.Len(t, pass.Active, 2)
	*r.owner.Spec.Replicas = 3
	pass, err = r.pass(t, 341, cached, b)
	require.NoError(t, err)
	assert.Len(t, pass.Created, 1)
	assert.Equal(t, 1, pass.LiveLists(), "the view is known to be old")
}

// While a creation is awaited, the status is not made of what is known to be old.
func TestStatusWhileProofIsOldAndEventsAreAwaited(t *testing.T) {
	t.Parallel()
	r := newRig(3)
	r.awaits(r.owner, "web-lost")
	pods := podsOf(r.owner, 3)
	r.live = func() ([]*corev1.Pod, error) { return pods, nil }
	pass, err := r.pass(t, 301)
	require.NoError(t, err)
	require.EqualValues(t, 3, pass.Counts.Replicas)
	*r.owner.Spec.Replicas = 4
	pass, err = r.pass(t, 500)
	require.NoError(t, err)
	require.Len(t, pass.Created, 1)
	t.Run("T1 T15 as long as it is waited for", func(t *testing.T) { //nolint:paralleltest // one story
		pass, err = r.pass(t, 700)
		require.NoError(t, err)
		require.True(t, pass.Waiting())
		assert.EqualValues(t, 3, pass.Counts.Replicas)
	})
	t.Run("T1 and if the list fails", func(t *testing.T) { //nolint:paralleltest // one story
		r.live = func() ([]*corev1.Pod, error) { return nil, timeout() }
		pass, err = r.pass(t, 900)
		require.Error(t, err)
		require.True(t, pass.ViewWasStale)
		assert.EqualValues(t, 3, pass.Counts.Replicas)
	})
}

// What a live list has shown is laid over the cache, child by child, until the cache
// shows it too.
func TestProofChildByChild(t *testing.T) {
	t.Parallel()
	// listed is a rig that has just listed live, as it had waited too long.
	listed := func(t *testing.T, want int32, live, cached []*corev1.Pod) *podRig {
		t.Helper()
		r := newRig(want)
		r.awaits(r.owner, "web-lost")
		r.liveVersion = "10"
		r.live = func() ([]*corev1.Pod, error) { return live, nil }
		pass, err := r.pass(t, 331, cached...)
		require.NoError(t, err)
		require.Equal(t, 1, pass.LiveLists())
		r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("no list was expected") }
		return r
	}
	at := func(v string, names ...string) (pods []*corev1.Pod) {
		for _, name := range names {
			pods = append(pods, podtest.Pod(name, owned(replicaSet(0)), version(v)))
		}
		return pods
	}
	t.Run("W26 a newer version than the cache's counts, until the cache has one as new", func(t *testing.T) {
		t.Parallel()
		for cached, sent := range map[string]string{"5": "7", "7": "7", "9": "9"} {
			r := listed(t, 2, at("7", "a", "b"), at("5", "a", "b"))
			*r.owner.Spec.Replicas = 1
			versions := versionsOf(r, func(*corev1.Pod, string) error { return nil })
			_, err := r.pass(t, 332, at(cached, "a", "b")...)
			require.NoError(t, err)
			assert.Equal(t, []string{"a " + sent}, *versions, "cached at %s", cached)
		}
	})
	t.Run("one that was not there counts again when the cache has it from later on", func(t *testing.T) {
		t.Parallel()
		for cached, count := range map[string]int{"9": 1, "12": 2} {
			r := listed(t, 1, at("7", "a"), at("7", "a", "b"))
			pass, err := r.pass(t, 332, append(at("7", "a"), at(cached, "b")...)...)
			require.NoError(t, err)
			assert.Len(t, pass.Active, count, "cached at %s", cached)
		}
	})
	t.Run("one that the list had no reason to show is released all the same", func(t *testing.T) {
		t.Parallel()
		r := listed(t, 1, at("7", "a"), at("7", "a", "b"))
		leaves := at("9", "b")
		leaves[0].Labels = api
		pass, err := r.pass(t, 332, append(at("7", "a"), leaves...)...)
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, names(pass.Released))
	})
	t.Run("a later list counts, and no longer the one before", func(t *testing.T) {
		t.Parallel()
		r := listed(t, 2, at("7", "a", "c"), at("7", "a", "b"))
		r.awaits(r.owner, "web-lost")
		r.live = func() ([]*corev1.Pod, error) { return at("7", "a", "b"), nil }
		pass, err := r.pass(t, 700, at("7", "a", "b")...)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, names(pass.Active))
		assert.Empty(t, r.callsOf("create"))
		assert.Empty(t, r.callsOf("delete"))
		r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("no list was expected") }
		pass, err = r.pass(t, 701, at("7", "a", "b")...)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, names(pass.Active))
	})
	t.Run("what a call has proven since is not in the list, however far the cache has come", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.ownersVersion, r.childrenVersion, r.liveVersion = "1", "5", "10"
		r.awaits(r.owner, "web-lost")
		all := podsOf(r.owner, 4)
		r.live = func() ([]*corev1.Pod, error) { return all, nil }
		r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return notFound(p.Name) }
		_, err := r.pass(t, 331, all[:3]...)
		require.NoError(t, err)
		require.Len(t, r.callsOf("delete"), 1)
		r.childrenVersion = "11" // the pod that was found to be gone went at 12
		pass, err := r.pass(t, 332, all...)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("delete"))
		assert.Len(t, pass.Active, 3)
	})
	t.Run("a child that left the cache is there no more, though a list had it", func(t *testing.T) {
		t.Parallel()
		r := listed(t, 2, at("7", "a", "b"), at("7", "a"))
		require.NoError(t, r.start().ChildDeleted(at("8", "b")[0]))
		pass, err := r.pass(t, 332, at("7", "a")...)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)

		r = listed(t, 2, at("7", "a", "b"), at("7", "a"))
		orphaned := at("8", "b")[0] // it lost its owner reference on its way out
		orphaned.OwnerReferences = nil
		require.NoError(t, r.start().ChildDeleted(orphaned))
		pass, err = r.pass(t, 332, at("7", "a")...)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
	})
	t.Run("how far the cache has come is asked before the children are read", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.ownersVersion, r.childrenVersion, r.liveVersion = "1", "5", "10"
		r.awaits(r.owner, "web-lost")
		r.live = func() ([]*corev1.Pod, error) { return at("7", "a", "b"), nil }
		_, err := r.pass(t, 331, at("7", "a")...)
		require.NoError(t, err)
		r.now = r.now.Add(time.Second)
		r.children = func() ([]*corev1.Pod, error) {
			r.childrenVersion = "11" // it moves on while it is read
			return at("7", "a"), nil
		}
		_, err = r.sync(t, t.Context())
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("create"))
	})
	t.Run("it is good for five minutes, and the cache is looked at every five seconds", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return notFound(p.Name) }
		pods := podsOf(r.owner, 2)
		_, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		left := []*corev1.Pod{pods[1]}
		r.live = func() ([]*corev1.Pod, error) { return left, nil }
		pass, err := r.passAt(t, 5*time.Minute, pods...)
		require.NoError(t, err)
		assert.Zero(t, pass.LiveLists())
		assert.Equal(t, 5*time.Second, pass.RequeueAfter)
		pass, err = r.passAt(t, 5*time.Minute+1, pods...)
		require.NoError(t, err)
		assert.Equal(t, 1, pass.LiveLists())

		r = listed(t, 2, at("7", "a", "b"), at("5", "a", "b")) // though nothing follows from it
		r.live = func() ([]*corev1.Pod, error) { return at("7", "a", "b"), nil }
		pass, err = r.passAt(t, (331+300)*time.Second+1, at("5", "a", "b")...)
		require.NoError(t, err)
		assert.Equal(t, 1, pass.LiveLists())
		assert.Equal(t, 5*time.Second, pass.RequeueAfter)
	})
}

// A watch that hangs, and goes on where it was, shows those that came and went meanwhile.
func TestAListIsABar(t *testing.T) {
	t.Parallel()
	a, dead, born := podtest.Pod("a", owned(replicaSet(1)), version("3")), podtest.Pod("dead", owned(replicaSet(1)), version("5")), podtest.Pod("born", owned(replicaSet(1)), version("21"))
	// listed is a rig that has seen a alone in a list of version 20.
	listed := func(t *testing.T) *podRig {
		t.Helper()
		r := newRig(1)
		r.liveVersion = "20"
		r.awaits(r.owner, "web-lost")
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{a}, nil }
		pass, err := r.pass(t, 331)
		require.NoError(t, err)
		require.Equal(t, 1, pass.LiveLists())
		return r
	}
	t.Run("who is older than a list and not in it is gone, even if the cache shows it only later", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		for i := range 3 {
			pass, err := r.pass(t, 332+i, dead, a)
			require.NoError(t, err)
			assert.Empty(t, r.calls)
			assert.Equal(t, []string{"a"}, names(pass.Active))
		}
	})
	t.Run("who is newer is there", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		pass, err := r.pass(t, 332, born, a)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1)
	})
	t.Run("a cache that has come as far is right", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		r.ownersVersion, r.childrenVersion = "19", "19"
		pass, err := r.pass(t, 332, dead, a)
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, names(pass.Active))
		r.childrenVersion = "20"
		pass, err = r.pass(t, 333, dead, a)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1)
	})
	t.Run("it is of one server: a cache that goes back is another one's", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		r.ownersVersion, r.childrenVersion = "19", "19"
		_, err := r.pass(t, 332, a)
		require.NoError(t, err)
		r.childrenVersion = "6"
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{dead, a}, nil }
		pass, err := r.pass(t, 333, dead, a)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1, "the list has dead again")
	})
	t.Run("it is of one selector alone", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		r.owner.Spec.Selector.MatchLabels = map[string]string{"app": "web", "tier": "x"}
		r.owner.Spec.Template.Labels = r.owner.Spec.Selector.MatchLabels
		r.owner.Generation++
		other := podtest.Pod("other", owned(r.owner), version("5"), podtest.Labels(r.owner.Spec.Selector.MatchLabels))
		third := podtest.Pod("third", owned(r.owner), version("5"), podtest.Labels(r.owner.Spec.Selector.MatchLabels))
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{other, third}, nil }
		pass, err := r.pass(t, 332, other, third)
		require.NoError(t, err)
		assert.Equal(t, 1, pass.LiveLists(), "what the first list did not show proves nothing")
		assert.Len(t, pass.Deleted, 1)
	})
}

// A name was sent twice, and both times a pod came of it: the first one is gone.
func TestAServerHasOneObjectOfAName(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cached, answered string // their versions
		active           int
	}{
		"the answer is newer": {"5", "9", 1}, "the cache is newer": {"12", "9", 1}, "nobody knows": {"x", "y", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			r.create = func(int) error { return timeout() }
			r.get = func(string) (*corev1.Pod, error) { return nil, timeout() }
			_, err := r.pass(t, 0)
			require.Error(t, err)
			r.create, r.version = func(int) error { return nil }, tt.answered
			_, err = r.pass(t, 1)
			require.NoError(t, err)
			require.Equal(t, []string{"create default/web-bbbbb"}, r.callsOf("create"))
			first := podtest.Pod("web-bbbbb", owned(r.owner), podtest.UID("uid-first"), version(tt.cached))
			require.NoError(t, r.start().ChildAdded(first))
			pass, err := r.pass(t, 2, first)
			require.NoError(t, err)
			assert.Empty(t, pass.Deleted, "the cache is waited for")
			assert.Len(t, pass.Active, tt.active)
		})
	}
}

// The cache does not tell how far it has come, but events of others do.
func TestWhatTheCachePassesBy(t *testing.T) {
	t.Parallel()
	a, b := podtest.Pod("a", owned(replicaSet(2)), version("10")), podtest.Pod("b", owned(replicaSet(2)), version("11"))
	other := podtest.Pod("other", podtest.Labels(api), version("30"))
	// listed is a rig to which a list has shown b, which the cache does not have.
	listed := func(t *testing.T) *podRig {
		t.Helper()
		r := newRig(2)
		r.liveVersion = "20"
		r.awaits(r.owner, "web-lost")
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{a, b}, nil }
		pass, err := r.pass(t, 331, a)
		require.NoError(t, err)
		require.Equal(t, 1, pass.LiveLists())
		return r
	}
	t.Run("then seconds and not minutes pass until a list decides", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		pass, err := r.pass(t, 332, a)
		require.NoError(t, err)
		assert.Equal(t, 5*time.Second, pass.RequeueAfter)
		require.NoError(t, r.start().ChildAdded(other))
		pass, err = r.pass(t, 337, a)
		require.NoError(t, err)
		assert.Zero(t, pass.LiveLists())
		assert.Equal(t, 5*time.Second, pass.RequeueAfter)
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{a}, nil }
		pass, err = r.pass(t, 342, a)
		require.NoError(t, err)
		assert.Equal(t, 1, pass.LiveLists())
		assert.Len(t, pass.Created, 1)
	})
	t.Run("the pass that lists asks for the next one in seconds too, as no event may wake the owner", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		at, waits := 331*time.Second, []time.Duration(nil)
		require.NoError(t, r.start().ChildAdded(other))
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{a}, nil } // b has gone since
		assert.Empty(t, r.wakes())
		for len(r.last.Created) == 0 {
			require.Less(t, len(waits), 3)
			waits = append(waits, r.last.RequeueAfter)
			at += r.last.RequeueAfter
			_, err := r.passAt(t, at, a)
			require.NoError(t, err)
		}
		assert.Equal(t, []time.Duration{5 * time.Second, 5 * time.Second}, waits)
	})
	t.Run("until something passes it by, a pass looks at the cache every five seconds, and lists every five minutes", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		passes, lists, at := 0, 0, 331*time.Second
		for end := at + time.Hour; at < end; passes++ {
			at += r.last.RequeueAfter
			_, err := r.passAt(t, at, a)
			require.NoError(t, err)
			require.Len(t, r.calls, r.last.LiveLists())
			lists += r.last.LiveLists()
		}
		assert.InDelta(t, 3600/5, passes, 12)
		assert.InDelta(t, 3600/300, lists, 1)
	})
	t.Run("each list that shows the same makes the next one wait twice as long", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		require.NoError(t, r.start().ChildAdded(other))
		lists := 0
		for second := 332; second < 332+3600; second += 5 {
			pass, err := r.pass(t, second, a)
			require.NoError(t, err)
			lists += pass.LiveLists()
		}
		assert.Less(t, lists, 20)
		assert.Greater(t, lists, 10)
	})
	t.Run("events that are older tell nothing", func(t *testing.T) {
		t.Parallel()
		r := listed(t)
		old := clone(other)
		old.ResourceVersion = "9"
		require.NoError(t, r.start().ChildAdded(old))
		for second := 332; second < 600; second += 5 {
			pass, err := r.pass(t, second, a)
			require.NoError(t, err)
			assert.Zero(t, pass.LiveLists())
		}
	})
}

// What keeps the number from what is wanted may be wrong too.
func TestAnOldViewInWhichNothingMayGo(t *testing.T) {
	t.Parallel()
	r := atVersions(newRig(1), "5", "9")
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
		s, err := spec(rs)
		s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Annotations["stay"] != "" }
		return s, err
	}
	for second := range 2 { // the second pass does not see what the first one wrote
		_, err := r.pass(t, second)
		require.NoError(t, err)
	}
	r.settle()
	pods := podsOf(r.owner, 2)
	live := clones(pods)
	for _, p := range pods {
		p.Annotations = map[string]string{"stay": "yes"}
	}
	r.live = func() ([]*corev1.Pod, error) { return live, nil }
	pass, err := r.pass(t, 602, pods...)
	require.NoError(t, err)
	assert.Equal(t, 1, pass.LiveLists())
	assert.Len(t, pass.Deleted, 1)
}

// A list is needed only for what the cache does not show.
func TestNoNeedlessLists(t *testing.T) {
	t.Parallel()
	t.Run("E3 a deletion that the cache shows to have begun is no reason", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.known().Deleted("uid-b", r.now)
		pass, err := r.pass(t, 331, podtest.Pod("a", owned(r.owner)), podtest.Pod("b", owned(r.owner), podtest.UID("uid-b"), podtest.Deleting))
		require.NoError(t, err)
		assert.Zero(t, pass.LiveLists())
		assert.Len(t, pass.Created, 1)
	})
	t.Run("W51 after a list the cache is as good as any, until it proves old again", func(t *testing.T) {
		t.Parallel()
		r := givenUp(t, 3)
		there := podsOf(r.owner, 2)
		r.live = func() ([]*corev1.Pod, error) { return there, nil }
		pass, err := r.pass(t, 602, there...)
		require.NoError(t, err)
		require.Equal(t, 1, pass.LiveLists())
		r.settle()
		r.ownersVersion, r.childrenVersion = "20", "20"
		pass, err = r.pass(t, 603, there...)
		require.NoError(t, err)
		assert.Zero(t, pass.LiveLists())
		assert.Len(t, pass.Created, 1)
	})
	t.Run("W51 nor is an old view while events are waited for", func(t *testing.T) {
		t.Parallel()
		r := givenUp(t, 3)
		r.now = podtest.Now.Add(601 * time.Second)
		r.awaits(r.owner, "web-new")
		pass, err := r.pass(t, 602)
		require.NoError(t, err)
		assert.Zero(t, pass.LiveLists())
		assert.True(t, pass.Waiting())
		assert.Empty(t, r.callsOf("create"))
	})
}

// Related pods are looked for whenever some pod may have to go.
func TestRelatedAreListedForThoseThatMustGo(t *testing.T) {
	t.Parallel()
	for name, must := range map[string]func(*corev1.Pod) bool{"none": nil, "one": func(p *corev1.Pod) bool { return p.Name == "web-000" }} {
		r := newRig(2)
		spec, asked := r.kind.Spec, 0
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
			s, err := spec(rs)
			s.Rules.MustGo = must
			return s, err
		}
		r.related = func() ([]*corev1.Pod, error) { asked++; return nil, nil }
		_, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		assert.Equal(t, must != nil, asked > 0, name)
	}
}

// Names of a Spec are the Controller's to choose.
func TestNamesOfASpecAreNotUsed(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
		s, err := spec(rs)
		s.Names = func(string) string { return "mine" }
		return s, err
	}
	pass, err := r.pass(t, 0)
	require.NoError(t, err)
	assert.Equal(t, []string{"web-bbbbb"}, names(pass.Created))
}
