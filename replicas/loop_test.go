// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/status"
)

var full = flag.Bool("full", false, "all seeds of the Loop under faults")

// A bed runs the Loop of the example on a simulated cluster, and checks the number of pods.
type bed struct {
	t       *testing.T
	seed    uint64
	cluster *replicastest.PodCluster
	client  *replicastest.Client[*appsv1.ReplicaSet, *corev1.Pod]
	view    *replicastest.View[*appsv1.ReplicaSet, *corev1.Pod]
	queue   *replicastest.Worker
	loop    *Loop
	begin   func() // starts a new process with an empty ledger
	world   *replicastest.World
	set     *appsv1.ReplicaSet
	faults  func(replicastest.Call) replicastest.Fault

	low, high int // the allowed range of active pods, between the numbers that were wanted before and after the last scaling
	ever      map[types.UID]bool
}

// loopClient adapts the client of the simulated cluster to the interface Client.
type loopClient struct {
	*replicastest.Client[*appsv1.ReplicaSet, *corev1.Pod]
}

func (c loopClient) Delete(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) error {
	err := c.Client.Delete(ctx, pod, opts)
	return err
}

func (c loopClient) Patch(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
	return c.Client.Patch(ctx, pod, patch, metav1.PatchOptions{})
}

func (c loopClient) List(ctx context.Context, namespace string, sel labels.Selector) (ledger.List[*corev1.Pod], error) {
	list, err := c.Client.List(ctx, namespace, sel)
	return ledger.List[*corev1.Pod]{Items: list.Items, Version: list.Version}, err
}

func (c loopClient) Owner(ctx context.Context, namespace, name string) (metav1.Object, error) {
	return c.GetOwner(ctx, namespace, name)
}

// newBed returns a bed. If tells is true, the cache reports its version.
func newBed(t *testing.T, tells bool, seed uint64) *bed {
	t.Helper()
	cluster := replicastest.NewPodCluster(replicastest.Options{Seed: seed, Nodes: 4})
	r := rand.New(rand.NewPCG(seed, 8))
	b := &bed{t: t, seed: seed, cluster: cluster, client: cluster.NewClient(), view: cluster.NewView(), ever: map[types.UID]bool{}}
	b.client.Fault = func(call replicastest.Call) replicastest.Fault {
		if b.faults == nil {
			return replicastest.Fault{}
		}
		return b.faults(call)
	}
	b.queue = &replicastest.Worker{Clock: cluster.Clock, Sync: b.sync}
	b.begin = func() {
		b.loop = &Loop{
			Client: loopClient{b.client}, Version: func() string { return "" }, Cached: func(namespace string) ([]*corev1.Pod, error) { return b.view.ChildWatch.In(namespace), nil },
			Now: cluster.Clock.Now, Suffix: func() string { return fmt.Sprintf("%05d", r.IntN(100_000)) }, MaxParallel: 1,
		}
		if tells {
			b.loop.Version = b.view.ChildrenVersion
		}
	}
	b.begin()
	b.handle()
	b.world = &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, b.view, b.queue}}
	b.set = replicastest.NewReplicaSet("default", "web", 0)
	set, err := cluster.CreateOwner(t.Context(), b.set)
	require.NoError(t, err)
	b.set = set
	return b
}

// handle registers event handlers that queue the owner.
func (b *bed) handle() {
	b.view.ChildWatch.OnAdd = func(any) error { b.wake(); return nil }
	b.view.ChildWatch.OnUpdate = func(any, any) error { b.wake(); return nil }
	b.view.ChildWatch.OnDelete = func(any) error { b.wake(); return nil }
	b.view.OwnerWatch.OnAdd = func(any) error { b.wake(); return nil }
	b.view.OwnerWatch.OnUpdate = func(any, any) error { b.wake(); return nil }
}

// wake queues the owner, as an event does.
func (b *bed) wake() { b.queue.Wake(types.NamespacedName{Namespace: "default", Name: "web"}, 0) }

func (b *bed) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	rs, ok := b.view.OwnerWatch.Get(key.Namespace, key.Name)
	if !ok {
		return 0, nil
	}
	return b.loop.Sync(ctx, rs)
}

