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
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/replicas/replicastest/internal/invariant"
	"github.com/replicakit/replicakit/selector"
)

const namespace = "default"

// A Checker that never complains proves nothing: here are controllers with bugs.
func TestCheckerBites(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(c *replicastest.Controller)
		want  string
	}{
		"a controller without a bug": {func(*replicastest.Controller) {}, ""},
		"one that forgets what it created": {func(c *replicastest.Controller) {
			c.View.ChildWatch.Lag = time.Minute
			sync := c.Sync
			c.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
				_, err := sync(ctx, key)
				for key := range c.Expectations().All() {
					c.Expectations().Forget(key)
				}
				return time.Second, err
			}
		}, "4 known, wanted 3"},
		"one that deletes what is to stay": {func(c *replicastest.Controller) {
			c.Sync = passes(c, func(ctx context.Context, p *corev1.Pod) error {
				_, err := c.Client.Delete(ctx, p, metav1.DeleteOptions{})
				return err
			})
		}, "web deletes web-1: 2 left and 0 that it cannot know to be gone, wanted 3"},
		"one that does so, late": {func(c *replicastest.Controller) {
			c.View.ChildWatch.Lag = time.Minute
			again := 0
			c.Sync = passes(c, func(ctx context.Context, p *corev1.Pod) error {
				again++
				if again > 1 {
					return nil
				}
				_, err := c.Client.Delete(ctx, p, metav1.DeleteOptions{})
				return err
			})
		}, "2 left"},
		"one that deletes another's": {func(c *replicastest.Controller) {
			c.Sync = passes(c, func(ctx context.Context, p *corev1.Pod) error {
				p.Name = "nobodys"
				_, err := c.Client.Delete(ctx, p, metav1.DeleteOptions{})
				return err
			})
		}, "pod nobodys is deleted and belongs to"},
		"one that adopts without a look": {func(c *replicastest.Controller) {
			c.Sync = passes(c, func(ctx context.Context, p *corev1.Pod) error {
				rs := c.Passing()
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
		}, "pod nobodys is adopted without a live look at web"},
		"one that changes what its cache holds": {func(c *replicastest.Controller) {
			c.Listed = func() {
				for _, p := range c.View.ChildWatch.In(namespace) {
					p.Status.Message = "seen"
				}
			}
		}, "was changed in the cache"},
		"one whose events settle nothing": {func(c *replicastest.Controller) {
			added := c.View.ChildWatch.OnAdd
			c.View.ChildWatch.OnAdd = func(obj any) error {
				if metav1.GetControllerOf(obj.(*corev1.Pod)) == nil {
					return added(obj)
				}
				return nil
			}
		}, "still expects something"},
		"one that writes another's status": {func(c *replicastest.Controller) {
			c.Sync = passes(c, func(ctx context.Context, _ *corev1.Pod) error {
				other, err := c.Client.GetOwner(ctx, namespace, "wiki")
				if err == nil {
					other.Status.Replicas = 7
					_, err = c.Client.UpdateStatus(ctx, other)
				}
				return err
			})
		}, "the status of wiki is written for another one of that name"},
		"one that expects what it did not create": {func(c *replicastest.Controller) {
			c.Client.Fail(replicastest.Rule{Verb: "create", Times: 1, With: replicastest.Forbidden})
			passed := c.Passed
			c.Passed = func(pass replicastest.Pass) {
				c.Expectations().Add(expectations.KeyOf(pass.Owner), expectations.Changes{Creating: pass.Scale.Names})
				passed(pass)
			}
		}, "whose creation did not succeed"},
		"one that expects the end of what it did not delete": {func(c *replicastest.Controller) {
			c.BurstReplicas = 1
			passed := c.Passed
			c.Passed = func(pass replicastest.Pass) {
				for _, p := range pass.Created {
					pass.Scale.Delete = append(pass.Scale.Delete, replicas.Deletion[*corev1.Pod]{Victim: podrank.Victim[*corev1.Pod]{Object: p}})
					c.Expectations().Add(expectations.KeyOf(pass.Owner), expectations.Changes{Deleting: []types.UID{p.UID}})
				}
				passed(pass)
			}
		}, "whose deletion has not begun"},
		"one that never comes to work": {func(c *replicastest.Controller) {
			c.Sync = func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil }
		}, "0 pods, wanted 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := replicastest.NewCluster(replicastest.Options{Seed: 1, Nodes: 2})
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

// One that ranks pods without those of siblings may choose others than Kubernetes.
func TestCheckerWantsSiblingsToBeLookedFor(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*replicastest.Scaling){
		"": func(*replicastest.Scaling) {},
		"web deletes and has not looked for the pods of its siblings": func(s *replicastest.Scaling) { s.Related = nil },
	} {
		cluster := replicastest.NewCluster(replicastest.Options{Seed: 1, Nodes: 2})
		checker := invariant.New(cluster)
		c := cluster.NewController()
		checker.Watch(c)
		scaling := c.Scaling
		c.Scaling = func(s replicastest.Scaling) {
			spoil(&s)
			scaling(s)
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

// One whose handlers do nothing waits for what it was shown.
func TestCheckerWantsCreationsToBeSettled(t *testing.T) {
	t.Parallel()
	cluster := replicastest.NewCluster(replicastest.Options{Seed: 1, Nodes: 2})
	checker := invariant.New(cluster)
	c := cluster.NewController()
	c.View.ChildWatch.OnAdd = func(any) error { return nil }
	checker.Watch(c)
	create(t, cluster, 3)
	(&replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}).Run(time.Minute)
	require.ErrorContains(t, checker.Err(), ", which it has seen")
}

// passes returns a Sync that makes the pods of its ReplicaSet, without any care, and
// then does something with the first.
func passes(c *replicastest.Controller, then func(context.Context, *corev1.Pod) error) func(context.Context, types.NamespacedName) (time.Duration, error) {
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

func create(t *testing.T, c *replicastest.Cluster, n int32) {
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
