// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/handlers"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

// A tape records all inputs of a Controller. The slice tape.told contains the events and the calls of Sync. The
// slice tape.answers contains the answers of the server, the cache, the clock and the random number generator.
// When the tape is played, the Controller gets the recorded answers.
type tape struct {
	t         *testing.T
	told      []func(c *controller.Controller)
	answers   []answered
	isPlaying bool
}

type answered struct {
	asked  string
	answer any
	err    error
}

// answer returns the result of the function ask, and records this result. If the tape is being played, answer
// returns the next recorded result instead.
func answer[T any](t *tape, asked string, ask func() (T, error)) (T, error) {
	if !t.isPlaying {
		is, err := ask()
		t.answers = append(t.answers, answered{asked, is, err})
		return is, err
	}
	require.NotEmpty(t.t, t.answers, "this was not asked before: %s", asked)
	next := t.answers[0]
	t.answers = t.answers[1:]
	require.Equal(t.t, next.asked, asked)
	is, ok := next.answer.(T)
	require.True(t.t, ok || next.answer == nil)
	return is, next.err
}

func certain[T any](t *tape, asked string, ask func() T) T {
	is, _ := answer(t, asked, func() (T, error) { return ask(), nil })
	return is
}

// tell calls a function that sends the Controller an event or calls Sync, and records this function.
func (t *tape) tell(c *controller.Controller, what func(c *controller.Controller)) {
	t.told = append(t.told, what)
	what(c)
}

// copied returns a copy of the object that a call returned, because other code may change the original later.
func copied[T replicastest.Object[T]](is T, err error) (T, error) {
	if err != nil {
		return is, err
	}
	return is.DeepCopy(), nil
}

// A taped is the client and the cache of a Controller. It gets each answer from the real client or cache and
// records it, or plays it from the tape.
type taped struct {
	*tape
	client controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
	cache  controller.Cache[*appsv1.ReplicaSet, *corev1.Pod]
}

func (s taped) Create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return answer(s.tape, "create "+pod.Name, func() (*corev1.Pod, error) { return copied(s.client.Create(ctx, pod)) })
}

func (s taped) Delete(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) error {
	_, err := answer(s.tape, "delete "+pod.Name+" "+opts.String(), func() (bool, error) { return true, s.client.Delete(ctx, pod, opts) })
	return err
}

func (s taped) Patch(ctx context.Context, pod *corev1.Pod, patch selector.Patch, opts metav1.PatchOptions) (*corev1.Pod, error) {
	return answer(s.tape, "patch "+pod.Name+" "+string(patch.Data), func() (*corev1.Pod, error) { return copied(s.client.Patch(ctx, pod, patch, opts)) })
}

func (s taped) Get(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return answer(s.tape, "get "+name, func() (*corev1.Pod, error) { return copied(s.client.Get(ctx, namespace, name)) })
}

func (s taped) List(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[*corev1.Pod], error) {
	return answer(s.tape, "list "+matching.String(), func() (ledger.List[*corev1.Pod], error) { return s.client.List(ctx, namespace, matching) })
}

func (s taped) GetOwner(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return answer(s.tape, "get owner "+name, func() (*appsv1.ReplicaSet, error) { return copied(s.client.GetOwner(ctx, namespace, name)) })
}

func (s taped) PatchStatus(ctx context.Context, owner *appsv1.ReplicaSet, patch selector.Patch) (*appsv1.ReplicaSet, error) {
	return answer(s.tape, "status "+string(patch.Data), func() (*appsv1.ReplicaSet, error) { return copied(s.client.PatchStatus(ctx, owner, patch)) })
}

func (s taped) Owner(ctx context.Context, name types.NamespacedName) (*appsv1.ReplicaSet, error) {
	return answer(s.tape, "owner "+name.String(), func() (*appsv1.ReplicaSet, error) { return s.cache.Owner(ctx, name) })
}

func (s taped) Owners(ctx context.Context, namespace string) ([]*appsv1.ReplicaSet, error) {
	return answer(s.tape, "owners", func() ([]*appsv1.ReplicaSet, error) { return s.cache.Owners(ctx, namespace) })
}

func (s taped) Children(ctx context.Context, owner *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return answer(s.tape, "children", func() ([]*corev1.Pod, error) { return s.cache.Children(ctx, owner) })
}

func (s taped) Related(ctx context.Context, owner *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return answer(s.tape, "related", func() ([]*corev1.Pod, error) { return s.cache.Related(ctx, owner) })
}

func (s taped) OwnersVersion() string {
	return certain(s.tape, "owners' version", s.cache.OwnersVersion)
}

func (s taped) ChildrenVersion() string {
	return certain(s.tape, "children's version", s.cache.ChildrenVersion)
}