// scale changes the number of wanted pods, and then runs the cluster for the time d.
func (b *bed) scale(n int, d time.Duration) {
	b.t.Helper()
	before := int(*b.set.Spec.Replicas)
	b.want(n)
	b.low, b.high = min(before, n), max(before, n)
	b.run(d)
}

func (b *bed) want(n int) {
	b.t.Helper()
	set, err := b.cluster.EditOwner(b.t.Context(), "default", "web", func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = int32(n) })
	require.NoError(b.t, err)
	b.set = set
}

// run simulates the cluster for the time d. Before each step, it checks that the number of active pods is at least
// low and at most high.
func (b *bed) run(d time.Duration) {
	b.t.Helper()
	end := b.cluster.Clock.Now().Add(d)
	b.world.RunUntil(end, func() bool {
		there := b.there()
		require.LessOrEqual(b.t, there, b.high, "seed %d: too many", b.seed)
		require.GreaterOrEqual(b.t, there, b.low, "seed %d: too few", b.seed)
		return false
	})
	b.cluster.Clock.Advance(end.Sub(b.cluster.Clock.Now()))
}

// The method there returns the number of active pods. It also adds the UIDs of these pods to the field ever.
func (b *bed) there() int {
	pods := status.FilterActivePods(b.cluster.Children("default"))
	for _, pod := range pods {
		b.ever[pod.UID] = true
	}
	return len(pods)
}

// remove deletes a pod on the server, as a user does.
func (b *bed) remove(pod *corev1.Pod) {
	b.t.Helper()
	_, err := b.cluster.DeleteChild(b.t.Context(), "default", pod.Name, *metav1.NewDeleteOptions(0))
	require.NoError(b.t, err)
}

// removeUnseen removes the pods that the cache does not have.
func (b *bed) removeUnseen() {
	b.t.Helper()
	for _, pod := range b.cluster.Children("default") {
		if !slices.ContainsFunc(b.view.ChildWatch.In("default"), func(p *corev1.Pod) bool { return p.UID == pod.UID }) {
			b.remove(pod)
		}
	}
}

// settled ends the faults and delays, and runs the cluster for an hour. It then checks that exactly Replicas pods
// exist and that the ledger knows of no unanswered requests.
func (b *bed) settled() {
	b.t.Helper()
	b.faults, b.view.ChildWatch.Lag = nil, 0
	b.view.ChildWatch.Resume()
	b.run(time.Hour)
	require.Equal(b.t, int(*b.set.Spec.Replicas), b.there(), "seed %d", b.seed)
	require.Len(b.t, b.view.ChildWatch.In("default"), b.there())
	require.NoError(b.t, b.view.Intact())
	require.Empty(b.t, b.loop.known.Names(), "seed %d: nothing is unknown for ever", b.seed)
	require.Empty(b.t, b.loop.known.UnansweredCalls(), "seed %d: nothing is unknown for ever", b.seed)
}

// lossy returns a function that makes, on average, one of oneIn calls fail. In each of these calls, the request is
// lost, the response is lost, or the request takes effect late. Some of these requests are sent again.
func lossy(r *rand.Rand, oneIn int) func(replicastest.Call) replicastest.Fault {
	return func(call replicastest.Call) replicastest.Fault {
		if r.IntN(oneIn) > 0 {
			return replicastest.Fault{}
		}
		failure := failure.Lost()[r.IntN(len(failure.Lost()))]
		err, again := failure.Of(call), r.IntN(3) == 0
		switch r.IntN(3) {
		case 0:
			return replicastest.Fault{Before: err, Resend: again}
		case 1:
			return replicastest.Fault{Before: err, Late: time.Duration(1+r.IntN(60)) * time.Second}
		}
		return replicastest.Fault{After: err, Resend: again}
	}
}

// If calls fail or take effect late and events are delayed, the Loop never causes too many or too few pods. When
// the faults end, the number of pods is right.
func TestLoopUnderFaults(t *testing.T) {
	t.Parallel()
	bothCaches(t, func(t *testing.T, tells bool) {
		t.Helper()
		seeds := uint64(3)
		if *full {
			seeds = 60
		}
		for seed := range seeds {
			b := newBed(t, tells, seed)
			r := rand.New(rand.NewPCG(seed, 9))
			for range 6 {
				b.faults = lossy(r, 2+r.IntN(4))
				b.view.ChildWatch.Lag = time.Duration(r.IntN(4)) * 150 * time.Millisecond
				if r.IntN(3) == 0 {
					b.view.ChildWatch.Hang()
				}
				b.scale(r.IntN(20), time.Duration(r.IntN(40))*time.Minute)
				b.settled()
			}
		}
	})
}

