// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// first returns a function for Client.Fault that applies a Fault to the first request only.
func first(f replicastest.Fault) func(replicastest.Call) replicastest.Fault {
	return func(replicastest.Call) replicastest.Fault {
		now := f
		f = replicastest.Fault{}
		return now
	}
}

// generated returns a pod whose name the server generates.
func generated() *corev1.Pod {
	p := named("")
	p.GenerateName = "web-"
	return p
}

func TestHang(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	createPod(t, c, pod("a"))
	view := c.NewView()
	world := &replicastest.World{Clock: c.Clock, Parts: []replicastest.Part{view}}
	world.Run(0)
	view.ChildWatch.Hang()
	createPod(t, c, pod("b"))
	createReplicaSet(t, c, 1)
	world.Run(6 * time.Hour)
	view.ChildWatch.Deliver()
	assert.True(t, view.ChildWatch.Hung())
	assert.Equal(t, 1, view.ChildWatch.Pending())
	assert.Len(t, view.ChildWatch.In(namespace), 1)
	assert.Len(t, view.OwnerWatch.In(namespace), 1, "each watch hangs for itself")

	view.ChildWatch.Resume()
	assert.False(t, view.ChildWatch.Hung())
	world.Run(0)
	assert.Len(t, view.ChildWatch.In(namespace), 2, "it catches up")

	view.ChildWatch.Hang()
	remove(t, c, "a")
	view.ChildWatch.Relist()
	world.Run(0)
	assert.Len(t, view.ChildWatch.In(namespace), 1, "it is listed anew")
}

