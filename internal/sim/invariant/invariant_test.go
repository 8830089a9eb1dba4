// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/internal/sim/invariant"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

type (
	podController = replicastest.Controller[*appsv1.ReplicaSet, *corev1.Pod]
	podPass       = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]
)

const namespace = "default"

// The Checker reports each of these bugs. One that never reports an error would prove nothing.
func TestCheckerBites(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(c *podController)
		want  string
	}{
		"a controller without a bug": {func(*podController) {}, ""},
		"one that forgets what it created": {func(c *podController) {
			c.View.ChildWatch.Lag = time.Minute
			sync := c.Sync
			c.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
				_, err := sync(ctx, key)
				for _, known := range ledgers(c).Ledgers() {
					known.Forget()
				}
				return time.Second, err
			}
		}, "4 known, wanted 3"},
		"one that deletes what is to stay": {func(c *podController) {
			c.Sync = passes(c, func(ctx context.Context, p *corev1.Pod) error {
				err := c.Client.Delete(ctx, p, metav1.DeleteOptions{})
				return err
			})
		}, "web deletes web-1: 2 left, 0 gone that it cannot know of, wanted 3"},
		"one that does so, late": {func(c *podController) {
			c.View.ChildWatch.Lag = time.Minute
			again := 0
			c.Sync = passes(c, func(ctx context.Context, p *corev1.Pod) error {
				again++
				if again > 1 {
					return nil
				}
				err := c.Client.Delete(ctx, p, metav1.DeleteOptions{})
				return err
			})
		}, "2 left"},
		"one that deletes another's": {func(c *podController) {
			c.Sync = passes(c, func(ctx context.Context, p *corev1.Pod) error {
				p.Name = "nobodys"
				err := c.Client.Delete(ctx, p, metav1.DeleteOptions{})
				return err
			})
		}, "pod nobodys is deleted and belongs to"},
		"one that adopts without a look": {func(c *podController) {
			c.Sync = passes(c, func(ctx context.Context, p *corev1.Pod) error {
				rs := inside.Of[*hidden](c).Passing.Owner
				nobodys, err := c.Client.Get(ctx, namespace, "nobodys")
				if err != nil {
					return err
				}
				patch, err := selector.Claimer[*corev1.Pod]{Owner: rs, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet")}.AdoptPatch(nobodys)
				if err == nil {
					_, err = c.Client.Patch(ctx, nobodys, patch, metav1.PatchOptions{})
				}
				return err
			})
		}, "pod nobodys is adopted without a live read of web"},
		"one that changes what its cache holds": {func(c *podController) {
			inside.Of[*hidden](c).Listed = func() {
				for _, p := range c.View.ChildWatch.In(namespace) {
					p.Status.Message = "seen"
				}
			}
		}, "was changed in the cache"},
		"one that writes another's status": {func(c *podController) {
			c.Sync = passes(c, func(ctx context.Context, _ *corev1.Pod) error {
				other, err := c.Client.GetOwner(ctx, namespace, "wiki")
				if err == nil {
					_, err = c.Client.PatchStatus(ctx, other, selector.Patch{Type: types.MergePatchType, Data: []byte(`{"status":{"replicas":7}}`)})
				}
				return err
			})
		}, "the status of wiki is written for another object of the same name"},
		"one that expects what it did not create": {func(c *podController) {
			c.Client.Fail(replicastest.Rule{Verb: "create", Times: 1, Err: failure.Forbidden.Of(replicastest.Call{})})
			passed := c.Passed
			c.Passed = func(pass podPass) {
				for _, name := range pass.Scale.Names {
					await(ledgers(c).Ledger(expectations.KeyOf(pass.Owner)), name)
				}
				passed(pass)
			}
		}, "whose creation did not succeed"},
		"one that expects the end of what it did not delete": {func(c *podController) {
			c.BurstReplicas = 1
			passed := c.Passed
			c.Passed = func(pass podPass) {
				for _, p := range pass.Created {
					pass.Scale.Delete = append(pass.Scale.Delete, replicas.Deletion[*corev1.Pod]{Victim: podrank.Victim[*corev1.Pod]{Object: p}})
					ledgers(c).Ledger(expectations.KeyOf(pass.Owner)).Deleted(p.UID, c.Worker.Clock.Now())
				}
				passed(pass)
			}
		}, "whose deletion has not begun"},
		"one that never comes to work": {func(c *podController) {
			c.Sync = func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil }
		}, "0 pods, wanted 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := replicastest.NewPodCluster(replicastest.Options{Seed: 1, Nodes: 2})
			checker := invariant.New(cluster)
			c := cluster.NewController()
			checker.Watch(c)
			tc.spoil(c)
			create(t, cluster, 3)
			_, err := cluster.CreateOwner(t.Context(), replicastest.NewReplicaSet(namespace, "wiki", 0))
			require.NoError(t, err)
			_, err = cluster.CreateChild(t.Context(), namespace, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "nobodys"}})
			require.NoError(t, err)
			(&replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}).Run(3 * time.Minute)
			err = checker.Settled(namespace)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.Contains(t, err.Error(), tc.want)
		})
	}
}

