// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// record logs every event of a stream of pods. For each event, record checks that the cache already includes the
// event.
func record(t *testing.T, s *replicastest.Stream[*corev1.Pod]) *[]string {
	t.Helper()
	var log []string
	inCache := func(obj any) bool {
		p, ok := s.Get(namespace, obj.(*corev1.Pod).Name)
		return ok && p == obj
	}
	s.OnAdd = func(obj any) error {
		assert.True(t, inCache(obj))
		log = append(log, "add "+obj.(*corev1.Pod).Name)
		return nil
	}
	s.OnUpdate = func(old, obj any) error {
		assert.True(t, inCache(obj))
		assert.NotEqual(t, old.(*corev1.Pod).ResourceVersion, obj.(*corev1.Pod).ResourceVersion)
		log = append(log, "update "+obj.(*corev1.Pod).Name)
		return nil
	}
	s.OnDelete = func(obj any) error {
		assert.False(t, inCache(obj))
		log = append(log, "delete "+obj.(*corev1.Pod).Name)
		return nil
	}
	return &log
}

func relabel(t *testing.T, c *replicastest.PodCluster, name string) {
	t.Helper()
	_, err := c.EditChild(t.Context(), namespace, name, func(p *corev1.Pod) { p.Labels["app"] += "x" })
	require.NoError(t, err)
}

func remove(t *testing.T, c *replicastest.PodCluster, name string) {
	t.Helper()
	_, err := c.DeleteChild(t.Context(), namespace, name, metav1.DeleteOptions{})
	require.NoError(t, err)
}

func TestView(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	createPod(t, c, pod("a"))
	view := c.NewView()
	log := record(t, view.ChildWatch)
	world := &replicastest.World{Clock: c.Clock, Parts: []replicastest.Part{view}}

	assert.Empty(t, view.ChildWatch.In(namespace), "nothing has arrived yet")
	assert.Empty(t, view.ChildWatch.Version())
	createPod(t, c, pod("b"))
	relabel(t, c, "a")
	assert.Equal(t, 3, view.ChildWatch.Pending())
	world.Run(0)
	assert.Equal(t, []string{"add a", "add b", "update a"}, *log, "in the order of the writes")
	assert.Equal(t, "3", view.ChildrenVersion())
	assert.Equal(t, "1", view.OwnersVersion(), "an empty list has a version, and is there at once")

	remove(t, c, "a")
	assert.Len(t, view.ChildWatch.In(namespace), 2, "the view is stale")
	world.Run(0)
	assert.Equal(t, "delete a", (*log)[3])
	assert.Len(t, view.ChildWatch.In(namespace), 1)
}

func TestLag(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	view := c.NewView()
	log := record(t, view.ChildWatch)
	world := &replicastest.World{Clock: c.Clock, Parts: []replicastest.Part{view}}

	view.ChildWatch.Lag = 5 * time.Second
	createPod(t, c, pod("a"))
	view.ChildWatch.Lag = 0
	createPod(t, c, pod("b"))
	createReplicaSet(t, c, 1)

	world.Run(5*time.Second - 1)
	assert.Empty(t, *log)
	_, ok := view.OwnerWatch.Get(namespace, "web")
	assert.True(t, ok, "each kind lags for itself")
	world.Run(1)
	assert.Equal(t, []string{"add a", "add b"}, *log, "no event overtakes another")
}

func TestStop(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	view, other := c.NewView(), c.NewView()
	createPod(t, c, pod("a"))
	createReplicaSet(t, c, 1)
	view.Stop()
	createPod(t, c, pod("b"))
	_, ok := view.Due()
	assert.False(t, ok)
	assert.Equal(t, 2, other.ChildWatch.Pending(), "another view goes on")
}

func TestStreamCopies(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	one, other := c.NewView(), c.NewView()
	createPod(t, c, pod("a"))
	(&replicastest.World{Clock: c.Clock, Parts: []replicastest.Part{one, other}}).Run(0)

	p, _ := one.ChildWatch.Get(namespace, "a")
	p.Labels["app"] = "spoiled"
	p, _ = other.ChildWatch.Get(namespace, "a")
	assert.Equal(t, "web", p.Labels["app"])
	assert.Equal(t, "web", c.Children(namespace)[0].Labels["app"])
}

func TestHandlerError(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	view := c.NewView()
	view.OwnerWatch.OnAdd = func(obj any) error {
		assert.IsType(t, &appsv1.ReplicaSet{}, obj)
		return assert.AnError
	}
	createReplicaSet(t, c, 1)
	view.Step()
	require.ErrorIs(t, view.Intact(), assert.AnError)
}

func TestRelist(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	for _, name := range []string{"changes", "goes", "reborn", "stays"} {
		createPod(t, c, pod(name))
	}
	view := c.NewView()
	assert.False(t, view.Synced())
	world := &replicastest.World{Clock: c.Clock, Parts: []replicastest.Part{view}}
	world.Run(0)
	assert.True(t, view.Synced())

	relabel(t, c, "stays")
	view.ChildWatch.Break()
	assert.True(t, view.ChildWatch.Broken())
	relabel(t, c, "changes")
	remove(t, c, "goes")
	remove(t, c, "reborn")
	createPod(t, c, pod("reborn"))
	createPod(t, c, pod("new"))
	remove(t, c, "new")
	createPod(t, c, pod("another"))
	world.Run(time.Hour)
	assert.Zero(t, view.ChildWatch.Pending(), "nobody watches")

	var log []string
	view.ChildWatch.OnAdd = func(obj any) error {
		log = append(log, "add "+obj.(*corev1.Pod).Name)
		return nil
	}
	view.ChildWatch.OnUpdate = func(old, obj any) error {
		line := "update " + obj.(*corev1.Pod).Name
		if old.(*corev1.Pod).UID != obj.(*corev1.Pod).UID {
			line += ", another pod"
		}
		log = append(log, line)
		return nil
	}
	view.ChildWatch.OnDelete = func(obj any) error {
		tombstone := obj.(replicastest.Tombstone)
		assert.Equal(t, "default/goes", tombstone.Key)
		log = append(log, "tombstone "+tombstone.Obj.(*corev1.Pod).Name)
		return nil
	}
	view.ChildWatch.Relist()
	world.Run(0)
	assert.Equal(t, []string{
		"add another", "update changes", "update reborn, another pod", "update stays", "tombstone goes",
	}, log, "what came and went meanwhile was never there")
	assert.Equal(t, "12", view.ChildWatch.Version(), "that of the list")
}

func TestRepeatAndLose(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	view := c.NewView()
	log := record(t, view.ChildWatch)
	view.ChildWatch.OnUpdate = func(old, obj any) error {
		assert.Equal(t, old.(*corev1.Pod).ResourceVersion, obj.(*corev1.Pod).ResourceVersion)
		*log = append(*log, "again "+obj.(*corev1.Pod).Name)
		return nil
	}
	stream := inside.Of[inside.Stream](view.ChildWatch)
	stream.Repeat()
	createPod(t, c, pod("a"))
	createPod(t, c, pod("b"))
	stream.Lose()
	view.ChildWatch.Deliver()
	stream.Repeat()
	remove(t, c, "b")
	view.ChildWatch.Deliver()
	stream.Repeat()
	assert.Equal(t, []string{"add b", "again b", "delete b", "delete b"}, *log)
}

func TestIntact(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	createPod(t, c, pod("a"))
	view := c.NewView()
	view.ChildWatch.Deliver()
	require.NoError(t, view.Intact())
	p, _ := view.ChildWatch.Get(namespace, "a")
	p.Labels["app"] = "spoiled"
	require.Error(t, view.Intact())
}
