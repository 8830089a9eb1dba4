// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

// A live list with one selector does not show which children another selector matches.
func TestASelectorThatChangesAfterAList(t *testing.T) {
	t.Parallel()
	both, tier := map[string]string{"app": "web", "tier": "x"}, map[string]string{"tier": "x"}
	r := newRig(1)
	r.awaits(r.owner, "web-lost")
	cached := podtest.Pod("a", owned(r.owner), version("5"), podtest.Labels(both))
	r.live = func() ([]*corev1.Pod, error) { return nil, nil } // pod "a" no longer has the label app=web
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
	assert.Equal(t, 1, telemetry.LiveLists(pass.Calls), "the view is known to be old")
}

func TestProofAndACacheThatTellsItsVersion(t *testing.T) {
	t.Parallel()
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
		r.childrenVersion = "11" // the cache does not show yet that the missing pod was deleted, at version 12
		pass, err := r.pass(t, 332, all...)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("delete"))
		assert.Len(t, pass.Active, 3)
	})
	t.Run("how far the cache has come is asked before the children are read", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.ownersVersion, r.childrenVersion, r.liveVersion = "1", "5", "10"
		r.awaits(r.owner, "web-lost")
		pods := versioned(podsOf(r.owner, 2))
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		_, err := r.pass(t, 331, pods[0])
		require.NoError(t, err)
		r.now = r.now.Add(time.Second)
		r.children = func() ([]*corev1.Pod, error) {
			r.childrenVersion = "11" // the version of the cache grows while the pass reads the cache
			return pods[:1], nil
		}
		_, err = r.sync(t, t.Context())
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("create"))
	})
}

// If a child is older than a list and the list lacks the child, the child is gone.
func TestAListIsABar(t *testing.T) {
	t.Parallel()
	a, dead := podtest.Pod("a", owned(replicaSet(1)), version("3")), podtest.Pod("dead", owned(replicaSet(1)), version("5"))
	// listed returns a rig after a live list with version 20. The list contained only the pod "a".
	listed := func(t *testing.T) *podRig {
		t.Helper()
		r := newRig(1)
		r.liveVersion = "20"
		r.awaits(r.owner, "web-lost")
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{a}, nil }
		pass, err := r.pass(t, 331)
		require.NoError(t, err)
		require.Equal(t, 1, telemetry.LiveLists(pass.Calls))
		return r
	}
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
		assert.Equal(t, 1, telemetry.LiveLists(pass.Calls), "what the first list did not show proves nothing")
		assert.Len(t, pass.Deleted, 1)
	})
}

// Two creations with the same name have each made a pod, so one of the two pods must be gone. The versions of the
// pods do not show which pod is gone. The pass waits for the cache.
func TestAServerHasOneObjectOfAName(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.create = func(int) error { return timeout() }
	r.get = func(string) (*corev1.Pod, error) { return nil, timeout() }
	_, err := r.pass(t, 0)
	require.Error(t, err)
	r.create, r.version = func(int) error { return nil }, "y"
	_, err = r.pass(t, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"create default/web-bbbbb"}, r.callsOf("create"))
	first := podtest.Pod("web-bbbbb", owned(r.owner), podtest.UID("uid-first"), version("x"))
	require.NoError(t, r.start().ChildAdded(first))
	pass, err := r.pass(t, 2, first)
	require.NoError(t, err)
	assert.Empty(t, pass.Deleted, "the cache is waited for")
	assert.Len(t, pass.Active, 2)
}

// In an old view, Rules.MustStay may keep a child that no longer has to stay. If the plan for an old view deletes
// nothing although there are too many children, the pass lists the children live and plans again.
func TestAnOldViewInWhichNothingMayGo(t *testing.T) {
	t.Parallel()
	r := atVersions(newRig(1), "5", "9")
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Annotations["stay"] != "" }
		return s, err
	}
	for second := range 2 { // the cache does not show the second pass what the first one wrote
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
	assert.Equal(t, 1, telemetry.LiveLists(pass.Calls))
	assert.Len(t, pass.Deleted, 1)
}

// If Rules.MustGo returns true for a pod, the pass reads the related pods, even if there are not too many pods. If
// Rules.MustGo is nil and there are not too many pods, the pass does not read the related pods.
func TestRelatedAreListedForThoseThatMustGo(t *testing.T) {
	t.Parallel()
	for name, must := range map[string]func(*corev1.Pod) bool{"none": nil, "one": func(p *corev1.Pod) bool { return p.Name == "web-000" }} {
		r := newRig(2)
		spec, asked := r.kind.Spec, 0
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
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

// The Controller ignores Facts.Names, because it chooses the names of new children itself.
func TestNamesOfASpecAreNotUsed(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.Facts.Names = func(string) string { return "mine" }
		return s, err
	}
	pass, err := r.pass(t, 0)
	require.NoError(t, err)
	assert.Equal(t, []string{"web-bbbbb"}, names(pass.Created))
}
