// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

func TestWhatChildrenLeaveBehind(t *testing.T) {
	t.Parallel()
	rs := replicaSet(0)
	orphan, foreground, background := metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground, metav1.DeletePropagationBackground
	yes, ten := true, int64(10)
	finalized := func(finalizers ...string) *worker {
		return newWorker(rs, "a", 1, func(w *worker) { w.Finalizers = finalizers })
	}
	for name, tt := range map[string]struct {
		child *worker
		set   metav1.DeleteOptions
		want  metav1.DeleteOptions
	}{
		"their dependents go if nothing is set":                      {finalized(), metav1.DeleteOptions{}, metav1.DeleteOptions{PropagationPolicy: &background}},
		"their dependents go if only the grace period is set":        {finalized(), metav1.DeleteOptions{GracePeriodSeconds: &ten}, metav1.DeleteOptions{GracePeriodSeconds: &ten, PropagationPolicy: &background}},
		"a policy is used as it is":                                  {finalized(), metav1.DeleteOptions{PropagationPolicy: &foreground}, metav1.DeleteOptions{PropagationPolicy: &foreground}},
		"the old field for orphans is used as it is":                 {finalized(), metav1.DeleteOptions{OrphanDependents: &yes}, metav1.DeleteOptions{OrphanDependents: &yes}}, //nolint:staticcheck // servers still accept it
		"a child that orphans its dependents is not overridden":      {finalized("orphan"), metav1.DeleteOptions{}, metav1.DeleteOptions{}},
		"a child that waits for its dependents is not overridden":    {finalized("foregroundDeletion"), metav1.DeleteOptions{}, metav1.DeleteOptions{}},
		"a policy counts more than the finalizers of the child":      {finalized("orphan"), metav1.DeleteOptions{PropagationPolicy: &background}, metav1.DeleteOptions{PropagationPolicy: &background}},
		"another finalizer of the child says nothing of dependents":  {finalized("example.com/drain"), metav1.DeleteOptions{}, metav1.DeleteOptions{PropagationPolicy: &background}},
		"the policy for orphans is no reason to send something more": {finalized(), metav1.DeleteOptions{PropagationPolicy: &orphan}, metav1.DeleteOptions{PropagationPolicy: &orphan}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(0)
			spec.DeleteOptions = tt.set
			scale, err := replicas.ScaleTo([]*worker{tt.child}, spec)
			require.NoError(t, err)
			require.Len(t, scale.Delete, 1)
			tt.want.Preconditions = &metav1.Preconditions{UID: &tt.child.UID, ResourceVersion: &tt.child.ResourceVersion}
			assert.Equal(t, tt.want, scale.Delete[0].Options)
			assert.Equal(t, tt.want, spec.DeleteOptionsFor(tt.child), "a child that is in no plan goes in the same way")
			assert.Nil(t, spec.DeleteOptions.Preconditions, "the Spec is not changed")
		})
	}
}

// Kubernetes sends no options with the deletion of a pod. So a server that treats options in a special way, such as a
// webhook, sees what it has always seen.
func TestPodsAreDeletedWithTheServersDefaults(t *testing.T) {
	t.Parallel()
	rs := replicaSet(0)
	pod := podtest.Pod("a", owned(rs))
	options := func(spec replicas.SpecOfPods) metav1.DeleteOptions {
		scale, err := replicas.ScaleTo([]*corev1.Pod{pod}, spec)
		require.NoError(t, err)
		require.Len(t, scale.Delete, 1)
		opts := scale.Delete[0].Options
		opts.Preconditions = nil
		return opts
	}
	spec := specOf(t, rs)
	assert.Equal(t, metav1.DeleteOptions{}, options(spec))
	spec.DeleteOptions.GracePeriodSeconds = new(int64)
	assert.Equal(t, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, options(spec))
}

func TestDeleteOptionsApplyToAllDeletions(t *testing.T) {
	t.Parallel()
	foreground := metav1.DeletePropagationForeground
	a, b, c := newWorker(replicaSet(1), "a", 1), newWorker(replicaSet(1), "b", 2), newWorker(replicaSet(1), "c", 3)
	for name, change := range map[string]func(s *replicas.Spec[*worker]){
		"of surplus children": func(s *replicas.Spec[*worker]) { s.Replicas = 2 },
		"of ended children": func(s *replicas.Spec[*worker]) {
			s.Rules.Discard = func(w *worker) bool { return w.Name == "b" }
		},
		"of outdated children": func(s *replicas.Spec[*worker]) {
			s.Rules.MustGo = func(w *worker) bool { return w.Name == "b" }
		},
		"in a rollout": func(s *replicas.Spec[*worker]) {
			one := intstr.FromInt32(1)
			s.MaxUnavailable, s.Rules.MustGo = &one, func(w *worker) bool { return w.Name == "b" }
			s.Rules.Ready = func(*worker) bool { return true }
		},
		"of all children of an owner that is being deleted": func(s *replicas.Spec[*worker]) {
			rs := replicaSet(3)
			rs.DeletionTimestamp, rs.Finalizers = &metav1.Time{Time: podtest.Now}, []string{"example.com/drain"}
			s.Owner, s.Finalizer = rs, "example.com/drain"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(3)
			spec.DeleteOptions.PropagationPolicy = &foreground
			change(&spec)
			plan, err := replicas.Manage([]*worker{a, b, c}, spec)
			require.NoError(t, err)
			deletions := slices.Concat(plan.Scale.Delete, plan.Scale.Discard)
			require.NotEmpty(t, deletions)
			for _, d := range deletions {
				assert.Equal(t, &foreground, d.Options.PropagationPolicy, d.Object.Name)
				assert.NotNil(t, d.Options.Preconditions)
			}
		})
	}
	t.Run("even of a child that does not exist", func(t *testing.T) {
		t.Parallel()
		spec := workerSpec(3)
		spec.DeleteOptions.PropagationPolicy = &foreground
		assert.Equal(t, spec.DeleteOptions, spec.DeleteOptionsFor(nil))
	})
}

func TestDeleteOptionsThatServersRefuse(t *testing.T) {
	t.Parallel()
	sometimes, orphan, yes := metav1.DeletionPropagation("Sometimes"), metav1.DeletePropagationOrphan, true
	for text, opts := range map[string]metav1.DeleteOptions{
		`deleteOptions.propagationPolicy: Unsupported value: "Sometimes"`: {PropagationPolicy: &sometimes},
		`deleteOptions.propagationPolicy: Invalid value: "Orphan"`:        {PropagationPolicy: &orphan, OrphanDependents: &yes},
	} {
		spec := workerSpec(1)
		spec.DeleteOptions = opts
		_, err := replicas.ScaleTo(nil, spec)
		requireRefused(t, err, replicas.InvalidDeleteOptions)
		require.ErrorContains(t, err, `replicas: ReplicaSet "default/web": `+text)
	}
}