// hidden is the type of the value that a controller hides.
type hidden = inside.Controller[podPass, *corev1.Pod]

func ledgers(c *podController) inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]] {
	return inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]]](inside.Of[*hidden](c).Ledgers)
}

// await makes a ledger wait for a pod that was not created.
func await(known *ledger.Ledger[*corev1.Pod], name string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
	if err := known.Created(known.Start(), pod, time.Now()); err != nil {
		panic(err)
	}
}

// A controller that has not read the pods of sibling ReplicaSets may delete other pods than Kubernetes would.
func TestCheckerWantsSiblingsToBeLookedFor(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*hidden){
		"": func(*hidden) {},
		"web deletes and has not looked for the pods of its siblings": func(h *hidden) { h.Related = nil },
	} {
		cluster := replicastest.NewPodCluster(replicastest.Options{Seed: 1, Nodes: 2})
		checker := invariant.New(cluster)
		c := cluster.NewController()
		checker.Watch(c)
		hooks := inside.Of[*hidden](c)
		scaling := hooks.Scaling
		hooks.Scaling = func(owned []*corev1.Pod) {
			spoil(hooks)
			scaling(owned)
		}
		world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
		_, err := cluster.CreateOwner(t.Context(), replicastest.NewReplicaSet(namespace, "web", 3))
		require.NoError(t, err)
		world.Run(time.Minute)
		_, err = cluster.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = 1 })
		require.NoError(t, err)
		world.Run(time.Minute)
		if err := checker.Settled(namespace); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// A controller that sees unfinished work and has nothing to wait for must soon make a pass. If none is due, Awake
