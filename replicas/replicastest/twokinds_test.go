// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// groupOf returns a Kind for one group of a pool's workers. Each group has its own label.
func groupOf(group string, n int32) controller.Kind[*pool, *worker] {
	set := labels.Set{"app": "pool", "group": group}
	return workersOf(func(spec *workers) {
		spec.Replicas, spec.Selector = n, set.AsSelector()
		spec.New = func(string) (*worker, error) { return &worker{ObjectMeta: metav1.ObjectMeta{Labels: set}}, nil }
	})
}

// Two controllers have different Kinds for two groups of workers of one owner (kuberay 1739). Each controller
// releases the workers of the other group, and the other controller adopts them again. Each release of
// the same worker waits twice as long as the last one, up to a minute, and an event reports the problem.
func TestTwoKindsOfOneOwner(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, groupOf("head", 1), 0, true)
	view, client, worker := s.NewView(), s.NewClient(), &replicastest.Worker{Clock: s.Clock}
	kind := groupOf("worker", 3)
	kind.Status = nil
	second, err := controller.New(kind, client, view, worker.Wake, controller.Options{Now: s.Clock.Now, Events: client, Random: s.Random, MaxParallel: 1})
	require.NoError(t, err)
	worker.Sync = second.Sync
	view.Handle(second)
	view.ChildWatch.Lag, s.controller.View.ChildWatch.Lag = 100*time.Millisecond, 100*time.Millisecond
	s.world.Parts = append(s.world.Parts, view, worker)
	calls, others := s.controller.Client.Record(), client.Record()
	patches := func() int { return calls.Count("patch") + others.Count("patch") }
	s.world.Run(10 * time.Minute)
	made := patches()
	assert.LessOrEqual(t, made, 2*4*(6+10), "each of 4 workers is released and adopted, at last each minute")
	s.world.Run(20 * time.Minute)
	assert.LessOrEqual(t, patches()-made, 2*4*20, "they do not fight at each event")
	groups := map[string]int{}
	for _, w := range s.Children(namespace) {
		groups[w.Labels["group"]]++
	}
	assert.Equal(t, map[string]int{"head": 1, "worker": 3}, groups)
	told := false
	for _, e := range s.Events {
		told = told || strings.Contains(e.Message, "another controller, with another selector, has adopted it for this owner")
	}
	assert.True(t, told, "%v", s.Events)
}

// configs is a Kind for a second type of children of a ReplicaSet. Its Status sets one condition, which counts them in
// its message.
func configs() controller.Kind[*appsv1.ReplicaSet, *corev1.ConfigMap] {
	return controller.Kind[*appsv1.ReplicaSet, *corev1.ConfigMap]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Child: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Spec: func(rs *appsv1.ReplicaSet) (replicas.Spec[*corev1.ConfigMap], error) {
			pods, err := replicas.ReplicaSetSpec(rs)
			return replicas.Spec[*corev1.ConfigMap]{
				Replicas: pods.Replicas, Selector: pods.Selector, Finalizer: "example.com/configs",
				New: func(string) (*corev1.ConfigMap, error) {
					return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: rs.Spec.Template.Labels}}, nil
				},
			}, err
		},
		Status: func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.ConfigMap]) error {
			rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Configs", Status: corev1.ConditionTrue, Message: strings.Repeat("+", int(o.Counts.Replicas))}}
			return nil
		},
		StatusOf: func(rs *appsv1.ReplicaSet) any { return &rs.Status },
	}
}

// duo is an owner with two types of children on one simulated server, and the Controller of each.
type duo struct {
	pods     *replicastest.PodCluster
	configs  *replicastest.Cluster[*appsv1.ReplicaSet, *corev1.ConfigMap]
	ofPods   *podController
	ofConfig *replicastest.Controller[*appsv1.ReplicaSet, *corev1.ConfigMap]
	world    *replicastest.World
}

func newDuo(t *testing.T) *duo {
	t.Helper()
	d := &duo{}
	kind := controller.ReplicaSets()
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := replicas.ReplicaSetSpec(rs)
		s.Finalizer = "example.com/pods"
		return s, err
	}
	var err error
	d.pods, err = replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 3})
	require.NoError(t, err)
	d.configs, err = replicastest.NewClusterBeside(d.pods, configs(), replicastest.Options{Seed: 2})
	require.NoError(t, err)
	d.ofPods, d.ofConfig = d.pods.NewController(), d.configs.NewController()
	d.ofPods.RememberWrites, d.ofConfig.RememberWrites = true, true
	d.world = &replicastest.World{Clock: d.pods.Clock, Parts: []replicastest.Part{d.pods, d.configs, d.ofPods, d.ofConfig}}
	return d
}

// late makes the watches of owners late.
func (d *duo) late(lag time.Duration) {
	d.ofPods.View.OwnerWatch.Lag, d.ofConfig.View.OwnerWatch.Lag = lag, lag
}

// statusWrites counts the status writes in a record, and the Conflicts among them.
func statusWrites(r *replicastest.Record) (written, conflicts int) {
	for _, call := range r.Calls {
		switch {
		case call.Verb != "status":
		case apierrors.IsConflict(call.Err):
			conflicts++
		default:
			written++
		}
	}
	return written, conflicts
}