// controller returns a Controller that works with a tape. The second result is a list that gets a description of
// each pass.
func (s taped) controller(clock *replicastest.Clock, random func(n int) int, enqueue handlers.Enqueue) (*controller.Controller, *[]string) {
	on := true
	kind, passes := controller.ReplicaSets(), new([]string)
	kind.Observe = func(_ context.Context, p podPass) {
		*passes = append(*passes, p.String()+"\n  again: "+p.RequeueAfter.String())
	}
	c, err := controller.New(kind, s, s, enqueue, controller.Options{
		Now:         func() time.Time { return certain(s.tape, "time", clock.Now) },
		Random:      func(n int) int { return certain(s.tape, "random", func() int { return random(n) }) },
		MaxParallel: 1, BackOffFailed: &on,
	})
	require.NoError(s.t, err)
	return c, passes
}

// A pass depends only on the state of the Controller, the events, and the answers that a tape records. If a second
// Controller gets the same events and answers, it makes the same calls and meets the same gates. It also requests
// the next passes after the same delays.
func TestReplay(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection reset by peer")
	for name, faults := range map[string][]replicastest.Rule{
		"all goes well": nil,
		"answers get lost": {
			{Verb: "create", Kind: "Pod", Skip: 1, Times: 3, Err: lost, Landed: true}, {Verb: "delete", Times: 2, Err: lost, Late: 20 * time.Second}, {Verb: "patch", Kind: "Pod", Times: 1},
		},
		"calls fail": {
			{Verb: "create", Kind: "Pod", Skip: 2, Times: 4, Err: busy(2)}, {Verb: "delete", Times: 1, Err: conflict("web")}, {Verb: "list", Times: 1}, {Verb: "get", Kind: "ReplicaSet", Skip: 1, Times: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := replicastest.NewPodCluster(replicastest.Options{Nodes: 2, Counting: true})
			client, view := cluster.NewClient(), cluster.NewView()
			client.Fail(faults...)
			calls := client.Record()
			s := taped{&tape{t: t}, client, view.Cache}
			var c *controller.Controller
			worker := &replicastest.Worker{Clock: cluster.Clock, Sync: func(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
				s.tell(c, func(c *controller.Controller) { again, err = c.Sync(ctx, key) })
				return again, err
			}}
			c, passes := s.controller(cluster.Clock, cluster.Random, worker.Wake)
			s.hear(view, c)
			world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, view, worker}}
			for _, step := range []func(rs *appsv1.ReplicaSet){
				func(*appsv1.ReplicaSet) {},
				func(rs *appsv1.ReplicaSet) {
					*rs.Spec.Replicas = 9
					_, err := cluster.CreateChild(t.Context(), "default", replicastest.Orphan(replicastest.NewPod(rs, "orphan")))
					require.NoError(t, err)
				},
				func(*appsv1.ReplicaSet) { view.ChildWatch.Hang() },
				func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = 3 },
				func(*appsv1.ReplicaSet) { view.ChildWatch.Relist() },
				func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = 5 },
			} {
				if _, err := cluster.EditOwner(t.Context(), "default", "web", step); err != nil {
					_, err = cluster.CreateOwner(t.Context(), replicastest.NewReplicaSet("default", "web", 4))
					require.NoError(t, err)
				}
				world.Run(15 * time.Minute)
			}
			require.Len(t, cluster.Children("default"), 5)
			failed := slices.DeleteFunc(calls.Failed(), func(c replicastest.Call) bool { return apierrors.IsNotFound(c.Err) })
			for _, rule := range faults {
				require.GreaterOrEqual(t, len(failed), rule.Times)
				failed = failed[rule.Times:]
			}
			require.Empty(t, failed, "each fault strikes, and nothing else fails")
			require.NotZero(t, calls.Count("patch"))

			s.isPlaying = true
			told := s.told
			again, replayed := s.controller(cluster.Clock, cluster.Random, func(types.NamespacedName, time.Duration) {})
			for _, tell := range told {
				tell(again)
			}
			assert.Equal(t, *passes, *replayed)
			assert.Greater(t, len(*replayed), 10)
			assert.Empty(t, s.answers, "not asked for any more")
		})
	}
}

// hear registers handlers for the events of a view. The handlers send each event to a Controller, and record
// the event.
func (s taped) hear(view *replicastest.View[*appsv1.ReplicaSet, *corev1.Pod], c *controller.Controller) {
	one := func(handle func(c *controller.Controller, obj any, q ...handlers.Enqueue) error) func(obj any) error {
		return func(obj any) (err error) {
			s.tell(c, func(c *controller.Controller) { err = handle(c, obj) })
			return err
		}
	}
	two := func(handle func(c *controller.Controller, old, cur any, q ...handlers.Enqueue) error) func(old, cur any) error {
		return func(old, cur any) (err error) {
			s.tell(c, func(c *controller.Controller) { err = handle(c, old, cur) })
			return err
		}
	}
	view.ChildWatch.OnAdd, view.ChildWatch.OnUpdate, view.ChildWatch.OnDelete = one((*controller.Controller).ChildAdded), two((*controller.Controller).ChildUpdated), one((*controller.Controller).ChildDeleted)
	view.OwnerWatch.OnAdd, view.OwnerWatch.OnUpdate, view.OwnerWatch.OnDelete = one((*controller.Controller).OwnerAdded), two((*controller.Controller).OwnerUpdated), one((*controller.Controller).OwnerDeleted)
}
