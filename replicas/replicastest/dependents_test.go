// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// jobs returns a Kind whose children are Jobs.
func jobs(opts metav1.DeleteOptions) controller.Kind[*pool, *batchv1.Job] {
	web := map[string]string{"app": "web"}
	return controller.Kind[*pool, *batchv1.Job]{
		Owner: pools().Owner, Child: batchv1.SchemeGroupVersion.WithKind("Job"),
		Spec: func(p *pool) (replicas.Spec[*batchv1.Job], error) {
			return replicas.Spec[*batchv1.Job]{
				Replicas: p.Spec.Replicas, Selector: labels.SelectorFromSet(web), DeleteOptions: opts,
				New: func(string) (*batchv1.Job, error) {
					return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}, nil
				},
			}, nil
		},
		Status: func(*pool, controller.Outcome[*batchv1.Job]) error { return nil },
	}
}

// A batch/v1 Job orphans its pods unless the delete call says otherwise. An owner is scaled from 2 to 0. Then no Job
// may leave its pods, as no one would ever delete them.
func TestChildrenAreDeletedWithTheirDependents(t *testing.T) {
	t.Parallel()
	orphan := metav1.DeletePropagationOrphan
	for name, tt := range map[string]struct {
		opts    metav1.DeleteOptions
		orphans int
	}{
		"of Jobs that are scaled down":        {metav1.DeleteOptions{}, 0},
		"unless the author wants the orphans": {metav1.DeleteOptions{PropagationPolicy: &orphan}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := replicastest.NewCluster(jobs(tt.opts), replicastest.Options{Seed: 1})
			require.NoError(t, err)
			world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
			p := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
			p.Spec.Replicas = 2
			_, err = cluster.CreateOwner(t.Context(), p)
			require.NoError(t, err)
			world.Run(time.Minute)
			require.Len(t, cluster.Children(namespace), 2)
			orphans := 0
			cluster.Changed = func(_, after metav1.Object) {
				if after != nil && len(after.GetFinalizers()) > 0 {
					assert.Equal(t, []string{metav1.FinalizerOrphanDependents}, after.GetFinalizers())
					orphans++
				}
			}
			_, err = cluster.EditOwner(t.Context(), namespace, "web", func(p *pool) { p.Spec.Replicas = 0 })
			require.NoError(t, err)
			world.Run(time.Minute)
			assert.Empty(t, cluster.Children(namespace))
			assert.Equal(t, tt.orphans, orphans)
		})
	}
}

// A finalizer of the garbage collector shows what becomes of the dependents of a child that is deleted.
func TestPropagation(t *testing.T) {
	t.Parallel()
	background, foreground, orphan := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	yes, no := true, false
	for name, tt := range map[string]struct {
		opts metav1.DeleteOptions
		has  []string
		want []string
	}{
		"a Job orphans its dependents by default":       {metav1.DeleteOptions{}, nil, []string{"orphan"}},
		"unless it says otherwise":                      {metav1.DeleteOptions{}, []string{"foregroundDeletion"}, []string{"foregroundDeletion"}},
		"or the call does":                              {metav1.DeleteOptions{PropagationPolicy: &background}, nil, nil},
		"the call has the last word":                    {metav1.DeleteOptions{PropagationPolicy: &background}, []string{"orphan"}, nil},
		"also if it waits for the dependents":           {metav1.DeleteOptions{PropagationPolicy: &foreground}, []string{"orphan"}, []string{"foregroundDeletion"}},
		"or orphans them":                               {metav1.DeleteOptions{PropagationPolicy: &orphan}, []string{"foregroundDeletion"}, []string{"orphan"}},
		"or orphans them by the old field":              {metav1.DeleteOptions{OrphanDependents: &yes}, []string{"foregroundDeletion"}, []string{"orphan"}}, //nolint:staticcheck // servers still accept it
		"or deletes them by the old field":              {metav1.DeleteOptions{OrphanDependents: &no}, nil, nil},                                            //nolint:staticcheck // servers still accept it
		"finalizers of others are kept, in their order": {metav1.DeleteOptions{}, []string{"example.com/b", "example.com/a"}, []string{"example.com/b", "example.com/a", "orphan"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := replicastest.NewCluster(jobs(metav1.DeleteOptions{}), replicastest.Options{Seed: 1})
			require.NoError(t, err)
			_, err = cluster.CreateChild(t.Context(), namespace, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: tt.has}})
			require.NoError(t, err)
			_, err = cluster.DeleteChild(t.Context(), namespace, "a", tt.opts)
			require.NoError(t, err)
			var has []string
			for _, job := range cluster.Children(namespace) {
				has = job.Finalizers
			}
			assert.Equal(t, tt.want, has)
			(&replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster}}).Run(time.Minute)
			for _, job := range cluster.Children(namespace) {
				assert.Equal(t, tt.has, job.Finalizers, "the garbage collector has taken its own away")
			}
		})
	}
}

// A pod has no dependents, but the policy of the call counts for it too. In any case it ends after its grace period.
func TestPropagationOfPods(t *testing.T) {
	t.Parallel()
	background, foreground := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground
	for name, tt := range map[string]struct {
		policy *metav1.DeletionPropagation
		want   []string
	}{
		"without a policy": {nil, nil},
		"background":       {&background, nil},
		"foreground":       {&foreground, []string{"foregroundDeletion"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(1)
			createPod(t, cluster, pod("a"))
			run(cluster, 10*time.Second)
			_, err := cluster.DeleteChild(t.Context(), namespace, "a", metav1.DeleteOptions{PropagationPolicy: tt.policy})
			require.NoError(t, err)
			require.Len(t, cluster.Children(namespace), 1)
			assert.Equal(t, tt.want, cluster.Children(namespace)[0].Finalizers)
			run(cluster, 2*time.Second)
			require.Len(t, cluster.Children(namespace), 1, "it is being stopped")
			assert.Empty(t, cluster.Children(namespace)[0].Finalizers)
			run(cluster, time.Minute)
			assert.Empty(t, cluster.Children(namespace))
		})
	}
}