// Two Controllers write the status of one owner. Each write carries the resourceVersion of the owner, so a write that was
// computed from an owner before the other's last write is a Conflict, and is made again from the owner on the server.
// Neither loses what the other has written.
func TestTwoChildTypesOfOneOwner(t *testing.T) {
	t.Parallel()
	for name, lag := range map[string]time.Duration{
		"no Conflict while the caches are up to date":             0,
		"at most one for each write if the caches are 0.1 s late": 100 * time.Millisecond,
		"and if they are 5 s late":                                5 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDuo(t)
			d.late(lag)
			podCalls, configCalls := d.ofPods.Client.Record(), d.ofConfig.Client.Record()
			passes := 0
			d.ofPods.Passed = func(podPass) { passes++ }
			d.ofConfig.Passed = func(controller.Pass[*appsv1.ReplicaSet, *corev1.ConfigMap]) { passes++ }
			d.pods.Changed = func(before, after metav1.Object) {
				was, ok := before.(*appsv1.ReplicaSet)
				rs, still := after.(*appsv1.ReplicaSet)
				if !ok || !still {
					return
				}
				counts := was.Status.Replicas != rs.Status.Replicas || was.Status.ReadyReplicas != rs.Status.ReadyReplicas || was.Status.ObservedGeneration != rs.Status.ObservedGeneration
				conditions := !assert.ObjectsAreEqual(was.Status.Conditions, rs.Status.Conditions)
				assert.False(t, counts && conditions, "one write sets one part: %+v after %+v", rs.Status, was.Status)
				assert.GreaterOrEqual(t, rs.Status.ObservedGeneration, was.Status.ObservedGeneration)
				assert.GreaterOrEqual(t, len(rs.Status.Conditions), len(was.Status.Conditions))
			}
			createReplicaSet(t, d.pods, 1)
			for _, n := range []int32{1, 7, 3, 9, 2} {
				_, err := d.configs.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = n }) // either cluster has the owner
				require.NoError(t, err)
				d.world.Run(2 * time.Minute)
				rs := d.pods.Owners(namespace)[0]
				assert.Equal(t, n, rs.Status.Replicas)
				assert.Equal(t, n, rs.Status.ReadyReplicas)
				assert.Equal(t, rs.Generation, rs.Status.ObservedGeneration)
				require.Len(t, rs.Status.Conditions, 1)
				assert.Len(t, rs.Status.Conditions[0].Message, int(n))
				assert.Len(t, d.pods.Children(namespace), int(n))
				assert.Len(t, d.configs.Children(namespace), int(n))
			}
			ofPods, podConflicts := statusWrites(podCalls)
			ofConfigs, configConflicts := statusWrites(configCalls)
			writes, conflicts := ofPods+ofConfigs, podConflicts+configConflicts
			t.Logf("%d status writes (%d of the pods), %d Conflicts, %d passes", writes, ofPods, conflicts, passes)
			assert.LessOrEqual(t, conflicts, writes)
			assert.Equal(t, lag > 0, conflicts > 0)
			assert.Positive(t, ofPods)
			assert.Positive(t, ofConfigs)
			require.NoError(t, d.ofPods.View.Intact())
			require.NoError(t, d.ofConfig.View.Intact())
		})
	}
}

// Each Kind has a finalizer of its own on the owner, so the owner stays until the last child of the slower type is gone.
// An owner without finalizers takes both types with it.
func TestAnOwnerOfTwoChildTypesIsDeleted(t *testing.T) {
	t.Parallel()
	finalizers := []string{"example.com/pods", "example.com/configs"}
	for policy, keeps := range map[metav1.DeletionPropagation][]string{
		metav1.DeletePropagationBackground: finalizers,
		metav1.DeletePropagationForeground: nil,
		"":                                 nil,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			d := newDuo(t)
			rs := replicaSet("web", 2)
			rs.Finalizers = keeps
			_, err := d.configs.CreateOwner(t.Context(), rs)
			require.NoError(t, err)
			d.world.Run(time.Minute)
			require.Len(t, d.configs.Children(namespace), 2)
			require.NoError(t, d.configs.DeleteOwner(t.Context(), namespace, "web", policy))
			d.world.Run(time.Minute)
			assert.Empty(t, d.pods.Children(namespace))
			assert.Empty(t, d.configs.Children(namespace))
			assert.Len(t, d.pods.Owners(namespace), len(keeps)/2, "the finalizers are the author's to remove")
		})
	}
	t.Run("and orphans both", func(t *testing.T) {
		t.Parallel()
		d := newDuo(t)
		createReplicaSet(t, d.pods, 2)
		d.world.Run(time.Minute)
		require.NoError(t, d.pods.DeleteOwner(t.Context(), namespace, "web", metav1.DeletePropagationOrphan))
		d.world.Run(time.Minute)
		require.Len(t, d.pods.Children(namespace), 2)
		require.Len(t, d.configs.Children(namespace), 2)
		for _, c := range d.configs.Children(namespace) {
			assert.Empty(t, c.OwnerReferences)
		}
		assert.Empty(t, d.pods.Owners(namespace))
	})
}

func TestNewClusterBesideRefuses(t *testing.T) {
	t.Parallel()
	_, err := replicastest.NewClusterBeside[*appsv1.ReplicaSet, *corev1.ConfigMap](replicastest.NewPodCluster(replicastest.Options{}), controller.Kind[*appsv1.ReplicaSet, *corev1.ConfigMap]{}, replicastest.Options{})
	require.ErrorContains(t, err, "the owners of the first cluster are of kind apps/v1, Kind=ReplicaSet")
	_, err = replicastest.NewClusterBeside[*appsv1.ReplicaSet, *corev1.ConfigMap]((*replicastest.PodCluster)(nil), configs(), replicastest.Options{})
	require.ErrorContains(t, err, "the first cluster is nil")
	kind := configs()
	kind.Spec = nil
	_, err = replicastest.NewClusterBeside[*appsv1.ReplicaSet, *corev1.ConfigMap](replicastest.NewPodCluster(replicastest.Options{}), kind, replicastest.Options{})
	require.ErrorContains(t, err, "kind ReplicaSet has no Spec")
}