// returns an error while the World still runs, and not only in the end.
func TestCheckerWakes(t *testing.T) {
	t.Parallel()
	scaled := func(t *testing.T, cluster *replicastest.PodCluster) {
		t.Helper()
		_, err := cluster.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = 2 })
		require.NoError(t, err)
	}
	lost := func(t *testing.T, cluster *replicastest.PodCluster) {
		t.Helper()
		_, err := cluster.DeleteChild(t.Context(), namespace, cluster.Children(namespace)[0].Name, metav1.DeleteOptions{})
		require.NoError(t, err)
	}
	for name, tc := range map[string]struct {
		spoil func(c *podController)
		then  func(*testing.T, *replicastest.PodCluster)
		want  string
	}{
		"a controller without a bug, scaled":                        {func(*podController) {}, scaled, ""},
		"a controller without a bug, and a pod is lost":             {func(*podController) {}, lost, ""},
		"one that is not told of its owner's changes":               {func(c *podController) { c.View.OwnerWatch.OnUpdate = nil }, scaled, "web sleeps: 3 pods, wanted 2"},
		"one that is not told of pods that end":                     {func(c *podController) { c.View.ChildWatch.OnUpdate = nil }, lost, "web sleeps: 2 pods, wanted 3"},
		"one that is told, and works tomorrow":                      {tomorrow, scaled, "web sleeps: for 24h0m0s yet, though 3 pods, wanted 2"},
		"one that waits for something, and has nothing to wait for": {drowsy, lost, "web sleeps: for 2m0s yet, though 2 pods, wanted 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := replicastest.NewPodCluster(replicastest.Options{Seed: 1, Nodes: 2})
			checker := invariant.New(cluster)
			c := cluster.NewController()
			checker.Watch(c)
			world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
			_, err := cluster.CreateOwner(t.Context(), replicastest.NewReplicaSet(namespace, "web", 3))
			require.NoError(t, err)
			run := func(d time.Duration) error {
				world.RunUntil(cluster.Clock.Now().Add(d), func() bool { return checker.Awake(namespace) != nil })
				return checker.Awake(namespace)
			}
			require.NoError(t, run(10*time.Minute)) // after this time, the controller has made every pass that it scheduled for an expectation
			tc.spoil(c)
			tc.then(t, cluster)
			err = run(time.Hour)
			if tc.want == "" {
				require.NoError(t, err)
				require.NoError(t, checker.Settled(namespace))
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// tomorrow makes a controller postpone all work by 24 hours.
func tomorrow(c *podController) {
	c.Sync = func(context.Context, types.NamespacedName) (time.Duration, error) { return 24 * time.Hour, nil }
}

// drowsy removes the controller's handler for updates of pods. drowsy also queues the ReplicaSet web for one
// pass after a delay of two minutes.
func drowsy(c *podController) {
	c.View.ChildWatch.OnUpdate = nil
	c.Worker.Wake(types.NamespacedName{Namespace: namespace, Name: "web"}, 2*time.Minute)
}

// The Checker reports a creation, deletion or release for an owner that is being deleted, or by a controller without a
// lease.
func TestCheckerWantsToBeLeftAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call func(ctx context.Context, c *podController, first *corev1.Pod) error
		want string
	}{
		"create": {func(ctx context.Context, c *podController, _ *corev1.Pod) error {
			_, err := c.Client.Create(ctx, podOf(inside.Of[*hidden](c).Passing.Owner, "web-9"))
			return err
		}, "create web-9"},
		"delete": {func(ctx context.Context, c *podController, first *corev1.Pod) error {
			err := c.Client.Delete(ctx, first, metav1.DeleteOptions{})
			return err
		}, "delete"},
		"release": {func(ctx context.Context, c *podController, first *corev1.Pod) error {
			patch, err := selector.Claimer[*corev1.Pod]{Owner: inside.Of[*hidden](c).Passing.Owner, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet")}.ReleasePatch(first)
			if err == nil {
				_, err = c.Client.Patch(ctx, first, patch, metav1.PatchOptions{})
			}
			return err
		}, "patch"},
	} {
		for _, spoiled := range []struct {
			what, want string
			do         func(*testing.T, *replicastest.PodCluster, *invariant.Checker)
		}{
			{"an owner that is being deleted", "for web, which is being deleted", func(t *testing.T, cluster *replicastest.PodCluster, _ *invariant.Checker) {
				t.Helper()
				require.NoError(t, cluster.DeleteOwner(t.Context(), namespace, "web", metav1.DeletePropagationForeground))
			}},
			{"no lease", "without a lease", func(_ *testing.T, _ *replicastest.PodCluster, checker *invariant.Checker) {
				checker.Leads = func(*podController) bool { return false }
			}},
		} {
			t.Run(name+", "+spoiled.what, func(t *testing.T) {
				t.Parallel()
				cluster := replicastest.NewPodCluster(replicastest.Options{Seed: 1, Nodes: 2})
				checker := invariant.New(cluster)
				c := cluster.NewController()
				checker.Watch(c)
				world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
				_, err := cluster.CreateOwner(t.Context(), replicastest.NewReplicaSet(namespace, "web", 3))
				require.NoError(t, err)
				world.Run(time.Minute)
				require.NoError(t, checker.Settled(namespace))
				spoiled.do(t, cluster, checker)
				c.Sync = func(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
					return 0, tc.call(ctx, c, c.View.ChildWatch.In(namespace)[0])
				}
				c.Worker.Wake(types.NamespacedName{Namespace: namespace, Name: "web"}, time.Second)
				world.RunUntil(cluster.Clock.Now().Add(time.Minute), func() bool { return checker.Awake(namespace) != nil })
				require.ErrorContains(t, checker.Err(), tc.want)
				require.ErrorContains(t, checker.Err(), spoiled.want)
			})
		}
	}
}

// passes returns a Sync function that does not look at the existing pods. The first pass creates three pods. Each pass
// in which no creation fails ends with a call of the function, which receives the first pod.
func passes(c *podController, then func(context.Context, *corev1.Pod) error) func(context.Context, types.NamespacedName) (time.Duration, error) {
	made := false
	return func(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
		rs, ok := c.View.OwnerWatch.Get(key.Namespace, key.Name)
		if !ok {
			return 0, nil
		}
		first := podOf(rs, "web-1")
		for _, name := range []string{"web-1", "web-2", "web-3"} {
			if !made {
				_, err = c.Client.Create(ctx, podOf(rs, name))
			}
		}
		made = true
		if err == nil {
			err = then(ctx, first)
		}
		return time.Minute, err
	}
}

func podOf(rs *appsv1.ReplicaSet, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *rs.Spec.Template.ObjectMeta.DeepCopy(), Spec: rs.Spec.Template.Spec}
	p.Namespace, p.Name = rs.Namespace, name
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	return p
}

func create(t *testing.T, c *replicastest.PodCluster, n int32) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := c.CreateOwner(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
			},
		},
	})
	require.NoError(t, err)
}