// bothCaches runs a test twice, with a cache that reports its version and with a cache that does not.
func bothCaches(t *testing.T, test func(t *testing.T, tells bool)) {
	t.Helper()
	for _, tells := range []bool{true, false} {
		t.Run(fmt.Sprintf("the cache tells its version: %t", tells), func(t *testing.T) {
			t.Parallel()
			test(t, tells)
		})
	}
}

func TestLoop(t *testing.T) {
	t.Parallel()
	bothCaches(t, testLoop)
}

func testLoop(t *testing.T, tells bool) {
	t.Helper()
	lost := func(failure failure.Failure) func(replicastest.Call) replicastest.Fault {
		return func(call replicastest.Call) replicastest.Fault {
			if call.Verb == "create" || call.Verb == "delete" {
				return replicastest.Fault{After: failure.Of(call)}
			}
			return replicastest.Fault{}
		}
	}
	for _, failure := range failure.Lost() {
		t.Run(fmt.Sprintf("W11 every answer is a %v, and the watch is late", failure), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, tells, 1)
			b.faults, b.view.ChildWatch.Lag = lost(failure), 150*time.Millisecond
			b.scale(20, 10*time.Minute)
			assert.Equal(t, 20, b.there())
			assert.Len(t, b.ever, 20, "none was made twice")
			b.scale(5, 10*time.Minute)
			assert.Equal(t, 5, b.there())
			b.settled()
		})
	}
	t.Run("a creation is sent twice, and its first sending has filled the quota that refuses the second", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tells, 1)
		b.scale(2, time.Minute)
		b.cluster.SetQuota("default", 3)
		b.view.ChildWatch.Lag = 10 * time.Second
		sent := false
		b.faults = func(call replicastest.Call) replicastest.Fault {
			if call.Verb != "create" || sent {
				return replicastest.Fault{}
			}
			sent = true
			return replicastest.Fault{After: failure.Lost()[0].Of(call), Resend: true}
		}
		b.client.Done = func(call replicastest.Call, err error) {
			if call.Verb == "create" && err != nil {
				b.cluster.SetQuota("default", 9)
			}
		}
		b.scale(3, 10*time.Minute)
		assert.Equal(t, 3, b.there())
		b.settled()
	})
	t.Run("D6 each pod is deleted once, though the watch is late", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tells, 1)
		b.scale(20, time.Minute)
		deletes := 0
		b.client.Done = func(call replicastest.Call, _ error) {
			if call.Verb == "delete" {
				deletes++
			}
		}
		b.view.ChildWatch.Lag = time.Minute
		b.scale(5, time.Second)
		for range 10 {
			b.wake()
			b.run(time.Second)
		}
		b.settled()
		assert.Equal(t, 15, deletes)
	})
	t.Run("E3 the watch hangs for hours", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tells, 1)
		b.run(time.Minute)
		b.view.ChildWatch.Hang()
		b.scale(30, time.Hour)
		assert.Equal(t, 30, b.there(), "though nobody tells")
		b.scale(12, time.Hour)
		assert.Equal(t, 12, b.there())
		b.scale(13, time.Hour)
		assert.Equal(t, 13, b.there())
		b.settled()
		assert.Len(t, b.ever, 31)
	})
	for _, between := range []int{2, 7} {
		t.Run(fmt.Sprintf("E3 the watch hangs while 4 become %d and 4 again: the number is right by chance", between), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, tells, 1)
			b.scale(4, time.Minute)
			b.view.ChildWatch.Hang()
			b.scale(between, time.Second)
			b.scale(4, time.Hour)
			assert.Equal(t, 4, b.there())
			b.settled()
		})
	}
	t.Run("E3 the watch hangs, and what was expected is gone: the cache is old all the same", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(10) { // each seed may lead to another order of deletion
			b := newBed(t, tells, seed)
			b.scale(3, time.Minute)
			b.view.ChildWatch.Hang()
			b.scale(4, time.Second)
			b.remove(b.view.ChildWatch.In("default")[0])
			b.removeUnseen()
			b.scale(2, 10*time.Minute)
			b.wake()
			b.run(10 * time.Minute)
			assert.Equal(t, 2, b.there(), "seed %d", seed)
			b.settled()
		}
	})
	t.Run("E3 the watch hangs, and an orphan comes in place of what was expected: it counts when it is adopted", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tells, 1)
		b.scale(2, time.Minute)
		b.view.ChildWatch.Hang()
		b.scale(3, time.Second)
		b.removeUnseen()
		_, err := b.cluster.CreateChild(t.Context(), "default", newOrphan(b.set))
		require.NoError(t, err)
		for range 3 {
			b.run(10 * time.Minute)
			b.wake()
		}
		assert.Equal(t, 3, b.there())
		b.settled()
	})
	t.Run("E3 a new process begins while the watch hangs: it lists before it acts", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tells, 1)
		b.scale(4, time.Minute)
		b.view.ChildWatch.Hang()
		b.scale(7, time.Minute)
		b.begin()
		b.scale(8, time.Hour)
		assert.Equal(t, 8, b.there())
		b.begin()
		b.scale(5, time.Hour)
		assert.Equal(t, 5, b.there())
		b.settled()
		assert.Len(t, b.ever, 8)
	})
	t.Run("the owner in the cache is an old one that wants fewer: nothing is deleted", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tells, 1)
		b.scale(5, time.Minute)
		b.view.OwnerWatch.Lag = 10 * time.Second
		b.scale(2, time.Second)
		b.scale(5, time.Minute)
		b.settled()
		assert.Len(t, b.ever, 5)
	})
	t.Run("the name of a creation without an answer is given to another's pod", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tells, 1)
		b.faults = func(call replicastest.Call) replicastest.Fault {
			if call.Verb == "create" && len(b.cluster.Children("default")) == 0 {
				other := newOrphan(b.set)
				other.Name, other.Labels = call.Name, nil
				_, err := b.cluster.CreateChild(t.Context(), "default", other)
				require.NoError(t, err)
				return replicastest.Fault{Before: failure.Timeout.Of(call)}
			}
			return replicastest.Fault{}
		}
		b.want(3)
		b.world.Run(time.Hour)
		assert.Len(t, b.cluster.Children("default"), 4)
		assert.Empty(t, b.loop.known.Names())
	})
	t.Run("D9 a pod that may not be deleted does not keep others", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tells, 1)
		b.scale(4, time.Minute)
		kept := ""
		b.faults = func(call replicastest.Call) replicastest.Fault {
			if call.Verb == "delete" && (kept == "" || kept == call.Name) {
				kept = call.Name
				return replicastest.Fault{Before: failure.Forbidden.Of(call)}
			}
			return replicastest.Fault{}
		}
		b.want(3)
		b.world.Run(time.Second)
		b.want(2)
		b.world.Run(time.Minute)
		assert.Equal(t, 3, b.there())
	})
	t.Run("C8 C26 orphans are adopted, or their places held", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, tells, 1)
		refuse := true
		b.faults = func(call replicastest.Call) replicastest.Fault {
			if call.Verb == "patch" && refuse {
				return replicastest.Fault{Before: failure.ServiceUnavailable.Of(call)}
			}
			return replicastest.Fault{}
		}
		orphan := newOrphan(b.set)
		_, err := b.cluster.CreateChild(t.Context(), "default", orphan)
		require.NoError(t, err)
		b.scale(3, time.Minute)
		assert.Equal(t, 3, b.there(), "two were created beside")
		refuse = false
		b.settled()
		assert.Len(t, b.ever, 3)
		for _, pod := range b.cluster.Children("default") {
			assert.Equal(t, b.set.UID, metav1.GetControllerOf(pod).UID)
		}
	})
}

// newOrphan returns a pod that has no owner and matches the selector of the ReplicaSet.
func newOrphan(rs *appsv1.ReplicaSet) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: rs.Spec.Template.Labels}, Spec: rs.Spec.Template.Spec}
}
