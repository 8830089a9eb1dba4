// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
)

func TestWhatTheCacheShowsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	t.Run("a creation found after its event came is settled", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		there := podtest.Pod("web-bbbbb", owned(r.owner))
		r.send = func(*corev1.Pod) { // its event came in the middle of the pass
			r.children = func() ([]*corev1.Pod, error) { return []*corev1.Pod{there}, nil }
		}
		r.create = func(int) error { return alreadyExists("web-bbbbb") }
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
		adds, _ := r.pending()
		assert.Zero(t, adds, "no event will come any more")
	})
	t.Run("what expired and the cache shows by now needs no live list", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.record().Set(r.key(), expectations.Changes{Creating: []string{"a"}, Deleting: []types.UID{"uid-b"}})
		pass, err := r.pass(t, 331, podtest.Pod("a", owned(r.owner)), podtest.Pod("c", owned(r.owner)))
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1)
		assert.Zero(t, pass.LiveLists)
	})
	t.Run("what expired and the cache does not show needs one", func(t *testing.T) {
		t.Parallel()
		for name, expected := range map[string]expectations.Changes{
			"a creation": {Creating: []string{"b"}}, "a deletion": {Deleting: []types.UID{"uid-a"}}, "a number": {Creations: 1},
		} {
			r := newRig(2)
			r.record().Set(r.key(), expected)
			r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 2), nil }
			pass, err := r.pass(t, 331, podtest.Pod("a", owned(r.owner)))
			require.NoError(t, err, name)
			assert.True(t, pass.ViewWasOld, name)
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
	assert.Zero(t, pass.LiveLists)
	assert.Equal(t, 50*time.Second, pass.RequeueAfter, "a watch that hangs tells nothing then")
	pass, err = r.pass(t, 301, pods...)
	require.NoError(t, err)
	assert.Equal(t, 1, pass.LiveLists, "the first has been taken to be gone for five minutes")
}

func TestAChildThatMatchesAgainIsNotReleased(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	r.record().Set(r.key(), expectations.Changes{Creations: 1})
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
	r.record().Set(r.key(), expectations.Changes{Creating: []string{"web-lost"}})
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

// The list that is under way may be older than the event.
func TestAChildThatLeavesWhileItIsListed(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]podtest.Option{"a child": {owned(replicaSet(2))}, "an orphan": nil} {
		r := newRig(2)
		r.record().Set(r.key(), expectations.Changes{Creating: []string{"web-lost"}})
		stays, leaves := podtest.Pod("stays", owned(r.owner)), podtest.Pod("leaves", options...)
		r.patch = func(p *corev1.Pod) error { return timeout() }
		r.live = func() ([]*corev1.Pod, error) {
			require.NoError(t, r.start().ChildDeleted(leaves))
			return []*corev1.Pod{stays, leaves}, nil
		}
		_, _ = r.pass(t, 301)
		pass, err := r.pass(t, 302, stays)
		require.NoError(t, err, name)
		assert.Len(t, pass.Created, 1, name)
		r.settle()
	}
}

// While a creation is awaited, the status is not made of what is known to be old.
func TestStatusWhileProofIsOldAndEventsAreAwaited(t *testing.T) {
	t.Parallel()
	r := newRig(3)
	r.record().Set(r.key(), expectations.Changes{Creating: []string{"web-lost"}})
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
		require.True(t, pass.Waiting)
		assert.EqualValues(t, 3, pass.Counts.Replicas)
	})
	t.Run("T1 and if the list fails", func(t *testing.T) { //nolint:paralleltest // one story
		r.live = func() ([]*corev1.Pod, error) { return nil, timeout() }
		pass, err = r.pass(t, 900)
		require.Error(t, err)
		require.True(t, pass.ViewWasOld)
		assert.EqualValues(t, 3, pass.Counts.Replicas)
	})
}