// If a client sends a request again, the second attempt sees the effects of the first attempt.
func TestResend(t *testing.T) {
	t.Parallel()
	throttled := replicastest.Fault{After: failure.TooManyRequests.Of(replicastest.Call{Kind: "Pod"}), Resend: true}
	newClient := func() (*replicastest.Client[*appsv1.ReplicaSet, *corev1.Pod], *replicastest.PodCluster) {
		c := newCluster(0)
		client := c.NewClient()
		client.Fault = first(throttled)
		return client, c
	}
	t.Run("a creation whose name the server makes up is done twice", func(t *testing.T) {
		t.Parallel()
		client, c := newClient()
		_, err := client.Create(t.Context(), generated())
		require.NoError(t, err)
		assert.Len(t, c.Children(namespace), 2)
	})
	t.Run("one with a name is there already", func(t *testing.T) {
		t.Parallel()
		client, c := newClient()
		p := named("a")
		p.GenerateName = "web-"
		_, err := client.Create(t.Context(), p)
		assert.True(t, apierrors.IsAlreadyExists(err), err)
		assert.Equal(t, []string{"a"}, names(c), "the name wins")
	})
	t.Run("one that fills the quota is forbidden", func(t *testing.T) {
		t.Parallel()
		client, c := newClient()
		c.SetQuota(namespace, 1)
		_, err := client.Create(t.Context(), named("a"))
		assert.True(t, apierrors.IsForbidden(err), err)
		assert.Len(t, c.Children(namespace), 1)
	})
	t.Run("what is deleted is gone", func(t *testing.T) {
		t.Parallel()
		client, c := newClient()
		err := client.Delete(t.Context(), createPod(t, c, pod("a")), metav1.DeleteOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
	})
	t.Run("a request that had no effect is made", func(t *testing.T) {
		t.Parallel()
		client, c := newClient()
		client.Fault = first(replicastest.Fault{Before: failure.ConnectionReset.Of(replicastest.Call{}), Resend: true})
		_, err := client.Create(t.Context(), generated())
		require.NoError(t, err)
		assert.Len(t, c.Children(namespace), 1)
	})
	t.Run("not for ever", func(t *testing.T) {
		t.Parallel()
		client, c := newClient()
		sent, told := 0, 0
		client.Fault = func(replicastest.Call) replicastest.Fault { sent++; return throttled }
		client.Done = func(replicastest.Call, error) { told++ }
		_, err := client.Create(t.Context(), generated())
		assert.True(t, apierrors.IsTooManyRequests(err), err)
		assert.Len(t, c.Children(namespace), 11)
		assert.Equal(t, []int{11, 1}, []int{sent, told})
	})
}

func TestLate(t *testing.T) {
	t.Parallel()
	timeout := failure.Timeout.Of(replicastest.Call{Kind: "Pod"})
	c := newCluster(0)
	a := createPod(t, c, pod("a"))
	client, other := c.NewClient(), c.NewClient()
	client.Fault = func(replicastest.Call) replicastest.Fault {
		return replicastest.Fault{Before: timeout, Late: 30 * time.Second}
	}
	var verbs []string
	calling := inside.Of[*inside.Client[replicastest.Call]](client).Calling
	c.Changed = func(metav1.Object, metav1.Object) {
		call, late, ok := calling()
		require.True(t, ok)
		assert.True(t, late)
		verbs = append(verbs, call.Verb)
		_, _, ok = inside.Of[*inside.Client[replicastest.Call]](other).Calling()
		assert.False(t, ok)
	}
	_, err := client.Create(t.Context(), named("b"))
	assert.Equal(t, timeout, err)
	err = client.Delete(t.Context(), a, metav1.DeleteOptions{})
	assert.Equal(t, timeout, err)

	clone := c.Clone()
	run(clone, time.Minute)
	assert.Equal(t, []string{"b"}, names(clone), "a clone goes on with what is under way")
	run(c, 30*time.Second-1)
	assert.Equal(t, []string{"a"}, names(c))
	run(c, 1)
	assert.Equal(t, []string{"b"}, names(c))
	assert.Equal(t, []string{"create", "delete"}, verbs)
	_, _, ok := calling()
	assert.False(t, ok)
}

// A late request takes effect with its original content, even if the caller then changes the objects or cancels
// the context.
func TestLateWhateverTheCallerDoesNext(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	client := c.NewClient()
	client.Fail(replicastest.Rule{Late: 30 * time.Second})
	rs, a, b := createReplicaSet(t, c, 1), createPod(t, c, pod("a")), named("b")
	uid := a.UID
	ctx, cancel := context.WithCancel(t.Context())
	_, err := client.Create(ctx, b)
	require.Error(t, err)
	err = client.Delete(ctx, a, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	require.Error(t, err)
	_, err = client.PatchStatus(ctx, rs, statusPatch(`"replicas":7`))
	require.Error(t, err)
	b.Labels["app"], uid, rs.Name = "other", "other", "other"
	cancel()
	_, err = client.Create(ctx, named("c"))
	require.Error(t, err)

	run(c, time.Minute)
	require.Equal(t, []string{"b"}, names(c), "what the caller had given up was not sent")
	assert.Equal(t, "web", c.Children(namespace)[0].Labels["app"])
	assert.EqualValues(t, 7, c.Owners(namespace)[0].Status.Replicas)
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	t.Run("one changes what is created", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		c.Mutate = func(p *corev1.Pod) { p.Labels["app"] = "other" }
		c.Webhook = func(_ string, p *corev1.Pod) error {
			assert.Equal(t, "other", p.Labels["app"], "the others see what it made of it")
			return nil
		}
		in := pod("a")
		assert.Equal(t, "other", createPod(t, c, in).Labels["app"])
		assert.Equal(t, "web", in.Labels["app"])
	})
	t.Run("one denies", func(t *testing.T) {
		t.Parallel()
		for _, failure := range []failure.Failure{failure.Conflict, failure.InternalError} {
			c := newCluster(0)
			p := createPod(t, c, pod("a"))
			c.Deny("delete", failure.Of)
			_, err := c.DeleteChild(t.Context(), namespace, p.Name, metav1.DeleteOptions{})
			assert.Equal(t, failure.Of(replicastest.Call{Verb: "delete", Kind: "Pod", NamespacedName: key("a")}), err)
			createPod(t, c, pod("b"))
			c.Deny("create", failure.Of)
			_, err = c.CreateChild(t.Context(), namespace, pod("c"))
			require.Error(t, err)
			assert.Equal(t, []string{"a", "b"}, names(c))
		}
	})
}

func TestLiveList(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	createPod(t, c, pod("a"))
	other := pod("b")
	other.Labels["app"] = "other"
	createPod(t, c, other)
	list, err := c.NewClient().List(t.Context(), namespace, labels.SelectorFromSet(labels.Set{"app": "web"}))
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, "2", list.Version)
}

func TestChurn(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	createPod(t, c, pod("a"))
	world := &replicastest.World{Clock: c.Clock, Parts: []replicastest.Part{c, c.Churn(namespace, 2*time.Second)}}
	world.Run(10 * time.Second)
	assert.EqualValues(t, 6, c.Version())
}

// Two clusters have owners with the same name and the same UID. If one process runs a controller for each
// cluster, the controllers do not affect each other.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	one := newStage(t, 1, 2)
	two := &stage{PodCluster: replicastest.NewPodCluster(replicastest.Options{Clock: one.Clock, Seed: 1, Nodes: 2}), world: one.world}
	two.controller = newController(t, two.PodCluster)
	one.world.Parts = append(one.world.Parts, two.PodCluster, two.controller)
	one.controller.View.ChildWatch.Lag = time.Minute
	a, b := createReplicaSet(t, one.PodCluster, 3), createReplicaSet(t, two.PodCluster, 5)
	require.Equal(t, a.UID, b.UID, "even with one UID")
	one.world.Run(30 * time.Second)
	require.NoError(t, two.DeleteOwner(t.Context(), namespace, "web", ""))
	one.world.Run(10 * time.Second)
	createReplicaSet(t, two.PodCluster, 4)
	one.world.Run(3 * time.Minute)
	one.requireSettled(t, "one")
	two.requireSettled(t, "two")
	assert.Len(t, one.Children(namespace), 3)
}
